/* An agent from its start by boot_local to its end, against a controller played here and
 * workers played by this same program: DSLAUNCH_AGENT makes it its own dsagent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/own.h"
#include "common/link/linkline.h"
#include "common/link/page.h"
#include "launcher/agent/rank/keeper.h"
#include "launcher/agent/rank/tree.h"
#include "launcher/agent/serve.h"
#include "launcher/boot/boot.h"
#include "launcher/boot/paths.h"
#include "launcher/wire/frame.h"
#include "tests/unit/uvwait.h"

enum { RANKS = 2 };

struct bed {
    uv_loop_t loop;
    struct boot *boot;
    struct channel *ch;
    char dir[64], self[4096];
    int fd, boot_failed;
    struct err boot_why;
    bool ended;

    /* what the agent said */
    bool hello, dismissed;
    uint32_t agent_pid, live_generation, clear_generation;
    size_t hello_live, hello_exits;
    uint32_t worker_pid[RANKS];
    int started, exited, clears, pages, committed, written, storage_failed;
    bool done[RANKS], stopped[RANKS];
    int status[RANKS], n_lines;
    char kind[RANKS][16], text[RANKS][256];
    uint64_t log_at[RANKS], beat[RANKS];
    struct buf lines, log;
    bool answer; /* play the rendezvous */
};

static void send_reply(struct bed *b, uint32_t gen, uint32_t rank, const char *line)
{
    Dsl__Frame f;
    Dsl__RankReply m;
    dsl__frame__init(&f);
    dsl__rank_reply__init(&m);
    f.generation = gen;
    m.rank = rank;
    m.line = (char *)(uintptr_t)line;
    f.body_case = DSL__FRAME__BODY_RANK_REPLY;
    f.rank_reply = &m;
    (void)channel_send(b->ch, &f);
}

static void take_line(struct bed *b, uint32_t gen, const Dsl__RankLine *m)
{
    b->n_lines++;
    (void)buf_printf(&b->lines, "%u %s\n", m->rank, m->line);
    if (b->answer && strcmp(m->line, "barrier") == 0)
        send_reply(b, gen, m->rank, "released");
    if (b->answer && strcmp(m->line, "get key=bad") == 0)
        send_reply(b, gen, m->rank, "refused text=6e6f"); /* "no" */
}

static void take_log(struct bed *b, uint32_t gen, const Dsl__LogData *m)
{
    Dsl__Frame f;
    Dsl__LogAck ack;
    assert_int_equal(m->offset, b->log_at[m->rank]);
    assert_true(m->data.len > 0 && m->data.data[m->data.len - 1] == '\n');
    b->log_at[m->rank] += m->data.len;
    if (m->rank == 0)
        (void)buf_add(&b->log, m->data.data, m->data.len);
    dsl__frame__init(&f);
    dsl__log_ack__init(&ack);
    f.generation = gen;
    ack.rank = m->rank;
    ack.offset = b->log_at[m->rank];
    f.body_case = DSL__FRAME__BODY_LOG_ACK;
    f.log_ack = &ack;
    (void)channel_send(b->ch, &f);
}

static void take_exit(struct bed *b, const Dsl__RankExited *m)
{
    b->exited++;
    b->status[m->rank] = m->status;
    b->done[m->rank] = m->done;
    b->stopped[m->rank] = m->stopped;
    (void)snprintf(b->kind[m->rank], sizeof b->kind[0], "%s", m->kind);
    (void)snprintf(b->text[m->rank], sizeof b->text[0], "%s", m->text);
}

