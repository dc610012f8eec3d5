/* rdzv.h: one map and one barrier per generation. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "launcher/rdzv/rdzv.h"

/* Replies, one after the other: "2:value k=v;". */
static void on_reply(void *ctx, uint32_t rank, enum rdzv_reply_kind kind, const char *key,
                     const void *val, size_t len)
{
    static const char *const names[] = {
        [RDZV_VALUE] = "value",
        [RDZV_ABSENT] = "absent",
        [RDZV_RELEASED] = "released",
        [RDZV_VOID] = "void",
    };
    struct buf *b = ctx;
    buf_printf(b, "%u:%s", rank, names[kind]);
    if (key)
        buf_printf(b, " %s", key);
    if (kind == RDZV_VALUE)
        buf_printf(b, "=%.*s", (int)len, (const char *)val);
    else
        assert_null(val);
    buf_puts(b, ";");
}

static void expect(struct buf *b, const char *want)
{
    assert_string_equal(buf_str(b), want);
    buf_clear(b);
}

static void barrier_answers_gets(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF(1 << 16);
    AUTO(rdzv) struct rdzv *r = rdzv_new(3, on_reply, &b);
    struct err e;
    uint32_t missing[2] = {9, 9};
    assert_false(rdzv_complete(r));
    assert_int_equal(rdzv_open(r, 4, &e), 0);
    assert_int_equal(rdzv_put(r, 4, 0, "a", "x", 1, &e), 0);
    assert_int_equal(rdzv_get(r, 4, 2, "b", &e), 0);
    assert_int_equal(rdzv_enter(r, 4, 2, &e), 0);
    assert_int_equal(rdzv_get(r, 4, 0, "none", &e), 0);
    assert_int_equal(rdzv_put(r, 4, 1, "b", "yz", 2, &e), 0);
    assert_int_equal(rdzv_enter(r, 4, 0, &e), 0);
    assert_int_equal(rdzv_missing(r, missing, 2), 1);
    assert_int_equal(missing[0], 1);
    expect(&b, "");
    assert_int_equal(rdzv_enter(r, 4, 1, &e), 0);
    expect(&b, "0:released;1:released;2:released;2:value b=yz;0:absent none;");
    assert_true(rdzv_complete(r));
    assert_int_equal(rdzv_missing(r, missing, 2), 0);
    assert_int_equal(rdzv_get(r, 4, 1, "a", &e), 0);
    assert_int_equal(rdzv_get(r, 4, 1, "late", &e), 0);
    assert_int_equal(rdzv_put(r, 4, 2, "late", "", 0, &e), 0);
    assert_int_equal(rdzv_get(r, 4, 1, "late", &e), 0);
    expect(&b, "1:value a=x;1:absent late;1:value late=;");
    rdzv_free(TAKE(r));
    expect(&b, "");
}

static void generation_voids_the_one_before(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF(1 << 16);
    AUTO(rdzv) struct rdzv *r = rdzv_new(2, on_reply, &b);
    struct err e = {0};
    assert_int_equal(rdzv_put(r, 0, 0, "a", "x", 1, &e), -1); /* none is open */
    assert_int_equal(rdzv_open(r, 1, &e), 0);
    assert_int_equal(rdzv_put(r, 1, 0, "a", "x", 1, &e), 0);
    assert_int_equal(rdzv_get(r, 1, 1, "a", &e), 0);
    assert_int_equal(rdzv_enter(r, 1, 1, &e), 0);
    assert_int_equal(rdzv_open(r, 1, &e), -1);
    expect(&b, "");
    assert_int_equal(rdzv_open(r, 3, &e), 0);
    expect(&b, "1:void;1:void a;");
    for (uint32_t gen = 1; gen < 6; gen++) {
        int want = gen == 3 ? 0 : -1;
        e.kind = ERR_NONE;
        assert_int_equal(rdzv_put(r, gen, 0, "b", "x", 1, &e), want);
        assert_int_equal(e.kind, want ? ERR_PROTOCOL : ERR_NONE);
        assert_int_equal(rdzv_get(r, gen, 0, "a", &e), want);
        assert_int_equal(rdzv_enter(r, gen, 0, &e), want);
    }
    expect(&b, "");
    assert_int_equal(rdzv_enter(r, 3, 1, &e), 0);
    expect(&b, "0:released;1:released;0:absent a;"); /* generation 1's is gone */
    assert_int_equal(rdzv_open(r, 4, &e), 0);
    expect(&b, ""); /* nothing was pending */
    assert_int_equal(rdzv_get(r, 4, 0, "b", &e), 0);
    rdzv_free(TAKE(r));
    expect(&b, "0:void b;");
}

