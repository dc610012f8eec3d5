/* norm.c: layer norm and RMS norm, with the residual add in front.
 *
 * With s the summed row, d = cols, and g = dy * gain:
 *   layer: xh = (s - mean) rstd,  dx = rstd (g - sum(g)/d - xh sum(g xh)/d)
 *   RMS:   xh = s rstd,           dx = rstd (g - xh sum(g xh)/d)
 * dgain = sum over rows of dy xh, dbias = sum over rows of dy: rows ascending, finished in
 * scratch, then written or added.
 */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"

static int check(const char *op, const struct norm_args *a, struct err *e)
{
    int64_t sizes[] = {a->rows, a->cols};
    return cpu_check_sizes(op, sizes, 2, e);
}

int norm_fwd_prepare(struct kern_cpu *c, const void *args, size_t *ret, struct err *e)
{
    (void)c;
    *ret = 0;
    return check("norm_fwd", args, e);
}

/* float g[cols], xh[cols], dgain[cols], dbias[cols] */
int norm_bwd_prepare(struct kern_cpu *c, const void *args, size_t *ret, struct err *e)
{
    (void)c;
    const struct norm_args *a = args;
    *ret = (size_t)(4 * scratch_floats(a->cols)) * sizeof(float);
    return check("norm_bwd", a, e);
}

/* Sum of (x[i] - mean)^2. */
SIMD_INLINE float row_sqdev(const float *x, float mean, int64_t n)
{
    float s[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            s[l] += (x[i + l] - mean) * (x[i + l] - mean);
    for (int l = 0; i + l < n; l++)
        s[l] += (x[i + l] - mean) * (x[i + l] - mean);
    return lanes_sum(s);
}

SIMD_CLONES static void norm_fwd_row(const struct norm_args *a, int64_t r)
{
    int64_t n = a->cols;
    const float *x = (const float *)a->x + r * n, *gain = a->gain, *bias = a->bias;
    float *y = (float *)a->y + r * n;
    if (a->delta) {
        const float *delta = (const float *)a->delta + r * n;
        float *sum = (float *)a->sum + r * n;
        SIMD_LOOP
        for (int64_t i = 0; i < n; i++)
            sum[i] = x[i] + delta[i];
        x = sum;
    }
    float mean = a->kind == NORM_LAYER ? row_sum(x, n) / (float)n : 0.0f;
    float rstd = 1.0f / __builtin_sqrtf(row_sqdev(x, mean, n) / (float)n + a->eps);
    a->rstd[r] = rstd;
    if (a->kind == NORM_LAYER)
        a->mean[r] = mean;
    if (bias) {
        SIMD_LOOP
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * gain[i] + bias[i];
    } else {
        SIMD_LOOP
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * gain[i];
    }
}

void norm_fwd_cpu(struct kern *k, const struct norm_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    for (int64_t r = 0; r < a->rows; r++)
        norm_fwd_row(a, r);
}

/* w: the four pieces of scratch, `step` floats apart. */
SIMD_CLONES static void norm_bwd_row(const struct norm_args *a, int64_t r, float *w,
                                     int64_t step)
{
    int64_t n = a->cols;
    const float *x = (const float *)a->x + r * n, *dy = (const float *)a->dy + r * n;
    const float *gain = a->gain;
    float *dx = (float *)a->dx + r * n;
    float *restrict g = w, *restrict xh = w + step, *restrict dgain = w + 2 * step;
    float *restrict dbias = w + 3 * step;
    float mean = a->kind == NORM_LAYER ? a->mean[r] : 0.0f, rstd = a->rstd[r];
    SIMD_LOOP
    for (int64_t i = 0; i < n; i++) {
        xh[i] = (x[i] - mean) * rstd;
        g[i] = dy[i] * gain[i];
        dgain[i] += dy[i] * xh[i];
        dbias[i] += dy[i];
    }
    float mg = a->kind == NORM_LAYER ? row_sum(g, n) / (float)n : 0.0f;
    float mgx = row_dot(g, xh, n) / (float)n;
    if (a->dsum) {
        const float *dsum = (const float *)a->dsum + r * n;
        SIMD_LOOP
        for (int64_t i = 0; i < n; i++)
            dx[i] = rstd * (g[i] - mg - xh[i] * mgx) + dsum[i];
    } else {
        SIMD_LOOP
        for (int64_t i = 0; i < n; i++)
            dx[i] = rstd * (g[i] - mg - xh[i] * mgx);
    }
}

void norm_bwd_cpu(struct kern *k, const struct norm_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    float *w = a->scratch;
    int64_t step = scratch_floats(a->cols);
    memset(w, 0, (size_t)(4 * step) * sizeof(float));
    for (int64_t r = 0; r < a->rows; r++)
        norm_bwd_row(a, r, w, step);
    cpu_put_f32(a->dgain, w + 2 * step, a->cols, a->accumulate);
    if (a->kind == NORM_LAYER && a->dbias)
        cpu_put_f32(a->dbias, w + 3 * step, a->cols, a->accumulate);
}
