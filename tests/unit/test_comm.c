/* comm_tcp among 1 to 8 processes on this host: every operation against what it must give, the
 * order of sums bit for bit, and each way in which a peer can fail. */
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/link/page.h"
#include "worker/comm.h"
#include "worker/link.h"
#include "worker/net/addr.h"
#include "worker/net/hello.h"
#include "worker/net/net.h"

enum { RANKS_MAX = 8 };

/* One process of a test. */
struct node {
    uint32_t rank, world;
    struct comm_net *net;
    struct err e;
    struct shared {
        pthread_barrier_t ready;
        char text[RANKS_MAX][ADDR_LIST_TEXT];
        _Atomic int64_t stamp_ns;
        _Atomic uint32_t flag;
    } * shared;
};

typedef void body_fn(struct node *n);

#define CHECK(cond)                                                          \
    do {                                                                     \
        if (!(cond)) {                                                       \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
            _exit(1);                                                        \
        }                                                                    \
    } while (0)
/* The call is given &n->e. */
#define OK(call)                                                                            \
    do {                                                                                    \
        if ((call) < 0) {                                                                   \
            (void)fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, n->e.text); \
            _exit(1);                                                                       \
        }                                                                                   \
    } while (0)

static const uint8_t SECRET[32] = "a secret of thirty-two bytes....";

/* What a test may change per rank. */
struct setup {
    int64_t timeout_ns;
    uint32_t odd_rank; /* the rank that differs: */
    uint32_t odd_generation;
    const uint8_t *odd_secret;
    const char *odd_host;
    const char *only;   /* candidates that begin so */
    const char *before; /* candidates put before the true ones */
};

/* `text` as a peer with those candidates would have put it. */
static void retell(const struct setup *s, const char *text, struct buf *out)
{
    AUTO_FREE char *copy = xstrdup(text);
    char *save = NULL, *word = strtok_r(copy, " ", &save);
    (void)buf_printf(out, "%s%s%s", word, s->before ? " " : "", s->before ? s->before : "");
    while ((word = strtok_r(NULL, " ", &save)))
        if (!s->only || strncmp(word, s->only, strlen(s->only)) == 0)
            (void)buf_printf(out, " %s", word);
}

static void child(struct shared *sh, const struct setup *s, uint32_t rank, uint32_t world,
                  body_fn *body)
{
    bool odd = rank == s->odd_rank;
    struct comm_net_params p = {
        .world = world,
        .rank = rank,
        .generation = odd && s->odd_generation ? s->odd_generation : 7,
        .secret = odd && s->odd_secret ? s->odd_secret : SECRET,
        .host_id = odd && s->odd_host ? s->odd_host : "here",
        .interface = "auto",
        .timeout_ns = s->timeout_ns,
    };
    struct node n = {.rank = rank, .world = world, .shared = sh};
    const char *text;
    struct err e;
    (void)alarm(60);
    log_init("test", LOG_ERROR);
    n.net = comm_net_new(&p, &text, &e);
    CHECK(n.net);
    (void)snprintf(sh->text[rank], sizeof sh->text[rank], "%s", text);
    (void)pthread_barrier_wait(&sh->ready);
    for (uint32_t r = 0; r < world; r++) {
        AUTO_BUF struct buf told = BUF(2 * ADDR_LIST_TEXT);
        retell(s, sh->text[r], &told);
        CHECK(comm_net_peer(n.net, r, buf_str(&told), &e) == 0);
    }
    body(&n);
    comm_net_free(n.net);
    exit(0); /* and not _exit: under ASan a leak is a failure */
}

static const struct setup PLAIN = {.timeout_ns = 20 * NS_PER_S, .odd_rank = UINT32_MAX};

/* Every process must end with 0, or by SIGKILL where one is killed on purpose.  Returns
 * shared->flag. */
static uint32_t run_killing(uint32_t world, const struct setup *s, body_fn *body,
                            uint32_t killed)
{
    struct shared *sh =
        mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attr;
    pid_t pid[RANKS_MAX];
    assert_true(sh != MAP_FAILED);
    (void)pthread_barrierattr_init(&attr);
    (void)pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    assert_int_equal(pthread_barrier_init(&sh->ready, &attr, world), 0);
    (void)fflush(NULL);
    for (uint32_t r = 0; r < world; r++) {
        pid[r] = fork();
        assert_true(pid[r] >= 0);
        if (pid[r] == 0)
            child(sh, s, r, world, body);
    }
    int bad = 0;
    for (uint32_t r = 0; r < world; r++) {
        int status;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        if (r == killed)
            bad += !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            bad += status != 0;
    }
    assert_int_equal(bad, 0);
    uint32_t flag = atomic_load(&sh->flag);
    (void)munmap(sh, sizeof *sh);
    return flag;
}

static void run(uint32_t world, body_fn *body)
{
    run_killing(world, &PLAIN, body, UINT32_MAX);
}

