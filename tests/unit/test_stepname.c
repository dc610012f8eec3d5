/* The names of checkpoints' folders: what is written is read, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>

#include "common/link/stepname.h"

static void test_round(void **state)
{
    static const struct {
        uint64_t step;
        uint32_t generation;
    } at[] = {{0, 0}, {1, 1}, {99999999, 7}, {100000000, 4294967295u}, {4294967295u, 12}};
    (void)state;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        char name[64];
        const char *suffix;
        uint64_t step = 5;
        uint32_t generation = 5;
        (void)snprintf(name, sizeof name, STEP_NAME ".tmp", (unsigned long long)at[i].step,
                       (unsigned)at[i].generation);
        assert_int_equal(step_name_parse(name, &step, &generation, &suffix), 0);
        assert_int_equal(step, at[i].step);
        assert_int_equal(generation, at[i].generation);
        assert_string_equal(suffix, ".tmp");
    }
}

static void test_others(void **state)
{
    static const char *const names[] = {
        "",
        "step",
        "step-",
        "step-5-g1",
        "step--0000005-g1",
        "step- 0000005-g1",
        "step-00000005",
        "step-00000005-",
        "step-00000005-g",
        "step-00000005-gx",
        "step-00000005-g-1",
        "step-00000005-g4294967296",
        "step-00000005-g00000000001",
        "step-0000000000000000005-g1",
        "xstep-00000005-g1",
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *suffix;
        uint64_t step = 3;
        uint32_t generation = 3;
        if (step_name_parse(names[i], &step, &generation, &suffix) == 0)
            fail_msg("%s was taken", names[i]);
        assert_int_equal(step, 3);
        assert_int_equal(generation, 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round),
                                       cmocka_unit_test(test_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
