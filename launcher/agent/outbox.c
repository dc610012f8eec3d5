#include "launcher/agent/outbox.h"

#include "common/base/own.h"

struct held {
    struct held *next;
    Dsl__Frame *f;
    size_t bytes;
    bool lossy;
};

struct outbox {
    struct held *first, **end;
    size_t bytes;
    uint64_t n, lost;
};

struct outbox *outbox_new(void)
{
    struct outbox *o = xcalloc(1, sizeof *o);
    o->end = &o->first;
    return o;
}

static void drop(struct outbox *o, struct held **at)
{
    struct held *h = *at;
    *at = h->next;
    if (o->end == &h->next)
        o->end = at;
    o->bytes -= h->bytes;
    o->n--;
    dsl__frame__free_unpacked(h->f, NULL);
    free(h);
}

void outbox_free(struct outbox *o)
{
    if (!o)
        return;
    while (o->first)
        drop(o, &o->first);
    free(o);
}

static void make_room(struct outbox *o)
{
    for (int pass = 0; pass < 2; pass++) {
        for (struct held **at = &o->first; *at && o->bytes > OUTBOX_MAX_BYTES;) {
            if (pass == 0 && !(*at)->lossy) {
                at = &(*at)->next;
                continue;
            }
            drop(o, at);
            o->lost++;
        }
    }
}

void outbox_put(struct outbox *o, const Dsl__Frame *f, bool lossy)
{
    size_t n = dsl__frame__get_packed_size(f);
    AUTO_FREE uint8_t *bytes = xmalloc(n);
    struct held *h = xcalloc(1, sizeof *h);
    (void)dsl__frame__pack(f, bytes);
    h->f = dsl__frame__unpack(NULL, n, bytes);
    h->bytes = 2 * n + sizeof *h; /* about what it takes unpacked */
    h->lossy = lossy;
    *o->end = h;
    o->end = &h->next;
    o->bytes += h->bytes;
    o->n++;
    make_room(o);
}

void outbox_flush(struct outbox *o, outbox_say_fn *say, void *ctx)
{
    while (o->first) {
        say(ctx, o->first->f, o->first->lossy);
        drop(o, &o->first);
    }
}

void outbox_keep(struct outbox *o, uint64_t n)
{
    while (o->n > n)
        drop(o, &o->first);
}

void outbox_forget(struct outbox *o, uint32_t generation)
{
    for (struct held **at = &o->first; *at;) {
        if ((*at)->f->generation < generation)
            drop(o, at);
        else
            at = &(*at)->next;
    }
}

uint64_t outbox_lost(const struct outbox *o)
{
    return o->lost;
}
