#include "launcher/super/job.h"

#include <assert.h>
#include <signal.h>
#include <string.h>

#include "common/base/err.h"
#include "launcher/super/job_impl.h"

/* Actions of the table.  One that fails has changed nothing. */

typedef int action_fn(struct job *j, const struct job_event *ev, int64_t now, struct err *e);

#define ACTION(name)                                                                   \
    static int name(struct job *j, __attribute__((unused)) const struct job_event *ev, \
                    __attribute__((unused)) int64_t now,                               \
                    __attribute__((unused)) struct err *e)

ACTION(start)
{
    if (j->started)
        return err_set(e, ERR_PROTOCOL, "job: started twice");
    j->started = true;
    job_begin_next(j, now);
    return 0;
}

/* An agent that says hello is one that we wait for, or gave up. */
static int check_hello(const struct job *j, const struct job_event *ev, struct err *e)
{
    enum node_state is = j->nodes[ev->node].is;
    if (is == NODE_AWAITED || is == NODE_LOST || is == NODE_SILENT)
        return 0;
    return err_set(e, ERR_PROTOCOL, "job: %s of node %u, whose agent is known",
                   job_event_name(ev->kind), ev->node);
}

ACTION(ready)
{
    if (check_hello(j, ev, e) < 0)
        return -1;
    j->nodes[ev->node].is = NODE_CLEAR;
    return 0;
}

ACTION(ready_in_boot)
{
    if (ready(j, ev, now, e) < 0)
        return -1;
    job_maybe_booted(j, now);
    return 0;
}

/* Its workers are of a generation that is over. */
ACTION(adopted_late)
{
    if (check_hello(j, ev, e) < 0)
        return -1;
    if (ev->generation >= j->next_generation)
        j->next_generation = ev->generation + 1;
    j->nodes[ev->node].gen = ev->generation;
    job_give_kill(j, ev->node);
    return 0;
}

ACTION(adopted_in_boot)
{
    if (!j->may_adopt || ev->generation != j->generation)
        return adopted_late(j, ev, now, e);
    if (check_hello(j, ev, e) < 0)
        return -1;
    j->ran = true;
    j->nodes[ev->node].is = NODE_LIVE;
    j->nodes[ev->node].gen = ev->generation;
    job_maybe_booted(j, now);
    return 0;
}

ACTION(hello_at_the_end)
{
    if (check_hello(j, ev, e) < 0)
        return -1;
    j->nodes[ev->node].is = NODE_CLEAR;
    job_give_dismiss(j, ev->node);
    return 0;
}

ACTION(boot_failed)
{
    if (j->nodes[ev->node].is != NODE_AWAITED)
        return 0; /* given up already */
    j->nodes[ev->node].is = NODE_LOST;
    job_note(j, CAUSE_BOOT, ev->node, UINT32_MAX, 0);
    job_maybe_booted(j, now);
    return 0;
}

ACTION(boot_failed_at_the_end)
{
    if (j->nodes[ev->node].is == NODE_AWAITED)
        j->nodes[ev->node].is = NODE_LOST;
    job_maybe_finish(j);
    return 0;
}

/* Also of an agent that went unasked. */
ACTION(lost)
{
    j->nodes[ev->node].is = NODE_LOST;
    return 0;
}

ACTION(lost_in_boot)
{
    if (j->nodes[ev->node].is == NODE_LOST)
        return 0;
    j->nodes[ev->node].is = NODE_LOST;
    job_note(j, CAUSE_NODE_LOST, ev->node, UINT32_MAX, 0);
    job_maybe_booted(j, now);
    return 0;
}

static bool all_well_on(const struct job *j, uint32_t node)
{
    for (uint32_t r = 0; r < j->p.n_ranks; r++)
        if (j->node_of_rank[r] == node && !j->ranks[r].well)
            return false;
    return true;
}

ACTION(lost_at_work)
{
    j->nodes[ev->node].is = NODE_LOST;
    if (all_well_on(j, ev->node))
        return 0; /* nothing of it is needed any more */
    job_note(j, CAUSE_NODE_LOST, ev->node, UINT32_MAX, 0);
    job_settle(j, now);
    return 0;
}

