/* sched_sim.c: plays a schedule before it runs.
 *
 * The simulator trusts nothing that a table says.  It carries what a stage has (slots; room for
 * one gradient received and for one to be sent) and the messages between stages; an item that
 * would read what is not there, or overwrite what is still needed, is refused.  Sends do not
 * wait and take no time of the stage; a message is there cost.send later.  Receives wait.
 *
 * A unit is a (chunk, micro-batch) on a stage; virtual stage chunk * n_stages + stage is its
 * place in the model.
 */
#include "common/shape/sched.h"

#include <math.h>
#include <stdbool.h>

#include "common/base/err.h"

enum {
    F = 1 << SCHED_F,
    B = 1 << SCHED_B,
    W = 1 << SCHED_W,
    SEND_ACT = 1 << SCHED_SEND_ACT,
    RECV_ACT = 1 << SCHED_RECV_ACT,
    SEND_GRAD = 1 << SCHED_SEND_GRAD,
    RECV_GRAD = 1 << SCHED_RECV_GRAD,
};

/* What must be done for a unit before an item of it, so far as the unit has such items. */
static const unsigned before[SCHED_OP_COUNT] = {
    [SCHED_F] = RECV_ACT,
    [SCHED_SEND_ACT] = F,
    [SCHED_RECV_GRAD] = F,
    [SCHED_B] = F | SEND_ACT | RECV_GRAD, /* B frees what SEND_ACT reads */
    [SCHED_SEND_GRAD] = B,
    [SCHED_W] = B,
};

struct msg {
    bool sent;
    uint32_t seq; /* among the sender's messages of this kind, from 0 */
    double arrival;
};

struct unit {
    unsigned done; /* bits */
    uint32_t slot; /* once done != 0 */
};

enum { NOTHING = UINT32_MAX };

struct stage {
    size_t next; /* item */
    double now, busy;
    struct unit *units;         /* [n_units] */
    bool *slot_used;            /* [n_slots] */
    uint32_t *next_b;           /* [n_chunks] */
    uint32_t grad_in, grad_out; /* the unit whose gradient to send, or received, lies there */
    uint32_t alive;
    uint32_t seq[SCHED_OP_COUNT]; /* messages so far */
};

struct sim {
    struct sched *s;
    const struct sched_cost *cost;
    uint32_t n_units;
    bool split_w;
    struct stage *stages;
    struct msg *acts, *grads; /* [n_chunks * n_stages][n_micro], by the sender's place */
    uint32_t max_alive;
};

static void sim_done(struct sim *m)
{
    for (uint32_t i = 0; m->stages && i < m->s->n_stages; i++) {
        free(m->stages[i].units);
        free(m->stages[i].slot_used);
        free(m->stages[i].next_b);
    }
    free(m->stages);
    free(m->acts);
    free(m->grads);
}

static void sim_init(struct sim *m, struct sched *s, const struct sched_cost *cost)
{
    *m = (struct sim){.s = s, .cost = cost, .n_units = s->n_chunks * s->n_micro};
    m->stages = xcalloc(s->n_stages, sizeof(*m->stages));
    m->acts = xcalloc((size_t)s->n_stages * m->n_units, sizeof(*m->acts));
    m->grads = xcalloc((size_t)s->n_stages * m->n_units, sizeof(*m->grads));
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const struct sched_lane *l = &s->lanes[i];
        struct stage *st = &m->stages[i];
        st->units = xcalloc(m->n_units, sizeof(*st->units));
        st->slot_used = xcalloc((size_t)l->n_slots + 1, sizeof(*st->slot_used));
        st->next_b = xcalloc(s->n_chunks, sizeof(*st->next_b));
        st->grad_in = st->grad_out = NOTHING;
        for (size_t k = 0; k < l->n; k++)
            m->split_w |= l->items[k].op == SCHED_W;
    }
}

