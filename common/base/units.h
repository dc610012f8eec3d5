/* units.h: sizes and durations as people write them, exactly: what is no whole number of bytes
 * or nanoseconds is refused, never rounded. */
#ifndef DS_BASE_UNITS_H
#define DS_BASE_UNITS_H

#include <stdint.h>

/* "250ms", "30s", "1.5m", "1h30m", "2d": units from d down to ns, each at most once; a bare 0.
 * "never" is INT64_MAX.  -1: not a duration, or longer than 292 years. */
int units_duration(const char *text, int64_t *ret_ns);
/* The same time in one unit, the largest that is exact, into buf[32]; returns buf. */
const char *units_duration_text(int64_t ns, char *buf);

/* "64MiB", "1.5GiB", "2MB", "512B", "512": KiB to TiB are powers of 1024, kB to TB of 1000. -1:
 * not a size, or beyond 2^63 - 1. */
int units_size(const char *text, int64_t *ret_bytes);

#endif
