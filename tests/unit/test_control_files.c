/* Locks, logs, the rendezvous log, the secret and metrics: what of a job lies on disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/link/linkline.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/joblock.h"
#include "launcher/record/metrics.h"
#include "launcher/record/ranklog.h"
#include "launcher/record/rdzvlog.h"
#include "launcher/record/secret.h"

static char dir[64];
static char path[96];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/dslaunch-test-files-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/file", dir);
    return setenv("DSLAUNCH_HOME", dir, 1);
}

static int teardown(void **state)
{
    (void)state;
    return io_remove_tree(dir, NULL);
}

/* The lock passes to a child that inherited it, and is free when that has died. */
static void lock_is_inherited_and_dies_with_its_holder(void **state)
{
    struct joblock_holder h;
    struct err e;
    int fd = -1, other = -1, gate[2];
    (void)state;
    assert_int_equal(joblock_look(path, &h, &e), JOBLOCK_FREE);
    assert_int_equal(joblock_take(path, &fd, &h, &e), JOBLOCK_FREE);
    assert_int_equal(joblock_say(fd, "/run/control.sock", &e), 0);
    assert_int_equal(joblock_take(path, &other, &h, &e), JOBLOCK_HELD);
    assert_int_equal(h.pid, getpid());
    assert_string_equal(h.control, "/run/control.sock");
    assert_int_equal(pipe(gate), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char c;
        (void)close(gate[1]);
        _exit(read(gate[0], &c, 1) == 0 ? 0 : 1);
    }
    (void)close(fd);
    assert_int_equal(joblock_look(path, &h, &e), JOBLOCK_HELD);
    (void)close(gate[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(gate[0]);
    assert_int_equal(joblock_look(path, &h, &e), JOBLOCK_FREE);
    assert_int_equal(joblock_take(path, &fd, &h, &e), JOBLOCK_FREE);
    (void)close(fd);
}

static void lock_of_another_host_is_refused(void **state)
{
    static const char text[] =
        "{\"host\":\"elsewhere\",\"pid\":7,\"boot_id\":\"b\",\"control\":\"c\"}";
    struct joblock_holder h;
    struct err e;
    int fd = -1;
    (void)state;
    assert_int_equal(io_replace_file(path, text, sizeof(text) - 1, &e), 0);
    assert_int_equal(joblock_take(path, &fd, &h, &e), JOBLOCK_ERROR);
    assert_int_equal(e.kind, ERR_USAGE);
    assert_non_null(strstr(e.text, "elsewhere"));
}

static void log_takes_each_byte_once(void **state)
{
    uint64_t end = 0;
    size_t n_new = 0;
    struct err e;
    (void)state;
    assert_int_equal(ranklog_write(dir, 2, 5, 0, "abc\n", 4, &end, &n_new, &e), 0);
    assert_int_equal(end, 4);
    assert_int_equal(ranklog_write(dir, 2, 5, 2, "c\ndef\n", 6, &end, &n_new, &e), 0);
    assert_int_equal(end, 8);
    assert_int_equal(n_new, 4);
    assert_int_equal(ranklog_write(dir, 2, 5, 0, "abc\n", 4, &end, &n_new, &e), 0);
    assert_int_equal(end, 8);
    assert_int_equal(n_new, 0);
    assert_int_equal(ranklog_write(dir, 2, 5, 9, "x\n", 2, &end, &n_new, &e), -1);
    assert_int_equal(e.kind, ERR_PROTOCOL);
    assert_int_equal(ranklog_length(dir, 2, 5), 8);
    assert_int_equal(ranklog_length(dir, 3, 5), 0);
    AUTO_BUF struct buf b = BUF(1 << 10);
    assert_int_equal(ranklog_tail(dir, 2, 5, 1, &b, &e), 0);
    assert_string_equal(buf_str(&b), "def\n");
    buf_clear(&b);
    assert_int_equal(ranklog_tail(dir, 2, 5, 50, &b, &e), 0);
    assert_string_equal(buf_str(&b), "abc\ndef\n");
    buf_clear(&b);
    assert_int_equal(ranklog_tail(dir, 9, 9, 5, &b, &e), 0);
    assert_int_equal(b.len, 0);
}

static int collect(void *ctx, uint32_t rank, const char *key, const void *val, size_t len,
                   struct err *e)
{
    (void)e;
    return buf_printf(ctx, "%u %s %.*s;", rank, key, (int)len, (const char *)val);
}

static void rendezvous_log_survives_a_torn_end(void **state)
{
    struct err e;
    (void)state;
    {
        AUTO(rdzvlog) struct rdzvlog *l = rdzvlog_new(path, 4, &e);
        assert_int_equal(rdzvlog_put(l, 1, "addr/1", "here", 4, &e), 0);
        assert_int_equal(rdzvlog_put(l, 2, "none", "", 0, &e), 0);
    }
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "3 torn 00", 9), 9);
    assert_null(rdzvlog_resume(path, 5, collect, NULL, &e));
    assert_int_equal(e.kind, ERR_PROTOCOL);
    for (int again = 0; again < 2; again++) {
        AUTO_BUF struct buf got = BUF(1 << 10);
        AUTO(rdzvlog) struct rdzvlog *l = rdzvlog_resume(path, 4, collect, &got, &e);
        assert_non_null(l);
        assert_string_equal(buf_str(&got), again ? "1 addr/1 here;2 none ;3 late x;"
                                                 : "1 addr/1 here;2 none ;");
        if (!again)
            assert_int_equal(rdzvlog_put(l, 3, "late", "x", 1, &e), 0);
    }
}

