/* memory.h: every buffer of a rank, declared before the first step.
 *
 * The worker takes its pointers from this list and `dslaunch plan` prints its sums: there is no
 * second model of memory, so what plan says is what the arena has.  Buffers of class activation
 * exist once per activation slot of the schedule (the forward of a micro-batch fills a slot,
 * its backward frees it); work buffers and scratch exist once, and those whose lifetimes do not
 * meet share bytes.
 *
 * Pure; const once made.
 */
#ifndef DS_SHAPE_MEMORY_H
#define DS_SHAPE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"
#include "common/shape/params.h"
#include "common/shape/sched.h"

enum mem_class {
    MEM_WEIGHTS,
    MEM_GRADS,
    MEM_OPTIMIZER,
    MEM_ACTIVATIONS,
    MEM_COMM,  /* what is sent and received */
    MEM_INPUT, /* tokens and targets */
    MEM_SCRATCH,
    MEM_CLASS_COUNT
};

/* What a buffer holds.  Shapes in terms of struct mem_dims; element type fp32 unless said
 * otherwise.  L: one per local layer; S: one per activation slot. */
enum mem_id {
    MEM_WEIGHT,      /* [params->n_elements], fp32 masters, computed with as they are */
    MEM_GRAD,        /* [n_elements], summed over micro-batches and replicas */
    MEM_MICRO_GRAD,  /* [n_elements], one micro-batch's; only if accumulation > 1 */
    MEM_EXP_AVG,     /* [n_elements] */
    MEM_EXP_AVG_SQ,  /* [n_elements] */
    MEM_STEP_VALUES, /* MEM_STEP_VALUES_BYTES: clip factor, skip flag and the like */
    MEM_NORM_SUMS,   /* fp64 [1 + pipeline * tensor, params->n_stores_all]: own row, gathered */

    MEM_RES1,   /* L S [rows_local, hidden]: residual stream before the block; of local layer 0
                   it is what the stage receives (MEM_COMM there but on the first stage) */
    MEM_STAT1,  /* L S [2, rows_local]: mean, rstd (RMS norm: rstd alone) */
    MEM_N1,     /* L S [rows_local, hidden] */
    MEM_QKV,    /* L S [rows, qkv_cols], rotated */
    MEM_ATT,    /* L S [rows, att_cols] */
    MEM_LSE,    /* L S [micro_batch, heads, seq_len] */
    MEM_RES2,   /* L S [rows_local, hidden] */
    MEM_STAT2,  /* L S, as STAT1 */
    MEM_N2,     /* L S [rows_local, hidden] */
    MEM_UP,     /* L S [rows, up_cols]; its gradient overwrites it */
    MEM_ACT,    /* L S [rows, ffn] */
    MEM_RESF,   /* S, last stage: [rows_local, hidden], input of the final norm */
    MEM_STATF,  /* S, last stage */
    MEM_NF,     /* S, last stage: [rows_local, hidden] */
    MEM_LOGITS, /* S, last stage: [rows, vocab]; its gradient overwrites it */
    MEM_ROW_VALUES, /* S, last stage: [3, rows]: max, sum, target's logit */
    MEM_LOSS,       /* S, last stage: fp64 [1] */
    MEM_IDS,        /* S, first stage: int32 [rows] */
    MEM_TARGETS,    /* S, last stage: int32 [rows] */

    MEM_ACT_OUT,    /* S, not on the last stage: [rows_local, hidden] */
    MEM_GRAD_OUT,   /* not on the last stage: [rows_local, hidden], received */
    MEM_GRAD_IN,    /* [rows_local, hidden]: running gradient of the residual stream, in the end
                       what is sent */
    MEM_FULL_IN,    /* sequence parallel: [rows, hidden], gathered input of a column-parallel */
    MEM_FULL_OUT,   /* sequence parallel: [rows, hidden], to be reduce-scattered, or gathered
                       gradient of a row-parallel */
    MEM_NORM_GRADS, /* sequence parallel: norm gradients of one micro-batch, packed */

    MEM_DELTA,        /* [rows_local, hidden]: forward, what is added to the residual stream */
    MEM_D_NORM,       /* [rows_local, hidden]: backward, gradient of a norm's output */
    MEM_D_ATT,        /* [rows, att_cols] */
    MEM_D_QKV,        /* [rows, qkv_cols] */
    MEM_D_ACT,        /* [rows, ffn] */
    MEM_KERN_SCRATCH, /* for struct kern's ops: mem_kern_scratch_bytes */
    MEM_ID_COUNT
};

enum { MEM_ALIGN = 256, MEM_STEP_VALUES_BYTES = 256 };

/* The sizes that shapes are made of, of one rank. */
struct mem_dims {
    int64_t rows;       /* micro_batch * seq_len */
    int64_t rows_local; /* between the blocks: rows / tensor under sequence parallelism */
    int64_t hidden, head_dim;
    int64_t heads, kv_heads; /* local; kv_heads >= 1 */
    int64_t att_cols;        /* heads * head_dim */
    int64_t qkv_cols;        /* (heads + 2 kv_heads) * head_dim */
    int64_t ffn, up_cols;    /* local; up_cols = 2 ffn for SwiGLU */
    int64_t vocab;           /* local, padded */
    int64_t norm_grads;      /* elements of NORM_GRADS */
    bool sequence;           /* parallel.sequence and tensor > 1 */
    bool first, last;        /* stage */
};
struct mem_dims mem_dims_of(const struct spec *s, const struct params *p);

struct mem_buf {
    enum mem_class cls;
    uint32_t id;   /* enum mem_id */
    int32_t layer; /* local layer, -1 if none */
    uint32_t slot; /* activation slot, 0 if none */
    size_t bytes;  /* padded to MEM_ALIGN */
    size_t offset; /* in the arena */
};

struct mem_plan {
    struct mem_buf *bufs;
    size_t n_bufs;
    size_t arena_bytes;
    size_t class_bytes[MEM_CLASS_COUNT]; /* sums of what each class occupies; add up to
                                            arena_bytes (SIZE_MAX: more than any device has) */
    uint32_t n_slots;
    struct {
        size_t first, n;   /* bufs of this id, slot by slot */
        uint32_t n_layers; /* of each slot; 1 if not per layer */
    } of_id[MEM_ID_COUNT];
};

struct mem_plan *mem_plan_new(const struct spec *s, const struct params *p,
                              const struct sched *sched);
void mem_plan_free(struct mem_plan *m);
OWN(mem_plan);
const char *mem_class_name(enum mem_class c);

/* NULL if the rank has no such buffer.  layer -1 and slot 0 where there is none. */
const struct mem_buf *mem_plan_buf(const struct mem_plan *m, uint32_t id, int32_t layer,
                                   uint32_t slot);
/* Offset in the arena of a buffer; the triple must exist (an assert). */
size_t mem_plan_offset(const struct mem_plan *m, uint32_t id, int32_t layer, uint32_t slot);

#endif
