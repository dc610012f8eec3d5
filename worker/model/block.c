/* block.c: one transformer block, forward and backward, gpt2 and llama.
 *
 * Both are s1 = x; s2 = s1 + proj(attention(qkv(norm1(s1)))); s2 + down(act(up(norm2(s2)))).
 * What differs is data: the norm's kind, biases or none, the activation, the weights'
 * orientation, rotary positions.  The residual add is fused into the norm that follows it.
 */
#include "kernels/dev.h"
#include "worker/comm.h"
#include "worker/model/stage_priv.h"

void norm_fwd(struct stage *st, const float *x, const float *delta, float *sum,
              const float *gain, const float *bias, float *y, float *mean, float *rstd)
{
    struct norm_args a = st->norm;
    a.x = x;
    a.delta = delta;
    a.sum = sum;
    a.gain = gain;
    a.bias = bias;
    a.y = y;
    a.mean = mean;
    a.rstd = rstd;
    a.scratch = st->scratch;
    st->p.kern->norm_fwd(st->p.kern, &a, st->p.stream);
}

/* Where the nth norm's gradients wait for norm_reduce: [gain, bias] * hidden. */
static float *packed(struct stage *st, uint32_t nth)
{
    return st->norm_grads + (st->norm.kind == NORM_LAYER ? 2 : 1) * nth * st->d.hidden;
}

void norm_bwd(struct stage *st, const struct layer_at *at, enum store_kind gain, uint32_t nth,
              const float *x, float *mean, float *rstd, const float *dy, const float *dsum,
              float *dx, float *grads)
{
    struct norm_args a = st->norm;
    bool bias = a.kind == NORM_LAYER;

    a.x = x;
    a.mean = mean;
    a.rstd = rstd;
    a.gain = store_at(st->weights, at, gain);
    a.dy = dy;
    a.dsum = dsum;
    a.dx = dx;
    if (st->d.sequence) {
        a.dgain = packed(st, nth);
        a.dbias = bias ? a.dgain + st->d.hidden : NULL;
    } else {
        a.dgain = store_at(grads, at, gain);
        a.dbias = bias ? store_at(grads, at, gain + 1) : NULL;
    }
    a.scratch = st->scratch;
    st->p.kern->norm_bwd(st->p.kern, &a, st->p.stream);
}

static int unpack(struct stage *st, const struct layer_at *at, enum store_kind gain,
                  uint32_t nth, float *grads, struct err *e)
{
    size_t bytes = (size_t)st->d.hidden * sizeof(float);
    const float *from = packed(st, nth);

    if (st->p.dev->copy_async(st->p.dev, store_at(grads, at, gain), from, bytes, st->p.stream,
                              e))
        return -1;
    if (st->norm.kind == NORM_RMS)
        return 0;
    return st->p.dev->copy_async(st->p.dev, store_at(grads, at, gain + 1), from + st->d.hidden,
                                 bytes, st->p.stream, e);
}

int norm_reduce(struct stage *st, float *grads, struct err *e)
{
    struct comm *c = st->p.tensor;

    if (!st->d.sequence)
        return 0;
    if (st->p.plant != PLANT_SP_NORM_GRAD &&
        c->ops->all_reduce(c, st->norm_grads, (size_t)st->d.norm_grads, DT_F32, COMM_SUM,
                           st->p.stream, e))
        return -1;
    for (uint32_t i = 0; i < st->n_layers; i++) {
        if (unpack(st, &st->layers[i], STORE_NORM1_GAIN, 2 * i, grads, e) ||
            unpack(st, &st->layers[i], STORE_NORM2_GAIN, 2 * i + 1, grads, e))
            return -1;
    }
    return st->d.last ? unpack(st, &st->outer, STORE_NORMF_GAIN, 2 * st->n_layers, grads, e)
                      : 0;
}

/* llama's q|k|v is one matrix that begins at Q_W, and its biases one vector from Q_B. */
static enum store_kind qkv_store(const struct layer_at *at)
{
    return at->at[STORE_QKV_W] < 0 ? STORE_Q_W : STORE_QKV_W;
}

static enum store_kind qkv_bias(const struct layer_at *at)
{
    return at->at[STORE_QKV_B] < 0 ? STORE_Q_B : STORE_QKV_B;
}

static void rope(struct stage *st, float *qkv, bool inverse)
{
    struct rope_args a = st->rope;
    if (!a.seq_len)
        return;
    a.inverse = inverse;
    a.qkv = qkv;
    a.scratch = st->scratch;
    st->p.kern->rope(st->p.kern, &a, st->p.stream);
}

static int zero_if_planted(struct stage *st, float *x, struct err *e)
{
    if (st->p.plant != PLANT_NO_ATTENTION)
        return 0;
    return st->p.dev->zero_async(
        st->p.dev, x, (size_t)(st->d.rows * st->d.att_cols) * sizeof(float), st->p.stream, e);
}

static int attention_fwd(struct stage *st, const struct layer_at *at, struct slot_layer *s,
                         struct err *e)
{
    float *w = st->weights;
    if (tensor_col_fwd(st, &st->qkv, s->n1, store_at(w, at, qkv_store(at)),
                       store_at(w, at, qkv_bias(at)), s->qkv, e))
        return -1;
    rope(st, s->qkv, false);

