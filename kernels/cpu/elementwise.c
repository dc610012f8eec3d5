/* elementwise.c: the residual's gradient add, and the sum of squares behind the norm. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"

SIMD_CLONES void cpu_add_f32(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

void cpu_put_f32(float *restrict out, const float *restrict sum, int64_t n, bool accumulate)
{
    if (accumulate)
        cpu_add_f32(out, sum, n);
    else
        memcpy(out, sum, (size_t)n * sizeof(float));
}

void add_cpu(struct kern *k, const struct add_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    cpu_add_f32(a->y, a->x, a->n);
}

SIMD_CLONES static double sumsq_block(const float *x, int64_t n)
{
    double s[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            s[l] += (double)x[i + l] * (double)x[i + l];
    for (int l = 0; i + l < n; l++)
        s[l] += (double)x[i + l] * (double)x[i + l];
    for (int l = 0; l < 8; l++)
        s[l] += s[l + 8];
    for (int l = 0; l < 4; l++)
        s[l] += s[l + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

void sumsq_cpu(struct kern *k, const struct sumsq_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    double sum = 0;
    for (int64_t i = 0; i < a->n; i += KERN_SUMSQ_BLOCK) {
        int64_t left = a->n - i;
        sum += sumsq_block(a->x + i, left < KERN_SUMSQ_BLOCK ? left : KERN_SUMSQ_BLOCK);
    }
    *a->sum = sum;
}
