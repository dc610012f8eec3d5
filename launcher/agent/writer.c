#include "launcher/agent/writer.h"

#include <stdatomic.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/own.h"

/* The stop flag is shared by the jobs of one cancellation. */
struct stop {
    _Atomic bool set;
    unsigned users; /* loop's thread only */
};

struct task {
    uv_work_t work;
    struct task *next; /* in the commit queue */
    struct writer *w;
    struct writer_job j; /* its dir is ours */
    char *dir;
    struct stop *stop;
    enum writer_task kind;
    int result;
    char *path;
    struct err why;
    int64_t start_ns, took_ns;
};

struct writer {
    struct uv_loop_s *loop;
    writer_fn *on_result;
    void *ctx;
    struct stop *stop;
    struct task *commits, **commits_end; /* and tidyings: one at a time, the first runs */
    unsigned busy;
    bool freed, calling; /* calling: on_result is on the stack */
};

static struct stop *stop_new(void)
{
    struct stop *s = xcalloc(1, sizeof *s);
    s->users = 1;
    return s;
}

static void stop_drop(struct stop *s)
{
    if (--s->users == 0)
        free(s);
}

struct writer *writer_new(struct uv_loop_s *loop, writer_fn *on_result, void *ctx)
{
    struct writer *w = xcalloc(1, sizeof *w);
    w->loop = loop;
    w->on_result = on_result;
    w->ctx = ctx;
    w->stop = stop_new();
    w->commits_end = &w->commits;
    return w;
}

static void work(uv_work_t *req)
{
    struct task *t = (struct task *)req;
    if (t->kind == WRITER_TIDY)
        writer_do_tidy(&t->j);
    else if (t->j.fd < 0)
        t->result = err_set(&t->why, ERR_STORAGE, "too many open files");
    else if (t->kind == WRITER_COMMIT)
        t->result = writer_do_commit(&t->j, &t->path, &t->why);
    else
        t->result = writer_do_shard(&t->j, &t->stop->set, &t->path, &t->why);
    t->took_ns = clock_now_ns() - t->start_ns;
}

static void done(uv_work_t *req, int status);

static void start(struct task *t)
{
    (void)uv_queue_work(t->w->loop, &t->work, work, done);
}

static void done(uv_work_t *req, int status)
{
    struct task *t = (struct task *)req;
    struct writer *w = t->w;
    (void)status;
    if (t->kind != WRITER_SHARD) {
        w->commits = t->next;
        if (w->commits)
            start(w->commits);
        else
            w->commits_end = &w->commits;
    }
    w->busy--;
    bool dropped = w->freed || (t->kind == WRITER_SHARD && t->stop->set);
    w->calling = true;
    if (!dropped)
        w->on_result(w->ctx, &(struct writer_result){.task = t->kind,
                                                     .rank = t->j.rank,
                                                     .generation = t->j.generation,
                                                     .step = t->j.step,
                                                     .path = t->path,
                                                     .why = t->result < 0 ? &t->why : NULL,
                                                     .took_ns = t->took_ns});
    w->calling = false;
    if (t->j.fd >= 0)
        (void)close(t->j.fd);
    stop_drop(t->stop);
    free(t->dir);
    free(t->path);
    free(t);
    if (w->freed && !w->busy)
        free(w);
}

static void add(struct writer *w, const struct writer_job *j, enum writer_task kind)
{
    struct task *t = xcalloc(1, sizeof *t);
    t->w = w;
    t->j = *j;
    t->j.dir = t->dir = xstrdup(j->dir);
    t->j.fd = kind == WRITER_TIDY ? -1 : fcntl(j->fd, F_DUPFD_CLOEXEC, 0);
    t->stop = w->stop;
    t->stop->users++;
    t->kind = kind;
    t->start_ns = clock_now_ns();
    w->busy++;
    if (kind == WRITER_SHARD) {
        start(t);
        return;
    }
    bool first = !w->commits;
    *w->commits_end = t;
    w->commits_end = &t->next;
    if (first)
        start(t);
}

void writer_shard(struct writer *w, const struct writer_job *j)
{
    add(w, j, WRITER_SHARD);
}

void writer_commit(struct writer *w, const struct writer_job *j)
{
    add(w, j, WRITER_COMMIT);
}

void writer_tidy(struct writer *w, const struct writer_job *j)
{
    add(w, j, WRITER_TIDY);
}

void writer_cancel(struct writer *w)
{
    atomic_store(&w->stop->set, true);
    stop_drop(w->stop);
    w->stop = stop_new();
}

bool writer_idle(const struct writer *w)
{
    return w->busy == 0;
}

void writer_free(struct writer *w)
{
    if (!w)
        return;
    atomic_store(&w->stop->set, true);
    stop_drop(w->stop);
    w->freed = true;
    if (!w->busy && !w->calling)
        free(w);
}
