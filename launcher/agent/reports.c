/* What the controller is told: hello, pages, output, lines of links, ends, checkpoints. */
#include "launcher/agent/agent_impl.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/own.h"
#include "launcher/agent/outbox.h"
#include "launcher/agent/rank/logring.h"
#include "launcher/wire/frame.h"

enum { LINE_MAX_TEXT = 8 << 10 };

void reports_say(struct agent *a, uint32_t generation, Dsl__Frame *f, bool lossy)
{
    f->generation = generation;
    if (!a->controller) {
        outbox_put(a->outbox, f, lossy);
        return;
    }
    (void)channel_send(a->controller->ch, f);
    if (f->body_case == DSL__FRAME__BODY_RANK_LINE || f->body_case == DSL__FRAME__BODY_NOTE) {
        a->said++;
        outbox_put(a->unheard, f, lossy);
    }
}

void reports_note(struct agent *a, Dsl__AgentNote__Kind kind, uint64_t step, int rank,
                  const char *text, int64_t took_ns)
{
    Dsl__AgentNote m;
    dsl__agent_note__init(&m);
    m.kind = kind;
    m.step = step;
    m.rank = rank;
    m.text = (char *)(uintptr_t)text;
    m.took_ns = took_ns;
    Dsl__Frame f;
    dsl__frame__init(&f);
    f.body_case = DSL__FRAME__BODY_NOTE;
    f.note = &m;
    reports_say(a, a->generation, &f, true);
}

static void fill_page(Dsl__PageData *m, uint32_t rank, const struct proc_page *g)
{
    dsl__page_data__init(m);
    m->rank = rank;
    m->beat = g->beat;
    m->step = g->step;
    m->phase = g->phase;
    m->micro = g->micro;
    m->waiting = g->waiting;
    m->coll_group = g->coll_group;
    m->coll_op = g->coll_op;
    m->coll_peer = g->coll_peer;
    m->coll_seq = g->coll_seq;
    m->proc_state = (uint8_t)g->state;
    m->rss_bytes = g->rss_bytes;
}

void reports_pages(struct agent *a)
{
    uint32_t n = workers_count(a->workers), k = 0;
    AUTO_FREE Dsl__PageData *pages = xcalloc(n, sizeof *pages);
    AUTO_FREE Dsl__PageData **list = xcalloc(n, sizeof *list);
    if (!a->controller)
        return;
    for (uint32_t i = 0; i < n; i++) {
        struct proc *p = workers_at(a->workers, i);
        if (proc_exited(p))
            continue;
        struct proc_page g = proc_page(p);
        fill_page(&pages[k], proc_rank(p), &g);
        pages[k].pid = (uint32_t)proc_pid(p);
        list[k] = &pages[k];
        k++;
    }
    Dsl__Pages m;
    dsl__pages__init(&m);
    m.n_pages = k;
    m.pages = list;
    Dsl__Frame f;
    dsl__frame__init(&f);
    f.body_case = DSL__FRAME__BODY_PAGES;
    f.pages = &m;
    reports_say(a, a->generation, &f, true);
}

static uint32_t cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

void reports_hello(struct connection *c)
{
    struct agent *a = c->a;
    uint32_t n = workers_count(a->workers);
    AUTO_FREE uint32_t *live = xcalloc(n, sizeof *live);
    AUTO_FREE Dsl__RankExited **exits = xcalloc(a->n_gone, sizeof *exits);
    Dsl__AgentHello m;
    dsl__agent_hello__init(&m);
    for (uint32_t i = 0; i < n; i++)
        if (!proc_exited(workers_at(a->workers, i)))
            live[m.n_live_ranks++] = proc_rank(workers_at(a->workers, i));
    for (size_t i = 0; i < a->n_gone; i++)
        exits[i] = &a->gone[i]->m;
    m.protocol = FRAME_PROTOCOL;
    m.job = (char *)(uintptr_t)a->p.job;
    m.node = a->p.node;
    m.pid = (uint32_t)getpid();
    m.cores = cores();
    m.host = a->host;
    m.host_id = a->host_id;
    m.live_generation = n || a->n_gone ? a->generation : 0;
    m.live_ranks = live;
    m.exits = exits;
    m.n_exits = a->n_gone;
    c->told_gone = a->n_gone;
    Dsl__Frame f;
    dsl__frame__init(&f);
    f.generation = m.live_generation;
    f.body_case = DSL__FRAME__BODY_AGENT_HELLO;
    f.agent_hello = &m;
    (void)channel_send(c->ch, &f);
}

