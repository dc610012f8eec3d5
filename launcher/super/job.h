/* job.h: the life of a job as one state machine.  (state, event, now) in, orders out; no I/O.
 *
 * The controller turns what happens into events and carries out the orders; it decides nothing.
 * Always: at most one generation has live workers; generations only grow; a node that is not
 * `clear` (its workers of the last generation reaped) is never launched on; every state but
 * ENDED has a deadline or waits for running workers; the number of generations respects the
 * budget (restart.h); FINISH is ordered exactly once, last, after every node was dismissed or
 * given up.
 *
 *   BOOTING     agents are started or re-adopted; deadline connect_ns and some slack
 *   LAUNCHING   workers of a generation start, until all passed the barrier; deadline launch_ns
 *   RUNNING     all ranks are in; no deadline, health.h watches
 *   STOPPING    ranks were told to finish the step, save and end; deadline grace_ns
 *   CLEARING    the generation is killed and reaped; deadline JOB_CLEAR_NS, then a node is lost
 *   BACKOFF     waits until the restart may begin
 *   DISMISSING  agents are told to go; deadline JOB_CLEAR_NS, then a node is given up
 *   ENDED       FINISH was ordered
 *
 * After a failure: CLEARING, where the exits of the other ranks still tell the culprit from its
 * victims; then FAILURE is ordered and the budget asked; then BACKOFF if it says so; then lost
 * nodes are booted again (BOOTING; a node that does not come back costs another restart of the
 * budget, at the end exit 3), then the next generation is launched.  No restart follows exit 2
 * (FINISH 2), 93 (FINISH 1) and 75 (the others are told to stop; FINISH 75), a failure or the
 * end of the grace while STOPPING (FINISH 1), and nothing after STOP: a stop that finds no
 * running step to save ends with 0, since it loses nothing.  STOP_NOW ends with 130 unless the
 * outcome stands already (DISMISSING).
 *
 * RESTART, while RUNNING, goes through STOPPING as well; once all ranks have stopped well the
 * next generation follows, and the budget is not asked.  What goes wrong on the way is a
 * failure like any other, the end of the grace too.  In BACKOFF it ends the waiting.  Elsewhere
 * a new generation is on its way, or the end is: it changes nothing.  A STOP that follows wins.
 *
 * Adoption, first BOOTING only: nodes that come back with workers of the journal's newest
 * generation (first_generation - 1) go on with it, as RUNNING once ALL_IN was told for it, else
 * as LAUNCHING.  If workers of some nodes are gone, that is a failure like any other.  Workers
 * of another generation are killed.
 *
 * An event that is not in the table for a state is a bug: job_event returns ERR_PROTOCOL naming
 * the pair, changes nothing, and the controller logs it.  Events of an older generation are no
 * bugs; they are dropped (stale).
 */
#ifndef DS_SUPER_JOB_H
#define DS_SUPER_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"
#include "launcher/super/restart.h"

struct err;
struct job;

#define JOB_CLEAR_NS (10LL * 1000000000LL)
/* boot keeps connect_ns itself, and its words are better: the job waits a little longer. */
#define JOB_BOOT_SLACK_NS (2LL * 1000000000LL)

enum job_state {
    JOB_BOOTING,
    JOB_LAUNCHING,
    JOB_RUNNING,
    JOB_STOPPING,
    JOB_CLEARING,
    JOB_BACKOFF,
    JOB_DISMISSING,
    JOB_ENDED,
    JOB_STATE_COUNT
};

enum job_event_kind {
    JOB_EV_START,         /* once, first: boot all nodes */
    JOB_EV_AGENT_READY,   /* node; nothing of any generation lives there */
    JOB_EV_AGENT_ADOPTED, /* node, generation: it has workers of it that live, or ended while
                             no controller was there (RANK_EXITED follows for those) */
    JOB_EV_BOOT_FAILED,   /* node, text */
    JOB_EV_AGENT_LOST,    /* node: channel ended or lease ran out */
    JOB_EV_ALL_IN,        /* generation: the barrier is complete */
    JOB_EV_RANK_EXITED,   /* rank, generation, exit_code, done, stopped, blamed */
    JOB_EV_RANK_HUNG,     /* rank, generation */
    JOB_EV_RANK_STUCK,    /* rank, generation: it broke the protocol */
    JOB_EV_NODE_CLEAR,    /* node, generation: answers KILL: all its workers are reaped */
    JOB_EV_STOP,          /* down, Ctrl-C: finish the step, save, end */
    JOB_EV_STOP_NOW,      /* down --now, second Ctrl-C */
    JOB_EV_RESTART,       /* finish the step, save, go on in a new generation */
    JOB_EV_DISMISSED,     /* node: answers DISMISS: the agent is gone, and left nothing */
    JOB_EV_TICK,          /* the deadline passed, or just look */
    JOB_EV_COUNT
};

