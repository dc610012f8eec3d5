#include "launcher/agent/rank/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/blas_core.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/own.h"
#include "launcher/agent/rank/tree.h"

enum { SETUP_MAX_BYTES = 1 << 20, REAP_TICK_NS = 20 * 1000 * 1000 };

struct keeper {
    pid_t agent, worker; /* worker: 0 once it is reaped, since its number may be used again */
    const char *workdir, *threads, *name;
    struct buf *setup; /* a shell script, empty if there are no lines */
    char **argv;       /* of the program */
    int status;        /* wait status of the worker */
};

static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2};

static void tell(enum keeper_tag tag, int value)
{
    struct keeper_record r = {(int32_t)tag, value};
    (void)!write(KEEPER_STATUS_FD, &r, sizeof r);
}

static void set_environment(const struct keeper *k)
{
    const char *core = blas_core();
    if (core)
        (void)setenv(BLAS_CORE_ENV, core, 0);
    (void)setenv("OPENBLAS_NUM_THREADS", k->threads, 0);
    (void)setenv("OMP_NUM_THREADS", k->threads, 0);
}

/* A core file of a large worker would keep its process, and so the restart, waiting for the
 * disk. A setup line may raise the limit again: the hard one stays. */
static void set_limits(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_CORE, &l) < 0)
        return;
    l.rlim_cur = 0;
    (void)setrlimit(RLIMIT_CORE, &l);
}

/* In the child.  `report` is a CLOEXEC pipe: an errno in it means that there was no exec. */
static void become_worker(const struct keeper *k, pid_t keeper, int report)
{
    sigset_t none;
    int why = 0;
    (void)sigemptyset(&none);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || chdir(k->workdir) < 0)
        why = errno;
    if (getppid() != keeper)
        _exit(128 + SIGKILL); /* it died before PDEATHSIG was set */
    if (!why) {
        for (int s = 1; s < NSIG; s++) /* what is ignored stays so over exec */
            (void)signal(s, SIG_DFL);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        if (k->setup->len) {
            size_t n = 0;
            while (k->argv[n])
                n++;
            char **sh = xcalloc(n + 4, sizeof *sh);
            sh[0] = "sh";
            sh[1] = "-c";
            sh[2] = k->setup->data;
            memcpy(sh + 3, k->argv, n * sizeof *sh);
            (void)execv("/bin/sh", sh);
        } else {
            (void)execvp(k->argv[0], k->argv);
        }
        why = errno;
    }
    (void)!write(report, &why, sizeof why);
    _exit(127);
}

static int start_worker(struct keeper *k)
{
    int report[2], why = 0;
    pid_t self = getpid();
    if (pipe2(report, O_CLOEXEC) < 0)
        return errno;
    k->worker = fork();
    if (k->worker < 0)
        return errno;
    if (k->worker == 0)
        become_worker(k, self, report[1]);
    (void)close(report[1]);
    ssize_t n;
    do
        n = read(report[0], &why, sizeof why);
    while (n < 0 && errno == EINTR);
    (void)close(report[0]);
    for (int fd = KEEPER_LINK_FD; fd < KEEPER_STATUS_FD; fd++)
        (void)close(fd); /* the worker's end of the link must be the only one */
    if (n > 0)
        return why;
    tell(KEEPER_STARTED, k->worker);
    return 0;
}

/* Reaps what there is.  False once there are no children any more. */
static bool reap(struct keeper *k, bool *worker_ended)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0)
            return pid == 0;
        if (pid == k->worker) {
            k->worker = 0;
            k->status = status;
            *worker_ended = true;
        }
    }
}

/* Ends with the last child: a keeper has no deadline of its own here, since ending before its
 * tree would lose it; the agent has one, and says so. */
static void kill_all(struct keeper *k, const sigset_t *waited)
{
    bool ignored;
    struct err e;
    while (reap(k, &ignored)) {
        if (tree_kill(getpid(), NULL, 0, &e) < 0 && k->worker > 0)
            (void)kill(k->worker, SIGKILL);
        (void)sigtimedwait(waited, NULL, &(struct timespec){.tv_nsec = REAP_TICK_NS});
    }
}

static void watch(struct keeper *k, const sigset_t *waited)
{
    bool ended = false;
    while (!ended) {
        siginfo_t si;
        int sig = sigwaitinfo(waited, &si);
        if (sig == SIGTERM)
            return;
        if (sig == SIGCHLD)
            (void)reap(k, &ended);
        else if (sig > 0 && k->worker > 0)
            (void)kill(k->worker, sig);
    }
}

static int parse(struct keeper *k, int argc, char **argv)
{
    static const struct option options[] = {
        {"parent", required_argument, NULL, 'p'},  {"threads", required_argument, NULL, 't'},
        {"workdir", required_argument, NULL, 'w'}, {"setup", required_argument, NULL, 's'},
        {"name", required_argument, NULL, 'n'},    {NULL, 0, NULL, 0},
    };
    int o;
    optind = 1;
    while ((o = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        switch (o) {
        case 'p':
            k->agent = (pid_t)strtol(optarg, NULL, 10);
            break;
        case 't':
            k->threads = optarg;
            break;
        case 'w':
            k->workdir = optarg;
            break;
        case 's':
            if (!k->setup->len)
                (void)buf_puts(k->setup, "set -e\n");
            (void)buf_printf(k->setup, "%s\n", optarg);
            break;
        case 'n':
            k->name = optarg;
            break;
        default:
            return -1;
        }
    }
    k->argv = argv + optind;
    if (k->setup->len)
        (void)buf_puts(k->setup, "exec \"$0\" \"$@\"\n");
    return k->argv[0] && k->agent > 0 && !k->setup->full ? 0 : -1;
}

int keeper_main(int argc, char **argv)
{
    AUTO_BUF struct buf setup = BUF(SETUP_MAX_BYTES);
    struct keeper k = {.workdir = "/", .threads = "1", .setup = &setup};
    sigset_t waited;
    log_init("keeper", LOG_INFO);
    if (parse(&k, argc, argv) < 0) {
        log_error("dsagent exec is started by an agent, not by hand");
        return 2;
    }
    (void)sigemptyset(&waited);
    (void)sigaddset(&waited, SIGCHLD);
    (void)sigaddset(&waited, SIGTERM);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        (void)sigaddset(&waited, passed_on[i]);
    (void)sigprocmask(SIG_SETMASK, &waited, NULL);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) < 0) {
        log_error("prctl: %s", strerror(errno));
        return 1;
    }
    if (getppid() != k.agent)
        return 128 + SIGTERM; /* it died before PDEATHSIG was set */
    (void)prctl(PR_SET_NAME, "dskeeper");
    (void)fcntl(KEEPER_STATUS_FD, F_SETFD, FD_CLOEXEC);
    set_environment(&k);
    set_limits();
    int why = start_worker(&k);
    if (why) {
        log_error("%s in %s: %s", k.argv[0], k.workdir, strerror(why));
        kill_all(&k, &waited);
        tell(KEEPER_NO_EXEC, why);
        return 127;
    }
    watch(&k, &waited);
    kill_all(&k, &waited);
    tell(KEEPER_ENDED, k.status);
    return WIFSIGNALED(k.status) ? 128 + WTERMSIG(k.status) : WEXITSTATUS(k.status);
}