ACTION(lost_in_clearing)
{
    bool had_workers = j->nodes[ev->node].is == NODE_KILLED;
    j->nodes[ev->node].is = NODE_LOST;
    if (!had_workers)
        return 0;
    job_note(j, CAUSE_NODE_LOST, ev->node, UINT32_MAX, 0);
    job_maybe_cleared(j, now);
    return 0;
}

ACTION(lost_at_the_end)
{
    if (j->nodes[ev->node].is != NODE_GONE)
        j->nodes[ev->node].is = NODE_LOST;
    job_maybe_finish(j);
    return 0;
}

ACTION(dismissed)
{
    j->nodes[ev->node].is = NODE_GONE;
    job_maybe_finish(j);
    return 0;
}

ACTION(all_in_early)
{
    j->all_in = true;
    return 0;
}

ACTION(all_in)
{
    j->deadline = INT64_MAX;
    if (j->restarting) /* asked of the controller before */
        job_begin_stopping(j, now);
    return 0;
}

/* Takes a rank's exit in, and who is to blame for it. */
ACTION(exited)
{
    struct rank *r = &j->ranks[ev->rank];
    uint32_t node = j->node_of_rank[ev->rank];
    enum job_cause cause = ev->exit_code < 0 ? CAUSE_SIGNAL : CAUSE_EXIT;
    struct fault f = {true, cause, node, ev->rank, ev->exit_code};
    bool done = ev->exit_code == 0 && ev->done;
    bool by_us = j->nodes[node].is == NODE_KILLED &&
                 (ev->exit_code == -SIGKILL || ev->exit_code == -SIGTERM);
    if (r->over)
        return err_set(e, ERR_PROTOCOL, "job: rank %u exited twice", ev->rank);
    *r = (struct rank){.over = true,
                       .well = done || ev->exit_code == WORKER_EXIT_PREEMPTED,
                       .exit_code = ev->exit_code,
                       .blamed = ev->blamed <= j->p.n_ranks ? ev->blamed : 0};
    j->n_well += r->well;
    if (done) {
        j->some_stopped |= ev->stopped;
    } else if (ev->exit_code == WORKER_EXIT_PREEMPTED) {
        j->preempted = true;
        if (!j->fault.set)
            j->fault = f;
    } else if (ev->exit_code == WORKER_EXIT_PEER_LOST || by_us) {
        j->failed = true;
        if (!j->victim.set)
            j->victim = f;
    } else {
        job_note(j, cause, node, ev->rank, ev->exit_code);
    }
    return 0;
}

ACTION(exited_in_boot)
{
    return j->may_adopt ? exited(j, ev, now, e) : 0; /* else of a generation that is over */
}

ACTION(exited_at_work)
{
    if (exited(j, ev, now, e) < 0)
        return -1;
    job_settle(j, now);
    return 0;
}

ACTION(accused)
{
    if (!j->ranks[ev->rank].over)
        job_note(j, ev->kind == JOB_EV_RANK_HUNG ? CAUSE_HANG : CAUSE_PROTOCOL,
                 j->node_of_rank[ev->rank], ev->rank, 0);
    return 0;
}

ACTION(accused_in_boot)
{
    return j->may_adopt ? accused(j, ev, now, e) : 0;
}

ACTION(accused_at_work)
{
    (void)accused(j, ev, now, e);
    job_settle(j, now);
    return 0;
}

/* A kill that an earlier controller ordered as well is answered twice. */
ACTION(clear)
{
    enum node_state is = j->nodes[ev->node].is;
    if (is == NODE_LIVE || is == NODE_KILLED || is == NODE_SILENT)
        j->nodes[ev->node].is = NODE_CLEAR;
    return 0;
}

/* An earlier controller had ordered a kill when its workers were adopted. */
ACTION(clear_at_work)
{
    (void)clear(j, ev, now, e);
    if (all_well_on(j, ev->node))
        return 0;
    job_note(j, CAUSE_NODE_LOST, ev->node, UINT32_MAX, 0);
    job_settle(j, now);
    return 0;
}

