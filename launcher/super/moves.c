/* moves.c: how the job goes from one state to the next, and what it orders on the way. */
#include "launcher/super/job_impl.h"

#include <assert.h>
#include <stdio.h>

static void give(struct job *j, const struct job_order *o)
{
    j->ordering = true;
    j->order(j->ctx, o);
    j->ordering = false;
}

static void give_node(struct job *j, enum job_order_kind kind, uint32_t node)
{
    give(j,
         &(struct job_order){
             .kind = kind, .node = node, .generation = j->nodes[node].gen, .rank = UINT32_MAX});
}

void job_give_kill(struct job *j, uint32_t node)
{
    j->nodes[node].is = NODE_KILLED;
    give_node(j, JOB_DO_KILL, node);
}

void job_give_dismiss(struct job *j, uint32_t node)
{
    give_node(j, JOB_DO_DISMISS, node);
}

static int64_t after(int64_t now_ns, int64_t ns)
{
    int64_t t;
    return __builtin_add_overflow(now_ns, ns, &t) ? INT64_MAX : t;
}

uint32_t job_count(const struct job *j, enum node_state s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->p.n_nodes; i++)
        n += j->nodes[i].is == s;
    return n;
}

void job_give_failure(struct job *j, const struct fault *f, bool restarts, const char *rule)
{
    struct job_order o = {.kind = JOB_DO_FAILURE,
                          .node = f->node,
                          .generation = j->generation,
                          .cause = f->cause,
                          .rank = f->rank,
                          .rank_exit = f->exit_code,
                          .restarts = restarts};
    (void)snprintf(o.rule, sizeof o.rule, "%s", rule);
    give(j, &o);
}

void job_maybe_finish(struct job *j)
{
    if (job_count(j, NODE_LOST) + job_count(j, NODE_GONE) < j->p.n_nodes)
        return;
    j->state = JOB_ENDED;
    j->deadline = INT64_MAX;
    give(j, &(struct job_order){.kind = JOB_DO_FINISH,
                                .generation = j->generation,
                                .rank = UINT32_MAX,
                                .exit_code = j->exit_code,
                                .outcome = j->outcome});
}

void job_begin_dismissing(struct job *j, enum job_outcome outcome, int code, int64_t now)
{
    j->state = JOB_DISMISSING;
    j->deadline = after(now, JOB_CLEAR_NS);
    j->outcome = outcome;
    j->exit_code = code;
    for (uint32_t i = 0; i < j->p.n_nodes; i++) {
        enum node_state is = j->nodes[i].is;
        if (is != NODE_LOST && is != NODE_AWAITED && is != NODE_GONE)
            job_give_dismiss(j, i);
    }
    job_maybe_finish(j);
}

static void begin_launching(struct job *j, int64_t now)
{
    job_forget(j);
    j->ran = true;
    j->may_adopt = false;
    j->generation = j->next_generation++;
    j->state = JOB_LAUNCHING;
    j->deadline = after(now, j->p.launch_ns);
    for (uint32_t i = 0; i < j->p.n_nodes; i++) {
        assert(j->nodes[i].is == NODE_CLEAR);
        if (j->nodes[i].n_ranks) {
            j->nodes[i].is = NODE_LIVE;
            j->nodes[i].gen = j->generation;
        }
    }
    give(j, &(struct job_order){
                .kind = JOB_DO_LAUNCH, .generation = j->generation, .rank = UINT32_MAX});
}

/* The next generation, as soon as every node is there and clear. */
void job_begin_next(struct job *j, int64_t now)
{
    job_forget(j);
    if (job_count(j, NODE_CLEAR) == j->p.n_nodes) {
        begin_launching(j, now);
        return;
    }
    j->state = JOB_BOOTING;
    j->deadline = after(now, after(j->p.connect_ns, JOB_BOOT_SLACK_NS));
    for (uint32_t i = 0; i < j->p.n_nodes; i++) {
        if (j->nodes[i].is == NODE_LOST || j->nodes[i].is == NODE_SILENT) {
            j->nodes[i].is = NODE_AWAITED;
            give_node(j, JOB_DO_BOOT, i);
        }
    }
}

