#include "launcher/record/report.h"

#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/own.h"
#include "common/link/page.h"
#include "common/shape/topo.h"
#include "launcher/record/utf8.h"
#include "launcher/super/health.h"

static bool has_rank(const struct failure *f)
{
    return f->rank != UINT32_MAX;
}

static bool said_something(const struct failure *f)
{
    return f->text && *f->text;
}

static const char *phase_of(const struct failure *f)
{
    return page_phase_name((enum page_phase)f->page->phase);
}

static const char *exit_words(int code)
{
    static const struct {
        int code;
        const char *words;
    } table[] = {
        {WORKER_EXIT_SPEC, "the spec cannot work"},
        {WORKER_EXIT_PREEMPTED, "preempted"},
        {WORKER_EXIT_NO_RESTART, "asks for no restart"},
        {WORKER_EXIT_PEER_LOST, "a peer was lost"},
        {WORKER_EXIT_NUMERIC, "NaN or infinity"},
        {WORKER_EXIT_STORAGE, "storage"},
        {WORKER_EXIT_MEMORY, "out of memory"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].code == code)
            return table[i].words;
    return NULL;
}

static void what_happened(const struct failure *f, struct buf *out)
{
    const char *words = exit_words(f->exit_code), *name;
    switch (f->cause) {
    case CAUSE_EXIT:
        (void)buf_printf(out, "exited with code %d", f->exit_code);
        if (words)
            (void)buf_printf(out, " (%s)", words);
        return;
    case CAUSE_SIGNAL:
        name = sigabbrev_np(-f->exit_code);
        (void)buf_printf(out, "was killed by signal %d (SIG%s)", -f->exit_code,
                         name ? name : "?");
        return;
    case CAUSE_HANG:
        (void)buf_printf(out, "made no progress for %.1f s",
                         (double)f->silent_ns / (double)NS_PER_S);
        return;
    case CAUSE_NODE_LOST:
        (void)buf_puts(out, "was lost");
        return;
    case CAUSE_PROTOCOL:
        (void)buf_puts(out, "broke the link protocol");
        return;
    case CAUSE_START_TIMEOUT:
        (void)buf_puts(out, "did not start in time");
        return;
    case CAUSE_BOOT:
        (void)buf_puts(out, "could not be started");
        return;
    }
}

void report_headline(const struct failure *f, struct buf *out)
{
    if (has_rank(f))
        (void)buf_printf(out, "rank %u", f->rank);
    else if (f->node != UINT32_MAX)
        (void)buf_printf(out, "node %u", f->node);
    else
        (void)buf_puts(out, "the job");
    if (f->host)
        (void)buf_printf(out, " on %s", f->host);
    (void)buf_puts(out, " ");
    what_happened(f, out);
    if (has_rank(f) && f->page)
        (void)buf_printf(out, " in %s, after step %llu", phase_of(f),
                         (unsigned long long)f->page->step);
}

static const char *group_of(const struct health_page *p)
{
    return p->coll_group < GROUP_KIND_COUNT ? group_kind_name((enum group_kind)p->coll_group)
                                            : "?";
}

static void collective_text(const struct health_page *p, struct buf *out)
{
    if (p->coll_seq == 0)
        return;
    (void)buf_printf(out, "  last collective  %s number %llu in the %s group%s",
                     page_coll_name(p->coll_op), (unsigned long long)p->coll_seq, group_of(p),
                     p->waiting ? ", waiting" : ", done");
    if (p->waiting && p->coll_peer != UINT32_MAX)
        (void)buf_printf(out, " for rank %u", p->coll_peer);
    (void)buf_puts(out, "\n");
}

static void victims_text(const struct failure *f, struct buf *out)
{
    if (f->n_victims == 0)
        return;
    (void)buf_puts(out, "  victims          ");
    for (uint32_t i = 0; i < f->n_victims && i < 16; i++)
        (void)buf_printf(out, "%s%u", i ? ", " : "rank ", f->victims[i]);
    if (f->n_victims > 16)
        (void)buf_printf(out, " and %u more", f->n_victims - 16);
    (void)buf_puts(out, " (lost a peer; not at fault)\n");
}

static const char *last_lines(const char *text, unsigned lines)
{
    const char *p = text + strlen(text);
    if (p > text && p[-1] == '\n')
        p--;
    for (; p > text; p--)
        if (p[-1] == '\n' && --lines == 0)
            return p;
    return text;
}

static void log_text(const struct failure *f, struct buf *out)
{
    if (!f->log_tail || !*f->log_tail)
        return;
    (void)buf_printf(out, "  last lines of %s\n", f->log_path);
    const char *p = last_lines(f->log_tail, REPORT_SCREEN_LINES);
    while (*p) {
        size_t n = strcspn(p, "\n");
        (void)buf_puts(out, "  | ");
        utf8_clean(p, n, out);
        (void)buf_puts(out, "\n");
        p += n + (p[n] == '\n');
    }
}

