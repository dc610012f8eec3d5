/* seek.c: getting a proven socket to one peer.
 *
 * Candidates are dialled in order, a new one whenever the last has failed or said nothing for
 * NET_STAGGER_NS; the first whose reply proves the secret wins and the others are closed.  A
 * refused connect ends a candidate: ports are bound before they are announced, so nobody is
 * there any more.  A listener that closed during the hello is tried again (it may have lacked
 * room), a few times.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "worker/net/net.h"

enum { TRIES_MAX = 8 };
#define RETRY_NS (20 * NS_PER_MS) /* doubled each time */

enum attempt_state { ATTEMPT_IDLE, ATTEMPT_CONNECT, ATTEMPT_REPLY, ATTEMPT_DEAD };

struct attempt {
    struct addr to;
    enum attempt_state state;
    int fd, poll_at;
    unsigned tries;
    int64_t start_ns; /* IDLE: not before */
    size_t at;
    uint8_t hello[HELLO_BYTES], reply[REPLY_BYTES];
};

struct seek {
    struct seek *next;
    struct comm_net *net;
    struct net_key key;
    uint32_t peer;
    int fd;
    bool failed;
    enum err_kind kind; /* of the failure, once all attempts are dead */
    struct err why;
    struct buf reasons;
    size_t n;
    struct attempt at[];
};

struct seek *seek_next(const struct seek *s)
{
    return s->next;
}

/* Peers on this host are reached by loopback and others never; one loopback address is enough.
 */
static size_t choose(const struct comm_net *n, const struct addr_list *l,
                     const struct addr **to)
{
    bool near = strcmp(l->host_id, n->self.host_id) == 0;
    size_t k = 0;
    for (size_t i = 0; i < l->n; i++)
        if (addr_is_loopback(&l->at[i]) == near && !(near && k))
            to[k++] = &l->at[i];
    if (near && !k) /* lo is down: the host's other addresses work as well */
        for (size_t i = 0; i < l->n; i++)
            to[k++] = &l->at[i];
    return k;
}

struct seek *seek_new(struct comm_net *n, const struct net_key *key, uint32_t peer,
                      struct err *e)
{
    const struct addr *to[ADDR_MAX];
    size_t k = 0;
    if (peer < n->rank) {
        const struct addr_list *l = net_peer(n, peer, e);
        if (!l)
            return NULL;
        k = choose(n, l, to);
        if (!k) {
            (void)err_set(e, ERR_NETWORK, "rank %u offers no address for other hosts", peer);
            return NULL;
        }
    }
    struct seek *s = xcalloc(1, sizeof *s + k * sizeof s->at[0]);
    *s = (struct seek){.next = n->seeks,
                       .net = n,
                       .key = *key,
                       .peer = peer,
                       .fd = -1,
                       .kind = ERR_NETWORK,
                       .reasons = BUF(600),
                       .n = k};
    n->seeks = s;
    int64_t now = clock_now_ns();
    for (size_t i = 0; i < k; i++)
        s->at[i] = (struct attempt){.to = *to[i],
                                    .fd = -1,
                                    .poll_at = -1,
                                    .start_ns = now + (int64_t)i * NET_STAGGER_NS};
    return s;
}

static void attempt_close(struct attempt *a, enum attempt_state next)
{
    own_fd(&a->fd);
    a->fd = a->poll_at = -1;
    a->at = 0;
    a->state = next;
}

void seek_free(struct seek *s)
{
    if (!s)
        return;
    struct seek **at = &s->net->seeks;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    for (size_t i = 0; i < s->n; i++)
        attempt_close(&s->at[i], ATTEMPT_DEAD);
    own_fd(&s->fd);
    buf_done(&s->reasons);
    free(s);
}

static void attempt_fails(struct seek *s, struct attempt *a, const char *why)
{
    char text[ADDR_TEXT];
    attempt_close(a, ATTEMPT_DEAD);
    (void)buf_printf(&s->reasons, "%s%s: %s", s->reasons.len ? "; " : "",
                     addr_text(&a->to, text), why);
    /* The next in line need not wait its turn. */
    for (size_t i = 0; i < s->n; i++) {
        if (s->at[i].state == ATTEMPT_IDLE && !s->at[i].tries) {
            s->at[i].start_ns = 0;
            break;
        }
    }
}

static void attempt_lost(struct seek *s, struct attempt *a, int error)
{
    const char *why = error ? strerror(error) : "closed during the hello";
    if (++a->tries >= TRIES_MAX) {
        attempt_fails(s, a, why);
        return;
    }
    attempt_close(a, ATTEMPT_IDLE);
    a->start_ns = clock_now_ns() + (RETRY_NS << a->tries);
}

static void attempt_hello(struct seek *s, struct attempt *a)
{
    struct hello h = {
        .generation = s->net->generation, .from = s->net->rank, .to = s->peer, .key = s->key};
    net_socket_options(a->fd);
    hello_write(&h, s->net->secret, a->hello);
    /* The first bytes on a new socket always fit. */
    if (send(a->fd, a->hello, HELLO_BYTES, MSG_DONTWAIT | MSG_NOSIGNAL) != HELLO_BYTES) {
        attempt_lost(s, a, errno);
        return;
    }
    a->state = ATTEMPT_REPLY;
}