static struct comm *world_comm(struct node *n)
{
    static const uint32_t all[RANKS_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct err e;
    struct comm *c = comm_tcp_new(n->net, GROUP_WORLD, all, n->world, &e);
    CHECK(c && c->size == n->world && c->rank == n->rank);
    return c;
}

/* Values of magnitudes 2^-20..2^20 of both signs: sums depend on their order. */
static float value(uint32_t rank, size_t i, uint32_t salt)
{
    uint64_t x = (uint64_t)rank << 40 ^ (uint64_t)salt << 52 ^ i;
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15ULL;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9ULL;
    x ^= x >> 32;
    float m = 1.0f + (float)(x & 0xffffff) / 16777216.0f;
    return ldexpf(x >> 63 ? -m : m, (int)(x >> 32 & 31) - 15);
}

static float ordered_sum(uint32_t world, size_t i, uint32_t salt)
{
    float s = value(0, i, salt);
    for (uint32_t r = 1; r < world; r++)
        s += value(r, i, salt);
    return s;
}

static const size_t SIZES[] = {0, 1, 15, 16, 17, 1000, 4096, 4097, 65536, 300007};
enum { N_SIZES = sizeof SIZES / sizeof SIZES[0], LARGEST = 300007 };

static void all_reduce_body(struct node *n)
{
    struct comm *c = world_comm(n);
    float *x = malloc(LARGEST * sizeof *x);
    for (uint32_t k = 0; k < N_SIZES; k++) {
        for (size_t i = 0; i < SIZES[k]; i++)
            x[i] = value(n->rank, i, k);
        OK(c->ops->all_reduce(c, x, SIZES[k], DT_F32, COMM_SUM, NULL, &n->e));
        for (size_t i = 0; i < SIZES[k]; i++) {
            float want = ordered_sum(n->world, i, k);
            CHECK(memcmp(&want, &x[i], sizeof want) == 0);
        }
    }
    CHECK(c->seq == N_SIZES);
    free(x);
    comm_free(c);
}

static void test_all_reduce(void **state)
{
    (void)state;
    for (uint32_t world = 1; world <= RANKS_MAX; world = world < 3 ? world + 1 : world * 2 - 1)
        run(world, all_reduce_body);
    run(RANKS_MAX, all_reduce_body);
}

/* The reversed order must give other bits, or the test above shows nothing. */
static void test_values_show_order(void **state)
{
    size_t differ = 0;
    (void)state;
    for (size_t i = 0; i < 1000; i++) {
        float s = value(7, i, 0);
        for (uint32_t r = 7; r-- > 0;)
            s += value(r, i, 0);
        differ += s != ordered_sum(8, i, 0);
    }
    assert_true(differ > 100);
}

static void scatter_gather_body(struct node *n)
{
    struct comm *c = world_comm(n);
    const uint32_t w = n->world;
    float *x = malloc((LARGEST + 1) * sizeof *x), *y = malloc((LARGEST + 1) * sizeof *y);
    for (uint32_t k = 0; k < N_SIZES; k++) {
        size_t m = SIZES[k] / w;
        for (int in_place = 0; in_place < 2; in_place++) {
            for (size_t i = 0; i < m * w; i++)
                x[i] = value(n->rank, i, k);
            float *part = in_place ? x + n->rank * m : y;
            OK(c->ops->reduce_scatter(c, x, part, m, DT_F32, COMM_SUM, NULL, &n->e));
            for (size_t i = 0; i < m; i++)
                CHECK(part[i] == ordered_sum(w, n->rank * m + i, k));
            float *all = in_place ? x : y;
            if (!in_place) {
                memmove(x, part, m * sizeof *x);
                part = x;
            }
            OK(c->ops->all_gather(c, part, all, m, DT_F32, NULL, &n->e));
            for (size_t i = 0; i < m * w; i++)
                CHECK(all[i] == ordered_sum(w, i, k));
        }
    }
    free(x);
    free(y);
    comm_free(c);
}

static void test_scatter_gather(void **state)
{
    (void)state;
    run(1, scatter_gather_body);
    run(2, scatter_gather_body);
    run(5, scatter_gather_body);
    run(8, scatter_gather_body);
}

static void types_body(struct node *n)
{
    struct comm *c = world_comm(n);
    const uint32_t w = n->world, r = n->rank;
    const struct comm_ops *o = c->ops;
    double d[3] = {1.0 + r, -1.0 * r, 1e300 * r};
    OK(o->all_reduce(c, d, 3, DT_F64, COMM_SUM, NULL, &n->e));
    CHECK(d[0] == w + w * (w - 1) / 2.0 && d[1] == w * (w - 1) / -2.0);
    int64_t q[2] = {(int64_t)r << 33, -(int64_t)r};
    OK(o->all_reduce(c, q, 2, DT_I64, COMM_MAX, NULL, &n->e));
    CHECK(q[0] == (int64_t)(w - 1) << 33 && q[1] == 0);
    int32_t i[1] = {(int32_t)r - 3};
    OK(o->all_reduce(c, i, 1, DT_I32, COMM_MIN, NULL, &n->e));
    CHECK(i[0] == -3);
    uint8_t u[1] = {200};
    OK(o->all_reduce(c, u, 1, DT_U8, COMM_SUM, NULL, &n->e));
    CHECK(u[0] == (uint8_t)(200 * w));
    for (uint32_t bad = 0; bad < w; bad++) {
        float f[1] = {r == bad ? NAN : (float)r};
        OK(o->all_reduce(c, f, 1, DT_F32, bad % 2 ? COMM_MAX : COMM_MIN, NULL, &n->e));
        CHECK(isnan(f[0]));
    }
    /* Sums of half floats are refused by all before anything is sent; copies are not. */
    uint16_t h[2 * RANKS_MAX], mine[2] = {(uint16_t)r, 0xffff};
    struct err e;
    CHECK(o->all_reduce(c, h, 2, DT_BF16, COMM_SUM, NULL, &e) < 0 && e.kind == ERR_PROTOCOL);
    CHECK(strstr(e.text, "not built"));
    OK(o->all_gather(c, mine, h, 2, DT_BF16, NULL, &n->e));
    for (uint32_t k = 0; k < w; k++)
        CHECK(h[2 * k] == k && h[2 * k + 1] == 0xffff);
    comm_free(c);
}

static void test_types(void **state)
{
    (void)state;
    run(4, types_body);
}

static void broadcast_body(struct node *n)
{
    struct comm *c = world_comm(n);
    int32_t *x = malloc(LARGEST * sizeof *x);
    for (uint32_t root = 0; root < n->world; root++) {
        size_t m = SIZES[root % 2 ? N_SIZES - 1 : root];
        for (size_t i = 0; i < m; i++)
            x[i] = n->rank == root ? (int32_t)(i * 7 + root) : -1;
        OK(c->ops->broadcast(c, x, m, DT_I32, root, NULL, &n->e));
        for (size_t i = 0; i < m; i++)
            CHECK(x[i] == (int32_t)(i * 7 + root));
        OK(c->ops->barrier(c, NULL, &n->e));
    }
    struct err e;
    CHECK(c->ops->broadcast(c, x, 1, DT_I32, n->world, NULL, &e) < 0);
    free(x);
    comm_free(c);
}

static void test_broadcast_barrier(void **state)
{
    (void)state;
    run(1, broadcast_body);
    run(6, broadcast_body);
}

static void all_to_all_body(struct node *n)
{
    struct comm *c = world_comm(n);
    const uint32_t w = n->world;
    /* Rank r sends (r * 31 + j * 17) % 4000 elements to j, each r * 1000 + j, in reversed
     * places. */
    size_t ns[RANKS_MAX], as[RANKS_MAX], nr[RANKS_MAX], ar[RANKS_MAX], at = 0;
    for (uint32_t j = w; j-- > 0;) {
        ns[j] = (n->rank * 3101 + j * 1717) % 4000;
        as[j] = at;
        at += ns[j];
    }
    int64_t *x = malloc((at + 1) * sizeof *x);
    for (uint32_t j = 0; j < w; j++)
        for (size_t i = 0; i < ns[j]; i++)
            x[as[j] + i] = (int64_t)n->rank * 1000 + j;
    at = 0;
    for (uint32_t j = 0; j < w; j++) {
        nr[j] = (j * 3101 + n->rank * 1717) % 4000;
        ar[j] = at;
        at += nr[j];
    }
    int64_t *y = malloc((at + 1) * sizeof *y);
    OK(c->ops->all_to_all_v(c, x, ns, as, y, nr, ar, DT_I64, NULL, &n->e));
    for (uint32_t j = 0; j < w; j++)
        for (size_t i = 0; i < nr[j]; i++)
            CHECK(y[ar[j] + i] == (int64_t)j * 1000 + n->rank);
    free(x);
    free(y);
    comm_free(c);
}

static void test_all_to_all_v(void **state)
{
    (void)state;
    run(1, all_to_all_body);
    run(7, all_to_all_body);
}

/* Both directions at once with more bytes than sockets hold, then a ring, then groups that
 * cross each other. */
static void pairs_body(struct node *n)
{
    enum { BIG = 1 << 20, ROUNDS = 4 };
    struct comm *c = world_comm(n);
    const uint32_t w = n->world, next = (n->rank + 1) % w, prev = (n->rank + w - 1) % w;
    float *x = malloc(BIG * sizeof *x), *y = malloc(BIG * sizeof *y);
    for (uint32_t k = 0; k < ROUNDS; k++) {
        for (size_t i = 0; i < BIG; i++)
            x[i] = (float)(n->rank * 8 + k);
        OK(c->ops->send(c, x, BIG, DT_F32, next, NULL, &n->e));
        OK(c->ops->send(c, x, k, DT_F32, prev, NULL, &n->e));
        memset(x, 0xff, BIG * sizeof *x); /* the buffer is ours again */
    }
    for (uint32_t k = 0; k < ROUNDS; k++) {
        OK(c->ops->recv(c, y, BIG, DT_F32, prev, NULL, &n->e));
        for (size_t i = 0; i < BIG; i++)
            CHECK(y[i] == (float)(prev * 8 + k));
        OK(c->ops->recv(c, y, k, DT_F32, next, NULL, &n->e));
        for (size_t i = 0; i < k; i++)
            CHECK(y[i] == (float)(next * 8 + k));
    }
    OK(c->ops->barrier(c, NULL, &n->e));
    free(x);
    free(y);
    comm_free(c);
}

static void test_pairs(void **state)
{
    (void)state;
    run(3, pairs_body);
    run(8, pairs_body);
}

/* What is queued on one communicator leaves while the process waits in another: rank 0 sends
 * much to 1 over the pipeline, then both meet in the world before 1 takes it. */
static void crossing_body(struct node *n)
{
    enum { BIG = 4 << 20 };
    struct comm *c = world_comm(n);
    struct err e;
    uint32_t pair[2] = {n->rank & ~1U, n->rank | 1U};
    struct comm *p = comm_tcp_new(n->net, GROUP_PIPELINE, pair, 2, &e);
    struct comm *q = comm_tcp_new(n->net, GROUP_PIPELINE, pair, 2, &e); /* a second one */
    uint8_t *x = malloc(BIG);
    int32_t one = 1, two = 0;
    CHECK(p && q);
    memset(x, n->rank & 1 ? 0 : (int)n->rank + 1, BIG);
    if (p->rank == 0) {
        OK(p->ops->send(p, x, BIG, DT_U8, 1, NULL, &n->e));
        OK(q->ops->send(q, &one, 1, DT_I32, 1, NULL, &n->e));
    }
    OK(c->ops->all_reduce(c, &one, 1, DT_I32, COMM_SUM, NULL, &n->e));
    CHECK(one == (int32_t)n->world);
    if (p->rank == 1) {
        OK(q->ops->recv(q, &two, 1, DT_I32, 0, NULL, &n->e));
        CHECK(two == 1);
        OK(p->ops->recv(p, x, BIG, DT_U8, 0, NULL, &n->e));
        for (size_t i = 0; i < BIG; i++)
            CHECK(x[i] == (uint8_t)n->rank);
    }
    OK(c->ops->barrier(c, NULL, &n->e)); /* rank 0 drains p in here */
    free(x);
    comm_free(q);
    comm_free(p);
    comm_free(c);
}

static void test_crossing_groups(void **state)
{
    (void)state;
    run(2, crossing_body);
    run(8, crossing_body);
}

/* Nothing but free follows the send: it still arrives. */
static void last_words_body(struct node *n)
{
    enum { BIG = 8 << 20 };
    struct comm *c = world_comm(n);
    uint8_t *x = malloc(BIG);
    memset(x, 5, BIG);
    if (n->rank == 0) {
        OK(c->ops->send(c, x, BIG, DT_U8, 1, NULL, &n->e));
    } else {
        memset(x, 0, BIG);
        OK(c->ops->recv(c, x, BIG, DT_U8, 0, NULL, &n->e));
        CHECK(x[0] == 5 && x[BIG - 1] == 5);
    }
    free(x);
    comm_free(c);
}

static void test_last_words(void **state)
{
    (void)state;
    run(2, last_words_body);
}

/* This host's first address that other hosts could use.  False: it has only loopback. */
static bool outer_address(struct addr *ret)
{
    struct addr_list l = {0};
    struct err e;
    assert_int_equal(addr_candidates("auto", &l, &e), 0);
    for (size_t i = 0; i < l.n; i++) {
        *ret = l.at[i];
        if (!addr_is_loopback(ret))
            return true;
    }
    print_message("only loopback here: not tried\n");
    return false;
}

/* Other hosts are reached by their other addresses (here: this host's own), also when the first
 * that they offer refuses, or is somebody who never answers. */
static void test_other_host(void **state)
{
    struct setup s = PLAIN;
    struct addr a;
    char refused[ADDR_TEXT], silent[ADDR_TEXT];
    socklen_t len = sizeof a;
    (void)state;
    if (!outer_address(&a))
        skip();
    s.odd_rank = 1;
    s.odd_host = "elsewhere";
    (void)run_killing(3, &s, scatter_gather_body, UINT32_MAX);
    AUTO_CLOSE int fd = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, &a.sa, addr_len(&a)), 0);
    assert_int_equal(getsockname(fd, &a.sa, &len), 0);
    (void)addr_text(&a, refused); /* bound, but nobody listens */
    s.before = refused;
    (void)run_killing(3, &s, scatter_gather_body, UINT32_MAX);
    assert_int_equal(listen(fd, 16), 0);
    s.before = addr_text(&a, silent);
    (void)run_killing(3, &s, scatter_gather_body, UINT32_MAX);
}

