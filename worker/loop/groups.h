/* groups.h: the communicators of this rank, one per group it is in with others. */
#ifndef DS_LOOP_GROUPS_H
#define DS_LOOP_GROUPS_H

#include <stdint.h>

#include "common/base/own.h"
#include "common/shape/topo.h"

struct comm;
struct comm_net;
struct err;
struct spec;

/* A member is NULL where the group is the rank alone, or it is in none. */
struct groups {
    struct topo topo;
    struct coord at;
    uint32_t rank;
    struct comm *of[GROUP_KIND_COUNT];
};

/* `net` may be NULL if the world is 1.  Nothing is sent yet. */
struct groups *groups_new(const struct spec *s, uint32_t rank, struct comm_net *net,
                          struct err *e);
void groups_free(struct groups *g);
OWN(groups);
/* Time spent waiting inside operations so far, all groups. */
int64_t groups_spent_ns(const struct groups *g);

#endif
