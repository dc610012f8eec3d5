/* Sockets and folders: private, short enough, and gone with their last user. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/own.h"
#include "launcher/boot/paths.h"

static int setup(void **state)
{
    char *dir = xstrdup("/tmp/dspaths-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
    (void)setenv("XDG_RUNTIME_DIR", dir, 1);
    (void)unsetenv("DSLAUNCH_HOME");
    (void)unsetenv("XDG_STATE_HOME");
    *state = dir;
    return 0;
}

static int teardown(void **state)
{
    (void)io_remove_tree(*state, NULL);
    free(*state);
    return 0;
}

/* Listens in the job's folder and stops again; -1: it could not. */
static int visit(const char *job, struct err *e)
{
    AUTO_FREE char *path = paths_agent_socket(job, 7, e);
    AUTO_CLOSE int fd = path ? paths_listen(job, path, e) : -1;
    return fd < 0 ? -1 : unlink(path);
}

static void test_run_dir(void **state)
{
    struct err e;
    struct stat st;
    AUTO_FREE char *dir = paths_run_dir("job-1", &e);
    AUTO_FREE char *want = xasprintf("%s/dslaunch/job-1", (char *)*state);
    assert_string_equal(dir, want);
    assert_int_equal(access(dir, F_OK), -1); /* a name only */
    assert_int_equal(visit("job-1", &e), 0);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(chmod(dir, 0755), 0); /* ours, but open: closed again */
    assert_int_equal(visit("job-1", &e), 0);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    paths_sweep("job-1");
    assert_int_equal(access(dir, F_OK), -1);
    assert_int_equal(rmdir(*state), 0); /* and the root is gone too */
    assert_int_equal(mkdir(*state, 0700), 0);
}

static void test_not_a_folder(void **state)
{
    struct err e;
    AUTO_FREE char *root = xasprintf("%s/dslaunch", (char *)*state);
    AUTO_FREE char *link = xasprintf("%s/job", root);
    assert_int_equal(mkdir(root, 0700), 0);
    assert_int_equal(symlink("/tmp", link), 0); /* somebody's trap */
    assert_int_equal(visit("job", &e), -1);
    assert_non_null(strstr(e.text, "not a folder of this user"));
}

static void test_someone_elses(void **state)
{
    struct err e;
    AUTO_FREE char *root = xasprintf("%s/dslaunch", (char *)*state);
    if (geteuid() != 0)
        skip();
    assert_int_equal(mkdir(root, 0777), 0);
    assert_int_equal(chown(root, 12345, 12345), 0);
    assert_int_equal(visit("job", &e), -1);
}

static void test_names(void **state)
{
    static const char *const bad[] = {"",  "..",  "a/b", "-x",
                                      "A", "x y", "a.b", "aaaaaaaaaabbbbbbbbbbccccccccccddd"};
    struct err e;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(paths_run_dir(bad[i], &e));
        assert_null(paths_agent_socket(bad[i], 1, &e));
        assert_null(paths_state_dir(bad[i], &e));
    }
}

static void test_short_enough(void **state)
{
    struct err e;
    struct sockaddr_un a;
    (void)setenv("XDG_RUNTIME_DIR",
                 "/tmp/a-very-long-path/that-would-not-fit/into-a-socket-name", 1);
    AUTO_FREE char *p = paths_agent_socket("aaaaaaaaaabbbbbbbbbbccccccccccdd", UINT32_MAX, &e);
    assert_true(strlen(p) < sizeof a.sun_path);
    assert_memory_equal(p, "/tmp/dslaunch-", 14);
    (void)setenv("XDG_RUNTIME_DIR", *state, 1);
}