static void say_gone(struct agent *a, struct gone *g)
{
    Dsl__Frame f;
    dsl__frame__init(&f);
    f.generation = a->generation;
    f.body_case = DSL__FRAME__BODY_RANK_EXITED;
    f.rank_exited = &g->m;
    if (a->controller)
        (void)channel_send(a->controller->ch, &f);
}

static void say_kept(void *ctx, Dsl__Frame *f, bool lossy)
{
    reports_say(ctx, f->generation, f, lossy);
}

/* A dead controller may have dealt with it: numbers and words may come twice, requests not. */
static void say_unheard(void *ctx, Dsl__Frame *f, bool lossy)
{
    if (lossy)
        say_kept(ctx, f, lossy);
}

void reports_missed(struct agent *a)
{
    struct outbox *unheard = a->unheard;
    for (size_t i = a->controller->told_gone; i < a->n_gone; i++)
        say_gone(a, a->gone[i]);
    uint64_t lost = outbox_lost(a->outbox);
    if (lost)
        log_warn("%" PRIu64 " messages were lost while no controller was there", lost);
    a->unheard = outbox_new();
    a->said = 0;
    outbox_flush(unheard, say_unheard, a);
    outbox_free(unheard);
    outbox_flush(a->outbox, say_kept, a);
}

void reports_gone(struct agent *a, uint32_t rank, const struct proc_exit *x,
                  const struct proc_page *page)
{
    struct gone *g = xcalloc(1, sizeof *g);
    dsl__rank_exited__init(&g->m);
    fill_page(&g->page, rank, page);
    g->kind = xstrdup(x->kind);
    g->text = xstrdup(x->text);
    g->m.rank = rank;
    g->m.status = x->status;
    g->m.done = x->done;
    g->m.stopped = x->stopped;
    g->m.kind = g->kind;
    g->m.text = g->text;
    g->m.peer = x->peer;
    g->m.page = &g->page;
    a->gone = xrealloc_array(a->gone, a->n_gone + 1, sizeof *a->gone);
    a->gone[a->n_gone++] = g;
    say_gone(a, g);
}

void reports_forget_gone(struct agent *a)
{
    for (size_t i = 0; i < a->n_gone; i++) {
        free(a->gone[i]->kind);
        free(a->gone[i]->text);
        free(a->gone[i]);
    }
    free(TAKE(a->gone));
    a->n_gone = 0;
}

/* Output of one rank, as far as window and queue let it. */
static void say_log(struct agent *a, struct proc *p)
{
    const char *at;
    uint64_t offset;
    size_t n;
    while (a->controller && channel_queued(a->controller->ch) < QUEUE_HIGH &&
           (n = logring_next(proc_log(p), &at, &offset)) > 0) {
        Dsl__LogData m;
        dsl__log_data__init(&m);
        m.rank = proc_rank(p);
        m.offset = offset;
        m.data = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)at};
        Dsl__Frame f;
        dsl__frame__init(&f);
        f.body_case = DSL__FRAME__BODY_LOG_DATA;
        f.log_data = &m;
        reports_say(a, a->generation, &f, true);
    }
}

void reports_logs(struct agent *a)
{
    for (uint32_t i = 0; i < workers_count(a->workers); i++)
        say_log(a, workers_at(a->workers, i));
}

/* Ranks that talk faster than the controller listens wait. */
void reports_pause(struct agent *a)
{
    size_t queued = a->controller ? channel_queued(a->controller->ch) : 0;
    bool pause = a->paused ? queued > QUEUE_LOW : queued > QUEUE_HIGH;
    if (pause == a->paused)
        return;
    a->paused = pause;
    for (uint32_t i = 0; i < workers_count(a->workers); i++)
        ranklink_pause(proc_link(workers_at(a->workers, i)), pause);
}

