/* From arenas to a snapshot memfd, and from there, by way of the agent, to a committed
 * checkpoint. The training step pays for the copy into memory; the disk is the agent's. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/shape/params.h"
#include "common/spec/spec.h"
#include "worker/ckpt/ckpt_impl.h"
#include "worker/ckpt/manifest.h"
#include "worker/comm.h"
#include "worker/link.h"

#define SLOT_WAIT_NS (600 * NS_PER_S)

struct ckpt *ckpt_new(const struct ckpt_params *p, struct err *e)
{
    (void)e;
    struct ckpt *c = xcalloc(1, sizeof *c);
    c->p = *p;
    c->boxes = boxes_new(p->spec, p->params, p->dp);
    c->dir = spec_host_path(p->spec, p->spec->checkpoint.dir);
    return c;
}

void ckpt_free(struct ckpt *c)
{
    if (!c)
        return;
    boxes_free(c->boxes);
    free(c->dir);
    free(c);
}

/* Rank 0 says commit.  Of a slot that was never filled, or twice, nothing. */
static int slot_agreed(struct ckpt *c, struct ckpt_slot *s, struct err *e)
{
    if (!s->step || s->agreed)
        return 0;
    s->agreed = true;
    return c->p.rank > 0 ? 0
                         : link_commit(c->p.link, s->step, (int)(s - c->slots), s->manifest_at,
                                       s->manifest_bytes, e);
}

static void say_lost(struct ckpt *c)
{
    struct err why;
    if (link_lost(c->p.link, &why))
        link_event(c->p.link, "checkpoint not written: %s", why.text);
}

/* 1; 0 if the agent could not write: training goes on, and the loss is said; -1. */
static int went_well(struct ckpt *c, int waited, const struct err *why, struct err *e)
{
    say_lost(c);
    if (waited == 0 || why->kind == ERR_STORAGE)
        return waited == 0;
    if (e)
        *e = *why;
    return -1;
}

/* Collective.  Waits until the slot's last content is no longer wanted: until it is committed,
 * or a rank has lost its part.  Steps may be shorter than the disk is slow: were it enough that
 * this rank's part is written, rank 0 would overwrite manifests that the others' parts still
 * wait for, and nothing would ever be committed. */
static int slot_wait(struct ckpt *c, struct ckpt_slot *s, struct err *e)
{
    struct err why;
    int64_t deadline = clock_now_ns() + SLOT_WAIT_NS;
    say_lost(c);
    if (!s->step)
        return 0;
    int r = went_well(c, link_wait_written(c->p.link, s->step, deadline, &why), &why, e);
    if (r < 0)
        return -1;
    if (!s->agreed) {
        int64_t all = r;
        if (c->p.world &&
            c->p.world->ops->all_reduce(c->p.world, &all, 1, DT_I64, COMM_MIN, NULL, e) < 0)
            return -1;
        if (!all)
            return 0;
        if (slot_agreed(c, s, e) < 0)
            return -1;
    }
    if (c->p.rank > 0)
        return 0;
    r = link_wait_committed(c->p.link, s->step, deadline, &why);
    return went_well(c, r, &why, e) < 0 ? -1 : 0;
}

static void put_digest(const void *p, size_t n, uint8_t ret[CKPT_DIGEST])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(p, n));
    memcpy(ret, canonical.digest, CKPT_DIGEST);
}

/* header + data at `map`, and a digest per box. */
static void fill(const struct ckpt *c, char *map, const struct buf *header,
                 uint8_t (*digests)[CKPT_DIGEST])
{
    memcpy(map, header->data, header->len);
    for (size_t i = 0; i < c->boxes->n; i++) {
        const struct box *b = &c->boxes->box[i];
        const struct piece *q = &c->p.params->pieces[b->piece];
        const float *store = ckpt_arena(c, b->kind) + c->p.params->stores[q->store].offset;
        char *at = map + header->len + b->begin;
        boxes_pack(q, store, (float *)at);
        put_digest(at, b->end - b->begin, digests[i]);
    }
}

static size_t boxes_of_rank(const struct spec *s, uint32_t rank)
{
    struct topo t = topo_of_spec(s);
    struct coord at = topo_coord(&t, rank);
    AUTO(params) struct params *p = params_new(s, at);
    AUTO(boxes) struct boxes *b = boxes_new(s, p, at.dp);
    return b->n;
}

