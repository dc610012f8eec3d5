/* test_ops.c: embedding, norms, activations and the optimizer's ops against fp64.
 *
 * Outputs start as NaN.  Tolerances are distances (check.h) of fp32 rounding: 2e-6 for an op
 * that is a few roundings per element, 1e-5 where sums of tens to hundreds are behind it.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/err.h"
#include "tests/kernels/check.h"
#include "tests/kernels/ref64.h"

static const double TOL = 2e-6, TOL_SUM = 1e-5, TOL_SLOPE = 1e-6;

/* want = 1 * ref, or 2 * ref for a gradient that was accumulated onto itself */
static void expect_twice(struct vec *v)
{
    for (int64_t i = 0; i < v->n; i++)
        v->d[i] *= 2;
}

static void embed_case(struct kern *k, struct embed_args a)
{
    AUTO_FREE int32_t *ids = random_ids(a.rows, a.v0 + a.vocab + 7, 0);
    AUTO(vec) struct vec *table = vec_random(a.vocab * a.hidden, 1);
    AUTO(vec) struct vec *pos = a.pos ? vec_random(a.seq_len * a.hidden, 1) : NULL;
    AUTO(vec) struct vec *y = vec_poison(a.rows * a.hidden);
    AUTO(vec) struct vec *dy = vec_random(a.rows * a.hidden, 1);
    AUTO(vec) struct vec *dtable = vec_poison(a.vocab * a.hidden);
    AUTO(vec) struct vec *dpos = pos ? vec_poison(a.seq_len * a.hidden) : NULL;
    a.ids = ids;
    a.table = table->f;
    a.pos = pos ? pos->f : NULL;
    a.y = y->f;
    a.dy = dy->f;
    a.dtable = dtable->f;
    a.dpos = dpos ? dpos->f : NULL;
    AUTO_FREE void *scratch_fwd = prepare(k, KERN_EMBED_FWD, &a);
    AUTO_FREE void *scratch = prepare(k, KERN_EMBED_BWD, &a);
    a.scratch = scratch_fwd;
    k->embed_fwd(k, &a, NULL);
    ref_embed_fwd(&a, table->d, pos ? pos->d : NULL, y->d);
    assert_near("embed y", y, TOL);
    a.scratch = scratch;
    k->embed_bwd(k, &a, NULL);
    ref_embed_bwd(&a, dy->d, dtable->d, dpos ? dpos->d : NULL);
    assert_near("embed dtable", dtable, TOL);
    if (dpos)
        assert_near("embed dpos", dpos, TOL);
    a.accumulate = true;
    k->embed_bwd(k, &a, NULL);
    expect_twice(dtable);
    assert_near("embed dtable +=", dtable, TOL);
    if (dpos) {
        expect_twice(dpos);
        assert_near("embed dpos +=", dpos, TOL);
    }
}