static void on_started(void *ctx, struct proc *p)
{
    struct agent *a = ctx;
    Dsl__RankStarted m;
    dsl__rank_started__init(&m);
    m.rank = proc_rank(p);
    m.pid = (uint32_t)proc_pid(p);
    Dsl__Frame f;
    dsl__frame__init(&f);
    f.body_case = DSL__FRAME__BODY_RANK_STARTED;
    f.rank_started = &m;
    reports_say(a, a->generation, &f, true);
}

static void on_log(void *ctx, struct proc *p)
{
    say_log(ctx, p);
}

static void save(struct agent *a, struct proc *p, const struct ranklink_event *ev)
{
    struct writer_job j = {
        .dir = a->checkpoint_dir,
        .fd = proc_snapshot_fd(p, ev->slot),
        .rank = proc_rank(p),
        .world = a->world,
        .generation = a->generation,
        .keep = a->checkpoint_keep,
        .step = ev->step,
        .offset = ev->offset,
        .bytes = ev->bytes,
    };
    memcpy(j.digest, ev->digest, sizeof j.digest);
    if (!a->checkpoint_dir[0])
        ranklink_refuse(proc_link(p), "this job has no checkpoint folder");
    else if (ev->kind == RANKLINK_SHARD)
        writer_shard(a->writer, &j);
    else if (j.rank != 0)
        ranklink_refuse(proc_link(p), "commit is for rank 0 to say");
    else
        writer_commit(a->writer, &j);
}

static void on_link(void *ctx, struct proc *p, const struct ranklink_event *ev)
{
    struct agent *a = ctx;
    Dsl__RankLine m;
    dsl__rank_line__init(&m);
    Dsl__Frame f;
    dsl__frame__init(&f);
    switch (ev->kind) {
    case RANKLINK_FORWARD:
        m.rank = proc_rank(p);
        m.line = (char *)(uintptr_t)ev->line;
        f.body_case = DSL__FRAME__BODY_RANK_LINE;
        f.rank_line = &m;
        reports_say(a, a->generation, &f, ev->lossy);
        reports_pause(a);
        break;
    case RANKLINK_SHARD:
    case RANKLINK_COMMIT:
        save(a, p, ev);
        break;
    case RANKLINK_BROKEN:
        log_warn("rank %u broke the link protocol: %s", proc_rank(p), ev->text);
        break;
    case RANKLINK_FAILED:
    case RANKLINK_DONE:
        break; /* the proc keeps them for the end */
    }
}

static void on_ended(void *ctx, struct proc *p)
{
    struct agent *a = ctx;
    struct proc_page page = proc_page(p);
    say_log(a, p);
    reports_gone(a, proc_rank(p), proc_exited(p), &page);
    if (workers_live(a->workers) == 0)
        a->reaped_ns = clock_now_ns();
    (void)agent_live_clear(a);
}

static void on_stuck(void *ctx, const char *text)
{
    log_error("%s", text);
    reports_note(ctx, DSL__AGENT_NOTE__KIND__TEXT, 0, -1, text, 0);
}

const struct workers_ops reports_ops = {
    .proc = {.on_started = on_started, .on_link = on_link, .on_log = on_log},
    .on_ended = on_ended,
    .on_stuck = on_stuck,
};

void reports_on_written(void *ctx, const struct writer_result *r)
{
    struct agent *a = ctx;
    AUTO_BUF struct buf line = BUF(LINE_MAX_TEXT);
    if (r->task == WRITER_TIDY) {
        (void)agent_live_clear(a);
        return;
    }
    bool commit = r->task == WRITER_COMMIT;
    struct proc *p = r->generation == a->generation ? workers_find(a->workers, r->rank) : NULL;
    if (r->why) {
        (void)buf_printf(&line, "lost step=%" PRIu64 " text=", r->step);
        (void)buf_hex(&line, r->why->text, strlen(r->why->text));
    } else {
        (void)buf_printf(&line, "%s step=%" PRIu64, commit ? "committed" : "written", r->step);
    }
    if (p && !proc_exited(p))
        ranklink_send(proc_link(p), buf_str(&line));
    reports_note(a,
                 r->why   ? DSL__AGENT_NOTE__KIND__STORAGE_FAILED
                 : commit ? DSL__AGENT_NOTE__KIND__COMMITTED
                          : DSL__AGENT_NOTE__KIND__WRITTEN,
                 r->step, (int)r->rank, r->why ? r->why->text : r->path, r->took_ns);
    (void)agent_live_clear(a);
}
