/* test_attention.c: linear layers, rotary positions and attention against fp64.  Tolerances as
 * in test_ops.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/err.h"
#include "kernels/cpu/tile.h"
#include "tests/kernels/check.h"
#include "tests/kernels/ref64.h"

static const double TOL = 2e-6, TOL_SUM = 1e-5, TOL_SLOPE = 1e-6;

struct linear_case {
    struct linear_args a;
    struct vec *x, *w, *bias, *y, *dy;
};

static double linear_loss(void *ctx)
{
    struct linear_case *c = ctx;
    ref_linear_fwd(&c->a, c->x->d, c->w->d, c->bias->d, c->y->d);
    return dot64(c->y->d, c->dy->d, c->y->n);
}

static void linear_bwd_case(struct kern *k, struct linear_case *c)
{
    struct linear_args *a = &c->a;
    AUTO(vec) struct vec *dx = vec_poison(a->rows * a->in);
    AUTO(vec) struct vec *dw = vec_poison(a->in * a->out);
    AUTO(vec) struct vec *dbias = vec_poison(a->out);
    AUTO_FREE void *scratch_data = prepare(k, KERN_LINEAR_BWD_DATA, a);
    AUTO_FREE void *scratch = prepare(k, KERN_LINEAR_BWD_WEIGHT, a);
    a->dx = dx->f;
    a->dw = dw->f;
    a->dbias = dbias->f;
    ref_linear_bwd(a, c->x->d, c->w->d, c->dy->d, dx->d, dw->d, dbias->d);
    a->scratch = scratch_data;
    k->linear_bwd_data(k, a, NULL);
    a->scratch = scratch;
    k->linear_bwd_weight(k, a, NULL);
    assert_near("linear dx", dx, TOL_SUM);
    assert_near("linear dw", dw, TOL_SUM);
    assert_near("linear dbias", dbias, TOL_SUM);
    assert_gradient("linear dx", linear_loss, c, c->x, dx->d, TOL_SLOPE);
    assert_gradient("linear dw", linear_loss, c, c->w, dw->d, TOL_SLOPE);
    assert_gradient("linear dbias", linear_loss, c, c->bias, dbias->d, TOL_SLOPE);
    /* += has the bits of = into scratch, then one addition */
    AUTO(vec) struct vec *first = vec_copy(dw);
    AUTO(vec) struct vec *first_bias = vec_copy(dbias);
    a->accumulate = true;
    AUTO_FREE void *scratch_add = prepare(k, KERN_LINEAR_BWD_WEIGHT, a);
    a->scratch = scratch_add;
    for (int64_t i = 0; i < dw->n; i++)
        dw->f[i] = 0.25f * (float)(i % 7);
    for (int64_t i = 0; i < dbias->n; i++)
        dbias->f[i] = 0.25f;
    k->linear_bwd_weight(k, a, NULL);
    for (int64_t i = 0; i < dw->n; i++)
        assert_true(dw->f[i] == 0.25f * (float)(i % 7) + first->f[i]);
    for (int64_t i = 0; i < dbias->n; i++)
        assert_true(dbias->f[i] == 0.25f + first_bias->f[i]);
}

static void linear(void **state)
{
    struct kern *k = *state;
    static const int64_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {33, 64, 17}, {64, 48, 96}};
    for (size_t i = 0; i < 2 * sizeof(shapes) / sizeof(shapes[0]); i++) {
        const int64_t *s = shapes[i / 2];
        AUTO(vec) struct vec *x = vec_random(s[0] * s[1], 1);
        AUTO(vec) struct vec *w = vec_random(s[1] * s[2], 1);
        AUTO(vec) struct vec *bias = vec_random(s[2], 1);
        AUTO(vec) struct vec *y = vec_poison(s[0] * s[2]);
        AUTO(vec) struct vec *dy = vec_random(s[0] * s[2], 1);
        struct linear_case c = {.a = {.order = i % 2 ? WEIGHT_IN_OUT : WEIGHT_OUT_IN,
                                      .rows = s[0],
                                      .in = s[1],
                                      .out = s[2],
                                      .x = x->f,
                                      .w = w->f,
                                      .bias = bias->f,
                                      .y = y->f,
                                      .dy = dy->f},
                                .x = x,
                                .w = w,
                                .bias = bias,
                                .y = y,
                                .dy = dy};
        AUTO_FREE void *scratch = prepare(k, KERN_LINEAR_FWD, &c.a);
        c.a.scratch = scratch;
        k->linear_fwd(k, &c.a, NULL);
        ref_linear_fwd(&c.a, x->d, w->d, bias->d, y->d);
        assert_near("linear y", y, TOL_SUM);
        c.a.bias = NULL;
        k->linear_fwd(k, &c.a, NULL);
        ref_linear_fwd(&c.a, x->d, w->d, NULL, y->d);
        assert_near("linear y without bias", y, TOL_SUM);
        linear_bwd_case(k, &c);
    }
}

