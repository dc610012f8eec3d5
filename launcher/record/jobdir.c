#include "launcher/record/jobdir.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/link/stepname.h"
#include "launcher/boot/paths.h"
#include "launcher/record/joblock.h"

enum { ASIDE_MAX = 10000 };

struct jobdir *jobdir_new(const char *job, struct err *e)
{
    AUTO_FREE char *dir = paths_state_dir(job, e);
    if (!dir)
        return NULL;
    struct jobdir *d = xcalloc(1, sizeof(*d));
    d->name = xstrdup(job);
    d->lock = xasprintf("%s/lock", dir);
    d->spec = xasprintf("%s/spec.yaml", dir);
    d->journal = xasprintf("%s/journal.jsonl", dir);
    d->metrics = xasprintf("%s/metrics.jsonl", dir);
    d->logs = xasprintf("%s/logs", dir);
    d->failure = xasprintf("%s/failure.json", dir);
    d->log = xasprintf("%s/controller.log", dir);
    d->dir = TAKE(dir);
    return d;
}

void jobdir_free(struct jobdir *d)
{
    if (!d)
        return;
    free(d->name);
    free(d->dir);
    free(d->lock);
    free(d->spec);
    free(d->journal);
    free(d->metrics);
    free(d->logs);
    free(d->failure);
    free(d->log);
    free(d);
}

int jobdir_make(const struct jobdir *d, struct err *e)
{
    return io_mkdirs(d->dir, 0700, e);
}

/* Makes the first `<dir>.old-N` that is free. */
static char *make_aside(const char *dir, struct err *e)
{
    for (int n = 1; n < ASIDE_MAX; n++) {
        AUTO_FREE char *to = xasprintf("%s.old-%d", dir, n);
        if (mkdir(to, 0700) == 0)
            return TAKE(to);
        if (errno != EEXIST) {
            (void)err_sys_kind(e, ERR_STORAGE, "%s", to);
            return NULL;
        }
    }
    (void)err_set(e, ERR_STORAGE, "%s.old-*: too many", dir);
    return NULL;
}

static bool not_the_lock(const char *name)
{
    return strcmp(name, "lock") != 0;
}

static bool a_checkpoint(const char *name)
{
    return strncmp(name, "step-", 5) == 0;
}

static int move_aside(const char *dir, bool (*wanted)(const char *name), struct buf *ret_to,
                      struct err *e)
{
    AUTO_FREE char *to = NULL;
    DIR *d = opendir(dir);
    if (!d)
        return errno == ENOENT ? 0 : err_sys_kind(e, ERR_STORAGE, "%s", dir);
    int rc = 0;
    for (const struct dirent *f; rc == 0 && (f = readdir(d));) {
        if (strcmp(f->d_name, ".") == 0 || strcmp(f->d_name, "..") == 0 || !wanted(f->d_name))
            continue;
        if (!to && !(to = make_aside(dir, e))) {
            rc = -1;
            break;
        }
        AUTO_FREE char *a = xasprintf("%s/%s", dir, f->d_name);
        AUTO_FREE char *b = xasprintf("%s/%s", to, f->d_name);
        if (rename(a, b) < 0)
            rc = err_sys_kind(e, ERR_STORAGE, "%s to %s", a, b);
    }
    (void)closedir(d);
    if (to)
        (void)buf_printf(ret_to, "  %s\n", to);
    return rc;
}

int jobdir_put_aside(const struct jobdir *d, const char *checkpoint_dir, struct buf *ret_to,
                     struct err *e)
{
    if (move_aside(checkpoint_dir, a_checkpoint, ret_to, e) < 0)
        return -1;
    return move_aside(d->dir, not_the_lock, ret_to, e);
}

uint32_t jobdir_newest_generation(const char *checkpoint_dir)
{
    uint32_t newest = 0;
    DIR *d = opendir(checkpoint_dir);
    if (!d)
        return 0;
    for (const struct dirent *f; (f = readdir(d));) {
        const char *suffix;
        uint64_t step;
        uint32_t g;
        if (step_name_parse(f->d_name, &step, &g, &suffix) == 0 && g < UINT32_MAX && g > newest)
            newest = g;
    }
    (void)closedir(d);
    return newest;
}

struct found {
    char *newest;
    struct timespec at;
    char *live;
    unsigned n_live;
    struct buf names; /* of the live ones */
};

static void look_at(struct found *f, const char *job)
{
    struct stat st;
    struct joblock_holder h;
    AUTO(jobdir) struct jobdir *d = jobdir_new(job, NULL);
    if (!d || stat(d->journal, &st) < 0)
        return;
    if (joblock_look(d->lock, &h, NULL) == JOBLOCK_HELD) {
        (void)buf_printf(&f->names, "%s%s", f->n_live++ ? ", " : "", job);
        free(f->live);
        f->live = xstrdup(job);
    }
    const struct timespec *t = &st.st_mtim;
    if (f->newest && (t->tv_sec < f->at.tv_sec ||
                      (t->tv_sec == f->at.tv_sec && t->tv_nsec <= f->at.tv_nsec)))
        return;
    free(f->newest);
    f->newest = xstrdup(job);
    f->at = *t;
}

static int look_at_all(struct found *f, struct err *e)
{
    AUTO_FREE char *root = paths_state_root(e);
    if (!root)
        return -1;
    DIR *d = opendir(root);
    if (!d)
        return errno == ENOENT ? 0 : err_sys_kind(e, ERR_STORAGE, "%s", root);
    for (const struct dirent *f_; (f_ = readdir(d));)
        if (!strchr(f_->d_name, '.'))
            look_at(f, f_->d_name);
    (void)closedir(d);
    return 0;
}

struct jobdir *jobdir_find(const char *job_or_null, bool *ret_none, struct err *e)
{
    struct found f = {.names = BUF(1 << 16)};
    struct jobdir *d = NULL;
    bool none = false;
    if (job_or_null) {
        d = jobdir_new(job_or_null, e);
        if (d && access(d->journal, F_OK) < 0) {
            none = true;
            (void)err_set(e, ERR_USAGE, "there is no job '%s' (looked in %s)", d->name, d->dir);
            jobdir_free(TAKE(d));
        }
    } else if (look_at_all(&f, e) == 0) {
        none = !f.newest;
        if (f.n_live > 1)
            (void)err_set(e, ERR_USAGE, "several jobs are live: %s; name one",
                          buf_str(&f.names));
        else if (!f.newest)
            (void)err_set(e, ERR_USAGE, "there is no job yet");
        else
            d = jobdir_new(f.live ? f.live : f.newest, e);
    }
    if (ret_none)
        *ret_none = none;
    buf_done(&f.names);
    free(f.live);
    free(f.newest);
    return d;
}
