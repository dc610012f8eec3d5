#include <stdint.h>

#include "common/spec/spec.h"
#include "worker/optim/optim.h"

/* cos(pi x), x in [0, 1], by its Taylor series on [0, pi/2]: |error| < 1e-15.  Not libm's,
 * whose last bit differs between hosts. */
static double cos_pi(double x)
{
    const double pi = 3.14159265358979323846;
    double sign = 1;
    if (x > 0.5) {
        x = 1 - x;
        sign = -1;
    }
    double y2 = pi * x * (pi * x), term = 1, sum = 1;
    for (int k = 1; k <= 12; k++) {
        term = -term * y2 / ((2 * k - 1) * (2 * k));
        sum += term;
    }
    return sign * sum;
}

/* What the curve is multiplied with. */
static double scale(const struct spec *s)
{
    double ratio = (double)s->train.batch / s->train.lr.reference_batch;
    switch (s->train.lr.scale) {
    case LR_SCALE_NONE:
        break;
    case LR_SCALE_LINEAR:
        return ratio;
    case LR_SCALE_SQRT:
        return __builtin_sqrt(ratio);
    }
    return 1;
}

/* Steps of wsd's fall: rounded, at least the last one, at most all behind the warm-up. */
static uint64_t falling(const struct spec *s)
{
    uint64_t after = s->train.steps - s->train.lr.warmup;
    uint64_t n = (uint64_t)(s->train.lr.decay * s->train.steps + 0.5);
    return n < 1 ? 1 : n > after ? after : n;
}

/* How far the way from peak to min has been gone: 0 to 1, which the last step reaches. */
static double gone(const struct spec *s, uint64_t step)
{
    uint64_t warmup = s->train.lr.warmup, steps = s->train.steps, first = warmup;
    if (step >= steps)
        return 1;
    if (s->train.lr.schedule == LR_WSD)
        first = steps - falling(s) - (steps > warmup + falling(s)); /* the last at peak */
    if (step <= first || steps <= first + 1)
        return 0;
    return (double)(step - first) / (double)(steps - 1 - first);
}

/* After the warm-up. */
static double curve(const struct spec *s, uint64_t step)
{
    double peak = s->train.lr.peak, min = s->train.lr.min, x = gone(s, step), lr;
    switch (s->train.lr.schedule) {
    case LR_CONSTANT:
        return peak;
    case LR_INVERSE_SQRT:
        lr = peak *
             __builtin_sqrt((s->train.lr.warmup ? s->train.lr.warmup : 1.0) / (step + 1.0));
        return lr > min ? lr : min;
    case LR_LINEAR:
    case LR_WSD:
        return peak + (min - peak) * x;
    case LR_COSINE:
        break;
    }
    return x == 0 ? peak : min + 0.5 * (peak - min) * (1 + cos_pi(x));
}

double optim_lr(const struct spec *s, uint64_t step)
{
    uint32_t warmup = s->train.lr.warmup;
    double lr = step < warmup ? s->train.lr.peak * (double)(step + 1) / warmup : curve(s, step);
    return s->train.lr.scale == LR_SCALE_NONE ? lr : lr * scale(s);
}
