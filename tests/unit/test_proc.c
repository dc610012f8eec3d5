/* Workers, keepers and their trees: whatever dies, and however it was forked, nothing is left.
 * The test program is its own keeper (`exec`) and its own worker (FAKE in the environment). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/own.h"
#include "common/link/page.h"
#include "launcher/agent/rank/keeper.h"
#include "launcher/agent/rank/logring.h"
#include "launcher/agent/rank/tree.h"
#include "launcher/agent/rank/workenv.h"
#include "launcher/agent/rank/workers.h"
#include "tests/unit/uvwait.h"

enum { RANKS_MAX = 4 };

struct bed {
    uv_loop_t loop;
    struct workers *w;
    struct proc_exit ends[RANKS_MAX];
    char text[RANKS_MAX][256];
    int ended, started, stuck;
    char self[4096];
    char log[1 << 20]; /* of rank 0 */
    size_t log_len;
};

static void on_started(void *ctx, struct proc *p)
{
    assert_true(proc_pid(p) > 0);
    ((struct bed *)ctx)->started++;
}

static void on_link(void *ctx, struct proc *p, const struct ranklink_event *ev)
{
    (void)ctx, (void)p, (void)ev;
}

static void on_log(void *ctx, struct proc *p)
{
    struct bed *b = ctx;
    const char *at;
    uint64_t offset;
    size_t n;
    while (proc_rank(p) == 0 && (n = logring_next(proc_log(p), &at, &offset)) > 0) {
        assert_int_equal(offset, b->log_len);
        assert_true(b->log_len + n < sizeof b->log);
        memcpy(b->log + b->log_len, at, n);
        b->log_len += n;
        logring_ack(proc_log(p), offset + n);
    }
}

static void on_ended(void *ctx, struct proc *p)
{
    struct bed *b = ctx;
    uint32_t r = proc_rank(p);
    b->ends[r] = *proc_exited(p);
    (void)snprintf(b->text[r], sizeof b->text[r], "%s", proc_exited(p)->text);
    b->ended++;
}

static void on_stuck(void *ctx, const char *text)
{
    (void)text;
    ((struct bed *)ctx)->stuck++;
}

static const struct workers_ops ops = {
    .proc = {.on_started = on_started, .on_link = on_link, .on_log = on_log},
    .on_ended = on_ended,
    .on_stuck = on_stuck,
};

static int setup(void **state)
{
    struct bed *b = calloc(1, sizeof *b);
    struct err e;
    assert_int_equal(uv_loop_init(&b->loop), 0);
    b->w = workers_new(&b->loop, &ops, b, &e);
    assert_non_null(b->w);
    assert_true(readlink("/proc/self/exe", b->self, sizeof b->self - 1) > 0);
    *state = b;
    return 0;
}

static bool all_ended(void *ctx)
{
    struct bed *b = ctx;
    return b->ended == (int)workers_count(b->w);
}

static int teardown(void **state)
{
    struct bed *b = *state;
    workers_kill(b->w); /* a test that failed may have left some */
    (void)uvwait(&b->loop, all_ended, b, 10000);
    workers_free(b->w);
    (void)uv_run(&b->loop, UV_RUN_DEFAULT);
    int r = uv_loop_close(&b->loop);
    free(b);
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child, dead or alive */
    return r;
}

static int try_start(struct bed *b, uint32_t rank, const char *fake, const char *setup_line,
                     struct err *e)
{
    AUTO_FREE char *env = xasprintf("FAKE=%s", fake);
    char *lines[] = {(char *)(uintptr_t)setup_line};
    struct proc_params p = {.rank = rank,
                            .generation = 1,
                            .threads = 3,
                            .job = "test",
                            .program = b->self,
                            .workdir = "/",
                            .welcome = "welcome proto=1",
                            .setup = lines,
                            .n_setup = setup_line ? 1 : 0,
                            .env = &env,
                            .n_env = 1};
    if (strcmp(fake, "noexec") == 0)
        p.program = "/nonexistent/worker";
    return workers_start(b->w, &p, e);
}

static void start(struct bed *b, uint32_t rank, const char *fake, const char *setup_line)
{
    struct err e = {0};
    if (try_start(b, rank, fake, setup_line, &e) < 0)
        fail_msg("%s", e.text);
}

