/* health.h: leases, hangs and whom to name; and that nobody alive is ever accused.
 *
 * DSLAUNCH_SEED=N makes other jitter; the seed is printed.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "launcher/super/health.h"

#define MS 1000000LL
#define S 1000000000LL
#define TICK (250 * MS)
#define REPORT_MOST (1900 * MS)

enum { NODES = 2, RANKS = 6, NOBODY = 99 };

static const struct health_limits limits = {
    .suspect_ns = 3 * S, .lost_ns = 8 * S, .hang_timeout_ns = 30 * S};

struct rig {
    struct health *h;
    int64_t now;
    struct buf said; /* "suspect 1 3.0; " */
    uint64_t random;
    struct health_page page[RANKS];
    uint32_t stopped; /* the rank that stands still; its peers wait for it from then on */
};

static void on_verdict(void *ctx, enum health_verdict v, uint32_t id, int64_t silent_ns)
{
    static const char *const names[] = {
        [HEALTH_NODE_SUSPECT] = "suspect",
        [HEALTH_NODE_BACK] = "back",
        [HEALTH_NODE_LOST] = "lost",
        [HEALTH_RANK_HUNG] = "hung",
    };
    struct rig *r = ctx;
    buf_printf(&r->said, "%s %u %.1f; ", names[v], id, (double)silent_ns / 1e9);
}

