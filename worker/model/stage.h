/* stage.h: forward and backward of one pipeline stage for one micro-batch, gpt2 and llama.
 *
 * A stage owns no memory: pointers come from the arena laid out by common/shape/memory.h, ops
 * from struct kern, reductions over the tensor group from a comm.  Activations of a micro-batch
 * lie in a slot from its F to its B.  Rows are sharded over the tensor group between the blocks
 * when sequence parallelism is on (B*T/tensor rows, contiguous), else replicated.
 *
 * Gradients of stores are written `=` to the micro-gradient arena (or straight to the gradient
 * arena when the step has one micro-batch), at the store's offset.  stage_backward leaves those
 * partial over the tensor group complete: norm gains under sequence parallelism, replicated KV
 * and so on are reduced there.  Loss: fp64 sum over this micro-batch's unmasked tokens, on the
 * last stage.
 */
#ifndef DS_MODEL_STAGE_H
#define DS_MODEL_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/own.h"

struct comm;
struct dev;
struct dev_stream;
struct err;
struct kern;
struct mem_plan;
struct params;
struct spec;
struct stage;

/* Negative controls of the parity tests: each plants one classic bug.  DSLAUNCH_PLANT names one
 * in small letters with hyphens (tied-grad, ...); builds with -DDS_PLANT only, elsewhere the
 * variable is an error. */
enum plant {
    PLANT_NONE,
    PLANT_TIED_GRAD,    /* tied-embedding gradient not reduced over stages */
    PLANT_SP_NORM_GRAD, /* norm gradients not reduced under sequence parallelism */
    PLANT_DROP_BUCKET,  /* one data-parallel bucket is not reduced */
    PLANT_MICRO_LOSS,   /* loss weighted per micro-batch instead of per token */
    PLANT_PAD_VOCAB,    /* padded vocabulary not masked */
    PLANT_LOCAL_CLIP,   /* clip factor from the local norm under tensor parallelism */
    PLANT_NO_ATTENTION, /* attention output zeroed */
    PLANT_COUNT
};
/* From the environment; ERR_USAGE for an unknown name. */
int plant_get(enum plant *ret, struct err *e);

struct stage_params {
    const struct spec *spec;
    const struct params *params;
    const struct mem_plan *mem;
    struct kern *kern;
    struct dev *dev;
    struct dev_stream *stream;
    struct comm *tensor; /* NULL if tensor = 1 */
    struct comm *kv;     /* NULL unless KV is replicated */
    uint32_t tp;
    enum plant plant;
    void *arena;
};

/* Prepares all ops of the rank, those that others run over the gradients too (the sums, the
 * norm, AdamW: one call per store, or all of the arena). */
struct stage *stage_new(const struct stage_params *p, struct err *e);
void stage_free(struct stage *st);
OWN(stage);

/* Enough for any op prepared; nothing lies in it between calls. */
void *stage_scratch(struct stage *st);
/* Weight arena of the rank, params->n_elements floats. */
float *stage_weights(struct stage *st);
/* Where forward reads its input and backward leaves its input gradient (not on the first
 * stage), and where forward leaves its output and backward reads its output gradient (not on
 * the last): [rows_local, hidden] each, of the compute type.  *ret_elements: how many. */
void *stage_act_in(struct stage *st, uint32_t slot);
void *stage_act_out(struct stage *st, uint32_t slot);
void *stage_grad_in(struct stage *st);
void *stage_grad_out(struct stage *st);
int64_t stage_act_elements(const struct stage *st);

/* ids, targets [micro_batch * seq_len]; copied into the slot.  ids are needed on the first
 * stage, targets on the last; the other may be NULL.  Alone it is a validation step: any slot
 * that no training micro-batch holds serves, slot 0 between steps. */
int stage_forward(struct stage *st, uint32_t slot, const int32_t *ids, const int32_t *targets,
                  struct err *e);
/* After the forward of the same slot.  grads: arena of params->n_elements floats, written `=`.
 */
int stage_backward(struct stage *st, uint32_t slot, float loss_scale_per_token, float *grads,
                   struct err *e);
/* Loss sum of the slot's micro-batch after stage_forward, fp64, last stage only. */
double stage_loss(const struct stage *st, uint32_t slot);

/* Logits of one row of the slot's micro-batch after stage_forward alone, into host memory:
 * ret[vocab_local], last stage only.  Waits. */
int stage_logits(struct stage *st, uint32_t slot, int64_t row, float *ret, struct err *e);

/* Initial weights: integers and + - * / sqrt only, keyed by (seed, logical name, element), so
 * that every layout starts from the same bits. */
int stage_init_weights(struct stage *st, struct err *e);
/* `n` numbers of logical tensor `name` from element `first` (init.c), for tests. */
void init_normal(uint64_t seed, const char *name, double std, int64_t first, int64_t n,
                 float *ret);

#endif
