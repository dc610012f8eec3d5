/* boot_local: agents on this machine.  `dsagent serve` makes a daemon of itself and says
 * through an inherited pipe when its socket is there; then we connect.  Nothing waits but for
 * that pipe, with a deadline. */
#include "launcher/boot/boot.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/own.h"
#include "launcher/boot/paths.h"

enum { READY_FD = 3, WORD_MAX = 2048, KILLED_MS = 1000 };

/* One start or attach on its way; freed once its handles are closed. */
struct attempt {
    struct attempt *next;
    struct boot *b; /* not to be used once ended */
    uint32_t node;
    uv_process_t process;
    uv_pipe_t ready;
    uv_timer_t timer;
    struct buf word; /* what the agent said */
    char chunk[256];
    unsigned handles;
};

struct boot {
    struct boot_params p;
    char *job;
    struct attempt *attempts;
};

static void on_closed(uv_handle_t *h)
{
    struct attempt *t = h->data;
    if (--t->handles)
        return;
    buf_done(&t->word);
    free(t);
}

static void close_if_made(uv_handle_t *h)
{
    if (h->type != UV_UNKNOWN_HANDLE && !uv_is_closing(h))
        uv_close(h, on_closed);
}

/* Unlinks and lets go: no more call-back from this attempt.  A starter that still runs is left
 * to on_starter_end, or it would stay a zombie. */
static void end(struct attempt *t)
{
    for (struct attempt **at = &t->b->attempts; *at; at = &(*at)->next) {
        if (*at == t) {
            *at = t->next;
            break;
        }
    }
    close_if_made((uv_handle_t *)&t->ready);
    close_if_made((uv_handle_t *)&t->timer);
    if (!uv_is_active((uv_handle_t *)&t->process))
        close_if_made((uv_handle_t *)&t->process);
}

static void fail(struct attempt *t, const struct err *why)
{
    struct boot *b = t->b;
    uint32_t node = t->node;
    end(t);
    b->p.on_failed(b->p.ctx, node, why);
}

static void connect_now(struct attempt *t)
{
    struct err e;
    struct boot *b = t->b;
    uint32_t node = t->node;
    AUTO_FREE char *path = paths_agent_socket(b->job, node, &e);
    int fd = path ? paths_connect(path, &e) : -1;
    if (fd < 0) {
        (void)err_wrap(&e, "node %u: no agent", node);
        fail(t, &e);
        return;
    }
    end(t);
    b->p.on_channel_fd(b->p.ctx, node, fd);
}

static void on_attach(uv_timer_t *h)
{
    connect_now(h->data);
}

static void on_deadline(uv_timer_t *h)
{
    struct attempt *t = h->data;
    struct err e;
    (void)err_set(&e, ERR_NETWORK, "node %u: its agent is not ready after %lld ms", t->node,
                  (long long)(t->b->p.connect_ns / NS_PER_MS));
    if (uv_is_active((uv_handle_t *)&t->process))
        (void)uv_process_kill(&t->process, SIGKILL);
    fail(t, &e);
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *ret)
{
    struct attempt *t = h->data;
    (void)hint;
    *ret = uv_buf_init(t->chunk, sizeof t->chunk);
}

static void on_word(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct attempt *t = s->data;
    struct err e;
    if (n > 0) {
        (void)buf_add(&t->word, b->base, (size_t)n);
        return;
    }
    if (n == 0)
        return;
    char *nl = t->word.len ? memchr(t->word.data, '\n', t->word.len) : NULL;
    if (nl)
        *nl = 0;
    if (nl && strcmp(t->word.data, "ready") == 0) {
        connect_now(t);
        return;
    }
    (void)err_set(&e, ERR_SYSTEM, "node %u: %s", t->node,
                  nl ? t->word.data : "the agent ended before it was ready");
    fail(t, &e);
}

/* The daemon's word counts; its parent has only to be reaped. */
static void on_starter_end(uv_process_t *p, int64_t status, int signum)
{
    (void)status, (void)signum;
    close_if_made((uv_handle_t *)p);
}

/* Diagnostics of agents lie beside the job's other logs. */
static char *agent_log(const struct boot *b, uint32_t node, struct err *e)
{
    AUTO_FREE char *state = paths_state_dir(b->job, e);
    AUTO_FREE char *dir = state ? xasprintf("%s/logs", state) : NULL;
    if (!dir || io_mkdirs(dir, 0755, e) < 0)
        return NULL;
    return xasprintf("%s/agent-%u.log", dir, node);
}

