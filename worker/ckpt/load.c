/* The newest checkpoint that every rank can read, into whatever layout this run has. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/link/stepname.h"
#include "common/shape/params.h"
#include "common/spec/spec.h"
#include "worker/ckpt/ckpt_impl.h"
#include "worker/ckpt/manifest.h"
#include "worker/comm.h"
#include "worker/link.h"

enum { CANDIDATES = 64 };

struct candidate {
    uint64_t step, generation;
};

static int newest_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    return x->generation < y->generation ? 1 : x->generation > y->generation ? -1 : 0;
}

/* Committed directories, newest first, at most CANDIDATES.  The folder is made if it is not
 * there: one that cannot be is known now, not when there is something to lose. */
static size_t scan(const char *dir, struct candidate *ret, struct err *e)
{
    DIR *d = opendir(dir);
    size_t n = 0, room = 0;
    AUTO_FREE struct candidate *all = NULL;
    if (!d) {
        if (errno != ENOENT)
            (void)err_sys_kind(e, ERR_STORAGE, "checkpoint.dir %s", dir);
        else if (io_mkdirs(dir, 0755, e) == 0)
            return 0;
        else
            (void)err_wrap(e, "checkpoint.dir");
        return SIZE_MAX;
    }
    for (const struct dirent *ent; (ent = readdir(d));) {
        const char *suffix;
        uint64_t step;
        uint32_t gen;
        if (step_name_parse(ent->d_name, &step, &gen, &suffix) < 0 || *suffix)
            continue;
        if (n == room)
            all = xrealloc_array(all, room = room ? 2 * room : 16, sizeof *all);
        all[n++] = (struct candidate){step, gen};
    }
    (void)closedir(d);
    if (n)
        qsort(all, n, sizeof *all, newest_first);
    if (n > CANDIDATES)
        n = CANDIDATES;
    if (n)
        memcpy(ret, all, n * sizeof *all);
    return n;
}

/* An open shard file of the checkpoint in work. */
struct shard {
    int fd;
    uint32_t file;
    uint64_t data_at, bytes;
};

