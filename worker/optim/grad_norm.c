#include <string.h>

#include "common/shape/params.h"
#include "common/spec/spec.h"
#include "kernels/kernels.h"
#include "worker/comm.h"
#include "worker/optim/optim.h"

/* Does this rank's copy count?  Of a replicated store the first holder's does; of a tied table
 * the embedding's gradient, which after the exchange equals the head's. */
static bool counts(const struct optim_norm *o, const struct store *s)
{
    if (s->kind == STORE_HEAD && o->spec->model.tied)
        return false;
    switch (s->share) {
    case SHARE_NONE:
        return true;
    case SHARE_TENSOR:
        return o->tp == 0;
    case SHARE_KV:
        return o->tp % (o->spec->parallel.tensor / o->spec->model.kv_heads) == 0;
    }
    return true;
}

/* sums[n] := sums of member 0 + member 1 + ...; the rows behind it are used. */
static int gather_add(struct comm *c, double *sums, size_t n, struct dev_stream *stream,
                      struct err *e)
{
    if (!c)
        return 0;
    double *all = sums + n;
    memcpy(all + (size_t)c->rank * n, sums, n * sizeof *sums);
    if (c->ops->all_gather(c, all + (size_t)c->rank * n, all, n, DT_F64, stream, e) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        double v = all[i];
        for (uint32_t r = 1; r < c->size; r++)
            v += all[(size_t)r * n + i];
        sums[i] = v;
    }
    return 0;
}

int optim_grad_norm(const struct optim_norm *o, struct kern *k, const float *grads,
                    struct dev_stream *stream, double *ret, struct err *e)
{
    const struct params *p = o->params;
    size_t n = p->n_stores_all;
    double *sums = o->sums;
    memset(sums, 0, n * sizeof *sums);
    for (size_t i = 0; i < p->n_stores; i++) {
        const struct store *s = &p->stores[i];
        struct sumsq_args a = {
            .n = s->n, .x = grads + s->offset, .sum = &sums[s->index], .scratch = o->scratch};
        if (counts(o, s))
            k->sumsq(k, &a, stream);
    }
    if (!o->local_only && gather_add(o->tensor, sums, n, stream, e) < 0)
        return -1;
    if (gather_add(o->pipeline, sums, n, stream, e) < 0)
        return -1;
    double total = 0;
    for (size_t i = 0; i < n; i++)
        total += sums[i];
    *ret = __builtin_sqrt(total);
    return 0;
}

float optim_clip_factor(double clip, double norm)
{
    double f = clip > 0 ? clip / (norm + 1e-6) : 1;
    return f < 1 ? (float)f : 1.0f;
}
