#include "launcher/rdzv/rdzv.h"

#include <assert.h>
#include <string.h>

#include "common/base/err.h"

/* The map is a hash table with linear probing over entries kept in the order put; the load
 * stays below one half. */
struct entry {
    char *key, *val;
    size_t len;
};

struct ask {
    uint32_t rank;
    char *key;
};

struct rank {
    uint32_t n_puts, n_asks;
    bool in;
};

struct rdzv {
    uint32_t world, gen, n_in;
    rdzv_reply_fn *reply;
    void *ctx;
    bool replying;
    struct rank *ranks; /* [world] */
    struct entry *entries;
    uint32_t n_entries, room_entries;
    uint32_t *slots;  /* index into entries + 1, 0 empty */
    uint32_t n_slots; /* a power of two, or 0 */
    struct ask *asks; /* gets that wait for the barrier, in the order asked */
    uint32_t n_asks, room_asks;
};

struct rdzv *rdzv_new(uint32_t world, rdzv_reply_fn *reply, void *ctx)
{
    assert(world > 0);
    struct rdzv *r = xcalloc(1, sizeof *r);
    r->world = world;
    r->reply = reply;
    r->ctx = ctx;
    r->ranks = xcalloc(world, sizeof r->ranks[0]);
    return r;
}

static void answer(struct rdzv *r, uint32_t rank, enum rdzv_reply_kind kind, const char *key,
                   const struct entry *en)
{
    r->replying = true;
    r->reply(r->ctx, rank, kind, key, en ? en->val : NULL, en ? en->len : 0);
    r->replying = false;
}

/* Answers what is pending with VOID and forgets the generation's data. */
static void void_all(struct rdzv *r)
{
    bool complete = rdzv_complete(r);
    for (uint32_t i = 0; i < r->world && !complete; i++)
        if (r->ranks[i].in)
            answer(r, i, RDZV_VOID, NULL, NULL);
    for (uint32_t i = 0; i < r->n_asks; i++) {
        answer(r, r->asks[i].rank, RDZV_VOID, r->asks[i].key, NULL);
        free(r->asks[i].key);
    }
    for (uint32_t i = 0; i < r->n_entries; i++) {
        free(r->entries[i].key);
        free(r->entries[i].val);
    }
    if (r->n_slots)
        memset(r->slots, 0, r->n_slots * sizeof r->slots[0]);
    memset(r->ranks, 0, r->world * sizeof r->ranks[0]);
    r->n_asks = r->n_entries = r->n_in = 0;
}

void rdzv_free(struct rdzv *r)
{
    if (!r)
        return;
    void_all(r);
    free(r->ranks);
    free(r->entries);
    free(r->slots);
    free(r->asks);
    free(r);
}

int rdzv_open(struct rdzv *r, uint32_t gen, struct err *e)
{
    assert(!r->replying);
    if (gen <= r->gen)
        return err_set(e, ERR_PROTOCOL, "rendezvous: generation %u after %u", gen, r->gen);
    void_all(r);
    r->gen = gen;
    return 0;
}

static int check(const struct rdzv *r, uint32_t gen, uint32_t rank, struct err *e)
{
    assert(!r->replying);
    if (!r->gen || gen != r->gen)
        return err_set(e, ERR_PROTOCOL, "rendezvous: generation %u, open is %u", gen, r->gen);
    if (rank >= r->world)
        return err_set(e, ERR_PROTOCOL, "rendezvous: rank %u of %u", rank, r->world);
    return 0;
}

static int check_key(uint32_t rank, const char *key, struct err *e)
{
    size_t n = 0;
    while (n <= RDZV_KEY_MAX && key[n] > ' ' && key[n] < 0x7f)
        n++;
    if (!n || n > RDZV_KEY_MAX || key[n])
        return err_set(e, ERR_PROTOCOL,
                       "rendezvous: rank %u: a key must be 1 to %d printable bytes", rank,
                       RDZV_KEY_MAX);
    return 0;
}

static uint32_t hash(const char *key)
{
    uint32_t h = 2166136261u;
    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 16777619u;
    return h;
}

/* The slot of the key, or the empty one where it belongs.  n_slots > 0. */
static uint32_t *slot_of(const struct rdzv *r, const char *key)
{
    uint32_t i = hash(key) & (r->n_slots - 1);
    while (r->slots[i] && strcmp(r->entries[r->slots[i] - 1].key, key) != 0)
        i = (i + 1) & (r->n_slots - 1);
    return &r->slots[i];
}

