/* net.c: listening, and letting in who proves to belong.
 *
 * A stranger can take one of NET_GUESTS_MAX places for NET_HELLO_NS, no more: when all are
 * taken, the oldest guest without a good hello leaves.  What has a good hello may take as long
 * as a wait may, since its rank may be computing.
 */
#include "worker/net/net.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/link.h"

void net_socket_options(int fd)
{
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* -1 with errno: the address cannot be bound (it may be tentative, or just have gone). */
static int listen_on(struct addr *a)
{
    int one = 1;
    socklen_t len = addr_len(a);
    AUTO_CLOSE int fd =
        socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd < 0)
        return -1;
    if (a->sa.sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, &a->sa, len) < 0 || listen(fd, 4096) < 0 || getsockname(fd, &a->sa, &len) < 0)
        return -1;
    return TAKE_FD(fd);
}

static int listen_all(struct comm_net *n, const char *interface, struct err *e)
{
    struct addr_list all = {0};
    int why = 0;
    if (addr_candidates(interface, &all, e) < 0)
        return -1;
    for (size_t i = 0; i < all.n; i++) {
        struct addr a = all.at[i];
        int fd = listen_on(&a);
        if (fd < 0) {
            char text[ADDR_TEXT];
            why = errno;
            log_debug("cannot listen on %s: %s", addr_text(&a, text), strerror(errno));
            continue;
        }
        n->listener[n->self.n] = fd;
        n->self.at[n->self.n++] = a;
    }
    errno = why;
    return n->self.n ? 0 : err_sys(e, "cannot listen on any address of this host");
}

struct comm_net *comm_net_new(const struct comm_net_params *p, const char **ret_self_text,
                              struct err *e)
{
    AUTO(comm_net) struct comm_net *n = xcalloc(1, sizeof *n);
    *n = (struct comm_net){.world = p->world,
                           .rank = p->rank,
                           .generation = p->generation,
                           .timeout_ns = p->timeout_ns,
                           .link = p->link};
    memcpy(n->secret, p->secret, sizeof n->secret);
    n->peers = xcalloc(p->world, sizeof(struct addr_list *));
    if (strlen(p->host_id) >= sizeof n->self.host_id) {
        (void)err_set(e, ERR_PROTOCOL, "a host id of %zu bytes", strlen(p->host_id));
        return NULL;
    }
    (void)snprintf(n->self.host_id, sizeof n->self.host_id, "%s", p->host_id);
    /* One rank alone talks to nobody. */
    if (p->world > 1 && listen_all(n, p->interface, e) < 0)
        return NULL;
    AUTO_BUF struct buf text = BUF(ADDR_LIST_TEXT);
    addr_list_text(&n->self, &text);
    n->self_text = buf_take(&text);
    if (p->link) {
        char key[32];
        (void)snprintf(key, sizeof key, "addr.%u", p->rank);
        if (link_put(p->link, key, n->self_text, strlen(n->self_text), e) < 0)
            return NULL;
    }
    if (ret_self_text)
        *ret_self_text = n->self_text;
    return TAKE(n);
}

static void guest_drop(struct comm_net *n, struct guest **at)
{
    struct guest *g = *at;
    *at = g->next;
    n->n_guests--;
    own_fd(&g->fd);
    free(g);
}

void comm_net_free(struct comm_net *n)
{
    if (!n)
        return;
    assert(!n->comms && !n->seeks);
    while (n->guests)
        guest_drop(n, &n->guests);
    while (n->arrivals) {
        struct arrival *a = n->arrivals;
        n->arrivals = a->next;
        own_fd(&a->fd);
        free(a);
    }
    while (n->keys) {
        struct key_count *k = n->keys;
        n->keys = k->next;
        free(k);
    }
    for (size_t i = 0; i < n->self.n; i++)
        (void)close(n->listener[i]);
    for (uint32_t r = 0; r < n->world; r++)
        free(n->peers[r]);
    free(n->peers);
    free(n->self_text);
    OPENSSL_cleanse(n->secret, sizeof n->secret);
    free(n);
}