static void test_state(void **state)
{
    struct err e;
    (void)state;
    (void)setenv("HOME", "/home/u", 1);
    AUTO_FREE char *a = paths_state_dir("j", &e);
    assert_string_equal(a, "/home/u/.local/state/dslaunch/j");
    (void)setenv("XDG_STATE_HOME", "/s", 1);
    AUTO_FREE char *b = paths_state_dir("j", &e);
    assert_string_equal(b, "/s/dslaunch/j");
    (void)setenv("DSLAUNCH_HOME", "/h", 1);
    AUTO_FREE char *c = paths_state_dir("j", &e);
    assert_string_equal(c, "/h/j");
    (void)setenv("DSLAUNCH_HOME", "relative", 1);
    assert_null(paths_state_dir("j", &e));
}

static void test_sockets(void **state)
{
    struct err e;
    struct stat st;
    (void)state;
    AUTO_FREE char *dir = paths_run_dir("job", &e);
    AUTO_FREE char *live = paths_agent_socket("job", 0, &e);
    AUTO_FREE char *dead = paths_agent_socket("job", 1, &e);
    AUTO_FREE char *secret = paths_secret("job", &e);
    AUTO_FREE char *rdzv = paths_rdzv("job", &e);
    assert_int_equal(paths_connect(live, &e), -1);
    assert_int_equal(e.kind, ERR_NETWORK);
    int a = paths_listen("job", live, &e), b = paths_listen("job", dead, &e);
    assert_true(a >= 0 && b >= 0);
    assert_int_equal(io_replace_file(secret, "s", 1, &e), 0);
    assert_int_equal(io_replace_file(rdzv, "r", 1, &e), 0);
    assert_int_equal(stat(live, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(paths_listen("job", live, &e), -1); /* someone listens */
    assert_int_equal(e.kind, ERR_USAGE);
    (void)close(b);
    paths_sweep("job"); /* takes the dead one only */
    assert_int_equal(access(live, F_OK), 0);
    assert_int_equal(access(dead, F_OK), -1);
    assert_int_equal(access(secret, F_OK), 0); /* whoever lives may need it */
    (void)close(a);
    a = paths_listen("job", live, &e); /* over a dead one */
    assert_true(a >= 0);
    (void)close(a);
    paths_sweep("job");
    assert_int_equal(access(dir, F_OK), -1);
    paths_sweep("job"); /* nothing there: fine */
}

/* One who is too busy to accept is not dead. */
static void test_full_queue(void **state)
{
    struct err e;
    int peers[256], n = 0;
    (void)state;
    AUTO_FREE char *path = paths_agent_socket("job", 0, &e);
    AUTO_CLOSE int a = paths_listen("job", path, &e);
    while (n < 256 && (peers[n] = paths_connect(path, &e)) >= 0)
        n++;
    assert_in_range(n, 1, 255);
    assert_int_equal(paths_listen("job", path, &e), -1);
    assert_int_equal(e.kind, ERR_USAGE);
    paths_sweep("job");
    assert_int_equal(access(path, F_OK), 0);
    AUTO_CLOSE int one = paths_accept(a);
    assert_true(one >= 0);
    while (n)
        (void)close(peers[--n]);
}

static void test_program(void **state)
{
    struct err e;
    (void)state;
    (void)setenv("DSLAUNCH_WORKER", "relative/worker", 1);
    assert_null(paths_program("DSLAUNCH_WORKER", "dsworker", &e));
    assert_int_equal(e.kind, ERR_USAGE);
    (void)setenv("DSLAUNCH_WORKER", "/my/worker", 1);
    AUTO_FREE char *given = paths_program("DSLAUNCH_WORKER", "dsworker", &e);
    assert_string_equal(given, "/my/worker");
    (void)unsetenv("DSLAUNCH_WORKER");
    AUTO_FREE char *beside = paths_program("DSLAUNCH_WORKER", "test_boot_paths", &e);
    assert_int_equal(access(beside, X_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_run_dir, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_a_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_someone_elses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_short_enough, setup, teardown),
        cmocka_unit_test_setup_teardown(test_state, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sockets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_queue, setup, teardown),
        cmocka_unit_test_setup_teardown(test_program, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