static void secret_is_private(void **state)
{
    uint8_t a[SECRET_BYTES], b[SECRET_BYTES];
    struct stat st;
    struct err e;
    (void)state;
    assert_int_equal(secret_make(path, a, &e), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(secret_read(path, b, &e), 0);
    assert_memory_equal(a, b, SECRET_BYTES);
    assert_int_equal(secret_make(path, b, &e), 0);
    assert_memory_not_equal(a, b, SECRET_BYTES);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(secret_read(path, b, &e), -1);
}

static int from_line(const char *text, struct metrics *m, struct buf *json, struct err *e)
{
    AUTO_FREE char *copy = strdup(text);
    struct link_line l;
    if (link_line_parse(copy, &l, e) < 0)
        return -1;
    return metrics_from_line(&l, 3, m, json, e);
}

static void metrics_go_there_and_back(void **state)
{
    AUTO_BUF struct buf json = BUF(1 << 12);
    struct metrics m, back;
    struct err e;
    (void)state;
    assert_int_equal(
        from_line("metrics step=7 loss=2.5 lr=1e-3 grad_norm=nan extra=3", &m, &json, &e), 0);
    assert_string_equal(buf_str(&json), "{\"step\":7,\"generation\":3,\"loss\":2.5,\"lr\":1e-3,"
                                        "\"grad_norm\":null,\"extra\":3}");
    assert_int_equal(metrics_from_json(buf_str(&json), &back, &e), 0);
    assert_int_equal(back.step, 7);
    assert_int_equal(back.generation, 3);
    assert_float_equal(back.loss, 2.5, 0);
    assert_true(isnan(back.grad_norm) && isnan(back.validation_loss));
    assert_int_equal(from_line("metrics loss=2", &m, &json, &e), -1);
    assert_int_equal(from_line("metrics step=1 loss=two", &m, &json, &e), -1);
    assert_int_equal(from_line("metrics step=1 loss=0x10", &m, &json, &e), -1);
    assert_int_equal(from_line("metrics step=1 loss=1,\"x\":2", &m, &json, &e), -1);
    assert_int_equal(e.kind, ERR_PROTOCOL);
}

static void last_step_and_last_validation_are_found(void **state)
{
    static const char text[] = "{\"step\":1,\"loss\":3}\n{\"step\":1,\"validation_loss\":4}\n"
                               "{\"step\":2,\"loss\":2}\n{\"step\":3,\"lo";
    struct metrics m;
    struct err e;
    (void)state;
    assert_int_equal(metrics_last(path, &m, &e), 0);
    assert_int_equal(m.step, 0);
    assert_true(isnan(m.loss));
    assert_int_equal(io_replace_file(path, text, sizeof(text) - 1, &e), 0);
    assert_int_equal(metrics_last(path, &m, &e), 0);
    assert_int_equal(m.step, 2);
    assert_float_equal(m.loss, 2, 0);
    assert_float_equal(m.validation_loss, 4, 0);
    assert_int_equal(m.validated, 1);
}

static struct metrics of(uint64_t step, uint32_t generation, bool validation)
{
    return (struct metrics){.step = step,
                            .generation = generation,
                            .loss = validation ? NAN : 1,
                            .validation_loss = validation ? 2 : NAN,
                            .validated = validation ? step : 0};
}

static void what_was_said_is_known(void **state)
{
    static const struct {
        uint64_t step;
        uint32_t generation;
        bool validation, known;
    } said[] = {
        {1, 1, false, false}, {2, 1, false, false}, {2, 1, true, false},  {1, 1, false, true},
        {2, 1, false, true},  {2, 1, true, true},   {3, 1, false, false}, {2, 2, false, false},
        {2, 2, true, false},  {2, 2, true, true},   {3, 2, true, false},
    };
    struct metrics last = of(0, 0, true);
    (void)state;
    last.validated = 0;
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        struct metrics m = of(said[i].step, said[i].generation, said[i].validation);
        if (metrics_known(&last, &m) != said[i].known)
            fail_msg("case %zu", i);
        if (!said[i].known)
            metrics_follow(&last, &m);
    }
}