int comm_net_peer(struct comm_net *n, uint32_t rank, const char *text, struct err *e)
{
    AUTO_FREE struct addr_list *l = xmalloc(sizeof *l);
    if (rank >= n->world)
        return err_set(e, ERR_PROTOCOL, "no rank %u among %u", rank, n->world);
    if (addr_list_parse(text, strlen(text), l, e) < 0)
        return err_wrap(e, "rank %u", rank);
    free(n->peers[rank]);
    n->peers[rank] = TAKE(l);
    return 0;
}

const struct addr_list *net_peer(struct comm_net *n, uint32_t rank, struct err *e)
{
    if (n->peers[rank])
        return n->peers[rank];
    if (!n->link) {
        (void)err_set(e, ERR_PROTOCOL, "nobody told where rank %u listens", rank);
        return NULL;
    }
    char key[32];
    AUTO_BUF struct buf text = BUF(ADDR_LIST_TEXT);
    (void)snprintf(key, sizeof key, "addr.%u", rank);
    if (link_get(n->link, key, &text, clock_now_ns() + n->timeout_ns, e) < 0 ||
        comm_net_peer(n, rank, buf_str(&text), e) < 0)
        return NULL;
    return n->peers[rank];
}

struct net_key net_key_next(struct comm_net *n, enum group_kind kind, const uint32_t *ranks,
                            uint32_t size)
{
    struct net_key key = {.kind = (uint32_t)kind, .size = size};
    net_key_digest(ranks, size, key.digest);
    for (struct key_count *k = n->keys; k; k = k->next) {
        key.instance = k->key.instance;
        if (net_key_same(&k->key, &key)) {
            k->key.instance++;
            return key;
        }
    }
    key.instance = 0;
    struct key_count *k = xcalloc(1, sizeof *k);
    *k = (struct key_count){.next = n->keys, .key = key};
    k->key.instance = 1;
    n->keys = k;
    return key;
}

static void log_refusal(struct comm_net *n, const struct guest *g, const char *why)
{
    char text[ADDR_TEXT];
    if (n->n_refused++ < NET_LOGGED_MAX)
        log_warn("refused a connection from %s: %s%s", addr_text(&g->from, text), why,
                 n->n_refused == NET_LOGGED_MAX ? " (further refusals are not logged)" : "");
}

static enum hello_answer judge(const struct comm_net *n, struct guest *g)
{
    enum hello_answer a = hello_read(g->said, n->secret, &g->hello);
    if (a != HELLO_YES)
        return a;
    if (g->hello.generation != n->generation)
        return HELLO_GENERATION;
    if (g->hello.to != n->rank || g->hello.from >= n->world || g->hello.from <= n->rank)
        return HELLO_BAD_RANK;
    return HELLO_YES;
}

static void refuse(struct comm_net *n, const struct guest *g, enum hello_answer a)
{
    char text[96];
    switch (a) {
    case HELLO_GENERATION:
        (void)snprintf(text, sizeof text, "rank %u of generation %u, ours is %u", g->hello.from,
                       g->hello.generation, n->generation);
        break;
    case HELLO_BAD_RANK:
        (void)snprintf(text, sizeof text, "rank %u that wants rank %u, this is %u",
                       g->hello.from, g->hello.to, n->rank);
        break;
    case HELLO_BAD_KEY:
        (void)snprintf(text, sizeof text, "wrong key");
        break;
    case HELLO_BAD_FORM:
    case HELLO_YES:
    case HELLO_ANSWER_COUNT:
    default:
        (void)snprintf(text, sizeof text, "not a worker of this program");
        break;
    }
    log_refusal(n, g, text);
}