static void on_frame(void *ctx, const Dsl__Frame *f)
{
    struct bed *b = ctx;
    switch ((int)f->body_case) {
    case DSL__FRAME__BODY_AGENT_HELLO:
        b->hello = true;
        b->agent_pid = f->agent_hello->pid;
        b->live_generation = f->agent_hello->live_generation;
        b->hello_live = f->agent_hello->n_live_ranks;
        b->hello_exits = f->agent_hello->n_exits;
        break;
    case DSL__FRAME__BODY_RANK_STARTED:
        b->started++;
        b->worker_pid[f->rank_started->rank] = f->rank_started->pid;
        break;
    case DSL__FRAME__BODY_RANK_EXITED:
        take_exit(b, f->rank_exited);
        break;
    case DSL__FRAME__BODY_PAGES:
        b->pages++;
        for (size_t i = 0; i < f->pages->n_pages; i++)
            b->beat[f->pages->pages[i]->rank] = f->pages->pages[i]->beat;
        break;
    case DSL__FRAME__BODY_LOG_DATA:
        take_log(b, f->generation, f->log_data);
        break;
    case DSL__FRAME__BODY_RANK_LINE:
        take_line(b, f->generation, f->rank_line);
        break;
    case DSL__FRAME__BODY_NODE_CLEAR:
        b->clears++;
        b->clear_generation = f->generation;
        break;
    case DSL__FRAME__BODY_DISMISSED:
        b->dismissed = true;
        break;
    case DSL__FRAME__BODY_NOTE:
        b->committed += f->note->kind == DSL__AGENT_NOTE__KIND__COMMITTED;
        b->written += f->note->kind == DSL__AGENT_NOTE__KIND__WRITTEN;
        b->storage_failed += f->note->kind == DSL__AGENT_NOTE__KIND__STORAGE_FAILED;
        break;
    default:
        fail_msg("frame %d", (int)f->body_case);
    }
}

static void on_end(void *ctx, const struct err *why)
{
    struct bed *b = ctx;
    (void)why;
    b->ended = true;
    channel_close(TAKE(b->ch));
}

static void on_channel_fd(void *ctx, uint32_t node, int fd)
{
    struct bed *b = ctx;
    assert_int_equal(node, 5);
    b->fd = fd;
}

static void on_failed(void *ctx, uint32_t node, const struct err *why)
{
    struct bed *b = ctx;
    assert_int_equal(node, 5);
    b->boot_failed++;
    b->boot_why = *why;
}

/* A zombie has ended: when it is reaped is its parent's business, and init takes its time. */
static bool gone(uint32_t pid)
{
    char state = tree_stat((pid_t)pid).state;
    return state == 0 || state == 'Z';
}

/* ---- conditions ---- */

#define CONDITION(name, expression) \
    static bool name(void *ctx)     \
    {                               \
        struct bed *b = ctx;        \
        return (expression);        \
    }
CONDITION(booted, b->fd >= 0 || b->boot_failed)
CONDITION(greeted, b->hello)
CONDITION(both_exited, b->exited == RANKS)
CONDITION(one_exited, b->exited == 1)
CONDITION(cleared, b->clears == 1)
CONDITION(has_ended, b->ended)
CONDITION(both_started, b->started == RANKS)
CONDITION(beating, b->beat[0] > 3 && b->beat[1] > 3)
CONDITION(agent_gone, gone(b->agent_pid))

static void must(struct bed *b, bool (*cond)(void *), const char *what, int64_t ms)
{
    if (!uvwait(&b->loop, cond, b, ms))
        fail_msg("not within %d ms: %s (exited %d, lines %s)", (int)ms, what, b->exited,
                 buf_str(&b->lines));
}
#define MUST(b, cond, ms) must(b, cond, #cond, ms)

static int setup(void **state)
{
    struct bed *b = calloc(1, sizeof *b);
    struct err e;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)snprintf(b->dir, sizeof b->dir, "/tmp/dsagent-test-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    AUTO_FREE char *run = xasprintf("%s/r", b->dir);
    assert_int_equal(mkdir(run, 0700), 0);
    (void)setenv("XDG_RUNTIME_DIR", run, 1);
    (void)setenv("DSLAUNCH_HOME", b->dir, 1);
    assert_true(readlink("/proc/self/exe", b->self, sizeof b->self - 1) > 0);
    (void)setenv("DSLAUNCH_AGENT", b->self, 1);
    assert_int_equal(uv_loop_init(&b->loop), 0);
    b->fd = -1;
    b->lines = BUF(1 << 20);
    b->log = BUF(1 << 20);
    b->answer = true;
    b->boot = boot_local.create(&(struct boot_params){.loop = &b->loop,
                                                      .job = "test",
                                                      .n_nodes = 6,
                                                      .connect_ns = 10 * NS_PER_S,
                                                      .orphan_ns = 20 * NS_PER_S,
                                                      .on_channel_fd = on_channel_fd,
                                                      .on_failed = on_failed,
                                                      .ctx = b},
                                &e);
    assert_non_null(b->boot);
    *state = b;
    return 0;
}

