/* stage_priv.h: what the files of worker/model share; stage.h is the door.
 *
 * Every op's argument struct is made once, at stage_new, with its shape filled in and prepared
 * with exactly that; a run copies it and fills in the pointers.  So a run never has a shape
 * that was not prepared.
 *
 * fp32 for now: weights and activations are `float`.
 */
#ifndef DS_MODEL_STAGE_PRIV_H
#define DS_MODEL_STAGE_PRIV_H

#include "common/shape/memory.h"
#include "common/shape/params.h"
#include "kernels/kernels.h"
#include "worker/model/stage.h"

/* Activations of one layer of one micro-batch; shapes in memory.h. */
struct slot_layer {
    float *res1, *mean1, *rstd1, *n1, *qkv, *att, *lse;
    float *res2, *mean2, *rstd2, *n2, *up, *act;
};

struct slot {
    struct slot_layer *layers; /* [n_layers] */
    int32_t *ids, *targets;
    float *resf, *meanf, *rstdf, *nf, *logits;
    float *row_max, *row_sum, *row_target; /* [rows]; sum and target adjoin */
    double *loss;                          /* device */
    float *act_out;
};

/* Where the stores of a layer lie in the weight and gradient arenas, -1: no such store. */
struct layer_at {
    int64_t at[STORE_KIND_COUNT];
};

struct stage {
    struct stage_params p;
    struct mem_dims d;
    uint32_t t, n_layers;

    struct embed_args embed;
    struct norm_args norm;
    struct linear_args qkv, proj, up, down, head;
    struct rope_args rope; /* seq_len 0: none */
    struct attn_args attn;
    struct act_args act;
    struct xent_args xent;
    struct add_args add;

    struct layer_at *layers; /* [n_layers] */
    struct layer_at outer;   /* stores outside the layers */

    float *weights;
    struct slot *slots;
    uint32_t n_slots;
    double *loss; /* [n_slots], host memory; what stage_loss reads */

    float *grad_in, *grad_out, *full_in, *full_out, *norm_grads;
    float *delta, *d_norm, *d_att, *d_qkv, *d_act;
    void *scratch;
};

/* NULL if the rank has no such store. */
static inline float *store_at(float *arena, const struct layer_at *l, enum store_kind kind)
{
    return l->at[kind] < 0 ? NULL : arena + l->at[kind];
}

/* tensor.c: linears split over the tensor group.  `a` is the op's prepared shape, of this
 * rank's part.  Column-parallel: out is split; x [rows_local, in], y [rows, out]. Row-parallel:
 * in is split; x [rows, in], y [rows_local, out]; the bias is added by one rank, so it stands
 * once in the sum.  bwd: dx, dw and db are `=`; db of a row-parallel is complete on every rank.
 */
int tensor_col_fwd(struct stage *st, const struct linear_args *a, const float *x,
                   const float *w, const float *b, float *y, struct err *e);
int tensor_col_bwd(struct stage *st, const struct linear_args *a, const float *x,
                   const float *w, const float *dy, float *dx, float *dw, float *db,
                   struct err *e);
int tensor_row_fwd(struct stage *st, const struct linear_args *a, const float *x,
                   const float *w, const float *b, float *y, struct err *e);
int tensor_row_bwd(struct stage *st, const struct linear_args *a, const float *x,
                   const float *w, const float *dy, float *dx, float *dw, float *db,
                   struct err *e);
/* part [rows, hidden], a summand of each rank -> y [rows_local, hidden].  part is full_out
 * under sequence parallelism, else y itself: tensor_part says which. */
float *tensor_part(struct stage *st, float *y);
int tensor_reduce(struct stage *st, float *y, struct err *e);
/* x [rows_local, hidden] -> [rows, hidden] in `full`, or x itself where rows are not split. */
int tensor_gather(struct stage *st, const float *x, float *full, const float **ret,
                  struct err *e);

/* block.c: one transformer block.  fwd: the input is res1 of layer 0, or res2 + delta of the
 * layer before; the output is res2 + out, out [rows_local, hidden].  bwd: dout
 * [rows_local, hidden] is the gradient of the output, which may be grad_in; the input's is left
 * in grad_in. */
int block_fwd(struct stage *st, uint32_t layer, struct slot *slot, float *out, struct err *e);
int block_bwd(struct stage *st, uint32_t layer, struct slot *slot, const float *dout,
              float *grads, struct err *e);

/* norm with its residual add; where its gain and bias gradients go is norm_bwd's business:
 * under sequence parallelism they are packed, and summed over the tensor group at the end. */
void norm_fwd(struct stage *st, const float *x, const float *delta, float *sum,
              const float *gain, const float *bias, float *y, float *mean, float *rstd);
/* nth: place of this norm among the stage's. */
void norm_bwd(struct stage *st, const struct layer_at *at, enum store_kind gain, uint32_t nth,
              const float *x, float *mean, float *rstd, const float *dy, const float *dsum,
              float *dx, float *grads);
int norm_reduce(struct stage *st, float *grads, struct err *e);

/* init.c: what the rank's pieces say into a host arena of params->n_elements. */
void init_pieces(const struct params *p, uint64_t seed, float *ret);

/* head.c: the two ends. */
int embed_fwd(struct stage *st, struct slot *slot, struct err *e); /* -> res1 of layer 0 */
int embed_bwd(struct stage *st, struct slot *slot, float *grads, struct err *e);
int head_fwd(struct stage *st, struct slot *slot, struct err *e); /* res2 + delta -> loss */
int head_bwd(struct stage *st, struct slot *slot, float scale, float *grads,
             struct err *e); /* -> grad_in */

#endif