ACTION(clear_in_boot)
{
    (void)clear(j, ev, now, e);
    job_maybe_booted(j, now);
    return 0;
}

ACTION(clear_in_clearing)
{
    (void)clear(j, ev, now, e);
    job_maybe_cleared(j, now);
    return 0;
}

ACTION(stop_later)
{
    j->stop = true;
    return 0;
}

ACTION(stop_in_boot)
{
    j->stop = true;
    if (!j->may_adopt) /* else workers that can save may turn up */
        job_begin_dismissing(j, JOB_STOPPED, 0, now);
    return 0;
}

ACTION(stop_launch) /* no step has begun */
{
    j->stop = true;
    job_begin_clearing(j, now);
    return 0;
}

ACTION(stop_work)
{
    j->stop = true;
    job_begin_stopping(j, now);
    return 0;
}

ACTION(restart_later) /* of the workers that may turn up */
{
    j->restarting = j->may_adopt;
    return 0;
}

ACTION(restart_work)
{
    j->restarting = true;
    job_begin_stopping(j, now);
    return 0;
}

ACTION(stop_waiting)
{
    job_begin_dismissing(j, JOB_STOPPED, 0, now);
    return 0;
}

ACTION(stop_now)
{
    const struct fault f = job_culprit(j);
    if (j->failed && f.set)
        job_give_failure(j, &f, false, "stopped at once, no restart");
    job_begin_dismissing(j, JOB_KILLED, 130, now);
    return 0;
}

static void turn(struct job *j, enum node_state from, enum node_state to, enum job_cause cause)
{
    for (uint32_t i = 0; i < j->p.n_nodes; i++) {
        if (j->nodes[i].is == from) {
            j->nodes[i].is = to;
            job_note(j, cause, i, UINT32_MAX, 0);
        }
    }
}

ACTION(boot_late)
{
    turn(j, NODE_AWAITED, NODE_LOST, CAUSE_BOOT);
    turn(j, NODE_KILLED, NODE_SILENT, CAUSE_NODE_LOST);
    job_maybe_booted(j, now);
    return 0;
}

ACTION(launch_late)
{
    job_note(j, CAUSE_START_TIMEOUT, UINT32_MAX, UINT32_MAX, 0);
    job_settle(j, now);
    return 0;
}

ACTION(grace_over)
{
    uint32_t r = 0;
    while (r < j->p.n_ranks && j->ranks[r].over)
        r++;
    assert(r < j->p.n_ranks); /* else it had ended */
    j->grace_over = job_stops_for_good(j);
    job_note(j, CAUSE_HANG, j->node_of_rank[r], r, 0);
    job_settle(j, now);
    return 0;
}

ACTION(clear_late)
{
    turn(j, NODE_KILLED, NODE_SILENT, CAUSE_NODE_LOST);
    job_maybe_cleared(j, now);
    return 0;
}

ACTION(backoff_over)
{
    job_begin_next(j, now);
    return 0;
}

ACTION(dismiss_late)
{
    for (uint32_t i = 0; i < j->p.n_nodes; i++)
        if (j->nodes[i].is != NODE_GONE)
            j->nodes[i].is = NODE_LOST;
    job_maybe_finish(j);
    return 0;
}

/* The table.  A job goes to `next` at once; the action may find that it has to go on from
 * there. NULL: the event may come late, and means nothing any more.  A tick acts once the
 * deadline has passed. */
struct transition {
    enum job_state state;
    enum job_event_kind event;
    enum job_state next;
    action_fn *action;
};

