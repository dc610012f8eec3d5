/* What a controller says, one function per kind of frame. */
#include "launcher/agent/agent_impl.h"

#include <assert.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/own.h"
#include "common/link/linkline.h"
#include "launcher/agent/outbox.h"
#include "launcher/agent/rank/logring.h"
#include "launcher/wire/frame.h"

static void take_log_positions(struct agent *a, const Dsl__ControllerHello *m)
{
    for (uint32_t i = 0; i < workers_count(a->workers); i++) {
        struct proc *p = workers_at(a->workers, i);
        uint64_t have = 0;
        for (size_t k = 0; k < m->n_logs; k++)
            if (m->logs[k]->rank == proc_rank(p))
                have = m->logs[k]->offset;
        logring_rewind(proc_log(p), have);
    }
}

/* A greeted connection becomes the controller. */
static void accept_controller(struct connection *c, const Dsl__ControllerHello *m)
{
    struct agent *a = c->a;
    if (m->protocol != FRAME_PROTOCOL || strcmp(m->job, a->p.job) != 0 ||
        m->node != a->p.node || m->secret.len != SECRET_BYTES || m->world == 0) {
        log_warn("a controller for job %s, node %u, protocol %u was sent away", m->job, m->node,
                 m->protocol);
        agent_connection_free(c);
        return;
    }
    if (a->controller != c) {
        if (a->controller)
            log_info("a newer controller has come");
        agent_connection_accept(c);
        a->clearing = false; /* it reads in AgentHello what lives, and says what is to go */
    }
    a->world = m->world;
    a->orphan_ns = m->orphan_ns > 0 ? m->orphan_ns : a->p.orphan_ns;
    a->grace_ns = m->grace_ns > 0 ? m->grace_ns : 0;
    memcpy(a->secret, m->secret.data, SECRET_BYTES);
    if (a->state == AGENT_ORPHAN_STOP)
        a->state = AGENT_SERVING; /* the ranks go on to their stop; it is told how they end */
    reports_missed(a);
    take_log_positions(a, m);
    reports_logs(a);
}

static char *welcome(const struct agent *a, const Dsl__Launch *m, const Dsl__RankPlan *r)
{
    AUTO_BUF struct buf line = BUF(LINK_LINE_MAX);
    (void)buf_printf(&line,
                     "welcome proto=%d rank=%u world=%u generation=%u local_rank=%u secret=",
                     LINK_PROTO, r->rank, a->world, a->generation, r->local_rank);
    (void)buf_hex(&line, a->secret, sizeof a->secret);
    (void)buf_puts(&line, " host=");
    (void)buf_hex(&line, a->host_id, strlen(a->host_id));
    (void)buf_puts(&line, " spec=");
    (void)buf_hex(&line, m->spec.data, m->spec.len);
    return line.full ? NULL : buf_take(&line);
}

static void launch_rank(struct agent *a, const Dsl__Launch *m, const Dsl__RankPlan *r)
{
    struct err e = {.kind = ERR_SPEC, .text = "the spec is too long for a link line"};
    AUTO_FREE char *hello = welcome(a, m, r);
    struct proc_params p = {
        .rank = r->rank,
        .generation = a->generation,
        .threads = m->threads,
        .job = a->p.job,
        .program = m->program,
        .workdir = m->workdir[0] ? m->workdir : "/",
        .welcome = hello,
        .setup = m->setup,
        .n_setup = m->n_setup,
        .env = r->env,
        .n_env = r->n_env,
    };
    if (r->rank == 0)
        a->has_rank0 = true;
    if (hello && workers_start(a->workers, &p, &e) == 0)
        return;
    struct proc_exit x = {.status = 127, .text = e.text, .peer = -1};
    struct proc_page none = {.coll_peer = UINT32_MAX};
    (void)snprintf(x.kind, sizeof x.kind, "%s", err_kind_name(e.kind));
    reports_gone(a, r->rank, &x, &none);
}

static void on_launch(struct agent *a, const Dsl__Frame *f)
{
    const Dsl__Launch *m = f->launch;
    if ((f->generation <= a->generation && a->generation) || a->state == AGENT_LEAVING)
        return; /* stale, or too late */
    if (workers_live(a->workers) || a->clearing) {
        reports_note(a, DSL__AGENT_NOTE__KIND__TEXT, 0, -1,
                     "a launch came before the last generation was clear: refused", 0);
        return;
    }
    workers_clear(a->workers);
    reports_forget_gone(a);
    a->generation = f->generation;
    outbox_forget(a->outbox, a->generation);
    free(a->checkpoint_dir);
    a->checkpoint_dir = xstrdup(m->checkpoint_dir);
    a->checkpoint_keep = m->checkpoint_keep;
    a->tidied = a->has_rank0 = false;
    for (size_t i = 0; i < m->n_ranks; i++)
        launch_rank(a, m, m->ranks[i]);
}

