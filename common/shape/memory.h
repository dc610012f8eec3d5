/* memory.h: every buffer of a rank, declared before the first step.
 *
 * The worker takes its pointers from this list and `dslaunch plan` prints its sums: there is no
 * second model of memory, so what plan says is what the arena has.  Buffers of class activation
 * exist once per activation slot of the schedule; scratch is one region shared by all ops.
 *
 * Pure; const once made.
 */
#ifndef DS_SHAPE_MEMORY_H
#define DS_SHAPE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"
#include "common/shape/params.h"
#include "common/shape/sched.h"

enum mem_class {
    MEM_WEIGHTS,
    MEM_GRADS,
    MEM_OPTIMIZER,
    MEM_ACTIVATIONS,
    MEM_COMM,  /* what is sent and received */
    MEM_INPUT, /* tokens and targets */
    MEM_SCRATCH,
    MEM_CLASS_COUNT
};

/* What a buffer is; its shape stands in memory.c next to the formula. */
struct mem_buf {
    enum mem_class cls;
    uint32_t id;   /* enum mem_id */
    int32_t layer; /* local layer, -1 if none */
    uint32_t slot; /* activation slot, 0 if none */
    size_t bytes;  /* padded to 256 */
    size_t offset; /* in the arena; buffers whose lifetimes do not meet may share bytes */
};

struct mem_plan {
    struct mem_buf *bufs;
    size_t n_bufs;
    size_t arena_bytes;
    size_t class_bytes[MEM_CLASS_COUNT]; /* sums of what each class occupies; add up to
                                            arena_bytes */
};

struct mem_plan *mem_plan_new(const struct spec *s, const struct params *p,
                              const struct sched *sched);
void mem_plan_free(struct mem_plan *m);
OWN(mem_plan);
const char *mem_class_name(enum mem_class c);
/* Offset in the arena of a buffer; the triple must exist (an assert). */
size_t mem_plan_offset(const struct mem_plan *m, uint32_t id, int32_t layer, uint32_t slot);

#endif
