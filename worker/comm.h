/* comm.h: communicators of a group of ranks, as one struct of functions per transport.
 *
 * A communicator is made for one group (topo.h) of one generation.  Every member calls the same
 * collectives in the same order.  An operation is given to a stream and runs in its order;
 * buffers stay valid and untouched until the stream has passed it.  (comm_tcp finishes before
 * it returns, but for send, which never waits for the receiver: what the socket does not take
 * is copied.)
 *
 * Order of sums: element i of a reduction is x_0[i] + x_1[i] + ... by rank in the group,
 * always, so results are the same bits on every member and in every run.
 *
 * Ranks given to an operation (root, to, from) are indices in the group.
 *
 * Every wait has a deadline (timeout_ns since anything moved last) and looks at the link and at
 * `abort`.  A peer that closed, or a wait that ran out, is ERR_NETWORK and names the world
 * rank, which also stands in the page's coll_peer; the communicator is dead after, and so is
 * the generation.  One thread.
 */
#ifndef DS_WORKER_COMM_H
#define DS_WORKER_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/dtype.h"
#include "common/base/own.h"
#include "common/shape/topo.h"

struct comm;
struct dev_stream;
struct err;
struct link;

enum comm_red { COMM_SUM, COMM_MAX, COMM_MIN };
/* page_coll_name names them. */
enum comm_op {
    COMM_ALL_REDUCE,
    COMM_REDUCE_SCATTER,
    COMM_ALL_GATHER,
    COMM_BROADCAST,
    COMM_SEND,
    COMM_RECV,
    COMM_ALL_TO_ALL_V,
    COMM_BARRIER,
    COMM_OP_COUNT
};

struct comm_ops {
    const char *name; /* "tcp" */
    /* In place on buf[n]. */
    int (*all_reduce)(struct comm *c, void *buf, size_t n, enum dtype t, enum comm_red r,
                      struct dev_stream *s, struct err *e);
    /* send[size * n] -> recv[n], this rank's part.  recv may be send + rank * n. */
    int (*reduce_scatter)(struct comm *c, const void *send, void *recv, size_t n, enum dtype t,
                          enum comm_red r, struct dev_stream *s, struct err *e);
    /* send[n] -> recv[size * n].  send may be recv + rank * n. */
    int (*all_gather)(struct comm *c, const void *send, void *recv, size_t n, enum dtype t,
                      struct dev_stream *s, struct err *e);
    int (*broadcast)(struct comm *c, void *buf, size_t n, enum dtype t, uint32_t root,
                     struct dev_stream *s, struct err *e);
    int (*send)(struct comm *c, const void *buf, size_t n, enum dtype t, uint32_t to,
                struct dev_stream *s, struct err *e);
    int (*recv)(struct comm *c, void *buf, size_t n, enum dtype t, uint32_t from,
                struct dev_stream *s, struct err *e);
    /* Counts and displacements in elements, one per member. */
    int (*all_to_all_v)(struct comm *c, const void *send, const size_t *n_send,
                        const size_t *at_send, void *recv, const size_t *n_recv,
                        const size_t *at_recv, enum dtype t, struct dev_stream *s,
                        struct err *e);
    int (*barrier)(struct comm *c, struct dev_stream *s, struct err *e);
    /* Every operation, running or later, fails soon.  Any thread. */
    void (*abort)(struct comm *c);
    void (*free)(struct comm *c);
};

/* The head of every transport's struct. */
struct comm {
    const struct comm_ops *ops;
    enum group_kind kind;
    uint32_t size, rank;   /* members; this one's index */
    const uint32_t *ranks; /* [size] world ranks, ascending; owned by the transport */
    uint64_t seq;          /* number of the last collective, from 1; sends and receives are
                              numbered per pair */
    int64_t spent_ns;      /* waiting inside operations, in all */
};

static inline void comm_free(struct comm *c)
{
    if (c)
        c->ops->free(c);
}
OWN(comm);

/* How this process reaches others: one per process and generation, made before the barrier. */
struct comm_net;

struct comm_net_params {
    uint32_t world, rank, generation;
    const uint8_t *secret; /* [32], borrowed during comm_net_new */
    const char *host_id;   /* peers with the same id are reached by loopback */
    const char *interface; /* "auto", a CIDR or a name */
    int64_t timeout_ns;    /* of each wait, and of connecting */
    struct link *link;     /* polled while waiting, its page kept; NULL in tests */
};

/* Binds a listening port on every candidate address and puts "addr.<rank>" (candidates and
 * port) through `link`; no peer is contacted.  `self_text` receives what was put, for tests
 * without a link (owned by the net). */
struct comm_net *comm_net_new(const struct comm_net_params *p, const char **ret_self_text,
                              struct err *e);
/* For tests: tells where `rank` listens, instead of asking the link. */
int comm_net_peer(struct comm_net *net, uint32_t rank, const char *text, struct err *e);
/* Its communicators are freed before. */
void comm_net_free(struct comm_net *net);
OWN(comm_net);

/* Connections are made lazily, one per pair and group, at the first operation that needs them;
 * each begins with an HMAC-SHA256 challenge both ways over (secret, generation, group, ranks).
 */
struct comm *comm_tcp_new(struct comm_net *net, enum group_kind kind, const uint32_t *ranks,
                          uint32_t size, struct err *e);

#endif
