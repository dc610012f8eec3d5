/* sample.h, prompt.h: which token is chosen, and what a prompt's ids are. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "common/base/own.h"
#include "common/spec/prompt.h"
#include "common/spec/spec.h"
#include "worker/loop/sample.h"

static void greedy_takes_the_first_largest(void **state)
{
    (void)state;
    const float l[] = {-1, 3, 2, 3, 9};
    for (int i = 0; i < 10; i++)
        assert_int_equal(sample_choose(l, 4, 0, i / 10.0), 1);
    assert_int_equal(sample_choose(l, 5, 0, 0), 4);
    assert_int_equal(sample_choose(l, 1, 0, 0.9), 0);
}

/* Over an even grid of draws each token has its share. */
static void draws_follow_the_softmax(void **state)
{
    (void)state;
    enum { N = 4, GRID = 100000 };
    const float l[N] = {1000, 998, -INFINITY, 1001};
    for (double t = 0.5; t < 3; t *= 2) {
        uint32_t seen[N] = {0};
        double sum = 0;
        for (int i = 0; i < GRID; i++)
            seen[sample_choose(l, N, t, (double)i / GRID)]++;
        for (int i = 0; i < N; i++)
            sum += exp((l[i] - 1001) / t);
        for (int i = 0; i < N; i++)
            assert_true(fabs(seen[i] - GRID * exp((l[i] - 1001) / t) / sum) <= 2);
    }
    assert_int_equal(sample_choose(l, N, 1e-300, 0.999), 3); /* far below: greedy again */
}

static void prompts(void **state)
{
    static const struct {
        enum spec_data kind;
        const char *text;
        int32_t ids[4];
        size_t n; /* 9: refused */
    } cases[] = {
        {DATA_TEXT, "", {0}, 0},       {DATA_TEXT, "a \xc3\xa4", {97, 32, 0xc3, 0xa4}, 4},
        {DATA_SHARDS, "", {0}, 0},     {DATA_SHARDS, "  7 007  999 ", {7, 7, 999}, 3},
        {DATA_SHARDS, "1000", {0}, 9}, {DATA_SHARDS, "4294967297", {0}, 9},
        {DATA_SHARDS, "1,2", {0}, 9},  {DATA_SHARDS, "-1", {0}, 9},
        {DATA_SHARDS, "1 x", {0}, 9},  {DATA_SHARDS, "1\n", {0}, 9},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spec s = {0};
        AUTO_FREE char *text = xstrdup(cases[i].text);
        AUTO_FREE int32_t *ids = NULL;
        size_t n = 9;
        s.model.vocab = 1000;
        s.data.kind = cases[i].kind;
        s.train.sample.prompt = text;
        assert_int_equal(prompt_ids(&s, &ids, &n), cases[i].n == 9 ? -1 : 0);
        assert_int_equal(n, cases[i].n);
        if (n && n != 9)
            assert_memory_equal(ids, cases[i].ids, n * sizeof *ids);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_first_largest),
        cmocka_unit_test(draws_follow_the_softmax),
        cmocka_unit_test(prompts),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