/* Nothing may be left: no agent, no socket, no run-time folder. */
static int teardown(void **state)
{
    struct bed *b = *state;
    boot_local.free(b->boot);
    channel_close(b->ch);
    if (b->agent_pid)
        (void)kill((pid_t)b->agent_pid, SIGTERM);
    if (b->agent_pid && !uvwait(&b->loop, agent_gone, b, 5000))
        (void)kill((pid_t)b->agent_pid, SIGKILL);
    AUTO_FREE char *run = xasprintf("%s/r/dslaunch", b->dir);
    AUTO_FREE char *log = xasprintf("%s/test/logs/agent-5.log", b->dir);
    AUTO_BUF struct buf said = BUF(1 << 20);
    int left = access(run, F_OK) == 0;
    (void)io_read_file(log, &said, NULL);
    if (said.len && (strstr(said.data, "Sanitizer") || strstr(said.data, "runtime error"))) {
        print_message("%s\n", said.data);
        left = 1;
    }
    if (left)
        print_message("the run-time folder is still there\n");
    (void)uv_run(&b->loop, UV_RUN_DEFAULT);
    int r = uv_loop_close(&b->loop);
    if (!getenv("KEEP"))
        (void)io_remove_tree(b->dir, NULL);
    buf_done(&b->lines);
    buf_done(&b->log);
    free(b);
    return r | left;
}

static void connect_agent(struct bed *b, bool attach)
{
    struct err e;
    b->fd = -1;
    b->hello = b->ended = false;
    (attach ? boot_local.attach : boot_local.start)(b->boot, 5);
    MUST(b, booted, 10000);
    if (b->boot_failed)
        fail_msg("%s", b->boot_why.text);
    b->ch = channel_open_fd(&b->loop, TAKE_FD(b->fd), on_frame, on_end, b, &e);
    assert_non_null(b->ch);
    MUST(b, greeted, 5000);
}

static void say_hello(struct bed *b, int64_t orphan_ns)
{
    Dsl__Frame f;
    Dsl__ControllerHello m;
    Dsl__LogPosition at[RANKS], *list[RANKS];
    uint8_t secret[32] = {1, 2, 3};
    dsl__frame__init(&f);
    dsl__controller_hello__init(&m);
    m.protocol = FRAME_PROTOCOL;
    m.job = (char *)(uintptr_t) "test";
    m.node = 5;
    m.world = RANKS;
    m.orphan_ns = orphan_ns;
    m.grace_ns = 5 * NS_PER_S;
    m.secret = (ProtobufCBinaryData){sizeof secret, secret};
    for (uint32_t r = 0; r < RANKS; r++) {
        dsl__log_position__init(&at[r]);
        at[r].rank = r;
        at[r].offset = b->log_at[r];
        list[r] = &at[r];
    }
    m.n_logs = RANKS;
    m.logs = list;
    f.body_case = DSL__FRAME__BODY_CONTROLLER_HELLO;
    f.controller_hello = &m;
    assert_int_equal(channel_send(b->ch, &f), 0);
}

static void launch(struct bed *b, uint32_t gen, const char *fake)
{
    Dsl__Frame f;
    Dsl__Launch m;
    Dsl__RankPlan plans[RANKS], *list[RANKS];
    AUTO_FREE char *env = xasprintf("FAKE=%s", fake);
    AUTO_FREE char *ckpt = xasprintf("%s/ckpt", b->dir);
    dsl__frame__init(&f);
    dsl__launch__init(&m);
    for (uint32_t r = 0; r < RANKS; r++) {
        dsl__rank_plan__init(&plans[r]);
        plans[r].rank = plans[r].local_rank = r;
        plans[r].n_env = 1;
        plans[r].env = &env;
        list[r] = &plans[r];
    }
    m.spec = (ProtobufCBinaryData){9, (uint8_t *)(uintptr_t) "name: x\n\n"};
    m.n_ranks = RANKS;
    m.ranks = list;
    m.program = b->self;
    m.workdir = b->dir;
    m.threads = 1;
    m.checkpoint_dir = ckpt;
    m.checkpoint_keep = 2;
    f.generation = gen;
    f.body_case = DSL__FRAME__BODY_LAUNCH;
    f.launch = &m;
    assert_int_equal(channel_send(b->ch, &f), 0);
}

