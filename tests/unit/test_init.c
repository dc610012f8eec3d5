/* test_init.c: initial weights are the same numbers in every layout, and normal. */
#include "tests/unit/stage_rig.h"
#include "worker/model/stage_priv.h"

/* Pinned: a change of these starts every run from other weights. */
static void numbers_are_pinned(void **state)
{
    static const uint32_t want[4] = {0x401b2080, 0xbf7f3800, 0xbeadca00, 0xbf488d00};
    uint32_t got[4];
    (void)state;
    init_normal(1, "model.norm.weight", 1.0, 1000, 4, (float *)got);
    for (int i = 0; i < 4; i++) {
        if (got[i] != want[i])
            fail_msg("number %d: 0x%08x, was 0x%08x", i, got[i], want[i]);
    }
}

static void parts_are_the_whole(void **state)
{
    float all[100], part[100];
    (void)state;
    init_normal(9, "a", 0.02, 50, 100, all);
    for (int64_t i = 0; i < 100; i += 7)
        init_normal(9, "a", 0.02, 50 + i, i + 7 < 100 ? 7 : 100 - i, part + i);
    assert_memory_equal(all, part, sizeof(all));
    init_normal(10, "a", 0.02, 50, 100, part);
    assert_memory_not_equal(all, part, sizeof(all));
    init_normal(9, "b", 0.02, 50, 100, part);
    assert_memory_not_equal(all, part, sizeof(all));
}

/* Moments of 2^20 numbers within five standard errors; tails; neighbours not correlated. */
static void numbers_are_normal(void **state)
{
    enum { N = 1 << 20 };
    AUTO_FREE float *x = xmalloc(N * sizeof(*x));
    double m1 = 0, m2 = 0, m4 = 0, next = 0;
    int beyond = 0;
    (void)state;
    init_normal(3, "x", 1.0, 0, N, x);
    for (int i = 0; i < N; i++) {
        double v = x[i];
        m1 += v;
        m2 += v * v;
        m4 += v * v * v * v;
        next += i ? v * x[i - 1] : 0;
        beyond += fabs(v) > 3;
    }
    assert_true(fabs(m1 / N) < 5.0 / 1024);
    assert_true(fabs(m2 / N - 1) < 5 * 1.42 / 1024);
    assert_true(fabs(m4 / N - 2.9) < 0.05); /* 3 - 1.2/12 */
    assert_true(fabs(next / N) < 5.0 / 1024);
    assert_true(beyond > N / 700 && beyond < N / 350); /* normal: N / 370 */
}

static void layouts_agree(void **state)
{
    (void)state;
    for (int model = 0; model < TINY_MODELS; model++) {
        struct spec s = tiny_model(model);
        struct rig whole;
        rig_open(&whole, &s, (struct coord){0}, 1, NULL, NULL, PLANT_NONE);
        s.parallel.tensor = 2;
        s.parallel.pipeline = 2;
        for (uint32_t r = 0; r < 4; r++) {
            AUTO(params)
            struct params *p = params_new(&s, (struct coord){.pp = r / 2, .tp = r % 2});
            AUTO_FREE float *arena = xcalloc((size_t)p->n_elements, sizeof(float));
            init_pieces(p, s.train.seed, arena);
            struct rig part = {.params = p};
            for (size_t i = 0; i < p->n_pieces; i++) {
                const struct piece *q = &p->pieces[i];
                const struct param *m = &p->params[q->param];
                size_t n = (size_t)(m->shape[0] * m->shape[1]);
                AUTO_FREE float *want = xcalloc(n, sizeof(*want));
                AUTO_FREE float *got = NULL;
                for (size_t j = 0; j < whole.params->n_pieces; j++) {
                    if (whole.params->pieces[j].param == q->param)
                        rig_copy(&whole, &whole.params->pieces[j], stage_weights(whole.stage),
                                 want, FROM_RANK);
                }
                got = xmalloc(n * sizeof(*got));
                memcpy(got, want, n * sizeof(*got));
                for (int64_t row = 0; row < q->size[0]; row++)
                    memset(got + (q->start[0] + row) * m->shape[1] + q->start[1], 0xff,
                           (size_t)q->size[1] * sizeof(*got));
                rig_copy(&part, q, arena, got, FROM_RANK);
                assert_memory_equal(got, want, n * sizeof(*got));
            }
        }
        rig_close(&whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_pinned),
        cmocka_unit_test(parts_are_the_whole),
        cmocka_unit_test(numbers_are_normal),
        cmocka_unit_test(layouts_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