static uint64_t rnd(struct rig *r, uint64_t n)
{
    uint64_t z = (r->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

static uint64_t seed(void)
{
    const char *s = getenv("DSLAUNCH_SEED");
    uint64_t x = s ? strtoull(s, NULL, 0) : 1;
    print_message("# DSLAUNCH_SEED=%llu\n", (unsigned long long)x);
    return x;
}

static void begin(struct rig *r, const struct health_limits *l)
{
    *r = (struct rig){.now = 5000 * S, .said = BUF(1 << 16), .stopped = NOBODY};
    r->h = health_new(NODES, RANKS, l, on_verdict, r);
    assert_true(health_deadline(r->h) == INT64_MAX);
    for (uint32_t i = 0; i < NODES; i++)
        health_node_up(r->h, i, r->now);
    health_generation(r->h, true, r->now);
}

static void end(struct rig *r)
{
    health_free(r->h);
    buf_done(&r->said);
}

static void expect(struct rig *r, const char *want)
{
    assert_string_equal(buf_str(&r->said), want);
    buf_clear(&r->said);
}

static void frames(struct rig *r)
{
    for (uint32_t i = 0; i < NODES; i++)
        health_node_frame(r->h, i, r->now);
}

static void report(struct rig *r, uint32_t rank, struct health_page p)
{
    r->page[rank] = p;
    health_rank_page(r->h, rank, &r->page[rank], r->now);
}

static void report_again(struct rig *r)
{
    frames(r);
    for (uint32_t i = 0; i < RANKS; i++)
        health_rank_page(r->h, i, &r->page[i], r->now);
}

/* Ticks with unchanged pages until something is said; returns the time that took. */
static int64_t until_said(struct rig *r, int64_t most)
{
    int64_t from = r->now;
    while (r->said.len == 0 && r->now - from < most) {
        r->now += TICK;
        report_again(r);
        health_tick(r->h, r->now);
    }
    return r->now - from;
}

/* Leases. */

static void leases(void **state)
{
    (void)state;
    struct rig r;
    begin(&r, &limits);
    health_generation(r.h, false, r.now);
    for (int i = 0; i < 4 * 60; i++) {
        r.now += TICK;
        health_node_frame(r.h, 0, r.now);
        if (i < 40 || (i >= 60 && i < 100))
            health_node_frame(r.h, 1, r.now);
        health_tick(r.h, r.now);
        if (i == 50)
            expect(&r, "");
        if (i == 52)
            expect(&r, "suspect 1 3.0; ");
        if (i == 61)
            expect(&r, "back 1 5.2; ");
    }
    expect(&r, "suspect 1 3.0; lost 1 8.0; "); /* once */
    health_node_up(r.h, 1, r.now);
    r.now += TICK;
    health_tick(r.h, r.now);
    expect(&r, "");
    health_node_down(r.h, 1);
    for (int i = 0; i < 100; i++) {
        r.now += TICK;
        health_node_frame(r.h, 0, r.now);
        health_tick(r.h, r.now);
    }
    expect(&r, "");
    end(&r);
}

/* A driver that ticks only when it is told to finds the verdicts in time, and does not spin. */
static void deadline_drives(void **state)
{
    (void)state;
    struct rig r;
    begin(&r, &limits);
    int64_t from = r.now;
    uint32_t ticks = 0;
    for (; r.now < from + 20 * S; ticks++) {
        int64_t at = health_deadline(r.h);
        assert_true(at > r.now || ticks == 0);
        r.now = at > r.now ? at : r.now + 1;
        health_node_frame(r.h, 0, r.now);
        health_tick(r.h, r.now);
    }
    expect(&r, "suspect 1 3.0; lost 1 8.0; ");
    assert_true(ticks < 100);
    health_node_down(r.h, 0);
    health_generation(r.h, false, r.now);
    assert_true(health_deadline(r.h) == INT64_MAX);
    end(&r);
}

/* Hangs. */

static void stopped_among_waiting(void **state)
{
    (void)state;
    struct rig r;
    for (uint32_t culprit = 0; culprit < RANKS; culprit++) {
        begin(&r, &limits);
        r.now += TICK;
        for (uint32_t i = 0; i < RANKS; i++) /* all wait for it, and did before it stopped */
            if (i != culprit)
                report(&r, i, (struct health_page){.beat = 7, .step = 3, .waiting = 1});
        r.now += 20 * TICK;
        report(&r, culprit, (struct health_page){.beat = 7, .step = 3, .proc_state = 'T'});
        assert_true(until_said(&r, 100 * S) <= limits.hang_timeout_ns + TICK);
        AUTO_BUF struct buf want = BUF(64);
        buf_printf(&want, "hung %u 30.0; ", culprit);
        expect(&r, want.data);
        assert_true(until_said(&r, 100 * S) >= 100 * S); /* said once ... */
        health_generation(r.h, true, r.now);
        until_said(&r, 100 * S); /* ... a generation */
        expect(&r, want.data);
        end(&r);
    }
}

static void who_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        struct health_page page[3];
        uint32_t culprit;
    } cases[] = {
        {"computing for ever",
         {{.waiting = 1}, {.waiting = 1}, {.waiting = 0, .step = 9, .coll_seq = 9}},
         2},
        {"stopped inside a wait",
         {{.waiting = 1}, {.waiting = 1, .proc_state = 'T'}, {.waiting = 1}},
         1},
        {"stopped before computing",
         {{.waiting = 0}, {.waiting = 0, .proc_state = 'T'}, {0}},
         1},
        {"behind by a step",
         {{.waiting = 1, .step = 5},
          {.waiting = 1, .step = 5},
          {.waiting = 1, .step = 4, .coll_seq = 99}},
         2},
        {"behind by a collective",
         {{.waiting = 1, .coll_seq = 8},
          {.waiting = 1, .coll_seq = 7},
          {.waiting = 1, .coll_seq = 7}},
         1},
        {"nothing to choose", {{.waiting = 1}, {.waiting = 1}, {.waiting = 1}}, 0},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct rig r;
        AUTO_BUF struct buf want = BUF(64);
        begin(&r, &limits);
        for (uint32_t i = 3; i < RANKS; i++)
            health_rank_gone(r.h, i);
        for (uint32_t i = 0; i < 3; i++)
            report(&r, i, cases[c].page[i]);
        until_said(&r, 100 * S);
        buf_printf(&want, "hung %u 30.0; ", cases[c].culprit);
        if (strcmp(buf_str(&r.said), want.data) != 0)
            fail_msg("%s: %s", cases[c].what, buf_str(&r.said));
        assert_true(health_page_of(r.h, 0)->step == cases[c].page[0].step);
        assert_null(health_page_of(r.h, 5));
        end(&r);
    }
}

/* One rank waits for ever while the others go on: it gets the others' time, too, then is named.
 */
static void forgotten_in_a_wait(void **state)
{
    (void)state;
    struct rig r;
    begin(&r, &limits);
    for (uint32_t i = 0; i < RANKS; i++)
        report(&r, i, (struct health_page){.waiting = i == 4});
    int64_t from = r.now;
    while (r.said.len == 0) {
        r.now += TICK;
        for (uint32_t i = 0; i < RANKS; i++)
            r.page[i].beat += i != 4;
        report_again(&r);
        health_tick(r.h, r.now);
        assert_true(r.now - from <= 2 * limits.hang_timeout_ns + TICK);
    }
    expect(&r, "hung 4 60.0; ");
    end(&r);
}