/* Four lines: "tree PID" of the worker, a child, a grandchild and a daemon, in any order. */
static bool tree_told(void *ctx)
{
    struct bed *b = ctx;
    int n = 0;
    for (size_t i = 0; i + 5 < b->log_len; i++)
        n += memcmp(b->log + i, "tree ", 5) == 0;
    return n == 4 && b->started;
}

static void tree_pids(struct bed *b, pid_t ret[4])
{
    const char *at = b->log;
    for (int i = 0; i < 4; i++) {
        at = strstr(at, "tree ");
        assert_non_null(at);
        ret[i] = (pid_t)strtol(at + 5, NULL, 10);
        at++;
    }
}

static bool gone(pid_t pid)
{
    char state = tree_stat(pid).state;
    return state == 0 || state == 'Z';
}

static void assert_all_gone(const pid_t pids[4])
{
    for (int i = 0; i < 4; i++)
        if (!gone(pids[i]))
            fail_msg("process %d of the tree lives", (int)pids[i]);
}

static void test_exit_codes(void **state)
{
    struct bed *b = *state;
    start(b, 0, "exit7", NULL);
    start(b, 1, "sigkill", NULL);
    start(b, 2, "noexec", NULL);
    start(b, 3, "exit0", "exit 5"); /* a setup line that ends the shell */
    assert_true(uvwait(&b->loop, all_ended, b, 10000));
    assert_int_equal(b->ends[0].status, 7);
    assert_int_equal(b->ends[1].status, -SIGKILL);
    assert_int_equal(b->ends[2].status, 127);
    assert_string_equal(b->ends[2].kind, "system");
    assert_non_null(strstr(b->text[2], "No such file"));
    assert_int_equal(b->ends[3].status, 5);
    assert_int_equal(b->started, 3);
}

/* An agent ignores SIGHUP; its workers do not. */
static void test_default_signals(void **state)
{
    struct bed *b = *state;
    (void)signal(SIGHUP, SIG_IGN);
    start(b, 0, "sighup", NULL);
    (void)signal(SIGHUP, SIG_DFL);
    assert_true(uvwait(&b->loop, all_ended, b, 10000));
    assert_int_equal(b->ends[0].status, -SIGHUP);
}

static int open_files(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Wherever a start finds no more files, it says so and keeps none; then one that has enough. */
static void test_too_few_files(void **state)
{
    struct bed *b = *state;
    struct rlimit before, l;
    struct err e = {0};
    int had = open_files(), failed = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (l = before, l.rlim_cur = (rlim_t)had; failed < 64; l.rlim_cur++, failed++) {
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &l), 0);
        if (try_start(b, 0, "exit7", NULL, &e) == 0)
            break;
        assert_true(e.kind == ERR_SYSTEM && e.text[0]);
        assert_int_equal(workers_count(b->w), 0);
        (void)uv_run(&b->loop, UV_RUN_NOWAIT); /* handles close */
        assert_int_equal(open_files(), had);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_in_range(failed, 5, 63);
    assert_true(uvwait(&b->loop, all_ended, b, 10000));
}

static void test_environment(void **state)
{
    struct bed *b = *state;
    (void)setenv("DSLAUNCH_TEST_SECRET", "leak", 1);
    start(b, 0, "env", "export FROM_SETUP=yes");
    assert_true(uvwait(&b->loop, all_ended, b, 10000));
    (void)unsetenv("DSLAUNCH_TEST_SECRET");
    assert_int_equal(b->ends[0].status, 0);
    b->log[b->log_len] = 0;
    assert_string_equal(b->log, "setup=yes omp=3 blas=3 secret=- fds=ok cwd=/\n");
}

static void test_tree_ends_with_worker(void **state)
{
    struct bed *b = *state;
    pid_t pids[4];
    start(b, 0, "tree", NULL);
    assert_true(uvwait(&b->loop, tree_told, b, 10000));
    tree_pids(b, pids);
    assert_int_equal(kill(proc_pid(workers_at(b->w, 0)), SIGKILL), 0);
    assert_true(uvwait(&b->loop, all_ended, b, 5000));
    assert_int_equal(b->ends[0].status, -SIGKILL);
    assert_all_gone(pids);
}

static bool second_has_pid(void *ctx)
{
    struct bed *b = ctx;
    return proc_pid(workers_at(b->w, 1)) > 0;
}