static void order(struct bed *b, uint32_t gen, Dsl__Frame__BodyCase kind)
{
    Dsl__Frame f;
    Dsl__Kill k;
    Dsl__Dismiss d;
    Dsl__SignalStop s;
    dsl__frame__init(&f);
    dsl__kill__init(&k);
    dsl__dismiss__init(&d);
    dsl__signal_stop__init(&s);
    f.generation = gen;
    f.body_case = kind;
    if (kind == DSL__FRAME__BODY_KILL)
        f.kill = &k;
    else if (kind == DSL__FRAME__BODY_DISMISS)
        f.dismiss = &d;
    else
        f.signal_stop = &s;
    assert_int_equal(channel_send(b->ch, &f), 0);
}

static void dismiss(struct bed *b)
{
    order(b, 0, DSL__FRAME__BODY_DISMISS);
    MUST(b, has_ended, 8000);
    assert_true(b->dismissed);
    MUST(b, agent_gone, 5000);
}

static void test_whole_life(void **state)
{
    struct bed *b = *state;
    connect_agent(b, false);
    assert_int_equal(b->live_generation, 0);
    say_hello(b, 20 * NS_PER_S);
    launch(b, 3, "life");
    MUST(b, both_exited, 10000);
    for (int r = 0; r < RANKS; r++) {
        if (b->status[r])
            fail_msg("rank %d: %d %s %s", r, b->status[r], b->kind[r], b->text[r]);
        assert_true(b->done[r] && !b->stopped[r]);
    }
    assert_non_null(strstr(buf_str(&b->lines), "0 put key=k0 value=00ff\n"));
    assert_non_null(strstr(buf_str(&b->lines), "1 barrier\n"));
    assert_non_null(strstr(buf_str(&b->lines), "0 metrics step=1 loss=2.5\n"));
    assert_non_null(strstr(buf_str(&b->log), "hello from 0\n"));
    order(b, 3, DSL__FRAME__BODY_KILL);
    MUST(b, cleared, 5000);
    assert_int_equal(b->clear_generation, 3);
    dismiss(b);
}

static void test_kill_and_relaunch(void **state)
{
    struct bed *b = *state;
    connect_agent(b, false);
    say_hello(b, 20 * NS_PER_S);
    launch(b, 1, "run");
    MUST(b, beating, 10000);
    order(b, 1, DSL__FRAME__BODY_KILL);
    MUST(b, cleared, 5000);
    assert_int_equal(b->exited, RANKS);
    assert_int_equal(b->status[0], -SIGKILL);
    launch(b, 1, "run"); /* stale: dropped */
    b->clears = b->exited = b->started = 0;
    memset(b->log_at, 0, sizeof b->log_at);
    memset(b->beat, 0, sizeof b->beat);
    launch(b, 2, "run");
    MUST(b, beating, 5000);
    order(b, 1, DSL__FRAME__BODY_KILL); /* stale: dropped */
    order(b, 2, DSL__FRAME__BODY_SIGNAL_STOP);
    MUST(b, both_exited, 5000);
    assert_true(b->stopped[0] && b->stopped[1]);
    assert_int_equal(b->clears, 0);
    dismiss(b); /* with ended, uncleared ranks */
}

static void test_broken_link(void **state)
{
    struct bed *b = *state;
    connect_agent(b, false);
    say_hello(b, 20 * NS_PER_S);
    launch(b, 1, "rude"); /* rank 0 talks nonsense, rank 1 is refused by the controller */
    MUST(b, both_exited, 10000);
    for (int r = 0; r < RANKS; r++) {
        assert_string_equal(b->kind[r], "protocol");
        assert_int_equal(b->status[r], 94);
    }
    assert_non_null(strstr(b->text[0], "gibberish"));
    assert_string_equal(b->text[1], "no");
    dismiss(b);
}

static void test_failed_line(void **state)
{
    struct bed *b = *state;
    connect_agent(b, false);
    say_hello(b, 20 * NS_PER_S);
    launch(b, 1, "fail");
    MUST(b, both_exited, 10000);
    assert_int_equal(b->status[1], 95);
    assert_string_equal(b->kind[1], "numeric");
    assert_string_equal(b->text[1], "a NaN");
    dismiss(b);
}

