#include "launcher/agent/rank/ranklink.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/own.h"
#include "common/link/linkline.h"

enum { OUT_MAX = 64 << 20, READ_CHUNK = 64 << 10, READ_MAX = 1 << 20, TEXT_MAX = 64 << 10 };

struct ranklink {
    uv_poll_t poll;
    int fd;
    struct buf in, out;
    size_t scanned; /* bytes of `in` known to hold no newline */
    char *welcome;  /* NULL once hello was answered */
    ranklink_fn *on_event;
    void *ctx;
    bool paused, ended, broken;
};

static void on_poll(uv_poll_t *h, int status, int events);

static void rearm(struct ranklink *l)
{
    int want = 0;
    if (!l->paused && !l->ended && !l->broken)
        want |= UV_READABLE;
    if (l->out.len && !l->ended)
        want |= UV_WRITABLE;
    if (want)
        (void)uv_poll_start(&l->poll, want, on_poll);
    else
        (void)uv_poll_stop(&l->poll);
}

static void flush(struct ranklink *l)
{
    while (l->out.len && !l->ended) {
        ssize_t n = send(l->fd, l->out.data, l->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            buf_clear(&l->out); /* the worker is gone; its exit tells the rest */
        if (n <= 0)
            return;
        buf_consume(&l->out, (size_t)n);
    }
}

static void put_line(struct ranklink *l, const char *line)
{
    if (l->ended)
        return;
    (void)buf_printf(&l->out, "%s\n", line);
    flush(l);
    rearm(l);
}

void ranklink_refuse(struct ranklink *l, const char *text)
{
    AUTO_BUF struct buf line = BUF(TEXT_MAX);
    if (l->broken)
        return;
    (void)buf_puts(&line, "refused text=");
    (void)buf_hex(&line, text, strlen(text));
    put_line(l, buf_str(&line));
    l->broken = true;
    rearm(l);
    l->on_event(l->ctx,
                &(struct ranklink_event){.kind = RANKLINK_BROKEN, .text = text, .peer = -1});
}

void ranklink_send(struct ranklink *l, const char *line)
{
    put_line(l, line);
    if (l->out.full && !l->broken) {
        buf_clear(&l->out);
        l->out.full = false;
        ranklink_refuse(l, "it does not read its link");
    }
}

/* The verbs of a worker.  Each handler checks its line and fills the event. */
struct verb {
    const char *name;
    int (*take)(struct ranklink *l, const struct link_line *line, struct ranklink_event *ev,
                struct buf *text, struct err *e);
};

static int need(const struct link_line *line, const char *key, struct err *e)
{
    if (!link_line_get(line, key))
        return err_set(e, ERR_PROTOCOL, "%s: no %s", line->verb, key);
    return 0;
}

static int take_hello(struct ranklink *l, const struct link_line *line, struct err *e)
{
    uint64_t proto;
    if (strcmp(line->verb, "hello") != 0)
        return err_set(e, ERR_PROTOCOL, "%s before hello", line->verb);
    if (link_line_u64(line, "proto", &proto, e) < 0)
        return -1;
    if (proto != LINK_PROTO)
        return err_set(e, ERR_PROTOCOL, "it speaks link protocol %llu, this agent %d",
                       (unsigned long long)proto, LINK_PROTO);
    put_line(l, l->welcome);
    free(TAKE(l->welcome));
    return 0;
}

static int take_put(struct ranklink *l, const struct link_line *line, struct ranklink_event *ev,
                    struct buf *text, struct err *e)
{
    (void)l, (void)ev, (void)text;
    return need(line, "key", e) < 0 || need(line, "value", e) < 0 ? -1 : 0;
}

static int take_get(struct ranklink *l, const struct link_line *line, struct ranklink_event *ev,
                    struct buf *text, struct err *e)
{
    (void)l, (void)ev, (void)text;
    return need(line, "key", e);
}

static int take_barrier(struct ranklink *l, const struct link_line *line,
                        struct ranklink_event *ev, struct buf *text, struct err *e)
{
    (void)l, (void)line, (void)ev, (void)text, (void)e;
    return 0;
}

static int take_metrics(struct ranklink *l, const struct link_line *line,
                        struct ranklink_event *ev, struct buf *text, struct err *e)
{
    (void)l, (void)text;
    ev->lossy = true;
    return link_line_u64(line, "step", &ev->step, e);
}

static int take_event(struct ranklink *l, const struct link_line *line,
                      struct ranklink_event *ev, struct buf *text, struct err *e)
{
    (void)l;
    ev->lossy = true;
    return link_line_hex(line, "text", text, e);
}

static int take_slot(const struct link_line *line, struct ranklink_event *ev, struct err *e)
{
    uint64_t slot;
    if (link_line_u64(line, "step", &ev->step, e) < 0 ||
        link_line_u64(line, "bytes", &ev->bytes, e) < 0)
        return -1;
    if (link_line_u64(line, "slot", &slot, e) < 0)
        return -1;
    if (slot > 1 || ev->bytes > INT64_MAX)
        return err_set(e, ERR_PROTOCOL, "%s: no such slot or size", line->verb);
    ev->slot = (int)slot;
    return 0;
}

static int take_shard(struct ranklink *l, const struct link_line *line,
                      struct ranklink_event *ev, struct buf *text, struct err *e)
{
    (void)l, (void)text;
    ev->kind = RANKLINK_SHARD;
    if (take_slot(line, ev, e) < 0 || need(line, "digest", e) < 0)
        return -1;
    if (hex_decode(link_line_get(line, "digest"), ev->digest, sizeof ev->digest) !=
        sizeof ev->digest)
        return err_set(e, ERR_PROTOCOL, "shard: digest is not 16 bytes of hex");
    return 0;
}

static int take_commit(struct ranklink *l, const struct link_line *line,
                       struct ranklink_event *ev, struct buf *text, struct err *e)
{
    (void)l, (void)text;
    ev->kind = RANKLINK_COMMIT;
    if (take_slot(line, ev, e) < 0 || link_line_u64(line, "offset", &ev->offset, e) < 0)
        return -1;
    if (ev->offset > INT64_MAX)
        return err_set(e, ERR_PROTOCOL, "commit: no such offset");
    return 0;
}

static int take_failed(struct ranklink *l, const struct link_line *line,
                       struct ranklink_event *ev, struct buf *text, struct err *e)
{
    (void)l;
    uint64_t peer;
    ev->kind = RANKLINK_FAILED;
    if (need(line, "kind", e) < 0 || need(line, "peer", e) < 0 ||
        link_line_hex(line, "text", text, e) < 0)
        return -1;
    ev->error_kind = link_line_get(line, "kind");
    if (strcmp(link_line_get(line, "peer"), "-") == 0)
        return 0;
    if (link_line_u64(line, "peer", &peer, e) < 0)
        return -1;
    if (peer > INT32_MAX)
        return err_set(e, ERR_PROTOCOL, "failed: no such peer");
    ev->peer = (int)peer;
    return 0;
}

static int take_done(struct ranklink *l, const struct link_line *line,
                     struct ranklink_event *ev, struct buf *text, struct err *e)
{
    (void)l, (void)text;
    ev->kind = RANKLINK_DONE;
    if (need(line, "reason", e) < 0 || link_line_u64(line, "step", &ev->step, e) < 0)
        return -1;
    const char *reason = link_line_get(line, "reason");
    ev->stopped = strcmp(reason, "stopped") == 0;
    if (!ev->stopped && strcmp(reason, "completed") != 0)
        return err_set(e, ERR_PROTOCOL, "done: reason '%.32s'", reason);
    return 0;
}

static const struct verb verbs[] = {
    {"put", take_put},         {"get", take_get},       {"barrier", take_barrier},
    {"metrics", take_metrics}, {"event", take_event},   {"shard", take_shard},
    {"commit", take_commit},   {"failed", take_failed}, {"done", take_done},
};

static int take_line(struct ranklink *l, const char *raw, struct err *e)
{
    AUTO_FREE char *cut = xstrdup(raw);
    AUTO_BUF struct buf text = BUF(TEXT_MAX);
    struct ranklink_event ev = {.kind = RANKLINK_FORWARD, .line = raw, .peer = -1};
    struct link_line line;
    if (link_line_parse(cut, &line, e) < 0)
        return -1;
    if (l->welcome)
        return take_hello(l, &line, e);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(line.verb, verbs[i].name) != 0)
            continue;
        if (verbs[i].take(l, &line, &ev, &text, e) < 0)
            return -1;
        ev.text = buf_str(&text);
        l->on_event(l->ctx, &ev);
        return 0;
    }
    return err_set(e, ERR_PROTOCOL, "'%.32s' is no word of a worker", line.verb);
}