static void test_ipv6(void **state)
{
    struct setup s = PLAIN;
    struct addr_list l = {0};
    struct err e;
    (void)state;
    assert_int_equal(addr_candidates("lo", &l, &e), 0);
    if (l.at[l.n - 1].sa.sa_family != AF_INET6) {
        print_message("no IPv6 here: not tried\n");
        skip();
    }
    s.only = "[::1]:";
    (void)run_killing(3, &s, scatter_gather_body, UINT32_MAX);
}

/* All wait for rank 2.  The first to notice names it; another may name one that noticed and
 * closed. */
static void killed_body(struct node *n)
{
    struct comm *c = world_comm(n);
    float x[16000] = {0};
    struct err e = {0}, again;
    OK(c->ops->all_reduce(c, x, 16000, DT_F32, COMM_SUM, NULL, &n->e));
    if (n->rank == 2) {
        atomic_store(&n->shared->stamp_ns, clock_now_ns());
        (void)raise(SIGKILL);
    }
    CHECK(c->ops->all_reduce(c, x, 16000, DT_F32, COMM_SUM, NULL, &e) < 0);
    CHECK(e.kind == ERR_NETWORK && strstr(e.text, "world group, all-reduce 2: lost rank "));
    CHECK(clock_now_ns() - atomic_load(&n->shared->stamp_ns) < NS_PER_S);
    CHECK(c->ops->barrier(c, NULL, &again) < 0 && strcmp(again.text, e.text) == 0);
    atomic_fetch_or(&n->shared->flag, strstr(e.text, "lost rank 2:") ? 1 : 2U << n->rank);
    comm_free(c);
}

