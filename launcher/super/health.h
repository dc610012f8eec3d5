/* health.h: who is alive, who hangs, and who is the culprit.  Pure: observations in, verdicts
 * out.
 *
 * Nodes hold a lease that each frame renews: no frame for suspect_ns makes a node suspect, for
 * lost_ns lost.  Ranks are watched by progress: the agents report each rank's page; a rank
 * whose beat stands still over reports of hang_timeout_ns hangs (without reports nothing is
 * known of it: that is the node's lease).
 *
 * When several ranks stand still, those that wait in communication are victims; the culprit is
 * the one that does not (stopped, or computing for ever), else the one with the smallest step,
 * then the smallest collective number, then the lowest rank.  A victim's clock may run out
 * first: then the others are given until theirs has, or 2 * hang_timeout_ns.
 *
 * Only observed time counts: what lies between two ticks counts for at most a quarter of the
 * smallest limit, so a pause of the observer (SIGSTOP, a suspended machine) accuses nobody: the
 * silence was ours.
 */
#ifndef DS_SUPER_HEALTH_H
#define DS_SUPER_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/own.h"

struct health;

struct health_limits {
    int64_t suspect_ns, lost_ns, hang_timeout_ns;
};

struct health_page { /* what an agent saw of one rank */
    uint64_t beat, step, coll_seq;
    uint32_t phase, micro, waiting, coll_group, coll_op, coll_peer;
    char proc_state; /* of /proc/PID/stat: 'R' 'S' 'D' 'T' 'Z', 0 unknown */
};

enum health_verdict {
    HEALTH_NODE_SUSPECT,
    HEALTH_NODE_BACK,
    HEALTH_NODE_LOST,
    HEALTH_RANK_HUNG
};

/* `id` is a node or a rank.  HUNG is said once per generation, for the culprit. */
typedef void health_verdict_fn(void *ctx, enum health_verdict v, uint32_t id,
                               int64_t silent_ns);

struct health *health_new(uint32_t n_nodes, uint32_t n_ranks, const struct health_limits *l,
                          health_verdict_fn *say, void *ctx);
void health_free(struct health *h);
OWN(health);

void health_node_up(struct health *h, uint32_t node, int64_t now_ns);    /* lease starts */
void health_node_down(struct health *h, uint32_t node);                  /* no longer watched */
void health_node_frame(struct health *h, uint32_t node, int64_t now_ns); /* lease renewed */
/* All ranks are watched anew from `now` (a generation began), or none (it ended). */
void health_generation(struct health *h, bool running, int64_t now_ns);
void health_rank_page(struct health *h, uint32_t rank, const struct health_page *p,
                      int64_t now_ns);
void health_rank_gone(struct health *h, uint32_t rank);
void health_tick(struct health *h, int64_t now_ns);
/* When to tick next: when a verdict may be due, and at least each eighth of the smallest
 * limit; INT64_MAX while nothing is watched. */
int64_t health_deadline(const struct health *h);
/* The last page reported for a rank; NULL before the first.  Borrowed. */
const struct health_page *health_page_of(const struct health *h, uint32_t rank);

#endif
