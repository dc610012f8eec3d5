/* sched.c: makes schedules; sched_sim.c proves them. */
#include "common/shape/sched.h"

#include <assert.h>
#include <stdbool.h>

const char *sched_op_name(enum sched_op op)
{
    static const char *const names[SCHED_OP_COUNT] = {
        [SCHED_F] = "F",
        [SCHED_B] = "B",
        [SCHED_W] = "W",
        [SCHED_SEND_ACT] = "send-act",
        [SCHED_RECV_ACT] = "recv-act",
        [SCHED_SEND_GRAD] = "send-grad",
        [SCHED_RECV_GRAD] = "recv-grad",
    };
    return names[op];
}

static void add_item(struct sched_lane *l, enum sched_op op, uint32_t micro)
{
    l->items[l->n++] = (struct sched_item){.op = op, .micro = micro};
}

static void add_forward(struct sched *s, uint32_t stage, uint32_t micro)
{
    struct sched_lane *l = &s->lanes[stage];
    if (stage > 0)
        add_item(l, SCHED_RECV_ACT, micro);
    add_item(l, SCHED_F, micro);
    if (stage + 1 < s->n_stages)
        add_item(l, SCHED_SEND_ACT, micro);
}

static void add_backward(struct sched *s, uint32_t stage, uint32_t micro)
{
    struct sched_lane *l = &s->lanes[stage];
    if (stage + 1 < s->n_stages)
        add_item(l, SCHED_RECV_GRAD, micro);
    add_item(l, SCHED_B, micro);
    if (stage > 0)
        add_item(l, SCHED_SEND_GRAD, micro);
}

/* The lowest free slot at the first use of each micro-batch; B frees it. */
static void assign_slots(struct sched_lane *l, uint32_t n_micro)
{
    AUTO_FREE uint32_t *slot_of = xcalloc(n_micro, sizeof(*slot_of));
    AUTO_FREE bool *known = xcalloc(n_micro, sizeof(*known));
    AUTO_FREE bool *used = xcalloc(n_micro, sizeof(*used));
    for (size_t i = 0; i < l->n; i++) {
        struct sched_item *it = &l->items[i];
        if (!known[it->micro]) {
            uint32_t k = 0;
            while (used[k])
                k++;
            known[it->micro] = used[k] = true;
            slot_of[it->micro] = k;
            if (l->n_slots < k + 1)
                l->n_slots = k + 1;
        }
        it->slot = slot_of[it->micro];
        if (it->op == SCHED_B)
            used[it->slot] = false;
    }
}

struct sched *sched_new(enum spec_schedule kind, uint32_t n_stages, uint32_t n_micro)
{
    enum { ITEMS_MAX = 6 }; /* of a micro-batch on a stage */
    assert(n_stages && n_micro);
    struct sched *s = xcalloc(1, sizeof(*s));
    *s = (struct sched){.n_stages = n_stages, .n_chunks = 1, .n_micro = n_micro};
    s->lanes = xcalloc(n_stages, sizeof(*s->lanes));

    for (uint32_t stage = 0; stage < n_stages; stage++) {
        struct sched_lane *l = &s->lanes[stage];
        l->items = xcalloc((size_t)ITEMS_MAX * n_micro, sizeof(*l->items));
        /* F's before the first B: all, or as many as fill the stages behind this one. */
        uint32_t ahead = n_micro;
        if (kind == SCHEDULE_1F1B && n_stages - stage < n_micro)
            ahead = n_stages - stage;
        for (uint32_t i = 0; i < ahead; i++)
            add_forward(s, stage, i);
        for (uint32_t i = 0; i < n_micro; i++) {
            add_backward(s, stage, i);
            if (ahead + i < n_micro)
                add_forward(s, stage, ahead + i);
        }
        assign_slots(l, n_micro);
    }
    return s;
}

void sched_free(struct sched *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->n_stages; i++)
        free(s->lanes[i].items);
    free(s->lanes);
    free(s);
}