/* Without reports nothing is known of a rank: its node is lost, the rank is not accused. */
static void silent_node_is_no_hang(void **state)
{
    (void)state;
    struct health_limits l = limits;
    struct rig r;
    l.hang_timeout_ns = 4 * S;
    begin(&r, &l);
    report_again(&r);
    for (int i = 0; i < 60; i++) {
        r.now += TICK;
        health_node_frame(r.h, 0, r.now);
        health_tick(r.h, r.now);
    }
    expect(&r, "suspect 1 3.0; lost 1 8.0; ");
    end(&r);
}

/* Ranks that live as ranks do: beats come in bursts with gaps up to just below the timeout,
 * frames jitter, ticks come late, and the observer itself pauses for any time.  Nobody is
 * accused.  Then one is stopped, and is named in time. */
static void nobody_alive_is_accused(void **state)
{
    (void)state;
    uint64_t from_seed = seed();
    for (uint64_t world = 0; world < 300; world++) {
        struct rig r;
        begin(&r, &limits);
        r.random = from_seed + world * 0x632be59bd9b4e019u;
        int64_t next_beat[RANKS], next_report[NODES];
        for (uint32_t i = 0; i < RANKS; i++)
            next_beat[i] = r.now;
        for (uint32_t i = 0; i < NODES; i++)
            next_report[i] = r.now;
        int64_t stop_at = r.now + (int64_t)rnd(&r, 400) * S, until = stop_at + 40 * S;
        while (r.now < until && r.said.len == 0) {
            r.now += TICK - 20 * MS + (int64_t)rnd(&r, 60) * MS;
            bool paused = r.now < stop_at && rnd(&r, 200) == 0;
            if (paused) { /* the world goes on meanwhile; its frames are read after the tick */
                r.now += (int64_t)rnd(&r, 600) * S;
                health_tick(r.h, r.now);
                stop_at = stop_at > r.now ? stop_at : r.now + S;
                until = stop_at + 40 * S;
            }
            if (r.now >= stop_at && r.stopped == NOBODY) {
                r.stopped = (uint32_t)rnd(&r, RANKS);
                until = r.now + limits.hang_timeout_ns + REPORT_MOST + 2 * TICK;
            }
            for (uint32_t i = 0; i < RANKS; i++) {
                if (r.stopped == NOBODY && r.now >= next_beat[i]) {
                    r.page[i].beat++;
                    r.page[i].waiting = (uint32_t)rnd(&r, 2);
                    next_beat[i] = r.now + (int64_t)rnd(&r, rnd(&r, 10) ? 300 : 28000) * MS;
                } else if (r.stopped == i) {
                    r.page[i].proc_state = 'T';
                } else if (r.stopped != NOBODY && !r.page[i].waiting) {
                    r.page[i].waiting = 1; /* comes to the next collective, and waits */
                    r.page[i].beat++;
                }
            }
            for (uint32_t n = 0; n < NODES; n++) {
                if (r.now < next_report[n])
                    continue;
                health_node_frame(r.h, n, r.now);
                for (uint32_t i = n; i < RANKS; i += NODES)
                    health_rank_page(r.h, i, &r.page[i], r.now);
                next_report[n] =
                    r.now + (r.stopped == NOBODY ? (int64_t)rnd(&r, REPORT_MOST / MS) * MS : 0);
            }
            if (r.stopped == NOBODY && r.said.len)
                fail_msg("world %llu: %s", (unsigned long long)world, buf_str(&r.said));
            health_tick(r.h, r.now);
            if (r.stopped == NOBODY && r.said.len)
                fail_msg("world %llu: %s", (unsigned long long)world, buf_str(&r.said));
        }
        AUTO_BUF struct buf want = BUF(64);
        buf_printf(&want, "hung %u ", r.stopped);
        if (strncmp(buf_str(&r.said), want.data, want.len) != 0)
            fail_msg("world %llu: '%s', not %s", (unsigned long long)world, buf_str(&r.said),
                     want.data);
        end(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases),
        cmocka_unit_test(deadline_drives),
        cmocka_unit_test(stopped_among_waiting),
        cmocka_unit_test(who_is_named),
        cmocka_unit_test(forgotten_in_a_wait),
        cmocka_unit_test(silent_node_is_no_hang),
        cmocka_unit_test(nobody_alive_is_accused),
    };
    return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
