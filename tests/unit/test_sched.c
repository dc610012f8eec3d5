/* sched.h: both schedules in all small shapes, and tables broken on purpose. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/base/err.h"
#include "common/shape/sched.h"

enum { P_MAX = 8, M_MAX = 16 };

static const enum spec_schedule kinds[] = {SCHEDULE_GPIPE, SCHEDULE_1F1B};
static const struct sched_cost unit = {.f = 1, .b = 2};

static uint32_t min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void check_shape(enum spec_schedule kind, uint32_t p, uint32_t m)
{
    AUTO(sched) struct sched *s = sched_new(kind, p, m);
    struct err e = {0};
    struct sched_report r;
    assert_int_equal(sched_simulate(s, &unit, &r, &e), 0);
    assert_true(fabs(r.makespan - (p - 1 + m) * 3.0) < 1e-9);
    assert_true(fabs(r.bubble - (p - 1.0) / (m + p - 1.0)) < 1e-9);

    uint32_t most = 0;
    for (uint32_t i = 0; i < p; i++) {
        const struct sched_lane *l = &s->lanes[i];
        uint32_t want = kind == SCHEDULE_GPIPE ? m : min(p - i, m);
        assert_int_equal(l->n_slots, want);
        most = most < want ? want : most;
        uint32_t hops = (i > 0) + (i + 1 < p);
        assert_int_equal(l->n, m * (2 + 2 * hops));
    }
    assert_int_equal(r.max_slots, most);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++)
        for (uint32_t p = 1; p <= P_MAX; p++)
            for (uint32_t m = 1; m <= M_MAX; m++)
                check_shape(kinds[k], p, m);
}

/* GPipe on 2 stages, 2 micro-batches, f 1, b 2, send 0.5, by hand. */
static void test_ticks(void **state)
{
    (void)state;
    AUTO(sched) struct sched *s = sched_new(SCHEDULE_GPIPE, 2, 2);
    const struct sched_cost cost = {.f = 1, .b = 2, .send = 0.5};
    struct sched_report r;
    assert_int_equal(sched_simulate(s, &cost, &r, NULL), 0);
    static const struct {
        enum sched_op op;
        double at;
    } want[] = {{SCHED_RECV_ACT, 1.5}, {SCHED_F, 1.5},        {SCHED_RECV_ACT, 2.5},
                {SCHED_F, 2.5},        {SCHED_B, 3.5},        {SCHED_SEND_GRAD, 5.5},
                {SCHED_B, 5.5},        {SCHED_SEND_GRAD, 7.5}};
    assert_int_equal(s->lanes[1].n, 8);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(s->lanes[1].items[i].op, want[i].op);
        assert_int_equal(s->lanes[1].items[i].tick, (uint32_t)(want[i].at * 16));
    }
    assert_true(fabs(r.makespan - 10) < 1e-9); /* 7.5 + 0.5 + 2 on stage 0 */
    assert_true(fabs(r.bubble - (1 - 12 / 20.0)) < 1e-9);
}

/* Order of one lane of 1F1B: p = 4, stage 1, m = 5. */
static void test_1f1b_order(void **state)
{
    (void)state;
    AUTO(sched) struct sched *s = sched_new(SCHEDULE_1F1B, 4, 5);
    char got[64] = "";
    size_t n = 0;
    for (size_t i = 0; i < s->lanes[1].n; i++) {
        const struct sched_item *it = &s->lanes[1].items[i];
        if (it->op == SCHED_F || it->op == SCHED_B) {
            got[n++] = it->op == SCHED_F ? 'F' : 'B';
            got[n++] = (char)('0' + it->micro);
        }
    }
    assert_string_equal(got, "F0F1F2B0F3B1F4B2B3B4");
}

static void refused(struct sched *s, const char *what)
{
    struct err e = {0};
    struct sched_report r;
    assert_int_equal(sched_simulate(s, &unit, &r, &e), -1);
    assert_int_equal(e.kind, ERR_PROTOCOL);
    if (!strstr(e.text, what))
        fail_msg("\"%s\" does not say \"%s\"", e.text, what);
}

static size_t find(const struct sched_lane *l, enum sched_op op, uint32_t micro)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i].op == op && l->items[i].micro == micro)
            return i;
    fail_msg("no %s of %u", sched_op_name(op), micro);
    return 0;
}

static void drop(struct sched_lane *l, size_t i)
{
    l->n--;
    memmove(&l->items[i], &l->items[i + 1], (l->n - i) * sizeof *l->items);
}

static void swap(struct sched_lane *l, size_t i, size_t j)
{
    struct sched_item t = l->items[i];
    l->items[i] = l->items[j];
    l->items[j] = t;
}

