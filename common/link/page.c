#include "common/link/page.h"

_Static_assert(sizeof(struct page) <= PAGE_BYTES, "the page is one page");

const char *page_phase_name(enum page_phase p)
{
    static const char *const names[PHASE_COUNT] = {
        [PHASE_START] = "start",
        [PHASE_CONNECT] = "connect",
        [PHASE_LOAD] = "load",
        [PHASE_FORWARD] = "forward",
        [PHASE_BACKWARD] = "backward",
        [PHASE_REDUCE] = "reduce",
        [PHASE_OPTIMIZER] = "optimizer",
        [PHASE_VALIDATE] = "validate",
        [PHASE_CHECKPOINT] = "checkpoint",
        [PHASE_DONE] = "done",
    };
    return p < PHASE_COUNT ? names[p] : "unknown";
}
