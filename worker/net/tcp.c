#include "worker/net/tcp.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/link/page.h"
#include "worker/link.h"

/* Passes over the sockets before poll(2) is asked.  A yield lets the peer run that we wait for
 * where ranks share cores. */
enum { SPINS = 2, PASSES_MAX = 64 /* ... while something moves; the link is looked at too */ };

static void page_show(struct tcp *t)
{
    if (!t->net->link)
        return;
    struct page *p = link_page(t->net->link);
    atomic_store_explicit(&p->coll_group, (uint32_t)t->comm.kind, memory_order_relaxed);
    atomic_store_explicit(&p->coll_op, (uint32_t)t->now.op, memory_order_relaxed);
    atomic_store_explicit(&p->coll_seq, t->now.seq, memory_order_relaxed);
    atomic_store_explicit(&p->coll_peer, UINT32_MAX, memory_order_relaxed);
    link_beat(t->net->link);
}

static void page_waits(struct tcp *t, bool waits, uint32_t peer)
{
    if (!t->net->link)
        return;
    struct page *p = link_page(t->net->link);
    atomic_store_explicit(&p->coll_peer, peer, memory_order_relaxed);
    atomic_store_explicit(&p->waiting, waits, memory_order_relaxed);
}

void tcp_close(struct tcp *t)
{
    for (uint32_t j = 0; j < t->comm.size; j++) {
        conn_done(&t->peers[j].conn);
        seek_free(t->peers[j].seek);
        t->peers[j].seek = NULL;
    }
}

/* Puts the operation before the text, and ends the communicator. */
static int die(struct tcp *t, struct err *why, struct err *e)
{
    (void)err_wrap(why, "%s group, %s %llu", group_kind_name(t->comm.kind),
                   page_coll_name(t->now.op), (unsigned long long)t->now.seq);
    t->dead = true;
    t->why = *why;
    tcp_close(t);
    if (e)
        *e = *why;
    return -1;
}

static int die_by_peer(struct tcp *t, uint32_t j, struct err *why, struct err *e)
{
    page_waits(t, false, t->ranks[j]);
    return die(t, why, e);
}

static const char *op_text(const struct frame *f)
{
    return f->op < COMM_OP_COUNT ? page_coll_name(f->op) : "an unknown operation";
}

static int die_by_mismatch(struct tcp *t, uint32_t j, struct err *e)
{
    const struct frame *x = &t->peers[j].conn.in.expected, *g = &t->peers[j].conn.in.got;
    struct err why;
    if (g->magic != FRAME_MAGIC)
        (void)err_set(&why, ERR_PROTOCOL, "rank %u sent no frame", t->ranks[j]);
    else
        (void)err_set(
            &why, ERR_PROTOCOL,
            "rank %u is in %s %llu.%u (%llu bytes of %s, reduction %u, root %u), rank %u "
            "expects %s %llu.%u (%llu bytes of %s, reduction %u, root %u)",
            t->ranks[j], op_text(g), (unsigned long long)g->seq, g->part,
            (unsigned long long)g->bytes,
            g->dtype < DT_COUNT ? dtype_name((enum dtype)g->dtype) : "?", g->red, g->root,
            t->net->rank, op_text(x), (unsigned long long)x->seq, x->part,
            (unsigned long long)x->bytes, dtype_name((enum dtype)x->dtype), x->red, x->root);
    return die_by_peer(t, j, &why, e);
}

static int die_by_fault(struct tcp *t, uint32_t j, struct err *e)
{
    const struct conn *c = &t->peers[j].conn;
    struct err why;
    if (c->state == CONN_MISMATCH)
        return die_by_mismatch(t, j, e);
    (void)err_set(&why, ERR_NETWORK, "lost rank %u: %s", t->ranks[j],
                  c->error ? strerror(c->error) : "it closed the connection");
    return die_by_peer(t, j, &why, e);
}

static int die_aborted(struct tcp *t, struct err *e)
{
    struct err why;
    (void)err_set(&why, ERR_NETWORK, "aborted");
    return die(t, &why, e);
}