/* Each rank's (bytes, digests) to rank 0, which writes the manifest text. */
static int gather_manifest(struct ckpt *c, const struct ckpt_state *st, uint64_t bytes,
                           uint8_t (*digests)[CKPT_DIGEST], struct buf *text, struct err *e)
{
    struct comm *w = c->p.world;
    size_t row = CKPT_DIGEST; /* bytes first, in a row of its own */
    if (c->p.rank > 0) {
        AUTO_FREE uint8_t *msg = xcalloc(c->boxes->n + 1, row);
        memcpy(msg, &bytes, sizeof bytes);
        memcpy(msg + row, digests, c->boxes->n * row);
        return w->ops->send(w, msg, (c->boxes->n + 1) * row, DT_U8, 0, NULL, e);
    }
    uint32_t world = spec_world(c->p.spec);
    AUTO_FREE struct manifest_file *files = xcalloc(world, sizeof *files);
    AUTO_FREE uint8_t **rows = xcalloc(world, sizeof *rows);
    files[0] = (struct manifest_file){bytes, (const uint8_t(*)[CKPT_DIGEST])digests};
    int r = 0;
    for (uint32_t k = 1; k < world && r == 0; k++) {
        size_t n = boxes_of_rank(c->p.spec, k) + 1;
        rows[k] = xcalloc(n, row);
        r = w->ops->recv(w, rows[k], n * row, DT_U8, k, NULL, e);
        memcpy(&files[k].bytes, rows[k], sizeof files[k].bytes);
        files[k].digests = (const uint8_t(*)[CKPT_DIGEST])(rows[k] + row);
    }
    if (r == 0)
        r = manifest_write(c->p.spec, c->p.generation, st, files, text, e);
    for (uint32_t k = 1; k < world; k++)
        free(rows[k]);
    return r;
}

static int put_manifest(int fd, uint64_t at, const struct buf *text, struct err *e)
{
    if (ftruncate(fd, (off_t)(at + text->len)) < 0 ||
        pwrite(fd, text->data, text->len, (off_t)at) != (ssize_t)text->len)
        return err_sys_kind(e, ERR_STORAGE, "snapshot memfd");
    return 0;
}

int ckpt_snapshot(struct ckpt *c, const struct ckpt_state *st, struct err *e)
{
    struct ckpt_slot *s = &c->slots[c->next];
    int fd = link_snapshot_fd(c->p.link, (int)c->next);
    AUTO_BUF struct buf header = BUF(MANIFEST_MAX), text = BUF(MANIFEST_MAX);
    AUTO_FREE uint8_t(*digests)[CKPT_DIGEST] = xcalloc(c->boxes->n + 1, CKPT_DIGEST);
    if (slot_wait(c, s, e) < 0)
        return -1;
    boxes_header(c->boxes, c->p.params, &header);
    uint64_t bytes = header.len + c->boxes->bytes;
    if (ftruncate(fd, (off_t)bytes) < 0)
        return err_sys_kind(e, ERR_MEMORY, "snapshot of %llu bytes", (unsigned long long)bytes);
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_sys_kind(e, ERR_MEMORY, "snapshot of %llu bytes", (unsigned long long)bytes);
    fill(c, map, &header, digests);
    uint8_t whole[CKPT_DIGEST];
    put_digest(map, bytes, whole);
    (void)munmap(map, bytes);

    if (gather_manifest(c, st, bytes, digests, &text, e) < 0)
        return -1;
    if (c->p.rank == 0 && put_manifest(fd, bytes, &text, e) < 0)
        return -1;
    *s = (struct ckpt_slot){.step = st->step, .manifest_at = bytes, .manifest_bytes = text.len};
    AUTO_BUF struct buf hex = BUF(64);
    (void)buf_hex(&hex, whole, sizeof whole);
    if (link_shard(c->p.link, st->step, (int)c->next, bytes, buf_str(&hex), e) < 0)
        return -1;
    c->last = st->step;
    c->next ^= 1;
    return 0;
}

uint64_t ckpt_written(struct ckpt *c)
{
    return link_written(c->p.link);
}

int ckpt_on_agreed(struct ckpt *c, uint64_t min_written, struct err *e)
{
    /* The next slot to be filled holds the older step. */
    for (uint32_t i = 0; i < 2; i++) {
        struct ckpt_slot *s = &c->slots[c->next ^ i];
        if (s->step <= min_written && slot_agreed(c, s, e) < 0)
            return -1;
    }
    return 0;
}

/* Has it gone well for all?  -1 with this rank's own reason, or a pointer to the others. */
static int all_well(struct ckpt *c, bool well, const struct err *mine, struct err *e)
{
    int64_t ok = well;
    if (c->p.world &&
        c->p.world->ops->all_reduce(c->p.world, &ok, 1, DT_I64, COMM_MIN, NULL, e) < 0)
        return -1;
    if (ok)
        return 0;
    if (well)
        return err_set(e, ERR_STORAGE,
                       "the last checkpoint (step %llu) was not written by all ranks",
                       (unsigned long long)c->last);
    if (e)
        *e = *mine;
    return -1;
}

int ckpt_flush(struct ckpt *c, int64_t deadline_ns, struct err *e)
{
    struct err mine = {0};
    if (!c->last)
        return 0;
    bool well = link_wait_written(c->p.link, c->last, deadline_ns, &mine) == 0;
    if (all_well(c, well, &mine, e) < 0)
        return -1;
    well = ckpt_on_agreed(c, c->last, &mine) == 0;
    if (well && c->p.rank == 0)
        well = link_wait_committed(c->p.link, c->last, deadline_ns, &mine) == 0;
    if (well)
        say_lost(c);
    return all_well(c, well, &mine, e);
}