static void test_checkpoint(void **state)
{
    struct bed *b = *state;
    struct stat st;
    AUTO_FREE char *dir = xasprintf("%s/ckpt/step-00000010-g4", b->dir);
    AUTO_FREE char *manifest = xasprintf("%s/manifest.json", dir);
    AUTO_FREE char *shard = xasprintf("%s/rank-00001.safetensors", dir);
    connect_agent(b, false);
    say_hello(b, 20 * NS_PER_S);
    launch(b, 4, "save");
    MUST(b, both_exited, 10000);
    for (int r = 0; r < RANKS; r++)
        if (b->status[r])
            fail_msg("rank %d: %d %s %s", r, b->status[r], b->kind[r], b->text[r]);
    assert_int_equal(b->committed, 1);
    assert_int_equal(b->written, RANKS);
    assert_int_equal(b->storage_failed, 1); /* rank 1's second shard: a wrong digest */
    assert_int_equal(stat(manifest, &st), 0);
    assert_int_equal(st.st_size, 15);
    assert_int_equal(stat(shard, &st), 0);
    assert_int_equal(st.st_size, 3 << 20);
    dismiss(b);
    AUTO_FREE char *tmp = xasprintf("%s/ckpt/step-00000020-g4.tmp", b->dir);
    assert_int_equal(access(tmp, F_OK), -1); /* what was not committed went with the agent */
}

/* The controller goes; the ranks do not notice; another one takes over and misses nothing. */
static void test_adoption(void **state)
{
    struct bed *b = *state;
    connect_agent(b, false);
    say_hello(b, 20 * NS_PER_S);
    launch(b, 7, "run");
    MUST(b, beating, 10000);
    uint32_t agent = b->agent_pid;
    channel_close(TAKE(b->ch));
    (void)kill((pid_t)b->worker_pid[1], SIGKILL); /* while nobody looks */
    while (!gone(b->worker_pid[1]))
        (void)uv_run(&b->loop, UV_RUN_NOWAIT);
    b->n_lines = 0;
    connect_agent(b, true);
    assert_int_equal(b->agent_pid, agent);
    assert_int_equal(b->live_generation, 7);
    say_hello(b, 20 * NS_PER_S);
    /* The end is told once: in the hello, or after it. */
    if (b->hello_exits == 0)
        MUST(b, one_exited, 5000);
    else
        assert_int_equal(b->hello_exits, 1);
    b->beat[0] = 0;
    order(b, 7, DSL__FRAME__BODY_KILL);
    MUST(b, cleared, 5000);
    assert_non_null(strstr(buf_str(&b->lines), "metrics step="));
    dismiss(b);
}

CONDITION(replaced, b->ended)

static void test_newer_controller(void **state)
{
    struct bed *b = *state;
    struct err e;
    connect_agent(b, false);
    say_hello(b, 20 * NS_PER_S);
    AUTO_FREE char *path = paths_agent_socket("test", 5, &e);
    struct channel *old = b->ch;
    (void)old;
    int fd = paths_connect(path, &e);
    assert_true(fd >= 0);
    (void)close(fd); /* one that only connects replaces nobody */
    b->pages = 0;
    int64_t until = clock_now_ns() + 2 * NS_PER_S;
    while (b->pages < 2 && clock_now_ns() < until)
        (void)uv_run(&b->loop, UV_RUN_ONCE);
    assert_false(b->ended);
    struct bed second = {.lines = BUF(1 << 20), .log = BUF(1 << 20)};
    second.ch =
        channel_open_fd(&b->loop, paths_connect(path, &e), on_frame, on_end, &second, &e);
    say_hello(&second, 20 * NS_PER_S);
    MUST(b, replaced, 5000);
    b->ch = second.ch;
    b->ended = false;
    order(b, 0, DSL__FRAME__BODY_DISMISS);
    int64_t end = clock_now_ns() + 5 * NS_PER_S;
    while (!second.ended && clock_now_ns() < end)
        (void)uv_run(&b->loop, UV_RUN_ONCE);
    assert_true(second.dismissed && second.ended);
    b->ch = NULL;
}

/* No controller any more: the ranks save and stop, and nothing stays. */
static void test_orphan(void **state)
{
    struct bed *b = *state;
    connect_agent(b, false);
    say_hello(b, NS_PER_S / 2);
    launch(b, 1, "run");
    MUST(b, beating, 10000);
    channel_close(TAKE(b->ch));
    MUST(b, agent_gone, 8000);
    AUTO_FREE char *mark = xasprintf("%s/stopped-0", b->dir);
    assert_int_equal(access(mark, F_OK), 0); /* it was told to stop, not killed */
    for (int r = 0; r < RANKS; r++)
        assert_true(gone(b->worker_pid[r]));
}

