/* kernels.h: the arithmetic of the trainer, as one struct of functions per back end.
 *
 * struct kern is what a back end (kernels/cpu, later kernels/cuda) fills in.  Arithmetic only:
 * an op never allocates, communicates, synchronises or exits.  What may be slow, allocate, time
 * variants or read a plan cache happens in `prepare`, once per op and shape, before the first
 * step; prepare also says how many bytes of scratch a run with that shape needs, and
 * `args.scratch` of a run must point to at least that many, 64-byte aligned.  A run has the
 * shape of some prepare before it (rope's tables come from there); scratch asked for with
 * `accumulate` set is enough for a run without, not the other way round.
 *
 * Outputs lie on no input unless the op's comment says that they may.
 *
 * Shapes are row-major.  Tokens are rows: row = sequence * seq_len + position, rows = B * T.  A
 * weight gradient is written `=` or, with `accumulate`, `+=`; everything else is `=` unless the
 * comment says otherwise.  Activations and weights have the type `dtype`; statistics, weight
 * gradients, losses and optimizer state are fp32; sums that are reported or gathered are fp64.
 *
 * Determinism: on CPU an op's bits depend only on its arguments, for one CPU model, one GEMM
 * library core type and one thread count.  Sums run in a fixed order that does not depend on
 * the SIMD width; exp, tanh, sin and cos are our own (kernels/cpu/approx.h), never libm's.
 */
#ifndef DS_KERNELS_KERNELS_H
#define DS_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/dtype.h"

struct err;
struct dev_stream;

enum kern_op {
    KERN_EMBED_FWD,
    KERN_EMBED_BWD,
    KERN_NORM_FWD,
    KERN_NORM_BWD,
    KERN_LINEAR_FWD,
    KERN_LINEAR_BWD_DATA,
    KERN_LINEAR_BWD_WEIGHT,
    KERN_ROPE,
    KERN_ATTN_FWD,
    KERN_ATTN_BWD,
    KERN_ACT_FWD,
    KERN_ACT_BWD,
    KERN_XENT_MAX,
    KERN_XENT_SUM,
    KERN_XENT_GRAD,
    KERN_ADD,
    KERN_SUMSQ,
    KERN_ADAMW,
    KERN_OP_COUNT
};

/* Token embedding over a vocabulary slice, plus learned positions (gpt2).
 *
 * fwd: y[r,:] = (v0 <= ids[r] < v0+vocab ? table[ids[r]-v0,:] : 0)
 *             + (pos ? pos[(row0+r) % seq_len,:] : 0)
 *
 * bwd: dtable[vocab,hidden] and dpos[seq_len,hidden] (each if not NULL) from dy, rows in
 * ascending order. */
struct embed_args {
    enum dtype dtype;
    int64_t rows, hidden, vocab, v0, seq_len, row0;
    const int32_t *ids;   /* [rows] */
    const void *table;    /* [vocab, hidden] */
    const void *pos;      /* [>= seq_len, hidden] or NULL */
    void *y;              /* fwd [rows, hidden] */
    const void *dy;       /* bwd [rows, hidden] */
    float *dtable, *dpos; /* bwd; rows of dpos behind seq_len are not touched when accumulating,
                             and zeroed by the caller otherwise */
    bool accumulate;
    void *scratch;
};

/* Layer norm (gain and bias) or RMS norm (gain), with the residual add in front of it.
 *
 * fwd: s = delta ? x + delta : x; `sum` receives s if delta, and may be x or delta;
 * y = norm(s) * gain (+ bias).
 *
 * bwd: dx = d/ds norm · dy + (dsum ? dsum : 0), which is the gradient of x and of delta alike.
 * dgain, dbias [cols]. */
enum norm_kind { NORM_LAYER, NORM_RMS };
struct norm_args {
    enum dtype dtype;
    enum norm_kind kind;
    int64_t rows, cols;
    float eps;
    const void *x, *delta;   /* [rows, cols]; bwd: x is s */
    void *sum;               /* fwd [rows, cols], used if delta */
    const void *gain, *bias; /* [cols]; bias NULL for RMS */
    void *y;                 /* fwd [rows, cols] */
    float *mean, *rstd;      /* [rows], written by fwd, read by bwd; mean NULL for RMS */
    const void *dy, *dsum;   /* bwd [rows, cols]; dsum may be NULL */
    void *dx;                /* bwd [rows, cols]; may be dsum */
    float *dgain, *dbias;    /* bwd [cols] */
    bool accumulate;
    void *scratch;
};

