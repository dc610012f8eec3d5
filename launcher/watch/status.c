#include "launcher/watch/status.h"

#include <jansson.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/joblock.h"
#include "launcher/watch/ctl.h"
#include "launcher/watch/past.h"
#include "launcher/watch/progress.h"

enum { ANSWER_MS = 5000 };

int status_of(const struct jobdir *dir, struct buf *json, struct err *e)
{
    struct joblock_holder h;
    switch (joblock_look(dir->lock, &h, e)) {
    case JOBLOCK_ERROR:
        return -1;
    case JOBLOCK_HELD:
        if (*h.control && ctl_status(h.control, ANSWER_MS, json, e) == 0)
            return 0;
        buf_clear(json); /* it is starting or ending, or stopped */
        return past_status(dir, h.pid, json, e);
    case JOBLOCK_FREE:
        break;
    }
    return past_status(dir, 0, json, e);
}

static const char *text_of(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static unsigned long long count_of(json_t *o, const char *key)
{
    return (unsigned long long)json_integer_value(json_object_get(o, key));
}

static void silent(json_t *o, struct buf *out)
{
    unsigned long long pid = count_of(json_object_get(o, "controller"), "pid");
    (void)buf_printf(out,
                     "  its controller, process %llu, does not answer; should it stay so, "
                     "`kill -9 %llu`,\n"
                     "  then `dslaunch up` the same spec to go on, or `dslaunch down %s`\n",
                     pid, pid, text_of(o, "job"));
}

static void head(json_t *o, struct buf *out)
{
    (void)buf_printf(out, "%s: %s", text_of(o, "job"), text_of(o, "state"));
    if (json_object_get(o, "outcome"))
        (void)buf_printf(out, " (%s, exit code %lld)", text_of(o, "outcome"),
                         json_integer_value(json_object_get(o, "exit_code")));
    (void)buf_printf(out, ", generation %llu, step %llu/%llu\n", count_of(o, "generation"),
                     count_of(o, "step"), count_of(o, "steps"));
    if (strcmp(text_of(o, "state"), "silent") == 0)
        silent(o, out);
    if (strcmp(text_of(o, "state"), "lost") == 0)
        (void)buf_printf(
            out,
            "  its controller died; its workers go on for "
            "cluster.timeouts.orphan, then save and stop\n"
            "  `dslaunch up` the same spec to go on with them, or `dslaunch down %s`\n",
            text_of(o, "job"));
}

static void numbers(json_t *o, struct buf *out)
{
    static const struct {
        const char *key, *label;
        int digits; /* of a fraction; negative: of an exponent's */
    } table[] = {{"loss", "loss", 4},
                 {"validation_loss", "validation", 4},
                 {"grad_norm", "norm", 3},
                 {"lr", "lr", -2}};
    bool any = false;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        json_t *v = json_object_get(o, table[i].key);
        int digits = table[i].digits;
        if (!json_is_number(v))
            continue;
        (void)buf_printf(out, "  %s ", table[i].label);
        if (digits < 0)
            (void)buf_printf(out, "%.*e", -digits, json_number_value(v));
        else
            (void)buf_printf(out, "%.*f", digits, json_number_value(v));
        any = true;
    }
    json_t *speed = json_object_get(o, "tokens_per_s");
    if (json_is_number(speed)) {
        (void)buf_puts(out, "  ");
        progress_count(json_number_value(speed), out);
        (void)buf_puts(out, " tok/s");
        any = true;
    }
    if (any)
        (void)buf_puts(out, "\n");
}

static void life(json_t *o, struct buf *out)
{
    json_t *seconds = json_object_get(o, "seconds"),
           *left = json_object_get(o, "restarts_left");
    json_t *ck = json_object_get(o, "last_checkpoint");
    (void)buf_printf(out, "  restarts %llu", count_of(o, "restarts"));
    if (left)
        (void)buf_printf(out, " (left %lld)", json_integer_value(left));
    if (json_is_number(seconds)) {
        (void)buf_puts(out, ", time ");
        progress_duration(json_number_value(seconds), out);
    }
    (void)buf_puts(out, "\n");
    if (ck)
        (void)buf_printf(out, "  last checkpoint: step %llu, %s\n", count_of(ck, "step"),
                         text_of(ck, "path"));
    if (json_object_get(o, "failure"))
        (void)buf_printf(out, "  last failure: %s\n", text_of(o, "failure"));
}

static void nodes(json_t *o, struct buf *out)
{
    size_t i;
    json_t *n, *list = json_object_get(o, "nodes");
    if (json_array_size(list) == 0)
        return;
    (void)buf_puts(out, "\n  node  host              agent     state\n");
    json_array_foreach(list, i, n)
    {
        (void)buf_printf(out, "  %4llu  %-16s  %-8llu  %s\n", count_of(n, "node"),
                         text_of(n, "host"), count_of(n, "pid"), text_of(n, "state"));
    }
}

static void ranks(json_t *o, struct buf *out)
{
    size_t i;
    json_t *r, *list = json_object_get(o, "ranks");
    if (json_array_size(list) == 0)
        return;
    (void)buf_puts(out, "\n  rank  node  pid       step      phase       memory\n");
    json_array_foreach(list, i, r)
    {
        const char *phase = text_of(r, "phase");
        (void)buf_printf(out, "  %4llu  %4llu  %-8llu  %-8llu  %-10s  %.1f MiB\n",
                         count_of(r, "rank"), count_of(r, "node"), count_of(r, "pid"),
                         count_of(r, "step"), *phase ? phase : "-",
                         (double)count_of(r, "rss_bytes") / (1 << 20));
    }
}

int status_text(const char *json, struct buf *out, struct err *e)
{
    json_error_t je;
    json_t *o = json_loads(json, 0, &je);
    if (!o)
        return err_set(e, ERR_PROTOCOL, "status: %s", je.text);
    head(o, out);
    numbers(o, out);
    life(o, out);
    nodes(o, out);
    ranks(o, out);
    (void)buf_printf(out, "\n  logs         %s\n  checkpoints  %s\n", text_of(o, "logs"),
                     text_of(o, "checkpoints"));
    json_decref(o);
    return 0;
}