static int shard_open(struct shard *sh, const struct manifest *m, const char *dir,
                      uint32_t file, struct err *e)
{
    uint64_t bytes, header;
    struct stat st;
    const char *name = manifest_file_name(m, file, &bytes);
    if (sh->fd >= 0 && sh->file == file)
        return 0;
    if (sh->fd >= 0)
        (void)close(sh->fd);
    sh->fd = -1;
    if (!name)
        return err_set(e, ERR_STORAGE, "manifest.json: there is no file %u", file);
    AUTO_FREE char *path = xasprintf("%s/%s", dir, name);
    sh->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (sh->fd < 0 || fstat(sh->fd, &st) < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    if ((uint64_t)st.st_size != bytes)
        return err_set(e, ERR_STORAGE, "%s: %lld bytes, the manifest says %llu", path,
                       (long long)st.st_size, (unsigned long long)bytes);
    if (io_pread_full(sh->fd, &header, sizeof header, 0, e) < 0)
        return err_wrap(e, "%s", path);
    if (header > bytes - sizeof header)
        return err_set(e, ERR_STORAGE, "%s: the header is longer than the file", path);
    sh->file = file;
    sh->data_at = sizeof header + header;
    sh->bytes = bytes;
    return 0;
}

/* One box of the file, checked against its digest; owned by the caller. */
static float *read_box(struct shard *sh, const struct manifest *m, const char *dir,
                       const struct manifest_box *b, struct err *e)
{
    XXH128_canonical_t canonical;
    if (shard_open(sh, m, dir, b->file, e) < 0)
        return NULL;
    uint64_t room = sh->bytes - sh->data_at, n = (uint64_t)b->size[0] * (uint64_t)b->size[1];
    if (n > room / sizeof(float) || b->begin > room - n * sizeof(float)) {
        (void)err_set(e, ERR_STORAGE, "%s: a box of file %u lies beyond its end", dir, b->file);
        return NULL;
    }
    AUTO_FREE float *dense = xmalloc(n * sizeof *dense);
    if (io_pread_full(sh->fd, dense, n * sizeof *dense, (off_t)(sh->data_at + b->begin), e) <
        0) {
        (void)err_wrap(e, "%s: file %u", dir, b->file);
        return NULL;
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(dense, n * sizeof *dense));
    if (memcmp(canonical.digest, b->digest, CKPT_DIGEST) != 0) {
        (void)err_set(e, ERR_STORAGE, "%s: file %u: a digest does not match (damaged)", dir,
                      b->file);
        return NULL;
    }
    return TAKE(dense);
}

static bool meets(const struct piece *q, const struct manifest_box *b)
{
    for (int d = 0; d < 2; d++)
        if (q->start[d] + q->size[d] <= b->start[d] || b->start[d] + b->size[d] <= q->start[d])
            return false;
    return true;
}

/* All this rank keeps of one logical tensor. */
static int load_tensor(struct ckpt *c, struct manifest *m, struct shard *sh, const char *dir,
                       uint32_t param, enum ckpt_kind kind, struct err *e)
{
    const struct params *p = c->p.params;
    char name[128];
    size_t n;
    int64_t missing = 0;
    for (size_t i = 0; i < p->n_pieces; i++)
        if (p->pieces[i].param == param)
            missing += p->pieces[i].size[0] * p->pieces[i].size[1];
    if (!missing)
        return 0;
    boxes_tensor_name(p, param, kind, name);
    const struct manifest_box *boxes = manifest_tensor(m, name, &n, e);
    if (!boxes)
        return -1;
    for (size_t k = 0; k < n; k++) {
        AUTO_FREE float *dense = NULL;
        for (size_t i = 0; i < p->n_pieces; i++) {
            const struct piece *q = &p->pieces[i];
            if (q->param != param || !meets(q, &boxes[k]))
                continue;
            if (!dense && !(dense = read_box(sh, m, dir, &boxes[k], e)))
                return -1;
            missing -= boxes_unpack(q, ckpt_arena(c, kind) + p->stores[q->store].offset,
                                    boxes[k].start, boxes[k].size, dense);
        }
    }
    if (missing)
        return err_set(e, ERR_STORAGE, "%s: %s: %lld elements are missing or there twice", dir,
                       name, (long long)missing);
    return 0;
}

static int same_model(struct ckpt *c, const struct manifest *m, const char *dir, struct err *e)
{
    AUTO_BUF struct buf report = BUF(1 << 20), what = BUF(1 << 16);
    const char *text = manifest_spec(m);
    AUTO(spec) struct spec *was = spec_parse(dir, text, strlen(text), NULL, 0, &report, NULL);
    if (!was)
        return err_set(e, ERR_STORAGE, "%s: its spec cannot be read: %s", dir,
                       buf_str(&report));
    if (spec_resume_conflicts(was, c->p.spec, &what))
        return err_set(
            e, ERR_SPEC,
            "%s was made with another spec (start with --fresh to leave it aside):\n%s", dir,
            buf_str(&what));
    c->other_layout = was->parallel.data != c->p.spec->parallel.data ||
                      was->parallel.tensor != c->p.spec->parallel.tensor ||
                      was->parallel.pipeline != c->p.spec->parallel.pipeline;
    return 0;
}

static int load_from(struct ckpt *c, const char *dir, struct ckpt_state *ret, struct err *e)
{
    AUTO(manifest) struct manifest *m = manifest_read(dir, e);
    if (!m || same_model(c, m, dir, e) < 0)
        return -1;
    struct shard sh = {.fd = -1};
    int r = 0;
    for (uint32_t i = 0; i < c->p.params->n_params && r == 0; i++)
        for (enum ckpt_kind k = 0; k < CKPT_KIND_COUNT && r == 0; k++)
            r = load_tensor(c, m, &sh, dir, i, k, e);
    if (sh.fd >= 0)
        (void)close(sh.fd);
    if (r == 0)
        *ret = *manifest_state(m);
    return r;
}

/* Do all ranks have it?  0 storage fault somewhere, 1 yes, -1 a fault that no older one mends.
 */
static int agree_loaded(struct ckpt *c, int r, const struct err *why, struct err *e)
{
    int64_t verdict = r == 0 ? 1 : why->kind == ERR_STORAGE ? 0 : -1;
    if (c->p.world &&
        c->p.world->ops->all_reduce(c->p.world, &verdict, 1, DT_I64, COMM_MIN, NULL, e) < 0)
        return -1;
    if (verdict < 0) {
        if (r == 0)
            return err_set(e, ERR_SPEC, "another rank cannot use the checkpoint");
        *e = *why;
    }
    return (int)verdict;
}

int ckpt_load(struct ckpt *c, struct ckpt_state *ret, struct err *e)
{
    struct candidate list[CANDIDATES + 1] = {{0, 0}};
    struct err why = {0};
    if (c->p.rank == 0) {
        size_t n = scan(c->dir, list + 1, &why);
        list[0].step = n;
        list[0].generation = n == SIZE_MAX;
    }
    if (c->p.world && c->p.world->ops->broadcast(c->p.world, list, 2 * (CANDIDATES + 1), DT_I64,
                                                 0, NULL, e) < 0)
        return -1;
    if (list[0].generation) {
        if (c->p.rank == 0 && e)
            *e = why;
        return c->p.rank == 0 ? -1
                              : err_set(e, ERR_STORAGE, "rank 0 cannot read checkpoint.dir");
    }
    for (size_t i = 1; i <= list[0].step; i++) {
        AUTO_FREE char *dir =
            xasprintf("%s/" STEP_NAME, c->dir, (unsigned long long)list[i].step,
                      (unsigned)list[i].generation);
        int r = load_from(c, dir, ret, &why);
        if (r < 0 && why.kind == ERR_STORAGE)
            link_event(c->p.link, "checkpoint skipped: %s", why.text);
        int all = agree_loaded(c, r, &why, e);
        if (all < 0)
            return -1;
        if (all && c->p.rank == 0)
            link_event(c->p.link, "resumed from %s%s", dir, i > 1 ? " (an older one)" : "");
        if (all)
            return 1;
    }
    if (list[0].step)
        return err_set(
            e, ERR_STORAGE,
            "%s: none of the %llu newest checkpoints can be read (start with --fresh to "
            "leave them aside); the last fault: %s",
            c->dir, (unsigned long long)list[0].step,
            why.kind ? why.text : "see the other ranks' logs");
    return 0;
}

bool ckpt_layout_differs(const struct ckpt *c)
{
    return c->other_layout;
}
