/* job_names.c: how states, events, causes and outcomes are called in logs and files. */
#include "launcher/super/job.h"

const char *job_state_name(enum job_state s)
{
    static const char *const names[JOB_STATE_COUNT] = {
        [JOB_BOOTING] = "booting",       [JOB_LAUNCHING] = "launching",
        [JOB_RUNNING] = "running",       [JOB_STOPPING] = "stopping",
        [JOB_CLEARING] = "clearing",     [JOB_BACKOFF] = "backoff",
        [JOB_DISMISSING] = "dismissing", [JOB_ENDED] = "ended",
    };
    return s < JOB_STATE_COUNT ? names[s] : "unknown";
}

const char *job_event_name(enum job_event_kind k)
{
    static const char *const names[JOB_EV_COUNT] = {
        [JOB_EV_START] = "start",
        [JOB_EV_AGENT_READY] = "agent-ready",
        [JOB_EV_AGENT_ADOPTED] = "agent-adopted",
        [JOB_EV_BOOT_FAILED] = "boot-failed",
        [JOB_EV_AGENT_LOST] = "agent-lost",
        [JOB_EV_ALL_IN] = "all-in",
        [JOB_EV_RANK_EXITED] = "rank-exited",
        [JOB_EV_RANK_HUNG] = "rank-hung",
        [JOB_EV_RANK_STUCK] = "rank-stuck",
        [JOB_EV_NODE_CLEAR] = "node-clear",
        [JOB_EV_STOP] = "stop",
        [JOB_EV_STOP_NOW] = "stop-now",
        [JOB_EV_RESTART] = "restart",
        [JOB_EV_DISMISSED] = "dismissed",
        [JOB_EV_TICK] = "tick",
    };
    return k < JOB_EV_COUNT ? names[k] : "unknown";
}

const char *job_cause_name(enum job_cause c)
{
    static const char *const names[] = {
        [CAUSE_EXIT] = "exit",         [CAUSE_SIGNAL] = "signal",
        [CAUSE_HANG] = "hang",         [CAUSE_NODE_LOST] = "node-lost",
        [CAUSE_PROTOCOL] = "protocol", [CAUSE_START_TIMEOUT] = "start-timeout",
        [CAUSE_BOOT] = "boot",
    };
    return c < sizeof names / sizeof names[0] ? names[c] : "unknown";
}

const char *job_outcome_name(enum job_outcome o)
{
    static const char *const names[] = {
        [JOB_COMPLETED] = "completed", [JOB_STOPPED] = "stopped", [JOB_KILLED] = "killed",
        [JOB_FAILED] = "failed",       [JOB_CLUSTER] = "cluster",
    };
    return o < sizeof names / sizeof names[0] ? names[o] : "unknown";
}
