/* progress.h: what a person sees of a running job.  Pure: events in, bytes for the screen out.
 *
 * On a terminal one live line (step, bar, loss, gradient norm, learning rate, tokens/s, ETA)
 * stays at the bottom and everything else goes above it; elsewhere a plain line comes every
 * log_every steps.  Lines of workers come whole, prefixed "[rank 3 g2] ".  Colours are only
 * used on a terminal, and not with NO_COLOR (the caller says).  Nothing here reads a clock or a
 * file descriptor.
 */
#ifndef DS_WATCH_PROGRESS_H
#define DS_WATCH_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"

struct buf;
struct metrics;
struct progress;

struct progress_params {
    bool tty, color;
    unsigned width; /* columns of the terminal; 0: 80 */
    uint64_t steps;
    uint32_t log_every; /* plain lines; 0: as 1 */
};

struct progress *progress_new(const struct progress_params *p);
void progress_free(struct progress *p);
OWN(progress);

/* Each appends what is to be written to `out`. */
void progress_on_metrics(struct progress *p, const struct metrics *m, struct buf *out);
/* A line for people, above the bar. */
void progress_on_text(struct progress *p, const char *text, struct buf *out);
/* Whole lines of a rank; `data` ends with a newline, or one is added. */
void progress_on_log(struct progress *p, uint32_t rank, uint32_t generation, const char *data,
                     size_t n, struct buf *out);
/* The window changed. */
void progress_on_width(struct progress *p, unsigned width, struct buf *out);
/* Takes the live line off the screen: before a report, the summary, the end. */
void progress_clear(struct progress *p, struct buf *out);

/* How it went, at the end.  NAN, 0 or NULL: unknown, not shown. */
struct progress_summary {
    const char *job, *outcome; /* "completed", "stopped", ... */
    uint64_t step, steps;
    double loss, validation_loss, tokens_per_s, seconds;
    uint32_t restarts;
    const char *logs, *checkpoints;
    uint64_t checkpoint_step;
};
void progress_summary(struct progress *p, const struct progress_summary *s, struct buf *out);

/* "1h02m", "3m07s", "42s": at most 16 bytes. */
void progress_duration(double seconds, struct buf *out);
/* 12345678 -> "12.3M", 999 -> "999". */
void progress_count(double n, struct buf *out);

#endif
