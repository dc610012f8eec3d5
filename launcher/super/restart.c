#include "launcher/super/restart.h"

#include <assert.h>
#include <string.h>

void restart_init(struct restart *r, const struct restart_policy *p)
{
    *r = (struct restart){.policy = *p};
    if (r->policy.max > RESTART_MAX_LIMIT)
        r->policy.max = RESTART_MAX_LIMIT;
}

static uint32_t n_expired(const struct restart *r, int64_t now_ns)
{
    uint32_t n = 0;
    while (n < r->n && now_ns - r->times[n] >= r->policy.window_ns)
        n++;
    return n;
}

static void drop(struct restart *r, uint32_t n)
{
    r->n -= n;
    memmove(r->times, r->times + n, r->n * sizeof r->times[0]);
}

void restart_note(struct restart *r, int64_t at_ns)
{
    assert(!r->n || r->times[r->n - 1] <= at_ns);
    r->total++;
    if (r->n == RESTART_MAX_LIMIT)
        drop(r, 1);
    r->times[r->n++] = at_ns;
}

bool restart_ask(struct restart *r, int64_t now_ns, int64_t *ret_not_before_ns)
{
    drop(r, n_expired(r, now_ns));
    if (r->n >= r->policy.max)
        return false;
    int64_t delay = r->n ? r->policy.backoff_ns : 0;
    for (uint32_t i = 1; i < r->n && delay < RESTART_BACKOFF_MAX_NS; i++)
        delay *= 2;
    if (delay > RESTART_BACKOFF_MAX_NS)
        delay = RESTART_BACKOFF_MAX_NS;
    restart_note(r, now_ns);
    *ret_not_before_ns = now_ns + delay;
    return true;
}

uint32_t restart_left(const struct restart *r, int64_t now_ns)
{
    uint32_t n = r->n - n_expired(r, now_ns);
    return n < r->policy.max ? r->policy.max - n : 0;
}