static void test_keeper_killed(void **state)
{
    struct bed *b = *state;
    pid_t pids[4];
    start(b, 0, "tree", NULL);
    start(b, 1, "pause", NULL);
    assert_true(uvwait(&b->loop, tree_told, b, 10000));
    assert_true(uvwait(&b->loop, second_has_pid, b, 10000));
    tree_pids(b, pids);
    assert_int_equal(kill(proc_keeper(workers_at(b->w, 0)), SIGKILL), 0);

    int64_t until = clock_now_ns() + 5 * NS_PER_S;
    while (b->ended < 1 && clock_now_ns() < until)
        (void)uvwait(&b->loop, all_ended, b, 10);
    assert_int_equal(b->ended, 1);
    assert_int_equal(b->ends[0].status, -SIGKILL);
    assert_non_null(strstr(b->text[0], "keeper"));
    assert_all_gone(pids);
    assert_int_equal(workers_live(b->w), 1); /* the other rank was spared */
    assert_false(gone(proc_pid(workers_at(b->w, 1))));
    workers_kill(b->w);
    assert_true(uvwait(&b->loop, all_ended, b, 5000));
}

static void test_kill_stopped(void **state)
{
    struct bed *b = *state;
    pid_t pids[4];
    start(b, 0, "tree", NULL);
    assert_true(uvwait(&b->loop, tree_told, b, 10000));
    tree_pids(b, pids);
    for (int i = 0; i < 4; i++)
        assert_int_equal(kill(pids[i], SIGSTOP), 0);
    assert_int_equal(kill(proc_keeper(workers_at(b->w, 0)), SIGSTOP), 0);
    workers_kill(b->w);
    assert_true(uvwait(&b->loop, all_ended, b, 5000));
    assert_all_gone(pids);
    assert_int_equal(b->stuck, 0);
}

/* The agent itself is killed: its keepers take the trees down. */
static void test_agent_killed(void **state)
{
    struct bed *b = *state;
    pid_t pids[4];
    int report[2];
    assert_int_equal(pipe(report), 0);
    pid_t agent = fork();
    if (agent == 0) {
        struct bed *mine = calloc(1, sizeof *mine);
        struct err e;
        (void)close(report[0]);
        memcpy(mine->self, b->self, sizeof mine->self);
        if (uv_loop_fork(&b->loop) < 0 || uv_loop_init(&mine->loop) < 0)
            _exit(1);
        mine->w = workers_new(&mine->loop, &ops, mine, &e);
        start(mine, 0, "tree", NULL);
        if (!uvwait(&mine->loop, tree_told, mine, 10000))
            _exit(2);
        tree_pids(mine, pids);
        if (write(report[1], pids, sizeof pids) != sizeof pids)
            _exit(3);
        for (;;)
            pause();
    }
    (void)close(report[1]);
    assert_int_equal(read(report[0], pids, sizeof pids), sizeof pids);
    (void)close(report[0]);
    for (int i = 0; i < 4; i++)
        assert_false(gone(pids[i]));
    assert_int_equal(kill(agent, SIGKILL), 0);
    int64_t until = clock_now_ns() + 5 * NS_PER_S;
    bool left = true;
    while (left && clock_now_ns() < until) {
        left = false;
        for (int i = 0; i < 4; i++)
            left |= !gone(pids[i]);
        (void)uv_run(&b->loop, UV_RUN_NOWAIT); /* we are a subreaper: orphans fall to us */
    }
    assert_all_gone(pids);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        continue; /* the agent and its keeper, which has become ours */
}

static void test_output(void **state)
{
    struct bed *b = *state;
    start(b, 0, "lines", NULL);
    assert_true(uvwait(&b->loop, all_ended, b, 10000));
    b->log[b->log_len] = 0;
    char *at = b->log, *line;
    for (int i = 0; i < 5000; i++) {
        char want[64];
        line = strsep(&at, "\n");
        (void)snprintf(want, sizeof want, "line %d of %s", i, i % 2 ? "err" : "out");
        assert_string_equal(line, want);
    }
    assert_string_equal(at, "an unfinished line\n");
}

static void test_page(void **state)
{
    struct bed *b = *state;
    start(b, 0, "page", NULL);
    assert_true(uvwait(&b->loop, all_ended, b, 10000));
    struct proc_page g = proc_page(workers_at(b->w, 0));
    assert_int_equal(b->ends[0].status, 0); /* the seal holds: it could not shrink the page */
    assert_int_equal(g.beat, 41);
    assert_int_equal(g.step, 12);
    assert_int_equal(g.coll_seq, 99);
}

