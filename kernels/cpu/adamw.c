/* adamw.c: the optimizer step, element by element in fp32; its constants are made in fp64. */
#include <assert.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"

struct consts {
    float scale, b1, c1, b2, c2, inv_bias1, inv_bias2, lr, eps, decay; /* c = 1 - b */
};

SIMD_CLONES static void adamw_segment(const struct adamw_segment *seg, const struct consts *in)
{
    const struct consts c = *in;
    float *restrict p = seg->p, *restrict m = seg->m, *restrict v = seg->v;
    const float *restrict g = seg->g;
    for (int64_t i = 0; i < seg->n; i++) {
        float gi = g[i] * c.scale;
        float mi = c.b1 * m[i] + c.c1 * gi, vi = c.b2 * v[i] + c.c2 * (gi * gi);
        float step = mi * c.inv_bias1 / (__builtin_sqrtf(vi * c.inv_bias2) + c.eps);
        m[i] = mi;
        v[i] = vi;
        p[i] -= c.lr * (step + c.decay * p[i]);
    }
    float *restrict copy = seg->copy;
    if (copy)
        for (int64_t i = 0; i < seg->n; i++)
            copy[i] = p[i];
}

void adamw_cpu(struct kern *k, const struct adamw_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    if (*a->skip)
        return;
    struct consts c = {
        .scale = *a->grad_scale,
        .b1 = (float)a->beta1,
        .c1 = (float)(1.0 - a->beta1),
        .b2 = (float)a->beta2,
        .c2 = (float)(1.0 - a->beta2),
        .inv_bias1 = (float)(1.0 / a->bias1),
        .inv_bias2 = (float)(1.0 / a->bias2),
        .lr = (float)a->lr,
        .eps = (float)a->eps,
    };
    for (int64_t i = 0; i < a->n_segments; i++) {
        c.decay = a->segments[i].decay ? (float)a->weight_decay : 0.0f;
        adamw_segment(&a->segments[i], &c);
    }
}
