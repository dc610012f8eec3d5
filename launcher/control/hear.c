/* hear.c: what agents say, turned into events, pages and logs.
 *
 * Frames of another generation than the running one are dropped, logs apart: those stay
 * complete.  A frame about a rank is only taken from the node that carries it.
 */
#include "launcher/control/core.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/spec/spec.h"
#include "launcher/plan/plan.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/journal.h"
#include "launcher/record/ranklog.h"
#include "launcher/wire/frame.h"

static bool rank_of_node(const struct control *c, uint32_t rank, uint32_t node)
{
    return rank < c->plan->world && control_node_of(c, rank) == node;
}

static void hear_page(struct control *c, uint32_t node, const Dsl__PageData *p)
{
    if (!rank_of_node(c, p->rank, node))
        return;
    const struct health_page hp = {.beat = p->beat,
                                   .step = p->step,
                                   .coll_seq = p->coll_seq,
                                   .phase = p->phase,
                                   .micro = p->micro,
                                   .waiting = p->waiting,
                                   .coll_group = p->coll_group,
                                   .coll_op = p->coll_op,
                                   .coll_peer = p->coll_peer,
                                   .proc_state = (char)p->proc_state};
    c->rank[p->rank].rss_bytes = p->rss_bytes;
    c->rank[p->rank].pid = p->pid;
    health_rank_page(c->health, p->rank, &hp, clock_now_ns());
}

static void hear_pages(struct control *c, uint32_t node, const Dsl__Pages *pages)
{
    for (size_t i = 0; i < pages->n_pages; i++)
        hear_page(c, node, pages->pages[i]);
}

static void hear_exit(struct control *c, uint32_t node, uint32_t generation,
                      const Dsl__RankExited *x)
{
    if (!rank_of_node(c, x->rank, node))
        return;
    struct rank_seen *r = &c->rank[x->rank];
    if (x->page)
        hear_page(c, node, x->page);
    r->exited = true;
    r->done = x->done;
    r->status = x->status;
    free(r->kind);
    free(r->text);
    r->kind = *x->kind ? xstrdup(x->kind) : NULL;
    r->text = *x->text ? xstrdup(x->text) : NULL;
    health_rank_gone(c->health, x->rank);
    log_info("rank %u exited: status %d%s%s", x->rank, x->status, x->done ? ", done" : "",
             x->stopped ? ", stopped" : "");
    bool blames = x->peer >= 0 && (uint32_t)x->peer < c->plan->world;
    control_post(c, &(struct job_event){.kind = JOB_EV_RANK_EXITED,
                                        .node = node,
                                        .rank = x->rank,
                                        .generation = generation,
                                        .exit_code = x->status,
                                        .done = x->done,
                                        .stopped = x->stopped,
                                        .blamed = blames ? (uint32_t)x->peer + 1 : 0,
                                        .text = x->text});
}

static void hear_log(struct control *c, uint32_t node, uint32_t generation,
                     const Dsl__LogData *d)
{
    struct err e;
    uint64_t end;
    size_t n_new;
    if (!rank_of_node(c, d->rank, node))
        return;
    if (ranklog_write(c->dir->logs, generation, d->rank, d->offset, d->data.data, d->data.len,
                      &end, &n_new, &e) < 0) {
        log_error("%s", e.text); /* not acknowledged: it is sent again on the next channel */
        return;
    }
    Dsl__LogAck ack = DSL__LOG_ACK__INIT;
    Dsl__Frame f = DSL__FRAME__INIT;
    ack.rank = d->rank;
    ack.offset = end;
    f.generation = generation;
    f.body_case = DSL__FRAME__BODY_LOG_ACK;
    f.log_ack = &ack;
    nodes_send(c->nodes, node, &f);
    if (n_new)
        clients_publish_log(c->clients, generation, d->rank, d->data.data + d->data.len - n_new,
                            n_new);
}

