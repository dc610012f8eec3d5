/* Files in windows.  Files are opened when read and only the last one is kept open, so
 * neither the number of files nor a file that shrinks under us can end the process. */
#include "worker/data/data.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "common/base/err.h"
#include "common/base/io.h"
#include "common/spec/spec.h"
#include "worker/data/shard.h"

enum { TEXT_PAD_ID = 256, SHARD_PAD_ID = 0, DIGEST_EDGE = 64 << 10 };

struct file {
    char *path;
    dev_t dev;
    ino_t ino;
    uint64_t bytes;
    uint64_t start, tokens; /* bytes before the first token */
    uint32_t width;         /* bytes of a token */
    uint64_t window0;       /* windows of the files before it */
};

struct fileset {
    struct file *files;
    size_t n;
    uint64_t windows, bytes;
};

struct data {
    uint32_t seq_len, vocab;
    int32_t pad;
    uint64_t seed;
    struct fileset train, validation;
    uint64_t digest;
    const struct file *open_file;
    int fd;
    uint8_t *window; /* [seq_len + 1] tokens of any width */
    char *text;
};

static void fileset_done(struct fileset *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->files[i].path);
    free(s->files);
}

void data_free(struct data *d)
{
    if (!d)
        return;
    fileset_done(&d->train);
    fileset_done(&d->validation);
    if (d->fd >= 0)
        (void)close(d->fd);
    free(d->window);
    free(d->text);
    free(d);
}

static bool has_file(const struct fileset *s, const struct stat *st)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->files[i].dev == st->st_dev && s->files[i].ino == st->st_ino)
            return true;
    return false;
}

/* Where a file's tokens lie, and how many there are. */
static int measure(struct file *f, enum spec_data kind, struct err *e)
{
    uint8_t head[SHARD_HEADER_BYTES];
    struct shard shard;
    f->tokens = f->bytes;
    f->width = 1;
    if (kind == DATA_TEXT)
        return 0;
    if (f->bytes < sizeof head)
        return err_set(e, ERR_STORAGE, "data.files: %s: not a token shard: %llu bytes", f->path,
                       (unsigned long long)f->bytes);
    AUTO_CLOSE int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys_kind(e, ERR_STORAGE, "data.files: %s", f->path);
    if (io_pread_full(fd, head, sizeof head, 0, e) < 0 ||
        shard_parse(head, f->bytes, &shard, e) < 0)
        return err_wrap(e, "data.files: %s", f->path);
    f->start = sizeof head;
    f->tokens = shard.tokens;
    f->width = shard.width;
    return 0;
}

static int add_file(struct fileset *s, const struct fileset *except, enum spec_data kind,
                    const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return err_sys_kind(e, ERR_STORAGE, "data.files: %s", path);
    if (S_ISDIR(st.st_mode))
        return 0; /* `dir/ *` means its files */
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_STORAGE, "data.files: %s: not a regular file", path);
    if (has_file(s, &st) || (except && has_file(except, &st)))
        return 0;
    s->files = xrealloc_array(s->files, s->n + 1, sizeof *s->files);
    s->files[s->n++] = (struct file){.path = xstrdup(path),
                                     .dev = st.st_dev,
                                     .ino = st.st_ino,
                                     .bytes = (uint64_t)st.st_size};
    return measure(&s->files[s->n - 1], kind, e);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct file *)a)->path, ((const struct file *)b)->path);
}

/* The matches of all globs: sorted, each real file once, those of `except` left out. */
static int collect(const struct spec *s, char *const *globs, const char *key,
                   const struct fileset *except, struct fileset *ret, struct err *e)
{
    for (; *globs; globs++) {
        AUTO_FREE char *pattern = spec_host_path(s, *globs);
        glob_t g;
        int r = glob(pattern, 0, NULL, &g);
        if (r == GLOB_NOMATCH)
            return err_set(e, ERR_SPEC, "%s: nothing matches %s", key, pattern);
        if (r)
            return err_set(e, ERR_STORAGE, "%s: %s cannot be read", key, pattern);
        for (size_t i = 0; i < g.gl_pathc && r == 0; i++)
            r = add_file(ret, except, s->data.kind, g.gl_pathv[i], e);
        globfree(&g);
        if (r < 0)
            return -1;
    }
    if (ret->n)
        qsort(ret->files, ret->n, sizeof *ret->files, by_path);
    for (size_t i = 0; i < ret->n; i++) {
        struct file *f = &ret->files[i];
        f->window0 = ret->windows;
        ret->bytes += f->bytes;
        if (f->tokens > 1)
            ret->windows += (f->tokens - 1 + s->train.seq_len - 1) / s->train.seq_len;
    }
    return 0;
}

static int read_at(struct data *d, const struct file *f, uint64_t off, void *p, size_t n,
                   struct err *e)
{
    if (d->open_file != f) {
        if (d->fd >= 0)
            (void)close(d->fd);
        d->open_file = NULL;
        d->fd = open(f->path, O_RDONLY | O_CLOEXEC);
        if (d->fd < 0)
            return err_sys_kind(e, ERR_STORAGE, "%s", f->path);
        d->open_file = f;
    }
    if (io_pread_full(d->fd, p, n, (off_t)off, e) < 0)
        return err_wrap(e, "%s", f->path);
    return 0;
}

