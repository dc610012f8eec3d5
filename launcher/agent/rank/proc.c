#include "launcher/agent/rank/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/own.h"
#include "common/link/page.h"
#include "launcher/agent/rank/keeper.h"
#include "launcher/agent/rank/logring.h"
#include "launcher/agent/rank/tree.h"
#include "launcher/agent/rank/workenv.h"

enum { LOG_READ_MAX = 256 << 10, HIGH_FD = 64 };

struct proc {
    uint32_t rank;
    const struct proc_ops *ops;
    void *ctx;
    pid_t keeper, worker;
    struct ranklink *link;
    struct logring *log;
    const struct page *page; /* at map */
    void *map;
    int snapshots[2];
    uv_poll_t out, status; /* the log pipe and the keeper's status pipe */
    int out_fd, status_fd;
    unsigned handles;
    bool ended_seen, no_exec, finished;
    int raw_status; /* of KEEPER_ENDED, or errno of KEEPER_NO_EXEC, or of the keeper itself */
    char *program;
    int64_t refused_ns, beat_ns;
    uint64_t beat;
    struct proc_exit exit;
};

/* What the keeper gets, and what stays here. */
struct plumbing {
    int child[KEEPER_FDS]; /* by the number it will have there */
    int link, out, status;
};

static void plumbing_done(struct plumbing *f)
{
    for (int i = 0; i < KEEPER_FDS; i++)
        if (f->child[i] >= 0 && (i != 2 || f->child[2] != f->child[1]))
            (void)close(f->child[i]);
    int ours[] = {f->link, f->out, f->status};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (ours[i] >= 0)
            (void)close(ours[i]);
}

static int page_memfd(void)
{
    AUTO_CLOSE int fd = memfd_create("dslaunch-page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, PAGE_BYTES) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return -1;
    return TAKE_FD(fd);
}

static int lay(struct plumbing *f, struct err *e)
{
    int pair[2], out[2], status[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, "socketpair");
    f->link = pair[0];
    f->child[KEEPER_LINK_FD] = pair[1];
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_sys(e, "pipe");
    f->out = out[0];
    f->child[1] = f->child[2] = out[1];
    if (pipe2(status, O_CLOEXEC) < 0)
        return err_sys(e, "pipe");
    f->status = status[0];
    f->child[KEEPER_STATUS_FD] = status[1];
    f->child[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    f->child[KEEPER_PAGE_FD] = page_memfd();
    for (int i = 0; i < 2; i++)
        f->child[KEEPER_SNAPSHOT_FD + i] = memfd_create("dslaunch-snapshot", MFD_CLOEXEC);
    for (int i = 0; i < KEEPER_FDS; i++)
        if (f->child[i] < 0)
            return err_sys(e, "file descriptors of a worker");
    if (fcntl(f->out, F_SETFL, O_NONBLOCK) < 0 || fcntl(f->status, F_SETFL, O_NONBLOCK) < 0)
        return err_sys(e, "fcntl");
    return 0;
}

/* In the child: system calls only.  All fds go above what is filled before any is placed. */
static void become_keeper(const struct plumbing *f, char *const *argv, char *const *env)
{
    int high[KEEPER_FDS];
    (void)signal(SIGPIPE, SIG_DFL);
    for (int i = 0; i < KEEPER_FDS; i++)
        high[i] = fcntl(f->child[i], F_DUPFD_CLOEXEC, HIGH_FD);
    for (int i = 0; i < KEEPER_FDS; i++)
        if (high[i] < 0 || dup2(high[i], i) < 0)
            _exit(127);
    (void)close_range(KEEPER_FDS, ~0U, 0); /* what the agent inherited from who knows whom */
    (void)execve("/proc/self/exe", argv, env);
    _exit(127);
}

struct args {
    char **at;
    size_t n;
};

static void arg(struct args *a, const char *s)
{
    a->at = xrealloc_array(a->at, a->n + 2, sizeof *a->at);
    a->at[a->n++] = xstrdup(s);
    a->at[a->n] = NULL;
}

static void arg_u32(struct args *a, const char *name, uint32_t v)
{
    AUTO_FREE char *s = xasprintf("%u", v);
    arg(a, name);
    arg(a, s);
}

static struct args keeper_args(const struct proc_params *p)
{
    struct args a = {0};
    AUTO_FREE char *name = xasprintf("%s/g%u/rank%u", p->job, p->generation, p->rank);
    arg(&a, "dsagent");
    arg(&a, "exec");
    arg(&a, "--name");
    arg(&a, name);
    arg_u32(&a, "--parent", (uint32_t)getpid());
    arg_u32(&a, "--threads", p->threads ? p->threads : 1);
    arg(&a, "--workdir");
    arg(&a, p->workdir);
    for (size_t i = 0; i < p->n_setup; i++) {
        arg(&a, "--setup");
        arg(&a, p->setup[i]);
    }
    arg(&a, "--");
    arg(&a, p->program);
    return a;
}

static void strings_free(char **at)
{
    for (char **s = at; s && *s; s++)
        free(*s);
    free(at);
}

/* All signals wait while there are two of us with one set of handlers. */
static pid_t fork_keeper(const struct plumbing *f, const struct proc_params *p, struct err *e)
{
    struct args a = keeper_args(p);
    char **env = workenv_new(p->env, p->n_env);
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0)
        become_keeper(f, a.at, env);
    int saved = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    strings_free(a.at);
    strings_free(env);
    errno = saved;
    return pid < 0 ? err_sys(e, "fork") : pid;
}

static void read_log(struct proc *p, size_t max)
{
    char chunk[64 << 10];
    size_t got = 0;
    while (got < max) {
        ssize_t n = read(p->out_fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0 || errno != EAGAIN)
                (void)uv_poll_stop(&p->out);
            break;
        }
        logring_add(p->log, chunk, (size_t)n);
        got += (size_t)n;
    }
    if (got)
        p->ops->on_log(p->ctx, p);
}

