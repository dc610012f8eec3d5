/* comm_tcp.c: collectives over sockets.
 *
 * All data goes straight between the ranks concerned.  A reduction is an exchange of shards and
 * one sum in rank order by the shard's owner, in chunks that stay in the cache; an all-reduce
 * is that and a gather of the sums, and for few bytes the first rank sums everything.  Which
 * way was taken cannot be seen in the result: the order of each element's sum is the same.
 */
#include <assert.h>
#include <string.h>
#include <sys/eventfd.h>

#include "common/base/clock.h"
#include "common/link/page.h"
#include "worker/net/reduce.h"
#include "worker/net/tcp.h"

enum {
    CHUNK_BYTES = 128 << 10, /* per peer, received and then summed */
    STAR_BYTES = 16 << 10,   /* up to here one rank sums all */
    SHARD_ALIGN = 16,        /* elements */
};

#define LINGER_NS (5 * NS_PER_S) /* for what is still to be sent when all is freed */

_Static_assert((int)COMM_OP_COUNT == PAGE_COLL_COUNT, "page_coll_name names every operation");

static struct tcp *tcp_of(struct comm *c)
{
    return (struct tcp *)c; /* its first member */
}

static int begin(struct tcp *t, enum comm_op op, struct err *e)
{
    return tcp_begin(t, op, ++t->comm.seq, e);
}

static struct frame frame_of(const struct tcp *t, enum dtype d, size_t n)
{
    return (struct frame){.magic = FRAME_MAGIC,
                          .op = (uint8_t)t->now.op,
                          .dtype = (uint8_t)d,
                          .seq = t->now.seq,
                          .bytes = (uint64_t)n * dtype_bytes(d)};
}

/* memmove that takes NULL for nothing. */
static void copy(void *dst, const void *src, size_t bytes)
{
    if (bytes && dst != src)
        memmove(dst, src, bytes);
}

/* Receives, for each other member, the n elements that `f` announces for this rank's shard, and
 * leaves the sum of them and of own[n] in dst[n]. */
static int reduce_shard(struct tcp *t, const struct frame *f, const void *own, void *dst,
                        size_t n, struct err *e)
{
    const uint32_t size = t->comm.size, me = t->comm.rank;
    const enum dtype d = (enum dtype)f->dtype;
    const size_t width = dtype_bytes(d), chunk = CHUNK_BYTES / width;
    const size_t room = (n < chunk ? n : chunk) * width;
    char *scratch;
    if (size == 1) {
        copy(dst, own, n * width);
        return 0;
    }
    if (tcp_scratch(t, size * room, &scratch, e) < 0)
        return -1;
    for (uint32_t j = 0; j < size; j++) {
        t->inputs[j] = scratch + j * room;
        if (j != me && tcp_expect(t, j, f, scratch + j * room, room, e) < 0)
            return -1;
    }
    for (size_t at = 0; at < n || at == 0;) {
        size_t m = n - at < chunk ? n - at : chunk;
        if (tcp_wait(t, TCP_RECEIVED, e) < 0)
            return -1;
        t->inputs[me] = (const char *)own + at * width;
        reduce_in_order((char *)dst + at * width, t->inputs, size, m, d, (enum comm_red)f->red);
        at += m;
        if (at >= n)
            break;
        size_t next = (n - at < chunk ? n - at : chunk) * width;
        for (uint32_t j = 0; j < size; j++)
            if (j != me)
                conn_expect_more(&t->peers[j].conn, scratch + j * room, next);
    }
    return 0;
}

static int tcp_reduce_scatter(struct comm *c, const void *send, void *recv, size_t n,
                              enum dtype d, enum comm_red r, struct dev_stream *s,
                              struct err *e)
{
    struct tcp *t = tcp_of(c);
    (void)s;
    if (reduce_check(d, r, e) < 0 || begin(t, COMM_REDUCE_SCATTER, e) < 0)
        return -1;
    struct frame f = frame_of(t, d, n);
    f.red = (uint8_t)r;
    const char *from = send;
    for (uint32_t j = 0; j < c->size; j++)
        if (j != c->rank && tcp_send(t, j, &f, from + j * f.bytes, e) < 0)
            return -1;
    if (reduce_shard(t, &f, from + c->rank * f.bytes, recv, n, e) < 0)
        return -1;
    return tcp_wait(t, TCP_ALL, e);
}

