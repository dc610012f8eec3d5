/* params.h: the parameter table: which tensors a model has, and where each rank keeps its part.
 *
 * Two views, joined by pieces:
 *   param   a logical tensor: Hugging Face's name, global shape and orientation, unpadded
 *           vocabulary.  Checkpoints, initial weights and parity tests speak of these.
 *   store   what one rank keeps and the kernels see: fused q|k|v, vocabulary rows padded to the
 *           tensor size.  Stores of a rank lie in one arena in table order; gradient buckets,
 *           masters and moments use the same offsets.
 *   piece   a box of a param that lies in a store, as rows of `size[1]` elements every
 * `stride`.
 *
 * The order of stores, over all stages, is the table order in which norms are added on every
 * rank (docs/design.md, "Identities").  A tied table is one param with two stores, EMBED on the
 * first stage and HEAD on the last (both on the only one when pipeline = 1): two bucket
 * entries, added after their data-parallel reduction.  Weights, masters and moments of the two
 * stay equal.
 *
 * Pure; const once made.
 */
#ifndef DS_SHAPE_PARAMS_H
#define DS_SHAPE_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"
#include "common/shape/topo.h"

struct spec;

enum param_init { INIT_NORMAL, INIT_ZERO, INIT_ONE };

struct param {
    char name[96];
    uint32_t ndim;    /* 1 or 2 */
    int64_t shape[2]; /* shape[1] = 1 if ndim is 1 */
    enum param_init init;
    double std; /* of INIT_NORMAL: 0.02, and 0.02/sqrt(2 layers) for residual projections */
    bool decay; /* matrices only */
    bool tied;  /* has an EMBED and a HEAD store */
};

enum store_kind {
    STORE_EMBED,      /* [vocab_padded/T, hidden] */
    STORE_POSITION,   /* [max_positions, hidden], gpt2 */
    STORE_NORM1_GAIN, /* [hidden] */
    STORE_NORM1_BIAS,
    STORE_QKV_W,  /* gpt2: [hidden, 3 hidden/T] in,out: q | k | v columns */
    STORE_QKV_B,  /* [3 hidden/T] */
    STORE_Q_W,    /* llama: [heads/T * head_dim, hidden] out,in */
    STORE_KV_W,   /* [2 * local kv heads * head_dim, hidden]: k rows, then v rows; begins right
                     behind Q_W's last element, so that q|k|v is one matrix */
    STORE_Q_B,    /* llama with model.qkv_bias: [heads/T * head_dim] */
    STORE_KV_B,   /* [2 * local kv heads * head_dim]: k, then v; right behind Q_B, as above */
    STORE_PROJ_W, /* gpt2 [hidden/T, hidden] in,out; llama [hidden, heads/T * head_dim] out,in
                   */
    STORE_PROJ_B, /* [hidden], added after the tensor reduction */
    STORE_NORM2_GAIN,
    STORE_NORM2_BIAS,
    STORE_UP_W,   /* gpt2 [hidden, ffn/T] in,out; llama [2 ffn/T, hidden] out,in: gate rows, up
                     rows */
    STORE_UP_B,   /* [ffn/T] */
    STORE_DOWN_W, /* gpt2 [ffn/T, hidden] in,out; llama [hidden, ffn/T] out,in */
    STORE_DOWN_B, /* [hidden] */
    STORE_NORMF_GAIN, /* last stage */
    STORE_NORMF_BIAS,
    STORE_HEAD, /* [vocab_padded/T, hidden] out,in */
    STORE_KIND_COUNT
};

/* Over which ranks of the tensor group the store holds the same values. */
enum store_share { SHARE_NONE, SHARE_TENSOR, SHARE_KV };

struct store {
    enum store_kind kind;
    int32_t layer;      /* global, -1 outside the layers */
    uint32_t index;     /* place in the global table order, over all stages */
    int64_t rows, cols; /* local */
    int64_t n;          /* rows * cols */
    int64_t offset;     /* elements from the start of the rank's arena; a multiple of
                           PARAMS_BLOCK, but for KV_W and KV_B (see there) */
    enum store_share share;
    bool decay;
};

struct piece {
    uint32_t param, store;     /* indices into the table */
    int64_t start[2], size[2]; /* box in the param; [1] = {0,1} for ndim 1 */
    int64_t offset, stride;    /* elements from the store's start; between rows */
    bool owner; /* false where another rank of the tensor group holds the same box too, and is
                   the one that writes it (the first by index), or for the HEAD copy of a tied
                   param */
};

enum { PARAMS_BLOCK = 4096 }; /* = KERN_SUMSQ_BLOCK */

struct params {
    struct param *params; /* of the whole model, in table order */
    size_t n_params;
    uint32_t n_stores_all; /* stores in the global order, over all stages */
    struct store *stores;  /* of this rank */
    size_t n_stores;
    struct piece *pieces; /* of this rank, grouped by store */
    size_t n_pieces;
    int64_t n_elements;        /* arena length, padded */
    uint32_t layer0, n_layers; /* layers of this rank's stage */
    uint32_t stage;
    int64_t vocab_local, vocab_start; /* rows of EMBED/HEAD, the first's global id */
};

/* For the rank at `c`.  The spec has passed spec_load. */
struct params *params_new(const struct spec *s, struct coord c);
void params_free(struct params *p);
OWN(params);

/* NULL if this rank has none. */
const struct store *params_store(const struct params *p, enum store_kind kind, int32_t layer);
/* Layers of each stage into ret (pipeline entries): parallel.stages, or the split that
 * minimises the largest stage with embedding and head weighed by their FLOPs (formula in
 * params.c). */
void params_stages(const struct spec *s, uint32_t *ret);
/* All parameters of the model, tied counted once. */
int64_t params_count(const struct spec *s);

#endif
