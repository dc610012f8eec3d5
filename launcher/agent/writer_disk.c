/* The disk half of the writer: what happens to files, on whatever thread calls. */
#include "launcher/agent/writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/own.h"
#include "common/link/stepname.h"

enum { CHUNK = 1 << 20, FLUSH_EVERY = 64 << 20 };

static char *name_of(const struct writer_job *j, const char *suffix)
{
    return xasprintf("%s/" STEP_NAME "%s", j->dir, (unsigned long long)j->step, j->generation,
                     suffix);
}

static int same_digest(XXH3_state_t *s, const struct writer_job *j, struct err *e)
{
    XXH128_canonical_t got;
    XXH128_canonicalFromHash(&got, XXH3_128bits_digest(s));
    if (memcmp(got.digest, j->digest, sizeof j->digest) != 0)
        return err_set(e, ERR_STORAGE,
                       "step %llu, rank %u: the snapshot is not what the rank digested",
                       (unsigned long long)j->step, j->rank);
    return 0;
}

/* The write-back of each stretch is started at once, so that the fsync at the end waits for the
 * last one only. */
static int copy(const struct writer_job *j, int out, const _Atomic bool *stop, struct err *e)
{
    AUTO_FREE char *chunk = xmalloc(CHUNK);
    XXH3_state_t *s = XXH3_createState();
    uint64_t at = 0, flushed = 0;
    int r = s ? 0 : err_set(e, ERR_STORAGE, "no memory for a digest");
    if (s)
        (void)XXH3_128bits_reset(s);
    while (r == 0 && at < j->bytes) {
        size_t n = j->bytes - at < CHUNK ? (size_t)(j->bytes - at) : CHUNK;
        if (atomic_load(stop)) {
            r = err_set(e, ERR_STOPPED, "given up");
            break;
        }
        if (io_pread_full(j->fd, chunk, n, (off_t)(j->offset + at), e) < 0 ||
            io_write_full(out, chunk, n, e) < 0) {
            r = -1;
            break;
        }
        (void)XXH3_128bits_update(s, chunk, n);
        at += n;
        if (at - flushed >= FLUSH_EVERY) {
            (void)sync_file_range(out, (off_t)flushed, (off_t)(at - flushed),
                                  SYNC_FILE_RANGE_WRITE);
            flushed = at;
        }
    }
    if (r == 0)
        r = same_digest(s, j, e);
    (void)XXH3_freeState(s);
    return r;
}

static int write_shard(const struct writer_job *j, const char *path, const _Atomic bool *stop,
                       struct err *e)
{
    AUTO_CLOSE int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out < 0)
        return err_sys(e, "create");
    /* Says at once that the disk is full, where the file system can. */
    if (j->bytes && fallocate(out, 0, 0, (off_t)j->bytes) < 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        return err_sys(e, "%llu bytes", (unsigned long long)j->bytes);
    if (copy(j, out, stop, e) < 0)
        return -1;
    if (fsync(out) < 0)
        return err_sys(e, "fsync");
    return 0;
}

int writer_do_shard(const struct writer_job *j, const _Atomic bool *stop, char **ret_path,
                    struct err *e)
{
    AUTO_FREE char *tmp = name_of(j, ".tmp");
    char *path = *ret_path = xasprintf("%s/rank-%05u.safetensors", tmp, j->rank);
    if (io_mkdirs(tmp, 0755, e) < 0)
        return -1;
    if (write_shard(j, path, stop, e) < 0) {
        (void)unlink(path);
        if (e->kind != ERR_STOPPED)
            e->kind = ERR_STORAGE;
        return err_wrap(e, "%s", path);
    }
    return io_fsync_dir(tmp, e);
}

struct entry {
    uint64_t step;
    uint32_t generation;
    char name[64];
};

static bool parse(const char *name, struct entry *ret, const char **ret_suffix)
{
    if (strlen(name) >= sizeof ret->name ||
        step_name_parse(name, &ret->step, &ret->generation, ret_suffix) < 0)
        return false;
    memcpy(ret->name, name, strlen(name) + 1);
    return true;
}

