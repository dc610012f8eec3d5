#include "launcher/watch/ps.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/own.h"
#include "launcher/boot/paths.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/journal.h"
#include "launcher/watch/progress.h"
#include "launcher/watch/status.h"

enum { DOCUMENT_MAX = 16 << 20 };

struct row {
    char name[64], state[32], host[64];
    bool live, has_loss;
    uint64_t generation, step, steps;
    double loss;
    int64_t started_ms;
};

struct rows {
    struct row *row;
    size_t n;
};

static const char *text_of(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static uint64_t count_of(json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static void fill(struct row *r, const struct journal_state *s, json_t *o)
{
    const char *outcome = text_of(o, "outcome");
    r->live = json_is_true(json_object_get(o, "live"));
    (void)snprintf(r->state, sizeof(r->state), "%s", *outcome ? outcome : text_of(o, "state"));
    (void)snprintf(r->host, sizeof(r->host), "%.63s", s->host);
    r->generation = count_of(o, "generation");
    r->step = count_of(o, "step");
    r->steps = count_of(o, "steps");
    r->has_loss = json_is_number(json_object_get(o, "loss"));
    r->loss = json_number_value(json_object_get(o, "loss"));
    r->started_ms = s->started_ms;
}

/* A job whose files cannot be read has its row as well: the others are still to be seen. */
static void look_at(struct rows *all, const char *job)
{
    AUTO_BUF struct buf json = BUF(DOCUMENT_MAX);
    AUTO(jobdir) struct jobdir *d = jobdir_new(job, NULL);
    struct row r = {.state = "unreadable"};
    struct journal_state s;
    if (!d || access(d->journal, F_OK) < 0)
        return;
    (void)snprintf(r.name, sizeof(r.name), "%s", job);
    if (journal_read(d->journal, &s, NULL) == 0) {
        json_t *o = status_of(d, &json, NULL) == 0 ? json_loads(buf_str(&json), 0, NULL) : NULL;
        if (o)
            fill(&r, &s, o);
        json_decref(o);
        journal_state_done(&s);
    }
    all->row = xrealloc_array(all->row, all->n + 1, sizeof(*all->row));
    all->row[all->n++] = r;
}

static int live_then_newest(const void *pa, const void *pb)
{
    const struct row *a = pa, *b = pb;
    if (a->live != b->live)
        return a->live ? -1 : 1;
    if (a->started_ms != b->started_ms)
        return a->started_ms > b->started_ms ? -1 : 1;
    return strcmp(a->name, b->name);
}

static void show(const struct row *r, int64_t now_ms, struct buf *out)
{
    AUTO_BUF struct buf step = BUF(64), loss = BUF(64), age = BUF(64);
    (void)buf_printf(&step, "%llu/%llu", (unsigned long long)r->step,
                     (unsigned long long)r->steps);
    if (r->has_loss)
        (void)buf_printf(&loss, "%.4g", r->loss);
    if (r->started_ms)
        progress_duration((double)(now_ms - r->started_ms) / 1000, &age);
    (void)buf_printf(out, "%-20s  %-10s  %3llu  %15s  %9s  %8s  %s\n", r->name, r->state,
                     (unsigned long long)r->generation, buf_str(&step),
                     loss.len ? buf_str(&loss) : "-", age.len ? buf_str(&age) : "-",
                     *r->host ? r->host : "-");
}

int ps_text(struct buf *out, struct err *e)
{
    struct rows all = {0};
    AUTO_FREE char *root = paths_state_root(e);
    if (!root)
        return -1;
    DIR *d = opendir(root);
    if (!d && errno != ENOENT)
        return err_sys_kind(e, ERR_STORAGE, "%s", root);
    for (const struct dirent *f; d && (f = readdir(d));)
        if (!strchr(f->d_name, '.'))
            look_at(&all, f->d_name);
    if (d)
        (void)closedir(d);
    if (all.n)
        qsort(all.row, all.n, sizeof(*all.row), live_then_newest);
    (void)buf_printf(out, "%-20s  %-10s  %3s  %15s  %9s  %8s  %s\n", "JOB", "STATE", "GEN",
                     "STEP", "LOSS", "AGE", "HOST");
    for (size_t i = 0; i < all.n; i++)
        show(&all.row[i], clock_wall_ms(), out);
    free(all.row);
    return 0;
}