static void take_lines(struct ranklink *l)
{
    struct err e;
    size_t at = 0;
    while (!l->broken) {
        size_t from = at > l->scanned ? at : l->scanned;
        char *nl = l->in.len > from ? memchr(l->in.data + from, '\n', l->in.len - from) : NULL;
        if (!nl) {
            l->scanned = l->in.len;
            break;
        }
        *nl = 0;
        size_t n = (size_t)(nl - (l->in.data + at));
        if (strlen(l->in.data + at) != n)
            ranklink_refuse(l, "a zero byte in a line");
        else if (take_line(l, l->in.data + at, &e) < 0)
            ranklink_refuse(l, e.text);
        at += n + 1;
    }
    buf_consume(&l->in, at);
    l->scanned -= at < l->scanned ? at : l->scanned;
    if (l->in.len > LINK_LINE_MAX)
        ranklink_refuse(l, "a line is too long");
}

static void read_some(struct ranklink *l, size_t max)
{
    char chunk[READ_CHUNK];
    for (size_t got = 0; got < max && !l->broken && !l->ended;) {
        ssize_t n = recv(l->fd, chunk, sizeof chunk, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n <= 0) {
            l->ended = true;
            return;
        }
        got += (size_t)n;
        (void)buf_add(&l->in, chunk, (size_t)n); /* cap: a longest line and a chunk */
        take_lines(l);
    }
}

