/* page.h: the progress page, a memfd that a worker writes and its agent reads.
 *
 * One writer, the worker's main thread; the agent maps it read-only and reads at any time, so
 * every field is an atomic of its own and no two fields are promised to belong together.  The
 * agent finds hangs by it: a rank whose `beat` stands still for restart.hang_timeout hangs.
 * Whether it is the culprit or waits for one is told by `phase`, `waiting` and the collective's
 * number.
 */
#ifndef DS_LINK_PAGE_H
#define DS_LINK_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

enum { PAGE_MAGIC = 0x64736c70, PAGE_VERSION = 1, PAGE_BYTES = 4096 };

enum page_phase {
    PHASE_START,   /* exec to the barrier */
    PHASE_CONNECT, /* communicators */
    PHASE_LOAD,    /* weights or checkpoint, data */
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_REDUCE, /* gradients, norm, skip decision */
    PHASE_OPTIMIZER,
    PHASE_VALIDATE,
    PHASE_CHECKPOINT,
    PHASE_DONE,
    PHASE_COUNT
};

enum { PAGE_COLL_COUNT = 8 }; /* kinds of collectives: worker/comm.h's enum comm_op */

struct page {
    _Atomic uint32_t magic, version;
    _Atomic uint64_t
        beat; /* counts up at each micro-batch border, collective and phase change */
    _Atomic uint64_t step;       /* steps finished */
    _Atomic uint32_t phase;      /* enum page_phase */
    _Atomic uint32_t micro;      /* micro-batch in work */
    _Atomic uint32_t waiting;    /* 1 while inside a communication wait */
    _Atomic uint32_t coll_group; /* enum group_kind of the last collective */
    _Atomic uint32_t coll_op;    /* enum comm_op */
    _Atomic uint32_t coll_peer;  /* rank waited for, UINT32_MAX if none in particular */
    _Atomic uint64_t coll_seq;   /* its number in the group, from 1 */
};

const char *page_phase_name(enum page_phase p); /* "start", "connect", ... */
const char *page_coll_name(uint32_t coll_op);   /* "all-reduce", "send", ... */

#endif
