/* optim.h: the learning rate's curve, the norm over stores, the clip factor, one AdamW step. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/base/own.h"
#include "common/shape/params.h"
#include "common/spec/spec.h"
#include "kernels/kernels.h"
#include "worker/optim/optim.h"

static struct spec spec_of(uint32_t steps, uint32_t warmup)
{
    struct spec s = {0};
    s.train.steps = steps;
    s.train.lr.peak = 1e-3;
    s.train.lr.min = 1e-4;
    s.train.lr.warmup = warmup;
    s.train.lr.schedule = LR_COSINE;
    s.train.optimizer.beta1 = 0.9;
    s.train.optimizer.beta2 = 0.95;
    s.train.optimizer.eps = 1e-8;
    s.train.optimizer.weight_decay = 0.1;
    return s;
}

static void cosine(void **state)
{
    (void)state;
    struct spec s = spec_of(101, 10);
    assert_float_equal(optim_lr(&s, 0), 1e-4, 1e-18);
    assert_float_equal(optim_lr(&s, 9), 1e-3, 1e-18);
    assert_float_equal(optim_lr(&s, 10), 1e-3, 1e-18);
    assert_float_equal(optim_lr(&s, 55), 5.5e-4, 1e-15);
    assert_float_equal(optim_lr(&s, 100), 1e-4, 1e-15);
    for (uint64_t i = 10; i < 101; i++) {
        double want = 1e-4 + 4.5e-4 * (1 + cos(M_PI * (double)(i - 10) / 90));
        assert_true(fabs(optim_lr(&s, i) - want) < 1e-17);
    }
    assert_float_equal(optim_lr(&s, 500), 1e-4, 0);
    s.train.lr.schedule = LR_CONSTANT;
    assert_float_equal(optim_lr(&s, 50), 1e-3, 0);
}

static void one_step_after_warmup(void **state)
{
    (void)state;
    struct spec s = spec_of(11, 10);
    assert_float_equal(optim_lr(&s, 10), 1e-3, 0);
    s = spec_of(1, 0);
    assert_float_equal(optim_lr(&s, 0), 1e-3, 0);
}

/* cmocka compares as float. */
#define near(a, b) assert_true(fabs((a) - (b)) <= 1e-18)

static void linear(void **state)
{
    (void)state;
    struct spec s = spec_of(101, 10);
    s.train.lr.schedule = LR_LINEAR;
    near(optim_lr(&s, 9), 1e-3);
    near(optim_lr(&s, 10), 1e-3);
    near(optim_lr(&s, 55), 5.5e-4);
    near(optim_lr(&s, 28), 1e-3 - 9e-4 * 0.2);
    near(optim_lr(&s, 100), 1e-4);
    near(optim_lr(&s, 5000), 1e-4);
    s = spec_of(11, 10);
    s.train.lr.schedule = LR_LINEAR;
    near(optim_lr(&s, 10), 1e-3);
}

static void wsd(void **state)
{
    (void)state;
    struct spec s = spec_of(100, 10);
    s.train.lr.schedule = LR_WSD;
    s.train.lr.decay = 0.2;
    for (uint64_t i = 9; i < 80; i++)
        near(optim_lr(&s, i), 1e-3);
    for (uint64_t i = 80; i < 100; i++) /* 20 equal steps down, the last to min */
        near(optim_lr(&s, i), 1e-3 - 9e-4 * (double)(i - 79) / 20);
    near(optim_lr(&s, 200), 1e-4);
    s.train.lr.decay = 0; /* the last step alone */
    near(optim_lr(&s, 98), 1e-3);
    near(optim_lr(&s, 99), 1e-4);
    s.train.lr.decay = 1; /* no more than there is behind the warm-up: linear */
    struct spec line = s;
    line.train.lr.schedule = LR_LINEAR;
    for (uint64_t i = 0; i < 120; i++)
        near(optim_lr(&s, i), optim_lr(&line, i));
    s.train.lr.warmup = 100;
    near(optim_lr(&s, 99), 1e-3);
}

static void inverse_sqrt(void **state)
{
    (void)state;
    struct spec s = spec_of(100000, 16);
    s.train.lr.schedule = LR_INVERSE_SQRT;
    near(optim_lr(&s, 7), 5e-4);
    near(optim_lr(&s, 15), 1e-3);
    near(optim_lr(&s, 63), 5e-4);
    near(optim_lr(&s, 255), 2.5e-4);
    near(optim_lr(&s, 99999), 1e-4); /* min */
    s.train.lr.warmup = 0;
    near(optim_lr(&s, 0), 1e-3);
    near(optim_lr(&s, 3), 5e-4);
}

