#include "launcher/watch/past.h"

#include <jansson.h>
#include <math.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/own.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/journal.h"
#include "launcher/record/metrics.h"

static void set_number(json_t *o, const char *key, double v)
{
    if (isfinite(v))
        json_object_set_new(o, key, json_real(v));
}

static json_t *document(const struct jobdir *d, const struct journal_state *s,
                        const struct metrics *m, int holder)
{
    bool silent = holder && !s->ended;
    json_t *o = json_pack(
        "{s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:[], s:[]}", "job", d->name,
        "live", (int)silent, "state",
        s->ended ? "ended"
        : silent ? "silent"
                 : "lost",
        "generation", (json_int_t)s->generation, "steps", (json_int_t)s->steps, "world",
        (json_int_t)s->world, "restarts", (json_int_t)s->n_restarts, "step",
        (json_int_t)(s->ended ? s->step : m->step), "state_dir", d->dir, "logs", d->logs,
        "checkpoints", s->checkpoint_dir ? s->checkpoint_dir : "", "nodes", "ranks");
    if (silent)
        json_object_set_new(o, "controller", json_pack("{s:i}", "pid", holder));
    set_number(o, "loss", m->loss);
    set_number(o, "validation_loss", m->validation_loss);
    set_number(o, "grad_norm", m->grad_norm);
    set_number(o, "lr", m->lr);
    set_number(o, "tokens_per_s", m->tokens_per_s);
    if (s->checkpoint_step)
        json_object_set_new(o, "last_checkpoint",
                            json_pack("{s:I, s:s}", "step", (json_int_t)s->checkpoint_step,
                                      "path", s->checkpoint_path));
    if (s->failure)
        json_object_set_new(o, "failure", json_string(s->failure));
    if (s->ended) {
        json_object_set_new(o, "outcome", json_string(s->outcome));
        json_object_set_new(o, "exit_code", json_integer(s->exit_code));
        set_number(o, "seconds", (double)(s->ended_ms - s->started_ms) / 1000);
    }
    return o;
}

int past_status(const struct jobdir *d, int holder, struct buf *json, struct err *e)
{
    struct journal_state s;
    struct metrics m;
    if (metrics_last(d->metrics, &m, e) < 0 || journal_read(d->journal, &s, e) < 0)
        return -1;
    json_t *o = document(d, &s, &m, holder);
    AUTO_FREE char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    journal_state_done(&s);
    return buf_puts(json, text ? text : "{}");
}
