/* The live line fits, stays last, and leaves nothing; plain output is plain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/base/buf.h"
#include "launcher/record/metrics.h"
#include "launcher/watch/progress.h"

static struct metrics step(uint64_t n)
{
    return (struct metrics){.step = n,
                            .generation = 1,
                            .loss = 2.5,
                            .validation_loss = NAN,
                            .grad_norm = 1.25,
                            .lr = 3e-4,
                            .tokens_per_s = 45678,
                            .step_ms = 500};
}

static void plain_lines_every_n(void **state)
{
    AUTO_BUF struct buf out = BUF(1 << 16);
    (void)state;
    AUTO(progress)
    struct progress *p = progress_new(&(struct progress_params){.steps = 25, .log_every = 10});
    for (uint64_t i = 1; i <= 25; i++) {
        struct metrics m = step(i);
        progress_on_metrics(p, &m, &out);
    }
    assert_string_equal(
        buf_str(&out), "step 1/25  loss 2.5000  norm 1.250  lr 3.00e-04  45.7k tok/s  ETA 12s\n"
                       "step 10/25  loss 2.5000  norm 1.250  lr 3.00e-04  45.7k tok/s  ETA 8s\n"
                       "step 20/25  loss 2.5000  norm 1.250  lr 3.00e-04  45.7k tok/s  ETA 3s\n"
                       "step 25/25  loss 2.5000  norm 1.250  lr 3.00e-04  45.7k tok/s\n");
}

static void bar_fits_every_width(void **state)
{
    (void)state;
    for (unsigned width = 10; width < 200; width++) {
        AUTO_BUF struct buf out = BUF(1 << 16);
        AUTO(progress)
        struct progress *p =
            progress_new(&(struct progress_params){.tty = true, .width = width, .steps = 400});
        struct metrics m = step(100);
        progress_on_metrics(p, &m, &out);
        assert_true(out.len < width);
        assert_null(strchr(out.data, '\n'));
        assert_true(width < 90 || strstr(out.data, "[=======>                ") ||
                    strchr(out.data, '['));
    }
}

static void text_goes_above_the_bar(void **state)
{
    AUTO_BUF struct buf out = BUF(1 << 16);
    (void)state;
    AUTO(progress)
    struct progress *p = progress_new(
        &(struct progress_params){.tty = true, .color = true, .width = 100, .steps = 400});
    struct metrics m = step(100);
    progress_on_metrics(p, &m, &out);
    AUTO_FREE char *bar = buf_take(&out);
    out = BUF(1 << 16);
    progress_on_text(p, "resumed from step 100", &out);
    assert_true(strncmp(buf_str(&out), "\r\033[Kresumed from step 100\n", 25) == 0);
    assert_string_equal(buf_str(&out) + strlen(buf_str(&out)) - strlen(bar), bar);
    buf_clear(&out);
    progress_on_log(p, 3, 2, "a\nb", 3, &out);
    assert_non_null(strstr(buf_str(&out), "[rank 3 g2]\033[0m a\n"));
    assert_non_null(strstr(buf_str(&out), "[rank 3 g2]\033[0m b\n"));
    buf_clear(&out);
    progress_clear(p, &out);
    assert_string_equal(buf_str(&out), "\r\033[K");
    buf_clear(&out);
    progress_clear(p, &out);
    assert_int_equal(out.len, 0);
}

static void workers_cannot_move_the_cursor(void **state)
{
    AUTO_BUF struct buf out = BUF(1 << 16);
    (void)state;
    AUTO(progress)
    struct progress *p = progress_new(&(struct progress_params){.steps = 1});
    progress_on_log(p, 0, 1, "\033[2Jx\r\xff y\n", 10, &out);
    assert_string_equal(buf_str(&out), "[rank 0 g1] ?[2Jx?? y\n");
}

static void validation_is_no_step(void **state)
{
    AUTO_BUF struct buf out = BUF(1 << 16);
    (void)state;
    AUTO(progress) struct progress *p = progress_new(&(struct progress_params){.steps = 9});
    struct metrics m = step(3);
    m.loss = NAN;
    m.validation_loss = 2.25;
    progress_on_metrics(p, &m, &out);
    assert_int_equal(out.len, 0);
}

static void summary_says_what_is_known(void **state)
{
    AUTO_BUF struct buf out = BUF(1 << 16);
    (void)state;
    AUTO(progress) struct progress *p = progress_new(&(struct progress_params){.steps = 9});
    const struct progress_summary s = {.job = "demo",
                                       .outcome = "completed",
                                       .step = 400,
                                       .steps = 400,
                                       .loss = 2.125,
                                       .validation_loss = NAN,
                                       .tokens_per_s = 12000,
                                       .seconds = 187,
                                       .restarts = 2,
                                       .logs = "/s/logs",
                                       .checkpoints = "/c",
                                       .checkpoint_step = 400};
    progress_summary(p, &s, &out);
    assert_string_equal(buf_str(&out), "demo completed at step 400/400 in 3m07s, restarts: 2\n"
                                       "  loss         2.1250 nats per token\n"
                                       "  speed        12.0k tokens/s\n"
                                       "  logs         /s/logs\n"
                                       "  checkpoints  /c (newest: step 400)\n");
}

static void counts_and_durations(void **state)
{
    static const struct {
        double n;
        const char *text;
    } counts[] = {{0, "0"}, {999, "999"}, {999.6, "1.0k"}, {123456, "123k"}, {1.5e6, "1.5M"}},
      durations[] = {{0, "0s"}, {59.6, "1m00s"}, {3725, "1h02m"}, {90000, "1d01h"}};
    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        AUTO_BUF struct buf b = BUF(64);
        progress_count(counts[i].n, &b);
        assert_string_equal(buf_str(&b), counts[i].text);
    }
    for (size_t i = 0; i < sizeof(durations) / sizeof(durations[0]); i++) {
        AUTO_BUF struct buf b = BUF(64);
        progress_duration(durations[i].n, &b);
        assert_string_equal(buf_str(&b), durations[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_lines_every_n),
        cmocka_unit_test(bar_fits_every_width),
        cmocka_unit_test(text_goes_above_the_bar),
        cmocka_unit_test(workers_cannot_move_the_cursor),
        cmocka_unit_test(validation_is_no_step),
        cmocka_unit_test(summary_says_what_is_known),
        cmocka_unit_test(counts_and_durations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
