/* link.c against an agent that is a script: a socketpair whose other end says what the test
 * says, before or while the worker waits. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/io.h"
#include "common/link/linkline.h"
#include "worker/link.h"

#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define WELCOME                                                               \
    "welcome proto=1 rank=2 world=4 generation=9 local_rank=1 secret=" SECRET \
    " host=626f782d31 spec=6e616d653a20780a\n"

struct agent {
    int fd; /* the agent's end */
    int page, snapshot[2];
};

static void say(const struct agent *a, const char *text)
{
    struct err e;
    assert_int_equal(io_write_full(a->fd, text, strlen(text), &e), 0);
}

/* What the worker has said so far must be exactly this. */
static void heard(const struct agent *a, const char *want)
{
    char got[4096];
    ssize_t n = recv(a->fd, got, sizeof got - 1, MSG_DONTWAIT);
    got[n > 0 ? n : 0] = 0;
    assert_string_equal(got, want);
}

static void set_fd(const char *name, int fd)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", fd);
    (void)setenv(name, text, 1);
}

/* Ready to be opened: the environment names the worker's ends. */
static void prepare(struct agent *a)
{
    int sv[2];
    char text[40];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
    a->fd = sv[1];
    a->page = memfd_create("page", 0);
    assert_int_equal(ftruncate(a->page, PAGE_BYTES), 0);
    a->snapshot[0] = memfd_create("s0", 0);
    a->snapshot[1] = memfd_create("s1", 0);
    set_fd("DSLAUNCH_LINK", sv[0]);
    set_fd("DSLAUNCH_PAGE", dup(a->page));
    (void)snprintf(text, sizeof text, "%d,%d", a->snapshot[0], a->snapshot[1]);
    (void)setenv("DSLAUNCH_SNAPSHOT", text, 1);
}

static struct link *open_link(struct agent *a, struct link_identity *id)
{
    struct err e = {0};
    prepare(a);
    say(a, WELCOME);
    struct link *l = link_open(id, &e);
    if (!l)
        fail_msg("%s", e.text);
    heard(a, "hello proto=1\n");
    return l;
}

static void done(struct agent *a, struct link *l)
{
    link_free(l); /* closes the snapshots that it was given */
    (void)close(a->fd);
    (void)close(a->page);
}

static int64_t soon(void)
{
    return clock_now_ns() + 5 * NS_PER_S;
}

static void test_identity(void **state)
{
    struct agent a;
    struct link_identity id;
    (void)state;
    struct link *l = open_link(&a, &id);
    assert_int_equal(id.rank, 2);
    assert_int_equal(id.world, 4);
    assert_int_equal(id.generation, 9);
    assert_int_equal(id.local_rank, 1);
    assert_int_equal(id.secret[31], 0x1f);
    assert_string_equal(id.host_id, "box-1");
    assert_string_equal(id.spec, "name: x\n");
    assert_int_equal(link_snapshot_fd(l, 0), a.snapshot[0]);
    assert_int_equal(link_snapshot_fd(l, 1), a.snapshot[1]);
    assert_int_equal(link_snapshot_fd(l, 2), -1);
    assert_true(fcntl(link_fd(l), F_GETFD) & FD_CLOEXEC);
    done(&a, l);
}

static void test_rendezvous(void **state)
{
    struct agent a;
    struct link_identity id;
    struct err e;
    AUTO_BUF struct buf v = BUF(100);
    (void)state;
    struct link *l = open_link(&a, &id);
    assert_int_equal(link_put(l, "addr.2", "hi", 2, &e), 0);
    heard(&a, "put key=addr.2 value=6869\n");
    say(&a, "released\n");
    assert_int_equal(link_barrier(l, soon(), &e), 0);
    heard(&a, "barrier\n");
    assert_true(link_get(l, "addr.3", &v, clock_now_ns() + 20 * NS_PER_MS, &e) < 0);
    assert_int_equal(e.kind, ERR_NETWORK);
    assert_string_equal(e.text, "addr.3: the agent has not answered a get in time");
    heard(&a, "get key=addr.3\n");
    done(&a, l);
}