/* More than one panel of a weight's gradient: 3 * 2^21 floats of dw. */
static void linear_in_panels(void **state)
{
    struct kern *k = *state;
    enum { ROWS = 2, IN = 2048, OUT = 3072 };
    AUTO(vec) struct vec *x = vec_random(ROWS * IN, 1);
    AUTO(vec) struct vec *dy = vec_random(ROWS * OUT, 1);
    AUTO(vec) struct vec *dw = vec_poison(IN * OUT);
    struct linear_args a = {.rows = ROWS,
                            .in = IN,
                            .out = OUT,
                            .x = x->f,
                            .dy = dy->f,
                            .dw = dw->f,
                            .accumulate = true};
    AUTO_FREE void *scratch = prepare(k, KERN_LINEAR_BWD_WEIGHT, &a);
    a.scratch = scratch;
    memset(dw->f, 0, IN * OUT * sizeof(float));
    k->linear_bwd_weight(k, &a, NULL);
    for (int64_t o = 0; o < OUT; o++)
        for (int64_t i = 0; i < IN; i++)
            dw->d[o * IN + i] = dy->d[o] * x->d[i] + dy->d[OUT + o] * x->d[IN + i];
    assert_near("linear dw in panels", dw, TOL);
}

static void tile(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{16, 16, 1}, {16, 48, 5}, {32, 64, 33}, {64, 32, 16}};
    for (size_t t = 0; t < 4 * sizeof(shapes) / sizeof(shapes[0]); t++) {
        int64_t m = shapes[t / 4][0], n = shapes[t / 4][1], k = shapes[t / 4][2];
        bool transposed = t & 1, add = t & 2;
        int64_t row = transposed ? 1 : k, col = transposed ? m : 1;
        AUTO(vec) struct vec *a = vec_random(m * k, 1);
        AUTO(vec) struct vec *b = vec_random(k * n, 1);
        AUTO(vec) struct vec *c = add ? vec_random(m * n, 1) : vec_poison(m * n);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double s = add ? c->d[i * n + j] : 0;
                for (int64_t p = 0; p < k; p++)
                    s += a->d[i * row + p * col] * b->d[p * n + j];
                c->d[i * n + j] = s;
            }
        tile_gemm(m, n, k, a->f, row, col, b->f, n, c->f, n, add);
        assert_near("tile", c, TOL);
    }
}

static void rope(void **state)
{
    struct kern *k = *state;
    const struct rope_args cases[] = {
        {.rows = 5, .seq_len = 5, .heads = 1, .kv_heads = 1, .head_dim = 2, .theta = 1e4},
        {.rows = 26, .seq_len = 13, .heads = 4, .kv_heads = 2, .head_dim = 16, .theta = 1e4},
        {.rows = 70, .seq_len = 35, .heads = 3, .kv_heads = 1, .head_dim = 34, .theta = 5e5},
        {.rows = 9000, .seq_len = 9000, .heads = 1, .kv_heads = 1, .head_dim = 8, .theta = 1e4},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rope_args a = cases[i];
        int64_t width = (a.heads + 2 * a.kv_heads) * a.head_dim;
        AUTO(vec) struct vec *x = vec_random(a.rows * width, 1);
        AUTO(vec) struct vec *was = vec_copy(x);
        AUTO_FREE void *scratch = prepare(k, KERN_ROPE, &a);
        a.scratch = scratch;
        a.qkv = x->f;
        k->rope(k, &a, NULL);
        ref_rope(&a, x->d);
        assert_near("rope", x, TOL);
        a.inverse = true;
        k->rope(k, &a, NULL);
        memcpy(x->d, was->d, (size_t)x->n * sizeof(double));
        assert_near("rope and back", x, TOL);
    }
}

static void rope_bits_do_not_depend_on_the_table(void **state)
{
    (void)state;
    float out[2][4 * 3 * 8];
    for (int64_t longer = 0; longer < 2; longer++) {
        struct kern *k = open_kern();
        struct rope_args a = {.rows = 4,
                              .seq_len = longer ? 1000 : 4,
                              .heads = 1,
                              .kv_heads = 1,
                              .head_dim = 8,
                              .theta = 1e4,
                              .qkv = out[longer]};
        AUTO_FREE void *scratch = prepare(k, KERN_ROPE, &a);
        for (int i = 0; i < 4 * 3 * 8; i++)
            out[longer][i] = (float)(i % 11) * 0.3f;
        k->rope(k, &a, NULL);
        kern_close(k);
    }
    assert_memory_equal(out[0], out[1], sizeof(out[0]));
}

struct attn_case {
    struct attn_args a;
    struct vec *qkv, *out, *lse, *dout;
};

