/* Durations, there and back, and sizes. */
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
    reads("0.000000001s", 1);
    reads("1d1h1m1s1ms1us1ns", 90061001001001);
    reads("9007199254740993ns", 9007199254740993); /* more than a double holds */
    reads("100000000000000001ns", 100000000000000001);
    reads("106751d", 9223286400000000000);
    reads("9223372036854775806ns", INT64_MAX - 1);
    reads("never", INT64_MAX);
}

static void test_refused(void **state)
{
    static const char *const texts[] = {"",        "s",
                                        "5",       "5 s",
                                        " 5s",     "5s ",
                                        "-5s",     "+5s",
                                        "5x",      "5sec",
                                        "1h30",    "0x5s",
                                        "1e400s",  "infs",
                                        "nans",    ".5s",
                                        "Never",   "1S",
                                        "5s,",     "1ms2",
                                        "1e30s",   "999999999999999999999999999999s",
                                        "1e3s",    "5.s",
                                        "1..5s",   "1.5.5s",
                                        "5s1h",    "1h1h",
                                        "1.5ns",   "0.1ns",
                                        "106752d", "9223372036854775807ns",
                                        "1s-1s",   "never1s"};
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
    for (int i = 0; i < 100000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        int64_t ns = (int64_t)(x >> (1 + i % 60));
        reads(units_duration_text(ns, buf), ns);
        ns = (int64_t)(x >> 40) * 60 * NS_PER_S;
        reads(units_duration_text(ns, buf), ns);
    }
}

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {{"0", 0},
                {"512", 512},
                {"512B", 512},
                {"1KiB", 1024},
                {"1kB", 1000},
                {"64MiB", 64 << 20},
                {"2MB", 2000000},
                {"1.5GiB", 3LL << 29},
                {"80GB", 80000000000},
                {"8388607TiB", 8388607LL << 40},
                {"9223372036854775807", INT64_MAX}};
    static const char *const bad[] = {"",         "B",     "1KB",        "1kib",
                                      "1Mi",      "1M",    "-1",         "1 MiB",
                                      "0.5",      "1e6",   "1MiB1",      "1.0001KiB",
                                      "1MiB1KiB", "never", "8388608TiB", "9223372036854775808"};
    int64_t bytes = 77;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (units_size(bad[i], &bytes) == 0)
            fail_msg("%s was taken", bad[i]);
        assert_int_equal(bytes, 77); /* untouched */
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(units_size(good[i].text, &bytes), 0);
        assert_int_equal(bytes, good[i].bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
