#include "launcher/control/nodes.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "launcher/boot/boot.h"
#include "launcher/wire/frame.h"

enum { DROP_LINGER_MS = 1000 };

struct node {
    struct nodes *all;
    uint32_t index;
    struct channel *channel;
    bool up, attach;  /* attach: of the last nodes_boot */
    int64_t since_ns; /* that the channel is open */
    uint64_t heard;   /* lines and notes of this channel: what the agent keeps until it knows */
};

struct nodes {
    struct nodes_params params;
    char *job;
    struct boot *boot;
    uint64_t pings;
    struct node of[];
};

/* The channel is of no use any more.  The call-back comes last: it may boot the node again. */
static void gone(struct node *n, const struct err *why)
{
    bool was_up = n->up;
    struct channel *c = TAKE(n->channel);
    n->up = false;
    channel_close(c);
    const struct nodes_params *p = &n->all->params;
    (was_up ? p->on_lost : p->on_failed)(p->ctx, n->index, why);
}

static void on_end(void *ctx, const struct err *why)
{
    struct err closed = {.kind = ERR_NETWORK, .text = "the agent closed the connection"};
    gone(ctx, why->kind == ERR_NONE ? &closed : why);
}

static int check_hello(const struct node *n, const Dsl__Frame *f, struct err *e)
{
    if (f->body_case != DSL__FRAME__BODY_AGENT_HELLO)
        return err_set(e, ERR_PROTOCOL, "the agent did not say hello first");
    const Dsl__AgentHello *h = f->agent_hello;
    if (h->protocol != FRAME_PROTOCOL)
        return err_set(e, ERR_PROTOCOL, "the agent speaks protocol %u, not %d", h->protocol,
                       FRAME_PROTOCOL);
    if (strcmp(h->job, n->all->job) != 0 || h->node != n->index)
        return err_set(e, ERR_PROTOCOL, "the agent is of job %.40s, node %u", h->job, h->node);
    return 0;
}

static void on_frame(void *ctx, const Dsl__Frame *f)
{
    struct node *n = ctx;
    const struct nodes_params *p = &n->all->params;
    struct err why;
    if (n->up) {
        if (f->body_case == DSL__FRAME__BODY_RANK_LINE || f->body_case == DSL__FRAME__BODY_NOTE)
            n->heard++; /* pings are only sent once it is dealt with: one thread */
        p->on_frame(p->ctx, n->index, f);
        return;
    }
    if (check_hello(n, f, &why) < 0) {
        gone(n, &why);
        return;
    }
    n->up = true;
    n->heard = 0;
    p->on_hello(p->ctx, n->index, f->agent_hello);
}

static void on_channel_fd(void *ctx, uint32_t node, int fd)
{
    struct nodes *all = ctx;
    struct node *n = &all->of[node];
    struct err why;
    channel_close(n->channel);
    n->up = false;
    n->since_ns = clock_now_ns();
    n->channel = channel_open_fd(all->params.loop, fd, on_frame, on_end, n, &why);
    if (!n->channel)
        all->params.on_failed(all->params.ctx, node, &why);
}

static void on_failed(void *ctx, uint32_t node, const struct err *why)
{
    struct nodes *all = ctx;
    all->params.on_failed(all->params.ctx, node, why);
}

struct nodes *nodes_new(const struct nodes_params *p, struct err *e)
{
    struct nodes *all = xcalloc(1, sizeof(*all) + p->n_nodes * sizeof(all->of[0]));
    all->params = *p;
    all->job = xstrdup(p->job);
    for (uint32_t i = 0; i < p->n_nodes; i++)
        all->of[i] = (struct node){.all = all, .index = i};
    const struct boot_params bp = {.loop = p->loop,
                                   .job = p->job,
                                   .n_nodes = p->n_nodes,
                                   .connect_ns = p->connect_ns,
                                   .orphan_ns = p->orphan_ns,
                                   .on_channel_fd = on_channel_fd,
                                   .on_failed = on_failed,
                                   .ctx = all};
    all->boot = p->boot->create(&bp, e);
    if (!all->boot) {
        nodes_free(all);
        return NULL;
    }
    return all;
}

void nodes_free(struct nodes *all)
{
    if (!all)
        return;
    for (uint32_t i = 0; i < all->params.n_nodes; i++)
        if (all->of[i].channel)
            nodes_give_up(all, i);
    if (all->boot)
        all->params.boot->free(all->boot);
    free(all->job);
    free(all);
}

void nodes_boot(struct nodes *all, uint32_t node, bool attach)
{
    nodes_drop(all, node);
    all->of[node].attach = attach;
    (attach ? all->params.boot->attach : all->params.boot->start)(all->boot, node);
}

bool nodes_up(const struct nodes *all, uint32_t node)
{
    return all->of[node].up;
}

void nodes_send(struct nodes *all, uint32_t node, const Dsl__Frame *f)
{
    struct node *n = &all->of[node];
    if (n->up)
        (void)channel_send(n->channel, f); /* on_end tells of a failure */
}

/* The agent that holds the socket is stopped, or worse: another takes its place, while the time
 * for the start lasts. */
static void wait_no_longer(struct nodes *all, uint32_t node)
{
    const struct nodes_params *p = &all->params;
    struct err why;
    nodes_give_up(all, node);
    if (!all->of[node].attach) {
        p->boot->start(all->boot, node);
        return;
    }
    (void)err_set(&why, ERR_NETWORK, "node %u: its agent does not speak", node);
    p->on_failed(p->ctx, node, &why);
}

void nodes_tick(struct nodes *all)
{
    int64_t now = clock_now_ns(), patience = all->params.connect_ns / 4 * 3;
    for (uint32_t i = 0; i < all->params.n_nodes; i++) {
        const struct node *n = &all->of[i];
        if (n->channel && !n->up && now - n->since_ns > patience)
            wait_no_longer(all, i);
    }
}

void nodes_ping(struct nodes *all)
{
    Dsl__Ping ping = DSL__PING__INIT;
    Dsl__Frame f = DSL__FRAME__INIT;
    ping.number = ++all->pings;
    f.body_case = DSL__FRAME__BODY_PING;
    f.ping = &ping;
    for (uint32_t i = 0; i < all->params.n_nodes; i++) {
        ping.heard = all->of[i].heard;
        nodes_send(all, i, &f);
    }
}

void nodes_drop(struct nodes *all, uint32_t node)
{
    struct node *n = &all->of[node];
    struct channel *c = TAKE(n->channel);
    n->up = false;
    if (c)
        channel_finish(c, DROP_LINGER_MS);
}

void nodes_give_up(struct nodes *all, uint32_t node)
{
    nodes_drop(all, node);
    all->params.boot->kill(all->boot, node);
}