static void killed_pair_body(struct node *n)
{
    struct comm *c = world_comm(n);
    struct err e;
    int32_t x = 0;
    OK(c->ops->barrier(c, NULL, &n->e));
    if (n->rank == 1) {
        atomic_store(&n->shared->stamp_ns, clock_now_ns());
        (void)raise(SIGKILL);
    }
    CHECK(c->ops->recv(c, &x, 1, DT_I32, 1, NULL, &e) < 0);
    CHECK(e.kind == ERR_NETWORK);
    CHECK(strcmp(e.text, "world group, receive 1: lost rank 1: it closed the connection") ==
              0 ||
          strcmp(e.text, "world group, receive 1: lost rank 1: Connection reset by peer") == 0);
    CHECK(clock_now_ns() - atomic_load(&n->shared->stamp_ns) < NS_PER_S);
    comm_free(c);
}

/* A peer that dies before it was ever connected to is found by the refused connection. */
static void killed_early_body(struct node *n)
{
    struct comm *c = world_comm(n);
    struct err e;
    int32_t x = 0;
    if (n->rank == 0)
        (void)raise(SIGKILL);
    CHECK(c->ops->recv(c, &x, 1, DT_I32, 0, NULL, &e) < 0);
    CHECK(e.kind == ERR_NETWORK && strstr(e.text, "rank 0 cannot be reached: 127.0.0.1:"));
    comm_free(c);
}