struct job_event {
    enum job_event_kind kind;
    uint32_t node, rank, generation;
    int exit_code;    /* RANK_EXITED: 0..255, or -signal */
    bool done;        /* RANK_EXITED: it had said `done` */
    bool stopped;     /* ... with reason=stopped */
    uint32_t blamed;  /* RANK_EXITED: 1 + the rank that it says it lost; 0: none */
    const char *text; /* borrowed */
};

enum job_order_kind {
    JOB_DO_BOOT,        /* node; drops an attempt or a channel that is still there */
    JOB_DO_LAUNCH,      /* generation, on all nodes: open rdzv, start workers */
    JOB_DO_SIGNAL_STOP, /* generation: tell every rank to stop after the step */
    JOB_DO_KILL,        /* node, generation: kill and reap its workers, answer NODE_CLEAR */
    JOB_DO_DISMISS,     /* node: kill what is left, remove everything, go; not if it is lost */
    JOB_DO_FAILURE,     /* a generation failed: write failure.json and the report */
    JOB_DO_BACKOFF,     /* wait until `until_ns`: for people only */
    JOB_DO_FINISH,      /* exit_code, outcome */
};

/* Why a generation ended, and what follows. */
enum job_outcome { JOB_COMPLETED, JOB_STOPPED, JOB_KILLED, JOB_FAILED, JOB_CLUSTER };
enum job_cause {
    CAUSE_EXIT,
    CAUSE_SIGNAL,
    CAUSE_HANG,
    CAUSE_NODE_LOST,
    CAUSE_PROTOCOL,
    CAUSE_START_TIMEOUT,
    CAUSE_BOOT
};

struct job_order {
    enum job_order_kind kind;
    uint32_t node, generation; /* FAILURE: UINT32_MAX if no node is known (START_TIMEOUT) */
    int64_t until_ns;
    int exit_code;            /* FINISH: of `dslaunch up` */
    enum job_outcome outcome; /* FINISH */
    /* FAILURE: the first that is not a victim's.  Victims exited with 94, or by SIGKILL or
     * SIGTERM after KILL was ordered.  If there are only victims: whom they blame, else the
     * first of them. */
    enum job_cause cause;
    uint32_t rank; /* FAILURE: culprit; UINT32_MAX if it is a node, or unknown */
    int rank_exit; /* FAILURE: its exit_code */
    bool restarts; /* FAILURE: a new generation follows; else `rule` says why not */
    char rule[96]; /* FAILURE: the rule that fired, in words */
};

/* Orders are given during job_event, in order; borrowed for the call.  It must not call
 * job_event: what an order leads to comes later, from the loop. */
typedef void job_order_fn(void *ctx, const struct job_order *o);

struct job_params {
    uint32_t n_nodes, n_ranks;
    const uint32_t *node_of_rank; /* [n_ranks], copied */
    int64_t connect_ns, launch_ns, grace_ns;
    struct restart_policy restart;
    uint32_t first_generation; /* >= 1; larger than any the journal knows */
    /* Restarts that an earlier controller of this run granted: ascending, on the clock of
     * `now_ns` (they may lie before its zero); copied.  They count as this job's own. */
    const int64_t *restarted_ns;
    uint32_t n_restarted;
};

struct job *job_new(const struct job_params *p, job_order_fn *order, void *ctx);
void job_free(struct job *j);
OWN(job);

int job_event(struct job *j, const struct job_event *ev, int64_t now_ns, struct err *e);
enum job_state job_state(const struct job *j);
/* The newest that was launched; before that, the newest of the journal (0: none). */
uint32_t job_generation(const struct job *j);
bool job_restarting(const struct job *j);   /* asked; a stop may still win */
uint32_t job_restarts(const struct job *j); /* granted, in all */
uint32_t job_restarts_left(const struct job *j, int64_t now_ns);
int64_t job_deadline(const struct job *j); /* INT64_MAX: none */

const char *job_state_name(enum job_state s);
const char *job_event_name(enum job_event_kind k);
const char *job_cause_name(enum job_cause c);
const char *job_outcome_name(enum job_outcome o);

#endif