static int spawn(struct attempt *t, struct err *e)
{
    struct boot *b = t->b;
    AUTO_FREE char *program = paths_program("DSLAUNCH_AGENT", "dsagent", e);
    AUTO_FREE char *log = program ? agent_log(b, t->node, e) : NULL;
    AUTO_FREE char *node = xasprintf("%u", t->node);
    AUTO_FREE char *orphan = xasprintf("%" PRId64, b->p.orphan_ns);
    if (!log)
        return -1;
    char *args[] = {"dsagent", "serve", "--job", b->job,        "--node", node, "--ready-fd",
                    "3",       "--log", log,     "--orphan-ns", orphan,   NULL};
    uv_stdio_container_t io[READY_FD + 1] = {
        {.flags = UV_IGNORE},
        {.flags = UV_IGNORE},
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&t->ready},
    };
    uv_process_options_t o = {
        .exit_cb = on_starter_end,
        .file = program,
        .args = args,
        .stdio_count = READY_FD + 1,
        .stdio = io,
    };
    int r = uv_spawn(b->p.loop, &t->process, &o);
    if (r < 0)
        return err_set(e, ERR_SYSTEM, "%s: %s", program, uv_strerror(r));
    return uv_read_start((uv_stream_t *)&t->ready, on_alloc, on_word) < 0
               ? err_set(e, ERR_SYSTEM, "%s: its pipe cannot be read", program)
               : 0;
}

/* From the loop, so that a failure is told from there too. */
static void on_start(uv_timer_t *h)
{
    struct attempt *t = h->data;
    struct err e;
    (void)uv_pipe_init(t->b->p.loop, &t->ready, 0);
    t->handles++;
    t->handles++; /* uv_spawn makes a handle of it even when it fails */
    if (spawn(t, &e) < 0) {
        if (t->process.type == UV_UNKNOWN_HANDLE)
            t->handles--;
        (void)err_wrap(&e, "node %u", t->node);
        fail(t, &e);
        return;
    }
    (void)uv_timer_start(&t->timer, on_deadline, (uint64_t)(t->b->p.connect_ns / NS_PER_MS), 0);
}

static void begin(struct boot *b, uint32_t node, uv_timer_cb first)
{
    struct attempt *t = xcalloc(1, sizeof *t);
    t->b = b;
    t->node = node;
    t->word = BUF(WORD_MAX);
    t->process.data = t->ready.data = t->timer.data = t;
    (void)uv_timer_init(b->p.loop, &t->timer);
    t->handles = 1;
    t->next = b->attempts;
    b->attempts = t;
    (void)uv_timer_start(&t->timer, first, 0, 0);
}

static void local_start(struct boot *b, uint32_t node)
{
    begin(b, node, on_start);
}

static void local_attach(struct boot *b, uint32_t node)
{
    begin(b, node, on_attach);
}

/* Its socket knows who listens: the pid of a live process. */
static void local_kill(struct boot *b, uint32_t node)
{
    struct ucred u;
    socklen_t n = sizeof u;
    AUTO_FREE char *path = paths_agent_socket(b->job, node, NULL);
    AUTO_CLOSE int fd = path ? paths_connect(path, NULL) : -1;
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &n) < 0 || u.uid != geteuid() ||
        u.pid <= 0 || kill(u.pid, SIGKILL) < 0)
        return;
    log_warn("node %u: its agent %d does not speak and was killed", node, (int)u.pid);
    (void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, KILLED_MS);
}

static struct boot *local_create(const struct boot_params *p, struct err *e)
{
    AUTO_FREE char *path =
        paths_agent_socket(p->job, 0, e); /* a name it cannot use fails here */
    if (!path)
        return NULL;
    struct boot *b = xcalloc(1, sizeof *b);
    b->p = *p;
    b->p.job = b->job = xstrdup(p->job);
    return b;
}

static void local_free(struct boot *b)
{
    if (!b)
        return;
    while (b->attempts)
        end(b->attempts);
    free(b->job);
    free(b);
}

const struct boot_ops boot_local = {
    .name = "local",
    .create = local_create,
    .start = local_start,
    .attach = local_attach,
    .kill = local_kill,
    .free = local_free,
};