/* The first rank sums all.  buf[n] */
static int all_reduce_star(struct tcp *t, void *buf, size_t n, enum dtype d, enum comm_red r,
                           struct err *e)
{
    struct frame up = frame_of(t, d, n), down;
    up.red = (uint8_t)r;
    down = up;
    down.part = 1;
    if (t->comm.rank != 0) {
        if (tcp_send(t, 0, &up, buf, e) < 0 || tcp_expect(t, 0, &down, buf, up.bytes, e) < 0)
            return -1;
        return tcp_wait(t, TCP_ALL, e);
    }
    if (reduce_shard(t, &up, buf, buf, n, e) < 0)
        return -1;
    for (uint32_t j = 1; j < t->comm.size; j++)
        if (tcp_send(t, j, &down, buf, e) < 0)
            return -1;
    return tcp_wait(t, TCP_ALL, e);
}

static size_t shard_start(size_t n, uint32_t j, uint32_t size)
{
    size_t units = (n + SHARD_ALIGN - 1) / SHARD_ALIGN;
    size_t at = units * j / size * SHARD_ALIGN;
    return at < n ? at : n;
}

/* Shard j is summed by member j, then gathered.  buf[n].  A shard's sum cannot arrive before
 * this rank's part of it has gone out, so both may use the same place. */
static int all_reduce_shards(struct tcp *t, void *buf, size_t n, enum dtype d, enum comm_red r,
                             struct err *e)
{
    const uint32_t size = t->comm.size, me = t->comm.rank;
    const size_t width = dtype_bytes(d), mine = shard_start(n, me, size);
    const size_t n_mine = shard_start(n, me + 1, size) - mine;
    char *b = buf;
    for (uint32_t j = 0; j < size; j++) {
        size_t at = shard_start(n, j, size);
        struct frame f = frame_of(t, d, shard_start(n, j + 1, size) - at);
        f.red = (uint8_t)r;
        if (j != me && tcp_send(t, j, &f, b + at * width, e) < 0)
            return -1;
    }
    struct frame own = frame_of(t, d, n_mine);
    own.red = (uint8_t)r;
    if (reduce_shard(t, &own, b + mine * width, b + mine * width, n_mine, e) < 0)
        return -1;
    own.part = 1;
    for (uint32_t j = 0; j < size; j++) {
        size_t at = shard_start(n, j, size);
        struct frame f = own;
        f.bytes = (shard_start(n, j + 1, size) - at) * width;
        if (j != me && (tcp_send(t, j, &own, b + mine * width, e) < 0 ||
                        tcp_expect(t, j, &f, b + at * width, f.bytes, e) < 0))
            return -1;
    }
    return tcp_wait(t, TCP_ALL, e);
}

static int tcp_all_reduce(struct comm *c, void *buf, size_t n, enum dtype d, enum comm_red r,
                          struct dev_stream *s, struct err *e)
{
    struct tcp *t = tcp_of(c);
    (void)s;
    if (reduce_check(d, r, e) < 0 || begin(t, COMM_ALL_REDUCE, e) < 0)
        return -1;
    if (c->size > 1 && n * dtype_bytes(d) <= STAR_BYTES)
        return all_reduce_star(t, buf, n, d, r, e);
    return all_reduce_shards(t, buf, n, d, r, e);
}

static int tcp_all_gather(struct comm *c, const void *send, void *recv, size_t n, enum dtype d,
                          struct dev_stream *s, struct err *e)
{
    struct tcp *t = tcp_of(c);
    (void)s;
    if (begin(t, COMM_ALL_GATHER, e) < 0)
        return -1;
    struct frame f = frame_of(t, d, n);
    char *to = recv;
    for (uint32_t j = 0; j < c->size; j++)
        if (j != c->rank && (tcp_send(t, j, &f, send, e) < 0 ||
                             tcp_expect(t, j, &f, to + j * f.bytes, f.bytes, e) < 0))
            return -1;
    copy(to + c->rank * f.bytes, send, f.bytes);
    return tcp_wait(t, TCP_ALL, e);
}