/* y[rows,out] = x[rows,in] · W (+ bias[out]).  W is [out,in] (WEIGHT_OUT_IN, Llama's files) or
 * [in,out] (WEIGHT_IN_OUT, GPT-2's Conv1D): the orientation of the logical tensor, never
 * transposed. */
enum weight_order { WEIGHT_OUT_IN, WEIGHT_IN_OUT };
struct linear_args {
    enum dtype dtype;
    enum weight_order order;
    int64_t rows, in, out;
    const void *x;    /* fwd, bwd_weight [rows, in] */
    const void *w;    /* fwd, bwd_data */
    const void *bias; /* fwd [out] or NULL */
    void *y;          /* fwd [rows, out] */
    const void *dy;   /* bwd [rows, out] */
    void *dx;         /* bwd_data [rows, in] */
    float *dw;        /* bwd_weight, shape of w */
    float *dbias;     /* bwd_weight [out] or NULL */
    bool accumulate;
    void *scratch;
};

/* Rotary positions, half-split layout (element i pairs with i + head_dim/2, as Llama's files),
 * in place on the q and k heads of packed rows [q heads | k heads | v heads] * head_dim.  Angle
 * of position p and pair i: p * theta^(-2i/head_dim).  inverse: by the negative angle
 * (backward). */
struct rope_args {
    enum dtype dtype;
    int64_t rows, seq_len, heads, kv_heads, head_dim;
    double theta;
    bool inverse;
    void *qkv; /* [rows, (heads + 2 kv_heads) head_dim] */
    void *scratch;
};

/* Causal attention of packed qkv, scale 1/sqrt(head_dim); query head h reads kv head
 * h / (heads/kv_heads).  Works in tiles: no [seq_len, seq_len] buffer. */
struct attn_args {
    enum dtype dtype;
    int64_t batch, seq_len, heads, kv_heads, head_dim;
    const void *qkv; /* [batch*seq_len, (heads + 2 kv_heads) head_dim] */
    void *out;       /* fwd =, bwd read [batch*seq_len, heads*head_dim] */
    float *lse;      /* [batch, heads, seq_len]: log of the sum of exp of scaled scores */
    const void *dout;
    void *dqkv; /* bwd, as qkv */
    void *scratch;
};

/* GELU, tanh form: y = gelu(x), x [rows, cols].  SwiGLU: x is [rows, 2 cols] = gate | up,
 * y = silu(gate) * up [rows, cols].  bwd: dx of x's shape from x and dy; dx may be x. */
enum act_kind { ACT_GELU, ACT_SWIGLU };
struct act_args {
    enum dtype dtype;
    enum act_kind kind;
    int64_t rows, cols;
    const void *x;
    void *y;
    const void *dy;
    void *dx;
    void *scratch;
};

/* Softmax cross-entropy over a vocabulary slice, in three passes between which the caller
 * reduces over the tensor group.  Columns whose id v0+c >= vocab_valid are padding: they never
 * count, and their gradient is 0.  A target < 0 is ignored: loss 0, gradient row 0.
 *
 * max: row_max[r] = max over valid columns, -inf if there are none (then all-reduce max)
 *
 * sum: row_sum[r] = sum exp(logit - row_max); row_target[r] = target in slice ? its logit : 0
 * (then all-reduce sum of both)
 *
 * grad: loss[0] = fp64 sum over rows of log(row_sum) + row_max - row_target, rows ascending;
 * dlogits (in place on logits) = (softmax * (1 + 2 z Z) - onehot) * scale, the gradient of
 * loss + z Z^2 with Z = log(row_sum) + row_max (z-loss; PaLM, Chowdhery et al. 2022).  With
 * `loss_only` false the gradient is written; true leaves logits as they are (validation). */
struct xent_args {
    enum dtype dtype;
    int64_t rows, vocab, v0, vocab_valid;
    void *logits;                          /* [rows, vocab] */
    const int32_t *targets;                /* [rows], global ids, < 0 ignored */
    float *row_max, *row_sum, *row_target; /* [rows] */
    float scale;                           /* 1 / (unmasked tokens of the global batch) */
    float z;                               /* weight of the z-loss, which loss leaves out */
    bool loss_only;
    double *loss; /* [1], = */
    void *scratch;
};

