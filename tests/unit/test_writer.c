/* Checkpoints on disk: what is committed is whole, what is not is never under its name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/own.h"
#include "launcher/agent/writer.h"
#include "tests/unit/uvwait.h"

enum { BYTES = 5 << 20, WORLD = 3 };
static const char manifest[] = "{\"step\": 1}";

struct bed {
    char dir[64], ckpt[80];
    uv_loop_t loop;
    struct writer *w;
    int fds[WORLD];
    uint8_t digests[WORLD][16];
    int shards, commits, failures, results;
    char text[ERR_TEXT_MAX];
};

static void on_result(void *ctx, const struct writer_result *r)
{
    struct bed *b = ctx;
    b->results++;
    if (r->why) {
        b->failures++;
        (void)snprintf(b->text, sizeof b->text, "%s", r->why->text);
    } else if (r->task == WRITER_COMMIT) {
        b->commits++;
    } else if (r->task == WRITER_SHARD) {
        b->shards++;
    }
}

static int setup(void **state)
{
    struct bed *b = calloc(1, sizeof *b);
    AUTO_FREE uint8_t *bytes = malloc(BYTES);
    (void)snprintf(b->dir, sizeof b->dir, "/tmp/dswriter-test-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    (void)snprintf(b->ckpt, sizeof b->ckpt, "%s/a/ckpt", b->dir);
    assert_int_equal(uv_loop_init(&b->loop), 0);
    b->w = writer_new(&b->loop, on_result, b);
    for (int r = 0; r < WORLD; r++) {
        XXH128_canonical_t c;
        for (size_t i = 0; i < BYTES; i++)
            bytes[i] = (uint8_t)(i * 7 + i / 1000 + (size_t)r);
        b->fds[r] = memfd_create("snapshot", MFD_CLOEXEC);
        assert_int_equal(write(b->fds[r], bytes, BYTES), BYTES);
        assert_int_equal(pwrite(b->fds[r], manifest, sizeof manifest - 1, BYTES),
                         sizeof manifest - 1);
        XXH128_canonicalFromHash(&c, XXH3_128bits(bytes, BYTES));
        memcpy(b->digests[r], c.digest, 16);
    }
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bed *b = *state;
    writer_free(b->w);
    (void)uv_run(&b->loop, UV_RUN_DEFAULT);
    int r = uv_loop_close(&b->loop);
    for (int i = 0; i < WORLD; i++)
        (void)close(b->fds[i]);
    (void)io_remove_tree(b->dir, NULL);
    free(b);
    return r;
}

static struct writer_job job(const struct bed *b, uint32_t rank, uint64_t step, uint32_t gen)
{
    struct writer_job j = {.dir = b->ckpt,
                           .fd = b->fds[rank],
                           .rank = rank,
                           .world = WORLD,
                           .generation = gen,
                           .keep = 2,
                           .step = step,
                           .bytes = BYTES};
    memcpy(j.digest, b->digests[rank], 16);
    return j;
}

static struct writer_job commit_job(const struct bed *b, uint64_t step, uint32_t gen)
{
    struct writer_job j = job(b, 0, step, gen);
    j.offset = BYTES;
    j.bytes = sizeof manifest - 1;
    return j;
}

static bool idle(void *ctx)
{
    return writer_idle(((struct bed *)ctx)->w);
}

static void save(struct bed *b, uint64_t step, uint32_t gen)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        struct writer_job j = job(b, r, step, gen);
        writer_shard(b->w, &j);
    }
    assert_true(uvwait(&b->loop, idle, b, 20000));
    struct writer_job c = commit_job(b, step, gen);
    writer_commit(b->w, &c);
    assert_true(uvwait(&b->loop, idle, b, 20000));
}

static bool exists(const struct bed *b, const char *name)
{
    AUTO_FREE char *path = xasprintf("%s/%s", b->ckpt, name);
    return access(path, F_OK) == 0;
}

static int entries(const struct bed *b)
{
    DIR *d = opendir(b->ckpt);
    int n = -2; /* . and .. */
    while (d && readdir(d))
        n++;
    if (d)
        (void)closedir(d);
    return n;
}

