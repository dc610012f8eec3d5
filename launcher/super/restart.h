/* restart.h: may there be another generation, and when?  Budget per window, exponential
 * back-off.
 *
 * The first restart in a window is immediate; back-off starts with the second and doubles up to
 * RESTART_BACKOFF_MAX_NS.  A budget of `max` restarts in any `window_ns`; one more is refused.
 * Pure: time is given.
 */
#ifndef DS_SUPER_RESTART_H
#define DS_SUPER_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#define RESTART_BACKOFF_MAX_NS (60LL * 1000000000LL)
enum { RESTART_MAX_LIMIT = 1000 }; /* largest restart.max */

struct restart_policy {
    uint32_t max;
    int64_t window_ns, backoff_ns;
};

struct restart {
    struct restart_policy policy;
    uint32_t n;                       /* of the times below */
    uint32_t total;                   /* restarts granted since the job began */
    int64_t times[RESTART_MAX_LIMIT]; /* granted restarts within the window, ascending */
};

void restart_init(struct restart *r, const struct restart_policy *p);
/* One that was granted at `at_ns`, before this process; called in ascending order. */
void restart_note(struct restart *r, int64_t at_ns);
/* Grants a restart at `now` and says from when it may begin (>= now), or refuses (false). */
bool restart_ask(struct restart *r, int64_t now_ns, int64_t *ret_not_before_ns);
uint32_t restart_left(const struct restart *r, int64_t now_ns);

#endif
