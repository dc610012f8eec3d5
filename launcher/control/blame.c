/* blame.c: a failed generation, gathered into failure.json, the report and the journal. */
#include "launcher/control/core.h"

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/log.h"
#include "launcher/plan/plan.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/journal.h"
#include "launcher/record/ranklog.h"
#include "launcher/record/report.h"

enum { REPORT_BYTES_MAX = 4 << 20 };

static uint32_t list_victims(const struct control *c, uint32_t culprit, uint32_t *ret)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < c->plan->world; r++)
        if (r != culprit && c->rank[r].exited && c->rank[r].status == WORKER_EXIT_PEER_LOST)
            ret[n++] = r;
    return n;
}

/* Ranks that never reached the barrier, when that is what went wrong: one to be named. */
static uint32_t culprit_of(const struct control *c, const struct job_order *o)
{
    uint32_t missing;
    if (o->rank != UINT32_MAX || o->cause != CAUSE_START_TIMEOUT)
        return o->rank;
    return rdzv_missing(c->rdzv, &missing, 1) > 0 ? missing : UINT32_MAX;
}

static void of_rank(const struct control *c, const struct job_order *o, struct failure *f)
{
    const struct rank_seen *r = &c->rank[f->rank];
    f->node = control_node_of(c, f->rank);
    f->device = "cpu";
    f->exit_code = o->rank_exit;
    f->page = health_page_of(c->health, f->rank);
    f->kind = r->kind;
    f->text = r->text;
    f->silent_ns = o->cause == CAUSE_HANG ? r->hung_ns : 0;
}

void blame(struct control *c, const struct job_order *o)
{
    AUTO_BUF struct buf tail = BUF(RANKLOG_TAIL_BYTES), json = BUF(REPORT_BYTES_MAX),
                        text = BUF(REPORT_BYTES_MAX), headline = BUF(4096);
    AUTO_FREE uint32_t *victims = xcalloc(c->plan->world, sizeof(*victims));
    AUTO_FREE char *log_path = NULL;
    struct err e;
    struct failure f = {.job = c->dir->name,
                        .generation = o->generation,
                        .cause = o->cause,
                        .rank = culprit_of(c, o),
                        .node = o->node < c->n_nodes ? o->node : UINT32_MAX,
                        .victims = victims,
                        .rule = o->rule,
                        .restarts = o->restarts,
                        .restarts_left = job_restarts_left(c->job, clock_now_ns())};
    if (f.rank < c->plan->world) {
        of_rank(c, o, &f);
        log_path = ranklog_path(c->dir->logs, o->generation, f.rank);
        if (ranklog_tail(c->dir->logs, o->generation, f.rank, REPORT_LOG_LINES, &tail, &e) < 0)
            log_warn("%s", e.text);
    } else if (f.node != UINT32_MAX) {
        f.text = c->node[f.node].why;
        f.silent_ns = c->node[f.node].silent_ns;
    }
    if (f.node != UINT32_MAX)
        f.host = c->node[f.node].host ? c->node[f.node].host : c->plan->nodes[f.node].host;
    f.n_victims = list_victims(c, f.rank, victims);
    f.log_path = log_path;
    f.log_tail = buf_str(&tail);
    report_json(&f, &json);
    report_text(&f, &text);
    report_headline(&f, &headline);
    if (io_replace_file(c->dir->failure, json.data, json.len, &e) < 0)
        log_error("%s", e.text);
    if (journal_failure(c->journal, o->generation, job_cause_name(o->cause), buf_str(&headline),
                        o->restarts, &e) < 0)
        log_error("%s", e.text);
    free(c->failure);
    c->failure = buf_take(&headline);
    log_error("%s", buf_str(&text));
    publish_report(c, buf_str(&text));
}