static int bad_member(const struct comm *c, const char *what, uint32_t j, struct err *e)
{
    return err_set(e, ERR_PROTOCOL, "%s group: %s %u, of %u members", group_kind_name(c->kind),
                   what, j, c->size);
}

static int tcp_broadcast(struct comm *c, void *buf, size_t n, enum dtype d, uint32_t root,
                         struct dev_stream *s, struct err *e)
{
    struct tcp *t = tcp_of(c);
    (void)s;
    if (root >= c->size)
        return bad_member(c, "broadcast from", root, e);
    if (begin(t, COMM_BROADCAST, e) < 0)
        return -1;
    struct frame f = frame_of(t, d, n);
    f.root = root;
    if (c->rank != root)
        return tcp_expect(t, root, &f, buf, f.bytes, e) < 0 ? -1 : tcp_wait(t, TCP_RECEIVED, e);
    for (uint32_t j = 0; j < c->size; j++)
        if (j != root && tcp_send(t, j, &f, buf, e) < 0)
            return -1;
    return tcp_wait(t, TCP_ALL, e);
}

/* Both ends name their frame a send. */
static struct frame pair_frame(const struct tcp *t, enum dtype d, size_t n)
{
    struct frame f = frame_of(t, d, n);
    f.op = COMM_SEND;
    return f;
}

static int tcp_send_to(struct comm *c, const void *buf, size_t n, enum dtype d, uint32_t to,
                       struct dev_stream *s, struct err *e)
{
    struct tcp *t = tcp_of(c);
    (void)s;
    if (to >= c->size || to == c->rank)
        return bad_member(c, "send to", to, e);
    struct tcp_peer *p = &t->peers[to];
    if (tcp_begin(t, COMM_SEND, ++p->n_sent, e) < 0)
        return -1;
    struct frame f = pair_frame(t, d, n);
    if (tcp_send(t, to, &f, buf, e) < 0)
        return -1;
    (void)conn_write(&p->conn); /* a fault shows below or in the next operation */
    if (!conn_sending(&p->conn))
        return 0;
    if (tcp_glance(t, e) < 0)
        return -1;
    return conn_sending(&p->conn) ? tcp_keep(t, to, e) : 0;
}

static int tcp_recv_from(struct comm *c, void *buf, size_t n, enum dtype d, uint32_t from,
                         struct dev_stream *s, struct err *e)
{
    struct tcp *t = tcp_of(c);
    (void)s;
    if (from >= c->size || from == c->rank)
        return bad_member(c, "receive from", from, e);
    if (tcp_begin(t, COMM_RECV, ++t->peers[from].n_received, e) < 0)
        return -1;
    struct frame f = pair_frame(t, d, n);
    if (tcp_expect(t, from, &f, buf, f.bytes, e) < 0)
        return -1;
    return tcp_wait(t, TCP_RECEIVED, e);
}

static int tcp_all_to_all_v(struct comm *c, const void *send, const size_t *n_send,
                            const size_t *at_send, void *recv, const size_t *n_recv,
                            const size_t *at_recv, enum dtype d, struct dev_stream *s,
                            struct err *e)
{
    struct tcp *t = tcp_of(c);
    const size_t width = dtype_bytes(d);
    const uint32_t me = c->rank;
    const char *from = send;
    char *to = recv;
    (void)s;
    if (n_send[me] != n_recv[me])
        return err_set(e, ERR_PROTOCOL, "all_to_all_v: %zu elements to itself, %zu from itself",
                       n_send[me], n_recv[me]);
    if (begin(t, COMM_ALL_TO_ALL_V, e) < 0)
        return -1;
    for (uint32_t j = 0; j < c->size; j++) {
        struct frame out = frame_of(t, d, n_send[j]), in = frame_of(t, d, n_recv[j]);
        if (j != me && (tcp_send(t, j, &out, from + at_send[j] * width, e) < 0 ||
                        tcp_expect(t, j, &in, to + at_recv[j] * width, in.bytes, e) < 0))
            return -1;
    }
    copy(to + at_recv[me] * width, from + at_send[me] * width, n_send[me] * width);
    return tcp_wait(t, TCP_ALL, e);
}

