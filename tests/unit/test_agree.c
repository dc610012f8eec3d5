/* The one exchange of a step: alone, and with the rows of others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "common/base/dtype.h"
#include "common/base/err.h"
#include "common/base/own.h"
#include "common/shape/topo.h"
#include "worker/comm.h"
#include "worker/loop/agree.h"
#include "worker/loop/groups.h"

enum { ROW_MAX = 8, WORLD_MAX = 12 };

/* A world in which the other ranks have already given their rows. */
struct others {
    struct comm c;
    double row[WORLD_MAX][ROW_MAX];
    bool broken;
};

static int gather(struct comm *c, const void *send, void *recv, size_t n, enum dtype t,
                  struct dev_stream *s, struct err *e)
{
    struct others *o = (struct others *)c;
    double *rows = recv;
    (void)s;
    if (o->broken)
        return err_set(e, ERR_NETWORK, "rank 1 is lost");
    assert_int_equal(t, DT_F64);
    assert_ptr_equal(send, rows + n * c->rank);
    for (uint32_t r = 0; r < c->size; r++)
        if (r != c->rank)
            memcpy(rows + n * r, o->row[r], n * sizeof(double));
    return 0;
}

static const struct comm_ops ops = {.name = "others", .all_gather = gather};

static void test_alone(void **state)
{
    struct groups g = {.topo = {1, 1, 1}};
    double losses[] = {1e16, 1, -1e16, 3};
    struct agree_in in = {.written = 7, .losses = losses, .n_losses = 4};
    struct agree_out out;
    struct err e;
    (void)state;
    assert_int_equal(agree(&g, &in, &out, &e), 0);
    assert_false(out.stop);
    assert_int_equal(out.written_min, 7);
    assert_true(out.loss_sum == ((0 + 1e16 + 1) + -1e16) + 3);
    in.stop = true;
    in.written = 0;
    in.n_losses = 0;
    assert_int_equal(agree(&g, &in, &out, &e), 0);
    assert_true(out.stop);
    assert_int_equal(out.written_min, 0);
    assert_true(out.loss_sum == 0);
}

/* pipeline 2 x data 3 x tensor 2: losses count on the last stage, of tensor rank 0, and are
 * added by number of micro-batch: a * data + r. */
static void test_order(void **state)
{
    const struct topo t = {2, 3, 2};
    static const double value[2][3] = {{1e16, 3, -1e16}, {5, 1e-3, 7}};
    struct others o = {.c = {.ops = &ops, .size = 12}};
    double want = 0;
    (void)state;
    for (int a = 0; a < 2; a++)
        for (int r = 0; r < 3; r++)
            want += value[a][r];
    assert_true(want != 1e16 + 5 + 3 + 1e-3 - 1e16 + 7); /* the order shows */
    for (uint32_t rank = 0; rank < 12; rank++) {
        struct coord c = topo_coord(&t, rank);
        bool counts = c.pp == 1 && c.tp == 0;
        o.row[rank][0] = 0;
        o.row[rank][1] = 100 + rank;
        for (int a = 0; a < 2; a++)
            o.row[rank][2 + a] = counts ? value[a][c.dp] : NAN;
    }
    for (uint32_t me = 0; me < 12; me++) { /* every rank draws the same conclusion */
        struct groups g = {.topo = t, .at = topo_coord(&t, me), .rank = me};
        struct agree_in in = {
            .written = (uint64_t)o.row[me][1], .losses = o.row[me] + 2, .n_losses = 2};
        struct agree_out out;
        struct err e;
        g.of[GROUP_WORLD] = &o.c;
        o.c.rank = me;
        assert_int_equal(agree(&g, &in, &out, &e), 0);
        assert_true(out.loss_sum == want);
        assert_int_equal(out.written_min, 100);
        assert_false(out.stop);
    }
}

/* One asks to stop, and all do; the slowest writer counts. */
static void test_any_and_least(void **state)
{
    struct others o = {.c = {.ops = &ops, .size = 3, .rank = 1}};
    struct groups g = {.topo = {1, 3, 1}, .rank = 1, .at = {0, 1, 0}};
    double loss = 1;
    struct agree_in in = {.written = 50, .losses = &loss, .n_losses = 1};
    struct agree_out out;
    struct err e = {0};
    (void)state;
    g.of[GROUP_WORLD] = &o.c;
    o.row[0][1] = 60;
    o.row[2][0] = 1;
    o.row[2][1] = 40;
    assert_int_equal(agree(&g, &in, &out, &e), 0);
    assert_true(out.stop);
    assert_int_equal(out.written_min, 40);
    o.row[2][0] = 0;
    o.row[2][1] = 9007199254740992.0;
    assert_int_equal(agree(&g, &in, &out, &e), 0);
    assert_false(out.stop);
    assert_int_equal(out.written_min, 50);
    o.broken = true;
    assert_int_equal(agree(&g, &in, &out, &e), -1);
    assert_int_equal(e.kind, ERR_NETWORK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_any_and_least),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