static void test_killed(void **state)
{
    (void)state;
    assert_int_equal(run_killing(4, &PLAIN, killed_body, 2) & 1, 1);
    run_killing(2, &PLAIN, killed_pair_body, 1);
    run_killing(2, &PLAIN, killed_early_body, 0);
}

static void stranger_body(struct node *n)
{
    struct comm *c = world_comm(n);
    struct err e;
    CHECK(c->ops->barrier(c, NULL, &e) < 0);
    if (n->rank == 1) /* the one that dials */
        CHECK(e.kind == ERR_PROTOCOL && strstr(e.text, "rank 0 cannot be reached"));
    else
        CHECK(strstr(e.text, "nothing came from rank 1 for 0.3 s (it has not connected)"));
    comm_free(c);
}

static void test_strangers(void **state)
{
    static const uint8_t other[32] = "another secret of thirty-two....";
    (void)state;
    struct setup s = {.timeout_ns = 300 * NS_PER_MS, .odd_rank = 1, .odd_secret = other};
    run_killing(2, &s, stranger_body, UINT32_MAX);
    s = (struct setup){.timeout_ns = 300 * NS_PER_MS, .odd_rank = 1, .odd_generation = 6};
    run_killing(2, &s, stranger_body, UINT32_MAX);
    s.odd_rank = 0; /* the listener is the older one */
    run_killing(2, &s, stranger_body, UINT32_MAX);
}

