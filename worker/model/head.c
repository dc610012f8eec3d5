/* head.c: the two ends of the model: embedding, and the output head with its loss.
 *
 * Both tables are split by vocabulary rows over the tensor group, padded to a multiple of it.
 * Embedding: each rank looks up what lies in its slice, rank 0 adds the positions, and the sum
 * is the embedding.  Loss: the logits of a token lie on all ranks of the group; maximum, sum of
 * exponentials and the target's logit are reduced, never the logits.  Padded columns count
 * nowhere.
 */
#include "kernels/dev.h"
#include "worker/comm.h"
#include "worker/model/stage_priv.h"

int embed_fwd(struct stage *st, struct slot *slot, struct err *e)
{
    float *y = slot->layers[0].res1;
    struct embed_args a = st->embed;

    a.ids = slot->ids;
    a.table = store_at(st->weights, &st->outer, STORE_EMBED);
    a.pos = st->p.tp == 0 ? store_at(st->weights, &st->outer, STORE_POSITION) : NULL;
    a.y = tensor_part(st, y);
    a.scratch = st->scratch;
    st->p.kern->embed_fwd(st->p.kern, &a, st->p.stream);
    return tensor_reduce(st, y, e);
}

int embed_bwd(struct stage *st, struct slot *slot, float *grads, struct err *e)
{
    const struct store *pos = params_store(st->p.params, STORE_POSITION, -1);
    struct embed_args a = st->embed;
    const float *dy;

    if (tensor_gather(st, st->grad_in, st->full_out, &dy, e))
        return -1;
    a.ids = slot->ids;
    a.dy = dy;
    a.dtable = store_at(grads, &st->outer, STORE_EMBED);
    a.dpos = store_at(grads, &st->outer, STORE_POSITION);
    a.scratch = st->scratch;
    if (pos && pos->rows > a.seq_len) {
        size_t used = (size_t)(a.seq_len * a.hidden), n = (size_t)pos->n;
        if (st->p.dev->zero_async(st->p.dev, a.dpos + used, (n - used) * sizeof(float),
                                  st->p.stream, e))
            return -1;
    }
    st->p.kern->embed_bwd(st->p.kern, &a, st->p.stream);
    return 0;
}

static struct xent_args xent_args(struct stage *st, struct slot *slot)
{
    struct xent_args a = st->xent;
    a.logits = slot->logits;
    a.targets = slot->targets;
    a.row_max = slot->row_max;
    a.row_sum = slot->row_sum;
    a.row_target = slot->row_target;
    a.loss = slot->loss;
    a.scratch = st->scratch;
    return a;
}

int head_fwd(struct stage *st, struct slot *slot, struct err *e)
{
    const struct slot_layer *s = &slot->layers[st->n_layers - 1];
    struct kern *k = st->p.kern;
    struct comm *c = st->p.tensor;
    float *w = st->weights;
    size_t rows = (size_t)st->d.rows;

    norm_fwd(st, s->res2, st->delta, slot->resf, store_at(w, &st->outer, STORE_NORMF_GAIN),
             store_at(w, &st->outer, STORE_NORMF_BIAS), slot->nf, slot->meanf, slot->rstdf);
    if (tensor_col_fwd(st, &st->head, slot->nf, store_at(w, &st->outer, STORE_HEAD), NULL,
                       slot->logits, e))
        return -1;

    struct xent_args a = xent_args(st, slot);
    k->xent_max(k, &a, st->p.stream);
    if (st->t > 1 &&
        c->ops->all_reduce(c, slot->row_max, rows, DT_F32, COMM_MAX, st->p.stream, e))
        return -1;
    k->xent_sum(k, &a, st->p.stream);
    if (st->t > 1 &&
        c->ops->all_reduce(c, slot->row_sum, 2 * rows, DT_F32, COMM_SUM, st->p.stream, e))
        return -1;
    a.loss_only = true;
    k->xent_grad(k, &a, st->p.stream);
    return st->p.dev->copy_async(st->p.dev, &st->loss[slot - st->slots], slot->loss,
                                 sizeof(double), st->p.stream, e);
}

int head_bwd(struct stage *st, struct slot *slot, float scale, float *grads, struct err *e)
{
    struct xent_args a = xent_args(st, slot);
    a.scale = scale;
    st->p.kern->xent_grad(st->p.kern, &a, st->p.stream);
    if (tensor_col_bwd(st, &st->head, slot->nf, store_at(st->weights, &st->outer, STORE_HEAD),
                       slot->logits, st->d_norm, store_at(grads, &st->outer, STORE_HEAD), NULL,
                       e))
        return -1;
    norm_bwd(st, &st->outer, STORE_NORMF_GAIN, 2 * st->n_layers, slot->resf, slot->meanf,
             slot->rstdf, st->d_norm, NULL, st->grad_in, grads);
    return 0;
}
