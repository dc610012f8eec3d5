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

const char *page_coll_name(uint32_t coll_op)
{
    static const char *const names[PAGE_COLL_COUNT] = {
        "all-reduce", "reduce-scatter", "all-gather",   "broadcast",
        "send",       "receive",        "all-to-all-v", "barrier",
    };
    return coll_op < PAGE_COLL_COUNT ? names[coll_op] : "unknown";
}