/* An agent that answers each line of the worker by a line of the script. */
struct script {
    int fd;
    const char *const *answers;
};

static void *answer(void *arg)
{
    const struct script *s = arg;
    char c;
    for (const char *const *x = s->answers; *x;) {
        if (read(s->fd, &c, 1) != 1)
            return NULL;
        if (c != '\n')
            continue;
        for (const char *p = *x; *p; p++) /* byte by byte */
            if (write(s->fd, p, 1) != 1)
                return NULL;
        x++;
    }
    return NULL;
}

static void test_get(void **state)
{
    static const char *const answers[] = {WELCOME, "stop\nvalue key=addr.3 value=007a\n",
                                          "void key=gone\n", "value key=addr.4 value=\n", NULL};
    struct agent a;
    struct link_identity id;
    struct err e = {0};
    pthread_t th;
    AUTO_BUF struct buf v = BUF(100);
    (void)state;
    prepare(&a);
    struct script s = {a.fd, answers};
    assert_int_equal(pthread_create(&th, NULL, answer, &s), 0);
    struct link *l = link_open(&id, &e);
    assert_non_null(l);
    assert_false(link_stop_asked(l));
    assert_int_equal(link_get(l, "addr.3", &v, soon(), &e), 0);
    assert_int_equal(v.len, 2);
    assert_memory_equal(v.data, "\0z", 2);
    assert_true(link_stop_asked(l)); /* taken in on the way */
    assert_true(link_get(l, "gone", &v, soon(), &e) < 0);
    assert_int_equal(e.kind, ERR_PROTOCOL);
    assert_string_equal(e.text, "gone: the generation ended, or nobody put it");
    buf_clear(&v);
    assert_int_equal(link_get(l, "addr.4", &v, soon(), &e), 0);
    assert_int_equal(v.len, 0);
    assert_int_equal(pthread_join(th, NULL), 0);
    done(&a, l);
}

/* Two lines cut at every byte mean the same. */
static void test_split(void **state)
{
    static const char text[] =
        "written step=12\ncommitted step=7\nlost step=13 text=6e6f\nstop\n";
    (void)state;
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        struct agent a;
        struct link_identity id;
        struct err e;
        char first[sizeof text];
        struct link *l = open_link(&a, &id);
        (void)snprintf(first, cut + 1, "%s", text);
        say(&a, first);
        assert_int_equal(link_poll(l, &e), 0);
        assert_int_equal(link_written(l), cut < 16 ? 0 : 12);
        assert_int_equal(link_committed(l), cut < 33 ? 0 : 7);
        say(&a, text + cut);
        assert_int_equal(link_poll(l, &e), 0);
        assert_int_equal(link_written(l), 12);
        assert_int_equal(link_committed(l), 7);
        assert_true(link_lost(l, &e));
        assert_string_equal(e.text, "checkpoint of step 13: no");
        assert_false(link_lost(l, &e));
        assert_true(link_stop_asked(l));
        done(&a, l);
    }
}

static void test_reports(void **state)
{
    struct agent a;
    struct link_identity id;
    struct err e = {.kind = ERR_NETWORK, .text = "lost rank 3"};
    (void)state;
    struct link *l = open_link(&a, &id);
    assert_int_equal(link_metrics(l, "step=12 loss=2.5", &e), 0);
    heard(&a, "metrics step=12 loss=2.5\n");
    link_event(l, "step %d\nok", 3);
    heard(&a, "event text=7374657020330a6f6b\n");
    link_failed(l, &e, 3);
    heard(&a, "failed kind=network peer=3 text=6c6f73742072616e6b2033\n");
    link_failed(l, &e, -1);
    heard(&a, "failed kind=network peer=- text=6c6f73742072616e6b2033\n");
    assert_int_equal(link_shard(l, 8, 1, 100, "abcd", &e), 0);
    heard(&a, "shard step=8 slot=1 bytes=100 digest=abcd\n");
    assert_int_equal(link_commit(l, 8, 1, 100, 20, &e), 0);
    heard(&a, "commit step=8 slot=1 offset=100 bytes=20\n");
    assert_int_equal(link_done(l, true, 400, &e), 0);
    heard(&a, "done reason=completed step=400\n");
    assert_int_equal(link_done(l, false, 7, &e), 0);
    heard(&a, "done reason=stopped step=7\n");
    done(&a, l);
}