static void refuses(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF(1 << 16);
    AUTO(rdzv) struct rdzv *r = rdzv_new(2, on_reply, &b);
    AUTO_FREE char *big = xcalloc(1, RDZV_VALUE_MAX + 1);
    char key[RDZV_KEY_MAX + 2];
    struct err e;
    assert_int_equal(rdzv_open(r, 1, &e), 0);
    memset(key, 'k', sizeof key);
    key[RDZV_KEY_MAX + 1] = 0;
    assert_int_equal(rdzv_put(r, 1, 0, key, "", 0, &e), -1);
    assert_int_equal(rdzv_get(r, 1, 0, key, &e), -1);
    key[RDZV_KEY_MAX] = 0;
    assert_int_equal(rdzv_put(r, 1, 0, key, "", 0, &e), 0);
    assert_int_equal(rdzv_put(r, 1, 0, "", "", 0, &e), -1);
    assert_int_equal(rdzv_put(r, 1, 0, "a b", "", 0, &e), -1);
    assert_int_equal(rdzv_put(r, 1, 0, "a\n", "", 0, &e), -1);
    assert_int_equal(rdzv_put(r, 1, 0, "a", big, RDZV_VALUE_MAX + 1, &e), -1);
    assert_int_equal(rdzv_put(r, 1, 0, "a", big, RDZV_VALUE_MAX, &e), 0);
    assert_int_equal(rdzv_put(r, 1, 1, "a", big, 1, &e), -1); /* put already */
    assert_int_equal(rdzv_put(r, 1, 2, "c", big, 1, &e), -1); /* rank 2 of 2 */
    assert_int_equal(rdzv_enter(r, 1, 2, &e), -1);
    assert_int_equal(rdzv_enter(r, 1, 1, &e), 0);
    assert_int_equal(rdzv_enter(r, 1, 1, &e), -1); /* twice */
    assert_int_equal(e.kind, ERR_PROTOCOL);
    for (int i = 2; i < RDZV_KEYS_PER_RANK; i++) {
        (void)snprintf(key, sizeof key, "n%d", i);
        assert_int_equal(rdzv_put(r, 1, 0, key, "", 0, &e), 0);
    }
    assert_int_equal(rdzv_put(r, 1, 0, "more", "", 0, &e), -1);
    assert_int_equal(rdzv_put(r, 1, 1, "more", "", 0, &e), 0); /* the cap is each rank's */
    for (int i = 0; i < RDZV_KEYS_PER_RANK + 2; i++)
        assert_int_equal(rdzv_get(r, 1, 0, "a", &e), 0);
    assert_int_equal(rdzv_get(r, 1, 0, "a", &e), -1);
    expect(&b, "");
}

struct tally {
    uint32_t released, right, wrong;
};

static void count_reply(void *ctx, uint32_t rank, enum rdzv_reply_kind kind, const char *key,
                        const void *val, size_t len)
{
    struct tally *t = ctx;
    (void)rank;
    t->released += kind == RDZV_RELEASED;
    if (key && kind == RDZV_VALUE && len == strlen(key) && memcmp(key, val, len) == 0)
        t->right++;
    else if (key)
        t->wrong++;
}

static void many_keys(void **state)
{
    (void)state;
    enum { WORLD = 200, KEYS = 20 };
    struct tally t = {0};
    AUTO(rdzv) struct rdzv *r = rdzv_new(WORLD, count_reply, &t);
    struct err e;
    char key[32];
    for (uint32_t gen = 1; gen < 4; gen++) {
        t = (struct tally){0};
        assert_int_equal(rdzv_open(r, gen, &e), 0);
        for (uint32_t i = 0; i < WORLD; i++) {
            for (int k = 0; k < KEYS; k++) {
                (void)snprintf(key, sizeof key, "addr/%u/%d", i, k);
                assert_int_equal(rdzv_put(r, gen, i, key, key, strlen(key), &e), 0);
                assert_int_equal(rdzv_get(r, gen, WORLD - 1 - i, key, &e), 0);
            }
            assert_int_equal(rdzv_enter(r, gen, i, &e), 0);
        }
        assert_int_equal(t.released, WORLD);
        assert_int_equal(t.right, WORLD * KEYS);
        assert_int_equal(t.wrong, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barrier_answers_gets),
        cmocka_unit_test(generation_voids_the_one_before),
        cmocka_unit_test(refuses),
        cmocka_unit_test(many_keys),
    };
    return cmocka_run_group_tests_name("rdzv", tests, NULL, NULL);
}
