/* job.h in random worlds: nodes and ranks that obey orders late, lose frames, crash and hang.
 *
 * The world is simulated in its own time: agents with channels (an epoch each; frames of a
 * closed channel are not delivered), workers that pass a barrier, work, end or die, and a
 * controller that is killed and started again from what its journal would hold.  Faults stop at
 * some point; from there on the job must end within a bound.  Checked at every step, by what
 * really lives in the world, not by what the job believes:
 *
 *   - no worker starts while one of another generation lives, and generations grow
 *   - restarts stay within the budget of every window; those asked for take nothing from it
 *   - FINISH is ordered once, last, and nothing lives then but what was given up
 *   - no event of a legal world is refused; every state that waits has a deadline
 *
 * DSLAUNCH_SEED=N runs other worlds; the seed is printed.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/own.h"
#include "launcher/super/job.h"

#define MS 1000000LL
#define S 1000000000LL

enum { NODES_MAX = 4, RANKS_MAX = 8, ITEMS_MAX = 1024, RESTARTS_MAX = 64 };

#define CONNECT_NS (10 * S)
#define LAUNCH_NS (30 * S)
#define GRACE_NS (20 * S)
#define HANG_NS (30 * S)
#define LOST_NS (8 * S)
#define WINDOW_NS (600 * S)
/* Budget, boots, deadlines, hangs: all that may still follow once faults stop. */
#define END_BOUND_NS (900 * S)

enum what {
    W_TO_JOB,     /* ev, on the node's channel */
    W_BARRIER_IN, /* rank's barrier line, on the node's channel */
    W_TO_AGENT,   /* order, on the node's channel */
    W_CONNECT,    /* the boot attempt's end */
    W_CLEARED,    /* the agent has reaped */
    W_WORKER_DIES,
    W_WORKER_ENTERS,
    W_WORKER_ENDS,
    W_HANG_SEEN,
    W_AGENT_WAKES,
    W_AGENT_LOST,
    W_FAULT,
    W_USER,
    W_CONTROLLER_UP
};

struct item {
    int64_t at;
    uint64_t number; /* ties in the order made */
    enum what what;
    uint32_t node, epoch, rank;
    uint32_t generation; /* TO_AGENT: the agent's incarnation */
    int code;
    struct job_event ev;
    struct job_order order;
};

struct worker {
    bool lives, entered, hangs, stop, over;
    uint32_t generation;
    struct job_event ended; /* for a controller that was not there */
};

struct agent {
    bool lives, hangs, channel;
    uint32_t epoch;   /* of the channel, or of the attempt to boot */
    uint32_t holds;   /* generation whose workers it has, or had and was not told to forget */
    int64_t last_out; /* frames keep their order */
    int64_t last_in;
    int64_t wakes; /* hangs: until then */
    uint32_t incarnation;
    bool disturbed; /* was lost or hung at some time: may be given up */
};

struct world {
    uint64_t random;
    int64_t now, faults_end;
    struct item heap[ITEMS_MAX];
    uint32_t n_items;
    uint64_t n_made;

    struct job *job; /* NULL while the controller is dead */
    struct job_params params;
    uint32_t node_of_rank[RANKS_MAX];
    struct agent agents[NODES_MAX];
    struct worker workers[RANKS_MAX];
    bool in[RANKS_MAX]; /* the controller's rendezvous */

    /* The journal. */
    uint32_t newest, barrier_of;
    int64_t restarts[RESTARTS_MAX];
    uint32_t n_restarts;
    bool stop_asked, restart_asked;
    uint32_t n_free; /* generations that followed one that had stopped well */
    bool failed;     /* since the newest was launched */

    uint32_t work_of; /* generation that passed its barrier and works */
    int64_t work_ends;
    bool finished;
    int exit_code;
    enum job_outcome outcome;
    uint64_t n_events;
};

/* Randomness. */

