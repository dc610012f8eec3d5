/* plan.h: where each rank runs, and with what environment.
 *
 * (spec, slots of each node) -> plan.  Ranks fill the nodes in order, each up to its slots, so
 * tensor groups stay on a node as far as slots allow, and only nodes at the end may stay empty.
 * Nothing here asks a machine: whoever calls says how many workers each node may carry.
 *
 * Pure; const once made.  The plan keeps no pointer into the spec.
 */
#ifndef DS_PLAN_PLAN_H
#define DS_PLAN_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"
#include "common/shape/topo.h"

struct err;
struct spec;

struct plan_rank {
    uint32_t rank, node, local_rank; /* local_rank: 0.. on its node */
    struct coord at;
    uint32_t layer0, n_layers; /* of its stage */
};

struct plan_node {
    char *host;
    uint32_t slots;
    uint32_t first_rank, n_ranks; /* a node's ranks are consecutive; n_ranks may be 0 */
};

struct plan {
    struct topo topo;
    uint32_t world;
    struct plan_rank *ranks; /* [world] */
    struct plan_node *nodes; /* [n_nodes], as in the spec */
    uint32_t n_nodes;
    uint32_t n_used; /* the first n_used nodes carry ranks */
    char **env;      /* NULL-terminated "NAME=value", the same for every rank: what job.env lets
                        through, then cluster.env, which wins; each name once */
};

/* slots[i] >= 1: workers that spec->cluster.nodes[i] may carry.  user_env: the user's
 * environment (as environ), of which job.env chooses; NULL for none.  ERR_SPEC, with both
 * numbers, if there are fewer slots than workers. */
struct plan *plan_new(const struct spec *s, const uint32_t *slots, char *const *user_env,
                      struct err *e);
void plan_free(struct plan *p);
OWN(plan);

/* Slots for boot local, where all nodes are this machine: a node's own, else cluster.slots,
 * else max(cores, ceil(world / n_nodes)): a small model's workers share cores rather than not
 * run.  ret: [n_nodes]. */
void plan_slots_local(const struct spec *s, uint32_t cores, uint32_t *ret);

/* Environment of a rank: torchrun's RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK
 * and GROUP_RANK (both the node's index), then the common part, where those names are left out.
 * NULL-terminated, one allocation each; free with plan_env_free. */
char **plan_env(const struct plan *p, uint32_t rank);
void plan_env_free(char **env);

#endif
