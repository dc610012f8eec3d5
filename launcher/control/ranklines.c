/* ranklines.c: what a rank says on its link and the agent passes on: rendezvous, metrics, words
 * for people.  A line against the rules is the rank's fault: it is refused, and the job told.
 */
#include "launcher/control/core.h"

#include <math.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/log.h"
#include "common/link/linkline.h"
#include "launcher/record/journal.h"
#include "launcher/record/rdzvlog.h"
#include "launcher/record/utf8.h"

enum { TEXT_MAX = 1 << 16, CLEAN_MAX = 4 * TEXT_MAX };

static void reply(struct control *c, uint32_t rank, const char *line)
{
    Dsl__RankReply r;
    Dsl__Frame f = DSL__FRAME__INIT;
    AUTO_FREE char *copy = xstrdup(line);
    dsl__rank_reply__init(&r);
    r.rank = rank;
    r.line = copy;
    f.generation = job_generation(c->job);
    f.body_case = DSL__FRAME__BODY_RANK_REPLY;
    f.rank_reply = &r;
    nodes_send(c->nodes, control_node_of(c, rank), &f);
}

void ranklines_rdzv(void *ctx, uint32_t rank, enum rdzv_reply_kind kind, const char *key,
                    const void *val, size_t len)
{
    struct control *c = ctx;
    AUTO_BUF struct buf line = BUF(LINK_LINE_MAX);
    if (c->rejoining)
        return;
    switch (kind) {
    case RDZV_VALUE:
        (void)buf_printf(&line, "value key=%s value=", key);
        (void)buf_hex(&line, val, len);
        break;
    case RDZV_ABSENT:
        (void)buf_printf(&line, "void key=%s", key);
        break;
    case RDZV_RELEASED:
        (void)buf_puts(&line, "released");
        break;
    case RDZV_VOID: /* its generation is over; it is being killed */
        return;
    }
    reply(c, rank, buf_str(&line));
}

static void refuse(struct control *c, uint32_t rank, const struct err *why)
{
    AUTO_BUF struct buf line = BUF(LINK_LINE_MAX);
    log_warn("rank %u: %s", rank, why->text);
    (void)buf_puts(&line, "refused text=");
    (void)buf_hex(&line, why->text, strlen(why->text));
    reply(c, rank, buf_str(&line));
    control_post(c, &(struct job_event){.kind = JOB_EV_RANK_STUCK,
                                        .rank = rank,
                                        .generation = job_generation(c->job),
                                        .text = why->text});
}

/* What a rank's line asks for; each -1 is the rank's fault. */

static int hear_put(struct control *c, uint32_t rank, const struct link_line *l, struct err *e)
{
    AUTO_BUF struct buf val = BUF(RDZV_VALUE_MAX);
    const char *key = link_line_get(l, "key");
    struct err trouble;
    if (!key)
        return err_set(e, ERR_PROTOCOL, "put: no key");
    if (link_line_hex(l, "value", &val, e) < 0 ||
        rdzv_put(c->rdzv, job_generation(c->job), rank, key, buf_str(&val), val.len, e) < 0)
        return -1;
    if (c->rdzvlog && rdzvlog_put(c->rdzvlog, rank, key, buf_str(&val), val.len, &trouble) < 0)
        log_error("%s", trouble.text);
    return 0;
}

static int hear_get(struct control *c, uint32_t rank, const struct link_line *l, struct err *e)
{
    const char *key = link_line_get(l, "key");
    if (!key)
        return err_set(e, ERR_PROTOCOL, "get: no key");
    return rdzv_get(c->rdzv, job_generation(c->job), rank, key, e);
}

static int hear_barrier(struct control *c, uint32_t rank, const struct link_line *l,
                        struct err *e)
{
    uint32_t generation = job_generation(c->job), last;
    struct err trouble;
    (void)l;
    if (rdzv_missing(c->rdzv, &last, 1) == 1 && last == rank &&
        journal_barrier(c->journal, generation, &trouble) < 0)
        log_error("%s", trouble.text);
    if (rdzv_enter(c->rdzv, generation, rank, e) < 0)
        return -1;
    if (rdzv_complete(c->rdzv))
        control_post(c, &(struct job_event){.kind = JOB_EV_ALL_IN, .generation = generation});
    return 0;
}

static int hear_metrics(struct control *c, uint32_t rank, const struct link_line *l,
                        struct err *e)
{
    struct metrics m;
    struct err trouble;
    AUTO_BUF struct buf json = BUF(TEXT_MAX);
    if (rank != 0)
        return err_set(e, ERR_PROTOCOL, "metrics are rank 0's to say");
    if (metrics_from_line(l, job_generation(c->job), &m, &json, e) < 0)
        return -1;
    if (metrics_known(&c->last, &m))
        return 0;
    metrics_follow(&c->last, &m);
    if (!isnan(m.step_ms) && !isnan(m.tokens_per_s)) {
        c->train_s += m.step_ms / 1000;
        c->tokens += m.tokens_per_s * m.step_ms / 1000;
    }
    publish_progress(c, buf_str(&json));
    (void)buf_puts(&json, "\n");
    if (io_append(c->metrics_fd, json.data, json.len, &trouble) < 0)
        log_error("metrics.jsonl: %s", trouble.text);
    return 0;
}

static int hear_event(struct control *c, uint32_t rank, const struct link_line *l,
                      struct err *e)
{
    AUTO_BUF struct buf raw = BUF(TEXT_MAX), text = BUF(CLEAN_MAX);
    if (link_line_hex(l, "text", &raw, e) < 0)
        return -1;
    utf8_clean(buf_str(&raw), raw.len, &text);
    if (rank == 0)
        publish_text(c, "%s", buf_str(&text));
    else
        publish_text(c, "rank %u: %s", rank, buf_str(&text));
    return 0;
}

static const struct {
    const char *verb;
    int (*hear)(struct control *c, uint32_t rank, const struct link_line *l, struct err *e);
} verbs[] = {
    {"put", hear_put},         {"get", hear_get},     {"barrier", hear_barrier},
    {"metrics", hear_metrics}, {"event", hear_event},
};

static int hear_line(struct control *c, uint32_t rank, const char *line, struct err *e)
{
    AUTO_FREE char *copy = xstrdup(line);
    AUTO_FREE struct link_line *l = xmalloc(sizeof(*l));
    if (link_line_parse(copy, l, e) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(l->verb, verbs[i].verb) == 0)
            return verbs[i].hear(c, rank, l, e);
    return err_set(e, ERR_PROTOCOL, "'%.40s' is nothing a rank may say", l->verb);
}

void ranklines_hear(struct control *c, uint32_t rank, const char *line)
{
    struct err e;
    if (hear_line(c, rank, line, &e) < 0)
        refuse(c, rank, &e);
}