int tcp_begin(struct tcp *t, enum comm_op op, uint64_t seq, struct err *e)
{
    if (t->dead) {
        if (e)
            *e = t->why;
        return -1;
    }
    t->now.op = op;
    t->now.seq = seq;
    t->now.moved_ns = clock_now_ns();
    t->now.timeout_ns = t->net->timeout_ns;
    page_show(t);
    return atomic_load_explicit(&t->aborted, memory_order_relaxed) ? die_aborted(t, e) : 0;
}

/* Takes a socket that has come.  -1 and the reason if none will. */
static int settle(struct tcp_peer *p, struct err *ret)
{
    if (!p->seek)
        return 0;
    int fd = seek_take(p->seek);
    if (fd >= 0) {
        p->conn.fd = fd;
        p->conn.out.blocked = p->conn.in.blocked = false;
        seek_free(p->seek);
        p->seek = NULL;
        return 1;
    }
    const struct err *why = seek_failed(p->seek);
    if (!why)
        return 0;
    *ret = *why;
    return -1;
}

static int need(struct tcp *t, uint32_t j, struct err *e)
{
    struct tcp_peer *p = &t->peers[j];
    struct err why;
    if (p->conn.fd >= 0 || p->seek)
        return 0;
    p->seek = seek_new(t->net, &t->key, t->ranks[j], &why);
    if (!p->seek)
        return die_by_peer(t, j, &why, e);
    seek_advance(p->seek);
    return 0;
}

int tcp_send(struct tcp *t, uint32_t to, const struct frame *f, const void *data, struct err *e)
{
    if (need(t, to, e) < 0)
        return -1;
    conn_send(&t->peers[to].conn, f, data);
    return 0;
}

int tcp_expect(struct tcp *t, uint32_t from, const struct frame *f, void *dst, size_t n,
               struct err *e)
{
    if (need(t, from, e) < 0)
        return -1;
    conn_expect(&t->peers[from].conn, f, dst, n);
    return 0;
}

/* One pass over this communicator's sockets.  1: something moved. */
static int pass(struct tcp *t, struct err *e)
{
    bool moved = false;
    for (uint32_t j = 0; j < t->comm.size; j++) {
        struct tcp_peer *p = &t->peers[j];
        struct err why;
        int r = settle(p, &why);
        if (r < 0)
            return die_by_peer(t, j, &why, e);
        moved |= r > 0;
        moved |= conn_write(&p->conn) > 0;
        moved |= conn_read(&p->conn) > 0;
        if (p->conn.state != CONN_OK)
            return die_by_fault(t, j, e);
    }
    return moved;
}

/* What other communicators have queued goes out as well; their faults are theirs. */
static void pass_others(struct tcp *t)
{
    for (struct tcp *o = t->net->comms; o; o = o->next)
        if (o != t && !o->dead)
            (void)pass(o, NULL);
}

static bool waits_for(const struct tcp *t, uint32_t j, enum tcp_wait what)
{
    const struct conn *c = &t->peers[j].conn;
    return conn_receiving(c) || (what == TCP_ALL && conn_sending(c));
}

/* The first member that the operation waits for; size if none. */
static uint32_t first_missing(const struct tcp *t, enum tcp_wait what)
{
    uint32_t j = 0;
    while (j < t->comm.size && !waits_for(t, j, what))
        j++;
    return j;
}

static void poll_add(struct tcp *o, struct pollset *ps)
{
    for (uint32_t j = 0; j < o->comm.size; j++) {
        struct conn *c = &o->peers[j].conn;
        int events = (conn_receiving(c) ? POLLIN : 0) | (conn_sending(c) ? POLLOUT : 0);
        c->poll_at = c->fd >= 0 && events ? pollset_add(ps, c->fd, (short)events) : -1;
    }
}

static void on_poll(struct tcp *o, const struct pollset *ps)
{
    for (uint32_t j = 0; j < o->comm.size; j++) {
        struct conn *c = &o->peers[j].conn;
        short got = pollset_got(ps, c->poll_at);
        if (got & (POLLIN | POLLHUP | POLLERR))
            c->in.blocked = false;
        if (got & (POLLOUT | POLLHUP | POLLERR))
            c->out.blocked = false;
    }
}

/* Milliseconds from now, rounded up; 0 or more. */
static int until_ms(int64_t at_ns, int64_t now)
{
    int64_t ms = at_ns <= now ? 0 : (at_ns - now + NS_PER_MS - 1) / NS_PER_MS;
    return ms > 60000 ? 60000 : (int)ms;
}

