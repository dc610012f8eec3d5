#include "launcher/agent/rank/logring.h"

#include <assert.h>
#include <string.h>

#include "common/base/buf.h"

enum { CHUNK_MAX = 256 << 10, DROP_MIN = LOGRING_CAP / 8, MARK_MAX = 128 };

/* buf: [0, sent) is on its way, [sent, whole) are whole lines, the rest is a line in the
 * making. A mark of lost bytes may stand at [mark, mark + mark_len). */
struct logring {
    struct buf buf;
    uint64_t base; /* offset of buf.data[0] */
    size_t sent, whole;
    size_t mark, mark_len;
    uint64_t mark_lost;
    bool ended;
};

struct logring *logring_new(void)
{
    struct logring *r = xcalloc(1, sizeof *r);
    r->buf = BUF(LOGRING_CAP + MARK_MAX + 1);
    return r;
}

void logring_free(struct logring *r)
{
    if (!r)
        return;
    buf_done(&r->buf);
    free(r);
}

/* Makes way: the oldest unsent lines, at least DROP_MIN bytes of them if there are so many. */
static void drop_oldest(struct logring *r)
{
    char mark[MARK_MAX];
    size_t end = r->sent + DROP_MIN;
    if (end < r->whole) {
        const char *nl = memchr(r->buf.data + end, '\n', r->whole - end);
        end = nl ? (size_t)(nl - r->buf.data) + 1 : r->whole;
    } else {
        end = r->whole;
    }
    assert(end >= r->sent + MARK_MAX); /* the cap is far above window and longest line */
    uint64_t lost = end - r->sent;
    if (r->mark_len && r->mark == r->sent) /* the mark itself is no output */
        lost += r->mark_lost - r->mark_len;
    int n = snprintf(mark, sizeof mark,
                     "[dslaunch: %llu bytes of output were lost here: nobody took them]\n",
                     (unsigned long long)lost);
    size_t keep = r->buf.len - end, cut = end - r->sent - (size_t)n;
    memcpy(r->buf.data + r->sent, mark, (size_t)n);
    memmove(r->buf.data + r->sent + n, r->buf.data + end, keep);
    r->buf.len -= cut;
    r->whole -= cut;
    r->mark = r->sent;
    r->mark_len = (size_t)n;
    r->mark_lost = lost;
}

static void add_bytes(struct logring *r, const char *p, size_t n)
{
    if (r->buf.len + n + 1 > LOGRING_CAP)
        drop_oldest(r);
    (void)buf_add(&r->buf, p, n);
}

static void end_line(struct logring *r)
{
    add_bytes(r, "\n", 1);
    r->whole = r->buf.len;
}

void logring_add(struct logring *r, const char *p, size_t n)
{
    while (n) {
        const char *nl = memchr(p, '\n', n);
        size_t k = nl ? (size_t)(nl - p) : n;
        size_t room = LOGRING_LINE_MAX - 1 - (r->buf.len - r->whole);
        bool cut = k > room;
        if (cut)
            k = room;
        add_bytes(r, p, k);
        p += k;
        n -= k;
        if (cut || nl)
            end_line(r);
        if (!cut && nl) {
            p++;
            n--;
        }
    }
}

void logring_end(struct logring *r)
{
    if (r->buf.len > r->whole)
        end_line(r);
    r->ended = true;
}

size_t logring_next(struct logring *r, const char **ret, uint64_t *ret_offset)
{
    size_t n = r->whole - r->sent;
    if (n > CHUNK_MAX) {
        const char *at = r->buf.data + r->sent;
        const char *nl = memrchr(at, '\n', CHUNK_MAX);
        n = (size_t)(nl - at) + 1; /* a line is shorter than a chunk */
    }
    if (n == 0 || r->sent + n > LOGRING_WINDOW)
        return 0;
    *ret = r->buf.data + r->sent;
    *ret_offset = r->base + r->sent;
    r->sent += n;
    return n;
}

void logring_ack(struct logring *r, uint64_t offset)
{
    if (offset <= r->base)
        return;
    size_t n = offset - r->base < r->sent ? (size_t)(offset - r->base) : r->sent;
    if (!n)
        return;
    buf_consume(&r->buf, n);
    r->base += n;
    r->sent -= n;
    r->whole -= n;
    if (r->mark_len && r->mark >= n)
        r->mark -= n;
    else
        r->mark_len = 0;
}

void logring_rewind(struct logring *r, uint64_t offset)
{
    logring_ack(r, offset);
    r->sent = 0;
}

bool logring_settled(const struct logring *r)
{
    return r->ended && r->buf.len == 0;
}
