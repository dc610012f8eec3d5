/* pipeline.h: the interpreter of schedule tables (common/shape/sched.h) for one rank's stage.
 *
 * There is no other order of execution than the table's.  Gradients: the first micro-batch
 * writes `grads`, each later one `micro_grads`, which is then added, so that a sum over
 * micro-batches has the order and the rounding of a sum over replicas (docs/design.md,
 * "Identities").
 */
#ifndef DS_LOOP_PIPELINE_H
#define DS_LOOP_PIPELINE_H

#include <stdint.h>

struct comm;
struct dev_stream;
struct err;
struct kern;
struct link;
struct sched_lane;
struct stage;

/* Input of micro-batch `micro` of the step in work: [micro_batch * seq_len] each; borrowed
 * until the next call.  scale: what every token's loss is multiplied with. */
struct pipeline_input {
    const int32_t *ids, *targets;
    float scale;
};
typedef int pipeline_input_fn(void *ctx, uint32_t micro, struct pipeline_input *ret,
                              struct err *e);

struct pipeline {
    struct stage *stage;
    struct comm *comm; /* GROUP_PIPELINE; NULL with one stage */
    struct kern *kern;
    struct link *link;
    struct dev_stream *stream;
    uint32_t index, n_stages;
    float *grads,
        *micro_grads; /* arenas of n_grads; micro_grads NULL if there is one micro-batch */
    int64_t n_grads;
    pipeline_input_fn *input;
    void *ctx;
    double *losses; /* [n_micro], = on the last stage */
};

/* Forward and backward of one step. */
int pipeline_step(struct pipeline *p, const struct sched_lane *lane, struct err *e);
/* Forward of one micro-batch through all stages, in slot 0; losses[micro] = on the last stage.
 */
int pipeline_forward(struct pipeline *p, uint32_t micro, struct err *e);

#endif
