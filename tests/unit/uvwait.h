/* uvwait.h: for tests that run a libuv loop: until something holds, with a deadline. */
#ifndef DS_TESTS_UVWAIT_H
#define DS_TESTS_UVWAIT_H

#include <stdbool.h>
#include <stdlib.h>
#include <uv.h>

#include "common/base/clock.h"

static inline void uvwait_tick(uv_timer_t *t)
{
    (void)t; /* only wakes the loop, so that the condition is looked at */
}

/* Runs `loop` until cond(ctx), at most `ms`.  False: the deadline passed. */
static inline bool uvwait(uv_loop_t *loop, bool (*cond)(void *), void *ctx, int64_t ms)
{
    int64_t until = clock_now_ns() + ms * NS_PER_MS;
    uv_timer_t *t = calloc(1, sizeof *t); /* the loop closes it when it next turns */
    bool ok;
    (void)uv_timer_init(loop, t);
    (void)uv_timer_start(t, uvwait_tick, 5, 5);
    while (!(ok = cond(ctx)) && clock_now_ns() < until)
        (void)uv_run(loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)t, (uv_close_cb)free);
    return ok;
}

#endif