static int newest_first(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->generation != y->generation)
        return x->generation < y->generation ? 1 : -1;
    return x->step < y->step ? 1 : x->step > y->step ? -1 : 0;
}

/* Away under another name first: half a checkpoint under its own name must never be seen. */
static void remove_entry(const char *dir, const char *name, const char *suffix)
{
    AUTO_FREE char *from = xasprintf("%s/%s", dir, name);
    AUTO_FREE char *to = xasprintf("%s/%s.del", dir, name);
    if (strcmp(suffix, ".del") == 0 || strcmp(suffix, ".tmp.del") == 0)
        (void)io_remove_tree(from, NULL);
    else if (rename(from, to) == 0)
        (void)io_remove_tree(to, NULL);
}

/* Best effort: what cannot be removed now is tried again after the next commit.  `uncommitted`
 * only: the .tmp folders up to and with this generation, and no committed one. */
static void prune(const struct writer_job *j, bool uncommitted)
{
    DIR *d = opendir(j->dir);
    AUTO_FREE struct entry *committed = NULL;
    size_t n = 0, room = 0;
    if (!d)
        return;
    for (const struct dirent *f; (f = readdir(d));) {
        struct entry x;
        const char *suffix;
        if (!parse(f->d_name, &x, &suffix))
            continue;
        bool past = x.generation < j->generation ||
                    (x.generation == j->generation && (uncommitted || x.step < j->step));
        if (*suffix == 0) {
            if (n == room)
                committed =
                    xrealloc_array(committed, room = room ? 2 * room : 16, sizeof *committed);
            committed[n++] = x;
        } else if ((strcmp(suffix, ".tmp") == 0 && past) || strcmp(suffix, ".del") == 0 ||
                   strcmp(suffix, ".tmp.del") == 0) {
            remove_entry(j->dir, x.name, suffix);
        }
    }
    (void)closedir(d);
    if (n)
        qsort(committed, n, sizeof *committed, newest_first);
    for (size_t i = j->keep ? j->keep : 1; i < n && !uncommitted; i++)
        remove_entry(j->dir, committed[i].name, "");
}

static int all_there(const struct writer_job *j, const char *tmp, struct err *e)
{
    for (uint32_t r = 0; r < j->world; r++) {
        AUTO_FREE char *path = xasprintf("%s/rank-%05u.safetensors", tmp, r);
        struct stat st;
        if (stat(path, &st) < 0)
            return err_sys_kind(e, ERR_STORAGE, "%s", path);
    }
    return 0;
}

static int commit(const struct writer_job *j, const char *tmp, const char *path, struct err *e)
{
    if (j->bytes > WRITER_MANIFEST_MAX)
        return err_set(e, ERR_STORAGE, "a manifest of %llu bytes",
                       (unsigned long long)j->bytes);
    AUTO_FREE char *text = malloc(j->bytes + 1);
    AUTO_FREE char *manifest = xasprintf("%s/manifest.json", tmp);
    if (!text)
        return err_set(e, ERR_STORAGE, "no memory for the manifest");
    if (all_there(j, tmp, e) < 0 ||
        io_pread_full(j->fd, text, j->bytes, (off_t)j->offset, e) < 0 ||
        io_replace_file(manifest, text, j->bytes, e) < 0)
        return -1;
    if (rename(tmp, path) < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    return io_fsync_dir(j->dir, e);
}

int writer_do_commit(const struct writer_job *j, char **ret_path, struct err *e)
{
    AUTO_FREE char *tmp = name_of(j, ".tmp");
    char *path = *ret_path = name_of(j, "");
    struct stat st;
    if (stat(path, &st) == 0) /* said twice: the first one stands */
        (void)io_remove_tree(tmp, NULL);
    else if (commit(j, tmp, path, e) < 0)
        return err_wrap(e, "step %llu is not committed", (unsigned long long)j->step);
    prune(j, false);
    return 0;
}

void writer_do_tidy(const struct writer_job *j)
{
    prune(j, true);
}