static void test_wait_steps(void **state)
{
    struct agent a;
    struct link_identity id;
    struct err e;
    (void)state;
    struct link *l = open_link(&a, &id);
    say(&a, "written step=5\ncommitted step=5\nwritten step=4\n");
    assert_int_equal(link_wait_written(l, 5, soon(), &e), 0);
    assert_int_equal(link_wait_committed(l, 5, soon(), &e), 0);
    assert_int_equal(link_written(l), 5); /* never back */
    assert_true(link_wait_written(l, 6, clock_now_ns() + 20 * NS_PER_MS, &e) < 0);
    assert_int_equal(e.kind, ERR_NETWORK);
    say(&a, "lost step=6 text=6e6f207370616365\n");
    assert_true(link_wait_written(l, 6, soon(), &e) < 0);
    assert_int_equal(e.kind, ERR_STORAGE);
    assert_string_equal(e.text, "checkpoint of step 6: no space");
    done(&a, l);
}

/* Two shards are in the agent's hands, and are answered in any order. */
static void test_out_of_order(void **state)
{
    struct agent a;
    struct link_identity id;
    struct err e;
    (void)state;
    struct link *l = open_link(&a, &id);
    assert_int_equal(link_shard(l, 10, 0, 100, "ab", &e), 0);
    assert_int_equal(link_shard(l, 20, 1, 100, "ab", &e), 0);
    say(&a, "written step=20\n");
    assert_int_equal(link_wait_written(l, 20, soon(), &e), 0);
    assert_int_equal(link_written(l), 0); /* 10 is still being read */
    assert_true(link_wait_written(l, 10, clock_now_ns() + 20 * NS_PER_MS, &e) < 0);
    assert_int_equal(e.kind, ERR_NETWORK);
    say(&a, "written step=10\n");
    assert_int_equal(link_wait_written(l, 10, soon(), &e), 0);
    assert_int_equal(link_written(l), 20);

    assert_int_equal(link_shard(l, 30, 0, 100, "ab", &e), 0);
    assert_int_equal(link_shard(l, 40, 1, 100, "ab", &e), 0);
    say(&a, "written step=40\nlost step=30 text=6e6f\n");
    assert_int_equal(link_wait_written(l, 40, soon(), &e), 0);
    assert_int_equal(link_poll(l, &e), 0);
    assert_int_equal(link_written(l), 40); /* what is lost holds up nothing */
    done(&a, l);
}

/* A loss ends the wait for its own step, told or not, and no other's. */
static void test_old_loss(void **state)
{
    struct agent a;
    struct link_identity id;
    struct err e;
    (void)state;
    struct link *l = open_link(&a, &id);
    assert_int_equal(link_shard(l, 10, 0, 100, "ab", &e), 0);
    say(&a, "lost step=10 text=6e6f\n");
    assert_int_equal(link_poll(l, &e), 0);
    assert_true(link_lost(l, &e));
    assert_true(link_wait_written(l, 10, soon(), &e) < 0);
    assert_int_equal(e.kind, ERR_STORAGE);

    assert_int_equal(link_shard(l, 20, 1, 100, "ab", &e), 0);
    assert_int_equal(link_shard(l, 30, 0, 100, "ab", &e), 0);
    say(&a, "written step=20\n");
    assert_int_equal(link_wait_written(l, 20, soon(), &e), 0);
    assert_int_equal(link_commit(l, 20, 1, 100, 20, &e), 0);
    say(&a, "lost step=30 text=6e6f\n");
    assert_true(link_wait_committed(l, 20, clock_now_ns() + 20 * NS_PER_MS, &e) < 0);
    assert_int_equal(e.kind, ERR_NETWORK);
    say(&a, "committed step=20\n");
    assert_int_equal(link_wait_committed(l, 20, soon(), &e), 0);
    done(&a, l);
}