static void touch_job(const char *job)
{
    AUTO(jobdir) struct jobdir *d = jobdir_new(job, NULL);
    assert_int_equal(jobdir_make(d, NULL), 0);
    assert_int_equal(io_replace_file(d->journal, "", 0, NULL), 0);
}

static void a_job_is_found_without_its_name(void **state)
{
    struct joblock_holder h;
    struct err e;
    bool none = false;
    int fd_a = -1, fd_b = -1;
    (void)state;
    assert_null(jobdir_find(NULL, &none, &e));
    assert_true(none);
    assert_null(jobdir_find("../etc", &none, &e));
    assert_false(none);
    touch_job("a");
    touch_job("b");
    AUTO(jobdir) struct jobdir *newest = jobdir_find(NULL, &none, &e);
    assert_string_equal(newest->name, "b");
    AUTO(jobdir) struct jobdir *a = jobdir_new("a", &e);
    assert_int_equal(joblock_take(a->lock, &fd_a, &h, &e), JOBLOCK_FREE);
    AUTO(jobdir) struct jobdir *live = jobdir_find(NULL, &none, &e);
    assert_string_equal(live->name, "a");
    assert_int_equal(joblock_take(newest->lock, &fd_b, &h, &e), JOBLOCK_FREE);
    assert_null(jobdir_find(NULL, &none, &e));
    assert_false(none);
    assert_non_null(strstr(e.text, "several"));
    (void)close(fd_a);
    (void)close(fd_b);
}

static void put_aside_moves_all_but_the_lock(void **state)
{
    char ck[128], step[160], old[192];
    AUTO_BUF struct buf to = BUF(1 << 16);
    struct stat st;
    struct err e;
    (void)state;
    touch_job("a");
    AUTO(jobdir) struct jobdir *a = jobdir_new("a", &e);
    assert_int_equal(io_replace_file(a->lock, "", 0, &e), 0);
    (void)snprintf(ck, sizeof(ck), "%s/ck", dir);
    (void)snprintf(step, sizeof(step), "%s/step-1", ck);
    for (int n = 1; n <= 2; n++) {
        assert_int_equal(io_mkdirs(step, 0700, &e), 0);
        assert_int_equal(jobdir_put_aside(a, ck, &to, &e), 0);
        (void)snprintf(old, sizeof(old), "  %s.old-%d\n", ck, n);
        assert_non_null(strstr(buf_str(&to), old));
        (void)snprintf(old, sizeof(old), "%s.old-%d/step-1", ck, n);
        assert_int_equal(stat(old, &st), 0);
        assert_int_equal(stat(step, &st), -1);
        assert_int_equal(stat(a->lock, &st), 0);
        assert_int_equal(stat(a->journal, &st), -1);
    }
    (void)snprintf(old, sizeof(old), "%s/a.old-1/journal.jsonl", dir);
    assert_int_equal(stat(old, &st), 0);
    buf_clear(&to);
    assert_int_equal(jobdir_put_aside(a, ck, &to, &e), 0); /* nothing to move: nothing made */
    assert_int_equal(to.len, 0);
    (void)snprintf(old, sizeof(old), "%s.old-3", ck);
    assert_int_equal(stat(old, &st), -1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(lock_is_inherited_and_dies_with_its_holder),
        T(lock_of_another_host_is_refused),
        T(log_takes_each_byte_once),
        T(rendezvous_log_survives_a_torn_end),
        T(secret_is_private),
        T(metrics_go_there_and_back),
        T(last_step_and_last_validation_are_found),
        T(what_was_said_is_known),
        T(a_job_is_found_without_its_name),
        T(put_aside_moves_all_but_the_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