static void test_whole(void **state)
{
    struct bed *b = *state;
    save(b, 100, 3);
    assert_int_equal(b->shards, WORLD);
    assert_int_equal(b->commits, 1);
    assert_int_equal(b->failures, 0);
    assert_int_equal(entries(b), 1);
    AUTO_BUF struct buf got = BUF(BYTES + 1);
    AUTO_FREE char *path = xasprintf("%s/step-00000100-g3/rank-00002.safetensors", b->ckpt);
    AUTO_FREE uint8_t *want = malloc(BYTES);
    struct err e;
    assert_int_equal(io_read_file(path, &got, &e), 0);
    assert_int_equal(got.len, BYTES);
    assert_int_equal(pread(b->fds[2], want, BYTES, 0), BYTES);
    assert_memory_equal(got.data, want, BYTES);
    AUTO_BUF struct buf text = BUF(100);
    AUTO_FREE char *mpath = xasprintf("%s/step-00000100-g3/manifest.json", b->ckpt);
    assert_int_equal(io_read_file(mpath, &text, &e), 0);
    assert_string_equal(buf_str(&text), manifest);
}

static void test_wrong_digest(void **state)
{
    struct bed *b = *state;
    struct writer_job j = job(b, 1, 5, 1);
    j.digest[3] ^= 1;
    writer_shard(b->w, &j);
    assert_true(uvwait(&b->loop, idle, b, 20000));
    assert_int_equal(b->failures, 1);
    assert_non_null(strstr(b->text, "rank 1"));
    assert_false(exists(b, "step-00000005-g1.tmp/rank-00001.safetensors"));
}

/* The memfd is shorter than the worker said. */
static void test_torn(void **state)
{
    struct bed *b = *state;
    struct writer_job j = job(b, 0, 5, 1);
    assert_int_equal(ftruncate(b->fds[0], BYTES / 2), 0);
    writer_shard(b->w, &j);
    assert_true(uvwait(&b->loop, idle, b, 20000));
    assert_int_equal(b->failures, 1);
    assert_false(exists(b, "step-00000005-g1.tmp/rank-00000.safetensors"));
}

static void test_commit_without_a_shard(void **state)
{
    struct bed *b = *state;
    for (uint32_t r = 0; r < WORLD - 1; r++) {
        struct writer_job j = job(b, r, 7, 1);
        writer_shard(b->w, &j);
    }
    assert_true(uvwait(&b->loop, idle, b, 20000));
    struct writer_job c = commit_job(b, 7, 1);
    writer_commit(b->w, &c);
    assert_true(uvwait(&b->loop, idle, b, 20000));
    assert_int_equal(b->failures, 1);
    assert_non_null(strstr(b->text, "rank-00002"));
    assert_false(exists(b, "step-00000007-g1"));
}