static void embed(void **state)
{
    struct kern *k = *state;
    static const float here[1]; /* "with positions" */
    const struct embed_args cases[] = {
        {.rows = 1, .hidden = 1, .vocab = 1, .seq_len = 1},
        {.rows = 37, .hidden = 19, .vocab = 11, .v0 = 5, .seq_len = 12},
        {.rows = 48, .hidden = 32, .vocab = 64, .seq_len = 16, .pos = here},
        {.rows = 10, .hidden = 17, .vocab = 9, .v0 = 3, .seq_len = 8, .row0 = 29, .pos = here},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        embed_case(k, cases[i]);
}

struct norm_case {
    struct norm_args a;
    struct vec *s, *gain, *bias, *dy, *dsum, *y;
};

static double norm_loss(void *ctx)
{
    struct norm_case *c = ctx;
    ref_norm_fwd(&c->a, c->s->d, c->gain->d, c->bias ? c->bias->d : NULL, c->y->d);
    return dot64(c->y->d, c->dy->d, c->y->n) +
           (c->dsum ? dot64(c->s->d, c->dsum->d, c->s->n) : 0);
}

static void norm_bwd_case(struct kern *k, struct norm_case *c)
{
    struct norm_args *a = &c->a;
    int64_t n = a->rows * a->cols;
    AUTO(vec) struct vec *dx = vec_poison(n);
    AUTO(vec) struct vec *dgain = vec_poison(a->cols);
    AUTO(vec) struct vec *dbias = c->bias ? vec_poison(a->cols) : NULL;
    AUTO_FREE void *scratch = prepare(k, KERN_NORM_BWD, a);
    a->scratch = scratch;
    a->x = c->s->f;
    a->dy = c->dy->f;
    a->dsum = c->dsum ? c->dsum->f : NULL;
    a->dx = dx->f;
    a->dgain = dgain->f;
    a->dbias = dbias ? dbias->f : NULL;
    ref_norm_bwd(a, c->s->d, c->gain->d, c->dy->d, c->dsum ? c->dsum->d : NULL, dx->d, dgain->d,
                 dbias ? dbias->d : NULL);
    k->norm_bwd(k, a, NULL);
    assert_near("norm dx", dx, TOL_SUM);
    assert_near("norm dgain", dgain, TOL_SUM);
    if (dbias)
        assert_near("norm dbias", dbias, TOL_SUM);
    assert_gradient("norm dx", norm_loss, c, c->s, dx->d, TOL_SLOPE);
    assert_gradient("norm dgain", norm_loss, c, c->gain, dgain->d, TOL_SLOPE);
    if (dbias)
        assert_gradient("norm dbias", norm_loss, c, c->bias, dbias->d, TOL_SLOPE);
    a->accumulate = true;
    if (c->dsum) { /* dx may lie on dsum */
        memcpy(dx->f, c->dsum->f, (size_t)n * sizeof(float));
        a->dsum = dx->f;
    }
    k->norm_bwd(k, a, NULL);
    assert_near("norm dx on dsum", dx, TOL_SUM);
    expect_twice(dgain);
    assert_near("norm dgain +=", dgain, TOL_SUM);
}

static void norm_one(struct kern *k, enum norm_kind kind, int64_t rows, int64_t cols,
                     bool with_delta)
{
    int64_t n = rows * cols;
    AUTO(vec) struct vec *x = vec_random(n, 2);
    AUTO(vec) struct vec *delta = with_delta ? vec_random(n, 1) : NULL;
    AUTO(vec) struct vec *sum = vec_poison(n);
    AUTO(vec) struct vec *gain = vec_random(cols, 1);
    AUTO(vec) struct vec *bias = kind == NORM_LAYER ? vec_random(cols, 1) : NULL;
    AUTO(vec) struct vec *y = vec_poison(n);
    AUTO(vec) struct vec *dy = vec_random(n, 1);
    AUTO(vec) struct vec *dsum = with_delta ? vec_random(n, 1) : NULL;
    AUTO(vec) struct vec *stats = vec_poison(2 * rows);
    struct norm_case c = {.a = {.kind = kind, .rows = rows, .cols = cols, .eps = 1e-5f},
                          .gain = gain,
                          .bias = bias,
                          .dy = dy,
                          .dsum = dsum,
                          .y = y};
    struct norm_args *a = &c.a;
    AUTO_FREE void *scratch = prepare(k, KERN_NORM_FWD, a);
    a->scratch = scratch;
    a->x = x->f;
    a->delta = delta ? delta->f : NULL;
    a->sum = sum->f;
    a->gain = gain->f;
    a->bias = bias ? bias->f : NULL;
    a->y = y->f;
    a->mean = kind == NORM_LAYER ? stats->f : NULL;
    a->rstd = stats->f + rows;
    k->norm_fwd(k, a, NULL);
    if (delta) {
        for (int64_t i = 0; i < n; i++)
            sum->d[i] = x->d[i] + delta->d[i];
        assert_near("norm sum", sum, TOL);
        AUTO(vec) struct vec *both = vec_copy(x); /* sum may lie on x */
        a->x = a->sum = both->f;
        k->norm_fwd(k, a, NULL);
        assert_memory_equal(both->f, sum->f, (size_t)n * sizeof(float));
    }
    c.s = delta ? sum : x;
    for (int64_t i = 0; i < n; i++) /* both go on from the sum as it is in fp32 */
        c.s->d[i] = (double)c.s->f[i];
    ref_norm_fwd(a, c.s->d, gain->d, bias ? bias->d : NULL, y->d);
    assert_near("norm y", y, TOL);
    if (cols > 1)
        norm_bwd_case(k, &c);
}

static void norm(void **state)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 16}, {5, 33}, {2, 7}, {9, 130}, {4, 768}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int kind = NORM_LAYER; kind <= NORM_RMS; kind++)
            for (int delta = 0; delta < 2; delta++)
                norm_one(*state, kind, shapes[i][0], shapes[i][1], delta);
}

struct act_case {
    struct act_args a;
    struct vec *x, *y, *dy;
};

static double act_loss(void *ctx)
{
    struct act_case *c = ctx;
    ref_act_fwd(&c->a, c->x->d, c->y->d);
    return dot64(c->y->d, c->dy->d, c->y->n);
}

