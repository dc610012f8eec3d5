/* topo.h: ranks, their coordinates in the (pipeline, data, tensor) grid, and the groups they
 * form.
 *
 * rank = (pp * D + dp) * T + tp (docs/design.md "Ranks"; a context axis will go between dp and
 * tp). A group lists its ranks in ascending order of the axis, so a rank's index in it is its
 * coordinate.  Pure.
 */
#ifndef DS_SHAPE_TOPO_H
#define DS_SHAPE_TOPO_H

#include <stdint.h>

struct spec;

struct topo {
    uint32_t pipeline, data, tensor; /* sizes, >= 1 */
};

struct coord {
    uint32_t pp, dp, tp;
};

enum group_kind {
    GROUP_WORLD,
    GROUP_TENSOR,    /* same pp, dp */
    GROUP_DATA,      /* same pp, tp */
    GROUP_PIPELINE,  /* same dp, tp */
    GROUP_EMBEDDING, /* first and last stage of one pipeline: they share a tied table; size 1 if
                        pp = 1 */
    GROUP_KV, /* the tensor/kv_heads ranks of a tensor group that hold the same kv head */
    GROUP_KIND_COUNT
};

struct topo topo_of_spec(const struct spec *s);
uint32_t topo_world(const struct topo *t);
struct coord topo_coord(const struct topo *t, uint32_t rank);
uint32_t topo_rank(const struct topo *t, struct coord c);

/* The members of `rank`'s group of this kind into ret_ranks (room for topo_world entries);
 * returns their number.  0: the rank is in no such group (a middle stage of GROUP_EMBEDDING).
 * kv_heads is only looked at for GROUP_KV; where kv heads are not replicated that group is the
 * rank alone. */
uint32_t topo_group(const struct topo *t, enum group_kind kind, uint32_t rank,
                    uint32_t kv_heads, uint32_t *ret_ranks);
const char *group_kind_name(enum group_kind kind); /* "world", "tensor", ... */

#endif
