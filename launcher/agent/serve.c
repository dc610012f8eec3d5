#include "launcher/agent/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/own.h"
#include "launcher/agent/agent.h"
#include "launcher/boot/paths.h"

enum { ORPHAN_DEFAULT_S = 120 };

struct serve {
    const char *job, *log;
    uint32_t node;
    int ready_fd;
    int64_t orphan_ns;
};

static int parse(struct serve *s, int argc, char **argv, struct err *e)
{
    static const struct option options[] = {
        {"job", required_argument, NULL, 'j'},      {"node", required_argument, NULL, 'n'},
        {"ready-fd", required_argument, NULL, 'r'}, {"orphan-ns", required_argument, NULL, 'o'},
        {"log", required_argument, NULL, 'l'},      {NULL, 0, NULL, 0},
    };
    int o;
    optind = 1;
    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (o) {
        case 'j':
            s->job = optarg;
            break;
        case 'n':
            s->node = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'r':
            s->ready_fd = (int)strtol(optarg, NULL, 10);
            break;
        case 'o':
            s->orphan_ns = strtoll(optarg, NULL, 10);
            break;
        case 'l':
            s->log = optarg;
            break;
        default:
            return err_set(e, ERR_USAGE, "unknown option");
        }
    }
    if (!s->job || optind != argc || s->orphan_ns <= 0)
        return err_set(e, ERR_USAGE,
                       "usage: dsagent serve --job J --node N [--ready-fd FD] [--orphan-ns NS] "
                       "[--log FILE]");
    return 0;
}

/* The first parent's exit is what its starter waits for; the second makes us no session leader,
 * so that no terminal can become ours. */
static int daemonize(struct err *e)
{
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return err_sys(e, "fork");
        if (pid > 0)
            _exit(0);
        if (i == 0 && setsid() < 0)
            return err_sys(e, "setsid");
    }
    (void)umask(022);
    if (chdir("/") < 0)
        return err_sys(e, "/");
    return 0;
}

static int redirect(const struct serve *s, struct err *e)
{
    AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    AUTO_CLOSE int log =
        s->log ? open(s->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (null < 0 || (s->log && log < 0))
        return err_sys(e, "%s", null < 0 ? "/dev/null" : s->log);
    if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(log >= 0 ? log : null, 2) < 0)
        return err_sys(e, "dup2");
    return 0;
}

/* A daemon must not hold open what its starter's starter passed down: a pipe of a script that
 * waits for its end, for one. */
static void close_others(int keep)
{
    if (keep > STDERR_FILENO + 1)
        (void)close_range(STDERR_FILENO + 1, (unsigned)keep - 1, 0);
    (void)close_range(keep > STDERR_FILENO ? (unsigned)keep + 1 : STDERR_FILENO + 1, ~0U, 0);
}

/* Each rank takes some, here and in its worker, which inherits the limit. */
static void raise_open_files(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        return;
    l.rlim_cur = l.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &l);
}

static void say_ready(struct serve *s, const char *text)
{
    if (s->ready_fd < 0)
        return;
    (void)dprintf(s->ready_fd, "%s\n", text);
    (void)close(TAKE_FD(s->ready_fd));
}

static void on_signal(uv_signal_t *h, int signum)
{
    log_info("signal %d: leaving", signum);
    agent_leave(h->data);
}

static int run(struct serve *s, int listen_fd, const char *path, struct err *e)
{
    static const int signals[] = {SIGTERM, SIGINT};
    uv_loop_t loop;
    uv_signal_t handles[2];
    if (uv_loop_init(&loop) < 0) {
        (void)close(listen_fd);
        return err_set(e, ERR_SYSTEM, "no event loop");
    }
    struct agent *a = agent_new(&(struct agent_params){.loop = &loop,
                                                       .job = s->job,
                                                       .node = s->node,
                                                       .listen_fd = listen_fd,
                                                       .socket_path = path,
                                                       .orphan_ns = s->orphan_ns},
                                e);
    if (!a) {
        (void)uv_loop_close(&loop);
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        (void)uv_signal_init(&loop, &handles[i]);
        handles[i].data = a;
        (void)uv_signal_start(&handles[i], on_signal, signals[i]);
        uv_unref((uv_handle_t *)&handles[i]);
    }
    say_ready(s, "ready");
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    sigset_t leaving; /* a second SIGTERM must not stop us from cleaning up */
    (void)sigemptyset(&leaving);
    for (int i = 0; i < 2; i++)
        (void)sigaddset(&leaving, signals[i]);
    (void)pthread_sigmask(SIG_BLOCK, &leaving, NULL);
    for (int i = 0; i < 2; i++)
        uv_close((uv_handle_t *)&handles[i], NULL);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    agent_free(a);
    (void)uv_loop_close(&loop);
    return 0;
}

int serve_main(int argc, char **argv)
{
    struct err e = {0};
    struct serve s = {.ready_fd = -1, .orphan_ns = ORPHAN_DEFAULT_S * 1000000000LL};
    log_init("agent", LOG_INFO);
    if (parse(&s, argc, argv, &e) < 0) {
        log_error("%s", e.text);
        return 2;
    }
    AUTO_FREE char *path = paths_agent_socket(s.job, s.node, &e);
    AUTO_FREE char *who = xasprintf("agent %u", s.node);
    close_others(s.ready_fd);
    if (s.ready_fd >= 0)
        (void)fcntl(s.ready_fd, F_SETFD, FD_CLOEXEC);
    if (!path || daemonize(&e) < 0) {
        say_ready(&s, e.text);
        return 1;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    raise_open_files();
    log_init(who, LOG_INFO);
    int fd = redirect(&s, &e) < 0 ? -1 : paths_listen(s.job, path, &e);
    if (fd < 0) {
        say_ready(&s, e.kind == ERR_USAGE ? "ready" : e.text);
        return e.kind == ERR_USAGE ? 0 : 1;
    }
    int r = run(&s, fd, path, &e);
    if (r < 0) {
        log_error("%s", e.text);
        say_ready(&s, e.text);
    }
    paths_sweep(s.job);
    log_init("agent", LOG_INFO);
    return r < 0 ? 1 : 0;
}