static const struct transition transitions[] = {
    {JOB_BOOTING, JOB_EV_START, JOB_BOOTING, start},
    {JOB_BOOTING, JOB_EV_AGENT_READY, JOB_BOOTING, ready_in_boot},
    {JOB_BOOTING, JOB_EV_AGENT_ADOPTED, JOB_BOOTING, adopted_in_boot},
    {JOB_BOOTING, JOB_EV_BOOT_FAILED, JOB_BOOTING, boot_failed},
    {JOB_BOOTING, JOB_EV_AGENT_LOST, JOB_BOOTING, lost_in_boot},
    {JOB_BOOTING, JOB_EV_ALL_IN, JOB_BOOTING, all_in_early},
    {JOB_BOOTING, JOB_EV_RANK_EXITED, JOB_BOOTING, exited_in_boot},
    {JOB_BOOTING, JOB_EV_RANK_HUNG, JOB_BOOTING, accused_in_boot},
    {JOB_BOOTING, JOB_EV_RANK_STUCK, JOB_BOOTING, accused_in_boot},
    {JOB_BOOTING, JOB_EV_NODE_CLEAR, JOB_BOOTING, clear_in_boot},
    {JOB_BOOTING, JOB_EV_STOP, JOB_BOOTING, stop_in_boot},
    {JOB_BOOTING, JOB_EV_STOP_NOW, JOB_DISMISSING, stop_now},
    {JOB_BOOTING, JOB_EV_RESTART, JOB_BOOTING, restart_later},
    {JOB_BOOTING, JOB_EV_DISMISSED, JOB_BOOTING, lost_in_boot},
    {JOB_BOOTING, JOB_EV_TICK, JOB_BOOTING, boot_late},

    {JOB_LAUNCHING, JOB_EV_AGENT_LOST, JOB_LAUNCHING, lost_at_work},
    {JOB_LAUNCHING, JOB_EV_ALL_IN, JOB_RUNNING, all_in},
    {JOB_LAUNCHING, JOB_EV_RANK_EXITED, JOB_LAUNCHING, exited_at_work},
    {JOB_LAUNCHING, JOB_EV_RANK_HUNG, JOB_LAUNCHING, accused_at_work},
    {JOB_LAUNCHING, JOB_EV_RANK_STUCK, JOB_LAUNCHING, accused_at_work},
    {JOB_LAUNCHING, JOB_EV_NODE_CLEAR, JOB_LAUNCHING, clear_at_work},
    {JOB_LAUNCHING, JOB_EV_STOP, JOB_CLEARING, stop_launch},
    {JOB_LAUNCHING, JOB_EV_STOP_NOW, JOB_DISMISSING, stop_now},
    {JOB_LAUNCHING, JOB_EV_RESTART, JOB_LAUNCHING, NULL},
    {JOB_LAUNCHING, JOB_EV_DISMISSED, JOB_LAUNCHING, lost_at_work},
    {JOB_LAUNCHING, JOB_EV_TICK, JOB_LAUNCHING, launch_late},

    {JOB_RUNNING, JOB_EV_AGENT_LOST, JOB_RUNNING, lost_at_work},
    {JOB_RUNNING, JOB_EV_RANK_EXITED, JOB_RUNNING, exited_at_work},
    {JOB_RUNNING, JOB_EV_RANK_HUNG, JOB_RUNNING, accused_at_work},
    {JOB_RUNNING, JOB_EV_RANK_STUCK, JOB_RUNNING, accused_at_work},
    {JOB_RUNNING, JOB_EV_NODE_CLEAR, JOB_RUNNING, clear_at_work},
    {JOB_RUNNING, JOB_EV_STOP, JOB_STOPPING, stop_work},
    {JOB_RUNNING, JOB_EV_STOP_NOW, JOB_DISMISSING, stop_now},
    {JOB_RUNNING, JOB_EV_RESTART, JOB_STOPPING, restart_work},
    {JOB_RUNNING, JOB_EV_DISMISSED, JOB_RUNNING, lost_at_work},
    {JOB_RUNNING, JOB_EV_TICK, JOB_RUNNING, NULL},

    {JOB_STOPPING, JOB_EV_AGENT_LOST, JOB_STOPPING, lost_at_work},
    {JOB_STOPPING, JOB_EV_RANK_EXITED, JOB_STOPPING, exited_at_work},
    {JOB_STOPPING, JOB_EV_RANK_HUNG, JOB_STOPPING, accused_at_work},
    {JOB_STOPPING, JOB_EV_RANK_STUCK, JOB_STOPPING, accused_at_work},
    {JOB_STOPPING, JOB_EV_NODE_CLEAR, JOB_STOPPING, clear_at_work},
    {JOB_STOPPING, JOB_EV_STOP, JOB_STOPPING, stop_later},
    {JOB_STOPPING, JOB_EV_STOP_NOW, JOB_DISMISSING, stop_now},
    {JOB_STOPPING, JOB_EV_RESTART, JOB_STOPPING, NULL},
    {JOB_STOPPING, JOB_EV_DISMISSED, JOB_STOPPING, lost_at_work},
    {JOB_STOPPING, JOB_EV_TICK, JOB_STOPPING, grace_over},

    {JOB_CLEARING, JOB_EV_AGENT_READY, JOB_CLEARING, ready},
    {JOB_CLEARING, JOB_EV_AGENT_ADOPTED, JOB_CLEARING, adopted_late},
    {JOB_CLEARING, JOB_EV_BOOT_FAILED, JOB_CLEARING, NULL},
    {JOB_CLEARING, JOB_EV_AGENT_LOST, JOB_CLEARING, lost_in_clearing},
    {JOB_CLEARING, JOB_EV_ALL_IN, JOB_CLEARING, NULL},
    {JOB_CLEARING, JOB_EV_RANK_EXITED, JOB_CLEARING, exited},
    {JOB_CLEARING, JOB_EV_RANK_HUNG, JOB_CLEARING, accused},
    {JOB_CLEARING, JOB_EV_RANK_STUCK, JOB_CLEARING, accused},
    {JOB_CLEARING, JOB_EV_NODE_CLEAR, JOB_CLEARING, clear_in_clearing},
    {JOB_CLEARING, JOB_EV_STOP, JOB_CLEARING, stop_later},
    {JOB_CLEARING, JOB_EV_STOP_NOW, JOB_DISMISSING, stop_now},
    {JOB_CLEARING, JOB_EV_RESTART, JOB_CLEARING, NULL},
    {JOB_CLEARING, JOB_EV_DISMISSED, JOB_CLEARING, lost_in_clearing},
    {JOB_CLEARING, JOB_EV_TICK, JOB_CLEARING, clear_late},

    {JOB_BACKOFF, JOB_EV_AGENT_READY, JOB_BACKOFF, ready},
    {JOB_BACKOFF, JOB_EV_AGENT_ADOPTED, JOB_BACKOFF, adopted_late},
    {JOB_BACKOFF, JOB_EV_BOOT_FAILED, JOB_BACKOFF, NULL},
    {JOB_BACKOFF, JOB_EV_AGENT_LOST, JOB_BACKOFF, lost},
    {JOB_BACKOFF, JOB_EV_ALL_IN, JOB_BACKOFF, NULL},
    {JOB_BACKOFF, JOB_EV_RANK_EXITED, JOB_BACKOFF, NULL},
    {JOB_BACKOFF, JOB_EV_RANK_HUNG, JOB_BACKOFF, NULL},
    {JOB_BACKOFF, JOB_EV_RANK_STUCK, JOB_BACKOFF, NULL},
    {JOB_BACKOFF, JOB_EV_NODE_CLEAR, JOB_BACKOFF, clear},
    {JOB_BACKOFF, JOB_EV_STOP, JOB_DISMISSING, stop_waiting},
    {JOB_BACKOFF, JOB_EV_STOP_NOW, JOB_DISMISSING, stop_now},
    {JOB_BACKOFF, JOB_EV_RESTART, JOB_BOOTING, backoff_over},
    {JOB_BACKOFF, JOB_EV_DISMISSED, JOB_BACKOFF, lost},
    {JOB_BACKOFF, JOB_EV_TICK, JOB_BOOTING, backoff_over},

    {JOB_DISMISSING, JOB_EV_AGENT_READY, JOB_DISMISSING, hello_at_the_end},
    {JOB_DISMISSING, JOB_EV_AGENT_ADOPTED, JOB_DISMISSING, hello_at_the_end},
    {JOB_DISMISSING, JOB_EV_BOOT_FAILED, JOB_DISMISSING, boot_failed_at_the_end},
    {JOB_DISMISSING, JOB_EV_AGENT_LOST, JOB_DISMISSING, lost_at_the_end},
    {JOB_DISMISSING, JOB_EV_ALL_IN, JOB_DISMISSING, NULL},
    {JOB_DISMISSING, JOB_EV_RANK_EXITED, JOB_DISMISSING, NULL},
    {JOB_DISMISSING, JOB_EV_RANK_HUNG, JOB_DISMISSING, NULL},
    {JOB_DISMISSING, JOB_EV_RANK_STUCK, JOB_DISMISSING, NULL},
    {JOB_DISMISSING, JOB_EV_NODE_CLEAR, JOB_DISMISSING, NULL},
    {JOB_DISMISSING, JOB_EV_STOP, JOB_DISMISSING, NULL}, /* the outcome stands */
    {JOB_DISMISSING, JOB_EV_STOP_NOW, JOB_DISMISSING, NULL},
    {JOB_DISMISSING, JOB_EV_RESTART, JOB_DISMISSING, NULL},
    {JOB_DISMISSING, JOB_EV_DISMISSED, JOB_DISMISSING, dismissed},
    {JOB_DISMISSING, JOB_EV_TICK, JOB_DISMISSING, dismiss_late},

    {JOB_ENDED, JOB_EV_AGENT_READY, JOB_ENDED, NULL},
    {JOB_ENDED, JOB_EV_AGENT_ADOPTED, JOB_ENDED, NULL},
    {JOB_ENDED, JOB_EV_BOOT_FAILED, JOB_ENDED, NULL},
    {JOB_ENDED, JOB_EV_AGENT_LOST, JOB_ENDED, NULL},
    {JOB_ENDED, JOB_EV_ALL_IN, JOB_ENDED, NULL},
    {JOB_ENDED, JOB_EV_RANK_EXITED, JOB_ENDED, NULL},
    {JOB_ENDED, JOB_EV_RANK_HUNG, JOB_ENDED, NULL},
    {JOB_ENDED, JOB_EV_RANK_STUCK, JOB_ENDED, NULL},
    {JOB_ENDED, JOB_EV_NODE_CLEAR, JOB_ENDED, NULL},
    {JOB_ENDED, JOB_EV_STOP, JOB_ENDED, NULL},
    {JOB_ENDED, JOB_EV_STOP_NOW, JOB_ENDED, NULL},
    {JOB_ENDED, JOB_EV_RESTART, JOB_ENDED, NULL},
    {JOB_ENDED, JOB_EV_DISMISSED, JOB_ENDED, NULL},
    {JOB_ENDED, JOB_EV_TICK, JOB_ENDED, NULL},
};