static void attempt_start(struct seek *s, struct attempt *a)
{
    a->fd = socket(a->to.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (a->fd < 0) {
        attempt_fails(s, a, strerror(errno));
        return;
    }
    a->state = ATTEMPT_CONNECT;
    if (connect(a->fd, &a->to.sa, addr_len(&a->to)) == 0)
        attempt_hello(s, a);
    else if (errno != EINPROGRESS)
        attempt_fails(s, a, strerror(errno));
}

static void attempt_connected(struct seek *s, struct attempt *a)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    if (error)
        attempt_fails(s, a, strerror(error));
    else
        attempt_hello(s, a);
}

static void attempt_wins(struct seek *s, struct attempt *a)
{
    uint8_t finish[FINISH_BYTES];
    finish_write(a->hello, a->reply, s->net->secret, finish);
    if (send(a->fd, finish, FINISH_BYTES, MSG_DONTWAIT | MSG_NOSIGNAL) != FINISH_BYTES) {
        attempt_lost(s, a, errno);
        return;
    }
    s->fd = TAKE_FD(a->fd);
    for (size_t i = 0; i < s->n; i++)
        attempt_close(&s->at[i], ATTEMPT_DEAD);
}

static void attempt_answered(struct seek *s, struct attempt *a)
{
    uint32_t generation = 0;
    char text[80];
    switch (reply_read(a->reply, a->hello, s->net->secret, &generation)) {
    case HELLO_YES:
        attempt_wins(s, a);
        return;
    case HELLO_GENERATION:
        s->kind = ERR_PROTOCOL;
        (void)snprintf(text, sizeof text, "it is of generation %u, this rank of %u", generation,
                       s->net->generation);
        attempt_fails(s, a, text);
        return;
    case HELLO_BAD_KEY:
        s->kind = ERR_PROTOCOL;
        attempt_fails(s, a, "the two do not share the job's key");
        return;
    case HELLO_BAD_RANK:
        attempt_fails(s, a, "another rank listens there");
        return;
    case HELLO_BAD_FORM:
    case HELLO_ANSWER_COUNT:
    default:
        attempt_fails(s, a, "no worker listens there");
        return;
    }
}

static void attempt_read(struct seek *s, struct attempt *a)
{
    while (a->at < REPLY_BYTES) {
        ssize_t k = recv(a->fd, a->reply + a->at, REPLY_BYTES - a->at, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (k <= 0) {
            attempt_lost(s, a, k < 0 ? errno : 0);
            return;
        }
        a->at += (size_t)k;
    }
    attempt_answered(s, a);
}

static void claim_arrival(struct seek *s)
{
    for (struct arrival **at = &s->net->arrivals; *at; at = &(*at)->next) {
        struct arrival *a = *at;
        if (a->from != s->peer || !net_key_same(&a->key, &s->key))
            continue;
        s->fd = a->fd;
        *at = a->next;
        free(a);
        return;
    }
}

void seek_advance(struct seek *s)
{
    if (s->fd >= 0 || s->failed)
        return;
    if (s->peer > s->net->rank) {
        claim_arrival(s);
        return;
    }
    int64_t now = clock_now_ns();
    bool alive = false;
    for (size_t i = 0; i < s->n && s->fd < 0; i++) {
        struct attempt *a = &s->at[i];
        if (a->state == ATTEMPT_IDLE && now >= a->start_ns)
            attempt_start(s, a);
        alive |= a->state != ATTEMPT_DEAD;
    }
    if (alive || s->fd >= 0)
        return;
    s->failed = true;
    (void)err_set(&s->why, s->kind, "rank %u cannot be reached: %s", s->peer,
                  buf_str(&s->reasons));
}

int seek_take(struct seek *s)
{
    return TAKE_FD(s->fd);
}

const struct err *seek_failed(const struct seek *s)
{
    return s->failed ? &s->why : NULL;
}

int64_t seek_poll_add(struct seek *s, struct pollset *ps)
{
    int64_t at = INT64_MAX;
    for (size_t i = 0; i < s->n; i++) {
        struct attempt *a = &s->at[i];
        a->poll_at = -1;
        if (a->state == ATTEMPT_CONNECT)
            a->poll_at = pollset_add(ps, a->fd, POLLOUT);
        else if (a->state == ATTEMPT_REPLY)
            a->poll_at = pollset_add(ps, a->fd, POLLIN);
        else if (a->state == ATTEMPT_IDLE && a->start_ns < at)
            at = a->start_ns;
    }
    return at;
}

void seek_on_poll(struct seek *s, const struct pollset *ps)
{
    for (size_t i = 0; i < s->n && s->fd < 0; i++) {
        struct attempt *a = &s->at[i];
        if (!pollset_got(ps, a->poll_at))
            continue;
        if (a->state == ATTEMPT_CONNECT)
            attempt_connected(s, a);
        else if (a->state == ATTEMPT_REPLY)
            attempt_read(s, a);
    }
    seek_advance(s);
}
