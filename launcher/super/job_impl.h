/* job_impl.h: the inside of struct job, for the files of job.h only.
 *
 *   job.c      the table and its actions: what an event means in a state
 *   moves.c    how one state is left and the next one entered, with the orders that go with it
 *   verdict.c  who is to blame, and whether another generation follows
 */
#ifndef DS_SUPER_JOB_IMPL_H
#define DS_SUPER_JOB_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/super/job.h"

enum node_state {
    NODE_LOST,    /* no agent that we know of */
    NODE_AWAITED, /* BOOT ordered */
    NODE_CLEAR,   /* an agent without workers */
    NODE_LIVE,    /* with workers of `gen` */
    NODE_KILLED,  /* ... that KILL was ordered for */
    NODE_SILENT,  /* ... and that were not reaped in time */
    NODE_GONE     /* dismissed */
};

struct node {
    enum node_state is;
    uint32_t gen; /* LIVE, KILLED, SILENT */
    uint32_t n_ranks;
};

struct rank {
    bool over;       /* it exited ... */
    bool well;       /* ... as it should: done, or with 75 */
    int exit_code;   /* if over */
    uint32_t blamed; /* 1 + rank, 0 none */
};

struct fault {
    bool set;
    enum job_cause cause;
    uint32_t node, rank; /* UINT32_MAX: none */
    int exit_code;
};

struct job {
    struct job_params p; /* restarted_ns is not kept */
    job_order_fn *order;
    void *ctx;
    bool ordering;

    enum job_state state;
    int64_t deadline;
    struct node *nodes;
    struct rank *ranks;
    uint32_t *node_of_rank;
    uint32_t generation, next_generation;
    struct restart restart;
    bool started;
    bool all_in;    /* told while BOOTING, of the generation to be adopted */
    bool may_adopt; /* the first BOOTING of a job that had generations before */
    bool ran;       /* a generation was launched, or workers of one turned up */
    bool stop;      /* asked */

    /* Of the generation, or of the boot that precedes it; forgotten when the next begins. */
    uint32_t n_well;
    struct fault fault;  /* the first that is not a victim's */
    struct fault victim; /* the first victim */
    bool failed;         /* it cannot go on */
    bool preempted;      /* a rank exited with 75 */
    bool some_stopped;   /* a rank was done because it was told to stop */
    bool restarting;     /* asked: once it has stopped, the next one begins */
    bool stop_failed;    /* it failed while STOPPING, for good */
    bool grace_over;     /* ... by not ending in time */

    enum job_outcome outcome; /* from DISMISSING on */
    int exit_code;
};

bool job_stops_for_good(const struct job *j); /* STOPPING, and not for a restart */
uint32_t job_count(const struct job *j, enum node_state s); /* nodes in it */

/* verdict.c */

/* The generation failed; the first fault is kept. */
void job_note(struct job *j, enum job_cause cause, uint32_t node, uint32_t rank, int exit_code);
void job_forget(struct job *j); /* faults and exits */
struct fault job_culprit(const struct job *j);

struct verdict {
    bool restarts;
    int64_t not_before;       /* restarts */
    enum job_outcome outcome; /* else, and exit_code */
    int exit_code;
    char rule[96];
};
/* What follows a generation that ended with this fault.  Takes from the budget. */
struct verdict job_judge(struct job *j, const struct fault *f, int64_t now);

/* moves.c: each leaves a job that is whole, and may have moved on further. */
void job_begin_next(struct job *j, int64_t now);     /* boot what is lost, or launch */
void job_begin_stopping(struct job *j, int64_t now); /* SIGNAL_STOP */
void job_begin_clearing(struct job *j, int64_t now); /* KILL, if there is any to kill */
void job_begin_dismissing(struct job *j, enum job_outcome outcome, int code, int64_t now);
void job_maybe_booted(struct job *j, int64_t now);  /* BOOTING: have all answered? */
void job_maybe_cleared(struct job *j, int64_t now); /* CLEARING: are all reaped? */
void job_maybe_finish(struct job *j);               /* DISMISSING: are all gone? */
/* A rank's exit, or a lost node, was taken in: how does the generation go on? */
void job_settle(struct job *j, int64_t now);
void job_give_kill(struct job *j, uint32_t node);
void job_give_dismiss(struct job *j, uint32_t node);
void job_give_failure(struct job *j, const struct fault *f, bool restarts, const char *rule);

#endif