/* Connections that never say anything, or rubbish, do not keep the others out. */
static void crowd_body(struct node *n)
{
    enum { CROWD = 400 };
    struct comm *c = world_comm(n);
    int fd[CROWD];
    if (n->rank == 1) {
        struct addr_list l;
        struct err e;
        CHECK(addr_list_parse(n->shared->text[0], strlen(n->shared->text[0]), &l, &e) == 0);
        for (int i = 0; i < CROWD; i++) {
            fd[i] = socket(l.at[0].sa.sa_family, SOCK_STREAM, 0);
            CHECK(connect(fd[i], &l.at[0].sa, addr_len(&l.at[0])) == 0);
            char rubbish[300] = "GET / HTTP/1.1\r\n";
            if (i % 2)
                CHECK(write(fd[i], rubbish, sizeof rubbish) == sizeof rubbish);
        }
    }
    int32_t x = 1;
    OK(c->ops->all_reduce(c, &x, 1, DT_I32, COMM_SUM, NULL, &n->e));
    CHECK(x == 2);
    comm_free(c);
}

static void test_crowd(void **state)
{
    (void)state;
    run(2, crowd_body);
}

static void *abort_soon(void *arg)
{
    struct comm *c = arg;
    (void)poll(NULL, 0, 50); /* the other thread is to be inside its wait */
    c->ops->abort(c);
    return NULL;
}

static void abort_body(struct node *n)
{
    struct comm *c = world_comm(n);
    struct err e;
    pthread_t th;
    int64_t t0 = clock_now_ns();
    int32_t x = 0;
    if (n->rank == 0) {
        CHECK(pthread_create(&th, NULL, abort_soon, c) == 0);
        CHECK(c->ops->recv(c, &x, 1, DT_I32, 1, NULL, &e) < 0);
        CHECK(strcmp(e.text, "world group, receive 1: aborted") == 0);
        CHECK(pthread_join(th, NULL) == 0);
        CHECK(c->ops->barrier(c, NULL, &e) < 0);
    } else {
        c->ops->abort(c); /* before the operation */
        CHECK(c->ops->barrier(c, NULL, &e) < 0 && strstr(e.text, "aborted"));
    }
    CHECK(clock_now_ns() - t0 < 2 * NS_PER_S);
    comm_free(c);
}

static void test_abort(void **state)
{
    (void)state;
    run(2, abort_body);
}

static void stalled_body(struct node *n)
{
    struct comm *c = world_comm(n);
    struct err e;
    int32_t x = 0;
    OK(c->ops->barrier(c, NULL, &n->e));
    if (n->rank == 1) {
        (void)pthread_barrier_wait(
            &n->shared->ready); /* takes no part until the others gave up */
    } else {
        int64_t t0 = clock_now_ns();
        if (n->rank == 0) {
            CHECK(c->ops->recv(c, &x, 1, DT_I32, 1, NULL, &e) < 0);
            CHECK(strcmp(e.text,
                         "world group, receive 1: nothing came from rank 1 for 0.3 s") == 0);
            CHECK(e.kind == ERR_NETWORK);
            CHECK(clock_now_ns() - t0 > 250 * NS_PER_MS && clock_now_ns() - t0 < NS_PER_S);
        }
        (void)pthread_barrier_wait(&n->shared->ready);
    }
    comm_free(c);
}

static void test_stalled(void **state)
{
    struct setup s = {.timeout_ns = 300 * NS_PER_MS, .odd_rank = UINT32_MAX};
    (void)state;
    run_killing(3, &s, stalled_body, UINT32_MAX);
}

/* The page says what is waited for, and a link that closes ends the wait. */
struct watcher {
    int agent;
    struct page *page;
};

static void *watch_and_close(void *arg)
{
    struct watcher *w = arg;
    int64_t deadline = clock_now_ns() + 5 * NS_PER_S;
    while (!atomic_load(&w->page->waiting) && clock_now_ns() < deadline)
        (void)poll(NULL, 0, 1);
    CHECK(atomic_load(&w->page->waiting) == 1);
    CHECK(atomic_load(&w->page->coll_group) == GROUP_WORLD);
    CHECK(atomic_load(&w->page->coll_op) == COMM_ALL_GATHER);
    CHECK(atomic_load(&w->page->coll_seq) == 2);
    CHECK(atomic_load(&w->page->coll_peer) == 1);
    (void)close(w->agent);
    return NULL;
}

static struct link *scripted_link(int *ret_agent)
{
    static const char welcome[] =
        "welcome proto=1 rank=0 world=2 generation=7 local_rank=0 secret="
        "0000000000000000000000000000000000000000000000000000000000000000 host=61 spec=61\n";
    struct link_identity id;
    struct err e;
    int sv[2];
    char fd[16];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
    (void)snprintf(fd, sizeof fd, "%d", sv[0]);
    (void)setenv("DSLAUNCH_LINK", fd, 1);
    CHECK(write(sv[1], welcome, strlen(welcome)) == (ssize_t)strlen(welcome));
    struct link *l = link_open(&id, &e);
    CHECK(l);
    *ret_agent = sv[1];
    return l;
}

