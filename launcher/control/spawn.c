#include "launcher/control/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/own.h"

enum { LOCK_FD = 3, READY_FD = 4, READY_TIMEOUT_MS = 30000 };

static const char *const errands[] = {
    [CONTROL_RUN] = "run", [CONTROL_STOP] = "stop", [CONTROL_STOP_NOW] = "stop-now"};

void spawn_say_ready(int fd, const struct err *why)
{
    AUTO_FREE char *line =
        why ? xasprintf("error %d %s", (int)why->kind, why->text) : xstrdup("ready");
    (void)io_write_full(fd, line, strlen(line), NULL);
    (void)close(fd);
}

static int hear_ready(int fd, int timeout_ms, struct err *e)
{
    char text[ERR_TEXT_MAX + 32];
    size_t n = 0;
    int64_t end = clock_now_ns() + timeout_ms * NS_PER_MS;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left = (end - clock_now_ns()) / NS_PER_MS;
        if (left <= 0)
            return err_set(e, ERR_SYSTEM, "the controller did not start in %d s",
                           timeout_ms / 1000);
        int k = poll(&p, 1, (int)left);
        if (k < 0 && errno != EINTR)
            return err_sys(e, "poll");
        if (k <= 0)
            continue;
        ssize_t got = read(fd, text + n, sizeof(text) - 1 - n);
        if (got < 0 && errno != EINTR)
            return err_sys(e, "read");
        if (got == 0)
            break;
        n += got > 0 ? (size_t)got : 0;
    }
    text[n] = 0;
    if (strcmp(text, "ready") == 0)
        return 0;
    int kind = 0, at = 0;
    if (sscanf(text, "error %d %n", &kind, &at) == 1 && kind > 0 && kind < ERR_KIND_COUNT)
        return err_set(e, (enum err_kind)kind, "%s", text + at);
    return err_set(e, ERR_SYSTEM, "the controller died at its start");
}

/* In the child: nothing but the lock, the pipe and the log stays open. */
static int arrange_files(const struct spawn_params *p, int ready)
{
    int lock = fcntl(p->lock_fd, F_DUPFD, 10), pipe_end = fcntl(ready, F_DUPFD, 10);
    int log = open(p->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    int null = open("/dev/null", O_RDONLY);
    if (lock < 0 || pipe_end < 0 || log < 0 || null < 0)
        return -1;
    int above = fcntl(log, F_DUPFD, 10);
    if (above < 0 || dup2(null, 0) < 0 || dup2(above, 1) < 0 || dup2(above, 2) < 0 ||
        dup2(lock, LOCK_FD) < 0 || dup2(pipe_end, READY_FD) < 0)
        return -1;
    return close_range(READY_FD + 1, ~0U, 0);
}

static _Noreturn void become_controller(const struct spawn_params *p, int ready)
{
    static char take_over[] = "take-over", begin[] = "begin", name[] = "dslaunch",
                command[] = "controller";
    AUTO_FREE char *job = xstrdup(p->job);
    AUTO_FREE char *errand = xstrdup(errands[p->errand]);
    char *argv[] = {name, command, job, p->take_over ? take_over : begin, errand, NULL};
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (int s = 1; s < NSIG; s++)
        (void)signal(s, SIG_DFL);
    if (setsid() >= 0 && arrange_files(p, ready) == 0 && chdir("/") == 0)
        (void)execv("/proc/self/exe", argv);
    _exit(127); /* the pipe's end tells */
}

int spawn_controller(const struct spawn_params *p, struct err *e)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(e, "pipe");
    AUTO_CLOSE int hear = ends[0], say = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(e, "fork");
    if (pid == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0)
            become_controller(p, say);
        _exit(grandchild < 0 ? 127 : 0);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    (void)close(say);
    say = -1;
    return hear_ready(hear, READY_TIMEOUT_MS, e);
}

int spawn_parse(int argc, char **argv, struct control_params *ret, struct err *e)
{
    *ret = (struct control_params){.lock_fd = LOCK_FD, .ready_fd = READY_FD};
    if (argc != 4 || fcntl(LOCK_FD, F_SETFD, FD_CLOEXEC) < 0 ||
        fcntl(READY_FD, F_SETFD, FD_CLOEXEC) < 0)
        return err_set(e, ERR_USAGE, "this command is for dslaunch itself");
    ret->job = argv[1];
    ret->take_over = strcmp(argv[2], "take-over") == 0;
    for (size_t i = 0; i < sizeof(errands) / sizeof(errands[0]); i++)
        if (strcmp(argv[3], errands[i]) == 0)
            ret->errand = (enum control_errand)i;
    return 0;
}