static void test_dropped(void **state)
{
    (void)state;
    static const struct {
        uint32_t stage;
        enum sched_op op;
        const char *what;
    } cases[] = {
        {0, SCHED_SEND_ACT, "deadlock"},
        {2, SCHED_SEND_GRAD, "would overwrite a gradient not sent yet"},
        {1, SCHED_F, "comes before what it needs"},
        {1, SCHED_RECV_ACT, "comes before what it needs"},
        {1, SCHED_RECV_GRAD, "comes before what it needs"},
        {0, SCHED_B, "its slot holds a micro-batch still needed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO(sched) struct sched *s = sched_new(SCHEDULE_1F1B, 3, 6);
        struct sched_lane *l = &s->lanes[cases[i].stage];
        drop(l, find(l, cases[i].op, 2));
        refused(s, cases[i].what);
    }
    /* The last one of a lane leaves no later item behind that would trip over it. */
    AUTO(sched) struct sched *s = sched_new(SCHEDULE_1F1B, 3, 6);
    s->lanes[0].n--;
    refused(s, "stage 0 has no B of micro-batch 5");
    AUTO(sched) struct sched *g = sched_new(SCHEDULE_1F1B, 3, 6);
    g->lanes[2].n--;
    refused(g, "waits for what is never sent");
}

static void test_swapped(void **state)
{
    (void)state;
    /* Backwards in descending order: as first in, last out GPipe would. */
    AUTO(sched) struct sched *one = sched_new(SCHEDULE_GPIPE, 1, 4);
    swap(&one->lanes[0], find(&one->lanes[0], SCHED_B, 1), find(&one->lanes[0], SCHED_B, 2));
    refused(one, "not in ascending order");

    AUTO(sched) struct sched *s = sched_new(SCHEDULE_1F1B, 2, 4);
    swap(&s->lanes[0], 0, 1); /* send before its F */
    refused(s, "comes before what it needs");

    /* Sends in another order than the receives expect. */
    AUTO(sched) struct sched *o = sched_new(SCHEDULE_GPIPE, 2, 4);
    swap(&o->lanes[0], find(&o->lanes[0], SCHED_SEND_ACT, 2),
         find(&o->lanes[0], SCHED_SEND_ACT, 3));
    refused(o, "comes before what it needs");
    AUTO(sched) struct sched *q = sched_new(SCHEDULE_GPIPE, 2, 4);
    struct sched_lane *l = &q->lanes[0];
    size_t f2 = find(l, SCHED_F, 2); /* F2 S2 F3 S3 -> F2 F3 S3 S2 */
    swap(l, f2 + 1, f2 + 2);
    swap(l, f2 + 2, f2 + 3);
    refused(q, "not in the order in which it is sent");
}

/* Stage 0 wants micro-batch 0 back before it makes F1; stage 1 wants both before it goes back.
 */
static void test_deadlock(void **state)
{
    (void)state;
    static const enum sched_op ops[] = {SCHED_F, SCHED_SEND_ACT, SCHED_RECV_GRAD, SCHED_B};
    AUTO(sched) struct sched *s = sched_new(SCHEDULE_GPIPE, 2, 2);
    struct sched_lane *l = &s->lanes[0];
    for (uint32_t i = 0; i < 8; i++)
        l->items[i] = (struct sched_item){.op = ops[i % 4], .micro = i / 4, .slot = i / 4};
    refused(s, "deadlock");

    AUTO(sched) struct sched *t = sched_new(SCHEDULE_1F1B, 2, 2);
    memcpy(t->lanes[0].items, l->items, 8 * sizeof *l->items); /* one in flight: slow, legal */
    struct sched_report r;
    assert_int_equal(sched_simulate(t, &unit, &r, NULL), 0);
}

static void test_slots(void **state)
{
    (void)state;
    AUTO(sched) struct sched *s = sched_new(SCHEDULE_1F1B, 2, 4);
    s->lanes[0].n_slots--;
    refused(s, "out of range");
    AUTO(sched) struct sched *t = sched_new(SCHEDULE_1F1B, 2, 4);
    for (size_t i = 0; i < t->lanes[0].n; i++)
        t->lanes[0].items[i].slot = 0;
    refused(t, "still needed");
    AUTO(sched) struct sched *u = sched_new(SCHEDULE_1F1B, 2, 4);
    u->lanes[0].items[find(&u->lanes[0], SCHED_B, 1)].slot ^= 1;
    refused(u, "names another slot");
}

static void test_doubled(void **state)
{
    (void)state;
    AUTO(sched) struct sched *s = sched_new(SCHEDULE_GPIPE, 1, 3);
    s->lanes[0].items[1] = s->lanes[0].items[0];
    refused(s, "done already");
    AUTO(sched) struct sched *t = sched_new(SCHEDULE_GPIPE, 2, 3);
    t->lanes[0].items[0].op = SCHED_RECV_ACT;
    refused(t, "not for this stage");
    AUTO(sched) struct sched *u = sched_new(SCHEDULE_GPIPE, 2, 3);
    u->lanes[0].items[0].micro = 3;
    refused(u, "out of range");
}

/* Any one item left out of any lane is noticed. */
static void test_any_dropped(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++)
        for (uint32_t p = 1; p <= 4; p++)
            for (uint32_t stage = 0; stage < p; stage++) {
                size_t n = p == 1 ? 10 : (stage == 0 || stage + 1 == p ? 20 : 30);
                for (size_t i = 0; i < n; i++) {
                    AUTO(sched) struct sched *s = sched_new(kinds[k], p, 5);
                    assert_int_equal(s->lanes[stage].n, n);
                    drop(&s->lanes[stage], i);
                    refused(s, "schedule: ");
                }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),      cmocka_unit_test(test_ticks),
        cmocka_unit_test(test_1f1b_order),  cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_swapped),     cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_slots),       cmocka_unit_test(test_doubled),
        cmocka_unit_test(test_any_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
