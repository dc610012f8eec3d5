/* topo.h: ranks, coordinates and groups. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "common/shape/topo.h"

enum { WORLD_MAX = 4 * 4 * 8 };

/* Calls fn for every grid with sizes out of 1, 2, 3, 4 (tensor: also 8). */
static void for_grids(void (*fn)(const struct topo *t))
{
    static const uint32_t tensor[] = {1, 2, 3, 4, 8};
    for (uint32_t pp = 1; pp <= 4; pp++)
        for (uint32_t dp = 1; dp <= 4; dp++)
            for (size_t i = 0; i < sizeof tensor / sizeof *tensor; i++)
                fn(&(struct topo){pp, dp, tensor[i]});
}

static void ranks_in_order(const struct topo *t)
{
    uint32_t rank = 0;
    for (uint32_t pp = 0; pp < t->pipeline; pp++)
        for (uint32_t dp = 0; dp < t->data; dp++)
            for (uint32_t tp = 0; tp < t->tensor; tp++, rank++) {
                struct coord c = topo_coord(t, rank);
                assert_int_equal(topo_rank(t, (struct coord){pp, dp, tp}), rank);
                assert_true(c.pp == pp && c.dp == dp && c.tp == tp);
            }
    assert_int_equal(rank, topo_world(t));
}

static void test_ranks(void **state)
{
    (void)state;
    for_grids(ranks_in_order);
}

/* Every group of a kind, seen from each member, is the same list, ascending, with the member at
 * its coordinate. */
static void groups_agree(const struct topo *t)
{
    static const uint32_t kv_heads[] = {1, 2, 3, 4, 8};
    uint32_t mine[WORLD_MAX], theirs[WORLD_MAX], world = topo_world(t);
    for (enum group_kind k = 0; k < GROUP_KIND_COUNT; k++)
        for (uint32_t rank = 0; rank < world; rank++)
            for (size_t h = 0; h < sizeof kv_heads / sizeof *kv_heads; h++) {
                uint32_t kv = kv_heads[h];
                if (t->tensor % kv && kv % t->tensor)
                    continue;
                uint32_t n = topo_group(t, k, rank, kv, mine), found = 0;
                for (uint32_t i = 0; i < n; i++) {
                    found += mine[i] == rank;
                    assert_true(i == 0 || mine[i] > mine[i - 1]);
                    assert_int_equal(topo_group(t, k, mine[i], kv, theirs), n);
                    assert_memory_equal(mine, theirs, n * sizeof *mine);
                }
                assert_int_equal(found, n > 0);
            }
}

static void test_groups_agree(void **state)
{
    (void)state;
    for_grids(groups_agree);
}

static void sizes(const struct topo *t)
{
    uint32_t r[WORLD_MAX];
    for (uint32_t rank = 0; rank < topo_world(t); rank++) {
        struct coord c = topo_coord(t, rank);
        assert_int_equal(topo_group(t, GROUP_WORLD, rank, 1, r), topo_world(t));
        assert_int_equal(r[rank], rank);
        assert_int_equal(topo_group(t, GROUP_TENSOR, rank, 1, r), t->tensor);
        assert_int_equal(r[c.tp], rank);
        assert_int_equal(topo_group(t, GROUP_DATA, rank, 1, r), t->data);
        assert_int_equal(r[c.dp], rank);
        assert_int_equal(topo_group(t, GROUP_PIPELINE, rank, 1, r), t->pipeline);
        assert_int_equal(r[c.pp], rank);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    for_grids(sizes);
}

static void test_examples(void **state)
{
    (void)state;
    uint32_t r[32];
    const struct topo t = {.pipeline = 3, .data = 2, .tensor = 4};
    /* rank 9 = (1 * 2 + 0) * 4 + 1 */
    assert_int_equal(topo_group(&t, GROUP_TENSOR, 9, 2, r), 4);
    assert_true(r[0] == 8 && r[3] == 11);
    assert_int_equal(topo_group(&t, GROUP_DATA, 9, 2, r), 2);
    assert_true(r[0] == 9 && r[1] == 13);
    assert_int_equal(topo_group(&t, GROUP_PIPELINE, 9, 2, r), 3);
    assert_true(r[0] == 1 && r[1] == 9 && r[2] == 17);
    assert_int_equal(topo_group(&t, GROUP_EMBEDDING, 9, 2, r), 0);
    assert_int_equal(topo_group(&t, GROUP_EMBEDDING, 17, 2, r), 2);
    assert_true(r[0] == 1 && r[1] == 17);
    assert_int_equal(topo_group(&t, GROUP_KV, 11, 2, r), 2);
    assert_true(r[0] == 10 && r[1] == 11);
    assert_int_equal(topo_group(&t, GROUP_KV, 11, 4, r), 1);
    assert_int_equal(topo_group(&t, GROUP_KV, 11, 8, r), 1);
    assert_int_equal(r[0], 11);

    const struct topo one = {1, 2, 2};
    assert_int_equal(topo_group(&one, GROUP_EMBEDDING, 3, 2, r), 1);
    assert_int_equal(r[0], 3);
}

static void test_names(void **state)
{
    (void)state;
    for (enum group_kind k = 0; k < GROUP_KIND_COUNT; k++)
        assert_non_null(group_kind_name(k));
    assert_string_equal(group_kind_name(GROUP_KV), "kv");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks), cmocka_unit_test(test_groups_agree),
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_examples),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