static void link_body(struct node *n)
{
    float x[4] = {0}, y[8];
    struct watcher w;
    pthread_t th;
    struct err e;
    if (n->rank == 0)
        n->net->link = scripted_link(&w.agent);
    struct comm *c = world_comm(n);
    OK(c->ops->barrier(c, NULL, &n->e));
    if (n->rank == 0) {
        w.page = link_page(n->net->link);
        uint64_t beat = atomic_load(&w.page->beat);
        CHECK(atomic_load(&w.page->waiting) == 0);
        CHECK(pthread_create(&th, NULL, watch_and_close, &w) == 0);
        CHECK(c->ops->all_gather(c, x, y, 4, DT_F32, NULL, &e) < 0);
        CHECK(e.kind == ERR_NETWORK);
        CHECK(strstr(e.text, "world group, all-gather 2: the agent is gone"));
        CHECK(atomic_load(&w.page->beat) > beat);
        CHECK(pthread_join(th, NULL) == 0);
        link_free(n->net->link);
        n->net->link = NULL;
    }
    (void)pthread_barrier_wait(&n->shared->ready); /* rank 1 takes no part until then */
    comm_free(c);
}

static void test_link(void **state)
{
    (void)state;
    run(2, link_body);
}

static void mismatch_body(struct node *n)
{
    struct comm *c = world_comm(n);
    struct err e;
    float x[8] = {0}, y[16];
    OK(c->ops->barrier(c, NULL, &n->e));
    int r = n->rank ? c->ops->all_gather(c, x, y, 8, DT_F32, NULL, &e)
                    : c->ops->all_reduce(c, x, 8, DT_F32, COMM_SUM, NULL, &e);
    CHECK(r < 0);
    if (e.kind == ERR_PROTOCOL)
        CHECK(strstr(e.text, "rank 0") && strstr(e.text, "rank 1") &&
              strstr(e.text, "all-gather 2") && strstr(e.text, "all-reduce 2"));
    else /* the other found it first, and closed */
        CHECK(n->rank == 1 && e.kind == ERR_NETWORK);
    comm_free(c);
}

static void test_mismatch(void **state)
{
    (void)state;
    run(2, mismatch_body);
}

/* No communicator for who is no member, or for ranks out of order. */
static void group_body(struct node *n)
{
    struct err e;
    uint32_t others[1] = {1 - n->rank}, down[2] = {1, 0}, far[2] = {n->rank, 2};
    CHECK(!comm_tcp_new(n->net, GROUP_DATA, others, 1, &e) && e.kind == ERR_PROTOCOL);
    CHECK(!comm_tcp_new(n->net, GROUP_DATA, down, 2, &e));
    CHECK(!comm_tcp_new(n->net, GROUP_DATA, far, 2, &e));
}

static void test_groups(void **state)
{
    (void)state;
    run(2, group_body);
}

static struct addr addr_of(const char *text)
{
    struct addr_list l;
    struct err e;
    AUTO_FREE char *all = xasprintf("host=00 %s", text);
    assert_int_equal(addr_list_parse(all, strlen(all), &l, &e), 0);
    return l.at[0];
}

