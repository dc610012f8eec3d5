/* test_xent.c: the fused cross-entropy, whole and in slices of the vocabulary. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/check.h"
#include "tests/kernels/ref64.h"

static const double TOL_SUM = 1e-5, TOL_SLOPE = 1e-6;

/* The ops on one slice; pass: 0 max, 1 sum, 2 grad. */
static void run_pass(struct kern *k, struct xent_args *a, int pass)
{
    static const enum kern_op ops[] = {KERN_XENT_MAX, KERN_XENT_SUM, KERN_XENT_GRAD};
    AUTO_FREE void *scratch = prepare(k, ops[pass], a);
    a->scratch = scratch;
    if (pass == 0)
        k->xent_max(k, a, NULL);
    else if (pass == 1)
        k->xent_sum(k, a, NULL);
    else
        k->xent_grad(k, a, NULL);
}

enum { MAX_SLICES = 4 };

/* logits [rows, a.vocab] become their gradient; returns the loss.  `slices` divides a.vocab. */
static double run_sliced(struct kern *k, struct xent_args a, float *logits, int slices)
{
    int64_t width = a.vocab / slices, full = a.vocab;
    struct vec *part[MAX_SLICES], *stat[MAX_SLICES];
    struct xent_args s[MAX_SLICES];
    double loss = (double)NAN;
    for (int i = 0; i < slices; i++) {
        part[i] = vec_poison(a.rows * width);
        stat[i] = vec_poison(3 * a.rows);
        for (int64_t r = 0; r < a.rows; r++)
            memcpy(part[i]->f + r * width, logits + r * full + i * width,
                   (size_t)width * sizeof(float));
        s[i] = a;
        s[i].vocab = width;
        s[i].v0 = i * width;
        s[i].logits = part[i]->f;
        s[i].row_max = stat[i]->f;
        s[i].row_sum = stat[i]->f + a.rows;
        s[i].row_target = stat[i]->f + 2 * a.rows;
        s[i].loss = &loss;
    }
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < slices; i++)
            run_pass(k, &s[i], pass);
        for (int64_t r = 0; r < a.rows; r++) { /* what the tensor group's all-reduce does */
            float *x = pass == 0 ? s[0].row_max : s[0].row_sum, *t = s[0].row_target;
            for (int i = 1; i < slices && pass < 2; i++) {
                float y = pass == 0 ? s[i].row_max[r] : s[i].row_sum[r];
                x[r] = pass == 0 ? fmaxf(x[r], y) : x[r] + y;
                t[r] += pass == 1 ? s[i].row_target[r] : 0;
            }
            for (int i = 1; i < slices; i++) {
                s[i].row_max[r] = s[0].row_max[r];
                s[i].row_sum[r] = s[0].row_sum[r];
                s[i].row_target[r] = t[r];
            }
        }
    }
    for (int i = 0; i < slices; i++) {
        for (int64_t r = 0; r < a.rows; r++)
            memcpy(logits + r * full + i * width, part[i]->f + r * width,
                   (size_t)width * sizeof(float));
        vec_free(part[i]);
        vec_free(stat[i]);
    }
    return loss;
}

struct xent_case {
    struct xent_args a;
    struct vec *logits;
};

static double scaled_loss(void *ctx)
{
    struct xent_case *c = ctx;
    return ref_xent(&c->a, c->logits->d, NULL) * (double)c->a.scale;
}

static void xent_one(struct kern *k, int64_t rows, int64_t vocab, int64_t valid, double scale,
                     float z)
{
    AUTO_FREE int32_t *targets = random_ids(rows, valid, 5);
    AUTO(vec) struct vec *logits = vec_random(rows * vocab, scale);
    AUTO(vec) struct vec *grad = vec_copy(logits);
    struct xent_case c = {.a = {.rows = rows,
                                .vocab = vocab,
                                .vocab_valid = valid,
                                .targets = targets,
                                .scale = 0.03f,
                                .z = z},
                          .logits = logits};
    for (int64_t r = 0; r < rows; r++) /* padding never counts, whatever it holds */
        for (int64_t i = valid; i < vocab; i++)
            grad->f[r * vocab + i] = 1e30f;
    struct xent_args plain = c.a;
    plain.z = 0;
    double want = ref_xent(&plain, logits->d, NULL);
    (void)ref_xent(&c.a, logits->d, grad->d);
    double whole = run_sliced(k, c.a, grad->f, 1);
    assert_true(fabs(whole - want) <= TOL_SUM * fabs(want));
    assert_near("xent dlogits", grad, TOL_SUM);
    assert_gradient("xent dlogits", scaled_loss, &c, logits, grad->d, TOL_SLOPE);
    for (int slices = 2; slices <= MAX_SLICES; slices *= 2) {
        AUTO(vec) struct vec *sliced = vec_copy(logits);
        memcpy(sliced->d, grad->d, (size_t)grad->n * sizeof(double));
        double loss = run_sliced(k, c.a, sliced->f, slices);
        assert_true(fabs(loss - whole) <= 2e-6 * fabs(whole));
        assert_near("xent dlogits in slices", sliced, TOL_SUM);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < vocab; i++)
                if (i >= valid || targets[r] < 0)
                    assert_true(sliced->f[r * vocab + i] == 0);
    }
}

static void xent(void **state)
{
    static const float z[] = {0, 1e-4f, 0.1f};
    for (size_t i = 0; i < sizeof z / sizeof *z; i++) {
        xent_one(*state, 7, 8, 8, 1, z[i]);
        xent_one(*state, 6, 12, 9, 3, z[i]);
        xent_one(*state, 11, 264, 259, 5, z[i]);
        xent_one(*state, 3, 512, 257, 5, z[i]); /* the last slices hold padding alone */
        xent_one(*state, 4, 1004, 1003, 30, z[i]);
    }
}

static void validation_leaves_logits(void **state)
{
    struct kern *k = *state;
    enum { ROWS = 3, V = 20 };
    AUTO_FREE int32_t *targets = random_ids(ROWS, V, 0);
    AUTO(vec) struct vec *logits = vec_random(ROWS * V, 2);
    AUTO(vec) struct vec *was = vec_copy(logits);
    struct xent_args a = {.rows = ROWS,
                          .vocab = V,
                          .vocab_valid = V,
                          .targets = targets,
                          .scale = 1,
                          .loss_only = true};
    double want = ref_xent(&a, logits->d, NULL);
    assert_true(fabs(run_sliced(k, a, logits->f, 1) - want) <= TOL_SUM * want);
    assert_memory_equal(logits->f, was->f, ROWS * V * sizeof(float));
}

static void a_nan_reaches_the_loss(void **state)
{
    struct kern *k = *state;
    int32_t targets[2] = {1, 2};
    float logits[2 * 40] = {0};
    logits[40 + 23] = NAN;
    struct xent_args a = {.rows = 2,
                          .vocab = 40,
                          .vocab_valid = 40,
                          .targets = targets,
                          .scale = 1,
                          .loss_only = true};
    assert_true(isnan(run_sliced(k, a, logits, 1)));
    assert_true(isnan(run_sliced(k, a, logits, 2)));
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
        cmocka_unit_test(xent),
        cmocka_unit_test(validation_leaves_logits),
        cmocka_unit_test(a_nan_reaches_the_loss),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
