/* metrics.h: the numbers of one step, from rank 0's link line to metrics.jsonl and to screens.
 *
 * A `metrics step=N loss=X ...` line becomes one JSON object with the generation added; what
 * the worker does not say is not made up.  Any key with a number is taken; NaN and infinities,
 * which JSON cannot say, are null.  `struct metrics` holds what people are shown; a number that
 * is missing is NAN.
 */
#ifndef DS_RECORD_METRICS_H
#define DS_RECORD_METRICS_H

#include <stdbool.h>
#include <stdint.h>

struct buf;
struct err;
struct link_line;

struct metrics {
    uint64_t step; /* steps finished */
    uint32_t generation;
    double loss;            /* nats per token */
    double validation_loss; /* nats per token; NAN in steps without validation */
    uint64_t validated;     /* the step it is of */
    double grad_norm, lr, tokens_per_s, step_ms;
};

/* The JSON text of a step, appended to `json` without a newline.  ERR_PROTOCOL: no step, or a
 * value that is no number. */
int metrics_from_line(const struct link_line *l, uint32_t generation, struct metrics *ret,
                      struct buf *json, struct err *e);
/* Back from the JSON text. */
int metrics_from_json(const char *text, struct metrics *ret, struct err *e);

/* The newest numbers, `m` now among them: a step without a loss only brings its validation. */
void metrics_follow(struct metrics *last, const struct metrics *m);
/* Said before: what an agent says again after a controller died. */
bool metrics_known(const struct metrics *last, const struct metrics *m);

/* The newest step of metrics.jsonl (looking at no more than its last METRICS_TAIL_BYTES), and
 * the newest validation loss there.  No file or no step: step 0, all numbers NAN. */
enum { METRICS_TAIL_BYTES = 256 << 10 };
int metrics_last(const char *path, struct metrics *ret, struct err *e);

#endif
