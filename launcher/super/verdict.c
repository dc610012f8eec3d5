/* verdict.c: who is to blame for the end of a generation, and whether another one follows. */
#include "launcher/super/job_impl.h"

#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/units.h"

void job_note(struct job *j, enum job_cause cause, uint32_t node, uint32_t rank, int exit_code)
{
    j->failed = true;
    if (!j->fault.set)
        j->fault = (struct fault){true, cause, node, rank, exit_code};
}

void job_forget(struct job *j)
{
    j->n_well = 0;
    j->fault = j->victim = (struct fault){0};
    j->failed = j->preempted = j->some_stopped = false;
    j->restarting = j->stop_failed = j->grace_over = false;
    memset(j->ranks, 0, j->p.n_ranks * sizeof j->ranks[0]);
}

/* Whom to name.  Where only victims are left the true one died so close to our KILL that its
 * SIGKILL passes for ours: the victims' blame leads to it.  A rank that blamed another is a
 * victim itself, even if our KILL ended it before it could exit. */
struct fault job_culprit(const struct job *j)
{
    if (j->fault.set || !j->victim.set)
        return j->fault;
    uint32_t r = j->victim.rank, hops = 0;
    while (hops++ < j->p.n_ranks && j->ranks[r].blamed && j->ranks[j->ranks[r].blamed - 1].over)
        r = j->ranks[r].blamed - 1;
    if (!j->ranks[r].blamed && j->ranks[r].exit_code < 0)
        return (struct fault){true, CAUSE_SIGNAL, j->node_of_rank[r], r, j->ranks[r].exit_code};
    return j->victim;
}

static struct verdict ends(enum job_outcome outcome, int code, const char *rule)
{
    struct verdict v = {.outcome = outcome, .exit_code = code};
    (void)snprintf(v.rule, sizeof v.rule, "%s", rule);
    return v;
}

static struct verdict ask_budget(struct job *j, const struct fault *f, int64_t now)
{
    char window[32];
    struct verdict v = {0};
    const struct restart_policy *p = &j->restart.policy;
    (void)units_duration_text(p->window_ns, window);
    v.restarts = restart_ask(&j->restart, now, &v.not_before);
    if (v.restarts) {
        (void)snprintf(v.rule, sizeof v.rule, "restart %u of %u within %s", j->restart.n,
                       p->max, window);
        return v;
    }
    v = f->cause == CAUSE_BOOT ? ends(JOB_CLUSTER, 3, "") : ends(JOB_FAILED, 1, "");
    if (p->max)
        (void)snprintf(v.rule, sizeof v.rule, "restart.max %u within %s used up", p->max,
                       window);
    else
        (void)snprintf(v.rule, sizeof v.rule, "restart.max is 0");
    return v;
}

struct verdict job_judge(struct job *j, const struct fault *f, int64_t now)
{
    char rule[96], grace[32];
    if (f->set && f->cause == CAUSE_EXIT && f->exit_code == WORKER_EXIT_PREEMPTED)
        return ends(JOB_STOPPED, WORKER_EXIT_PREEMPTED, "exit 75: preempted, wants a requeue");
    if (f->set && f->cause == CAUSE_EXIT && f->exit_code == WORKER_EXIT_SPEC)
        return ends(JOB_FAILED, 2, "exit 2: the spec cannot work, no restart");
    if (f->set && f->cause == CAUSE_EXIT && f->exit_code == WORKER_EXIT_NO_RESTART)
        return ends(JOB_FAILED, 1, "exit 93: the rank wants no restart");
    if (j->grace_over) {
        (void)snprintf(rule, sizeof rule, "job.grace %s ran out before all ranks had saved",
                       units_duration_text(j->p.grace_ns, grace));
        return ends(JOB_FAILED, 1, rule);
    }
    if (j->stop_failed)
        return ends(JOB_FAILED, 1, "it failed while stopping, no restart");
    if (j->stop)
        return ends(JOB_STOPPED, 0, "a stop was asked for, no restart");
    if (f->set && f->cause == CAUSE_BOOT && !j->ran)
        return ends(JOB_CLUSTER, 3, "every node is needed, and this one never came up");
    if (j->restarting && !f->set)
        return (struct verdict){.restarts = true, .not_before = now};
    return ask_budget(j, f, now);
}