static void test_addresses(void **state)
{
    static const struct {
        const char *addr, *name, *filter;
        int want; /* -1: refused */
    } cases[] = {
        {"10.1.2.3:1", "eth0", "10.0.0.0/8", 1},   {"11.1.2.3:1", "eth0", "10.0.0.0/8", 0},
        {"10.1.2.3:1", "eth0", "10.1.2.0/23", 1},  {"10.1.4.3:1", "eth0", "10.1.2.0/23", 0},
        {"10.1.2.3:1", "eth0", "0.0.0.0/0", 1},    {"10.1.2.3:1", "eth0", "10.1.2.3/32", 1},
        {"[fd00::1]:1", "eth0", "fd00::/8", 1},    {"[fd00::1]:1", "eth0", "10.0.0.0/8", 0},
        {"[fd00::1]:1", "eth0", "eth0", 1},        {"10.1.2.3:1", "eth0", "eth1", 0},
        {"10.1.2.3:1", "eth0", "10.0.0.0/33", -1}, {"10.1.2.3:1", "eth0", "10/8", -1},
        {"10.1.2.3:1", "eth0", "10.0.0.0/", -1},   {"10.1.2.3:1", "eth0", "10.0.0.0/8x", -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct addr a = addr_of(cases[i].addr);
        bool match = false;
        struct err e = {0};
        int r = addr_matches(&a, cases[i].name, cases[i].filter, &match, &e);
        assert_int_equal(r < 0 ? -1 : match, cases[i].want);
        assert_int_equal(r < 0 ? e.kind : ERR_SPEC, ERR_SPEC);
    }
    struct addr_list l;
    struct err e;
    assert_true(addr_candidates("no-such-card", &l, &e) < 0);
    assert_int_equal(e.kind, ERR_SPEC);
    assert_non_null(strstr(e.text, "it has lo=127.0.0.1:0"));
    assert_int_equal(addr_candidates("lo", &l, &e), 0);
}

static void test_address_text(void **state)
{
    static const char *const bad[] = {
        "",
        "host",
        "host=0",
        "host=00 10.0.0.1",
        "host=00 10.0.0.1:0",
        "10.0.0.1:1",
        "host=00 x:1",
        "host=00 10.0.0.1:65536",
        "host=00 [::1:1",
        "host=00 ::1]:1",
        "host=00 10.0.0.1:1x",
    };
    struct addr_list l, again;
    struct err e;
    (void)state;
    const char *text = "host=6d65 127.0.0.1:4000 [::1]:4001 [fd00::2]:65535";
    assert_int_equal(addr_list_parse(text, strlen(text), &l, &e), 0);
    assert_string_equal(l.host_id, "me");
    assert_int_equal(l.n, 3);
    AUTO_BUF struct buf b = BUF(4096);
    addr_list_text(&l, &b);
    assert_string_equal(buf_str(&b), text);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_true(addr_list_parse(bad[i], strlen(bad[i]), &again, &e) < 0);
    AUTO_BUF struct buf many = BUF(4096);
    (void)buf_puts(&many, "host=00");
    for (int i = 0; i <= ADDR_MAX; i++)
        (void)buf_printf(&many, " 10.0.0.1:1");
    assert_true(addr_list_parse(buf_str(&many), many.len, &again, &e) < 0);
}

/* Each bit of a hello, a reply and a finish counts. */
static void test_hello(void **state)
{
    struct hello h = {.generation = 3, .from = 2, .to = 1, .key = {.kind = 1, .size = 4}}, got;
    uint8_t hello[HELLO_BYTES], reply[REPLY_BYTES], a[FINISH_BYTES], b[FINISH_BYTES];
    uint8_t other[32] = {1};
    uint32_t generation;
    (void)state;
    hello_write(&h, SECRET, hello);
    assert_int_equal(hello_read(hello, SECRET, &got), HELLO_YES);
    assert_int_equal(got.generation, 3);
    assert_int_equal(got.from, 2);
    assert_int_equal(hello_read(hello, other, &got), HELLO_BAD_KEY);
    reply_write(HELLO_YES, 3, hello, SECRET, reply);
    assert_int_equal(reply_read(reply, hello, SECRET, &generation), HELLO_YES);
    assert_int_equal(reply_read(reply, hello, other, &generation), HELLO_BAD_KEY);
    finish_write(hello, reply, SECRET, a);
    for (size_t i = 0; i < 8 * HELLO_BYTES; i++) {
        hello[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_not_equal(hello_read(hello, SECRET, &got), HELLO_YES);
        assert_int_not_equal(reply_read(reply, hello, SECRET, &generation), HELLO_YES);
        hello[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    for (size_t i = 0; i < 8 * REPLY_BYTES; i++) {
        reply[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_not_equal(reply_read(reply, hello, SECRET, &generation), HELLO_YES);
        finish_write(hello, reply, SECRET, b);
        assert_memory_not_equal(a, b, sizeof a);
        reply[i / 8] ^= (uint8_t)(1 << i % 8);
    }
}

/* Prints what an all-reduce costs here.  A delayed acknowledgement (40 ms each) would show. */
static void cost_body(struct node *n)
{
    struct comm *c = world_comm(n);
    static const struct {
        size_t n;
        int rounds;
    } cases[] = {{1024, 200}, {1 << 20, 10}};
    float *x = calloc(1 << 20, sizeof *x);
    for (size_t k = 0; k < 2; k++) {
        OK(c->ops->all_reduce(c, x, cases[k].n, DT_F32, COMM_SUM, NULL, &n->e));
        int64_t t0 = clock_now_ns();
        for (int i = 0; i < cases[k].rounds; i++)
            OK(c->ops->all_reduce(c, x, cases[k].n, DT_F32, COMM_SUM, NULL, &n->e));
        double us = (double)(clock_now_ns() - t0) / 1e3 / cases[k].rounds;
        CHECK(k || us < 20e3);
        if (n->rank == 0)
            (void)fprintf(stderr, "# all_reduce of %zu KiB among %u: %.0f us\n",
                          cases[k].n * 4 / 1024, n->world, us);
    }
    free(x);
    comm_free(c);
}

static void test_cost(void **state)
{
    (void)state;
    run(2, cost_body);
    run(4, cost_body);
    run(8, cost_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_address_text),
        cmocka_unit_test(test_hello),
        cmocka_unit_test(test_values_show_order),
        cmocka_unit_test(test_all_reduce),
        cmocka_unit_test(test_scatter_gather),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_broadcast_barrier),
        cmocka_unit_test(test_all_to_all_v),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_crossing_groups),
        cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_other_host),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_stalled),
        cmocka_unit_test(test_link),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