/* y[n] += x[n] */
struct add_args {
    enum dtype dtype;
    int64_t n;
    const void *x;
    void *y;
    void *scratch;
};

/* sum[0] = sum of squares in fp64: over blocks of KERN_SUMSQ_BLOCK elements counted from x[0],
 * blocks added in ascending order.  A NaN or Inf in x shows as a NaN or Inf in the sum. */
enum { KERN_SUMSQ_BLOCK = 4096 };
struct sumsq_args {
    int64_t n;
    const float *x;
    double *sum;
    void *scratch;
};

/* AdamW (Loshchilov & Hutter 2019) on n_segments ranges in one call, fp32 masters:
 *   g' = g * *grad_scale; m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2
 *   p -= lr * (m / (1-b1^t) / (sqrt(v / (1-b2^t)) + eps) + decay * weight_decay * p)
 * With *skip != 0 nothing is written.  bias1 = 1-b1^t and bias2 = 1-b2^t come from the caller,
 * in fp64, so that every rank has the same bits. */
struct adamw_segment {
    float *p, *m, *v;
    const float *g;
    void *copy; /* the weight in compute type, written after p; NULL if p is what is computed
                   with */
    int64_t n;
    bool decay;
};
struct adamw_args {
    enum dtype dtype; /* of copy */
    const struct adamw_segment *segments;
    int64_t n_segments;
    double lr, beta1, beta2, eps, weight_decay, bias1, bias2;
    const float *grad_scale; /* clip factor, read at run time */
    const int32_t *skip;
    void *scratch;
};

/* One back end on one device.  Opened once per process by kern_cpu_open (later kern_cuda_open).
 */
struct kern {
    const char *name; /* "cpu" */
    void *ctx;

    bool (*supports)(const struct kern *k, enum kern_op op, enum dtype dtype);
    /* `args` is the op's struct with its shape filled in; pointers are ignored. */
    int (*prepare)(struct kern *k, enum kern_op op, const void *args, size_t *ret_scratch_bytes,
                   struct err *e);

    void (*embed_fwd)(struct kern *k, const struct embed_args *a, struct dev_stream *s);
    void (*embed_bwd)(struct kern *k, const struct embed_args *a, struct dev_stream *s);
    void (*norm_fwd)(struct kern *k, const struct norm_args *a, struct dev_stream *s);
    void (*norm_bwd)(struct kern *k, const struct norm_args *a, struct dev_stream *s);
    void (*linear_fwd)(struct kern *k, const struct linear_args *a, struct dev_stream *s);
    void (*linear_bwd_data)(struct kern *k, const struct linear_args *a, struct dev_stream *s);
    void (*linear_bwd_weight)(struct kern *k, const struct linear_args *a,
                              struct dev_stream *s);
    void (*rope)(struct kern *k, const struct rope_args *a, struct dev_stream *s);
    void (*attn_fwd)(struct kern *k, const struct attn_args *a, struct dev_stream *s);
    void (*attn_bwd)(struct kern *k, const struct attn_args *a, struct dev_stream *s);
    void (*act_fwd)(struct kern *k, const struct act_args *a, struct dev_stream *s);
    void (*act_bwd)(struct kern *k, const struct act_args *a, struct dev_stream *s);
    void (*xent_max)(struct kern *k, const struct xent_args *a, struct dev_stream *s);
    void (*xent_sum)(struct kern *k, const struct xent_args *a, struct dev_stream *s);
    void (*xent_grad)(struct kern *k, const struct xent_args *a, struct dev_stream *s);
    void (*add)(struct kern *k, const struct add_args *a, struct dev_stream *s);
    void (*sumsq)(struct kern *k, const struct sumsq_args *a, struct dev_stream *s);
    void (*adamw)(struct kern *k, const struct adamw_args *a, struct dev_stream *s);
    void (*close)(struct kern *k); /* frees k */
};

/* NULL-safe k->close.  `threads` is given to the GEMM library too. */
struct kern *kern_cpu_open(uint32_t threads, struct err *e);
void kern_close(struct kern *k);

#endif
