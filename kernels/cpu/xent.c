/* xent.c: softmax cross-entropy over a slice of the vocabulary, in three passes. */
#include <assert.h>
#include <math.h>

#include "kernels/cpu/approx.h"
#include "kernels/cpu/cpu_ops.h"

/* Columns of this slice that are words; the rest is padding. */
static int64_t valid_cols(const struct xent_args *a)
{
    int64_t n = a->vocab_valid - a->v0;
    return n < 0 ? 0 : n < a->vocab ? n : a->vocab;
}

/* -inf if n is 0.  A NaN is not seen here, but turns the row's sum and loss into NaN. */
SIMD_CLONES static float row_max_of(const float *x, int64_t n)
{
    float m[LANES];
    for (int l = 0; l < LANES; l++)
        m[l] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            m[l] = x[i + l] > m[l] ? x[i + l] : m[l];
    for (int l = 0; i + l < n; l++)
        m[l] = x[i + l] > m[l] ? x[i + l] : m[l];
    return lanes_max(m);
}

SIMD_CLONES static float row_sum_exp(const float *x, float max, int64_t n)
{
    float s[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            s[l] += approx_exp(x[i + l] - max);
    for (int l = 0; i + l < n; l++)
        s[l] += approx_exp(x[i + l] - max);
    return lanes_sum(s);
}

SIMD_CLONES static void row_softmax(float *x, float max, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = approx_exp(x[i] - max) * factor;
}

void xent_max_cpu(struct kern *k, const struct xent_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    for (int64_t r = 0; r < a->rows; r++)
        a->row_max[r] = row_max_of((const float *)a->logits + r * a->vocab, valid_cols(a));
}

void xent_sum_cpu(struct kern *k, const struct xent_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    int64_t n = valid_cols(a);
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = (const float *)a->logits + r * a->vocab;
        int64_t t = a->targets[r] - a->v0;
        a->row_sum[r] = row_sum_exp(x, a->row_max[r], n);
        a->row_target[r] = a->targets[r] >= 0 && t >= 0 && t < n ? x[t] : 0.0f;
    }
}

static void grad_row(const struct xent_args *a, int64_t r, int64_t n)
{
    float *x = (float *)a->logits + r * a->vocab;
    int64_t t = a->targets[r] - a->v0;
    if (a->targets[r] < 0)
        n = 0;
    /* What z-loss multiplies the softmax with, less the 1 of cross-entropy. */
    const float more =
        2.0f * a->z * (float)(approx_log_f64(a->row_sum[r]) + (double)a->row_max[r]);
    /* (p - 1) scale from the target's own p: what is left near p = 1 keeps its digits */
    float p = 0;
    if (t >= 0 && t < n)
        p = approx_exp(x[t] - a->row_max[r]) / a->row_sum[r];
    row_softmax(x, a->row_max[r], a->scale / a->row_sum[r] * (1.0f + more), n);
    if (t >= 0 && t < n)
        x[t] = (p - 1.0f + p * more) * a->scale;
    for (int64_t i = n; i < a->vocab; i++)
        x[i] = 0;
}

void xent_grad_cpu(struct kern *k, const struct xent_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    double loss = 0;
    int64_t n = valid_cols(a);
    for (int64_t r = 0; r < a->rows; r++) {
        if (a->targets[r] >= 0)
            loss += approx_log_f64(a->row_sum[r]) +
                    ((double)a->row_max[r] - (double)a->row_target[r]);
        if (!a->loss_only)
            grad_row(a, r, n);
    }
    *a->loss = loss;
}