static int tcp_barrier(struct comm *c, struct dev_stream *s, struct err *e)
{
    struct tcp *t = tcp_of(c);
    (void)s;
    if (begin(t, COMM_BARRIER, e) < 0)
        return -1;
    struct frame up = frame_of(t, DT_U8, 0), down = up;
    down.part = 1;
    if (c->rank != 0) {
        if (tcp_send(t, 0, &up, NULL, e) < 0 || tcp_expect(t, 0, &down, NULL, 0, e) < 0)
            return -1;
        return tcp_wait(t, TCP_ALL, e);
    }
    for (uint32_t j = 1; j < c->size; j++)
        if (tcp_expect(t, j, &up, NULL, 0, e) < 0)
            return -1;
    if (tcp_wait(t, TCP_RECEIVED, e) < 0)
        return -1;
    for (uint32_t j = 1; j < c->size; j++)
        if (tcp_send(t, j, &down, NULL, e) < 0)
            return -1;
    return tcp_wait(t, TCP_ALL, e);
}

static void tcp_abort(struct comm *c)
{
    struct tcp *t = tcp_of(c);
    atomic_store(&t->aborted, true);
    (void)eventfd_write(t->abort_fd, 1);
}

static void tcp_free(struct comm *c)
{
    struct tcp *t = tcp_of(c), **at = &t->net->comms;
    if (!t->dead && !atomic_load(&t->aborted)) {
        /* What was sent is still delivered, if the peers take it soon. */
        if (t->now.timeout_ns > LINGER_NS || !t->now.timeout_ns)
            t->now.timeout_ns = LINGER_NS;
        t->now.moved_ns = clock_now_ns();
        (void)tcp_wait(t, TCP_ALL, NULL);
    }
    tcp_close(t);
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    own_fd(&t->abort_fd);
    free(t->polls.fds);
    free(t->scratch);
    free(t->inputs);
    free(t->peers);
    free(t->ranks);
    free(t);
}

static const struct comm_ops tcp_ops = {
    .name = "tcp",
    .all_reduce = tcp_all_reduce,
    .reduce_scatter = tcp_reduce_scatter,
    .all_gather = tcp_all_gather,
    .broadcast = tcp_broadcast,
    .send = tcp_send_to,
    .recv = tcp_recv_from,
    .all_to_all_v = tcp_all_to_all_v,
    .barrier = tcp_barrier,
    .abort = tcp_abort,
    .free = tcp_free,
};

struct comm *comm_tcp_new(struct comm_net *net, enum group_kind kind, const uint32_t *ranks,
                          uint32_t size, struct err *e)
{
    uint32_t me = size;
    for (uint32_t j = 0; j < size; j++) {
        if (ranks[j] >= net->world || (j && ranks[j] <= ranks[j - 1])) {
            (void)err_set(e, ERR_PROTOCOL, "%s group: its ranks are not ascending in 0..%u",
                          group_kind_name(kind), net->world - 1);
            return NULL;
        }
        if (ranks[j] == net->rank)
            me = j;
    }
    if (me == size) {
        (void)err_set(e, ERR_PROTOCOL, "%s group: rank %u is no member", group_kind_name(kind),
                      net->rank);
        return NULL;
    }
    int abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (abort_fd < 0) {
        (void)err_sys(e, "eventfd");
        return NULL;
    }
    struct tcp *t = xcalloc(1, sizeof *t);
    t->ranks = xmalloc(size * sizeof *t->ranks);
    memcpy(t->ranks, ranks, size * sizeof *t->ranks);
    t->comm = (struct comm){
        .ops = &tcp_ops, .kind = kind, .size = size, .rank = me, .ranks = t->ranks};
    t->net = net;
    t->abort_fd = abort_fd;
    t->peers = xcalloc(size, sizeof *t->peers);
    for (uint32_t j = 0; j < size; j++)
        conn_init(&t->peers[j].conn);
    t->inputs = xcalloc(size, sizeof *t->inputs);
    t->key = net_key_next(net, kind, ranks, size);
    t->next = net->comms;
    net->comms = t;
    return &t->comm;
}