static int digest(struct data *d, struct err *e)
{
    AUTO_FREE char *edge = xmalloc(DIGEST_EDGE);
    uint64_t h = 0;
    for (size_t i = 0; i < d->train.n; i++) {
        const struct file *f = &d->train.files[i];
        size_t n = f->bytes < DIGEST_EDGE ? (size_t)f->bytes : DIGEST_EDGE;
        h = XXH3_64bits_withSeed(&f->bytes, sizeof f->bytes, h);
        for (int end = 0; end < 2 && n; end++) {
            if (read_at(d, f, end ? f->bytes - n : 0, edge, n, e) < 0)
                return -1;
            h = XXH3_64bits_withSeed(edge, n, h);
        }
    }
    d->digest = h;
    return 0;
}

struct data *data_open(const struct spec *s, struct err *e)
{
    AUTO(data) struct data *d = xcalloc(1, sizeof *d);
    d->fd = -1;
    d->seq_len = s->train.seq_len;
    d->vocab = s->model.vocab;
    d->pad = s->data.kind == DATA_TEXT ? TEXT_PAD_ID : SHARD_PAD_ID;
    d->seed = s->train.seed;
    d->window = xmalloc((d->seq_len + (size_t)1) * sizeof(uint32_t));
    if (s->data.validation.files &&
        collect(s, s->data.validation.files, "data.validation.files", NULL, &d->validation, e) <
            0)
        return NULL;
    if (collect(s, s->data.files, "data.files", &d->validation, &d->train, e) < 0)
        return NULL;
    if (!d->train.windows) {
        (void)err_set(e, ERR_SPEC,
                      "data.files: no text left to train on (files are empty, or all "
                      "are held out for validation)");
        return NULL;
    }
    if (digest(d, e) < 0)
        return NULL;
    d->text = xasprintf("%zu files, %.0f kB, %llu windows of %u; held out: %zu files, %.0f kB",
                        d->train.n, (double)d->train.bytes / 1e3,
                        (unsigned long long)d->train.windows, d->seq_len, d->validation.n,
                        (double)d->validation.bytes / 1e3);
    return TAKE(d);
}

/* The file that holds `window`: the last with window0 <= window that has any. */
static const struct file *find(const struct fileset *s, uint64_t window)
{
    size_t lo = 0, hi = s->n;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->files[mid].window0 <= window)
            lo = mid;
        else
            hi = mid;
    }
    return &s->files[lo];
}

static uint32_t count_in(const struct data *d, const struct fileset *s, uint64_t window)
{
    if (window >= s->windows)
        return 0;
    const struct file *f = find(s, window);
    uint64_t left = f->tokens - 1 - (window - f->window0) * d->seq_len;
    return left < d->seq_len ? (uint32_t)left : d->seq_len;
}

/* Every id has a row in the model's tables: bytes by spec_check, those of a shard not before
 * they are read. */
static int check_ids(const struct data *d, const struct file *f, uint64_t first, size_t n,
                     struct err *e)
{
    for (size_t i = 0; f->width > 1 && i < n; i++) {
        uint32_t id = shard_token(d->window, f->width, i);
        if (id >= d->vocab)
            return err_set(e, ERR_STORAGE, "%s: token %llu is %u, model.vocab is %u", f->path,
                           (unsigned long long)(first + i), id, d->vocab);
    }
    return 0;
}

static int read_window(struct data *d, const struct fileset *s, uint64_t window, int32_t *ids,
                       int32_t *targets, struct err *e)
{
    const uint32_t n = count_in(d, s, window);
    const struct file *f = n ? find(s, window) : NULL;
    if (f) {
        const uint64_t first = (window - f->window0) * d->seq_len;
        const size_t count = (size_t)n + 1;
        if (read_at(d, f, f->start + first * f->width, d->window, count * f->width, e) < 0 ||
            check_ids(d, f, first, count, e) < 0)
            return -1;
    }
    for (uint32_t i = 0; i < d->seq_len; i++) {
        ids[i] = f && i <= n ? (int32_t)shard_token(d->window, f->width, i) : d->pad;
        targets[i] = i < n ? (int32_t)shard_token(d->window, f->width, i + 1) : -1;
    }
    return 0;
}

static uint64_t window_of(const struct data *d, uint64_t sample)
{
    uint64_t n = d->train.windows;
    return data_shuffle(d->seed, sample / n, n, sample % n);
}

uint64_t data_windows(const struct data *d)
{
    return d->train.windows;
}

uint64_t data_validation_windows(const struct data *d)
{
    return d->validation.windows;
}

uint64_t data_digest(const struct data *d)
{
    return d->digest;
}

const char *data_describe(const struct data *d)
{
    return d->text;
}

int data_train(struct data *d, uint64_t sample, int32_t *ids, int32_t *targets, struct err *e)
{
    return read_window(d, &d->train, window_of(d, sample), ids, targets, e);
}

int data_validation(struct data *d, uint64_t window, int32_t *ids, int32_t *targets,
                    struct err *e)
{
    return read_window(d, &d->validation, window, ids, targets, e);
}

uint32_t data_train_count(const struct data *d, uint64_t sample)
{
    return count_in(d, &d->train, window_of(d, sample));
}

uint32_t data_validation_count(const struct data *d, uint64_t window)
{
    return count_in(d, &d->validation, window);
}
