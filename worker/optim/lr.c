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

double optim_lr(const struct spec *s, uint64_t step)
{
    double peak = s->train.lr.peak, min = s->train.lr.min;
    uint64_t warmup = s->train.lr.warmup, steps = s->train.steps;
    if (step < warmup)
        return peak * (double)(step + 1) / (double)warmup;
    switch (s->train.lr.schedule) {
    case LR_CONSTANT:
        return peak;
    case LR_COSINE:
        break;
    }
    if (step >= steps)
        return min;
    if (steps <= warmup + 1)
        return peak;
    double x = (double)(step - warmup) / (double)(steps - 1 - warmup);
    return min + 0.5 * (peak - min) * (1 + cos_pi(x));
}