static void on_signal_stop(struct agent *a, const Dsl__Frame *f)
{
    (void)f;
    for (uint32_t i = 0; i < workers_count(a->workers); i++)
        if (!proc_exited(workers_at(a->workers, i)))
            ranklink_send(proc_link(workers_at(a->workers, i)), "stop");
}

static void on_kill(struct agent *a, const Dsl__Frame *f)
{
    a->generation = f->generation; /* a launch of it that is still on its way is stale now */
    a->clearing = true;
    a->reaped_ns = clock_now_ns();
    writer_cancel(a->writer);
    workers_kill(a->workers);
    (void)agent_live_clear(a);
}

static void on_dismiss(struct agent *a, const Dsl__Frame *f)
{
    (void)f;
    a->dismissed = true;
    agent_leave(a);
}

static void on_ping(struct agent *a, const Dsl__Frame *f)
{
    uint64_t heard = f->ping->heard;
    outbox_keep(a->unheard, heard < a->said ? a->said - heard : 0);
}

static void on_log_ack(struct agent *a, const Dsl__Frame *f)
{
    struct proc *p = workers_find(a->workers, f->log_ack->rank);
    if (!p)
        return;
    logring_ack(proc_log(p), f->log_ack->offset);
    reports_logs(a);
    (void)agent_live_clear(a);
}

static void on_rank_reply(struct agent *a, const Dsl__Frame *f)
{
    const char *line = f->rank_reply->line;
    struct proc *p = workers_find(a->workers, f->rank_reply->rank);
    if (!p || proc_exited(p) || strchr(line, '\n'))
        return;
    if (strncmp(line, "refused ", 8) != 0) {
        ranklink_send(proc_link(p), line);
        return;
    }
    AUTO_FREE char *cut = xstrdup(line);
    AUTO_BUF struct buf text = BUF(ERR_TEXT_MAX);
    struct link_line parsed;
    if (link_line_parse(cut, &parsed, NULL) < 0 ||
        link_line_hex(&parsed, "text", &text, NULL) < 0)
        (void)buf_puts(&text, "the controller refused it");
    ranklink_refuse(proc_link(p), buf_str(&text));
}

/* Orders of a generation are for exactly the one that is here; a launch or a kill may also be
 * the first word of a newer one. */
enum scope { OF_NONE, OF_CURRENT, OF_CURRENT_OR_NEWER };

static const struct order {
    Dsl__Frame__BodyCase kind;
    enum scope scope;
    void (*carry_out)(struct agent *a, const Dsl__Frame *f);
} orders[] = {
    {DSL__FRAME__BODY_LAUNCH, OF_CURRENT_OR_NEWER, on_launch},
    {DSL__FRAME__BODY_SIGNAL_STOP, OF_CURRENT, on_signal_stop},
    {DSL__FRAME__BODY_KILL, OF_CURRENT_OR_NEWER, on_kill},
    {DSL__FRAME__BODY_DISMISS, OF_NONE, on_dismiss},
    {DSL__FRAME__BODY_PING, OF_NONE, on_ping},
    {DSL__FRAME__BODY_LOG_ACK, OF_CURRENT, on_log_ack},
    {DSL__FRAME__BODY_RANK_REPLY, OF_CURRENT, on_rank_reply},
};

static bool in_scope(const struct agent *a, const Dsl__Frame *f, enum scope s)
{
    switch (s) {
    case OF_NONE:
        return true;
    case OF_CURRENT:
        return f->generation == a->generation;
    case OF_CURRENT_OR_NEWER:
        return f->generation >= a->generation;
    }
    return false;
}

void orders_on_frame(void *ctx, const Dsl__Frame *f)
{
    struct connection *c = ctx;
    struct agent *a = c->a;
    if (f->body_case == DSL__FRAME__BODY_CONTROLLER_HELLO) {
        a->heard_ns = clock_now_ns();
        accept_controller(c, f->controller_hello);
        return;
    }
    if (c != a->controller) {
        log_warn("a frame before ControllerHello: the connection is closed");
        agent_connection_free(c);
        return;
    }
    a->heard_ns = clock_now_ns();
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        if (orders[i].kind != f->body_case)
            continue;
        if (in_scope(a, f, orders[i].scope))
            orders[i].carry_out(a, f);
        return;
    }
    log_warn("a frame of kind %d is not for an agent: ignored", (int)f->body_case);
}
