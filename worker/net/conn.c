#include "worker/net/conn.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "common/base/err.h"
#include "common/base/own.h"

_Static_assert(sizeof(struct frame) == 32, "no padding");

enum { SEGS_AT_ONCE = 16 };

void conn_init(struct conn *c)
{
    *c = (struct conn){.fd = -1, .poll_at = -1};
}

static void segs_clear(struct conn *c)
{
    for (size_t i = c->out.first; i < c->out.n; i++)
        free(c->out.seg[i].owned);
    c->out.first = c->out.n = 0;
}

void conn_done(struct conn *c)
{
    own_fd(&c->fd);
    segs_clear(c);
    free(c->out.seg);
    conn_init(c);
}

void conn_send(struct conn *c, const struct frame *head, const void *data)
{
    if (c->out.n == c->out.room && c->out.first > c->out.room / 2) {
        c->out.n -= c->out.first;
        memmove(c->out.seg, c->out.seg + c->out.first, c->out.n * sizeof *c->out.seg);
        c->out.first = 0;
    }
    if (c->out.n == c->out.room) {
        c->out.room = c->out.room ? 2 * c->out.room : 4;
        c->out.seg = xrealloc_array(c->out.seg, c->out.room, sizeof *c->out.seg);
    }
    c->out.seg[c->out.n++] = (struct conn_seg){.head = *head, .data = data};
}

int conn_keep(struct conn *c, struct err *e)
{
    for (size_t i = c->out.first; i < c->out.n; i++) {
        struct conn_seg *s = &c->out.seg[i];
        if (s->owned || !s->head.bytes)
            continue;
        s->owned = malloc(s->head.bytes);
        if (!s->owned)
            return err_set(e, ERR_MEMORY, "no memory to queue %llu bytes",
                           (unsigned long long)s->head.bytes);
        memcpy(s->owned, s->data, s->head.bytes);
        s->data = s->owned;
    }
    return 0;
}

void conn_expect(struct conn *c, const struct frame *head, void *dst, size_t n)
{
    assert(!c->in.active);
    c->in.expected = *head;
    c->in.head_at = 0;
    c->in.dst = dst;
    c->in.left = n;
    c->in.active = true;
    c->in.blocked = false;
}

void conn_expect_more(struct conn *c, void *dst, size_t n)
{
    assert(!c->in.active);
    c->in.dst = dst;
    c->in.left = n;
    c->in.active = n > 0;
    c->in.blocked = false;
}

/* What of segs [first, n) is unwritten, as an iovec. */
static size_t gather(const struct conn *c, struct iovec *iov, size_t *ret_bytes)
{
    size_t k = 0, bytes = 0;
    for (size_t i = c->out.first; i < c->out.n && k + 2 <= 2 * SEGS_AT_ONCE; i++) {
        struct conn_seg *s = &c->out.seg[i];
        size_t head = s->at < sizeof s->head ? sizeof s->head - s->at : 0;
        size_t at = head ? 0 : s->at - sizeof s->head;
        if (head)
            iov[k++] = (struct iovec){(char *)&s->head + s->at, head};
        if (s->head.bytes > at) {
            const char *p = s->data + at;
            iov[k].iov_base = (void *)(uintptr_t)p; /* iovec knows no const */
            iov[k++].iov_len = s->head.bytes - at;
        }
        bytes += head + (s->head.bytes - at);
    }
    *ret_bytes = bytes;
    return k;
}

static void written(struct conn *c, size_t n)
{
    while (n) {
        struct conn_seg *s = &c->out.seg[c->out.first];
        size_t left = sizeof s->head + s->head.bytes - s->at;
        size_t k = n < left ? n : left;
        s->at += k;
        n -= k;
        if (k == left) {
            free(s->owned);
            c->out.first++;
        }
    }
    if (c->out.first == c->out.n)
        c->out.first = c->out.n = 0;
}

static void closed(struct conn *c, int error)
{
    c->state = CONN_CLOSED;
    c->error = error;
}

size_t conn_write(struct conn *c)
{
    size_t moved = 0;
    while (c->fd >= 0 && c->state == CONN_OK && !c->out.blocked && conn_sending(c)) {
        struct iovec iov[2 * SEGS_AT_ONCE];
        size_t bytes;
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = gather(c, iov, &bytes)};
        ssize_t k = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            k = 0;
        if (k < 0) {
            closed(c, errno);
            break;
        }
        written(c, (size_t)k);
        moved += (size_t)k;
        c->out.blocked = (size_t)k < bytes;
    }
    return moved;
}

static void got(struct conn *c, size_t n)
{
    size_t head = sizeof c->in.got - c->in.head_at;
    if (head > n)
        head = n;
    c->in.head_at += head;
    n -= head;
    c->in.dst += n;
    c->in.left -= n;
    if (c->in.head_at < sizeof c->in.got)
        return;
    if (memcmp(&c->in.got, &c->in.expected, sizeof c->in.got) != 0)
        c->state = CONN_MISMATCH;
    if (!c->in.left)
        c->in.active = false;
}

size_t conn_read(struct conn *c)
{
    size_t moved = 0;
    while (c->fd >= 0 && c->state == CONN_OK && !c->in.blocked && c->in.active) {
        size_t head = sizeof c->in.got - c->in.head_at;
        struct iovec iov[2] = {{(char *)&c->in.got + c->in.head_at, head},
                               {c->in.dst, c->in.left}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
        ssize_t k = recvmsg(c->fd, &m, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            c->in.blocked = true;
            break;
        }
        if (k <= 0) {
            closed(c, k < 0 ? errno : 0);
            break;
        }
        c->in.blocked = (size_t)k < head + c->in.left;
        got(c, (size_t)k);
        moved += (size_t)k;
    }
    return moved;
}