void report_text(const struct failure *f, struct buf *out)
{
    (void)buf_printf(out, "generation %u failed: ", f->generation);
    report_headline(f, out);
    (void)buf_puts(out, "\n");
    if (said_something(f)) {
        (void)buf_puts(out, has_rank(f) ? "  it said          " : "  why              ");
        utf8_clean(f->text, strlen(f->text), out);
        (void)buf_puts(out, "\n");
    }
    if (has_rank(f)) {
        (void)buf_printf(out, "  where            rank %u", f->rank);
        if (f->node != UINT32_MAX)
            (void)buf_printf(out, ", node %u", f->node);
        (void)buf_printf(out, ", host %s, device %s\n", f->host ? f->host : "?",
                         f->device ? f->device : "?");
    }
    if (f->page)
        collective_text(f->page, out);
    victims_text(f, out);
    log_text(f, out);
    (void)buf_printf(out, "  rule             %s\n", f->rule);
    if (f->restarts)
        (void)buf_printf(out, "  next             generation %u, restarts left: %u\n",
                         f->generation + 1, f->restarts_left);
    else
        (void)buf_puts(out, "  next             the job ends\n");
}

static json_t *clean_string(const char *s)
{
    AUTO_BUF struct buf b = BUF(1 << 20);
    utf8_clean(s, strlen(s), &b);
    return json_string(buf_str(&b));
}

static json_t *lines_json(const char *text)
{
    json_t *a = json_array();
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        AUTO_BUF struct buf b = BUF(1 << 20);
        utf8_clean(p, n, &b);
        json_array_append_new(a, json_string(buf_str(&b)));
        p += n + (p[n] == '\n');
    }
    return a;
}

static json_t *page_json(const struct health_page *p)
{
    json_t *o =
        json_pack("{s:s, s:I, s:I}", "phase", page_phase_name((enum page_phase)p->phase),
                  "step", (json_int_t)p->step, "micro", (json_int_t)p->micro);
    if (p->coll_seq == 0)
        return o;
    json_t *c =
        json_pack("{s:s, s:s, s:I, s:b}", "op", page_coll_name(p->coll_op), "group",
                  group_of(p), "number", (json_int_t)p->coll_seq, "waiting", (int)p->waiting);
    if (p->coll_peer != UINT32_MAX)
        json_object_set_new(c, "peer", json_integer((json_int_t)p->coll_peer));
    json_object_set_new(o, "collective", c);
    return o;
}

static void set_optional(json_t *o, const char *key, const char *s)
{
    if (s && *s)
        json_object_set_new(o, key, clean_string(s));
}

void report_json(const struct failure *f, struct buf *out)
{
    AUTO_BUF struct buf head = BUF(4096);
    report_headline(f, &head);
    json_t *o = json_pack("{s:s, s:I, s:s, s:s, s:s, s:b, s:I}", "job", f->job, "generation",
                          (json_int_t)f->generation, "headline", buf_str(&head), "cause",
                          job_cause_name(f->cause), "rule", f->rule, "restarts",
                          (int)f->restarts, "restarts_left", (json_int_t)f->restarts_left);
    if (has_rank(f)) {
        json_object_set_new(o, "rank", json_integer(f->rank));
        if (f->cause == CAUSE_SIGNAL)
            json_object_set_new(o, "signal", json_integer(-f->exit_code));
        else if (f->cause == CAUSE_EXIT)
            json_object_set_new(o, "exit_code", json_integer(f->exit_code));
    }
    if (f->node != UINT32_MAX)
        json_object_set_new(o, "node", json_integer(f->node));
    set_optional(o, "host", f->host);
    set_optional(o, "device", f->device);
    set_optional(o, "error_kind", f->kind);
    set_optional(o, "error", f->text);
    if (f->silent_ns > 0)
        json_object_set_new(o, "silent_s", json_real((double)f->silent_ns / NS_PER_S));
    if (f->page)
        json_object_set_new(o, "at", page_json(f->page));
    json_t *victims = json_array();
    for (uint32_t i = 0; i < f->n_victims; i++)
        json_array_append_new(victims, json_integer(f->victims[i]));
    json_object_set_new(o, "victims", victims);
    set_optional(o, "log", f->log_path);
    json_object_set_new(o, "log_tail", lines_json(f->log_tail ? f->log_tail : ""));
    AUTO_FREE char *text = json_dumps(o, JSON_INDENT(2));
    json_decref(o);
    (void)buf_puts(out, text ? text : "{}");
    (void)buf_puts(out, "\n");
}
