/* answer.c: what clients ask and what is published.
 *
 * The status document has the same keys for a live job (here) and for an ended one
 * (watch/past.c); docs/design.md, "State", lists them.
 */
#include "launcher/control/core.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/link/page.h"
#include "common/spec/spec.h"
#include "launcher/plan/plan.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/journal.h"
#include "launcher/record/ranklog.h"

enum { STATUS_BYTES_MAX = 8 << 20, TEXT_BYTES_MAX = 4096 };

static Dsl__ClientEvent event_of(Dsl__ClientEvent__Kind kind)
{
    Dsl__ClientEvent ev;
    dsl__client_event__init(&ev);
    ev.kind = kind;
    return ev;
}

static void set_number(json_t *o, const char *key, double v)
{
    if (isfinite(v))
        json_object_set_new(o, key, json_real(v));
}

static json_t *node_json(const struct control *c, uint32_t node)
{
    static const char *const views[NODE_VIEW_COUNT] = {"away", "starting", "up", "suspect",
                                                       "gone"};
    const struct node_seen *n = &c->node[node];
    const struct plan_node *pn = &c->plan->nodes[node];
    json_t *ranks = json_array();
    for (uint32_t i = 0; i < pn->n_ranks; i++)
        json_array_append_new(ranks, json_integer(pn->first_rank + i));
    return json_pack("{s:I, s:s, s:s, s:I, s:o}", "node", (json_int_t)node, "host",
                     n->host ? n->host : pn->host, "state", views[n->view], "pid",
                     (json_int_t)n->pid, "ranks", ranks);
}

static json_t *rank_json(const struct control *c, uint32_t rank)
{
    const struct rank_seen *r = &c->rank[rank];
    const struct health_page *p = health_page_of(c->health, rank);
    json_t *o = json_pack("{s:I, s:I, s:I, s:I}", "rank", (json_int_t)rank, "node",
                          (json_int_t)control_node_of(c, rank), "pid", (json_int_t)r->pid,
                          "rss_bytes", (json_int_t)r->rss_bytes);
    if (r->exited)
        json_object_set_new(o, "exit", json_integer(r->status));
    if (!p)
        return o;
    json_object_set_new(o, "phase", json_string(page_phase_name((enum page_phase)p->phase)));
    json_object_set_new(o, "step", json_integer((json_int_t)p->step));
    return o;
}

static void set_last_step(const struct control *c, json_t *o)
{
    json_object_set_new(o, "step", json_integer((json_int_t)c->last.step));
    set_number(o, "loss", c->last.loss);
    set_number(o, "validation_loss", c->last.validation_loss);
    set_number(o, "grad_norm", c->last.grad_norm);
    set_number(o, "lr", c->last.lr);
    set_number(o, "tokens_per_s", c->last.tokens_per_s);
    if (c->train_s > 0)
        set_number(o, "mean_tokens_per_s", c->tokens / c->train_s);
    if (c->checkpoint_step)
        json_object_set_new(o, "last_checkpoint",
                            json_pack("{s:I, s:s}", "step", (json_int_t)c->checkpoint_step,
                                      "path", c->checkpoint_path));
}

void answer_status(struct control *c, struct buf *json)
{
    json_t *o = json_pack(
        "{s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:{s:i}}", "job",
        c->dir->name, "live", (int)!c->finished, "state",
        c->finished ? "ended" : job_state_name(job_state(c->job)), "generation",
        (json_int_t)job_generation(c->job), "steps", (json_int_t)c->spec->train.steps, "world",
        (json_int_t)c->plan->world, "restarts", (json_int_t)job_restarts(c->job),
        "restarts_left", (json_int_t)job_restarts_left(c->job, clock_now_ns()), "state_dir",
        c->dir->dir, "logs", c->dir->logs, "checkpoints", c->checkpoint_dir, "spec",
        c->spec->path, "controller", "pid", (int)getpid());
    json_object_set_new(o, "seconds",
                        json_real((double)(clock_wall_ms() - c->started_ms) / 1000));
    set_last_step(c, o);
    json_t *nodes = json_array(), *ranks = json_array();
    for (uint32_t i = 0; i < c->n_nodes; i++)
        json_array_append_new(nodes, node_json(c, i));
    for (uint32_t i = 0; i < c->plan->world; i++)
        json_array_append_new(ranks, rank_json(c, i));
    json_object_set_new(o, "nodes", nodes);
    json_object_set_new(o, "ranks", ranks);
    if (c->failure)
        json_object_set_new(o, "failure", json_string(c->failure));
    if (c->finished) {
        json_object_set_new(o, "outcome", json_string(job_outcome_name(c->outcome)));
        json_object_set_new(o, "exit_code", json_integer(c->exit_code));
    }
    AUTO_FREE char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    (void)buf_puts(json, text ? text : "{}");
}

static void send_status(struct control *c, struct client *to)
{
    AUTO_BUF struct buf json = BUF(STATUS_BYTES_MAX);
    Dsl__ClientEvent ev = event_of(DSL__CLIENT_EVENT__KIND__STATUS);
    answer_status(c, &json);
    ev.json = json.data;
    client_send(to, &ev);
}

