/* restart.h: the budget in a sliding window, and the back-off. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "launcher/super/restart.h"

#define S 1000000000LL

static const struct restart_policy policy = {
    .max = 5, .window_ns = 3600 * S, .backoff_ns = 2 * S};

static void backs_off_from_the_second(void **state)
{
    (void)state;
    static const int64_t want[] = {0, 2, 4, 8, 16};
    struct restart r;
    int64_t at = -1;
    restart_init(&r, &policy);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(restart_left(&r, i * S), 5 - i);
        assert_true(restart_ask(&r, i * S, &at));
        assert_int_equal(at, (i + want[i]) * S);
    }
    assert_false(restart_ask(&r, 5 * S, &at));
    assert_int_equal(at, (4 + 16) * S); /* untouched */
    assert_int_equal(restart_left(&r, 5 * S), 0);
    assert_int_equal(r.total, 5);
}

static void window_slides(void **state)
{
    (void)state;
    struct restart r;
    int64_t at;
    restart_init(&r, &policy);
    for (int i = 0; i < 5; i++)
        assert_true(restart_ask(&r, i * 100 * S, &at));
    assert_false(restart_ask(&r, 3600 * S - 1, &at));
    assert_int_equal(restart_left(&r, 3600 * S), 1);
    assert_true(restart_ask(&r, 3600 * S, &at));
    assert_false(restart_ask(&r, 3600 * S, &at));
    assert_true(restart_ask(&r, 9000 * S, &at)); /* all are past: immediate again */
    assert_int_equal(at, 9000 * S);
    assert_int_equal(r.total, 7);
}

static void backoff_is_capped(void **state)
{
    (void)state;
    struct restart r;
    struct restart_policy p = policy;
    int64_t at = 0;
    p.max = RESTART_MAX_LIMIT + 5; /* clamped */
    restart_init(&r, &p);
    for (int i = 0; i < RESTART_MAX_LIMIT; i++)
        assert_true(restart_ask(&r, 0, &at));
    assert_int_equal(at, RESTART_BACKOFF_MAX_NS);
    assert_false(restart_ask(&r, 0, &at));
}

static void none_allowed(void **state)
{
    (void)state;
    struct restart r;
    struct restart_policy p = policy;
    int64_t at;
    p.max = 0;
    restart_init(&r, &p);
    assert_false(restart_ask(&r, 0, &at));
    assert_int_equal(restart_left(&r, 0), 0);
}

static void earlier_ones_count(void **state)
{
    (void)state;
    struct restart r;
    int64_t at;
    restart_init(&r, &policy);
    restart_note(&r, -4000 * S); /* out of the window */
    for (int i = 0; i < 4; i++)
        restart_note(&r, -100 * S);
    assert_int_equal(restart_left(&r, 0), 1);
    assert_true(restart_ask(&r, 0, &at));
    assert_int_equal(at, 16 * S);
    assert_false(restart_ask(&r, S, &at));
    assert_int_equal(r.total, 6);
    restart_init(&r, &policy);
    for (int i = 0; i < RESTART_MAX_LIMIT + 10; i++)
        restart_note(&r, i);
    assert_false(restart_ask(&r, S, &at));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backs_off_from_the_second), cmocka_unit_test(window_slides),
        cmocka_unit_test(backoff_is_capped),         cmocka_unit_test(none_allowed),
        cmocka_unit_test(earlier_ones_count),
    };
    return cmocka_run_group_tests_name("restart", tests, NULL, NULL);
}
