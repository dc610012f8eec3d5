#include "launcher/super/health.h"

#include <assert.h>
#include <string.h>

struct node {
    bool up, suspect;
    int64_t heard; /* observed time of its last frame */
};

struct rank {
    bool watched, seen;
    struct health_page page;
    int64_t moved;    /* observed time when the beat last moved */
    int64_t reported; /* ... of the last page */
};

struct health {
    uint32_t n_nodes, n_ranks;
    struct health_limits limits;
    int64_t most; /* how much a gap between ticks may count */
    health_verdict_fn *say;
    void *ctx;
    bool began;
    int64_t tick_ns;  /* of the clock */
    int64_t observed; /* at tick_ns */
    bool accused;     /* the culprit of this generation was said */
    struct node *nodes;
    struct rank *ranks;
};

struct health *health_new(uint32_t n_nodes, uint32_t n_ranks, const struct health_limits *l,
                          health_verdict_fn *say, void *ctx)
{
    assert(l->suspect_ns > 0 && l->lost_ns >= l->suspect_ns && l->hang_timeout_ns > 0);
    struct health *h = xcalloc(1, sizeof *h);
    h->n_nodes = n_nodes;
    h->n_ranks = n_ranks;
    h->limits = *l;
    h->most = (l->suspect_ns < l->hang_timeout_ns ? l->suspect_ns : l->hang_timeout_ns) / 4;
    h->say = say;
    h->ctx = ctx;
    h->nodes = xcalloc(n_nodes, sizeof h->nodes[0]);
    h->ranks = xcalloc(n_ranks, sizeof h->ranks[0]);
    return h;
}

void health_free(struct health *h)
{
    if (!h)
        return;
    free(h->nodes);
    free(h->ranks);
    free(h);
}

/* The clock, less the observer's pauses. */
static int64_t observed(struct health *h, int64_t now_ns)
{
    if (!h->began) {
        h->began = true;
        h->tick_ns = now_ns;
    }
    int64_t gap = now_ns - h->tick_ns;
    if (gap < 0)
        gap = 0;
    return h->observed + (gap < h->most ? gap : h->most);
}

void health_node_up(struct health *h, uint32_t node, int64_t now_ns)
{
    assert(node < h->n_nodes);
    h->nodes[node] = (struct node){.up = true, .heard = observed(h, now_ns)};
}

void health_node_down(struct health *h, uint32_t node)
{
    assert(node < h->n_nodes);
    h->nodes[node].up = false;
}

void health_node_frame(struct health *h, uint32_t node, int64_t now_ns)
{
    assert(node < h->n_nodes);
    struct node *n = &h->nodes[node];
    if (!n->up)
        return;
    int64_t t = observed(h, now_ns), silent = t - n->heard;
    n->heard = t;
    if (n->suspect) {
        n->suspect = false;
        h->say(h->ctx, HEALTH_NODE_BACK, node, silent);
    }
}

void health_generation(struct health *h, bool running, int64_t now_ns)
{
    int64_t t = observed(h, now_ns);
    h->accused = false;
    for (uint32_t i = 0; i < h->n_ranks; i++) {
        struct rank *r = &h->ranks[i];
        if (running)
            *r = (struct rank){.moved = t, .reported = t};
        r->watched = running; /* the last pages stay for the report */
    }
}

void health_rank_page(struct health *h, uint32_t rank, const struct health_page *p,
                      int64_t now_ns)
{
    assert(rank < h->n_ranks);
    struct rank *r = &h->ranks[rank];
    if (!r->watched)
        return;
    int64_t t = observed(h, now_ns);
    if (!r->seen || r->page.beat != p->beat || r->page.step != p->step)
        r->moved = t;
    r->seen = true;
    r->reported = t;
    r->page = *p;
}

void health_rank_gone(struct health *h, uint32_t rank)
{
    assert(rank < h->n_ranks);
    h->ranks[rank].watched = false;
}