static void read_status(struct proc *p)
{
    struct keeper_record r;
    for (;;) {
        ssize_t n = read(p->status_fd, &r, sizeof r);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof r) {
            if (n >= 0 || errno != EAGAIN)
                (void)uv_poll_stop(&p->status);
            return;
        }
        if (r.tag == KEEPER_STARTED) {
            p->worker = r.value;
            p->ops->on_started(p->ctx, p);
        } else if (r.tag == KEEPER_ENDED || r.tag == KEEPER_NO_EXEC) {
            p->ended_seen = r.tag == KEEPER_ENDED;
            p->no_exec = r.tag == KEEPER_NO_EXEC;
            p->raw_status = r.value;
        }
    }
}

static void on_out(uv_poll_t *h, int status, int events)
{
    (void)status, (void)events;
    read_log(h->data, LOG_READ_MAX);
}

static void on_status(uv_poll_t *h, int status, int events)
{
    (void)status, (void)events;
    read_status(h->data);
}

static void on_link_event(void *ctx, const struct ranklink_event *ev)
{
    struct proc *p = ctx;
    if (ev->kind == RANKLINK_FAILED) {
        (void)snprintf(p->exit.kind, sizeof p->exit.kind, "%s", ev->error_kind);
        free(p->exit.text);
        p->exit.text = xstrdup(ev->text);
        p->exit.peer = ev->peer;
    } else if (ev->kind == RANKLINK_DONE) {
        p->exit.done = true;
        p->exit.stopped = ev->stopped;
    } else if (ev->kind == RANKLINK_BROKEN) {
        p->refused_ns = clock_now_ns();
        proc_blame(p, err_kind_name(ERR_PROTOCOL), ev->text);
    }
    p->ops->on_link(p->ctx, p, ev);
}

static int watch(struct proc *p, struct uv_loop_s *loop, struct plumbing *f, struct err *e)
{
    p->out.data = p->status.data = p;
    p->out_fd = TAKE_FD(f->out);
    p->status_fd = TAKE_FD(f->status);
    int r = uv_poll_init(loop, &p->out, p->out_fd);
    p->handles += r == 0;
    if (r == 0) {
        r = uv_poll_init(loop, &p->status, p->status_fd);
        p->handles += r == 0;
    }
    if (r == 0)
        r = uv_poll_start(&p->out, UV_READABLE, on_out);
    if (r == 0)
        r = uv_poll_start(&p->status, UV_READABLE, on_status);
    return r < 0 ? err_set(e, ERR_SYSTEM, "pipes of a worker: %s", uv_strerror(r)) : 0;
}

/* All that is needed here, before there is a keeper. */
static struct proc *proc_new(struct uv_loop_s *loop, const struct proc_params *params,
                             struct plumbing *f, struct err *e)
{
    struct proc *p = xcalloc(1, sizeof *p);
    *p = (struct proc){.rank = params->rank,
                       .log = logring_new(),
                       .program = xstrdup(params->program),
                       .out_fd = -1,
                       .status_fd = -1,
                       .snapshots = {-1, -1},
                       .exit = {.text = xstrdup(""), .peer = -1}};
    p->map = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, f->child[KEEPER_PAGE_FD], 0);
    p->page = p->map;
    if (p->map == MAP_FAILED)
        (void)err_sys(e, "mmap");
    else if (!(p->link =
                   ranklink_new(loop, TAKE_FD(f->link), params->welcome, on_link_event, p)))
        (void)err_set(e, ERR_SYSTEM, "the link of a worker cannot be watched");
    else if (watch(p, loop, f, e) == 0)
        return p;
    proc_free(p);
    return NULL;
}

struct proc *proc_start(struct uv_loop_s *loop, const struct proc_params *params,
                        const struct proc_ops *ops, void *ctx, struct err *e)
{
    struct plumbing f = {.link = -1, .out = -1, .status = -1};
    for (int i = 0; i < KEEPER_FDS; i++)
        f.child[i] = -1;
    struct proc *p = lay(&f, e) < 0 ? NULL : proc_new(loop, params, &f, e);
    if (p) {
        p->ops = ops;
        p->ctx = ctx;
        p->keeper = fork_keeper(&f, params, e);
    }
    if (p && p->keeper < 0)
        proc_free(TAKE(p));
    for (int i = 0; i < 2 && p; i++)
        p->snapshots[i] = TAKE_FD(f.child[KEEPER_SNAPSHOT_FD + i]);
    plumbing_done(&f);
    return p;
}

