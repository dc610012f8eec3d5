/* sched.h: pipeline schedules as data, and their simulator.
 *
 * A schedule lists, for each stage, what it does in order.  Sends and receives are steps of
 * their own, so one interpreter (worker/train) runs every schedule, and the simulator proves a
 * table before it runs: every dependency met, no deadlock with sends that do not wait, every F
 * and B done exactly once, B in ascending micro-batch order per chunk (the order gradients are
 * summed in; docs/design.md, "Identities"), no slot or gradient buffer overwritten while it is
 * needed, receives in the order of their sends, and how many activation slots a stage needs at
 * once.
 *
 * Pure; const once made.
 */
#ifndef DS_SHAPE_SCHED_H
#define DS_SHAPE_SCHED_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"
#include "common/spec/spec.h"

enum sched_op {
    SCHED_F,         /* forward of (chunk, micro) into its slot */
    SCHED_B,         /* backward, frees the slot; input and weight gradient unless W is apart */
    SCHED_W,         /* weight gradient, for schedules that split it off */
    SCHED_SEND_ACT,  /* to the next stage */
    SCHED_RECV_ACT,  /* from the stage before */
    SCHED_SEND_GRAD, /* to the stage before */
    SCHED_RECV_GRAD, /* from the next stage */
    SCHED_OP_COUNT
};

struct sched_item {
    enum sched_op op;
    uint32_t chunk, micro;
    uint32_t slot; /* activation slot of (chunk, micro): lowest free one at its first use */
    uint32_t tick; /* start, in units of the simulator's clock, for pictures */
};

struct sched_lane {
    struct sched_item *items;
    size_t n;
    uint32_t n_slots; /* activations alive at once */
};

struct sched {
    uint32_t n_stages, n_chunks, n_micro;
    struct sched_lane *lanes; /* one per stage */
};

struct err;

/* n_micro = accumulation.  With one stage there are no sends. */
struct sched *sched_new(enum spec_schedule kind, uint32_t n_stages, uint32_t n_micro);
void sched_free(struct sched *s);
OWN(sched);

struct sched_cost {
    double f, b, w, send; /* time of one each; b includes w where no W items exist */
};
struct sched_report {
    double makespan;
    double bubble; /* 1 - busy / (makespan * stages) */
    uint32_t max_slots;
};

/* Plays the table.  ERR_PROTOCOL names the first item that breaks a rule.  Fills the items'
 * ticks (units of cost.f * 1/16). */
int sched_simulate(struct sched *s, const struct sched_cost *cost, struct sched_report *ret,
                   struct err *e);
const char *sched_op_name(enum sched_op op); /* "F", "B", "send-act", ... */

#endif