static void test_disk_error(void **state)
{
    struct bed *b = *state;
    struct rlimit was, small = {BYTES / 2, BYTES / 2};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small.rlim_max = was.rlim_max;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct writer_job j = job(b, 0, 9, 1);
    writer_shard(b->w, &j);
    bool ended = uvwait(&b->loop, idle, b, 20000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_true(ended);
    assert_int_equal(b->failures, 1);
    assert_non_null(strstr(b->text, "File too large"));
    assert_false(exists(b, "step-00000009-g1.tmp/rank-00000.safetensors"));
    save(b, 9, 1); /* and it works again once there is room */
    assert_int_equal(b->commits, 1);
}

static void test_prune(void **state)
{
    struct bed *b = *state;
    struct err e;
    AUTO_FREE char *stale = xasprintf("%s/step-00000300-g1.tmp/x", b->ckpt);
    AUTO_FREE char *half = xasprintf("%s/step-00000050-g1.del/x", b->ckpt);
    AUTO_FREE char *users = xasprintf("%s/step-by-step.txt/step-1-g1", b->ckpt);
    AUTO_FREE char *newer = xasprintf("%s/step-00000700-g3.tmp", b->ckpt);
    save(b, 100, 1);
    save(b, 200, 1);
    assert_int_equal(io_mkdirs(stale, 0755, &e), 0);
    assert_int_equal(io_mkdirs(half, 0755, &e), 0);
    assert_int_equal(io_mkdirs(users, 0755, &e), 0);
    assert_int_equal(io_mkdirs(newer, 0755, &e), 0);
    save(b, 300, 1);
    assert_true(exists(b, "step-00000300-g1") && exists(b, "step-00000200-g1"));
    assert_false(exists(b, "step-00000100-g1"));
    assert_false(exists(b, "step-00000050-g1.del"));
    /* Generation 2 went on from 200 (300 could not be read): 250 is newer than 300. */
    save(b, 250, 2);
    save(b, 260, 2);
    assert_true(exists(b, "step-00000250-g2") && exists(b, "step-00000260-g2"));
    assert_false(exists(b, "step-00000300-g1"));
    assert_true(exists(b, "step-00000700-g3.tmp")); /* of a generation we do not know */
    assert_true(exists(b, "step-by-step.txt/step-1-g1"));
    assert_int_equal(entries(b), 4);
    assert_int_equal(b->failures, 0);
}

/* Even keep 0 (a bug elsewhere) leaves what was just committed. */
static void test_prune_keeps_last(void **state)
{
    struct bed *b = *state;
    struct err e;
    AUTO_FREE char *path = NULL;
    struct writer_job c = commit_job(b, 20, 1);
    save(b, 10, 1);
    for (uint32_t r = 0; r < WORLD; r++) {
        struct writer_job j = job(b, r, 20, 1);
        writer_shard(b->w, &j);
    }
    assert_true(uvwait(&b->loop, idle, b, 20000));
    c.keep = 0;
    assert_int_equal(writer_do_commit(&c, &path, &e), 0);
    assert_true(exists(b, "step-00000020-g1"));
    assert_int_equal(entries(b), 1);
}

static void test_said_twice(void **state)
{
    struct bed *b = *state;
    struct stat before, after;
    AUTO_FREE char *path = xasprintf("%s/step-00000010-g1/manifest.json", b->ckpt);
    save(b, 10, 1);
    assert_int_equal(stat(path, &before), 0);
    save(b, 10, 1);
    assert_int_equal(b->commits, 2);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino); /* committed once, never replaced */
    assert_int_equal(entries(b), 1);
}

/* Two steps in flight at once, as two nodes' agents and two slots make them. */
static void test_concurrent(void **state)
{
    struct bed *b = *state;
    struct writer *other = writer_new(&b->loop, on_result, b);
    for (uint64_t step = 1; step <= 2; step++) {
        for (uint32_t r = 0; r < WORLD; r++) {
            struct writer_job j = job(b, r, step, 1);
            writer_shard(r == 1 ? other : b->w, &j);
        }
    }
    int64_t until = clock_now_ns() + 20 * NS_PER_S;
    while (b->shards < 2 * WORLD && clock_now_ns() < until)
        (void)uv_run(&b->loop, UV_RUN_ONCE);
    for (uint64_t step = 1; step <= 2; step++) {
        struct writer_job c = commit_job(b, step, 1);
        writer_commit(b->w, &c);
    }
    assert_true(uvwait(&b->loop, idle, b, 20000));
    writer_free(other);
    assert_int_equal(b->failures, 0);
    assert_int_equal(b->commits, 2);
    assert_int_equal(entries(b), 2);
}

static void test_cancel(void **state)
{
    struct bed *b = *state;
    _Atomic bool stop = true;
    AUTO_FREE char *path = NULL;
    struct err e;
    struct writer_job j = job(b, 0, 1, 1);
    assert_int_equal(writer_do_shard(&j, &stop, &path, &e), -1);
    assert_int_equal(e.kind, ERR_STOPPED);
    assert_false(exists(b, "step-00000001-g1.tmp/rank-00000.safetensors"));
    writer_shard(b->w, &j);
    writer_cancel(b->w); /* no result comes, whether it was done or not */
    assert_true(uvwait(&b->loop, idle, b, 20000));
    assert_int_equal(b->results, 0);
    writer_tidy(b->w, &j);
    assert_true(uvwait(&b->loop, idle, b, 20000));
    assert_int_equal(entries(b), 0);
    save(b, 2, 2); /* what comes after is not cancelled */
    assert_int_equal(b->commits, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_digest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_torn, setup, teardown),
        cmocka_unit_test_setup_teardown(test_commit_without_a_shard, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disk_error, setup, teardown),
        cmocka_unit_test_setup_teardown(test_prune, setup, teardown),
        cmocka_unit_test_setup_teardown(test_prune_keeps_last, setup, teardown),
        cmocka_unit_test_setup_teardown(test_said_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_concurrent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