/* Events. */

static const struct transition *find(enum job_state s, enum job_event_kind k)
{
    for (size_t i = 0; i < sizeof transitions / sizeof transitions[0]; i++)
        if (transitions[i].state == s && transitions[i].event == k)
            return &transitions[i];
    return NULL;
}

static bool has_node(enum job_event_kind k)
{
    return k == JOB_EV_AGENT_READY || k == JOB_EV_AGENT_ADOPTED || k == JOB_EV_BOOT_FAILED ||
           k == JOB_EV_AGENT_LOST || k == JOB_EV_NODE_CLEAR || k == JOB_EV_DISMISSED;
}

static bool has_rank(enum job_event_kind k)
{
    return k == JOB_EV_RANK_EXITED || k == JOB_EV_RANK_HUNG || k == JOB_EV_RANK_STUCK;
}

static int check(const struct job *j, const struct job_event *ev, struct err *e)
{
    if (!j->started && ev->kind != JOB_EV_START)
        return err_set(e, ERR_PROTOCOL, "job: %s before the start", job_event_name(ev->kind));
    if (has_node(ev->kind) && ev->node >= j->p.n_nodes)
        return err_set(e, ERR_PROTOCOL, "job: %s of node %u, of %u", job_event_name(ev->kind),
                       ev->node, j->p.n_nodes);
    if (has_rank(ev->kind) && ev->rank >= j->p.n_ranks)
        return err_set(e, ERR_PROTOCOL, "job: %s of rank %u, of %u", job_event_name(ev->kind),
                       ev->rank, j->p.n_ranks);
    if (ev->kind == JOB_EV_AGENT_ADOPTED && (!ev->generation || ev->generation == UINT32_MAX))
        return err_set(e, ERR_PROTOCOL, "job: node %u has workers of generation %u", ev->node,
                       ev->generation);
    return 0;
}

