/* linkline.h: lines of a peer that may send anything. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/own.h"
#include "common/link/linkline.h"
#include "common/link/page.h"

static int parse(const char *text, char *room, size_t n, struct link_line *l, struct err *e)
{
    assert_true(strlen(text) < n);
    memcpy(room, text, strlen(text) + 1);
    return link_line_parse(room, l, e);
}

static void well_formed(void **state)
{
    (void)state;
    char room[256];
    struct link_line l;
    struct err e;
    assert_int_equal(parse("barrier", room, sizeof room, &l, &e), 0);
    assert_string_equal(l.verb, "barrier");
    assert_int_equal(l.n, 0);
    assert_int_equal(parse("put key=addr/0 value=00ff", room, sizeof room, &l, &e), 0);
    assert_string_equal(l.verb, "put");
    assert_int_equal(l.n, 2);
    assert_string_equal(link_line_get(&l, "key"), "addr/0");
    assert_string_equal(link_line_get(&l, "value"), "00ff");
    assert_null(link_line_get(&l, "val"));
    assert_int_equal(parse("event text= step_ms=a=b", room, sizeof room, &l, &e), 0);
    assert_string_equal(link_line_get(&l, "text"), "");
    assert_string_equal(link_line_get(&l, "step_ms"), "a=b");
}

static void malformed(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        " ",
        " put key=1",
        "Put key=1",
        "put ",
        "put  key=1",
        "put key=1 ",
        "put key",
        "put =1",
        "put key=1 key=2",
        "put\tkey=1",
        "put key=1\r",
        "put key=\x01",
        "put key=\xc3\xa4",
        "put key=1\tb=2",
        "put Key=1",
        "put k9=1",
        "put1",
        "p\xffut",
        "put key=1\x7f",
        "put key=a b",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char room[256];
        struct link_line l = {.verb = "untouched"};
        struct err e = {0};
        if (parse(lines[i], room, sizeof room, &l, &e) == 0)
            fail_msg("accepted: '%s'", lines[i]);
        assert_int_equal(e.kind, ERR_PROTOCOL);
        assert_string_equal(l.verb, "untouched");
        for (const char *p = e.text; *p; p++) /* nothing of it reaches a terminal raw */
            assert_true(*p >= ' ' && *p < 0x7f);
    }
}

static void pairs_are_capped(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF(1 << 16);
    struct link_line l;
    struct err e;
    for (int extra = 0; extra < 2; extra++) {
        buf_clear(&b);
        buf_puts(&b, "metrics");
        for (int i = 0; i < LINK_PAIRS_MAX + extra; i++)
            buf_printf(&b, " k%c%c=1", 'a' + i / 26, 'a' + i % 26);
        assert_int_equal(link_line_parse(b.data, &l, &e), -extra);
    }
}

static void long_lines(void **state)
{
    (void)state;
    AUTO_FREE char *s = xmalloc(LINK_LINE_MAX + 2);
    struct link_line l;
    struct err e;
    memset(s, 'a', LINK_LINE_MAX + 1);
    memcpy(s, "put value=", 10);
    s[LINK_LINE_MAX + 1] = 0;
    assert_int_equal(link_line_parse(s, &l, &e), -1);
    s[LINK_LINE_MAX - 1] = 0;
    assert_int_equal(link_line_parse(s, &l, &e), 0);
    AUTO_BUF struct buf b = BUF(16);
    assert_int_equal(link_line_hex(&l, "value", &b, &e), -1); /* odd */
}

static void numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "s n=",    "s n=-1",  "s n=+1",
        "s n=0x1", "s n=1.0", "s n=18446744073709551616",
        "s m=1",   "s n=1a",  "s n=99999999999999999999999",
    };
    char room[256];
    struct link_line l;
    struct err e;
    uint64_t x = 7;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(parse(bad[i], room, sizeof room, &l, &e), 0);
        if (link_line_u64(&l, "n", &x, &e) == 0)
            fail_msg("accepted: '%s'", bad[i]);
        assert_int_equal(e.kind, ERR_PROTOCOL);
        assert_int_equal(x, 7);
    }
    assert_int_equal(parse("s n=18446744073709551615 m=007", room, sizeof room, &l, &e), 0);
    assert_int_equal(link_line_u64(&l, "n", &x, &e), 0);
    assert_true(x == UINT64_MAX);
    assert_int_equal(link_line_u64(&l, "m", &x, &e), 0);
    assert_true(x == 7);
}

static void hex(void **state)
{
    (void)state;
    char room[256];
    struct link_line l;
    struct err e;
    AUTO_BUF struct buf b = BUF(4);
    assert_int_equal(parse("v a=00fF b= c=0 d=0g e=0011223344", room, sizeof room, &l, &e), 0);
    assert_int_equal(link_line_hex(&l, "a", &b, &e), 0);
    assert_int_equal(link_line_hex(&l, "b", &b, &e), 0);
    assert_int_equal(b.len, 2);
    assert_memory_equal(b.data, "\0\xff", 2);
    assert_int_equal(link_line_hex(&l, "c", &b, &e), -1);
    assert_int_equal(link_line_hex(&l, "d", &b, &e), -1);
    assert_int_equal(link_line_hex(&l, "e", &b, &e), -1); /* beyond the cap */
    assert_int_equal(link_line_hex(&l, "f", &b, &e), -1);
    assert_int_equal(b.len, 2);
}

/* Random bytes never break it, and what it accepts is what the grammar says. */
static void random_bytes(void **state)
{
    (void)state;
    static const char alphabet[] = "abz_= =  01\t\xc3\x7f\x01-";
    uint64_t x = 88172645463325252u;
    unsigned accepted = 0;
    for (int n = 0; n < 300000; n++) {
        char line[24], again[64];
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        size_t len = x % sizeof line;
        uint64_t y = x;
        for (size_t i = 0; i < len; i++) {
            y = y * 6364136223846793005u + 1442695040888963407u;
            line[i] = alphabet[(y >> 33) % (sizeof alphabet - 1)];
        }
        line[len] = 0;
        char *copy = xstrndup(line, len); /* exact size: a read past its end is seen by ASan */
        struct link_line l;
        struct err e;
        if (link_line_parse(copy, &l, &e) == 0) {
            size_t at = (size_t)snprintf(again, sizeof again, "%s", l.verb);
            for (size_t i = 0; i < l.n; i++)
                at += (size_t)snprintf(again + at, sizeof again - at, " %s=%s", l.pairs[i].key,
                                       l.pairs[i].value);
            assert_string_equal(again, line);
            accepted++;
        }
        free(copy);
    }
    assert_true(accepted > 100);
}

static void phases_have_names(void **state)
{
    (void)state;
    for (int i = 0; i < PHASE_COUNT; i++) {
        assert_non_null(page_phase_name((enum page_phase)i));
        for (int k = 0; k < i; k++)
            assert_string_not_equal(page_phase_name((enum page_phase)i),
                                    page_phase_name((enum page_phase)k));
    }
    assert_string_equal(page_phase_name(PHASE_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_formed),      cmocka_unit_test(malformed),
        cmocka_unit_test(pairs_are_capped), cmocka_unit_test(long_lines),
        cmocka_unit_test(numbers),          cmocka_unit_test(hex),
        cmocka_unit_test(random_bytes),     cmocka_unit_test(phases_have_names),
    };
    return cmocka_run_group_tests_name("linkline", tests, NULL, NULL);
}
