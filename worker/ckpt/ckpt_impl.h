/* ckpt_impl.h: what save.c and load.c share; nobody else includes it. */
#ifndef DS_CKPT_CKPT_IMPL_H
#define DS_CKPT_CKPT_IMPL_H

#include <stdbool.h>

#include "worker/ckpt/boxes.h"
#include "worker/ckpt/ckpt.h"

/* A snapshot memfd: what lies in it, and in whose hands it is. */
struct ckpt_slot {
    uint64_t step;                        /* 0: nothing was ever put in */
    uint64_t manifest_at, manifest_bytes; /* rank 0 */
    bool agreed; /* all ranks have written it, or will not; rank 0 has said commit */
};

struct ckpt {
    struct ckpt_params p;
    struct boxes *boxes;
    struct ckpt_slot slots[2];
    uint32_t next;     /* slot of the next snapshot */
    uint64_t last;     /* step of the newest snapshot */
    bool other_layout; /* of what was loaded */
    char *dir;         /* absolute */
};

static inline float *ckpt_arena(const struct ckpt *c, enum ckpt_kind k)
{
    return k == CKPT_WEIGHT    ? c->p.tensors.weights
           : k == CKPT_EXP_AVG ? c->p.tensors.exp_avg
                               : c->p.tensors.exp_avg_sq;
}

#endif