static void hear_note(struct control *c, uint32_t node, uint32_t generation,
                      const Dsl__AgentNote *n)
{
    struct err e;
    switch (n->kind) {
    case DSL__AGENT_NOTE__KIND__COMMITTED:
        if (c->checkpoint_path && strcmp(c->checkpoint_path, n->text) == 0)
            break; /* said again after a controller died */
        c->checkpoint_step = n->step;
        free(c->checkpoint_path);
        c->checkpoint_path = xstrdup(n->text);
        if (journal_checkpoint(c->journal, generation, n->step, n->text, &e) < 0)
            log_error("%s", e.text);
        publish_text(c, "checkpoint of step %llu saved: %s", (unsigned long long)n->step,
                     n->text);
        break;
    case DSL__AGENT_NOTE__KIND__STORAGE_FAILED:
        publish_text(c, "node %u: checkpoint of step %llu not written: %s", node,
                     (unsigned long long)n->step, n->text);
        break;
    case DSL__AGENT_NOTE__KIND__TEXT:
        publish_text(c, "node %u: %s", node, n->text);
        break;
    case DSL__AGENT_NOTE__KIND__WRITTEN:
    case _DSL__AGENT_NOTE__KIND_IS_INT_SIZE:
        break;
    }
}

static void ready(struct control *c, uint32_t node)
{
    control_post(c, &(struct job_event){.kind = JOB_EV_AGENT_READY, .node = node});
}

static void hear_clear(struct control *c, uint32_t node, uint32_t generation)
{
    struct node_seen *n = &c->node[node];
    if (n->clear_first && n->clear_first == generation) {
        n->clear_first = 0;
        ready(c, node);
        return;
    }
    control_post(c, &(struct job_event){
                        .kind = JOB_EV_NODE_CLEAR, .node = node, .generation = generation});
}

static void hear_dismissed(struct control *c, uint32_t node)
{
    struct err e;
    nodes_drop(c->nodes, node);
    health_node_down(c->health, node);
    c->node[node].view = NODE_GONE;
    if (journal_agent_gone(c->journal, node, "dismissed", &e) < 0)
        log_error("%s", e.text);
    control_post(c, &(struct job_event){.kind = JOB_EV_DISMISSED, .node = node});
}

void hear_frame(void *ctx, uint32_t node, const Dsl__Frame *f)
{
    struct control *c = ctx;
    bool now = f->generation == job_generation(c->job);
    health_node_frame(c->health, node, clock_now_ns());
    switch ((int)f->body_case) {
    case DSL__FRAME__BODY_RANK_STARTED:
        if (now && rank_of_node(c, f->rank_started->rank, node))
            c->rank[f->rank_started->rank].pid = f->rank_started->pid;
        break;
    case DSL__FRAME__BODY_RANK_EXITED:
        if (now)
            hear_exit(c, node, f->generation, f->rank_exited);
        break;
    case DSL__FRAME__BODY_PAGES:
        if (now)
            hear_pages(c, node, f->pages);
        break;
    case DSL__FRAME__BODY_LOG_DATA:
        if (f->generation && f->generation <= job_generation(c->job))
            hear_log(c, node, f->generation, f->log_data);
        break;
    case DSL__FRAME__BODY_RANK_LINE:
        if (now && rank_of_node(c, f->rank_line->rank, node))
            ranklines_hear(c, f->rank_line->rank, f->rank_line->line);
        break;
    case DSL__FRAME__BODY_NODE_CLEAR:
        hear_clear(c, node, f->generation);
        break;
    case DSL__FRAME__BODY_DISMISSED:
        hear_dismissed(c, node);
        break;
    case DSL__FRAME__BODY_NOTE:
        hear_note(c, node, f->generation, f->note);
        break;
    default:
        log_warn("node %u sent a frame of kind %d", node, (int)f->body_case);
    }
}

/* Greeting. */

static void greet(struct control *c, uint32_t node, const Dsl__AgentHello *h)
{
    const struct plan_node *pn = &c->plan->nodes[node];
    AUTO_FREE Dsl__LogPosition *at = xcalloc(pn->n_ranks, sizeof(*at));
    AUTO_FREE Dsl__LogPosition **list = xcalloc(pn->n_ranks, sizeof(*list));
    Dsl__ControllerHello ch;
    Dsl__Frame f = DSL__FRAME__INIT;
    dsl__controller_hello__init(&ch);
    for (uint32_t i = 0; i < pn->n_ranks; i++) {
        dsl__log_position__init(&at[i]);
        at[i].rank = pn->first_rank + i;
        at[i].offset = ranklog_length(c->dir->logs, h->live_generation, at[i].rank);
        list[i] = &at[i];
    }
    ch.protocol = FRAME_PROTOCOL;
    ch.job = c->dir->name;
    ch.node = node;
    ch.world = c->plan->world;
    ch.orphan_ns = c->spec->cluster.timeouts.orphan_ns;
    ch.grace_ns = c->spec->job.grace_ns;
    ch.secret = (ProtobufCBinaryData){.len = sizeof(c->secret), .data = c->secret};
    ch.n_logs = h->live_generation ? pn->n_ranks : 0;
    ch.logs = list;
    f.body_case = DSL__FRAME__BODY_CONTROLLER_HELLO;
    f.controller_hello = &ch;
    nodes_send(c->nodes, node, &f);
}