static void act_one(struct kern *k, enum act_kind kind, int64_t rows, int64_t cols,
                    double scale)
{
    int64_t n = rows * cols, nx = kind == ACT_SWIGLU ? 2 * n : n;
    AUTO(vec) struct vec *x = vec_random(nx, scale);
    AUTO(vec) struct vec *y = vec_poison(n);
    AUTO(vec) struct vec *dy = vec_random(n, 1);
    AUTO(vec) struct vec *dx = vec_poison(nx);
    struct act_case c = {.a = {.kind = kind,
                               .rows = rows,
                               .cols = cols,
                               .x = x->f,
                               .y = y->f,
                               .dy = dy->f,
                               .dx = dx->f},
                         .x = x,
                         .y = y,
                         .dy = dy};
    AUTO_FREE void *scratch = prepare(k, KERN_ACT_FWD, &c.a);
    AUTO_FREE void *scratch_bwd = prepare(k, KERN_ACT_BWD, &c.a);
    c.a.scratch = scratch;
    k->act_fwd(k, &c.a, NULL);
    ref_act_fwd(&c.a, x->d, y->d);
    assert_near("act y", y, TOL);
    c.a.scratch = scratch_bwd;
    k->act_bwd(k, &c.a, NULL);
    ref_act_bwd(&c.a, x->d, dy->d, dx->d);
    assert_near("act dx", dx, TOL);
    assert_gradient("act dx", act_loss, &c, x, dx->d, TOL_SLOPE);
    c.a.dx = x->f; /* in place */
    k->act_bwd(k, &c.a, NULL);
    assert_memory_equal(x->f, dx->f, (size_t)nx * sizeof(float));
}

static void activation(void **state)
{
    for (int kind = ACT_GELU; kind <= ACT_SWIGLU; kind++) {
        act_one(*state, kind, 1, 1, 1);
        act_one(*state, kind, 3, 17, 3);
        act_one(*state, kind, 7, 64, 12);
        act_one(*state, kind, 2, 385, 100);
    }
}

static void add(void **state)
{
    struct kern *k = *state;
    for (int64_t n = 1; n < 100; n += 31) {
        AUTO(vec) struct vec *x = vec_random(n, 1);
        AUTO(vec) struct vec *y = vec_random(n, 1);
        struct add_args a = {.n = n, .x = x->f, .y = y->f};
        AUTO_FREE void *scratch = prepare(k, KERN_ADD, &a);
        a.scratch = scratch;
        k->add(k, &a, NULL);
        for (int64_t i = 0; i < n; i++)
            y->d[i] += x->d[i];
        assert_near("add", y, TOL);
    }
}

static double sumsq_of(struct kern *k, const float *x, int64_t n)
{
    double sum = (double)NAN;
    struct sumsq_args a = {.n = n, .x = x, .sum = &sum};
    AUTO_FREE void *scratch = prepare(k, KERN_SUMSQ, &a);
    a.scratch = scratch;
    k->sumsq(k, &a, NULL);
    return sum;
}

static void sumsq(void **state)
{
    struct kern *k = *state;
    static const int64_t sizes[] = {0, 1, 15, 4096, 4097, 3 * 4096 + 5};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int64_t n = sizes[i];
        AUTO(vec) struct vec *x = vec_random(n, 3);
        double want = dot64(x->d, x->d, n), blocks = 0;
        assert_true(fabs(sumsq_of(k, x->f, n) - want) <= 1e-13 * want);
        /* a shard that begins at a block gives the same block sums */
        for (int64_t b = 0; b < n; b += KERN_SUMSQ_BLOCK)
            blocks += sumsq_of(k, x->f + b, n - b < KERN_SUMSQ_BLOCK ? n - b : 4096);
        assert_true(blocks == sumsq_of(k, x->f, n));
        if (n) {
            x->f[n / 2] = NAN;
            assert_true(isnan(sumsq_of(k, x->f, n)));
            x->f[n / 2] = -INFINITY;
            assert_true(isinf(sumsq_of(k, x->f, n)));
        }
    }
}

