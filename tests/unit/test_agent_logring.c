/* A rank's output: whole lines, dense offsets, bounded, and a word about what was lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "launcher/agent/rank/logring.h"

/* A controller: checks order and wholeness, acknowledges if told so. */
struct reader {
    uint64_t have;
    struct buf text;
};

static size_t take(struct logring *r, struct reader *c, bool ack)
{
    const char *at;
    uint64_t offset;
    size_t n, all = 0;
    while ((n = logring_next(r, &at, &offset)) > 0) {
        assert_int_equal(offset, c->have);
        assert_int_equal(at[n - 1], '\n');
        assert_int_equal(buf_add(&c->text, at, n), 0);
        c->have += n;
        all += n;
        if (ack)
            logring_ack(r, c->have);
    }
    return all;
}

static void test_whole_lines(void **state)
{
    (void)state;
    AUTO(logring) struct logring *r = logring_new();
    AUTO_BUF struct buf text = BUF(1 << 20);
    struct reader c = {.text = text};
    logring_add(r, "one\ntw", 6);
    assert_int_equal(take(r, &c, true), 4);
    logring_add(r, "o\n\nthree", 8);
    assert_int_equal(take(r, &c, true), 5);
    assert_false(logring_settled(r));
    logring_end(r);
    assert_int_equal(take(r, &c, true), 6);
    assert_true(logring_settled(r));
    assert_string_equal(buf_str(&c.text), "one\ntwo\n\nthree\n");
    text = c.text;
}

static void test_long_line(void **state)
{
    (void)state;
    AUTO(logring) struct logring *r = logring_new();
    AUTO_BUF struct buf text = BUF(1 << 20);
    char x[1000];
    memset(x, 'x', sizeof x);
    for (int i = 0; i < 150; i++)
        logring_add(r, x, sizeof x);
    logring_end(r);
    struct reader c = {.text = text};
    (void)take(r, &c, true);
    text = c.text;
    size_t longest = 0, bytes = 0;
    for (const char *p = buf_str(&text); *p; p = strchr(p, '\n') + 1) {
        size_t n = strcspn(p, "\n") + 1;
        bytes += n - 1;
        longest = n > longest ? n : longest;
    }
    assert_int_equal(bytes, 150000); /* nothing but newlines was added */
    assert_int_equal(longest, LOGRING_LINE_MAX);
}

static void test_window_and_rewind(void **state)
{
    (void)state;
    AUTO(logring) struct logring *r = logring_new();
    AUTO_BUF struct buf text = BUF(64 << 20);
    AUTO_BUF struct buf again = BUF(64 << 20);
    struct reader c = {.text = text};
    char line[64];
    for (int i = 0; i < 100000; i++) {
        int n = snprintf(line, sizeof line, "line number %d of many\n", i);
        logring_add(r, line, (size_t)n);
    }
    size_t sent = take(r, &c, false); /* never acknowledged */
    assert_true(sent > LOGRING_WINDOW / 2 && sent <= LOGRING_WINDOW);
    assert_int_equal(take(r, &c, false), 0);
    /* Its successor has only the first lines of that. */
    struct reader d = {.text = again, .have = 44};
    logring_rewind(r, 44);
    while (take(r, &d, true))
        continue;
    text = c.text;
    again = d.text;
    assert_non_null(strstr(buf_str(&again), "line number 99999 of many\n"));
    assert_memory_equal(again.data, "line number 2 of many\n", 22);
}

static void test_dropped(void **state)
{
    (void)state;
    AUTO(logring) struct logring *r = logring_new();
    AUTO_BUF struct buf text = BUF(64 << 20);
    struct reader c = {.text = text};
    char line[128];
    uint64_t total = 0, lost = 0;
    for (uint64_t i = 0; total < 100u << 20; i++) {
        int n = snprintf(line, sizeof line, "%063" PRIu64 "\n", i);
        logring_add(r, line, (size_t)n);
        total += (uint64_t)n;
        if (i == 1000)
            (void)take(r, &c, false); /* these are on their way: never dropped */
    }
    uint64_t early = c.have;
    logring_ack(r, early);
    while (take(r, &c, true))
        continue;
    text = c.text;
    assert_true(text.len < 18u << 20);
    const char *mark = strstr(buf_str(&text), "[dslaunch: ");
    assert_non_null(mark);
    assert_int_equal(mark - text.data, early);
    assert_null(strstr(mark + 1, "[dslaunch: ")); /* one mark for one gap */
    lost = strtoull(mark + 11, NULL, 10);
    size_t mark_len = strcspn(mark, "\n") + 1;
    assert_int_equal(lost + text.len - mark_len, total);
    /* After the gap the lines are whole and in order up to the last. */
    uint64_t first = strtoull(mark + mark_len, NULL, 10);
    assert_int_equal(first, (early + lost) / 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_lines),
        cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_window_and_rewind),
        cmocka_unit_test(test_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
