/* Frames: whole ones in any pieces, never beyond the caps, and an end that is told once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/own.h"
#include "launcher/wire/frame.h"
#include "tests/unit/uvwait.h"

struct side {
    struct channel *ch;
    uint64_t sum;
    int frames, ends;
    bool close_in_frame;
    struct err why;
};

static void on_frame(void *ctx, const Dsl__Frame *f)
{
    struct side *s = ctx;
    s->frames++;
    if (f->body_case == DSL__FRAME__BODY_PING)
        s->sum += f->ping->number;
    if (s->close_in_frame)
        channel_close(TAKE(s->ch));
}

static void on_end(void *ctx, const struct err *why)
{
    struct side *s = ctx;
    s->ends++;
    s->why = *why;
    channel_close(TAKE(s->ch));
}

struct pair {
    uv_loop_t loop;
    struct side a;
    int fd; /* the other end, raw */
};

static int setup(void **state)
{
    struct pair *p = calloc(1, sizeof *p);
    int fds[2];
    struct err e;
    (void)signal(SIGPIPE, SIG_IGN);
    assert_int_equal(uv_loop_init(&p->loop), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    p->a.ch = channel_open_fd(&p->loop, fds[0], on_frame, on_end, &p->a, &e);
    assert_non_null(p->a.ch);
    p->fd = fds[1];
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct pair *p = *state;
    channel_close(p->a.ch);
    if (p->fd >= 0)
        (void)close(p->fd);
    (void)uv_run(&p->loop, UV_RUN_DEFAULT);
    int r = uv_loop_close(&p->loop); /* EBUSY: a handle was left behind */
    free(p);
    return r;
}

static size_t ping(uint8_t *out, uint64_t number)
{
    Dsl__Ping m;
    Dsl__Frame f;
    dsl__ping__init(&m);
    dsl__frame__init(&f);
    m.number = number;
    f.body_case = DSL__FRAME__BODY_PING;
    f.ping = &m;
    size_t n = dsl__frame__pack(&f, out + 4);
    out[0] = (uint8_t)n;
    out[1] = out[2] = out[3] = 0;
    return n + 4;
}

static bool ended(void *ctx)
{
    return ((struct pair *)ctx)->a.ends > 0;
}

static bool three(void *ctx)
{
    return ((struct pair *)ctx)->a.frames >= 3;
}

static void test_pieces(void **state)
{
    struct pair *p = *state;
    uint8_t bytes[64];
    size_t n = ping(bytes, 7);
    n += ping(bytes + n, 300);
    n += ping(bytes + n, 1);
    for (size_t i = 0; i < n; i++) { /* byte by byte, the loop in between */
        assert_int_equal(write(p->fd, bytes + i, 1), 1);
        (void)uv_run(&p->loop, UV_RUN_NOWAIT);
    }
    assert_true(uvwait(&p->loop, three, p, 2000));
    assert_int_equal(p->a.sum, 308);
    (void)close(TAKE_FD(p->fd));
    assert_true(uvwait(&p->loop, ended, p, 2000));
    assert_int_equal(p->a.why.kind, ERR_NONE);
    assert_int_equal(p->a.ends, 1);
}

static void expect_end(struct pair *p, const void *bytes, size_t n, bool then_close)
{
    assert_int_equal(write(p->fd, bytes, n), (ssize_t)n);
    if (then_close)
        (void)close(TAKE_FD(p->fd));
    assert_true(uvwait(&p->loop, ended, p, 2000));
    assert_int_equal(p->a.why.kind, ERR_PROTOCOL);
    assert_int_equal(p->a.frames, 0);
}

static void test_too_long(void **state)
{
    const uint8_t head[4] = {1, 0, 0, 1}; /* 16 MiB + 1 */
    expect_end(*state, head, sizeof head, false);
}

static void test_garbage(void **state)
{
    const uint8_t bytes[] = {5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff};
    expect_end(*state, bytes, sizeof bytes, false);
}

static void test_torn(void **state)
{
    uint8_t bytes[32];
    size_t n = ping(bytes, 9);
    expect_end(*state, bytes, n - 1, true);
}

static void test_close_inside(void **state)
{
    struct pair *p = *state;
    uint8_t bytes[64];
    size_t n = ping(bytes, 1);
    n += ping(bytes + n, 2);
    p->a.close_in_frame = true;
    assert_int_equal(write(p->fd, bytes, n), (ssize_t)n);
    (void)uv_run(&p->loop, UV_RUN_DEFAULT); /* ends: nothing holds the loop any more */
    assert_int_equal(p->a.frames, 1);
    assert_int_equal(p->a.ends, 0);
}

/* A peer that never reads: the queue is bounded, and the end is told from the loop. */
static void test_high_water(void **state)
{
    struct pair *p = *state;
    AUTO_FREE uint8_t *data = calloc(1, 1 << 20);
    Dsl__LogData m;
    Dsl__Frame f;
    dsl__log_data__init(&m);
    dsl__frame__init(&f);
    m.data.data = data;
    m.data.len = 1 << 20;
    f.body_case = DSL__FRAME__BODY_LOG_DATA;
    f.log_data = &m;
    int sent = 0;
    while (channel_send(p->a.ch, &f) == 0 && sent < 1000) {
        sent++;
        assert_true(channel_queued(p->a.ch) <= CHANNEL_HIGH_WATER);
    }
    assert_in_range(sent, 60, 66);
    assert_int_equal(p->a.ends, 0); /* not from inside channel_send */
    assert_true(uvwait(&p->loop, ended, p, 2000));
    assert_int_equal(p->a.why.kind, ERR_PROTOCOL);
}

static void test_frame_too_large(void **state)
{
    struct pair *p = *state;
    AUTO_FREE uint8_t *data = calloc(1, FRAME_MAX_BYTES);
    Dsl__LogData m;
    Dsl__Frame f;
    dsl__log_data__init(&m);
    dsl__frame__init(&f);
    m.data.data = data;
    m.data.len = FRAME_MAX_BYTES;
    f.body_case = DSL__FRAME__BODY_LOG_DATA;
    f.log_data = &m;
    assert_int_equal(channel_send(p->a.ch, &f), -1);
    assert_true(uvwait(&p->loop, ended, p, 2000));
}

/* What a peer said before it went is heard, even if we were writing to it. */
static void test_last_word(void **state)
{
    struct pair *p = *state;
    uint8_t bytes[64];
    Dsl__Frame f;
    Dsl__Ping m;
    dsl__frame__init(&f);
    dsl__ping__init(&m);
    f.body_case = DSL__FRAME__BODY_PING;
    f.ping = &m;
    size_t n = ping(bytes, 77);
    assert_int_equal(write(p->fd, bytes, n), (ssize_t)n);
    (void)close(TAKE_FD(p->fd));
    (void)channel_send(p->a.ch, &f); /* EPIPE */
    assert_true(uvwait(&p->loop, ended, p, 3000));
    assert_int_equal(p->a.sum, 77);
}

static bool unread_done(void *ctx)
{
    (void)ctx;
    return false;
}

/* channel_finish delivers what is queued to a slow reader, and gives up on a dead one. */
static void test_finish(void **state)
{
    struct pair *p = *state;
    AUTO_FREE uint8_t *data = calloc(1, 1 << 20);
    Dsl__LogData m;
    Dsl__Frame f;
    size_t got = 0;
    dsl__log_data__init(&m);
    dsl__frame__init(&f);
    m.data.data = data;
    m.data.len = 1 << 20;
    f.body_case = DSL__FRAME__BODY_LOG_DATA;
    f.log_data = &m;
    for (int i = 0; i < 4; i++)
        assert_int_equal(channel_send(p->a.ch, &f), 0);
    assert_true(channel_queued(p->a.ch) > 0);
    channel_finish(TAKE(p->a.ch), 5000);
    assert_int_equal(fcntl(p->fd, F_SETFL, O_NONBLOCK), 0);
    for (;;) {
        ssize_t n = read(p->fd, data, 1 << 20);
        if (n == 0)
            break;
        if (n > 0)
            got += (size_t)n;
        else
            (void)uvwait(&p->loop, unread_done, p, 1);
    }
    assert_true(got > 4u << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_garbage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_torn, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close_inside, setup, teardown),
        cmocka_unit_test_setup_teardown(test_high_water, setup, teardown),
        cmocka_unit_test_setup_teardown(test_frame_too_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_last_word, setup, teardown),
        cmocka_unit_test_setup_teardown(test_finish, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
