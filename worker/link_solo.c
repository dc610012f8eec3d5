#include "worker/link_solo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/link/stepname.h"
#include "common/spec/spec.h"

enum { REPORT_MAX = 64 << 10, VALUE_MAX = 1 << 20 };

struct pair {
    struct pair *next;
    char *key;
    struct buf value;
};

struct solo {
    char *dir;
    uint32_t keep, generation;
    struct pair *pairs;
};

static void own_dir(DIR **d)
{
    if (*d)
        (void)closedir(*d);
}
#define AUTO_DIR __attribute__((cleanup(own_dir)))

/* Of a committed one. */
static int parse_name(const char *name, uint64_t *ret_step, uint32_t *ret_generation)
{
    const char *suffix;
    return step_name_parse(name, ret_step, ret_generation, &suffix) < 0 || *suffix ? -1 : 0;
}

static int newest_generation(struct solo *s, struct err *e)
{
    AUTO_DIR DIR *d = opendir(s->dir);
    if (!d)
        return errno == ENOENT ? 0 : err_sys_kind(e, ERR_STORAGE, "%s", s->dir);
    for (struct dirent *x; (x = readdir(d));) {
        uint64_t step;
        uint32_t generation;
        if (parse_name(x->d_name, &step, &generation) == 0 && generation > s->generation)
            s->generation = generation;
    }
    return 0;
}

struct solo *solo_new(const char *spec_yaml, struct err *e)
{
    AUTO_BUF struct buf report = BUF(REPORT_MAX);
    AUTO(spec)
    struct spec *spec = spec_parse("spec", spec_yaml, strlen(spec_yaml), NULL, 0, &report, e);
    if (!spec) {
        (void)err_set(e, ERR_SPEC, "%s", buf_str(&report));
        return NULL;
    }
    AUTO(solo) struct solo *s = xcalloc(1, sizeof *s);
    s->dir = spec_host_path(spec, spec->checkpoint.dir);
    s->keep = spec->checkpoint.keep;
    if (newest_generation(s, e) < 0)
        return NULL;
    s->generation++;
    return TAKE(s);
}

void solo_free(struct solo *s)
{
    if (!s)
        return;
    while (s->pairs) {
        struct pair *p = s->pairs;
        s->pairs = p->next;
        free(p->key);
        buf_done(&p->value);
        free(p);
    }
    free(s->dir);
    free(s);
}

uint32_t solo_generation(const struct solo *s)
{
    return s->generation;
}

void solo_put(struct solo *s, const char *key, const void *val, size_t n)
{
    struct pair *p = xcalloc(1, sizeof *p);
    *p = (struct pair){.next = s->pairs, .key = xstrdup(key), .value = BUF(VALUE_MAX)};
    (void)buf_add(&p->value, val, n);
    s->pairs = p;
}

int solo_get(const struct solo *s, const char *key, struct buf *ret, struct err *e)
{
    for (const struct pair *p = s->pairs; p; p = p->next)
        if (strcmp(p->key, key) == 0)
            return buf_add(ret, buf_str(&p->value), p->value.len);
    return err_set(e, ERR_PROTOCOL, "nobody put %s", key);
}

static int write_from(const char *path, int fd, uint64_t offset, uint64_t bytes, struct err *e)
{
    off_t at = (off_t)offset, end = (off_t)(offset + bytes);
    AUTO_CLOSE int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    while (at < end) {
        ssize_t k = sendfile(out, fd, &at, (size_t)(end - at));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_sys_kind(e, ERR_STORAGE, "%s", path);
        if (k == 0)
            return err_set(e, ERR_STORAGE, "%s: the snapshot ends early", path);
    }
    return fsync(out) < 0 ? err_sys_kind(e, ERR_STORAGE, "%s", path) : 0;
}

static char *step_path(const struct solo *s, uint64_t step, const char *tail)
{
    return xasprintf("%s/" STEP_NAME "%s", s->dir, (unsigned long long)step, s->generation,
                     tail);
}

int solo_shard(struct solo *s, uint64_t step, int fd, uint64_t bytes, struct err *e)
{
    AUTO_FREE char *tmp = step_path(s, step, ".tmp");
    AUTO_FREE char *file = step_path(s, step, ".tmp/rank-00000.safetensors");
    if (io_remove_tree(tmp, e) < 0 || io_mkdirs(tmp, 0755, e) < 0)
        return -1;
    return write_from(file, fd, 0, bytes, e);
}

/* True if (step, generation) a is newer than b. */
static bool newer(const uint64_t a[2], const uint64_t b[2])
{
    return a[0] != b[0] ? a[0] > b[0] : a[1] > b[1];
}

/* Removes the oldest until `keep` are left; one pass over the folder for each. */
static int prune(const struct solo *s, struct err *e)
{
    for (;;) {
        uint64_t oldest[2] = {UINT64_MAX, UINT64_MAX};
        size_t n = 0;
        AUTO_DIR DIR *d = opendir(s->dir);
        if (!d)
            return err_sys_kind(e, ERR_STORAGE, "%s", s->dir);
        for (struct dirent *x; (x = readdir(d));) {
            uint64_t at[2];
            uint32_t generation;
            if (parse_name(x->d_name, &at[0], &generation) < 0)
                continue;
            at[1] = generation;
            n++;
            if (newer(oldest, at))
                memcpy(oldest, at, sizeof oldest);
        }
        if (n <= s->keep || s->keep == 0)
            return 0;
        AUTO_FREE char *path = xasprintf("%s/" STEP_NAME, s->dir, (unsigned long long)oldest[0],
                                         (unsigned)oldest[1]);
        if (io_remove_tree(path, e) < 0)
            return -1;
    }
}

int solo_commit(struct solo *s, uint64_t step, int fd, uint64_t offset, uint64_t bytes,
                struct err *e)
{
    AUTO_FREE char *tmp = step_path(s, step, ".tmp"), *final = step_path(s, step, "");
    AUTO_FREE char *manifest = step_path(s, step, ".tmp/manifest.json");
    if (write_from(manifest, fd, offset, bytes, e) < 0 || io_fsync_dir(tmp, e) < 0)
        return -1;
    if (rename(tmp, final) < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", final);
    return io_fsync_dir(s->dir, e) < 0 ? -1 : prune(s, e);
}
