/* units.h: durations as people write them. */
#ifndef DS_BASE_UNITS_H
#define DS_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* "250ms", "30s", "1.5m", "1h30m", "2d"; a bare 0.  "never" is INT64_MAX.  -1: not a duration.
 */
int units_duration(const char *text, int64_t *ret_ns);
/* The shortest text that reads back the same, into buf[32]. */
const char *units_duration_text(int64_t ns, char *buf);

#endif
