/* link_lines.c: what the agent says to a worker, line by line, by a table of verbs. */
#include <inttypes.h>
#include <string.h>

#include "common/link/linkline.h"
#include "worker/link_state.h"

/* Each on_ returns 0, or -1 with *e set: the link is dead then. */

static int u32_of(const struct link_line *x, const char *key, uint32_t *ret, struct err *e)
{
    uint64_t v;
    if (link_line_u64(x, key, &v, e) < 0)
        return -1;
    if (v > UINT32_MAX)
        return err_set(e, ERR_PROTOCOL, "%s=%" PRIu64, key, v);
    *ret = (uint32_t)v;
    return 0;
}

/* The decoded value as text without NUL, at most `cap` bytes. */
static char *text_of(const struct link_line *x, const char *key, size_t cap, struct err *e)
{
    AUTO_BUF struct buf b = BUF(cap);
    if (link_line_hex(x, key, &b, e) < 0)
        return NULL;
    if (strlen(buf_str(&b)) != b.len) {
        (void)err_set(e, ERR_PROTOCOL, "%s holds a NUL", key);
        return NULL;
    }
    return buf_take(&b);
}

static int on_welcome(struct link *l, const struct link_line *x, struct err *e)
{
    struct link_identity *id = &l->id;
    uint32_t proto = 0;
    if (l->welcomed)
        return err_set(e, ERR_PROTOCOL, "a second one");
    if (u32_of(x, "proto", &proto, e) < 0)
        return -1;
    if (proto != LINK_PROTO)
        return err_set(e, ERR_PROTOCOL, "protocol %u, this worker speaks %d", proto,
                       LINK_PROTO);
    if (u32_of(x, "rank", &id->rank, e) < 0 || u32_of(x, "world", &id->world, e) < 0 ||
        u32_of(x, "generation", &id->generation, e) < 0 ||
        u32_of(x, "local_rank", &id->local_rank, e) < 0)
        return -1;
    if (id->rank >= id->world)
        return err_set(e, ERR_PROTOCOL, "rank %u of %u", id->rank, id->world);
    AUTO_BUF struct buf secret = BUF(sizeof id->secret);
    if (link_line_hex(x, "secret", &secret, e) < 0)
        return -1;
    if (secret.len != sizeof id->secret)
        return err_set(e, ERR_PROTOCOL, "a secret of %zu bytes", secret.len);
    memcpy(id->secret, secret.data, sizeof id->secret);
    AUTO_FREE char *host = text_of(x, "host", sizeof id->host_id - 1, e);
    if (!host)
        return -1;
    (void)snprintf(id->host_id, sizeof id->host_id, "%s", host);
    l->spec = text_of(x, "spec", LINK_LINE_MAX, e);
    if (!l->spec)
        return -1;
    l->welcomed = true;
    return 0;
}

/* Both answers to a get: is it the one in flight? */
static int check_answer(struct link *l, const struct link_line *x, struct err *e)
{
    const char *key = link_line_get(x, "key");
    if (!key || !l->asked || l->answered || strcmp(key, l->asked) != 0)
        return err_set(e, ERR_PROTOCOL, "nobody asked for %s", key ? key : "it");
    l->answered = true;
    return 0;
}

static int on_value(struct link *l, const struct link_line *x, struct err *e)
{
    return check_answer(l, x, e) < 0 ? -1 : link_line_hex(x, "value", l->answer, e);
}

static int on_void(struct link *l, const struct link_line *x, struct err *e)
{
    l->is_void = true;
    return check_answer(l, x, e);
}

static int on_released(struct link *l, const struct link_line *x, struct err *e)
{
    (void)x;
    (void)e;
    l->released = true;
    return 0;
}

static bool answered(uint64_t out[2], uint64_t step)
{
    for (int slot = 0; slot < 2; slot++)
        if (out[slot] == step) {
            out[slot] = 0;
            return true;
        }
    return false;
}

/* Two shards are written at a time, and may finish in any order: a step counts as written once
 * nothing older is in the agent's hands. */
static void settle_written(struct link *l)
{
    uint64_t w = l->heard;
    for (int slot = 0; slot < 2; slot++)
        if (l->shard_out[slot] && l->shard_out[slot] < w)
            return;
    l->written = w;
}

