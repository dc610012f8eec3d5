/* net.h: inside comm_net (comm.h): how two ranks get one proven socket for one communicator.
 *
 * Of each pair the higher world rank dials and the lower listens, so no pair ever connects
 * twice.  Nothing here waits: fds go into the caller's poll and are served after it, whatever
 * communicator the caller waits for.  A socket that arrives for a communicator that does not
 * exist yet is kept until it does.
 *
 *   guest    an accepted socket that has not proven itself; few, and each only for a while
 *   arrival  a proven one, not yet claimed
 *   seek     a communicator's wish for a socket to one peer: dials, or waits for an arrival
 */
#ifndef DS_NET_NET_H
#define DS_NET_NET_H

#include "common/base/err.h"
#include "common/base/own.h"
#include "worker/comm.h"
#include "worker/net/addr.h"
#include "worker/net/hello.h"
#include "worker/net/pollset.h"

enum {
    NET_GUESTS_MAX = 256,
    NET_LOGGED_MAX = 20, /* refusals that are logged one by one */
};
#define NET_HELLO_NS (5 * 1000000000LL)  /* for a guest to say its hello */
#define NET_STAGGER_NS (200 * 1000000LL) /* between candidates, while none has answered */

struct tcp;

struct guest {
    struct guest *next;
    int fd, poll_at;
    bool welcome; /* hello was good; reply is sent, finish awaited */
    int64_t until_ns;
    struct addr from;
    struct hello hello;
    uint8_t said[HELLO_BYTES], reply[REPLY_BYTES], finish[FINISH_BYTES];
    size_t at;
};

struct arrival {
    struct arrival *next;
    int fd;
    uint32_t from;
    struct net_key key;
};

/* How many communicators of these ranks this process has made. */
struct key_count {
    struct key_count *next;
    struct net_key key; /* instance: of the next one */
};

struct comm_net {
    uint32_t world, rank, generation;
    uint8_t secret[HELLO_SECRET];
    int64_t timeout_ns;
    struct link *link; /* may be NULL */
    struct addr_list self;
    int listener[ADDR_MAX], listener_at[ADDR_MAX];
    char *self_text;
    struct addr_list **peers; /* [world], NULL until asked for */
    struct guest *guests;     /* newest first */
    size_t n_guests;
    struct arrival *arrivals;
    struct seek *seeks;
    struct tcp *comms; /* all that live: each wait drains what any of them still sends */
    struct key_count *keys;
    unsigned n_refused;
};

/* Adds every fd; returns when (clock.h) net_on_poll wants to be called at the latest. */
int64_t net_poll_add(struct comm_net *n, struct pollset *ps);
/* Serves them.  Strangers' faults are no errors. */
int net_on_poll(struct comm_net *n, const struct pollset *ps, struct err *e);
/* Where `rank` listens; asks the link the first time. */
const struct addr_list *net_peer(struct comm_net *n, uint32_t rank, struct err *e);
/* The key of a new communicator.  Members make theirs in the same order, so keys agree. */
struct net_key net_key_next(struct comm_net *n, enum group_kind kind, const uint32_t *ranks,
                            uint32_t size);
/* A socket of ours: non-blocking, no delay. */
void net_socket_options(int fd);

struct seek;
/* `key` is copied. */
struct seek *seek_new(struct comm_net *n, const struct net_key *key, uint32_t peer,
                      struct err *e);
void seek_free(struct seek *s);
/* Tries what can be tried at once. */
void seek_advance(struct seek *s);
/* The socket, the caller's from now on; -1 while there is none. */
int seek_take(struct seek *s);
/* NULL, or why there will be none. */
const struct err *seek_failed(const struct seek *s);
int64_t seek_poll_add(struct seek *s, struct pollset *ps);
void seek_on_poll(struct seek *s, const struct pollset *ps);
struct seek *seek_next(const struct seek *s); /* in net's list */

#endif
