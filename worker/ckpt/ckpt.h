/* ckpt.h: checkpoints about logical tensors.
 *
 * `<dir>/step-00000100-g3/` holds one safetensors file per rank, `rank-00000.safetensors`, and
 * manifest.json (schema: docs/checkpoint.md).  Tensor names are the logical ones; beside each
 * stand
 * `<name>.exp_avg` and `<name>.exp_avg_sq` (and `.master` where compute type is not fp32).  A
 * rank's file holds the boxes it owns: within a data-parallel group box k of the table is
 * written by replica k % data.  A box is a safetensors entry `<name>@r0,c0` (start of the box).
 *
 * Saving: ckpt_snapshot serialises into a snapshot memfd and tells the agent, which writes,
 * fsyncs and, once rank 0 said commit, renames.  Loading: any layout loads any other's,
 * optimizer included, by intersecting boxes; each file read is checked against its digest, per
 * box.  A checkpoint in which any rank finds a fault is skipped by all, said, and the next
 * older one is tried.
 */
#ifndef DS_CKPT_CKPT_H
#define DS_CKPT_CKPT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/own.h"

struct comm;
struct err;
struct link;
struct params;
struct spec;
struct ckpt;

/* The state that is neither weight nor moment. */
struct ckpt_state {
    uint64_t step;             /* finished steps */
    uint64_t consumed_samples; /* of the data stream */
    uint64_t optimizer_t;      /* AdamW's t */
    double loss_scale;         /* 1 with fp32 */
    uint64_t data_digest;
};

struct ckpt_tensors { /* arenas of params->n_elements floats, store offsets; borrowed */
    float *weights, *exp_avg, *exp_avg_sq;
};

struct ckpt_params {
    const struct spec *spec;
    const struct params *params;
    struct comm *world; /* NULL if world = 1 */
    struct link *link;
    uint32_t rank, generation, dp;
    struct ckpt_tensors tensors;
};

struct ckpt *ckpt_new(const struct ckpt_params *p, struct err *e);
void ckpt_free(struct ckpt *c);
OWN(ckpt);

/* Finds the newest checkpoint all ranks can load and loads it.  Returns 1 if loaded, 0 if there
 * is none (a fresh start), -1 on error (a spec that does not match: ERR_SPEC).  Collective. */
int ckpt_load(struct ckpt *c, struct ckpt_state *ret, struct err *e);
/* What was loaded had been saved by another layout (data, tensor, pipeline). */
bool ckpt_layout_differs(const struct ckpt *c);
/* Collective.  Fills the older snapshot slot, once what lies in it is committed or lost (so
 * every snapshot is committed that could be written, however slow the disks), gathers the
 * manifest on rank 0, tells the agent; does not wait for its writing. */
int ckpt_snapshot(struct ckpt *c, const struct ckpt_state *s, struct err *e);
/* What this rank contributes to the agreement at each step's reduction: the newest snapshot
 * step that its agent has written.  Every rank is told the minimum over all; rank 0 commits
 * what is not newer. */
uint64_t ckpt_written(struct ckpt *c);
int ckpt_on_agreed(struct ckpt *c, uint64_t min_written, struct err *e);
/* Collective; waits until the last snapshot is committed (end of run, stop). */
int ckpt_flush(struct ckpt *c, int64_t deadline_ns, struct err *e);

#endif