static void on_poll(uv_poll_t *h, int status, int events)
{
    struct ranklink *l = h->data;
    if (status < 0)
        l->ended = true;
    if (events & UV_WRITABLE)
        flush(l);
    if (events & (UV_READABLE | UV_DISCONNECT))
        read_some(l, READ_MAX);
    rearm(l);
}

struct ranklink *ranklink_new(struct uv_loop_s *loop, int fd, const char *welcome,
                              ranklink_fn *on_event, void *ctx)
{
    struct ranklink *l = xcalloc(1, sizeof *l);
    l->fd = fd;
    l->in = BUF(LINK_LINE_MAX + READ_CHUNK);
    l->out = BUF(OUT_MAX);
    l->welcome = xstrdup(welcome);
    l->on_event = on_event;
    l->ctx = ctx;
    l->poll.data = l;
    int r = uv_poll_init(loop, &l->poll, fd);
    if (r < 0) {
        (void)close(fd);
        free(l->welcome);
        free(l);
        return NULL;
    }
    rearm(l);
    return l;
}

static void on_closed(uv_handle_t *h)
{
    struct ranklink *l = h->data;
    (void)close(l->fd);
    buf_done(&l->in);
    buf_done(&l->out);
    free(l->welcome);
    free(l);
}

void ranklink_free(struct ranklink *l)
{
    if (l)
        uv_close((uv_handle_t *)&l->poll, on_closed);
}

void ranklink_pause(struct ranklink *l, bool paused)
{
    l->paused = paused;
    rearm(l);
}

void ranklink_drain(struct ranklink *l)
{
    read_some(l, SIZE_MAX);
    rearm(l);
}
