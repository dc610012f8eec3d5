#include "launcher/watch/ctl.h"

#include <uv.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "launcher/boot/paths.h"
#include "launcher/wire/frame.h"

struct ctl {
    struct channel *channel;
    struct ctl_handlers handlers;
};

static void on_frame(void *ctx, const Dsl__Frame *f)
{
    struct ctl *c = ctx;
    if (f->body_case == DSL__FRAME__BODY_CLIENT_EVENT)
        c->handlers.on_event(c->handlers.ctx, f->generation, f->client_event);
}

static void on_end(void *ctx, const struct err *why)
{
    struct ctl *c = ctx;
    c->handlers.on_end(c->handlers.ctx, why);
}

struct ctl *ctl_open(uv_loop_t *loop, const char *socket_path, const struct ctl_handlers *h,
                     struct err *e)
{
    AUTO_CLOSE int fd = paths_connect(socket_path, e);
    if (fd < 0)
        return NULL;
    struct ctl *c = xcalloc(1, sizeof(*c));
    c->handlers = *h;
    c->channel = channel_open_fd(loop, TAKE_FD(fd), on_frame, on_end, c, e);
    if (!c->channel) {
        free(c);
        return NULL;
    }
    return c;
}

void ctl_free(struct ctl *c)
{
    if (!c)
        return;
    channel_close(c->channel);
    free(c);
}

static void ask(struct ctl *c, Dsl__ClientAsk a)
{
    Dsl__Frame f = DSL__FRAME__INIT;
    f.body_case = DSL__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &a;
    (void)channel_send(c->channel, &f); /* on_end tells of a failure */
}

void ctl_ask(struct ctl *c, Dsl__ClientAsk__Kind kind)
{
    Dsl__ClientAsk a = DSL__CLIENT_ASK__INIT;
    a.kind = kind;
    ask(c, a);
}

void ctl_ask_logs(struct ctl *c, int32_t rank, bool follow, uint32_t tail)
{
    Dsl__ClientAsk a = DSL__CLIENT_ASK__INIT;
    a.kind = DSL__CLIENT_ASK__KIND__LOGS;
    a.rank = rank;
    a.follow = follow;
    a.tail = tail;
    ask(c, a);
}

/* One question, one answer. */
struct question {
    uv_loop_t loop;
    uv_timer_t deadline;
    struct buf *json;
    bool answered;
    struct err why;
};

static void on_answer(void *ctx, uint32_t generation, const Dsl__ClientEvent *ev)
{
    struct question *q = ctx;
    (void)generation;
    if (ev->kind != DSL__CLIENT_EVENT__KIND__STATUS &&
        ev->kind != DSL__CLIENT_EVENT__KIND__ENDED)
        return;
    q->answered = buf_puts(q->json, ev->json) == 0;
    uv_stop(&q->loop);
}

static void on_no_answer(void *ctx, const struct err *why)
{
    struct question *q = ctx;
    (void)err_set(&q->why, ERR_NETWORK, "the controller closed the connection%s%s",
                  *why->text ? ": " : "", why->text);
    uv_stop(&q->loop);
}

static void on_deadline(uv_timer_t *t)
{
    struct question *q = t->data;
    (void)err_set(&q->why, ERR_NETWORK, "the controller does not answer");
    uv_stop(&q->loop);
}

int ctl_status(const char *socket_path, unsigned timeout_ms, struct buf *json, struct err *e)
{
    struct question q = {.json = json};
    const struct ctl_handlers h = {.on_event = on_answer, .on_end = on_no_answer, .ctx = &q};
    (void)uv_loop_init(&q.loop);
    (void)uv_timer_init(&q.loop, &q.deadline);
    q.deadline.data = &q;
    struct ctl *c = ctl_open(&q.loop, socket_path, &h, &q.why);
    if (c) {
        (void)uv_timer_start(&q.deadline, on_deadline, timeout_ms, 0);
        ctl_ask(c, DSL__CLIENT_ASK__KIND__STATUS);
        (void)uv_run(&q.loop, UV_RUN_DEFAULT);
    }
    ctl_free(c);
    uv_close((uv_handle_t *)&q.deadline, NULL);
    (void)uv_run(&q.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&q.loop);
    return q.answered ? 0 : err_set(e, ERR_NETWORK, "%s", q.why.text);
}