/* What the agent must not say, each ending the link. */
static void test_bad_lines(void **state)
{
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"dance step=1\n", "the agent said `dance`, which is no verb"},
        {"Stop\n", "from the agent"},
        {"\n", "from the agent"},
        {WELCOME, "the agent's welcome: a second one"},
        {"value key=x value=00\n", "the agent's value: nobody asked for x"},
        {"value\n", "nobody asked"},
        {"void key=x\n", "nobody asked for x"},
        {"written\n", "the agent's written"},
        {"written step=-1\n", "the agent's written"},
        {"written step=99999999999999999999999\n", "the agent's written"},
        {"lost step=1 text=0\n", "the agent's lost"},
        {"refused text=6261642067657420\n", "the agent's refused: bad get "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct agent a;
        struct link_identity id;
        struct err e = {0}, again = {0};
        struct link *l = open_link(&a, &id);
        say(&a, cases[i].line);
        assert_true(link_poll(l, &e) < 0);
        assert_int_equal(e.kind, ERR_PROTOCOL);
        if (!strstr(e.text, cases[i].why))
            fail_msg("%s: %s", cases[i].line, e.text);
        assert_true(link_metrics(l, "step=1", &again) < 0);
        assert_string_equal(again.text, e.text);
        done(&a, l);
    }
}

static void test_bad_welcomes(void **state)
{
    static const char *const cases[] = {
        "stop\n",
        "welcome proto=2 rank=0 world=1 generation=1 local_rank=0 secret=" SECRET
        " host=00 spec=00\n",
        "welcome proto=1 rank=1 world=1 generation=1 local_rank=0 secret=" SECRET
        " host=61 spec=61\n",
        "welcome proto=1 rank=0 world=1 generation=1 local_rank=0 secret=0102 host=61 "
        "spec=61\n",
        "welcome proto=1 rank=0 world=1 generation=5000000000 local_rank=0 secret=" SECRET
        " host=61 spec=61\n",
        "welcome proto=1 rank=0 world=1 generation=1 local_rank=0 secret=" SECRET " host=61\n",
        "welcome proto=1 rank=0 world=1 generation=1 local_rank=0 secret=" SECRET
        " host=6100 spec=61\n",
        "refused text=6e6f\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct agent a;
        struct link_identity id;
        struct err e = {0};
        prepare(&a);
        say(&a, cases[i]);
        assert_null(link_open(&id, &e));
        assert_int_equal(e.kind, ERR_PROTOCOL);
        done(&a, NULL);
        (void)close(a.snapshot[0]);
        (void)close(a.snapshot[1]);
    }
}

/* Says `a` without end. */
static void *pour(void *arg)
{
    const int *fd = arg;
    char x[1 << 16];
    memset(x, 'a', sizeof x);
    while (send(*fd, x, sizeof x, MSG_NOSIGNAL) > 0)
        ;
    return NULL;
}

static void test_oversize(void **state)
{
    struct agent a;
    struct link_identity id;
    struct err e = {0};
    pthread_t th;
    (void)state;
    struct link *l = open_link(&a, &id);
    assert_int_equal(pthread_create(&th, NULL, pour, &a.fd), 0);
    assert_true(link_barrier(l, soon(), &e) < 0);
    assert_int_equal(e.kind, ERR_PROTOCOL);
    assert_string_equal(e.text, "the agent sent a line without an end");
    (void)shutdown(a.fd, SHUT_RDWR);
    assert_int_equal(pthread_join(th, NULL), 0);
    /* And what this side may not say. */
    done(&a, l);
    l = open_link(&a, &id);
    AUTO_FREE char *big = xcalloc(1, LINK_LINE_MAX);
    assert_true(link_put(l, "big", big, LINK_LINE_MAX / 2 + 1, &e) < 0);
    assert_int_equal(e.kind, ERR_PROTOCOL);
    heard(&a, "");
    done(&a, l);
}

