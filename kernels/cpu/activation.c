/* activation.c: GELU in its tanh form, and SwiGLU.
 *
 * GELU: u = k (x + c x^3), t = tanh(u), y = x (1 + t) / 2,
 *       y' = (1 + t) / 2 + x (1 - t^2) k (1 + 3 c x^2) / 2, k = sqrt(2/pi), c = 0.044715
 * SwiGLU: z = 1 / (1 + exp(-g)), y = g z u,  dy/du = g z,  dy/dg = u z (1 + g (1 - z))
 */
#include <assert.h>

#include "kernels/cpu/approx.h"
#include "kernels/cpu/cpu_ops.h"

static const float gelu_k = 0.797884560802865356f, gelu_c = 0.044715f;

SIMD_CLONES static void gelu_fwd(const float *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float v = x[i], t = approx_tanh(gelu_k * (v + gelu_c * v * v * v));
        y[i] = 0.5f * v * (1.0f + t);
    }
}

SIMD_CLONES static void gelu_bwd(const float *x, const float *dy, float *dx, int64_t n)
{
    SIMD_LOOP
    for (int64_t i = 0; i < n; i++) {
        float v = x[i], t = approx_tanh(gelu_k * (v + gelu_c * v * v * v));
        float du = gelu_k * (1.0f + 3.0f * gelu_c * v * v);
        dx[i] = dy[i] * (0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * du);
    }
}

SIMD_CLONES static void swiglu_fwd(const float *restrict gate, const float *restrict up,
                                   float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = gate[i] / (1.0f + approx_exp(-gate[i])) * up[i];
}

SIMD_CLONES static void swiglu_bwd(const float *gate, const float *up, const float *dy,
                                   float *dgate, float *dup, int64_t n)
{
    SIMD_LOOP
    for (int64_t i = 0; i < n; i++) {
        float g = gate[i], u = up[i], d = dy[i], z = 1.0f / (1.0f + approx_exp(-g));
        dgate[i] = d * u * (z * (1.0f + g * (1.0f - z)));
        dup[i] = d * (g * z);
    }
}

void act_fwd_cpu(struct kern *k, const struct act_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    const float *x = a->x;
    float *y = a->y;
    int64_t n = a->cols;
    if (a->kind == ACT_GELU)
        gelu_fwd(x, y, a->rows * n);
    else
        for (int64_t r = 0; r < a->rows; r++)
            swiglu_fwd(x + 2 * r * n, x + 2 * r * n + n, y + r * n, n);
}

void act_bwd_cpu(struct kern *k, const struct act_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    const float *x = a->x, *dy = a->dy;
    float *dx = a->dx;
    int64_t n = a->cols;
    if (a->kind == ACT_GELU)
        gelu_bwd(x, dy, dx, a->rows * n);
    else
        for (int64_t r = 0; r < a->rows; r++)
            swiglu_bwd(x + 2 * r * n, x + 2 * r * n + n, dy + r * n, dx + 2 * r * n,
                       dx + 2 * r * n + n, n);
}
