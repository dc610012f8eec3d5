#include "common/base/own.h"
#include "common/shape/params.h"
#include "common/spec/spec.h"
#include "kernels/kernels.h"
#include "worker/optim/optim.h"

/* b^t by squaring: the same products on every host. */
static double power(double b, uint64_t t)
{
    double r = 1;
    for (; t; t >>= 1, b *= b)
        if (t & 1)
            r *= b;
    return r;
}

void optim_step(const struct spec *s, const struct params *p, struct kern *k,
                const struct optim_arenas *a, double lr, uint64_t t,
                const struct optim_values *v, void *scratch, struct dev_stream *stream)
{
    AUTO_FREE struct adamw_segment *seg = xcalloc(p->n_stores, sizeof *seg);
    for (size_t i = 0; i < p->n_stores; i++) {
        int64_t at = p->stores[i].offset;
        seg[i] = (struct adamw_segment){.p = a->weights + at,
                                        .m = a->exp_avg + at,
                                        .v = a->exp_avg_sq + at,
                                        .g = a->grads + at,
                                        .n = p->stores[i].n,
                                        .decay = p->stores[i].decay};
    }
    struct adamw_args args = {.dtype = DT_F32,
                              .segments = seg,
                              .n_segments = (int64_t)p->n_stores,
                              .lr = lr,
                              .beta1 = s->train.optimizer.beta1,
                              .beta2 = s->train.optimizer.beta2,
                              .eps = s->train.optimizer.eps,
                              .weight_decay = s->train.optimizer.weight_decay,
                              .bias1 = 1 - power(s->train.optimizer.beta1, t),
                              .bias2 = 1 - power(s->train.optimizer.beta2, t),
                              .grad_scale = &v->grad_scale,
                              .skip = &v->skip,
                              .scratch = scratch};
    k->adamw(k, &args, stream);
}