static void test_sigterm(void **state)
{
    struct bed *b = *state;
    connect_agent(b, false);
    say_hello(b, 20 * NS_PER_S);
    launch(b, 1, "run");
    MUST(b, both_started, 10000);
    assert_int_equal(kill((pid_t)b->agent_pid, SIGTERM), 0);
    MUST(b, has_ended, 5000);
    MUST(b, agent_gone, 5000);
    for (int r = 0; r < RANKS; r++)
        assert_true(gone(b->worker_pid[r]));
}

CONDITION(workers_gone, gone(b->worker_pid[0]) && gone(b->worker_pid[1]))

static void test_agent_killed(void **state)
{
    struct bed *b = *state;
    connect_agent(b, false);
    say_hello(b, 20 * NS_PER_S);
    launch(b, 1, "run");
    MUST(b, both_started, 10000);
    uint32_t first = b->agent_pid;
    assert_int_equal(kill((pid_t)first, SIGKILL), 0);
    MUST(b, has_ended, 5000);
    MUST(b, workers_gone, 5000);
    b->started = 0;
    connect_agent(b, false); /* over the dead one's socket */
    assert_int_not_equal(b->agent_pid, first);
    assert_int_equal(b->live_generation, 0);
    say_hello(b, 20 * NS_PER_S);
    dismiss(b);
}

static void test_boot_failures(void **state)
{
    struct bed *b = *state;
    boot_local.attach(b->boot, 5);       /* nobody there */
    assert_int_equal(b->boot_failed, 0); /* never from inside the call */
    MUST(b, booted, 5000);
    assert_int_equal(b->boot_failed, 1);
    (void)setenv("DSLAUNCH_AGENT", "/nonexistent/dsagent", 1);
    b->boot_failed = 0;
    boot_local.start(b->boot, 5);
    MUST(b, booted, 5000);
    assert_int_equal(b->boot_failed, 1);
    assert_non_null(strstr(b->boot_why.text, "/nonexistent/dsagent"));
    (void)setenv("DSLAUNCH_AGENT", "/bin/false", 1);
    b->boot_failed = 0;
    boot_local.start(b->boot, 5);
    MUST(b, booted, 5000);
    assert_int_equal(b->boot_failed, 1);
    AUTO_FREE char *run = paths_run_dir("test", NULL);
    assert_int_equal(access(run, F_OK), -1); /* nothing was made */
}

static void test_start_twice(void **state)
{
    struct bed *b = *state;
    connect_agent(b, false);
    uint32_t first = b->agent_pid;
    channel_close(TAKE(b->ch));
    connect_agent(b, false); /* uses the one that is there */
    assert_int_equal(b->agent_pid, first);
    say_hello(b, 20 * NS_PER_S);
    dismiss(b);
}

/* ---- the worker's side: a small blocking client of the link ---- */

static FILE *fake_in;

static void say(const char *line)
{
    (void)dprintf(KEEPER_LINK_FD, "%s\n", line);
}

/* The next line's verb must be `verb`; the line is left in `ret` (may be NULL). */
static void expect(const char *verb, char *ret, size_t cap)
{
    static char line[65536];
    if (!fgets(line, sizeof line, fake_in) || strncmp(line, verb, strlen(verb)) != 0) {
        (void)dprintf(2, "expected %s, got %.100s\n", verb, line);
        _exit(90);
    }
    if (ret)
        (void)snprintf(ret, cap, "%s", line);
}

static void fake_beat(void)
{
    static struct page *g;
    if (!g)
        g = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, KEEPER_PAGE_FD, 0);
    g->beat++;
}

