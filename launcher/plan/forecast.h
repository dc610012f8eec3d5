/* forecast.h: what a plan will cost, for people and for scripts: `dslaunch plan`.
 *
 * Bytes are those of mem_plan, which the worker allocates by; the bubble is the simulator's,
 * for stages of equal cost, a backward of two forwards, and sends that take no time.
 *
 * Pure; const once made; borrows the spec and the plan.
 */
#ifndef DS_PLAN_FORECAST_H
#define DS_PLAN_FORECAST_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"
#include "common/shape/memory.h"
#include "common/shape/sched.h"

struct buf;
struct err;
struct plan;
struct spec;

struct forecast {
    const struct spec *spec;
    const struct plan *plan;
    int64_t n_params;
    double flops_per_token;
    uint32_t accumulation;
    int64_t tokens_per_step;
    struct sched *sched; /* simulated: ticks are set, FORECAST_TICKS_F to a forward */
    struct sched_report report;
    struct forecast_rank {
        size_t class_bytes[MEM_CLASS_COUNT];
        size_t arena_bytes;
    } * ranks; /* [plan->world] */
};

enum { FORECAST_TICKS_F = 16 };

struct forecast *forecast_new(const struct spec *s, const struct plan *p, struct err *e);
void forecast_free(struct forecast *f);
OWN(forecast);

/* Appended to `out`; -1 if it does not fit its cap. */
int forecast_text(const struct forecast *f, struct buf *out);
/* One object and a newline; forecast_json.c lists its members. */
int forecast_json(const struct forecast *f, struct buf *out);

#endif
