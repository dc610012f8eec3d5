#include "launcher/control/clients.h"

#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/err.h"
#include "common/base/log.h"
#include "launcher/boot/paths.h"
#include "launcher/wire/frame.h"

enum { CLIENTS_MAX = 64, LOG_QUEUE_MAX = 4 << 20 };

struct client {
    struct clients *all;
    struct client *next;
    struct channel *channel;
    bool attached, follows;
    int32_t rank; /* followed; -1: all */
    uint64_t lines_lost;
};

struct clients {
    uv_loop_t *loop;
    uv_poll_t poll; /* first handle to be closed; frees the rest */
    int fd;
    char *job, *path;
    unsigned n;
    struct client *first;
    clients_ask_fn *on_ask;
    void *ctx;
};

static void client_remove(struct client *c)
{
    struct client **at = &c->all->first;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->all->n--;
    free(c);
}

static void on_end(void *ctx, const struct err *why)
{
    struct client *c = ctx;
    if (why->kind != ERR_NONE)
        log_info("a client went: %s", why->text);
    channel_close(c->channel);
    client_remove(c);
}

static void on_frame(void *ctx, const Dsl__Frame *f)
{
    struct client *c = ctx;
    if (f->body_case == DSL__FRAME__BODY_CLIENT_ASK)
        c->all->on_ask(c->all->ctx, c, f->client_ask);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct clients *cs = poll->data;
    struct err e;
    (void)status;
    (void)events;
    AUTO_CLOSE int fd = paths_accept(cs->fd);
    if (fd < 0)
        return;
    if (cs->n >= CLIENTS_MAX) {
        log_warn("a client was refused: %d are there", CLIENTS_MAX);
        return;
    }
    struct client *c = xcalloc(1, sizeof(*c));
    c->all = cs;
    c->channel = channel_open_fd(cs->loop, TAKE_FD(fd), on_frame, on_end, c, &e);
    if (!c->channel) {
        log_warn("a client: %s", e.text);
        free(c);
        return;
    }
    c->next = cs->first;
    cs->first = c;
    cs->n++;
}

struct clients *clients_new(uv_loop_t *loop, const char *job, const char *socket_path,
                            clients_ask_fn *on_ask, void *ctx, struct err *e)
{
    AUTO_CLOSE int fd = paths_listen(job, socket_path, e);
    if (fd < 0)
        return NULL;
    struct clients *cs = xcalloc(1, sizeof(*cs));
    *cs = (struct clients){.loop = loop, .fd = fd, .on_ask = on_ask, .ctx = ctx};
    int rc = uv_poll_init(loop, &cs->poll, fd);
    if (rc < 0) {
        (void)err_set(e, ERR_SYSTEM, "%s: %s", socket_path, uv_strerror(rc));
        free(cs);
        return NULL;
    }
    cs->poll.data = cs;
    cs->job = xstrdup(job);
    cs->path = xstrdup(socket_path);
    cs->fd = TAKE_FD(fd);
    (void)uv_poll_start(&cs->poll, UV_READABLE, on_readable);
    return cs;
}

static void on_poll_closed(uv_handle_t *h)
{
    struct clients *cs = h->data;
    (void)close(cs->fd);
    free(cs->job);
    free(cs->path);
    free(cs);
}

void clients_tick(struct clients *cs)
{
    if (access(cs->path, F_OK) == 0)
        return;
    (void)uv_poll_stop(&cs->poll);
    if (paths_listen_again(cs->job, cs->path, cs->fd))
        log_warn("%s was removed, and is made again", cs->path);
    (void)uv_poll_start(&cs->poll, UV_READABLE, on_readable);
}

void clients_free(struct clients *cs, uint64_t linger_ms)
{
    if (!cs)
        return;
    (void)unlink(cs->path);
    while (cs->first) {
        channel_finish(cs->first->channel, linger_ms);
        client_remove(cs->first);
    }
    uv_close((uv_handle_t *)&cs->poll, on_poll_closed);
}

static void send_event(struct client *c, uint32_t generation, const Dsl__ClientEvent *ev)
{
    Dsl__ClientEvent copy = *ev;
    Dsl__Frame f = DSL__FRAME__INIT;
    f.generation = generation;
    f.body_case = DSL__FRAME__BODY_CLIENT_EVENT;
    f.client_event = &copy;
    (void)channel_send(c->channel, &f); /* on_end tells of a failure */
}

void client_send(struct client *c, const Dsl__ClientEvent *ev)
{
    send_event(c, 0, ev);
}

void client_attach(struct client *c)
{
    c->attached = true;
}

void client_follow(struct client *c, int32_t rank)
{
    c->follows = true;
    c->rank = rank;
}

bool clients_any_attached(const struct clients *cs)
{
    for (const struct client *c = cs->first; c; c = c->next)
        if (c->attached)
            return true;
    return false;
}

void clients_publish(struct clients *cs, const Dsl__ClientEvent *ev)
{
    for (struct client *c = cs->first; c; c = c->next)
        if (c->attached)
            send_event(c, 0, ev);
}

void clients_publish_all(struct clients *cs, const Dsl__ClientEvent *ev)
{
    for (struct client *c = cs->first; c; c = c->next)
        send_event(c, 0, ev);
}

static void tell_lost_lines(struct client *c)
{
    AUTO_FREE char *text =
        xasprintf("%llu stretches of log lines were not shown: the screen was "
                  "too slow; the log files have them",
                  (unsigned long long)c->lines_lost);
    Dsl__ClientEvent ev;
    dsl__client_event__init(&ev);
    ev.kind = DSL__CLIENT_EVENT__KIND__TEXT;
    ev.text = text;
    c->lines_lost = 0;
    send_event(c, 0, &ev);
}

void client_send_log(struct client *c, uint32_t generation, uint32_t rank, const void *data,
                     size_t n)
{
    AUTO_FREE uint8_t *copy = xmalloc(n); /* protobuf's bytes are not const */
    Dsl__ClientEvent ev;
    if (channel_queued(c->channel) > LOG_QUEUE_MAX) {
        c->lines_lost++;
        return;
    }
    if (c->lines_lost)
        tell_lost_lines(c);
    memcpy(copy, data, n);
    dsl__client_event__init(&ev);
    ev.kind = DSL__CLIENT_EVENT__KIND__LOG;
    ev.rank = (int32_t)rank;
    ev.data = (ProtobufCBinaryData){.len = n, .data = copy};
    send_event(c, generation, &ev);
}

void clients_publish_log(struct clients *cs, uint32_t generation, uint32_t rank,
                         const void *data, size_t n)
{
    for (struct client *c = cs->first; c; c = c->next)
        if (c->attached || (c->follows && (c->rank < 0 || (uint32_t)c->rank == rank)))
            client_send_log(c, generation, rank, data, n);
}
