/* Durations, there and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdint.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/units.h"

static void reads(const char *text, int64_t want)
{
    int64_t ns = -1;
    if (units_duration(text, &ns) < 0)
        fail_msg("%s was refused", text);
    if (ns != want)
        fail_msg("%s is %lld, not %lld", text, (long long)ns, (long long)want);
}

static void test_read(void **state)
{
    (void)state;
    reads("0", 0);
    reads("0s", 0);
    reads("1ns", 1);
    reads("250us", 250000);
    reads("250ms", 250 * NS_PER_MS);
    reads("30s", 30 * NS_PER_S);
    reads("1.5m", 90 * NS_PER_S);
    reads("1h30m", 5400 * NS_PER_S);
    reads("1h30m5s", 5405 * NS_PER_S);
    reads("2d", 172800 * NS_PER_S);
    reads("0.1s", 100 * NS_PER_MS);
    reads("never", INT64_MAX);
}

static void test_refused(void **state)
{
    static const char *const texts[] = {"",       "s",
                                        "5",      "5 s",
                                        " 5s",    "5s ",
                                        "-5s",    "+5s",
                                        "5x",     "5sec",
                                        "1h30",   "0x5s",
                                        "1e400s", "infs",
                                        "nans",   ".5s",
                                        "Never",  "1S",
                                        "5s,",    "1ms2",
                                        "1e30s",  "999999999999999999999999999999s"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t ns = 77;
        if (units_duration(texts[i], &ns) == 0)
            fail_msg("%s was taken", texts[i]);
        assert_int_equal(ns, 77); /* untouched */
    }
}

static void test_text(void **state)
{
    static const struct {
        int64_t ns;
        const char *text;
    } cases[] = {{0, "0s"},
                 {1, "1ns"},
                 {1500, "1500ns"},
                 {NS_PER_S, "1s"},
                 {90 * NS_PER_S, "90s"},
                 {120 * NS_PER_S, "2m"},
                 {7200 * NS_PER_S, "2h"},
                 {172800 * NS_PER_S, "2d"},
                 {INT64_MAX, "never"}};
    char buf[32];
    uint64_t x = 88172645463325252;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(units_duration_text(cases[i].ns, buf), cases[i].text);
        reads(cases[i].text, cases[i].ns);
    }
    /* Below 2^53 ns (104 days) every one; above, each that can be written: spec.h allows 1e9 s.
     */
    for (int i = 0; i < 100000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        int64_t ns = (int64_t)(x >> (11 + x % 50));
        reads(units_duration_text(ns, buf), ns);
        ns = (int64_t)(x >> 40) * 60 * NS_PER_S;
        reads(units_duration_text(ns, buf), ns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