static const struct entry *find(const struct rdzv *r, const char *key)
{
    uint32_t s = r->n_slots ? *slot_of(r, key) : 0;
    return s ? &r->entries[s - 1] : NULL;
}

static void grow(struct rdzv *r)
{
    r->room_entries = r->room_entries ? 2 * r->room_entries : 64;
    r->entries = xrealloc_array(r->entries, r->room_entries, sizeof r->entries[0]);
    free(r->slots);
    r->n_slots = 2 * r->room_entries;
    r->slots = xcalloc(r->n_slots, sizeof r->slots[0]);
    for (uint32_t i = 0; i < r->n_entries; i++)
        *slot_of(r, r->entries[i].key) = i + 1;
}

int rdzv_put(struct rdzv *r, uint32_t gen, uint32_t rank, const char *key, const void *val,
             size_t len, struct err *e)
{
    if (check(r, gen, rank, e) < 0 || check_key(rank, key, e) < 0)
        return -1;
    if (len > RDZV_VALUE_MAX)
        return err_set(e, ERR_PROTOCOL, "rendezvous: rank %u: %s: %zu bytes, at most %d", rank,
                       key, len, RDZV_VALUE_MAX);
    if (r->ranks[rank].n_puts == RDZV_KEYS_PER_RANK)
        return err_set(e, ERR_PROTOCOL, "rendezvous: rank %u: more than %d keys", rank,
                       RDZV_KEYS_PER_RANK);
    if (find(r, key))
        return err_set(e, ERR_PROTOCOL, "rendezvous: rank %u: %s was put already", rank, key);
    if (r->n_entries == r->room_entries)
        grow(r);
    struct entry *en = &r->entries[r->n_entries];
    *en = (struct entry){.key = xstrdup(key), .val = xmalloc(len + 1), .len = len};
    if (len)
        memcpy(en->val, val, len);
    *slot_of(r, key) = ++r->n_entries;
    r->ranks[rank].n_puts++;
    return 0;
}

static void answer_get(struct rdzv *r, uint32_t rank, const char *key)
{
    const struct entry *en = find(r, key);
    answer(r, rank, en ? RDZV_VALUE : RDZV_ABSENT, key, en);
}

int rdzv_get(struct rdzv *r, uint32_t gen, uint32_t rank, const char *key, struct err *e)
{
    if (check(r, gen, rank, e) < 0 || check_key(rank, key, e) < 0)
        return -1;
    if (rdzv_complete(r)) {
        answer_get(r, rank, key);
        return 0;
    }
    if (r->ranks[rank].n_asks >= RDZV_KEYS_PER_RANK + (uint64_t)r->world)
        return err_set(e, ERR_PROTOCOL, "rendezvous: rank %u: more than %llu gets wait", rank,
                       RDZV_KEYS_PER_RANK + (unsigned long long)r->world);
    if (r->n_asks == r->room_asks) {
        r->room_asks = r->room_asks ? 2 * r->room_asks : 64;
        r->asks = xrealloc_array(r->asks, r->room_asks, sizeof r->asks[0]);
    }
    r->asks[r->n_asks++] = (struct ask){.rank = rank, .key = xstrdup(key)};
    r->ranks[rank].n_asks++;
    return 0;
}

int rdzv_enter(struct rdzv *r, uint32_t gen, uint32_t rank, struct err *e)
{
    if (check(r, gen, rank, e) < 0)
        return -1;
    if (r->ranks[rank].in)
        return err_set(e, ERR_PROTOCOL, "rendezvous: rank %u enters the barrier twice", rank);
    r->ranks[rank].in = true;
    r->n_in++;
    if (!rdzv_complete(r))
        return 0;
    for (uint32_t i = 0; i < r->world; i++)
        answer(r, i, RDZV_RELEASED, NULL, NULL);
    for (uint32_t i = 0; i < r->n_asks; i++) {
        answer_get(r, r->asks[i].rank, r->asks[i].key);
        free(r->asks[i].key);
    }
    r->n_asks = 0;
    return 0;
}

bool rdzv_complete(const struct rdzv *r)
{
    return r->gen && r->n_in == r->world;
}

uint32_t rdzv_missing(const struct rdzv *r, uint32_t *ret, uint32_t cap)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->world; i++)
        if (!r->ranks[i].in && n++ < cap)
            ret[n - 1] = i;
    return n;
}
