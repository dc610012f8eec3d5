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
#include "worker/data/shard.h"

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

/* A shard of n tokens, first + 7 i; `head` may differ from what is right. */
static void put_shard(const char *dir, const char *name, const uint32_t head[3], uint32_t width,
                      size_t n, uint32_t first, size_t more)
{
    char path[128];
    uint8_t raw[SHARD_HEADER_BYTES + 400] = {0};
    for (uint32_t i = 0; i < 12; i++)
        raw[i] = (uint8_t)(head[i / 4] >> 8 * (i % 4));
    for (size_t i = 0; i < n * width; i++)
        raw[SHARD_HEADER_BYTES + i] =
            (uint8_t)((first + 7 * (uint32_t)(i / width)) >> 8 * (i % width));
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(io_replace_file(path, raw, SHARD_HEADER_BYTES + n * width + more, NULL),
                     0);
}

static void use_shards(struct fixture *f)
{
    f->s.data.kind = DATA_SHARDS;
    f->s.data.validation.files = f->none;
    f->s.model.vocab = 70000;
    free(f->train[0]);
    f->train[0] = xstrdup("*.bin");
}

static void shards(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    int32_t ids[8], targets[8];
    use_shards(f);
    put_shard(f->dir, "a.bin", (uint32_t[]){20240520, 1, 20}, 2, 20, 50000, 0);
    put_shard(f->dir, "b.bin", (uint32_t[]){20240801, 7, 17}, 4, 17, 68000, 0);
    put_shard(f->dir, "c.bin", (uint32_t[]){20240520, 1, 1}, 2, 1, 1, 0);
    AUTO(data) struct data *d = data_open(&f->s, &e);
    assert_non_null(d);
    assert_int_equal(data_windows(d), 3 + 2);
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(data_train(d, i, ids, targets, &e), 0);
        uint32_t n = data_train_count(d, i);
        uint32_t base = ids[0] < 68000 ? 50000 : 68000;
        assert_int_equal((ids[0] - base) % 56, 0);
        for (uint32_t k = 0; k < 8; k++) {
            assert_int_equal(ids[k], k <= n ? ids[0] + 7 * (int32_t)k : 0);
            assert_int_equal(targets[k], k < n ? ids[k] + 7 : -1);
        }
        assert_true(n == 8 || (n == 3 && ids[0] == 50000 + 112));
    }
    f->s.model.vocab = 68000 + 7 * 16; /* the last token of b */
    AUTO(data) struct data *less = data_open(&f->s, &e);
    assert_non_null(less);
    int bad = 0;
    for (uint64_t i = 0; i < 5; i++)
        bad += data_train(less, i, ids, targets, &e) < 0;
    assert_int_equal(bad, 1);
    assert_int_equal(e.kind, ERR_STORAGE);
    assert_non_null(strstr(e.text, "b.bin: token 16 is 68112, model.vocab is 68112"));
}

static void bad_shards_are_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        uint32_t head[3], width;
        size_t n, more;
        const char *what;
    } bad[] = {
        {{20240521, 1, 9}, 2, 9, 0, "magic number 20240521"},
        {{20240520, 2, 9}, 2, 9, 0, "version 2, not 1"},
        {{20240801, 1, 9}, 4, 9, 0, "version 1, not 7"},
        {{20240520, 1, 10}, 2, 9, 0, "1042 bytes, its header makes 1044"},
        {{20240520, 1, 9}, 2, 9, 1, "1043 bytes, its header makes 1042"},
        {{20240801, 7, 9}, 2, 9, 0, "1042 bytes, its header makes 1060"},
        {{20240520, 1, 0xffffffff}, 2, 9, 0, "4294967295 tokens"},
    };
    use_shards(f);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = {0};
        put_shard(f->dir, "a.bin", bad[i].head, bad[i].width, bad[i].n, 0, bad[i].more);
        assert_null(data_open(&f->s, &e));
        assert_int_equal(e.kind, ERR_STORAGE);
        assert_non_null(strstr(e.text, "a.bin"));
        assert_non_null(strstr(e.text, bad[i].what));
    }
    struct err e = {0};
    put(f->dir, "a.bin", 200, 'a');
    assert_null(data_open(&f->s, &e));
    assert_non_null(strstr(e.text, "not a token shard: 200 bytes"));
}

/* No bit of the fields, and no other size, is taken for another shard. */
static void a_flipped_bit_is_seen(void **state)
{
    (void)state;
    for (int bit = 0; bit < 96; bit++) {
        uint8_t head[SHARD_HEADER_BYTES] = {0x88, 0xd8, 0x34, 0x01, 1, 0, 0, 0, 9};
        struct shard s;
        assert_int_equal(shard_parse(head, SHARD_HEADER_BYTES + 18, &s, NULL), 0);
        assert_true(s.width == 2 && s.tokens == 9);
        assert_int_equal(shard_parse(head, SHARD_HEADER_BYTES + 17, &s, NULL), -1);
        head[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(shard_parse(head, SHARD_HEADER_BYTES + 18, &s, NULL), -1);
    }
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
        cmocka_unit_test_setup_teardown(shards, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_shards_are_refused, setup, teardown),
        cmocka_unit_test(a_flipped_bit_is_seen),
    };
    return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}