    struct attn_args a = st->attn;
    a.qkv = s->qkv;
    a.out = s->att;
    a.lse = s->lse;
    a.scratch = st->scratch;
    st->p.kern->attn_fwd(st->p.kern, &a, st->p.stream);
    if (zero_if_planted(st, s->att, e))
        return -1;
    return tensor_row_fwd(st, &st->proj, s->att, store_at(w, at, STORE_PROJ_W),
                          store_at(w, at, STORE_PROJ_B), st->delta, e);
}

int block_fwd(struct stage *st, uint32_t layer, struct slot *slot, float *out, struct err *e)
{
    const struct layer_at *at = &st->layers[layer];
    struct slot_layer *s = &slot->layers[layer];
    float *w = st->weights;

    norm_fwd(st, layer ? slot->layers[layer - 1].res2 : s->res1, layer ? st->delta : NULL,
             layer ? s->res1 : NULL, store_at(w, at, STORE_NORM1_GAIN),
             store_at(w, at, STORE_NORM1_BIAS), s->n1, s->mean1, s->rstd1);
    if (attention_fwd(st, at, s, e))
        return -1;
    norm_fwd(st, s->res1, st->delta, s->res2, store_at(w, at, STORE_NORM2_GAIN),
             store_at(w, at, STORE_NORM2_BIAS), s->n2, s->mean2, s->rstd2);
    if (tensor_col_fwd(st, &st->up, s->n2, store_at(w, at, STORE_UP_W),
                       store_at(w, at, STORE_UP_B), s->up, e))
        return -1;

    struct act_args a = st->act;
    a.x = s->up;
    a.y = s->act;
    a.scratch = st->scratch;
    st->p.kern->act_fwd(st->p.kern, &a, st->p.stream);
    return tensor_row_fwd(st, &st->down, s->act, store_at(w, at, STORE_DOWN_W),
                          store_at(w, at, STORE_DOWN_B), out, e);
}

/* Each rank has seen its own query heads only: a shared K/V head has a summand on each. */
static int kv_reduce(struct stage *st, const struct layer_at *at, float *grads, struct err *e)
{
    struct comm *c = st->p.kv;
    size_t cols = (size_t)(2 * st->d.kv_heads * st->d.head_dim);
    float *bias = store_at(grads, at, STORE_KV_B);

    if (!c || c->size == 1)
        return 0;
    if (c->ops->all_reduce(c, store_at(grads, at, STORE_KV_W), cols * (size_t)st->d.hidden,
                           DT_F32, COMM_SUM, st->p.stream, e))
        return -1;
    return bias ? c->ops->all_reduce(c, bias, cols, DT_F32, COMM_SUM, st->p.stream, e) : 0;
}

/* grad_in: gradient of s2 in, of s1 by way of attention added by norm_bwd. */
static int attention_bwd(struct stage *st, const struct layer_at *at, struct slot_layer *s,
                         float *grads, struct err *e)
{
    float *w = st->weights;
    if (tensor_row_bwd(st, &st->proj, s->att, store_at(w, at, STORE_PROJ_W), st->grad_in,
                       st->d_att, store_at(grads, at, STORE_PROJ_W),
                       store_at(grads, at, STORE_PROJ_B), e) ||
        zero_if_planted(st, st->d_att, e))
        return -1;

    struct attn_args a = st->attn;
    a.qkv = s->qkv;
    a.out = s->att;
    a.lse = s->lse;
    a.dout = st->d_att;
    a.dqkv = st->d_qkv;
    a.scratch = st->scratch;
    st->p.kern->attn_bwd(st->p.kern, &a, st->p.stream);
    rope(st, st->d_qkv, true);

    if (tensor_col_bwd(st, &st->qkv, s->n1, store_at(w, at, qkv_store(at)), st->d_qkv,
                       st->d_norm, store_at(grads, at, qkv_store(at)),
                       store_at(grads, at, qkv_bias(at)), e))
        return -1;
    return kv_reduce(st, at, grads, e);
}

int block_bwd(struct stage *st, uint32_t layer, struct slot *slot, const float *dout,
              float *grads, struct err *e)
{
    const struct layer_at *at = &st->layers[layer];
    struct slot_layer *s = &slot->layers[layer];
    float *w = st->weights;

    if (tensor_row_bwd(st, &st->down, s->act, store_at(w, at, STORE_DOWN_W), dout, st->d_act,
                       store_at(grads, at, STORE_DOWN_W), store_at(grads, at, STORE_DOWN_B), e))
        return -1;
    struct act_args a = st->act;
    a.x = s->up;
    a.dy = st->d_act;
    a.dx = s->up;
    a.scratch = st->scratch;
    st->p.kern->act_bwd(st->p.kern, &a, st->p.stream);
    if (tensor_col_bwd(st, &st->up, s->n2, store_at(w, at, STORE_UP_W), s->up, st->d_norm,
                       store_at(grads, at, STORE_UP_W), store_at(grads, at, STORE_UP_B), e))
        return -1;
    norm_bwd(st, at, STORE_NORM2_GAIN, 2 * layer + 1, s->res2, s->mean2, s->rstd2, st->d_norm,
             dout, st->grad_in, grads);

    if (attention_bwd(st, at, s, grads, e))
        return -1;
    norm_bwd(st, at, STORE_NORM1_GAIN, 2 * layer, s->res1, s->mean1, s->rstd1, st->d_norm,
             st->grad_in, st->grad_in, grads);
    return 0;
}