static void adamw(void **state)
{
    struct kern *k = *state;
    enum { N0 = 37, N1 = 130 };
    float scale = 0.7f;
    int32_t skip = 0;
    struct vec *p[2], *m[2], *v[2], *g[2], *copy;
    struct adamw_segment seg[2];
    for (int i = 0; i < 2; i++) {
        int64_t n = i ? N1 : N0;
        p[i] = vec_random(n, 1);
        m[i] = vec_random(n, 0.1);
        v[i] = vec_random(n, 0.1);
        g[i] = vec_random(n, 1);
        for (int64_t j = 0; j < n; j++)
            v[i]->d[j] = (double)(v[i]->f[j] = fabsf(v[i]->f[j]));
        seg[i] = (struct adamw_segment){
            .p = p[i]->f, .m = m[i]->f, .v = v[i]->f, .g = g[i]->f, .n = n, .decay = i};
    }
    copy = vec_poison(N1);
    seg[1].copy = copy->f;
    struct adamw_args a = {.segments = seg,
                           .n_segments = 2,
                           .lr = 1e-2,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8,
                           .weight_decay = 0.1,
                           .grad_scale = &scale,
                           .skip = &skip};
    AUTO_FREE void *scratch = prepare(k, KERN_ADAMW, &a);
    a.scratch = scratch;
    for (int t = 1; t <= 3; t++) {
        a.bias1 = 1 - pow(a.beta1, t);
        a.bias2 = 1 - pow(a.beta2, t);
        k->adamw(k, &a, NULL);
        for (int i = 0; i < 2; i++)
            ref_adamw(&a, (double)scale, i, p[i]->n, p[i]->d, m[i]->d, v[i]->d, g[i]->d);
    }
    for (int i = 0; i < 2; i++) {
        assert_near("adamw p", p[i], TOL);
        assert_near("adamw m", m[i], TOL);
        assert_near("adamw v", v[i], TOL);
    }
    assert_memory_equal(copy->f, p[1]->f, N1 * sizeof(float));
    AUTO(vec) struct vec *before = vec_copy(p[0]);
    skip = 1;
    scale = NAN;
    k->adamw(k, &a, NULL);
    assert_memory_equal(before->f, p[0]->f, N0 * sizeof(float));
    assert_near("adamw m after a skip", m[0], TOL);
    for (int i = 0; i < 2; i++) {
        vec_free(p[i]);
        vec_free(m[i]);
        vec_free(v[i]);
        vec_free(g[i]);
    }
    vec_free(copy);
}

static void wrong_shapes_are_refused(void **state)
{
    struct kern *k = *state;
    struct err e = {0};
    size_t bytes = 123;
    struct norm_args rows = {.rows = 0, .cols = 4};
    assert_int_equal(k->prepare(k, KERN_NORM_FWD, &rows, &bytes, &e), -1);
    struct norm_args type = {.dtype = DT_BF16, .rows = 2, .cols = 4};
    assert_int_equal(k->prepare(k, KERN_NORM_FWD, &type, &bytes, &e), -1);
    assert_int_equal(e.kind, ERR_SPEC);
    struct rope_args odd = {
        .rows = 2, .seq_len = 2, .heads = 1, .kv_heads = 1, .head_dim = 3, .theta = 1e4};
    assert_int_equal(k->prepare(k, KERN_ROPE, &odd, &bytes, &e), -1);
    struct attn_args gqa = {.batch = 1, .seq_len = 2, .heads = 3, .kv_heads = 2, .head_dim = 4};
    assert_int_equal(k->prepare(k, KERN_ATTN_FWD, &gqa, &bytes, &e), -1);
    assert_int_equal(bytes, 123); /* untouched on failure */
    assert_null(kern_cpu_open(0, &e));
    kern_close(NULL);
}

/* A comparison that could not fail would prove nothing. */
static void a_wrong_output_is_seen(void **state)
{
    (void)state;
    AUTO(vec) struct vec *v = vec_random(1000, 1);
    assert_true(distance(v->f, v->d, v->n) == 0);
    float was = v->f[517];
    v->f[517] = was + 1e-4f;
    assert_true(distance(v->f, v->d, v->n) > TOL_SUM);
    v->f[517] = NAN;
    assert_true(isinf(distance(v->f, v->d, v->n)));
    v->f[517] = was;
    for (int64_t i = 0; i < v->n; i++)
        v->f[i] *= 1 + 2e-5f;
    assert_true(distance(v->f, v->d, v->n) > TOL_SUM);
    AUTO(vec) struct vec *zero = vec_random(4, 0);
    zero->f[2] = 1e-3f;
    assert_true(distance(zero->f, zero->d, 4) > TOL_SUM);
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
        cmocka_unit_test(embed),
        cmocka_unit_test(norm),
        cmocka_unit_test(activation),
        cmocka_unit_test(add),
        cmocka_unit_test(sumsq),
        cmocka_unit_test(adamw),
        cmocka_unit_test(wrong_shapes_are_refused),
        cmocka_unit_test(a_wrong_output_is_seen),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