static uint64_t rnd(struct world *w, uint64_t n)
{
    uint64_t z = (w->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

static bool chance(struct world *w, unsigned percent)
{
    return rnd(w, 100) < percent;
}

static int64_t delay(struct world *w, int64_t most)
{
    return 1 + (int64_t)rnd(w, (uint64_t)most);
}

/* Until then things go wrong by themselves. */
static bool mishap(struct world *w, unsigned percent)
{
    return chance(w, percent) && w->now < w->faults_end;
}

/* The heap. */

static bool before(const struct item *a, const struct item *b)
{
    return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void push(struct world *w, int64_t in, struct item it)
{
    assert_true(w->n_items < ITEMS_MAX);
    it.at = w->now + in;
    it.number = w->n_made++;
    uint32_t i = w->n_items++;
    while (i && before(&it, &w->heap[(i - 1) / 2])) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = it;
}

static struct item pop(struct world *w)
{
    struct item top = w->heap[0], last = w->heap[--w->n_items];
    uint32_t i = 0;
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c >= w->n_items)
            break;
        if (c + 1 < w->n_items && before(&w->heap[c + 1], &w->heap[c]))
            c++;
        if (!before(&w->heap[c], &last))
            break;
        w->heap[i] = w->heap[c];
        i = c;
    }
    w->heap[i] = last;
    return top;
}

/* Channels.  A frame arrives after the ones before it; a stopped agent neither writes nor
 * reads. */

static int64_t arrival(struct world *w, const struct agent *a, int64_t last)
{
    int64_t from = a->hangs && a->wakes > w->now ? a->wakes : w->now;
    int64_t at = from + delay(w, 5 * MS);
    return at > last ? at : last + 1;
}

static void frame_to_controller(struct world *w, uint32_t node, struct item it)
{
    struct agent *a = &w->agents[node];
    if (!a->channel)
        return;
    a->last_out = arrival(w, a, a->last_out);
    it.node = node;
    it.epoch = a->epoch;
    push(w, a->last_out - w->now, it);
}

static void tell(struct world *w, uint32_t node, struct job_event ev)
{
    ev.node = node;
    frame_to_controller(w, node, (struct item){.what = W_TO_JOB, .ev = ev});
}

static void frame_to_agent(struct world *w, uint32_t node, const struct job_order *o)
{
    struct agent *a = &w->agents[node];
    if (!a->channel)
        return;
    a->last_in = arrival(w, a, a->last_in);
    push(w, a->last_in - w->now,
         (struct item){.what = W_TO_AGENT,
                       .node = node,
                       .epoch = a->epoch,
                       .generation = a->incarnation,
                       .order = *o});
}

/* Workers. */

static bool any_live_on(const struct world *w, uint32_t node)
{
    for (uint32_t r = 0; r < w->params.n_ranks; r++)
        if (w->node_of_rank[r] == node && w->workers[r].lives)
            return true;
    return false;
}

static void worker_ends(struct world *w, uint32_t rank, struct job_event ev)
{
    struct worker *k = &w->workers[rank];
    uint32_t node = w->node_of_rank[rank];
    k->lives = false;
    k->over = true;
    ev.kind = JOB_EV_RANK_EXITED;
    ev.rank = rank;
    ev.generation = k->generation;
    k->ended = ev;
    if (w->agents[node].lives && w->agents[node].holds == k->generation)
        tell(w, node, ev);
    bool well = ev.exit_code == 0 && ev.done;
    for (uint32_t r = 0; r < w->params.n_ranks && !well; r++) { /* the others lose a peer */
        struct worker *o = &w->workers[r];
        if (o->lives && o->entered && o->generation == k->generation && !chance(w, 20))
            push(w, delay(w, 300 * MS),
                 (struct item){.what = W_WORKER_DIES,
                               .rank = r,
                               .generation = o->generation,
                               .code = 94,
                               .ev = {.blamed = chance(w, 70) ? rank + 1 : 0}});
    }
}

static void worker_starts(struct world *w, uint32_t rank, uint32_t generation)
{
    for (uint32_t r = 0; r < w->params.n_ranks; r++)
        if (w->workers[r].lives && w->workers[r].generation != generation)
            fail_msg("generation %u starts while rank %u of %u lives", generation, r,
                     w->workers[r].generation);
    assert_false(w->workers[rank].lives);
    w->workers[rank] = (struct worker){.lives = true, .generation = generation};
    push(w, delay(w, mishap(w, 3) ? 2 * LAUNCH_NS : 500 * MS),
         (struct item){.what = W_WORKER_ENTERS, .rank = rank, .generation = generation});
}

/* When the generation works, its end; a rank told to stop ends sooner. */
static void plan_ends(struct world *w, uint32_t generation)
{
    if (w->work_of != generation) {
        w->work_of = generation;
        w->work_ends = w->now + delay(w, 60 * S);
    }
    for (uint32_t r = 0; r < w->params.n_ranks; r++)
        if (w->workers[r].lives && w->workers[r].generation == generation)
            push(w, w->work_ends - w->now + delay(w, 50 * MS),
                 (struct item){.what = W_WORKER_ENDS, .rank = r, .generation = generation});
}

/* Agents. */

static void agent_dies(struct world *w, uint32_t node)
{
    struct agent *a = &w->agents[node];
    if (!a->lives)
        return;
    a->lives = a->hangs = false;
    a->disturbed = true;
    a->last_out = w->now; /* what it had not written is never sent */
    a->holds = 0;
    for (uint32_t r = 0; r < w->params.n_ranks; r++)
        if (w->node_of_rank[r] == node && w->workers[r].lives)
            push(w, delay(w, 20 * MS),
                 (struct item){.what = W_WORKER_DIES,
                               .rank = r,
                               .generation = w->workers[r].generation,
                               .code = -9});
    frame_to_controller(w, node, (struct item){.what = W_AGENT_LOST});
}

static void agent_obeys(struct world *w, uint32_t node, const struct job_order *o)
{
    struct agent *a = &w->agents[node];
    if (!a->lives)
        return;
    switch ((int)o->kind) {
    case JOB_DO_LAUNCH:
        assert_false(any_live_on(w, node));
        for (uint32_t r = 0; r < w->params.n_ranks; r++) {
            if (w->node_of_rank[r] != node)
                continue;
            a->holds = o->generation;
            worker_starts(w, r, o->generation);
        }
        break;
    case JOB_DO_SIGNAL_STOP:
        for (uint32_t r = 0; r < w->params.n_ranks; r++) {
            struct worker *k = &w->workers[r];
            if (w->node_of_rank[r] != node || !k->lives || k->generation != o->generation)
                continue;
            k->stop = true;
            push(w, delay(w, mishap(w, 5) ? 3 * GRACE_NS : 5 * S),
                 (struct item){.what = W_WORKER_ENDS, .rank = r, .generation = k->generation});
        }
        break;
    case JOB_DO_KILL:
    case JOB_DO_DISMISS: {
        int64_t longest = 0;
        for (uint32_t r = 0; r < w->params.n_ranks; r++) {
            int64_t d = delay(w, 100 * MS);
            if (w->node_of_rank[r] != node || !w->workers[r].lives)
                continue;
            push(w, d,
                 (struct item){.what = W_WORKER_DIES,
                               .rank = r,
                               .generation = w->workers[r].generation,
                               .code = -9});
            longest = d > longest ? d : longest;
        }
        /* Reaping may hang in the kernel for a while. */
        if (mishap(w, 3)) {
            longest += delay(w, 2 * JOB_CLEAR_NS);
            a->disturbed = true;
        }
        push(w, longest + 1,
             (struct item){.what = W_CLEARED,
                           .node = node,
                           .epoch = a->incarnation,
                           .generation = o->generation,
                           .order = *o});
        break;
    }
    default:
        fail_msg("order %d to an agent", (int)o->kind);
    }
}

static void agent_cleared(struct world *w, const struct item *it)
{
    struct agent *a = &w->agents[it->node];
    if (!a->lives || a->incarnation != it->epoch)
        return;
    if (any_live_on(w, it->node)) { /* one was not killed at once */
        struct item again = *it;
        push(w, 10 * MS, again);
        return;
    }
    a->holds = 0;
    if (it->order.kind == JOB_DO_KILL) {
        tell(w, it->node,
             (struct job_event){.kind = JOB_EV_NODE_CLEAR, .generation = it->generation});
        return;
    }
    tell(w, it->node, (struct job_event){.kind = JOB_EV_DISMISSED});
    frame_to_controller(w, it->node, (struct item){.what = W_AGENT_LOST});
    a->lives = false;
}

/* The controller. */

static void on_order(void *ctx, const struct job_order *o);

static void feed(struct world *w, struct job_event ev)
{
    struct err e;
    if (!w->job)
        return;
    w->n_events++;
    if (ev.kind == JOB_EV_STOP)
        w->stop_asked = true;
    if (ev.kind == JOB_EV_RESTART && job_state(w->job) == JOB_RUNNING)
        w->restart_asked = true;
    enum job_state was = job_state(w->job);
    if (job_event(w->job, &ev, w->now, &e) < 0)
        fail_msg("%s (node %u rank %u generation %u)", e.text, ev.node, ev.rank, ev.generation);
    enum job_state is = job_state(w->job);
    bool waits = is != JOB_RUNNING && is != JOB_ENDED;
    assert_true((job_deadline(w->job) < INT64_MAX) == waits);
    if (was == JOB_ENDED)
        assert_int_equal(is, JOB_ENDED);
    assert_true((is == JOB_ENDED) == w->finished);
}

static void all_in(struct world *w, uint32_t generation)
{
    w->barrier_of = generation;
    feed(w, (struct job_event){.kind = JOB_EV_ALL_IN, .generation = generation});
    if (w->work_of != generation)
        plan_ends(w, generation);
}

static void controller_starts(struct world *w)
{
    struct job_params p = w->params;
    p.first_generation = w->newest + 1;
    p.restarted_ns = w->restarts;
    p.n_restarted = w->n_restarts;
    for (uint32_t r = 0; r < RANKS_MAX; r++)
        w->in[r] = false;
    w->job = job_new(&p, on_order, w);
    feed(w, (struct job_event){.kind = JOB_EV_START});
    if (w->barrier_of && w->barrier_of == w->newest)
        feed(w, (struct job_event){.kind = JOB_EV_ALL_IN, .generation = w->newest});
    if (w->restart_asked)
        feed(w, (struct job_event){.kind = JOB_EV_RESTART});
    if (w->stop_asked)
        feed(w, (struct job_event){.kind = JOB_EV_STOP});
}

static void controller_dies(struct world *w)
{
    if (!w->job || w->finished)
        return;
    job_free(w->job);
    w->job = NULL;
    for (uint32_t i = 0; i < w->params.n_nodes; i++) {
        w->agents[i].epoch++;
        w->agents[i].channel = false;
    }
    push(w, delay(w, 5 * S), (struct item){.what = W_CONTROLLER_UP});
}

static void channel_ends(struct world *w, uint32_t node)
{
    w->agents[node].channel = false;
    w->agents[node].epoch++;
    w->agents[node].disturbed = true;
    feed(w, (struct job_event){.kind = JOB_EV_AGENT_LOST, .node = node});
}

static void boot(struct world *w, uint32_t node)
{
    struct agent *a = &w->agents[node];
    a->epoch++;
    a->channel = false;
    if (mishap(w, 1)) {
        a->disturbed = true;
        return; /* boot says nothing, against its contract */
    }
    push(w, delay(w, 200 * MS),
         (struct item){.what = W_CONNECT, .node = node, .epoch = a->epoch, .at = 0});
}

static void connect_ends(struct world *w, const struct item *it)
{
    struct agent *a = &w->agents[it->node];
    if (it->epoch != a->epoch || !w->job)
        return;
    bool fails = mishap(w, 4);
    if (!fails && (a->hangs || (!a->lives && any_live_on(w, it->node)))) {
        /* An agent that is stopped answers later or never; a new one waits until the workers of
         * the one before are gone. */
        if (it->generation < 90) {
            struct item again = *it;
            again.generation++;
            push(w, 100 * MS, again);
            return;
        }
        fails = true;
    }
    if (fails) {
        a->disturbed = true;
        feed(w, (struct job_event){.kind = JOB_EV_BOOT_FAILED, .node = it->node});
        return;
    }
    if (!a->lives)
        *a = (struct agent){.lives = true,
                            .epoch = a->epoch,
                            .incarnation = a->incarnation + 1,
                            .disturbed = a->disturbed};
    a->channel = true;
    a->last_in = a->last_out = w->now;
    if (!a->holds) {
        tell(w, it->node, (struct job_event){.kind = JOB_EV_AGENT_READY});
        return;
    }
    tell(w, it->node, (struct job_event){.kind = JOB_EV_AGENT_ADOPTED, .generation = a->holds});
    for (uint32_t r = 0; r < w->params.n_ranks; r++)
        if (w->node_of_rank[r] == it->node && w->workers[r].over &&
            w->workers[r].generation == a->holds)
            tell(w, it->node, w->workers[r].ended);
}

static void check_budget(struct world *w)
{
    assert_true(w->n_restarts < RESTARTS_MAX);
    w->restarts[w->n_restarts++] = w->now;
    uint32_t within = 0;
    for (uint32_t i = 0; i < w->n_restarts; i++)
        within += w->now - w->restarts[i] < WINDOW_NS;
    assert_true(within <= w->params.restart.max);
}

static void check_finish(struct world *w, const struct job_order *o)
{
    static const int codes[] = {0, 0, 130, 1, 3};
    w->finished = true;
    w->exit_code = o->exit_code;
    w->outcome = o->outcome;
    bool special = (o->outcome == JOB_STOPPED && o->exit_code == 75) ||
                   (o->outcome == JOB_FAILED && o->exit_code == 2);
    assert_true(special || o->exit_code == codes[o->outcome]);
    for (uint32_t i = 0; i < w->params.n_nodes; i++) {
        const struct agent *a = &w->agents[i];
        if (!a->disturbed && (a->lives || any_live_on(w, i)))
            fail_msg("node %u was left behind", i);
    }
}

static void on_order(void *ctx, const struct job_order *o)
{
    struct world *w = ctx;
    assert_false(w->finished); /* FINISH is the last */
    switch (o->kind) {
    case JOB_DO_BOOT:
        boot(w, o->node);
        break;
    case JOB_DO_LAUNCH:
        assert_true(o->generation > w->newest);
        for (uint32_t r = 0; r < w->params.n_ranks; r++)
            if (w->workers[r].lives)
                fail_msg("launch of %u while rank %u of %u lives", o->generation, r,
                         w->workers[r].generation);
        assert_false(w->stop_asked);
        w->n_free += w->restart_asked && !w->failed;
        w->restart_asked = w->failed = false;
        w->newest = o->generation;
        memset(w->in, 0, sizeof w->in);
        for (uint32_t i = 0; i < w->params.n_nodes; i++)
            frame_to_agent(w, i, o);
        break;
    case JOB_DO_SIGNAL_STOP:
        assert_int_equal(o->generation, w->newest);
        for (uint32_t i = 0; i < w->params.n_nodes; i++)
            frame_to_agent(w, i, o);
        break;
    case JOB_DO_KILL:
    case JOB_DO_DISMISS:
        frame_to_agent(w, o->node, o);
        break;
    case JOB_DO_FAILURE:
        assert_true(strlen(o->rule) > 0);
        assert_true(o->rank == UINT32_MAX || o->rank < w->params.n_ranks);
        assert_true(o->rank == UINT32_MAX || o->node == w->node_of_rank[o->rank]);
        w->failed = true;
        if (o->restarts)
            check_budget(w);
        break;
    case JOB_DO_BACKOFF:
        assert_true(o->until_ns > w->now);
        break;
    case JOB_DO_FINISH:
        check_finish(w, o);
        break;
    }
}

/* Faults. */

static void fault(struct world *w)
{
    static const int codes[] = {1, 0, -11, -9, -6, 95, 96, 97, 94, 1, -9, -11};
    uint32_t node = (uint32_t)rnd(w, w->params.n_nodes),
             rank = (uint32_t)rnd(w, w->params.n_ranks);
    struct worker *k = &w->workers[rank];
    struct agent *a = &w->agents[node];
    uint64_t dice = rnd(w, 100);
    if (dice < 45) { /* a rank dies */
        int code = codes[rnd(w, sizeof codes / sizeof codes[0])];
        if (chance(w, 4))
            code = (int[]){2, 93, 75}[rnd(w, 3)];
        if (k->lives)
            worker_ends(w, rank, (struct job_event){.exit_code = code});
    } else if (dice < 60) {
        agent_dies(w, node);
    } else if (dice < 68) { /* a channel breaks */
        if (a->channel)
            frame_to_controller(w, node, (struct item){.what = W_AGENT_LOST});
    } else if (dice < 76) { /* an agent is stopped for a while */
        if (a->lives && !a->hangs) {
            int64_t d = delay(w, 3 * LOST_NS);
            a->hangs = a->disturbed = true;
            a->wakes = w->now + d;
            push(w, d, (struct item){.what = W_AGENT_WAKES, .node = node});
            if (d > LOST_NS && a->channel) /* its lease */
                push(w, LOST_NS,
                     (struct item){.what = W_AGENT_LOST, .node = node, .epoch = a->epoch});
        }
    } else if (dice < 84) { /* a rank hangs, and is seen */
        if (k->lives && !k->hangs) {
            k->hangs = true;
            push(w, HANG_NS,
                 (struct item){.what = W_HANG_SEEN, .rank = rank, .generation = k->generation});
        }
    } else if (dice < 88) { /* a rank breaks the protocol */
        if (k->lives)
            tell(w, w->node_of_rank[rank],
                 (struct job_event){
                     .kind = JOB_EV_RANK_STUCK, .rank = rank, .generation = k->generation});
    } else {
        controller_dies(w);
    }
}

/* One step of the world. */

static void step(struct world *w, const struct item *it)
{
    struct worker *k = &w->workers[it->rank];
    struct agent *a = &w->agents[it->node];
    bool mine = k->lives && k->generation == it->generation;
    bool open = a->channel && it->epoch == a->epoch;
    switch (it->what) {
    case W_TO_JOB:
        if (open)
            feed(w, it->ev);
        break;
    case W_BARRIER_IN:
        if (!open || !w->job || it->generation != job_generation(w->job))
            break;
        w->in[it->rank] = true;
        for (uint32_t r = 0; r < w->params.n_ranks; r++)
            if (!w->in[r])
                return;
        all_in(w, it->generation);
        break;
    case W_TO_AGENT:
        /* What lies in the socket may be read though the other end is closed by then, until a
         * new channel takes its place. */
        if (!a->lives || it->generation != a->incarnation)
            break;
        if (a->hangs)
            push(w, a->wakes - w->now, *it);
        else if (open || (it->epoch < a->epoch && !a->channel && chance(w, 50)))
            agent_obeys(w, it->node, &it->order);
        break;
    case W_CONNECT:
        connect_ends(w, it);
        break;
    case W_CLEARED:
        agent_cleared(w, it);
        break;
    case W_WORKER_DIES:
        if (mine)
            worker_ends(w, it->rank,
                        (struct job_event){.exit_code = it->code, .blamed = it->ev.blamed});
        break;
    case W_WORKER_ENTERS:
        if (!mine || k->hangs)
            break;
        k->entered = true;
        frame_to_controller(w, w->node_of_rank[it->rank],
                            (struct item){.what = W_BARRIER_IN,
                                          .rank = it->rank,
                                          .generation = it->generation});
        break;
    case W_WORKER_ENDS:
        if (mine && k->entered && !k->hangs)
            worker_ends(w, it->rank, (struct job_event){.done = true, .stopped = k->stop});
        break;
    case W_HANG_SEEN:
        if (mine && w->job && it->generation == job_generation(w->job))
            feed(w, (struct job_event){.kind = JOB_EV_RANK_HUNG,
                                       .rank = it->rank,
                                       .generation = it->generation});
        if (mine) /* a controller that is started again sees it again */
            push(w, HANG_NS, *it);
        break;
    case W_AGENT_WAKES:
        a->hangs = false;
        break;
    case W_AGENT_LOST:
        if (open && w->job)
            channel_ends(w, it->node);
        break;
    case W_FAULT:
        fault(w);
        break;
    case W_USER:
        if (!w->job)
            break;
        feed(w, (struct job_event){.kind = (enum job_event_kind)it->code});
        break;
    case W_CONTROLLER_UP:
        controller_starts(w);
        break;
    }
}

/* Lives until FINISH; then *w says how it ended. */
static void live(struct world *w)
{
    uint32_t at_once = 0;
    controller_starts(w);
    while (!w->finished) {
        int64_t deadline = w->job ? job_deadline(w->job) : INT64_MAX;
        int64_t next = w->n_items ? w->heap[0].at : INT64_MAX;
        int64_t was = w->now;
        assert_true(next < INT64_MAX || deadline < INT64_MAX); /* else nothing ever happens */
        if (deadline <= next) {
            w->now = deadline > w->now ? deadline : w->now;
            feed(w, (struct job_event){.kind = JOB_EV_TICK});
        } else {
            struct item it = pop(w);
            w->now = it.at;
            step(w, &it);
        }
        at_once = w->now > was ? 0 : at_once + 1;
        assert_true(at_once < 1000);
        if (w->now > w->faults_end + END_BOUND_NS)
            fail_msg("still %s long after the last fault",
                     w->job ? job_state_name(job_state(w->job)) : "without a controller");
    }
    for (int kind = JOB_EV_AGENT_READY; kind < JOB_EV_COUNT; kind++)
        feed(w, (struct job_event){.kind = (enum job_event_kind)kind,
                                   .generation = job_generation(w->job) +
                                                 (kind == JOB_EV_AGENT_ADOPTED)});
    job_free(w->job);
}

static void make_world(struct world *w, uint64_t seed, uint32_t n_faults)
{
    *w = (struct world){.random = seed};
    uint32_t n_nodes = 1 + (uint32_t)rnd(w, NODES_MAX);
    uint32_t n_ranks = n_nodes + (uint32_t)rnd(w, RANKS_MAX - n_nodes + 1);
    for (uint32_t r = 0; r < n_ranks; r++)
        w->node_of_rank[r] = r * n_nodes / n_ranks;
    w->params = (struct job_params){
        .n_nodes = n_nodes,
        .n_ranks = n_ranks,
        .node_of_rank = w->node_of_rank,
        .connect_ns = CONNECT_NS,
        .launch_ns = LAUNCH_NS,
        .grace_ns = GRACE_NS,
        .restart = {.max = (uint32_t)rnd(w, 8), .window_ns = WINDOW_NS, .backoff_ns = 2 * S},
    };
    for (uint32_t i = 0; i < n_faults; i++) {
        int64_t at = delay(w, 150 * S);
        push(w, at, (struct item){.what = W_FAULT});
        w->faults_end = at > w->faults_end ? at : w->faults_end;
    }
    for (uint32_t i = 0; n_faults && i < 3; i++)
        if (chance(w, 30))
            push(w, delay(w, 100 * S), (struct item){.what = W_USER, .code = JOB_EV_RESTART});
    if (n_faults && chance(w, 20))
        push(w, delay(w, 100 * S), (struct item){.what = W_USER, .code = JOB_EV_STOP});
    if (n_faults && chance(w, 7))
        push(w, delay(w, 100 * S), (struct item){.what = W_USER, .code = JOB_EV_STOP_NOW});
}

static uint64_t seed_of_run(void)
{
    const char *s = getenv("DSLAUNCH_SEED");
    return s ? strtoull(s, NULL, 0) : 1;
}

static void random_worlds(void **state)
{
    (void)state;
    enum { OUTCOMES = JOB_CLUSTER + 1 };
    uint64_t seed = seed_of_run(), events = 0, restarts = 0, asked = 0, n[OUTCOMES] = {0},
             worlds = 0;
    print_message("# DSLAUNCH_SEED=%llu\n", (unsigned long long)seed);
    AUTO_FREE struct world *w = xcalloc(1, sizeof *w);
    for (; events < 1000000; worlds++) {
        make_world(w, seed + worlds * 0x632be59bd9b4e019u, (uint32_t)(worlds % 17));
        live(w);
        events += w->n_events;
        restarts += w->n_restarts;
        asked += w->n_free;
        n[w->outcome]++;
        if (worlds % 17 == 0) { /* nothing went wrong */
            assert_int_equal(w->outcome, JOB_COMPLETED);
            assert_int_equal(w->n_restarts, 0);
            assert_int_equal(w->newest, 1);
        }
    }
    print_message("# %llu worlds, %llu events, %llu restarts, %llu by order\n",
                  (unsigned long long)worlds, (unsigned long long)events,
                  (unsigned long long)restarts, (unsigned long long)asked);
    assert_true(asked > 100);
    for (int o = 0; o < OUTCOMES; o++) {
        print_message("#   %s: %llu\n", job_outcome_name((enum job_outcome)o),
                      (unsigned long long)n[o]);
        assert_true(n[o] > 10); /* else the worlds are too tame */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_worlds),
    };
    return cmocka_run_group_tests_name("jobworld", tests, NULL, NULL);
}