static int fake_run(int rank)
{
    say("barrier");
    expect("released", NULL, 0);
    for (int step = 1;; step++) {
        char line[256];
        struct timeval tv = {.tv_usec = 20000};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(KEEPER_LINK_FD, &set);
        fake_beat();
        if (rank == 0) {
            (void)snprintf(line, sizeof line, "metrics step=%d loss=1", step);
            say(line);
        }
        if (select(KEEPER_LINK_FD + 1, &set, NULL, NULL, &tv) <= 0)
            continue;
        if (!fgets(line, sizeof line, fake_in))
            return 94;
        if (strcmp(line, "stop\n") == 0) {
            (void)snprintf(line, sizeof line, "stopped-%d", rank);
            (void)fclose(fopen(line, "w"));
            say("done reason=stopped step=3");
            return 0;
        }
    }
}

static void say_shard(int slot, int step, const uint8_t *bytes, size_t n, bool lie)
{
    XXH128_canonical_t c;
    AUTO_BUF struct buf line = BUF(256);
    if (pwrite(KEEPER_SNAPSHOT_FD + slot, bytes, n, 0) != (ssize_t)n)
        _exit(91);
    XXH128_canonicalFromHash(&c, XXH3_128bits(bytes, n));
    c.digest[0] ^= lie;
    (void)buf_printf(&line, "shard step=%d slot=%d bytes=%zu digest=", step, slot, n);
    (void)buf_hex(&line, c.digest, sizeof c.digest);
    say(buf_str(&line));
}

static int fake_save(int rank)
{
    size_t n = 3 << 20;
    AUTO_FREE uint8_t *bytes = malloc(n);
    memset(bytes, rank + 1, n);
    say_shard(0, 10, bytes, n, false);
    expect("written step=10", NULL, 0);
    if (rank == 0) {
        /* Real ranks agree by their communicator; a file will do here. */
        int64_t until = clock_now_ns() + 5 * NS_PER_S;
        while (access("written-1", F_OK) < 0 && clock_now_ns() < until)
            continue;
        if (pwrite(KEEPER_SNAPSHOT_FD, "{\"manifest\": 1}", 15, (off_t)n) != 15)
            return 91;
        char line[64];
        (void)snprintf(line, sizeof line, "commit step=10 slot=0 offset=%zu bytes=15", n);
        say(line);
        expect("committed step=10", NULL, 0);
    } else {
        (void)fclose(fopen("written-1", "w"));
        say_shard(1, 20, bytes, 4096, true);
        expect("lost step=20 text=", NULL, 0);
    }
    say("done reason=completed step=20");
    return 0;
}

static int fake_worker(const char *mode)
{
    char line[65536], want[64];
    fake_in = fdopen(KEEPER_LINK_FD, "r");
    setvbuf(fake_in, NULL, _IONBF, 0);
    say("hello proto=1");
    expect("welcome proto=1", line, sizeof line);
    int rank = atoi(strstr(line, "rank=") + 5);
    (void)snprintf(want, sizeof want, "world=%d", RANKS);
    if (!strstr(line, want) || !strstr(line, "secret=010203") || !strstr(line, "spec=6e616d65"))
        return 92;
    (void)printf("hello from %d\n", rank);
    (void)fflush(stdout);
    if (strcmp(mode, "life") == 0) {
        (void)snprintf(line, sizeof line, "put key=k%d value=00ff", rank);
        say(line);
        say("barrier");
        expect("released", NULL, 0);
        if (rank == 0)
            say("metrics step=1 loss=2.5");
        say("done reason=completed step=1");
        return 0;
    }
    if (strcmp(mode, "run") == 0)
        return fake_run(rank);
    if (strcmp(mode, "save") == 0)
        return fake_save(rank);
    if (strcmp(mode, "rude") == 0) {
        say(rank == 0 ? "gibberish x=1" : "get key=bad");
        expect("refused", NULL, 0);
        return 94;
    }
    if (strcmp(mode, "fail") == 0) {
        say("failed kind=numeric peer=- text=61204e614e");
        return 95;
    }
    return 93;
}

int main(int argc, char **argv)
{
    const char *fake = getenv("FAKE");
    if (argc > 1 && strcmp(argv[1], "exec") == 0)
        return keeper_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        return serve_main(argc - 1, argv + 1);
    if (fake && getenv("DSLAUNCH_LINK"))
        return fake_worker(fake);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_boot_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_start_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_whole_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kill_and_relaunch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_broken_link, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failed_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_checkpoint, setup, teardown),
        cmocka_unit_test_setup_teardown(test_adoption, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newer_controller, setup, teardown),
        cmocka_unit_test_setup_teardown(test_orphan, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sigterm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_agent_killed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