static int refuse(const struct sim *m, uint32_t stage, const char *why, struct err *e)
{
    size_t i = m->stages[stage].next;
    const struct sched_item *it = &m->s->lanes[stage].items[i];
    return err_set(e, ERR_PROTOCOL, "schedule: stage %u, item %zu (%s of micro-batch %u): %s",
                   stage, i, it->op < SCHED_OP_COUNT ? sched_op_name(it->op) : "?", it->micro,
                   why);
}

/* The items that a unit has in all. */
static unsigned expected(const struct sim *m, uint32_t stage, uint32_t chunk)
{
    unsigned x = F | B | (m->split_w ? W : 0);
    if (chunk > 0 || stage > 0)
        x |= RECV_ACT | SEND_GRAD;
    if (chunk + 1 < m->s->n_chunks || stage + 1 < m->s->n_stages)
        x |= SEND_ACT | RECV_GRAD;
    return x;
}

/* Order within the unit, and its slot. */
static int check_unit(const struct sim *m, uint32_t stage, const struct sched_item *it,
                      struct err *e)
{
    const struct sched *s = m->s;
    const struct stage *st = &m->stages[stage];
    if (it->op >= SCHED_OP_COUNT || it->chunk >= s->n_chunks || it->micro >= s->n_micro ||
        it->slot >= s->lanes[stage].n_slots)
        return refuse(m, stage, "out of range", e);

    const struct unit *u = &st->units[it->chunk * s->n_micro + it->micro];
    const unsigned all = expected(m, stage, it->chunk);
    if (!(all & 1u << it->op))
        return refuse(m, stage, "not for this stage", e);
    if (u->done & 1u << it->op)
        return refuse(m, stage, "done already", e);
    if (before[it->op] & all & ~u->done)
        return refuse(m, stage, "comes before what it needs", e);
    if (u->done && u->slot != it->slot)
        return refuse(m, stage, "names another slot than the micro-batch has", e);
    if (!u->done && st->slot_used[it->slot])
        return refuse(m, stage, "its slot holds a micro-batch still needed", e);
    return 0;
}

/* What lies in the stage's buffers, and the order that sums depend on. */
static int check_buffers(const struct sim *m, uint32_t stage, const struct sched_item *it,
                         struct err *e)
{
    const struct stage *st = &m->stages[stage];
    if (it->op == SCHED_RECV_GRAD && st->grad_out != NOTHING)
        return refuse(m, stage, "would overwrite a gradient not used yet", e);
    if (it->op == SCHED_B && st->grad_in != NOTHING)
        return refuse(m, stage, "would overwrite a gradient not sent yet", e);
    if (it->op == SCHED_B && it->micro != st->next_b[it->chunk])
        return refuse(m, stage, "not in ascending order", e);
    return 0;
}

/* The message that a receive waits for, or that a send makes. */
static struct msg *message(const struct sim *m, uint32_t stage, const struct sched_item *it)
{
    const uint32_t at = it->chunk * m->s->n_stages + stage;
    switch (it->op) {
    case SCHED_SEND_ACT:
        return &m->acts[(size_t)at * m->s->n_micro + it->micro];
    case SCHED_RECV_ACT:
        return &m->acts[(size_t)(at - 1) * m->s->n_micro + it->micro];
    case SCHED_SEND_GRAD:
        return &m->grads[(size_t)at * m->s->n_micro + it->micro];
    case SCHED_RECV_GRAD:
        return &m->grads[(size_t)(at + 1) * m->s->n_micro + it->micro];
    case SCHED_F:
    case SCHED_B:
    case SCHED_W:
    case SCHED_OP_COUNT:
        break;
    }
    return NULL;
}