static bool has_generation(enum job_event_kind k)
{
    return has_rank(k) || k == JOB_EV_ALL_IN || k == JOB_EV_NODE_CLEAR;
}

int job_event(struct job *j, const struct job_event *ev, int64_t now_ns, struct err *e)
{
    enum job_state was = j->state;
    assert(!j->ordering && ev->kind < JOB_EV_COUNT);
    if (check(j, ev, e) < 0)
        return -1;
    if (has_generation(ev->kind)) {
        bool of_node = ev->kind == JOB_EV_NODE_CLEAR;
        if (ev->generation >= j->next_generation)
            return err_set(e, ERR_PROTOCOL, "job: %s of generation %u, which is yet to come",
                           job_event_name(ev->kind), ev->generation);
        if (ev->generation != (of_node ? j->nodes[ev->node].gen : j->generation))
            return 0; /* stale */
    }
    const struct transition *t = find(was, ev->kind);
    if (!t)
        return err_set(e, ERR_PROTOCOL, "job: %s cannot come while %s",
                       job_event_name(ev->kind), job_state_name(was));
    if (!t->action || (ev->kind == JOB_EV_TICK && now_ns < j->deadline))
        return 0;
    j->state = t->next;
    if (t->action(j, ev, now_ns, e) < 0) {
        j->state = was;
        return -1;
    }
    return 0;
}