static void release(struct proc *p)
{
    if (p->out_fd >= 0)
        (void)close(p->out_fd);
    if (p->status_fd >= 0)
        (void)close(p->status_fd);
    free(p);
}

static void on_closed(uv_handle_t *h)
{
    struct proc *p = h->data;
    if (--p->handles == 0)
        release(p);
}

void proc_free(struct proc *p)
{
    if (!p)
        return;
    ranklink_free(p->link);
    logring_free(p->log);
    for (int i = 0; i < 2; i++)
        if (p->snapshots[i] >= 0)
            (void)close(p->snapshots[i]);
    if (p->map != MAP_FAILED)
        (void)munmap(p->map, PAGE_BYTES);
    free(p->program);
    free(p->exit.text);
    unsigned n = p->handles; /* made in this order; closed from the loop */
    if (n > 0)
        uv_close((uv_handle_t *)&p->out, on_closed);
    if (n > 1)
        uv_close((uv_handle_t *)&p->status, on_closed);
    if (n == 0)
        release(p);
}

uint32_t proc_rank(const struct proc *p)
{
    return p->rank;
}

pid_t proc_keeper(const struct proc *p)
{
    return p->keeper;
}

pid_t proc_pid(const struct proc *p)
{
    return p->worker;
}

struct ranklink *proc_link(struct proc *p)
{
    return p->link;
}

struct logring *proc_log(struct proc *p)
{
    return p->log;
}

int proc_snapshot_fd(const struct proc *p, int slot)
{
    return p->snapshots[slot];
}

struct proc_page proc_page(const struct proc *p)
{
    const struct page *g = p->page;
    struct tree_stat s = p->worker ? tree_stat(p->worker) : (struct tree_stat){0};
    return (struct proc_page){
        .beat = atomic_load(&g->beat),
        .step = atomic_load(&g->step),
        .coll_seq = atomic_load(&g->coll_seq),
        .phase = atomic_load(&g->phase),
        .micro = atomic_load(&g->micro),
        .waiting = atomic_load(&g->waiting),
        .coll_group = atomic_load(&g->coll_group),
        .coll_op = atomic_load(&g->coll_op),
        .coll_peer = atomic_load(&g->coll_peer),
        .rss_bytes = s.rss_bytes,
        .state = s.state,
    };
}

void proc_kill(const struct proc *p, bool hard)
{
    if (!p->keeper)
        return;
    (void)kill(p->keeper, hard ? SIGKILL : SIGTERM);
    (void)kill(p->keeper, SIGCONT); /* a stopped one would not see it */
}

bool proc_keeper_gone(struct proc *p, int wait_status)
{
    read_status(p);
    p->keeper = p->worker = 0;
    if (p->ended_seen || p->no_exec)
        return true;
    p->raw_status = wait_status;
    if (WIFSIGNALED(wait_status)) {
        AUTO_FREE char *text =
            xasprintf("its keeper was killed by signal %d (%s)", WTERMSIG(wait_status),
                      strsignal(WTERMSIG(wait_status)));
        proc_blame(p, "", text);
    } else {
        AUTO_FREE char *text =
            xasprintf("its keeper ended with code %d", WEXITSTATUS(wait_status));
        proc_blame(p, err_kind_name(ERR_SYSTEM), text);
    }
    return false;
}

int64_t proc_refused_ns(const struct proc *p)
{
    return p->refused_ns;
}

int64_t proc_still_ns(struct proc *p, int64_t now_ns)
{
    uint64_t beat = atomic_load(&p->page->beat);
    if (beat != p->beat || !p->beat_ns) {
        p->beat = beat;
        p->beat_ns = now_ns;
    }
    return now_ns - p->beat_ns;
}

void proc_blame(struct proc *p, const char *kind, const char *text)
{
    if (p->exit.kind[0] || p->exit.text[0])
        return;
    (void)snprintf(p->exit.kind, sizeof p->exit.kind, "%s", kind);
    free(p->exit.text);
    p->exit.text = xstrdup(text);
}

void proc_finish(struct proc *p)
{
    if (p->finished)
        return;
    ranklink_drain(p->link);
    read_log(p, SIZE_MAX);
    logring_end(p->log);
    if (p->no_exec) {
        AUTO_FREE char *text = xasprintf("%s: %s", p->program, strerror(p->raw_status));
        proc_blame(p, err_kind_name(ERR_SYSTEM), text);
        p->exit.status = 127;
    } else {
        p->exit.status =
            WIFSIGNALED(p->raw_status) ? -WTERMSIG(p->raw_status) : WEXITSTATUS(p->raw_status);
    }
    p->finished = true;
    p->ops->on_log(p->ctx, p);
}

const struct proc_exit *proc_exited(const struct proc *p)
{
    return p->finished ? &p->exit : NULL;
}
