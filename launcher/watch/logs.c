#include "launcher/watch/logs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/spec/spec.h"
#include "launcher/plan/plan.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/joblock.h"
#include "launcher/record/journal.h"
#include "launcher/record/ranklog.h"
#include "launcher/watch/ctl.h"
#include "launcher/watch/progress.h"

enum { CHUNK_BYTES = 64 << 10, OUT_BYTES_MAX = 32 << 20, FOLLOW_TAIL = 10 };

struct viewer {
    const struct logs_params *params;
    struct plan *plan;
    struct progress *screen; /* prefixes and colours */
    struct buf out;
    uv_loop_t loop;
    bool finished, shown;
    struct err why;
};

static struct plan *plan_of(const struct jobdir *d, struct err *e)
{
    AUTO_BUF struct buf text = BUF(1 << 20), report = BUF(1 << 20);
    if (io_read_file(d->spec, &text, e) < 0)
        return NULL;
    AUTO(spec)
    struct spec *s = spec_parse(d->spec, buf_str(&text), text.len, NULL, 0, &report, e);
    if (!s)
        return NULL;
    AUTO_FREE uint32_t *slots = xcalloc(s->cluster.n_nodes, sizeof(*slots));
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    plan_slots_local(s, cores > 0 ? (uint32_t)cores : 1, slots);
    return plan_new(s, slots, NULL, e);
}

static bool wanted(const struct viewer *v, uint32_t rank)
{
    const struct logs_params *p = v->params;
    return rank < v->plan->world && (p->rank < 0 || p->rank == rank) &&
           (p->node < 0 || p->node == v->plan->ranks[rank].node);
}

static int flush(struct viewer *v, struct err *e)
{
    int rc = io_write_full(STDOUT_FILENO, v->out.data, v->out.len, e);
    buf_clear(&v->out);
    return rc;
}

static int show_lines(struct viewer *v, uint32_t generation, uint32_t rank, const char *p,
                      size_t n, struct err *e)
{
    v->shown = true;
    progress_on_log(v->screen, rank, generation, p, n, &v->out);
    return flush(v, e);
}

/* A whole file, by stretches of whole lines; a longer line than a stretch comes in pieces. */
static int show_file(struct viewer *v, uint32_t generation, uint32_t rank, struct err *e)
{
    AUTO_FREE char *path = ranklog_path(v->params->dir->logs, generation, rank);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    AUTO_FREE char *chunk = xmalloc(CHUNK_BYTES);
    size_t have = 0;
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys_kind(e, ERR_STORAGE, "%s", path);
    for (;;) {
        ssize_t n = read(fd, chunk + have, CHUNK_BYTES - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys_kind(e, ERR_STORAGE, "%s", path);
        have += (size_t)n;
        const char *nl = have ? memrchr(chunk, '\n', have) : NULL;
        size_t whole = nl ? (size_t)(nl - chunk) + 1 : 0;
        if (n == 0 || (whole == 0 && have == CHUNK_BYTES))
            whole = have;
        if (whole && show_lines(v, generation, rank, chunk, whole, e) < 0)
            return -1;
        have -= whole;
        memmove(chunk, chunk + whole, have);
        if (n == 0)
            return 0;
    }
}

static int show_tail(struct viewer *v, uint32_t generation, uint32_t rank, struct err *e)
{
    AUTO_BUF struct buf b = BUF(RANKLOG_TAIL_BYTES);
    if (ranklog_tail(v->params->dir->logs, generation, rank, (unsigned)v->params->tail, &b, e) <
        0)
        return -1;
    return b.len ? show_lines(v, generation, rank, b.data, b.len, e) : 0;
}

static int show_files(struct viewer *v, struct err *e)
{
    struct journal_state s;
    if (journal_read(v->params->dir->journal, &s, e) < 0)
        return -1;
    uint32_t generation = s.generation;
    journal_state_done(&s);
    for (uint32_t r = 0; r < v->plan->world; r++)
        if (wanted(v, r) &&
            (v->params->tail < 0 ? show_file : show_tail)(v, generation, r, e) < 0)
            return -1;
    if (!v->shown) /* on stderr: what a script reads stays what the workers wrote */
        (void)fprintf(stderr, "nothing was printed in generation %u\n", generation);
    return 0;
}

static void on_event(void *ctx, uint32_t generation, const Dsl__ClientEvent *ev)
{
    struct viewer *v = ctx;
    if (ev->kind != DSL__CLIENT_EVENT__KIND__LOG || !wanted(v, (uint32_t)ev->rank))
        return;
    if (show_lines(v, generation, (uint32_t)ev->rank, (const char *)ev->data.data, ev->data.len,
                   NULL) < 0) {
        v->finished = true; /* nobody reads any more */
        uv_stop(&v->loop);
    }
}

static void on_end(void *ctx, const struct err *why)
{
    struct viewer *v = ctx;
    v->why = *why;
    v->finished = true;
    uv_stop(&v->loop);
}

/* The controller sends the last lines and those that come: none is missed in between.  1: it
 * is not there any more. */
static int follow(struct viewer *v, const char *control, struct err *e)
{
    const struct ctl_handlers h = {.on_event = on_event, .on_end = on_end, .ctx = v};
    const struct logs_params *p = v->params;
    (void)uv_loop_init(&v->loop);
    struct ctl *c = ctl_open(&v->loop, control, &h, e);
    if (c) {
        ctl_ask_logs(c, (int32_t)p->rank, true, p->tail < 0 ? FOLLOW_TAIL : (uint32_t)p->tail);
        while (!v->finished)
            (void)uv_run(&v->loop, UV_RUN_DEFAULT);
    }
    bool reached = c;
    ctl_free(c);
    (void)uv_run(&v->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&v->loop);
    if (reached && v->why.kind != ERR_NONE)
        return err_set(e, v->why.kind, "%s", v->why.text);
    return reached ? 0 : 1;
}

static int check(const struct viewer *v, struct err *e)
{
    const struct logs_params *p = v->params;
    if (p->rank >= (int64_t)v->plan->world)
        return err_set(e, ERR_USAGE, "--rank: the job has ranks 0 to %u", v->plan->world - 1);
    if (p->node >= (int64_t)v->plan->n_used)
        return err_set(e, ERR_USAGE, "--node: the job has nodes 0 to %u", v->plan->n_used - 1);
    return 0;
}

static int show(struct viewer *v, struct err *e)
{
    struct joblock_holder h = {0};
    if (check(v, e) < 0)
        return -1;
    if (!v->params->follow || joblock_look(v->params->dir->lock, &h, e) != JOBLOCK_HELD ||
        !*h.control)
        return show_files(v, e);
    int rc = follow(v, h.control, e);
    return rc == 1 ? show_files(v, e) : rc;
}

int logs_show(const struct logs_params *p, struct err *e)
{
    const char *no_color = getenv("NO_COLOR");
    struct viewer v = {.params = p, .out = BUF(OUT_BYTES_MAX)};
    (void)signal(SIGPIPE, SIG_IGN);
    v.plan = plan_of(p->dir, e);
    if (!v.plan)
        return -1;
    v.screen = progress_new(
        &(struct progress_params){.color = isatty(STDOUT_FILENO) && !(no_color && *no_color)});
    int rc = show(&v, e);
    if (rc < 0 && errno == EPIPE)
        rc = 0;
    progress_free(v.screen);
    plan_free(v.plan);
    buf_done(&v.out);
    return rc;
}