void link_on_written(struct link *l, uint64_t step)
{
    (void)answered(l->shard_out, step);
    if (step > l->heard)
        l->heard = step;
    settle_written(l);
}

void link_on_committed(struct link *l, uint64_t step)
{
    (void)answered(l->commit_out, step);
    if (step > l->committed)
        l->committed = step;
}

void link_on_lost(struct link *l, uint64_t step, const char *text)
{
    if (!answered(l->commit_out, step) && answered(l->shard_out, step))
        settle_written(l);
    l->lost = true;
    if (step > l->lost_step)
        l->lost_step = step;
    (void)err_set(&l->lost_why, ERR_STORAGE, "checkpoint of step %" PRIu64 ": %s", step, text);
}

static int on_written(struct link *l, const struct link_line *x, struct err *e)
{
    uint64_t step;
    if (link_line_u64(x, "step", &step, e) < 0)
        return -1;
    link_on_written(l, step);
    return 0;
}

static int on_committed(struct link *l, const struct link_line *x, struct err *e)
{
    uint64_t step;
    if (link_line_u64(x, "step", &step, e) < 0)
        return -1;
    link_on_committed(l, step);
    return 0;
}

static int on_lost(struct link *l, const struct link_line *x, struct err *e)
{
    uint64_t step;
    AUTO_FREE char *text = text_of(x, "text", ERR_TEXT_MAX, e);
    if (!text || link_line_u64(x, "step", &step, e) < 0)
        return -1;
    link_on_lost(l, step, text);
    return 0;
}

static int on_stop(struct link *l, const struct link_line *x, struct err *e)
{
    (void)x;
    (void)e;
    l->stop = true;
    return 0;
}

static int on_refused(struct link *l, const struct link_line *x, struct err *e)
{
    AUTO_FREE char *text = text_of(x, "text", ERR_TEXT_MAX, e);
    (void)l;
    return text ? err_set(e, ERR_PROTOCOL, "%s", text) : -1;
}

static const struct verb {
    const char *name;
    int (*take)(struct link *l, const struct link_line *x, struct err *e);
} verbs[] = {
    {"welcome", on_welcome},   {"value", on_value},     {"void", on_void},
    {"released", on_released}, {"written", on_written}, {"committed", on_committed},
    {"lost", on_lost},         {"stop", on_stop},       {"refused", on_refused},
};

/* Cuts the line. */
static int take_line(struct link *l, char *line, size_t n, struct err *e)
{
    struct link_line x;
    if (memchr(line, 0, n))
        return err_set(e, ERR_PROTOCOL, "the agent sent a NUL");
    if (link_line_parse(line, &x, e) < 0)
        return err_wrap(e, "from the agent");
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(verbs[i].name, x.verb) != 0)
            continue;
        if (!l->welcomed && verbs[i].take != on_welcome && verbs[i].take != on_refused)
            return err_set(e, ERR_PROTOCOL, "the agent said %s before welcome", x.verb);
        return verbs[i].take(l, &x, e) < 0 ? err_wrap(e, "the agent's %s", x.verb) : 0;
    }
    return err_set(e, ERR_PROTOCOL, "the agent said `%.40s`, which is no verb", x.verb);
}

int link_take_lines(struct link *l, struct err *e)
{
    size_t start = 0;
    for (;;) {
        size_t from = l->scanned > start ? l->scanned : start;
        char *nl = from < l->in.len ? memchr(l->in.data + from, '\n', l->in.len - from) : NULL;
        if (!nl)
            break;
        char *line = l->in.data + start;
        *nl = 0;
        if (nl - line > LINK_LINE_MAX)
            return err_set(e, ERR_PROTOCOL, "the agent sent a line of %zd bytes", nl - line);
        start = (size_t)(nl + 1 - l->in.data);
        if (take_line(l, line, (size_t)(nl - line), e) < 0)
            return -1;
    }
    buf_consume(&l->in, start);
    l->scanned = l->in.len;
    if (l->in.len > LINK_LINE_MAX)
        return err_set(e, ERR_PROTOCOL, "the agent sent a line without an end");
    return 0;
}