const struct health_page *health_page_of(const struct health *h, uint32_t rank)
{
    assert(rank < h->n_ranks);
    return h->ranks[rank].seen ? &h->ranks[rank].page : NULL;
}

/* Hangs. */

static int64_t still(const struct rank *r)
{
    return r->reported - r->moved;
}

static bool waits(const struct rank *r)
{
    return r->page.waiting && r->page.proc_state != 'T';
}

/* Whether `a` is rather the culprit than `b`, which has the lower number. */
static bool worse(const struct rank *a, const struct rank *b)
{
    if (waits(a) != waits(b))
        return waits(b);
    bool a_stopped = a->page.proc_state == 'T', b_stopped = b->page.proc_state == 'T';
    if (a_stopped != b_stopped)
        return a_stopped;
    if (a->page.step != b->page.step)
        return a->page.step < b->page.step;
    return a->page.coll_seq < b->page.coll_seq;
}

/* The culprit among the ranks that stand still for at least `least`; n_ranks if there is none.
 * *ret_all: all watched ranks do. */
static uint32_t culprit(const struct health *h, int64_t least, bool *ret_all)
{
    uint32_t found = h->n_ranks;
    *ret_all = true;
    for (uint32_t i = 0; i < h->n_ranks; i++) {
        const struct rank *r = &h->ranks[i];
        if (!r->watched)
            continue;
        if (!r->seen || still(r) < least)
            *ret_all = false;
        else if (found == h->n_ranks || worse(r, &h->ranks[found]))
            found = i;
    }
    return found;
}

/* A rank that waits is named only if nobody else can be: all stand still, or the others had as
 * much time again to stand still as well. */
static void judge_ranks(struct health *h)
{
    bool all, ignored;
    uint32_t c = culprit(h, h->limits.hang_timeout_ns, &all);
    if (h->accused || c == h->n_ranks)
        return;
    if (waits(&h->ranks[c]) && !all) {
        c = culprit(h, 2 * h->limits.hang_timeout_ns, &ignored);
        if (c == h->n_ranks)
            return;
    }
    h->accused = true;
    h->say(h->ctx, HEALTH_RANK_HUNG, c, still(&h->ranks[c]));
}

static void judge_node(struct health *h, uint32_t i)
{
    struct node *n = &h->nodes[i];
    int64_t silent = h->observed - n->heard;
    if (!n->up)
        return;
    if (silent >= h->limits.lost_ns) {
        n->up = false;
        h->say(h->ctx, HEALTH_NODE_LOST, i, silent);
    } else if (silent >= h->limits.suspect_ns && !n->suspect) {
        n->suspect = true;
        h->say(h->ctx, HEALTH_NODE_SUSPECT, i, silent);
    }
}

void health_tick(struct health *h, int64_t now_ns)
{
    h->observed = observed(h, now_ns);
    if (now_ns > h->tick_ns)
        h->tick_ns = now_ns;
    for (uint32_t i = 0; i < h->n_nodes; i++)
        judge_node(h, i);
    judge_ranks(h);
}

int64_t health_deadline(const struct health *h)
{
    bool watching = false;
    int64_t due = h->observed + h->most / 2;
    for (uint32_t i = 0; i < h->n_nodes; i++) {
        const struct node *n = &h->nodes[i];
        int64_t t = n->heard + (n->suspect ? h->limits.lost_ns : h->limits.suspect_ns);
        watching |= n->up;
        if (n->up && t < due)
            due = t;
    }
    for (uint32_t i = 0; i < h->n_ranks; i++) {
        const struct rank *r = &h->ranks[i];
        int64_t t = r->moved + h->limits.hang_timeout_ns;
        watching |= r->watched;
        if (r->watched && !h->accused && t > h->observed && t < due)
            due = t;
    }
    return watching ? h->tick_ns + (due - h->observed) : INT64_MAX;
}
