#include "worker/link.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/link/linkline.h"
#include "worker/link_state.h"

enum { READ_BYTES = 64 << 10, EVENT_MAX = 4096, BEAT_MS = 500 };
#define WELCOME_NS (60 * NS_PER_S)
#define SEND_NS (60 * NS_PER_S) /* for an agent that does not read, once OUT_MAX is queued */
#define FAILED_NS NS_PER_S      /* for last words */
enum { OUT_MAX = 2 * LINK_LINE_MAX };

static int die(struct link *l, struct err *e)
{
    l->dead = true;
    if (e)
        *e = l->why;
    return -1;
}

static int dead(const struct link *l, struct err *e)
{
    if (l->dead && e)
        *e = l->why;
    return l->dead ? -1 : 0;
}

static int take_in(struct link *l, struct err *e)
{
    for (;;) {
        char chunk[READ_BYTES];
        ssize_t k = recv(l->fd, chunk, sizeof chunk, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (k < 0)
            return err_sys_kind(e, ERR_NETWORK, "the agent is gone");
        if (k == 0)
            return err_set(e, ERR_NETWORK, "the agent is gone");
        int full = buf_add(&l->in, chunk, (size_t)k);
        assert(!full); /* link_take_lines leaves LINK_LINE_MAX at most */
        if (link_take_lines(l, e) < 0)
            return -1;
        if ((size_t)k < sizeof chunk)
            return 0;
    }
}

static int give_out(struct link *l, struct err *e)
{
    size_t done = 0;
    while (done < l->out.len) {
        ssize_t k =
            send(l->fd, l->out.data + done, l->out.len - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (k < 0)
            return err_sys_kind(e, ERR_NETWORK, "the agent is gone");
        done += (size_t)k;
    }
    buf_consume(&l->out, done);
    return 0;
}

int link_poll(struct link *l, struct err *e)
{
    if (l->dead)
        return dead(l, e);
    if (l->fd < 0)
        return 0;
    /* In first: what the agent said before it closed is the better reason. */
    if (take_in(l, &l->why) < 0 || give_out(l, &l->why) < 0)
        return die(l, e);
    return 0;
}

/* Serves the link until `done`, at most until the deadline. */
static int wait_until(struct link *l, bool (*done)(const struct link *), const char *what,
                      int64_t deadline_ns, struct err *e)
{
    for (;;) {
        if (link_poll(l, e) < 0)
            return -1;
        if (done(l))
            return 0;
        int64_t now = clock_now_ns();
        if (l->fd < 0 || now >= deadline_ns)
            return err_set(e, ERR_NETWORK, "the agent has not %s in time", what);
        /* A wait for the agent or the controller is no hang of this rank. */
        link_beat(l);
        int64_t ms = (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS;
        struct pollfd p = {.fd = l->fd, .events = (short)(POLLIN | (l->out.len ? POLLOUT : 0))};
        if (poll(&p, 1, ms < BEAT_MS ? (int)ms : BEAT_MS) < 0 && errno != EINTR)
            return err_sys(e, "poll");
    }
}

static bool has_room(const struct link *l)
{
    return l->out.len <= LINK_LINE_MAX;
}
static bool is_flushed(const struct link *l)
{
    return l->out.len == 0;
}
static bool is_welcomed(const struct link *l)
{
    return l->welcomed;
}
static bool is_released(const struct link *l)
{
    return l->released;
}
static bool is_answered(const struct link *l)
{
    return l->answered;
}

/* Sends `line` (its newline included) as far as the socket takes it; the rest goes with the
 * next call. */
static int say(struct link *l, const struct buf *line, struct err *e)
{
    if (dead(l, e) < 0)
        return -1;
    if (line->full || line->len > LINK_LINE_MAX)
        return err_set(e, ERR_PROTOCOL, "a line of more than %d bytes", LINK_LINE_MAX);
    if (!has_room(l) &&
        wait_until(l, has_room, "read its link", clock_now_ns() + SEND_NS, e) < 0)
        return -1;
    (void)buf_add(&l->out, line->data, line->len);
    return give_out(l, &l->why) < 0 ? die(l, e) : 0;
}

static int fd_of_env(const char *name, const char *text, const char **ret_end, int *ret,
                     struct err *e)
{
    char *end;
    errno = 0;
    long fd = strtol(text, &end, 10);
    if (end == text || errno || fd < 0 || fd > INT32_MAX || fcntl((int)fd, F_GETFD) < 0)
        return err_set(e, ERR_PROTOCOL, "%s=%s: no open descriptor", name, text);
    (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    *ret = (int)fd;
    *ret_end = end;
    return 0;
}

/* -1 in *ret if the variable is not set. */
static int one_fd(const char *name, int *ret, struct err *e)
{
    const char *text = getenv(name), *end = "";
    if (!text)
        return 0;
    if (fd_of_env(name, text, &end, ret, e) < 0)
        return -1;
    return *end ? err_set(e, ERR_PROTOCOL, "%s=%s: one descriptor", name, text) : 0;
}

static int snapshot_fds(struct link *l, struct err *e)
{
    const char *name = "DSLAUNCH_SNAPSHOT", *text = getenv(name), *end = "";
    if (!text)
        return 0;
    if (fd_of_env(name, text, &end, &l->snapshot[0], e) < 0)
        return -1;
    if (*end != ',' || fd_of_env(name, end + 1, &end, &l->snapshot[1], e) < 0 || *end)
        return err_set(e, ERR_PROTOCOL, "%s=%s: two descriptors", name, text);
    return 0;
}

static int page_map(struct link *l, int fd, struct err *e)
{
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_size < PAGE_BYTES))
        return err_set(e, ERR_PROTOCOL, "DSLAUNCH_PAGE is no page");
    void *p = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
                   fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    if (p == MAP_FAILED)
        return err_sys(e, "map the progress page");
    l->page = p;
    atomic_store(&l->page->coll_peer, UINT32_MAX);
    atomic_store(&l->page->version, PAGE_VERSION);
    atomic_store(&l->page->magic, PAGE_MAGIC);
    return 0;
}

static struct link *link_new(void)
{
    struct link *l = xcalloc(1, sizeof *l);
    l->fd = l->snapshot[0] = l->snapshot[1] = -1;
    l->in = BUF(LINK_LINE_MAX + READ_BYTES);
    l->out = BUF(OUT_MAX);
    return l;
}

static int hello(struct link *l, struct err *e)
{
    AUTO_BUF struct buf line = BUF(LINK_LINE_MAX);
    (void)buf_printf(&line, "hello proto=%d\n", LINK_PROTO);
    if (say(l, &line, e) < 0)
        return -1;
    return wait_until(l, is_welcomed, "said welcome", clock_now_ns() + WELCOME_NS, e);
}

struct link *link_open(struct link_identity *ret, struct err *e)
{
    AUTO(link) struct link *l = link_new();
    AUTO_CLOSE int page_fd = -1;
    struct stat st;
    if (!getenv("DSLAUNCH_LINK")) {
        (void)err_set(e, ERR_USAGE, "DSLAUNCH_LINK is not set: no agent started this worker");
        return NULL;
    }
    if (one_fd("DSLAUNCH_LINK", &l->fd, e) < 0 || one_fd("DSLAUNCH_PAGE", &page_fd, e) < 0 ||
        snapshot_fds(l, e) < 0 || page_map(l, page_fd, e) < 0)
        return NULL;
    if (fstat(l->fd, &st) < 0 || !S_ISSOCK(st.st_mode)) {
        (void)err_set(e, ERR_PROTOCOL, "DSLAUNCH_LINK is no socket");
        return NULL;
    }
    if (hello(l, e) < 0)
        return NULL;
    l->id.spec = l->spec;
    *ret = l->id;
    return TAKE(l);
}

struct link *link_open_solo(const char *spec_yaml, struct link_identity *ret, struct err *e)
{
    AUTO(link) struct link *l = link_new();
    l->solo = solo_new(spec_yaml, e);
    if (!l->solo || page_map(l, -1, e) < 0)
        return NULL;
    for (int slot = 0; slot < 2; slot++) {
        l->snapshot[slot] = memfd_create("dslaunch-snapshot", MFD_CLOEXEC);
        if (l->snapshot[slot] < 0) {
            (void)err_sys(e, "make a snapshot memfd");
            return NULL;
        }
    }
    l->spec = xstrdup(spec_yaml);
    l->id = (struct link_identity){
        .world = 1, .generation = solo_generation(l->solo), .host_id = "solo", .spec = l->spec};
    *ret = l->id;
    return TAKE(l);
}

void link_free(struct link *l)
{
    if (!l)
        return;
    own_fd(&l->fd);
    own_fd(&l->snapshot[0]);
    own_fd(&l->snapshot[1]);
    if (l->page)
        (void)munmap(l->page, PAGE_BYTES);
    solo_free(l->solo);
    buf_done(&l->in);
    buf_done(&l->out);
    explicit_bzero(l->id.secret, sizeof l->id.secret);
    free(l->asked);
    free(l->spec);
    free(l);
}

int link_put(struct link *l, const char *key, const void *val, size_t n, struct err *e)
{
    AUTO_BUF struct buf line = BUF(LINK_LINE_MAX);
    if (l->solo) {
        solo_put(l->solo, key, val, n);
        return 0;
    }
    (void)buf_printf(&line, "put key=%s value=", key);
    (void)buf_hex(&line, val, n);
    (void)buf_puts(&line, "\n");
    return say(l, &line, e);
}

int link_get(struct link *l, const char *key, struct buf *ret, int64_t deadline_ns,
             struct err *e)
{
    AUTO_BUF struct buf line = BUF(LINK_LINE_MAX);
    if (l->solo)
        return solo_get(l->solo, key, ret, e);
    free(l->asked);
    l->asked = xstrdup(key);
    l->answer = ret;
    l->answered = l->is_void = false;
    (void)buf_printf(&line, "get key=%s\n", key);
    int r = say(l, &line, e);
    if (r == 0)
        r = wait_until(l, is_answered, "answered a get", deadline_ns, e);
    l->answer = NULL;
    if (r < 0)
        return err_wrap(e, "%s", key);
    if (l->is_void)
        return err_set(e, ERR_PROTOCOL, "%s: the generation ended, or nobody put it", key);
    return 0;
}

int link_barrier(struct link *l, int64_t deadline_ns, struct err *e)
{
    AUTO_BUF struct buf line = BUF(LINK_LINE_MAX);
    if (l->solo)
        return 0;
    (void)buf_puts(&line, "barrier\n");
    return say(l, &line, e) < 0
               ? -1
               : wait_until(l, is_released, "released the barrier", deadline_ns, e);
}

int link_fd(const struct link *l)
{
    return l->fd;
}

bool link_stop_asked(const struct link *l)
{
    return l->stop;
}

static void show(const char *text)
{
    (void)puts(text);
    (void)fflush(stdout);
}

int link_metrics(struct link *l, const char *pairs, struct err *e)
{
    AUTO_BUF struct buf line = BUF(LINK_LINE_MAX);
    if (l->solo) {
        show(pairs);
        return 0;
    }
    (void)buf_printf(&line, "metrics %s\n", pairs);
    return say(l, &line, e);
}

void link_event(struct link *l, const char *fmt, ...)
{
    char text[EVENT_MAX];
    AUTO_BUF struct buf line = BUF(LINK_LINE_MAX);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (l->solo) {
        show(text);
        return;
    }
    (void)buf_puts(&line, "event text=");
    (void)buf_hex(&line, text, strlen(text));
    (void)buf_puts(&line, "\n");
    (void)say(l, &line, NULL); /* a dead link shows in the next call that can say so */
}

void link_failed(struct link *l, const struct err *why, int peer)
{
    AUTO_BUF struct buf line = BUF(LINK_LINE_MAX);
    if (l->solo)
        return;
    (void)buf_printf(&line, "failed kind=%s peer=", err_kind_name(why->kind));
    (void)(peer < 0 ? buf_puts(&line, "-") : buf_printf(&line, "%d", peer));
    (void)buf_puts(&line, " text=");
    (void)buf_hex(&line, why->text, strlen(why->text));
    (void)buf_puts(&line, "\n");
    if (say(l, &line, NULL) == 0)
        (void)wait_until(l, is_flushed, "read its link", clock_now_ns() + FAILED_NS, NULL);
}

int link_done(struct link *l, bool completed, uint64_t step, struct err *e)
{
    AUTO_BUF struct buf line = BUF(LINK_LINE_MAX);
    if (l->solo)
        return 0;
    (void)buf_printf(&line, "done reason=%s step=%" PRIu64 "\n",
                     completed ? "completed" : "stopped", step);
    return say(l, &line, e) < 0
               ? -1
               : wait_until(l, is_flushed, "read its link", clock_now_ns() + SEND_NS, e);
}

int link_snapshot_fd(const struct link *l, int slot)
{
    return slot == 0 || slot == 1 ? l->snapshot[slot] : -1;
}

int link_shard(struct link *l, uint64_t step, int slot, uint64_t bytes, const char *digest_hex,
               struct err *e)
{
    AUTO_BUF struct buf line = BUF(LINK_LINE_MAX);
    if (l->solo) {
        struct err why = {0};
        if (solo_shard(l->solo, step, link_snapshot_fd(l, slot), bytes, &why) < 0)
            link_on_lost(l, step, why.text);
        else
            link_on_written(l, step);
        return 0;
    }
    assert(slot == 0 || slot == 1);
    l->shard_out[slot] = step;
    (void)buf_printf(&line, "shard step=%" PRIu64 " slot=%d bytes=%" PRIu64 " digest=%s\n",
                     step, slot, bytes, digest_hex);
    return say(l, &line, e);
}

int link_commit(struct link *l, uint64_t step, int slot, uint64_t offset, uint64_t bytes,
                struct err *e)
{
    AUTO_BUF struct buf line = BUF(LINK_LINE_MAX);
    if (l->solo) {
        struct err why = {0};
        if (solo_commit(l->solo, step, link_snapshot_fd(l, slot), offset, bytes, &why) < 0)
            link_on_lost(l, step, why.text);
        else
            link_on_committed(l, step);
        return 0;
    }
    assert(slot == 0 || slot == 1);
    l->commit_out[slot] = step;
    (void)buf_printf(&line,
                     "commit step=%" PRIu64 " slot=%d offset=%" PRIu64 " bytes=%" PRIu64 "\n",
                     step, slot, offset, bytes);
    return say(l, &line, e);
}

uint64_t link_written(const struct link *l)
{
    return l->written;
}

uint64_t link_committed(const struct link *l)
{
    return l->committed;
}

bool link_lost(struct link *l, struct err *ret)
{
    if (!l->lost)
        return false;
    l->lost = false;
    if (ret)
        *ret = l->lost_why;
    return true;
}

/* The loss of another step, or one told already, ends no wait and mends none. */
static bool is_written(const struct link *l)
{
    bool out = l->shard_out[0] == l->wanted || l->shard_out[1] == l->wanted;
    return !out && (l->heard >= l->wanted || l->lost_step >= l->wanted);
}
static bool is_committed(const struct link *l)
{
    bool out = l->commit_out[0] == l->wanted || l->commit_out[1] == l->wanted;
    return !out && (l->committed >= l->wanted || l->lost_step >= l->wanted);
}
static int as_lost(const struct link *l, struct err *e)
{
    if (e)
        *e = l->lost_why;
    return -1;
}

int link_wait_written(struct link *l, uint64_t step, int64_t deadline_ns, struct err *e)
{
    l->wanted = step;
    if (wait_until(l, is_written, "written the shard", deadline_ns, e) < 0)
        return -1;
    return l->heard < step ? as_lost(l, e) : 0;
}

int link_wait_committed(struct link *l, uint64_t step, int64_t deadline_ns, struct err *e)
{
    l->wanted = step;
    if (wait_until(l, is_committed, "committed the checkpoint", deadline_ns, e) < 0)
        return -1;
    return l->committed < step ? as_lost(l, e) : 0;
}

struct page *link_page(struct link *l)
{
    return l->page;
}

void link_phase(struct link *l, enum page_phase p)
{
    atomic_store_explicit(&l->page->phase, (uint32_t)p, memory_order_relaxed);
    link_beat(l);
}

void link_beat(struct link *l)
{
    /* One writer: no atomic addition is needed. */
    uint64_t b = atomic_load_explicit(&l->page->beat, memory_order_relaxed);
    atomic_store_explicit(&l->page->beat, b + 1, memory_order_relaxed);
}