/* The object. */

struct job *job_new(const struct job_params *p, job_order_fn *order, void *ctx)
{
    assert(p->n_nodes && p->n_ranks && p->first_generation);
    struct job *j = xcalloc(1, sizeof *j);
    j->p = *p;
    j->order = order;
    j->ctx = ctx;
    j->deadline = INT64_MAX;
    j->nodes = xcalloc(p->n_nodes, sizeof j->nodes[0]);
    j->ranks = xcalloc(p->n_ranks, sizeof j->ranks[0]);
    j->node_of_rank = xcalloc(p->n_ranks, sizeof j->node_of_rank[0]);
    for (uint32_t r = 0; r < p->n_ranks; r++) {
        assert(p->node_of_rank[r] < p->n_nodes);
        j->node_of_rank[r] = p->node_of_rank[r];
        j->nodes[p->node_of_rank[r]].n_ranks++;
    }
    j->generation = p->first_generation - 1;
    j->next_generation = p->first_generation;
    j->may_adopt = p->first_generation > 1;
    restart_init(&j->restart, &p->restart);
    for (uint32_t i = 0; i < p->n_restarted; i++)
        restart_note(&j->restart, p->restarted_ns[i]);
    j->p.node_of_rank = NULL;
    j->p.restarted_ns = NULL;
    return j;
}

void job_free(struct job *j)
{
    if (!j)
        return;
    free(j->nodes);
    free(j->ranks);
    free(j->node_of_rank);
    free(j);
}

enum job_state job_state(const struct job *j)
{
    return j->state;
}

uint32_t job_generation(const struct job *j)
{
    return j->generation;
}

bool job_restarting(const struct job *j)
{
    return j->restarting;
}

uint32_t job_restarts(const struct job *j)
{
    return j->restart.total;
}

uint32_t job_restarts_left(const struct job *j, int64_t now_ns)
{
    return restart_left(&j->restart, now_ns);
}

int64_t job_deadline(const struct job *j)
{
    return j->deadline;
}
