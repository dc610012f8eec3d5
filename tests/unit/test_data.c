/* data.h: windows, padding, each file once, held-out files taken out, and the shuffle. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/io.h"
#include "common/spec/spec.h"
#include "worker/data/data.h"

struct fixture {
    char dir[64];
    struct spec s;
    char *train[2], *held[2], *none[1];
};

static void put(const char *dir, const char *name, size_t n, char first)
{
    char path[128], text[256];
    for (size_t i = 0; i < n; i++)
        text[i] = (char)(first + (char)(i % 20));
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(io_replace_file(path, text, n, NULL), 0);
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    (void)snprintf(f->dir, sizeof f->dir, "/tmp/ds-data-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    put(f->dir, "a.txt", 21, 'a'); /* 20 targets: windows of 8, 8, 4 */
    put(f->dir, "b.txt", 1, 'b');  /* no target, no window */
    put(f->dir, "c.txt", 17, 'A'); /* two full windows */
    put(f->dir, "held.txt", 12, '0');
    char link[128];
    (void)snprintf(link, sizeof link, "%s/z.txt", f->dir);
    assert_int_equal(symlink("a.txt", link), 0);
    f->s.cluster.workdir = f->dir;
    f->s.train.seq_len = 8;
    f->s.train.seed = 3;
    f->train[0] = xstrdup("*.txt");
    f->held[0] = xstrdup("held.txt");
    f->s.data.files = f->train;
    f->s.data.validation.files = f->held;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    (void)io_remove_tree(f->dir, NULL);
    free(f->train[0]);
    free(f->held[0]);
    free(f);
    return 0;
}

static void windows(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    AUTO(data) struct data *d = data_open(&f->s, &e);
    int32_t ids[8], targets[8];
    uint32_t total = 0, seen = 0;
    assert_non_null(d);
    assert_int_equal(data_windows(d), 5); /* a: 3, c: 2; the link and the held-out file: none */
    assert_int_equal(data_validation_windows(d), 2);
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(data_train(d, i, ids, targets, &e), 0);
        uint32_t n = data_train_count(d, i);
        total += n;
        for (uint32_t k = 0; k < 8; k++) {
            if (k < n)
                assert_true(targets[k] >= 'A' && targets[k] <= 'z');
            else
                assert_int_equal(targets[k], -1);
            assert_int_equal(ids[k], k <= n ? ids[k] : 256);
            if (k + 1 < n)
                assert_int_equal(targets[k], ids[k + 1]);
            if (k > n)
                assert_int_equal(ids[k], 256);
        }
        if (ids[0] == 'a')
            seen++;
    }
    assert_int_equal(total, 20 + 16);
    assert_int_equal(seen, 1);
}

static void every_epoch_is_a_permutation(void **state)
{
    struct fixture *f = *state;
    AUTO(data) struct data *d = data_open(&f->s, NULL);
    int32_t ids[8], targets[8];
    bool differ = false;
    assert_non_null(d);
    for (uint64_t epoch = 0; epoch < 8; epoch++) {
        uint32_t tokens = 0;
        for (uint64_t i = 0; i < 5; i++) {
            assert_int_equal(data_train(d, 5 * epoch + i, ids, targets, NULL), 0);
            tokens += data_train_count(d, 5 * epoch + i);
            differ |= data_train_count(d, 5 * epoch + i) != data_train_count(d, i);
        }
        assert_int_equal(tokens, 36);
    }
    assert_true(differ);
}

static void shuffle_is_a_bijection(void **state)
{
    (void)state;
    static uint8_t hit[5000];
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 17, 255, 256, 257, 4096, 4999};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        memset(hit, 0, sizeof hit);
        uint64_t same = 0;
        for (uint64_t i = 0; i < sizes[k]; i++) {
            uint64_t j = data_shuffle(42, 7, sizes[k], i);
            assert_true(j < sizes[k]);
            assert_int_equal(hit[j]++, 0);
            same += j == i;
        }
        if (sizes[k] > 100)
            assert_true(same < 20);
    }
    assert_int_not_equal(data_shuffle(42, 7, 4999, 1), data_shuffle(43, 7, 4999, 1));
}

/* The order is part of every checkpoint's meaning: it may never change. */
static void shuffle_is_pinned(void **state)
{
    (void)state;
    static const uint64_t want[4] = {251, 1661, 26, 828};
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(data_shuffle(1, 0, 1969, i), want[i]);
}

static void errors_name_the_pattern(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    free(f->train[0]);
    f->train[0] = xstrdup("nothing-*.md");
    assert_null(data_open(&f->s, &e));
    assert_int_equal(e.kind, ERR_SPEC);
    assert_non_null(strstr(e.text, "nothing-*.md"));
    free(f->train[0]);
    f->train[0] = xstrdup("held.txt");
    assert_null(data_open(&f->s, &e));
    assert_non_null(strstr(e.text, "no text left"));
}

static void a_shrunk_file_is_an_error(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    char path[128];
    int32_t ids[8], targets[8];
    AUTO(data) struct data *d = data_open(&f->s, &e);
    int bad = 0;
    assert_non_null(d);
    (void)snprintf(path, sizeof path, "%s/a.txt", f->dir);
    assert_int_equal(truncate(path, 3), 0);
    for (uint64_t i = 0; i < 5; i++)
        bad += data_train(d, i, ids, targets, &e) < 0;
    assert_int_equal(bad, 3);
    assert_int_equal(e.kind, ERR_STORAGE);
    assert_non_null(strstr(e.text, "a.txt"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(windows, setup, teardown),
        cmocka_unit_test_setup_teardown(every_epoch_is_a_permutation, setup, teardown),
        cmocka_unit_test(shuffle_is_a_bijection),
        cmocka_unit_test(shuffle_is_pinned),
        cmocka_unit_test_setup_teardown(errors_name_the_pattern, setup, teardown),
        cmocka_unit_test_setup_teardown(a_shrunk_file_is_an_error, setup, teardown),
    };
    return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}
