/* rope.c: rotary position embedding, from tables that prepare makes in fp64.
 *
 * A table's entry depends on (position, pair, head_dim, theta) alone, never on how long the
 * table is, so that every layout rotates by the same bits.
 */
#include <assert.h>

#include "common/base/err.h"
#include "common/base/own.h"
#include "kernels/cpu/approx.h"
#include "kernels/cpu/cpu_ops.h"

enum { MAX_POSITIONS = 1 << 20 }; /* approx_sincos_f64's range */

struct rope_table {
    struct rope_table *next;
    int64_t seq_len, head_dim;
    double theta;
    float cs[]; /* [seq_len, 2, head_dim / 2]: cosines, sines */
};

static const struct rope_table *find(const struct kern_cpu *c, const struct rope_args *a)
{
    for (const struct rope_table *t = c->ropes; t; t = t->next)
        if (t->seq_len >= a->seq_len && t->head_dim == a->head_dim && t->theta == a->theta)
            return t;
    return NULL;
}

int rope_prepare(struct kern_cpu *c, const void *args, size_t *ret, struct err *e)
{
    const struct rope_args *a = args;
    int64_t sizes[] = {a->rows, a->seq_len, a->heads, a->kv_heads, a->head_dim};
    if (cpu_check_sizes("rope", sizes, 5, e) != 0)
        return -1;
    if (a->head_dim % 2 || !(a->theta >= 1.0) || a->theta > 1e12 || a->seq_len > MAX_POSITIONS)
        return err_set(
            e, ERR_SPEC,
            "rope: head_dim %lld must be even, theta %g 1 to 1e12, seq_len %lld <= %d",
            (long long)a->head_dim, a->theta, (long long)a->seq_len, MAX_POSITIONS);
    *ret = 0;
    if (find(c, a))
        return 0;
    int64_t half = a->head_dim / 2;
    size_t floats = (size_t)a->seq_len * (size_t)a->head_dim;
    struct rope_table *t = malloc(sizeof(*t) + floats * sizeof(float));
    if (!t)
        return err_set(e, ERR_MEMORY, "rope: no memory for a table of %zu bytes",
                       floats * sizeof(float));
    t->seq_len = a->seq_len;
    t->head_dim = a->head_dim;
    t->theta = a->theta;
    double log_theta = approx_log_f64(a->theta);
    for (int64_t i = 0; i < half; i++) {
        double freq = approx_exp_f64(-2.0 * (double)i / (double)a->head_dim * log_theta);
        for (int64_t p = 0; p < a->seq_len; p++) {
            double sin, cos;
            approx_sincos_f64((double)p * freq, &sin, &cos);
            t->cs[p * a->head_dim + i] = (float)cos;
            t->cs[p * a->head_dim + half + i] = (float)sin;
        }
    }
    t->next = c->ropes;
    c->ropes = t;
    return 0;
}

void rope_tables_free(struct rope_table *t)
{
    while (t) {
        struct rope_table *next = t->next;
        free(t);
        t = next;
    }
}

/* x[heads, 2 half] rotated in place; cs as in the table, the sine times sign */
SIMD_CLONES static void rope_row(float *restrict x, const float *restrict cs, int64_t heads,
                                 int64_t half, float sign)
{
    for (int64_t h = 0; h < heads; h++, x += 2 * half) {
        SIMD_LOOP
        for (int64_t i = 0; i < half; i++) {
            float c = cs[i], s = cs[half + i] * sign, u = x[i], v = x[half + i];
            x[i] = u * c - v * s;
            x[half + i] = v * c + u * s;
        }
    }
}

void rope_cpu(struct kern *k, const struct rope_args *a, struct dev_stream *s)
{
    (void)s;
    assert(a->dtype == DT_F32);
    const struct rope_table *t = find(k->ctx, a);
    assert(t); /* prepare was called with this shape */
    int64_t width = (a->heads + 2 * a->kv_heads) * a->head_dim;
    for (int64_t r = 0; r < a->rows; r++)
        rope_row((float *)a->qkv + r * width, t->cs + r % a->seq_len * a->head_dim,
                 a->heads + a->kv_heads, a->head_dim / 2, a->inverse ? -1.0f : 1.0f);
}
