/* tcp.h: inside comm_tcp: one communicator's connections, and the one place where it waits.
 *
 * An operation begins (tcp_begin), orders frames to and from peers, and waits for what it
 * ordered.  While it waits it serves both directions of all its peers, whatever any
 * communicator of this process has still to send, newcomers (net.h), the link and the abort
 * flag; so no order of operations among ranks that is right can block here.
 *
 * After a failure the communicator is dead: its sockets are closed, so that peers learn of it
 * at once, and every later operation fails with the same text.
 */
#ifndef DS_NET_TCP_H
#define DS_NET_TCP_H

#include <stdatomic.h>

#include "worker/net/conn.h"
#include "worker/net/net.h"

struct tcp_peer {
    struct conn conn;
    struct seek *seek;           /* while there is no socket but one is needed */
    uint64_t n_sent, n_received; /* sends and receives, not collectives */
};

struct tcp {
    struct comm comm;
    struct tcp *next; /* in net->comms */
    struct comm_net *net;
    struct net_key key;
    uint32_t *ranks;
    struct tcp_peer *peers; /* [size]; its own is unused */
    const void **inputs;    /* [size], for reduce_in_order */
    char *scratch;
    size_t scratch_bytes;
    struct pollset polls;
    _Atomic bool aborted;
    int abort_fd; /* an eventfd, readable once aborted */
    bool dead;
    struct err why;
    struct {
        enum comm_op op;
        uint64_t seq;
        int64_t moved_ns; /* when something moved last */
        int64_t timeout_ns;
    } now;
};

enum tcp_wait { TCP_RECEIVED, TCP_ALL }; /* all that was ordered to come; and to go, too */

int tcp_begin(struct tcp *t, enum comm_op op, uint64_t seq, struct err *e);
/* Orders.  `data` and `dst` stay valid until waited for. */
int tcp_send(struct tcp *t, uint32_t to, const struct frame *f, const void *data,
             struct err *e);
int tcp_expect(struct tcp *t, uint32_t from, const struct frame *f, void *dst, size_t n,
               struct err *e);
/* Copies what is still to go to `to`: its buffers are the caller's again. */
int tcp_keep(struct tcp *t, uint32_t to, struct err *e);
int tcp_wait(struct tcp *t, enum tcp_wait what, struct err *e);
/* Moves what can be moved now; never waits. */
int tcp_glance(struct tcp *t, struct err *e);
/* Room for `bytes`, until the next call. */
int tcp_scratch(struct tcp *t, size_t bytes, char **ret, struct err *e);
void tcp_close(struct tcp *t);

#endif