void job_maybe_cleared(struct job *j, int64_t now)
{
    if (job_count(j, NODE_KILLED))
        return;
    const struct fault f = job_culprit(j);
    const struct verdict v = job_judge(j, &f, now);
    if (f.set)
        job_give_failure(j, &f, v.restarts, v.rule);
    if (!v.restarts) {
        job_begin_dismissing(j, v.outcome, v.exit_code, now);
    } else if (v.not_before > now) {
        job_forget(j);
        j->state = JOB_BACKOFF;
        j->deadline = v.not_before;
        give(j, &(struct job_order){.kind = JOB_DO_BACKOFF,
                                    .generation = j->generation,
                                    .rank = UINT32_MAX,
                                    .until_ns = v.not_before});
    } else {
        job_begin_next(j, now);
    }
}

void job_begin_clearing(struct job *j, int64_t now)
{
    j->may_adopt = false;
    j->state = JOB_CLEARING;
    j->deadline = after(now, JOB_CLEAR_NS);
    for (uint32_t i = 0; i < j->p.n_nodes; i++)
        if (j->nodes[i].is == NODE_LIVE)
            job_give_kill(j, i);
    job_maybe_cleared(j, now);
}

void job_begin_stopping(struct job *j, int64_t now)
{
    j->state = JOB_STOPPING;
    j->deadline = after(now, j->p.grace_ns);
    give(j, &(struct job_order){
                .kind = JOB_DO_SIGNAL_STOP, .generation = j->generation, .rank = UINT32_MAX});
}

bool job_stops_for_good(const struct job *j)
{
    return j->state == JOB_STOPPING && (j->stop || !j->restarting);
}

void job_settle(struct job *j, int64_t now)
{
    if (j->failed) {
        j->stop_failed |= job_stops_for_good(j);
        job_begin_clearing(j, now);
    } else if (j->n_well == j->p.n_ranks && j->restarting && j->some_stopped && !j->stop) {
        job_begin_clearing(j, now);
    } else if (j->n_well == j->p.n_ranks && !j->preempted) {
        job_begin_dismissing(j, j->some_stopped ? JOB_STOPPED : JOB_COMPLETED, 0, now);
    } else if (j->n_well == j->p.n_ranks || (j->preempted && j->state == JOB_LAUNCHING)) {
        job_begin_clearing(j, now);
    } else if (j->preempted && j->state == JOB_RUNNING) {
        job_begin_stopping(j, now); /* the others may still have to save */
    }
}

static void adopt(struct job *j, int64_t now)
{
    bool all_in = j->all_in;
    j->may_adopt = false;
    j->state = all_in ? JOB_RUNNING : JOB_LAUNCHING;
    j->deadline = all_in ? INT64_MAX : after(now, j->p.launch_ns);
    bool ends = j->stop || (j->restarting && all_in); /* a restart waits for ALL_IN */
    if (!ends || j->failed || j->n_well == j->p.n_ranks)
        job_settle(j, now);
    else if (all_in)
        job_begin_stopping(j, now);
    else
        job_begin_clearing(j, now);
}

/* BOOTING, first time: some nodes came back with workers. */
static void adopt_or_fail(struct job *j, int64_t now)
{
    for (uint32_t i = 0; i < j->p.n_nodes; i++) {
        const struct node *n = &j->nodes[i];
        bool fits = n->n_ranks ? n->is == NODE_LIVE : n->is == NODE_CLEAR;
        if (!fits) {
            job_note(j, CAUSE_NODE_LOST, i, UINT32_MAX, 0);
            job_begin_clearing(j, now);
            return;
        }
    }
    adopt(j, now);
}

/* BOOTING: goes on once every node has answered, and what had to be killed is. */
void job_maybe_booted(struct job *j, int64_t now)
{
    if (job_count(j, NODE_AWAITED) || job_count(j, NODE_KILLED))
        return;
    if (j->stop && !j->ran && !job_count(j, NODE_SILENT))
        job_begin_dismissing(j, JOB_STOPPED, 0, now);
    else if (job_count(j, NODE_LOST) || job_count(j, NODE_SILENT))
        job_begin_clearing(j, now);
    else if (job_count(j, NODE_LIVE))
        adopt_or_fail(j, now);
    else if (j->stop)
        job_begin_dismissing(j, JOB_STOPPED, 0, now);
    else
        begin_launching(j, now);
}