void hear_hello(void *ctx, uint32_t node, const Dsl__AgentHello *h)
{
    struct control *c = ctx;
    struct node_seen *n = &c->node[node];
    struct err e;
    free(n->host);
    n->host = xstrdup(h->host);
    n->pid = h->pid;
    n->view = NODE_UP;
    n->clear_first = 0;
    health_node_up(c->health, node, clock_now_ns());
    if (journal_agent(c->journal, node, h->host, h->pid, &e) < 0)
        log_error("%s", e.text);
    log_info("node %u: agent %u on %s; live generation %u, %zu ranks, %zu exits", node, h->pid,
             h->host, h->live_generation, h->n_live_ranks, h->n_exits);
    greet(c, node, h);
    if (h->live_generation == 0) {
        ready(c, node);
        return;
    }
    if (h->live_generation == c->adopt && job_state(c->job) == JOB_BOOTING) {
        control_post(c, &(struct job_event){.kind = JOB_EV_AGENT_ADOPTED,
                                            .node = node,
                                            .generation = h->live_generation});
        for (size_t i = 0; i < h->n_exits; i++)
            hear_exit(c, node, h->live_generation, h->exits[i]);
        return;
    }
    Dsl__Kill k = DSL__KILL__INIT;
    Dsl__Frame f = DSL__FRAME__INIT;
    f.generation = n->clear_first = h->live_generation;
    f.body_case = DSL__FRAME__BODY_KILL;
    f.kill = &k;
    nodes_send(c->nodes, node, &f);
}

/* Ends of channels, and health's verdicts. */

static void remember_why(struct control *c, uint32_t node, const char *why)
{
    c->node[node].view = NODE_GONE;
    free(c->node[node].why);
    c->node[node].why = xstrdup(why);
}

static void node_is_gone(struct control *c, uint32_t node, const char *why)
{
    struct err e;
    remember_why(c, node, why);
    health_node_down(c->health, node);
    if (journal_agent_gone(c->journal, node, why, &e) < 0)
        log_error("%s", e.text);
}

void hear_failed(void *ctx, uint32_t node, const struct err *why)
{
    struct control *c = ctx;
    log_error("%s", why->text);
    remember_why(c, node, why->text);
    control_post(
        c, &(struct job_event){.kind = JOB_EV_BOOT_FAILED, .node = node, .text = why->text});
}

void hear_lost(void *ctx, uint32_t node, const struct err *why)
{
    struct control *c = ctx;
    log_error("node %u was lost: %s", node, why->text);
    node_is_gone(c, node, why->text);
    control_post(
        c, &(struct job_event){.kind = JOB_EV_AGENT_LOST, .node = node, .text = why->text});
}

void hear_verdict(void *ctx, enum health_verdict v, uint32_t id, int64_t silent_ns)
{
    struct control *c = ctx;
    double s = (double)silent_ns / (double)NS_PER_S;
    switch (v) {
    case HEALTH_NODE_SUSPECT:
        c->node[id].view = NODE_SUSPECT;
        publish_text(c, "node %u has been silent for %.1f s", id, s);
        break;
    case HEALTH_NODE_BACK:
        c->node[id].view = NODE_UP;
        publish_text(c, "node %u is back", id);
        break;
    case HEALTH_NODE_LOST:
        nodes_give_up(c->nodes, id);
        c->node[id].silent_ns = silent_ns;
        node_is_gone(c, id, "no sign of it for cluster.timeouts.lost");
        control_post(c, &(struct job_event){
                            .kind = JOB_EV_AGENT_LOST, .node = id, .text = "it fell silent"});
        break;
    case HEALTH_RANK_HUNG:
        c->rank[id].hung_ns = silent_ns;
        log_warn("rank %u has made no progress for %.1f s", id, s);
        control_post(c, &(struct job_event){.kind = JOB_EV_RANK_HUNG,
                                            .node = control_node_of(c, id),
                                            .rank = id,
                                            .generation = job_generation(c->job)});
        break;
    }
}