static void attach(struct control *c, struct client *to)
{
    Dsl__ClientEvent ev = event_of(DSL__CLIENT_EVENT__KIND__TEXT);
    client_attach(to);
    send_status(c, to);
    uint32_t from = c->n_texts > CONTROL_TEXTS ? c->n_texts - CONTROL_TEXTS : 0;
    for (uint32_t i = from; i < c->n_texts; i++) {
        ev.text = c->texts[i % CONTROL_TEXTS];
        client_send(to, &ev);
    }
    control_begin(c);
}

static void tail_of_rank(struct control *c, struct client *to, uint32_t rank, unsigned lines)
{
    AUTO_BUF struct buf b = BUF(RANKLOG_TAIL_BYTES);
    struct err e;
    uint32_t generation = job_generation(c->job);
    if (ranklog_tail(c->dir->logs, generation, rank, lines, &b, &e) < 0)
        log_warn("%s", e.text);
    if (b.len)
        client_send_log(to, generation, rank, b.data, b.len);
}

static void logs(struct control *c, struct client *to, const Dsl__ClientAsk *ask)
{
    for (uint32_t rank = 0; rank < c->plan->world; rank++)
        if (ask->rank < 0 || (uint32_t)ask->rank == rank)
            tail_of_rank(c, to, rank, ask->tail);
    if (ask->follow)
        client_follow(to, ask->rank);
}

static void stop(struct control *c, bool at_once)
{
    struct err e;
    if (journal_stop_asked(c->journal, at_once, &e) < 0)
        log_error("%s", e.text);
    control_begin(c);
    control_post(c, &(struct job_event){.kind = at_once ? JOB_EV_STOP_NOW : JOB_EV_STOP});
}

/* Where a generation is on its way, that is the new one. */
static void restart(struct control *c, struct client *to)
{
    struct err e;
    Dsl__ClientEvent refused = event_of(DSL__CLIENT_EVENT__KIND__REFUSED);
    enum job_state is = job_state(c->job);
    bool stops = is == JOB_STOPPING && !job_restarting(c->job);
    if (stops || is == JOB_DISMISSING || is == JOB_ENDED) {
        refused.text = "the job is ending: no new generation";
        client_send(to, &refused);
        return;
    }
    if (is == JOB_RUNNING) {
        if (journal_restart_asked(c->journal, &e) < 0)
            log_error("%s", e.text);
        publish_text(c, "a new generation is asked for; this one stops after its step");
    }
    control_post(c, &(struct job_event){.kind = JOB_EV_RESTART});
}

void answer_ask(void *ctx, struct client *cl, const Dsl__ClientAsk *ask)
{
    struct control *c = ctx;
    switch (ask->kind) {
    case DSL__CLIENT_ASK__KIND__STATUS:
        send_status(c, cl);
        break;
    case DSL__CLIENT_ASK__KIND__ATTACH:
        attach(c, cl);
        break;
    case DSL__CLIENT_ASK__KIND__STOP:
        stop(c, false);
        break;
    case DSL__CLIENT_ASK__KIND__STOP_NOW:
        stop(c, true);
        break;
    case DSL__CLIENT_ASK__KIND__RESTART:
        restart(c, cl);
        break;
    case DSL__CLIENT_ASK__KIND__LOGS:
        logs(c, cl, ask);
        break;
    case _DSL__CLIENT_ASK__KIND_IS_INT_SIZE:
        break;
    }
}

void publish_text(struct control *c, const char *fmt, ...)
{
    char text[TEXT_BYTES_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log_info("%s", text);
    char **slot = &c->texts[c->n_texts++ % CONTROL_TEXTS];
    free(*slot);
    *slot = xstrdup(text);
    Dsl__ClientEvent ev = event_of(DSL__CLIENT_EVENT__KIND__TEXT);
    ev.text = text;
    clients_publish(c->clients, &ev);
}

void publish_status(struct control *c)
{
    if (!clients_any_attached(c->clients))
        return;
    AUTO_BUF struct buf json = BUF(STATUS_BYTES_MAX);
    Dsl__ClientEvent ev = event_of(DSL__CLIENT_EVENT__KIND__STATUS);
    answer_status(c, &json);
    ev.json = json.data;
    clients_publish(c->clients, &ev);
}

void publish_progress(struct control *c, const char *json)
{
    AUTO_FREE char *copy = xstrdup(json);
    Dsl__ClientEvent ev = event_of(DSL__CLIENT_EVENT__KIND__PROGRESS);
    ev.json = copy;
    clients_publish(c->clients, &ev);
}

void publish_report(struct control *c, const char *text)
{
    AUTO_FREE char *copy = xstrdup(text);
    Dsl__ClientEvent ev = event_of(DSL__CLIENT_EVENT__KIND__REPORT);
    ev.text = copy;
    clients_publish(c->clients, &ev);
}

void publish_ended(struct control *c)
{
    AUTO_BUF struct buf json = BUF(STATUS_BYTES_MAX);
    Dsl__ClientEvent ev = event_of(DSL__CLIENT_EVENT__KIND__ENDED);
    answer_status(c, &json);
    ev.json = json.data;
    ev.exit_code = c->exit_code;
    clients_publish_all(c->clients, &ev);
}