static void test_environment(void **state)
{
    struct agent a;
    struct link_identity id;
    struct err e;
    (void)state;
    (void)unsetenv("DSLAUNCH_LINK");
    assert_null(link_open(&id, &e));
    assert_int_equal(e.kind, ERR_USAGE);
    static const char *const bad[][2] = {
        {"DSLAUNCH_LINK", "x"},         {"DSLAUNCH_LINK", "9999"},  {"DSLAUNCH_LINK", "-1"},
        {"DSLAUNCH_PAGE", "1x"},        {"DSLAUNCH_SNAPSHOT", "1"}, {"DSLAUNCH_SNAPSHOT", "1,"},
        {"DSLAUNCH_SNAPSHOT", "1,2,3"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        prepare(&a);
        int out = dup(1), err = dup(2); /* the worker owns, and closes, what it is given */
        (void)setenv(bad[i][0], bad[i][1], 1);
        assert_null(link_open(&id, &e));
        assert_int_equal(e.kind, ERR_PROTOCOL);
        (void)dup2(out, 1);
        (void)dup2(err, 2);
        (void)close(out);
        (void)close(err);
        done(&a, NULL);
    }
}

static void test_agent_gone(void **state)
{
    struct agent a;
    struct link_identity id;
    struct err e;
    (void)state;
    struct link *l = open_link(&a, &id);
    say(&a, "stop\n");
    (void)shutdown(a.fd, SHUT_RDWR);
    int r = link_poll(l, &e);
    assert_true(link_stop_asked(l)); /* what it said before still counts */
    if (r == 0)
        r = link_poll(l, &e);
    assert_true(r < 0);
    assert_int_equal(e.kind, ERR_NETWORK);
    assert_non_null(strstr(e.text, "the agent is gone"));
    assert_true(link_barrier(l, soon(), &e) < 0);
    link_event(l, "nobody hears");
    link_failed(l, &e, -1);
    done(&a, l);
}

static void test_page(void **state)
{
    struct agent a;
    struct link_identity id;
    (void)state;
    struct link *l = open_link(&a, &id);
    struct page *p = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, a.page, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(p->magic, PAGE_MAGIC);
    assert_int_equal(p->version, PAGE_VERSION);
    uint64_t beat = p->beat;
    link_phase(l, PHASE_BACKWARD);
    assert_int_equal(p->phase, PHASE_BACKWARD);
    link_beat(l);
    assert_int_equal(p->beat, beat + 2);
    atomic_store(&link_page(l)->step, 5);
    assert_int_equal(p->step, 5);
    (void)munmap(p, PAGE_BYTES);
    done(&a, l);
}

/* A worker that says much to an agent that does not read goes on, and loses nothing. */
static void test_slow_reader(void **state)
{
    enum { LINES = 20000 };
    struct agent a;
    struct link_identity id;
    struct err e;
    static char chunk[1 << 16];
    size_t lines = 0;
    (void)state;
    struct link *l = open_link(&a, &id);
    for (int i = 0; i < LINES; i++)
        assert_int_equal(link_metrics(l, "step=1 loss=2.0000000 grad_norm=1.00000", &e), 0);
    while (lines < LINES) {
        assert_int_equal(link_poll(l, &e), 0);
        ssize_t n = recv(a.fd, chunk, sizeof chunk, MSG_DONTWAIT);
        assert_true(n > 0);
        for (ssize_t i = 0; i < n; i++)
            lines += chunk[i] == '\n';
    }
    heard(&a, "");
    done(&a, l);
}

static const char SOLO_SPEC[] =
    "name: solo\n"
    "cluster: {bootstrap: local, nodes: [localhost], workdir: %s}\n"
    "model: {arch: llama, layers: 1, hidden: 16, heads: 2, kv_heads: 2, ffn: 32, vocab: 259}\n"
    "train: {steps: 4, batch: 2, micro_batch: 2, seq_len: 8}\n"
    "data: {kind: text, files: [x.txt]}\n"
    "checkpoint: {dir: ckpt, every: 1, keep: 2}\n";

static void test_solo(void **state)
{
    char dir[] = "/tmp/dslaunch-test-solo-XXXXXX";
    struct link_identity id;
    struct err e = {0};
    (void)state;
    assert_non_null(mkdtemp(dir));
    AUTO_BUF struct buf spec = BUF(4096);
    (void)buf_printf(&spec, SOLO_SPEC, dir);
    for (uint32_t generation = 1; generation <= 2; generation++) {
        AUTO(link) struct link *l = link_open_solo(buf_str(&spec), &id, &e);
        if (!l)
            fail_msg("%s", e.text);
        assert_int_equal(id.world, 1);
        assert_int_equal(id.generation, generation);
        assert_int_equal(link_fd(l), -1);
        AUTO_BUF struct buf v = BUF(10);
        assert_int_equal(link_put(l, "k", "v", 1, &e), 0);
        assert_int_equal(link_barrier(l, soon(), &e), 0);
        assert_int_equal(link_get(l, "k", &v, soon(), &e), 0);
        assert_string_equal(buf_str(&v), "v");
        for (uint64_t step = 1; step <= 3; step++) {
            int fd = link_snapshot_fd(l, step % 2);
            assert_int_equal(ftruncate(fd, 0), 0);
            assert_int_equal(pwrite(fd, "shard{json}", 11, 0), 11);
            assert_int_equal(link_shard(l, step, step % 2, 5, "00", &e), 0);
            assert_int_equal(link_wait_written(l, step, soon(), &e), 0);
            assert_int_equal(link_commit(l, step, step % 2, 5, 6, &e), 0);
            assert_int_equal(link_wait_committed(l, step, soon(), &e), 0);
        }
        /* Committed once, never replaced. */
        assert_int_equal(link_shard(l, 3, 1, 5, "00", &e), 0);
        assert_int_equal(link_commit(l, 3, 1, 5, 6, &e), 0);
        assert_true(link_lost(l, &e));
        assert_int_equal(e.kind, ERR_STORAGE);
    }
    /* keep: 2 are left of the second run's, and they are whole. */
    static const struct {
        const char *path;
        const char *text; /* NULL: must not be there */
    } files[] = {
        {"step-00000003-g2/rank-00000.safetensors", "shard"},
        {"step-00000003-g2/manifest.json", "{json}"},
        {"step-00000003-g1/manifest.json", "{json}"},
        {"step-00000002-g2/manifest.json", NULL},
        {"step-00000001-g1/manifest.json", NULL},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        AUTO_FREE char *path = xasprintf("%s/ckpt/%s", dir, files[i].path);
        AUTO_BUF struct buf b = BUF(100);
        if (!files[i].text) {
            assert_int_equal(access(path, F_OK), -1);
            continue;
        }
        assert_int_equal(io_read_file(path, &b, &e), 0);
        assert_string_equal(buf_str(&b), files[i].text);
    }
    assert_int_equal(io_remove_tree(dir, &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity),     cmocka_unit_test(test_rendezvous),
        cmocka_unit_test(test_get),          cmocka_unit_test(test_split),
        cmocka_unit_test(test_reports),      cmocka_unit_test(test_wait_steps),
        cmocka_unit_test(test_out_of_order), cmocka_unit_test(test_old_loss),
        cmocka_unit_test(test_bad_lines),    cmocka_unit_test(test_bad_welcomes),
        cmocka_unit_test(test_oversize),     cmocka_unit_test(test_environment),
        cmocka_unit_test(test_agent_gone),   cmocka_unit_test(test_page),
        cmocka_unit_test(test_slow_reader),  cmocka_unit_test(test_solo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
