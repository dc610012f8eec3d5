/* How failures travel: kinds, prefixes, cuts, and the exit codes they become. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "common/base/err.h"

static void test_set(void **state)
{
    struct err e = {0};
    (void)state;
    assert_int_equal(err_set(&e, ERR_SPEC, "no %s", "name"), -1);
    assert_int_equal(e.kind, ERR_SPEC);
    assert_string_equal(e.text, "no name");
    assert_int_equal(err_wrap(&e, "file %d", 3), -1);
    assert_string_equal(e.text, "file 3: no name");
    assert_int_equal(e.kind, ERR_SPEC);
    errno = ENOENT;
    assert_int_equal(err_sys(&e, "%s", "/x"), -1);
    assert_int_equal(e.kind, ERR_SYSTEM);
    assert_string_equal(e.text, "/x: No such file or directory");
    assert_int_equal(errno, ENOENT);
    errno = EACCES;
    assert_int_equal(err_sys_kind(&e, ERR_STORAGE, "/y"), -1);
    assert_int_equal(e.kind, ERR_STORAGE);
    assert_string_equal(e.text, "/y: Permission denied");
}

static void test_nobody_asks(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, ERR_SPEC, "x"), -1);
    assert_int_equal(err_sys(NULL, "x"), -1);
    assert_int_equal(err_sys_kind(NULL, ERR_STORAGE, "x"), -1);
    assert_int_equal(err_wrap(NULL, "x"), -1);
}

/* Long texts are cut at their end, and stay texts. */
static void test_cut(void **state)
{
    struct err e = {0};
    char big[2 * ERR_TEXT_MAX];
    (void)state;
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    (void)err_set(&e, ERR_RANK, "%s", big);
    assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
    (void)err_wrap(&e, "a");
    assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
    assert_memory_equal(e.text, "a: xxx", 6);
    (void)err_wrap(&e, "%s", big);
    assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
    errno = EIO;
    (void)err_sys(&e, "%s", big);
    assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
    for (int i = 0; i < 2000; i++)
        (void)err_wrap(&e, "%d", i);
    assert_memory_equal(e.text, "1999: 1998: ", 12);
}

static void test_kinds(void **state)
{
    (void)state;
    for (enum err_kind k = ERR_NONE; k < ERR_KIND_COUNT; k++) {
        assert_non_null(err_kind_name(k));
        for (enum err_kind other = ERR_NONE; other < k; other++)
            assert_string_not_equal(err_kind_name(k), err_kind_name(other));
    }
    assert_string_equal(err_kind_name(ERR_KIND_COUNT), "unknown");
    /* Only what went well is exit 0. */
    for (enum err_kind k = ERR_NONE; k < ERR_KIND_COUNT; k++)
        assert_int_equal(err_worker_exit(k) == 0, k == ERR_NONE || k == ERR_STOPPED);
    assert_int_equal(err_worker_exit(ERR_SPEC), 2);
    assert_int_equal(err_worker_exit(ERR_NETWORK), 94);
    assert_int_equal(err_worker_exit(ERR_NUMERIC), 95);
    assert_int_equal(err_worker_exit(ERR_STORAGE), 96);
    assert_int_equal(err_worker_exit(ERR_MEMORY), 97);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_nobody_asks),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
