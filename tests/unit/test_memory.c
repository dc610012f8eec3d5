/* test_memory.c: the plan of a rank: buffers do not overlap unless their lifetimes allow, sums
 * add up, and a small case by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/shape/memory.h"
#include "common/spec/spec.h"

static struct spec spec_of(enum spec_arch arch, uint32_t t, uint32_t pp, bool sequence)
{
    struct spec s = {0};
    s.model.arch = arch;
    s.model.layers = 4;
    s.model.hidden = 64;
    s.model.heads = 4;
    s.model.kv_heads = arch == ARCH_GPT2 ? 4 : 2;
    s.model.ffn = 128;
    s.model.vocab = 259;
    s.model.max_positions = 16;
    s.model.tied = arch == ARCH_GPT2;
    s.model.rope_theta = 10000;
    s.model.norm_eps = 1e-5;
    s.parallel.data = 1;
    s.parallel.tensor = t;
    s.parallel.pipeline = pp;
    s.parallel.sequence = sequence;
    s.train.micro_batch = 2;
    s.train.seq_len = 16;
    return s;
}

/* Live at once?  Only work buffers ever share bytes: forward with backward, and the two halves
 * of a block's backward. */
static bool may_share(uint32_t a, uint32_t b)
{
    static const struct {
        enum mem_id a, b;
    } pairs[] = {{MEM_DELTA, MEM_D_NORM}, {MEM_DELTA, MEM_D_ATT}, {MEM_DELTA, MEM_D_QKV},
                 {MEM_DELTA, MEM_D_ACT},  {MEM_D_ATT, MEM_D_ACT}, {MEM_D_QKV, MEM_D_ACT}};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        if ((a == pairs[i].a && b == pairs[i].b) || (a == pairs[i].b && b == pairs[i].a))
            return true;
    }
    return false;
}

static void check_plan(const struct mem_plan *m)
{
    size_t sum = 0, all = 0;
    for (int c = 0; c < MEM_CLASS_COUNT; c++)
        sum += m->class_bytes[c];
    assert_int_equal(sum, m->arena_bytes);
    for (size_t i = 0; i < m->n_bufs; i++) {
        const struct mem_buf *a = &m->bufs[i];
        assert_true(a->bytes > 0 && a->bytes % MEM_ALIGN == 0 && a->offset % MEM_ALIGN == 0);
        assert_true(a->offset + a->bytes <= m->arena_bytes);
        assert_ptr_equal(mem_plan_buf(m, a->id, a->layer, a->slot), a);
        all += a->bytes;
        for (size_t j = 0; j < i; j++) {
            const struct mem_buf *b = &m->bufs[j];
            bool apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            if (!apart && !may_share(a->id, b->id))
                fail_msg("buffers %u and %u share bytes", a->id, b->id);
        }
    }
    assert_true(all > m->arena_bytes); /* something is shared */
}

static void layouts_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * 3 * 3 * 2 * 3; i++) {
        uint32_t t = 1u << i / 2 % 3, pp = 1u << i / 6 % 3, n_micro = i / 36 + 1;
        struct spec s = spec_of(i % 2 ? ARCH_LLAMA : ARCH_GPT2, t, pp, i / 18 % 2);
        AUTO(sched) struct sched *sched = sched_new(SCHEDULE_1F1B, pp, n_micro);
        for (uint32_t stage = 0; stage < pp; stage++) {
            AUTO(params) struct params *p = params_new(&s, (struct coord){.pp = stage});
            AUTO(mem_plan) struct mem_plan *m = mem_plan_new(&s, p, sched);
            check_plan(m);
            assert_int_equal(m->n_slots, sched->lanes[stage].n_slots);
            assert_int_equal(!!mem_plan_buf(m, MEM_IDS, -1, 0), stage == 0);
            assert_int_equal(!!mem_plan_buf(m, MEM_LOGITS, -1, m->n_slots - 1),
                             stage + 1 == pp);
            assert_int_equal(!!mem_plan_buf(m, MEM_ACT_OUT, -1, 0), stage + 1 < pp);
            assert_int_equal(!!mem_plan_buf(m, MEM_MICRO_GRAD, -1, 0), n_micro > 1);
            assert_int_equal(!!mem_plan_buf(m, MEM_FULL_IN, -1, 0),
                             s.parallel.sequence && t > 1);
            assert_null(mem_plan_buf(m, MEM_RES1, (int32_t)p->n_layers, 0));
            assert_null(mem_plan_buf(m, MEM_RES1, 0, m->n_slots));
        }
    }
}

/* Llama, tensor 2 with rows split: 32 rows, 16 of them here; 2 heads and 1 kv head of 16. */
static void sizes_by_hand(void **state)
{
    struct spec s = spec_of(ARCH_LLAMA, 2, 1, true);
    AUTO(sched) struct sched *sched = sched_new(SCHEDULE_1F1B, 1, 1);
    AUTO(params) struct params *p = params_new(&s, (struct coord){0});
    AUTO(mem_plan) struct mem_plan *m = mem_plan_new(&s, p, sched);
    const struct {
        enum mem_id id;
        int32_t layer;
        size_t bytes;
    } want[] = {
        {MEM_RES1, 3, 16 * 64 * 4},
        {MEM_STAT1, 3, 256},
        {MEM_QKV, 0, 32 * (2 + 2) * 16 * 4},
        {MEM_ATT, 0, 32 * 2 * 16 * 4},
        {MEM_LSE, 0, 32 * 2 * 4},
        {MEM_UP, 0, 32 * 2 * 64 * 4},
        {MEM_ACT, 0, 32 * 64 * 4},
        {MEM_NF, -1, 16 * 64 * 4},
        {MEM_LOGITS, -1, 32 * 130 * 4},
        {MEM_ROW_VALUES, -1, 512},
        {MEM_FULL_OUT, -1, 32 * 64 * 4},
        {MEM_NORM_GRADS, -1, 9 * 64 * 4},
        {MEM_GRAD_IN, -1, 16 * 64 * 4},
        {MEM_IDS, -1, 256},
        {MEM_WEIGHT, -1, (size_t)p->n_elements * 4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
        const struct mem_buf *b = mem_plan_buf(m, want[i].id, want[i].layer, 0);
        assert_non_null(b);
        if (b->bytes != want[i].bytes)
            fail_msg("buffer %d: %zu bytes, by hand %zu", (int)want[i].id, b->bytes,
                     want[i].bytes);
    }
    assert_int_equal(m->class_bytes[MEM_WEIGHTS], (size_t)p->n_elements * 4);
    assert_int_equal(m->class_bytes[MEM_OPTIMIZER], (size_t)p->n_elements * 8 + 256);
}

/* The largest sizes that a spec may have, together: nothing wraps into an arena that exists. */
static void nothing_wraps(void **state)
{
    struct spec s = spec_of(ARCH_LLAMA, 1, 1, false);
    (void)state;
    s.model.vocab = 16777216;
    s.train.micro_batch = 65536;
    s.train.seq_len = 1048576;
    AUTO(params) struct params *p = params_new(&s, (struct coord){0});
    AUTO(sched) struct sched *sched = sched_new(SCHEDULE_GPIPE, 1, 8);
    AUTO(mem_plan) struct mem_plan *m = mem_plan_new(&s, p, sched);
    assert_true(m->arena_bytes == SIZE_MAX);
    assert_true(m->class_bytes[MEM_ACTIVATIONS] == SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_hold),
        cmocka_unit_test(sizes_by_hand),
        cmocka_unit_test(nothing_wraps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