static void take_effect(struct sim *m, uint32_t stage, const struct sched_item *it)
{
    struct stage *st = &m->stages[stage];
    const uint32_t id = it->chunk * m->s->n_micro + it->micro;
    struct unit *u = &st->units[id];
    if (!u->done) {
        u->slot = it->slot;
        st->slot_used[it->slot] = true;
        if (++st->alive > m->max_alive)
            m->max_alive = st->alive;
    }
    u->done |= 1u << it->op;
    if (it->op == SCHED_RECV_GRAD)
        st->grad_out = id;
    if (it->op == SCHED_SEND_GRAD)
        st->grad_in = NOTHING;
    if (it->op == SCHED_B) {
        st->grad_out = NOTHING;
        if (expected(m, stage, it->chunk) & SEND_GRAD)
            st->grad_in = id;
        st->next_b[it->chunk]++;
    }
    if (it->op == (m->split_w ? SCHED_W : SCHED_B)) {
        st->slot_used[u->slot] = false;
        st->alive--;
    }
}

/* Runs a stage's next item: 1; 0 if it must wait; -1 if it is refused. */
static int step(struct sim *m, uint32_t stage, struct err *e)
{
    struct stage *st = &m->stages[stage];
    struct sched_item *it = &m->s->lanes[stage].items[st->next];
    const double costs[SCHED_OP_COUNT] = {
        [SCHED_F] = m->cost->f, [SCHED_B] = m->cost->b, [SCHED_W] = m->cost->w};

    if (check_unit(m, stage, it, e) < 0 || check_buffers(m, stage, it, e) < 0)
        return -1;
    struct msg *msg = message(m, stage, it);
    if (it->op == SCHED_RECV_ACT || it->op == SCHED_RECV_GRAD) {
        if (!msg->sent)
            return 0;
        if (msg->seq != st->seq[it->op]++)
            return refuse(m, stage, "not in the order in which it is sent", e);
        if (st->now < msg->arrival)
            st->now = msg->arrival;
    } else if (msg) {
        *msg = (struct msg){true, st->seq[it->op]++, st->now + m->cost->send};
    }
    it->tick = m->cost->f > 0 ? (uint32_t)lround(st->now / m->cost->f * 16) : 0;
    st->now += costs[it->op];
    st->busy += costs[it->op];
    take_effect(m, stage, it);
    st->next++;
    return 1;
}

static int play(struct sim *m, struct err *e)
{
    const uint32_t n = m->s->n_stages;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < n; i++) {
            while (m->stages[i].next < m->s->lanes[i].n) {
                int r = step(m, i, e);
                if (r < 0)
                    return -1;
                if (r == 0)
                    break;
                moved = true;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++)
        if (m->stages[i].next < m->s->lanes[i].n)
            return refuse(m, i, "deadlock: waits for what is never sent", e);
    return 0;
}

static int check_end(const struct sim *m, struct err *e)
{
    for (uint32_t i = 0; i < m->s->n_stages; i++) {
        for (uint32_t u = 0; u < m->n_units; u++) {
            unsigned missing = expected(m, i, u / m->s->n_micro) & ~m->stages[i].units[u].done;
            if (missing)
                return err_set(
                    e, ERR_PROTOCOL, "schedule: stage %u has no %s of micro-batch %u", i,
                    sched_op_name((enum sched_op)__builtin_ctz(missing)), u % m->s->n_micro);
        }
    }
    return 0;
}

int sched_simulate(struct sched *s, const struct sched_cost *cost, struct sched_report *ret,
                   struct err *e)
{
    __attribute__((cleanup(sim_done))) struct sim m;
    sim_init(&m, s, cost);
    if (play(&m, e) < 0 || check_end(&m, e) < 0)
        return -1;

    double makespan = 0, busy = 0;
    for (uint32_t i = 0; i < s->n_stages; i++) {
        busy += m.stages[i].busy;
        if (makespan < m.stages[i].now)
            makespan = m.stages[i].now;
    }
    *ret = (struct sched_report){
        .makespan = makespan,
        .bubble = makespan > 0 ? 1 - busy / (makespan * s->n_stages) : 0,
        .max_slots = m.max_alive,
    };
    return 0;
}