static void test_env_list(void **state)
{
    (void)state;
    char *plan[] = {"A=1", "PATH=/mine", "A=2", "DSLAUNCH_LINK=77", "nonsense"};
    char **env = workenv_new(plan, 5);
    int a = 0, path = 0, link = 0;
    for (char **s = env; *s; s++) {
        a += strcmp(*s, "A=2") == 0;
        path += strcmp(*s, "PATH=/mine") == 0;
        link += strcmp(*s, "DSLAUNCH_LINK=3") == 0;
        assert_string_not_equal(*s, "A=1");
        assert_string_not_equal(*s, "nonsense");
        free(*s);
    }
    free(env);
    assert_int_equal(a + path + link, 3);
}

/* ---- the worker's side ---- */

static void say_pid(void)
{
    char line[32];
    int n = snprintf(line, sizeof line, "tree %d\n", (int)getpid());
    (void)!write(1, line, (size_t)n);
}

static void idle(void)
{
    for (;;)
        pause();
}

static int fake_tree(void)
{
    if (fork() == 0) {
        if (fork() == 0) {
            say_pid();
            idle();
        }
        say_pid();
        idle();
    }
    if (fork() == 0) { /* a daemon: own session, parent gone, output pipe kept */
        (void)setsid();
        if (fork() == 0) {
            (void)signal(SIGTERM, SIG_IGN);
            (void)signal(SIGHUP, SIG_IGN);
            say_pid();
            idle();
        }
        _exit(0);
    }
    say_pid();
    idle();
    return 0;
}

static int fake_lines(void)
{
    for (int i = 0; i < 5000; i++)
        (void)dprintf(i % 2 ? 2 : 1, "line %d of %s\n", i, i % 2 ? "err" : "out");
    (void)dprintf(1, "an unfinished line");
    return 0;
}

static int fake_env(void)
{
    char cwd[64];
    struct stat st;
    const char *s = getenv("DSLAUNCH_TEST_SECRET");
    int bad = strcmp(getenv("DSLAUNCH_SNAPSHOT"), "5,6") != 0;
    for (int fd = 3; fd < 7; fd++)
        bad |= fstat(fd, &st) < 0;
    for (int fd = 7; fd < 256; fd++)
        bad |= fstat(fd, &st) == 0; /* nothing else of the agent's came along */
    struct rlimit core = {1, 1};
    bad |= getrlimit(RLIMIT_CORE, &core) < 0 || core.rlim_cur != 0;
    (void)printf("setup=%s omp=%s blas=%s secret=%s fds=%s cwd=%s\n", getenv("FROM_SETUP"),
                 getenv("OMP_NUM_THREADS"), getenv("OPENBLAS_NUM_THREADS"), s ? s : "-",
                 bad ? "bad" : "ok", getcwd(cwd, sizeof cwd));
    return 0;
}

static int fake_page(void)
{
    int fd = atoi(getenv("DSLAUNCH_PAGE"));
    struct page *g = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (g == MAP_FAILED || ftruncate(fd, 0) == 0)
        return 1;
    g->beat = 41;
    g->step = 12;
    g->coll_seq = 99;
    return 0;
}

static int fake_worker(const char *mode)
{
    if (strcmp(mode, "exit7") == 0)
        return 7;
    if (strcmp(mode, "sighup") == 0)
        (void)raise(SIGHUP);
    if (strcmp(mode, "sigkill") == 0)
        (void)raise(SIGKILL);
    if (strcmp(mode, "tree") == 0)
        return fake_tree();
    if (strcmp(mode, "lines") == 0)
        return fake_lines();
    if (strcmp(mode, "env") == 0)
        return fake_env();
    if (strcmp(mode, "page") == 0)
        return fake_page();
    if (strcmp(mode, "pause") == 0)
        idle();
    return 0;
}

int main(int argc, char **argv)
{
    const char *fake = getenv("FAKE");
    if (argc > 1 && strcmp(argv[1], "exec") == 0)
        return keeper_main(argc - 1, argv + 1);
    if (fake && getenv("DSLAUNCH_LINK"))
        return fake_worker(fake);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_env_list),
        cmocka_unit_test_setup_teardown(test_exit_codes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_default_signals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_few_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_environment, setup, teardown),
        cmocka_unit_test_setup_teardown(test_output, setup, teardown),
        cmocka_unit_test_setup_teardown(test_page, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tree_ends_with_worker, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keeper_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kill_stopped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_agent_killed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