/* One poll(2), until `deadline_ns` at most. */
static int poll_once(struct tcp *t, int64_t deadline_ns, struct err *e)
{
    struct pollset *ps = &t->polls;
    int link_at = -1;
    ps->n = 0;
    if (t->net->link && link_fd(t->net->link) >= 0)
        link_at = pollset_add(ps, link_fd(t->net->link), POLLIN);
    int abort_at = pollset_add(ps, t->abort_fd, POLLIN);
    for (struct tcp *o = t->net->comms; o; o = o->next)
        poll_add(o, ps);
    int64_t at = net_poll_add(t->net, ps);
    struct err why;
    if (poll(ps->fds, ps->n, until_ms(at < deadline_ns ? at : deadline_ns, clock_now_ns())) <
        0) {
        if (errno == EINTR)
            return 0;
        (void)err_sys(&why, "poll");
        return die(t, &why, e);
    }
    if (pollset_got(ps, abort_at))
        return die_aborted(t, e);
    if (pollset_got(ps, link_at) && link_poll(t->net->link, &why) < 0)
        return die(t, &why, e);
    if (net_on_poll(t->net, ps, &why) < 0)
        return die(t, &why, e);
    for (struct tcp *o = t->net->comms; o; o = o->next)
        on_poll(o, ps);
    return 0;
}

/* Nothing moved: waits for more, within the deadline. */
static int sleep_for(struct tcp *t, enum tcp_wait what, struct err *e)
{
    uint32_t j = first_missing(t, what);
    int64_t deadline = t->now.moved_ns + t->now.timeout_ns;
    if (clock_now_ns() >= deadline) {
        const struct tcp_peer *p = &t->peers[j];
        struct err why;
        (void)err_set(&why, ERR_NETWORK, "%s rank %u for %.1f s%s",
                      conn_receiving(&p->conn) ? "nothing came from" : "nothing was taken by",
                      t->ranks[j], (double)t->now.timeout_ns / NS_PER_S,
                      p->conn.fd < 0 ? " (it has not connected)" : "");
        return die_by_peer(t, j, &why, e);
    }
    page_waits(t, true, t->ranks[j]);
    return poll_once(t, deadline, e);
}

static void unblock(struct tcp *t)
{
    for (uint32_t j = 0; j < t->comm.size; j++)
        t->peers[j].conn.in.blocked = false;
}

int tcp_glance(struct tcp *t, struct err *e)
{
    pass_others(t);
    if (poll_once(t, 0, e) < 0)
        return -1;
    return pass(t, e) < 0 ? -1 : 0;
}

int tcp_keep(struct tcp *t, uint32_t to, struct err *e)
{
    struct err why;
    return conn_keep(&t->peers[to].conn, &why) < 0 ? die(t, &why, e) : 0;
}

static int wait_for(struct tcp *t, enum tcp_wait what, struct err *e)
{
    for (int spins = 0, passes = 1;; passes++) {
        int r = pass(t, e);
        if (r < 0)
            return -1;
        if (first_missing(t, what) == t->comm.size)
            break;
        if (r > 0) {
            t->now.moved_ns = clock_now_ns();
            spins = 0;
            if (passes % PASSES_MAX == 0 && tcp_glance(t, e) < 0)
                return -1;
        } else if (spins++ < SPINS) {
            (void)sched_yield();
            unblock(t);
        } else {
            pass_others(t);
            if (sleep_for(t, what, e) < 0)
                return -1;
        }
    }
    page_waits(t, false, UINT32_MAX);
    return 0;
}

int tcp_wait(struct tcp *t, enum tcp_wait what, struct err *e)
{
    int64_t t0 = clock_now_ns();
    int r = wait_for(t, what, e);
    t->comm.spent_ns += clock_now_ns() - t0;
    return r;
}

int tcp_scratch(struct tcp *t, size_t bytes, char **ret, struct err *e)
{
    if (bytes > t->scratch_bytes) {
        char *p = realloc(t->scratch, bytes);
        if (!p) {
            struct err why;
            (void)err_set(&why, ERR_MEMORY, "no memory for %zu bytes of received shards",
                          bytes);
            return die(t, &why, e);
        }
        t->scratch = p;
        t->scratch_bytes = bytes;
    }
    *ret = t->scratch;
    return 0;
}
