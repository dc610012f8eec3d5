/* conn.h: frames on one socket between two ranks, in both directions at once, never waiting.
 *
 * A frame is a struct frame and its payload.  Out: frames are queued, borrowing the payload,
 * and written as the socket takes them; conn_keep copies what is left so that the caller has
 * his buffer back.  In: the reader knows what must come next, so the payload goes straight to
 * its place; a frame that is not the expected one is a mismatch, for good.  What a peer sends
 * ahead stays in the kernel until it is expected, which also is the flow control.
 *
 * A conn without a socket yet (fd -1) takes orders and moves nothing.
 */
#ifndef DS_NET_CONN_H
#define DS_NET_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

/* As on the wire, little-endian. */
struct frame {
    uint32_t magic;
    uint8_t op, dtype, red, part; /* enums comm_op, dtype, comm_red; which exchange of the op */
    uint32_t root;
    uint32_t zero;
    uint64_t seq;
    uint64_t bytes;
};
enum { FRAME_MAGIC = 0x33435344 }; /* "DSC3" */

enum conn_state {
    CONN_OK,
    CONN_CLOSED,   /* by the peer, or the socket failed: see error */
    CONN_MISMATCH, /* in.got is not in.expected */
};

struct conn_seg {
    struct frame head;
    const char *data;
    char *owned; /* data was copied */
    size_t at;   /* bytes written, of head and data together */
};

struct conn {
    int fd, poll_at;
    int error; /* errno of a CONN_CLOSED, 0: end of file */
    enum conn_state state;
    struct {
        struct conn_seg *seg; /* [first, n) are to be written */
        size_t first, n, room;
        bool blocked; /* the socket is full */
    } out;
    struct {
        struct frame expected, got;
        size_t head_at; /* bytes of `got`, sizeof(struct frame) when it is whole */
        char *dst;
        size_t left; /* payload bytes still wanted at dst */
        bool active, blocked;
    } in;
};

void conn_init(struct conn *c);
void conn_done(struct conn *c);

void conn_send(struct conn *c, const struct frame *head, const void *data);
/* ERR_MEMORY. */
int conn_keep(struct conn *c, struct err *e);
/* The next frame must be `head`; its first n payload bytes go to dst. */
void conn_expect(struct conn *c, const struct frame *head, void *dst, size_t n);
/* The next n payload bytes of the same frame. */
void conn_expect_more(struct conn *c, void *dst, size_t n);

static inline bool conn_sending(const struct conn *c)
{
    return c->out.first < c->out.n;
}
static inline bool conn_receiving(const struct conn *c)
{
    return c->in.active;
}
/* Bytes moved.  A fault shows in `state`. */
size_t conn_write(struct conn *c);
size_t conn_read(struct conn *c);

#endif
