#include "launcher/wire/frame.h"

#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/own.h"

/* Life: OPEN until an error or the peer's end (fail) or the owner's close.  The handles are
 * then closed; on_end comes from the close call-back unless the owner has let go.  Freed once
 * both handles are closed, the owner has let go, and no call of ours is on the stack. */
struct channel {
    uv_pipe_t stream;
    uv_timer_t linger;
    struct buf in;
    channel_frame_fn *on_frame;
    channel_end_fn *on_end;
    void *ctx;
    struct err why;
    size_t queued;
    unsigned handles; /* not yet closed */
    unsigned depth;   /* calls of ours on the stack */
    bool dead;        /* closing or closed */
    bool released;    /* the owner has let go */
    bool finishing;
    bool deaf; /* the peer takes nothing any more */
};

enum { DEAF_LINGER_MS = 1000 };

struct write {
    uv_write_t req;
    struct channel *c;
    size_t n;
    uint8_t bytes[];
};

static void maybe_free(struct channel *c)
{
    if (c->handles || c->depth || !c->released)
        return;
    buf_done(&c->in);
    free(c);
}

static void on_closed(uv_handle_t *h)
{
    struct channel *c = h->data;
    if (--c->handles == 0 && !c->released) {
        c->depth++;
        c->on_end(c->ctx, &c->why);
        c->depth--;
    }
    maybe_free(c);
}

static void shut(struct channel *c)
{
    if (c->dead)
        return;
    c->dead = true;
    uv_close((uv_handle_t *)&c->stream, on_closed);
    uv_close((uv_handle_t *)&c->linger, on_closed);
}

static uint32_t get_u32(const char *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Hands over the whole frames in c->in.  -1: c->why is set. */
static int take_frames(struct channel *c)
{
    size_t at = 0;
    while (!c->dead && !c->finishing && c->in.len - at >= FRAME_HEAD_BYTES) {
        uint32_t n = get_u32(c->in.data + at);
        if (n > FRAME_MAX_BYTES)
            return err_set(&c->why, ERR_PROTOCOL, "a frame of %u bytes; the limit is %d", n,
                           FRAME_MAX_BYTES);
        if (c->in.len - at - FRAME_HEAD_BYTES < n)
            break;
        Dsl__Frame *f =
            dsl__frame__unpack(NULL, n, (const uint8_t *)c->in.data + at + FRAME_HEAD_BYTES);
        if (!f)
            return err_set(&c->why, ERR_PROTOCOL, "%u bytes that are no frame", n);
        at += FRAME_HEAD_BYTES + n;
        c->on_frame(c->ctx, f);
        dsl__frame__free_unpacked(f, NULL);
    }
    buf_consume(&c->in, at);
    return 0;
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *ret)
{
    (void)h;
    (void)hint;
    size_t n = 64 << 10;
    *ret = uv_buf_init(xmalloc(n), (unsigned)n);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct channel *c = s->data;
    c->depth++;
    int bad = 0;
    if (n > 0) {
        if (buf_add(&c->in, b->base, (size_t)n) < 0)
            bad = err_set(&c->why, ERR_PROTOCOL, "more bytes than one frame may have");
        else
            bad = take_frames(c);
    } else if (n == UV_EOF) {
        bad = -1;
        if (c->in.len)
            (void)err_set(&c->why, ERR_PROTOCOL, "the stream ends inside a frame");
    } else if (n < 0) {
        bad = err_set(&c->why, ERR_NETWORK, "read: %s", uv_strerror((int)n));
    }
    free(b->base);
    if (bad)
        shut(c);
    c->depth--;
    maybe_free(c);
}

struct channel *channel_open_fd(struct uv_loop_s *loop, int fd, channel_frame_fn *on_frame,
                                channel_end_fn *on_end, void *ctx, struct err *e)
{
    struct channel *c = xcalloc(1, sizeof *c);
    c->in = BUF(FRAME_MAX_BYTES + FRAME_HEAD_BYTES + (64 << 10));
    c->on_frame = on_frame;
    c->on_end = on_end;
    c->ctx = ctx;
    c->stream.data = c->linger.data = c;
    (void)uv_pipe_init(loop, &c->stream, 0);
    (void)uv_timer_init(loop, &c->linger);
    c->handles = 2;
    int r = uv_pipe_open(&c->stream, fd);
    if (r < 0)
        (void)close(fd);
    else
        r = uv_read_start((uv_stream_t *)&c->stream, on_alloc, on_read);
    if (r < 0) {
        (void)err_set(e, ERR_NETWORK, "channel: %s", uv_strerror(r));
        channel_close(c);
        return NULL;
    }
    return c;
}

static void on_linger(uv_timer_t *t)
{
    shut(t->data);
}

/* A peer that has gone may have said something first (Dismissed): what it said is read up to
 * its end before the channel ends.  The timer is for one that shut only one direction. */
static void write_failed(struct channel *c, int status)
{
    (void)err_set(&c->why, ERR_NETWORK, "write: %s", uv_strerror(status));
    c->deaf = true;
    (void)uv_timer_start(&c->linger, on_linger, c->released ? 0 : DEAF_LINGER_MS, 0);
}

static void on_written(uv_write_t *req, int status)
{
    struct write *w = (struct write *)req;
    struct channel *c = w->c;
    c->queued -= w->n;
    if (status < 0 && !c->dead) {
        write_failed(c, status);
    } else if (c->finishing && c->queued == 0) {
        shut(c);
    }
    free(w);
}

int channel_send(struct channel *c, const Dsl__Frame *f)
{
    if (c->dead || c->finishing || c->deaf)
        return -1;
    size_t n = dsl__frame__get_packed_size(f);
    if (n > FRAME_MAX_BYTES || c->queued + n > CHANNEL_HIGH_WATER) {
        (void)err_set(&c->why, ERR_PROTOCOL,
                      n > FRAME_MAX_BYTES
                          ? "a frame of %zu bytes is too large to send"
                          : "the peer does not read: %zu bytes more than may wait",
                      n);
        shut(c);
        return -1;
    }
    struct write *w = xmalloc(sizeof *w + FRAME_HEAD_BYTES + n);
    w->c = c;
    w->n = FRAME_HEAD_BYTES + n;
    for (int i = 0; i < FRAME_HEAD_BYTES; i++)
        w->bytes[i] = (uint8_t)(n >> (8 * i));
    (void)dsl__frame__pack(f, w->bytes + FRAME_HEAD_BYTES);
    uv_buf_t b = uv_buf_init((char *)w->bytes, (unsigned)w->n);
    c->queued += w->n;
    int r = uv_write(&w->req, (uv_stream_t *)&c->stream, &b, 1, on_written);
    if (r < 0) {
        c->queued -= w->n;
        free(w);
        write_failed(c, r);
        return -1;
    }
    return 0;
}

size_t channel_queued(const struct channel *c)
{
    return c->queued;
}

void channel_close(struct channel *c)
{
    if (!c)
        return;
    c->released = true;
    shut(c);
    maybe_free(c);
}

void channel_finish(struct channel *c, uint64_t linger_ms)
{
    if (!c)
        return;
    c->released = true;
    if (c->dead || c->queued == 0) {
        channel_close(c);
        return;
    }
    c->finishing = true;
    (void)uv_timer_start(&c->linger, on_linger, linger_ms, 0);
}