/* Reads what is missing of `want` bytes.  1 complete, 0 not yet, -1 gone. */
static int read_part(struct guest *g, uint8_t *into, size_t want)
{
    while (g->at < want) {
        ssize_t k = recv(g->fd, into + g->at, want - g->at, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (k <= 0)
            return -1;
        g->at += (size_t)k;
    }
    return 1;
}

static int on_hello(struct comm_net *n, struct guest *g)
{
    enum hello_answer a = judge(n, g);
    reply_write(a, n->generation, g->said, n->secret, g->reply);
    ssize_t k = send(g->fd, g->reply, REPLY_BYTES, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (a != HELLO_YES) {
        refuse(n, g, a);
        return -1;
    }
    if (k != REPLY_BYTES)
        return -1;
    g->welcome = true;
    g->at = 0;
    g->until_ns = clock_now_ns() + n->timeout_ns;
    return 0;
}

/* As far as the guest's bytes go.  1: it is proven; -1: it leaves. */
static int guest_advance(struct comm_net *n, struct guest *g)
{
    if (!g->welcome) {
        int r = read_part(g, g->said, HELLO_BYTES);
        if (r <= 0)
            return r;
        if (on_hello(n, g) < 0)
            return -1;
    }
    int r = read_part(g, g->finish, FINISH_BYTES);
    if (r <= 0)
        return r;
    uint8_t want[FINISH_BYTES];
    finish_write(g->said, g->reply, n->secret, want);
    if (CRYPTO_memcmp(want, g->finish, FINISH_BYTES) == 0)
        return 1;
    log_refusal(n, g, "wrong proof");
    return -1;
}

static void guest_arrives(struct comm_net *n, struct guest *g)
{
    struct arrival *a = xcalloc(1, sizeof *a), **end = &n->arrivals;
    *a = (struct arrival){.fd = TAKE_FD(g->fd), .from = g->hello.from, .key = g->hello.key};
    while (*end)
        end = &(*end)->next;
    *end = a;
}

static void make_room(struct comm_net *n)
{
    struct guest **oldest = NULL;
    for (struct guest **g = &n->guests; *g; g = &(*g)->next)
        if (!(*g)->welcome)
            oldest = g;
    if (!oldest)
        return;
    log_refusal(n, *oldest, "too many connections without a hello");
    guest_drop(n, oldest);
}

static int accept_all(struct comm_net *n, int listener, struct err *e)
{
    for (;;) {
        struct addr from = {0};
        socklen_t len = sizeof from;
        int fd = accept4(listener, &from.sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                return err_sys(e, "accept");
            return 0; /* no more, or the network's passing trouble: accept(2) */
        }
        if (n->n_guests >= NET_GUESTS_MAX)
            make_room(n);
        if (n->n_guests >= NET_GUESTS_MAX) {
            (void)close(fd); /* all have shown a good hello; the caller tries again */
            continue;
        }
        net_socket_options(fd);
        struct guest *g = xcalloc(1, sizeof *g);
        *g = (struct guest){.next = n->guests,
                            .fd = fd,
                            .poll_at = -1,
                            .until_ns = clock_now_ns() + NET_HELLO_NS,
                            .from = from};
        n->guests = g;
        n->n_guests++;
    }
}

int64_t net_poll_add(struct comm_net *n, struct pollset *ps)
{
    int64_t at = INT64_MAX;
    for (size_t i = 0; i < n->self.n; i++)
        n->listener_at[i] = pollset_add(ps, n->listener[i], POLLIN);
    for (struct guest *g = n->guests; g; g = g->next) {
        g->poll_at = pollset_add(ps, g->fd, POLLIN);
        if (g->until_ns < at)
            at = g->until_ns;
    }
    for (struct seek *s = n->seeks; s; s = seek_next(s)) {
        int64_t t = seek_poll_add(s, ps);
        if (t < at)
            at = t;
    }
    return at;
}

int net_on_poll(struct comm_net *n, const struct pollset *ps, struct err *e)
{
    for (size_t i = 0; i < n->self.n; i++)
        if (pollset_got(ps, n->listener_at[i]) && accept_all(n, n->listener[i], e) < 0)
            return -1;
    int64_t now = n->guests ? clock_now_ns() : 0;
    for (struct guest **at = &n->guests; *at;) {
        struct guest *g = *at;
        /* A new guest has no place in the poll; its hello is mostly there already. */
        int r = g->poll_at < 0 || pollset_got(ps, g->poll_at) ? guest_advance(n, g) : 0;
        if (r == 0 && now >= g->until_ns) {
            log_refusal(n, g, g->welcome ? "no proof in time" : "no hello in time");
            r = -1;
        }
        if (r > 0)
            guest_arrives(n, g);
        if (r != 0)
            guest_drop(n, at);
        else
            at = &g->next;
    }
    for (struct seek *s = n->seeks; s; s = seek_next(s))
        seek_on_poll(s, ps);
    return 0;
}