static double attn_loss(void *ctx)
{
    struct attn_case *c = ctx;
    ref_attn_fwd(&c->a, c->qkv->d, c->out->d, c->lse->d);
    return dot64(c->out->d, c->dout->d, c->out->n);
}

/* scale: of qkv; with large scores the softmax is sharp and its rounding grows with them */
static void attn_one(struct kern *k, struct attn_args a, double scale, double tol)
{
    int64_t rows = a.batch * a.seq_len, width = (a.heads + 2 * a.kv_heads) * a.head_dim;
    AUTO(vec) struct vec *qkv = vec_random(rows * width, scale);
    AUTO(vec) struct vec *out = vec_poison(rows * a.heads * a.head_dim);
    AUTO(vec) struct vec *lse = vec_poison(rows * a.heads);
    AUTO(vec) struct vec *dout = vec_random(rows * a.heads * a.head_dim, 1);
    AUTO(vec) struct vec *dqkv = vec_poison(rows * width);
    struct attn_case c = {.a = a, .qkv = qkv, .out = out, .lse = lse, .dout = dout};
    AUTO_FREE void *scratch = prepare(k, KERN_ATTN_FWD, &a);
    AUTO_FREE void *scratch_bwd = prepare(k, KERN_ATTN_BWD, &a);
    a.qkv = qkv->f;
    a.out = out->f;
    a.lse = lse->f;
    a.dout = dout->f;
    a.dqkv = dqkv->f;
    a.scratch = scratch;
    k->attn_fwd(k, &a, NULL);
    ref_attn_fwd(&a, qkv->d, out->d, lse->d);
    assert_near("attention out", out, tol);
    assert_near("attention lse", lse, tol);
    a.scratch = scratch_bwd;
    k->attn_bwd(k, &a, NULL);
    ref_attn_bwd(&a, qkv->d, dout->d, dqkv->d);
    assert_near("attention dqkv", dqkv, tol);
    if (rows * width <= 4000)
        assert_gradient("attention dqkv", attn_loss, &c, qkv, dqkv->d, TOL_SLOPE);
}

static void attention(void **state)
{
    const struct attn_args cases[] = {
        {.batch = 1, .seq_len = 1, .heads = 1, .kv_heads = 1, .head_dim = 1},
        {.batch = 2, .seq_len = 7, .heads = 4, .kv_heads = 2, .head_dim = 8},
        {.batch = 1, .seq_len = 16, .heads = 2, .kv_heads = 2, .head_dim = 16},
        {.batch = 1, .seq_len = 33, .heads = 3, .kv_heads = 1, .head_dim = 20},
        {.batch = 3, .seq_len = 64, .heads = 2, .kv_heads = 1, .head_dim = 32},
        {.batch = 1, .seq_len = 65, .heads = 6, .kv_heads = 2, .head_dim = 17},
        {.batch = 1, .seq_len = 127, .heads = 2, .kv_heads = 2, .head_dim = 64},
        {.batch = 1, .seq_len = 200, .heads = 2, .kv_heads = 1, .head_dim = 128},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        attn_one(*state, cases[i], 1, TOL_SUM);
        attn_one(*state, cases[i], 6, 5 * TOL_SUM);
    }
}

/* What comes later must not show: garbage behind position t leaves 0..t as it is. */
static void attention_is_causal(void **state)
{
    struct kern *k = *state;
    enum { T = 70, D = 8, CUT = 37 };
    AUTO(vec) struct vec *qkv = vec_random(T * 3 * D, 1);
    AUTO(vec) struct vec *out = vec_poison(2 * T * D);
    AUTO(vec) struct vec *lse = vec_poison(2 * T);
    struct attn_args a = {
        .batch = 1, .seq_len = T, .heads = 1, .kv_heads = 1, .head_dim = D, .qkv = qkv->f};
    AUTO_FREE void *scratch = prepare(k, KERN_ATTN_FWD, &a);
    a.scratch = scratch;
    for (int i = 0; i < 2; i++) {
        a.out = out->f + i * T * D;
        a.lse = lse->f + i * T;
        k->attn_fwd(k, &a, NULL);
        for (int64_t j = CUT * 3 * D; j < T * 3 * D; j++)
            qkv->f[j] = (float)(j % 13) * 50;
    }
    assert_memory_equal(out->f, out->f + T * D, CUT * D * sizeof(float));
    assert_memory_equal(lse->f, lse->f + T, CUT * sizeof(float));
    assert_memory_not_equal(out->f, out->f + T * D, T * D * sizeof(float));
}

static int setup(void **state)
{
    *state = open_kern();
    return 0;
}

static int teardown(void **state)
{
    kern_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear),
        cmocka_unit_test(linear_in_panels),
        cmocka_unit_test(tile),
        cmocka_unit_test(rope),
        cmocka_unit_test(rope_bits_do_not_depend_on_the_table),
        cmocka_unit_test(attention),
        cmocka_unit_test(attention_is_causal),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