static void scaled(void **state)
{
    (void)state;
    for (int kind = LR_COSINE; kind <= LR_INVERSE_SQRT; kind++)
        for (uint64_t i = 0; i < 110; i += 3) {
            struct spec s = spec_of(101, 10), t;
            s.train.lr.schedule = (enum spec_lr)kind;
            s.train.batch = 64;
            t = s;
            t.train.lr.reference_batch = 16;
            near(optim_lr(&t, i), optim_lr(&s, i));
            t.train.lr.scale = LR_SCALE_LINEAR;
            near(optim_lr(&t, i), 4 * optim_lr(&s, i));
            t.train.lr.scale = LR_SCALE_SQRT;
            near(optim_lr(&t, i), 2 * optim_lr(&s, i));
        }
}

static void clip(void **state)
{
    (void)state;
    assert_float_equal(optim_clip_factor(0, 1e9), 1, 0);
    assert_float_equal(optim_clip_factor(1, 0.5), 1, 0);
    assert_float_equal(optim_clip_factor(1, 4), 1 / (4 + 1e-6), 1e-7);
}

enum { N = 5000 };

/* Two stores, the second replicated over the tensor group. */
static struct store stores[2] = {{.index = 0, .n = N, .offset = 0, .decay = true},
                                 {.index = 2, .n = 10, .offset = 8192, .share = SHARE_TENSOR}};
static const struct params params = {
    .stores = stores, .n_stores = 2, .n_stores_all = 3, .n_elements = 12288};

static void norm_counts_replicas_once(void **state)
{
    (void)state;
    struct spec s = spec_of(10, 0);
    AUTO_FREE float *g = xcalloc(12288, sizeof *g);
    double norm, sums[3], want = 0;
    struct kern *k = kern_cpu_open(1, NULL);
    for (int i = 0; i < 12288; i++)
        g[i] = 1e6f; /* padding must not count */
    for (int i = 0; i < N; i++) {
        g[i] = (float)sin(i);
        want += (double)g[i] * g[i];
    }
    for (int i = 0; i < 10; i++)
        g[8192 + i] = 3;
    struct optim_norm o = {.spec = &s, .params = &params, .tp = 0, .sums = sums};
    assert_int_equal(optim_grad_norm(&o, k, g, NULL, &norm, NULL), 0);
    assert_true(fabs(norm - sqrt(want + 90)) < 1e-9);
    o.tp = 1;
    assert_int_equal(optim_grad_norm(&o, k, g, NULL, &norm, NULL), 0);
    assert_true(fabs(norm - sqrt(want)) < 1e-9);
    kern_close(k);
}

static void adamw(void **state)
{
    (void)state;
    struct spec s = spec_of(10, 0);
    AUTO_FREE float *mem = xcalloc(4 * 12288, sizeof *mem);
    struct optim_arenas a = {mem, mem + 12288, mem + 2 * 12288, mem + 3 * 12288};
    struct kern *k = kern_cpu_open(1, NULL);
    struct optim_values v = {.grad_scale = 0.5f};
    double p = 1, m = 0, vv = 0;
    a.weights[0] = 1;
    a.weights[8192] = 1;
    for (uint64_t t = 1; t <= 5; t++) {
        a.grads[0] = a.grads[8192] = (float)t;
        double g = 0.5 * (double)t;
        m = 0.9 * m + 0.1 * g;
        vv = 0.95 * vv + 0.05 * g * g;
        p -= 1e-2 *
             (m / (1 - pow(0.9, (double)t)) / (sqrt(vv / (1 - pow(0.95, (double)t))) + 1e-8) +
              0.1 * p);
        optim_step(&s, &params, k, &a, 1e-2, t, &v, NULL, NULL);
    }
    assert_true(fabs(a.weights[0] - p) < 1e-6);
    assert_true(a.weights[8192] > a.weights[0]); /* no decay */
    v.skip = 1;
    float before = a.weights[0];
    optim_step(&s, &params, k, &a, 1e-2, 6, &v, NULL, NULL);
    assert_true(before == a.weights[0]);
    kern_close(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cosine),       cmocka_unit_test(one_step_after_warmup),
        cmocka_unit_test(linear),       cmocka_unit_test(wsd),
        cmocka_unit_test(inverse_sqrt), cmocka_unit_test(scaled),
        cmocka_unit_test(clip),         cmocka_unit_test(norm_counts_replicas_once),
        cmocka_unit_test(adamw),
    };
    return cmocka_run_group_tests_name("optim", tests, NULL, NULL);
}
