/* spec.h: the cluster spec, as data.
 *
 * One table of keys (spec_keys.c: path, kind, unit, range, default, help) drives the parser,
 * --set, the errors, spec_to_yaml, the docs and the schema (launcher/doc); there is no second
 * list of keys. After spec_load the struct is complete (presets and defaults filled in) and has
 * passed the cross-checks that need no host: later rooms rely on that and do not check again.
 *
 * Nothing here opens a connection.  Once loaded a spec is const.
 */
#ifndef DS_SPEC_SPEC_H
#define DS_SPEC_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"

struct err;
struct buf;

enum spec_boot { BOOT_LOCAL };                /* later: ssh, slurm, pmix, auto */
enum spec_device { DEVICE_AUTO, DEVICE_CPU }; /* later: cuda */
enum spec_arch { ARCH_GPT2, ARCH_LLAMA };
enum spec_precision { PRECISION_FP32 }; /* later: bf16, fp16 */
enum spec_schedule { SCHEDULE_GPIPE, SCHEDULE_1F1B };
enum spec_lr { LR_COSINE, LR_CONSTANT, LR_LINEAR, LR_WSD, LR_INVERSE_SQRT };
enum spec_lr_scale { LR_SCALE_NONE, LR_SCALE_LINEAR, LR_SCALE_SQRT };
enum spec_optimizer { OPT_ADAMW };
enum spec_data { DATA_TEXT, DATA_SHARDS };
enum spec_tokenizer {
    TOKENIZER_BYTES
}; /* ids 0..255 are bytes; 256 is padding and document end */

/* One entry of cluster.nodes after expansion of its hostlist.  Local boot: one agent per entry,
 * all on this machine; an entry may repeat. */
struct spec_node {
    char *host;
    uint32_t slots; /* workers this node may carry, >= 1 */
};

struct spec {
    char *name; /* [a-z0-9][a-z0-9_-]{0,31} */
    char *path; /* the file it was read from, absolute; its folder is the default workdir */

    struct {
        enum spec_boot bootstrap;
        struct spec_node *nodes;
        size_t n_nodes;
        uint32_t slots;  /* default for nodes that give none; 0: let the node say (its cores) */
        char *workdir;   /* absolute; host paths resolve against it */
        char *interface; /* "auto", a CIDR, or an interface name */
        char **setup;    /* NULL-terminated: lines run by sh before the worker */
        char **env;      /* NULL-terminated "NAME=value" */
        struct {
            int64_t connect_ns, suspect_ns, lost_ns;
            int64_t orphan_ns; /* INT64_MAX: never */
        } timeouts;
    } cluster;

    struct {
        enum spec_device device;
        uint32_t threads;
        char **env; /* NULL-terminated names or "PREFIX_*": passed on from the user's
                       environment */
        int64_t grace_ns;
    } job;

    struct {
        char *preset; /* "" if none */
        enum spec_arch arch;
        uint32_t layers, hidden, heads, kv_heads, ffn, vocab;
        uint32_t max_positions; /* gpt2's learned positions; >= train.seq_len */
        bool tied;              /* embedding and head share one table */
        bool qkv_bias;          /* q, k and v have biases: gpt2 always, llama as in qwen2 */
        double rope_theta, norm_eps;
    } model;

    struct {
        uint32_t data, tensor, pipeline;
        bool sequence; /* sequence parallelism in the tensor group */
        enum spec_schedule schedule;
        uint32_t *stages; /* layers per stage, n_stages = pipeline entries; NULL: balanced */
        size_t n_stages;
    } parallel;

    struct {
        uint32_t steps, batch, micro_batch, seq_len;
        enum spec_precision precision;
        double clip; /* 0: off */
        double z_loss;
        uint64_t seed;
        bool deterministic;
        struct {
            enum spec_optimizer kind;
            double beta1, beta2, eps, weight_decay;
        } optimizer;
        struct {
            double peak, min;
            uint32_t warmup;
            enum spec_lr schedule;
            double decay; /* wsd: the share of steps, at the end, that fall to min */
            enum spec_lr_scale scale;
            uint32_t reference_batch; /* 0: none; scale needs one */
        } lr;
        struct {
            uint32_t tokens; /* 0: none */
            char *prompt;    /* see prompt.h */
            double temperature;
        } sample;
    } train;

    struct {
        enum spec_data kind;
        char **files; /* NULL-terminated globs, still to be resolved against workdir */
        enum spec_tokenizer tokenizer;
        struct {
            char **files; /* NULL-terminated globs; empty: no validation */
            uint32_t every;
        } validation;
    } data;

    struct {
        char *dir;
        uint32_t every, keep; /* every 0: only at the end and on a stop */
        bool shared;
    } checkpoint;

    struct {
        uint32_t max;
        int64_t window_ns, backoff_ns, hang_timeout_ns;
    } restart;

    struct {
        uint32_t log_every;
    } monitor;
};

/* Reads `path`, applies `sets` ("key.path=YAML", later ones win; a map sets the keys of a
 * section; null or nothing gives a key its default back), fills presets and defaults and
 * cross-checks.  On failure *e (ERR_SPEC) holds a count, and every error, one "file:line:col:
 * key: what" with its hint line each, was appended to `report`; in a --set the place is the
 * option itself.  Beyond the first 50 only their number is said.  Of a file that cannot be read
 * *e says all, and `report` nothing. */
struct spec *spec_load(const char *path, char *const *sets, size_t n_sets, struct buf *report,
                       struct err *e);
/* As spec_load, from memory; `path` is only named in errors and gives the workdir. */
struct spec *spec_parse(const char *path, const char *text, size_t len, char *const *sets,
                        size_t n_sets, struct buf *report, struct err *e);
void spec_free(struct spec *s);
OWN(spec);

/* The resolved spec as YAML that spec_parse reads back to the same struct: every key, in table
 * order.  Two specs are the same if these texts are equal. */
int spec_to_yaml(const struct spec *s, struct buf *out);

/* What a resume refuses: keys marked fixed (model shape, tokenizer, seed, batch, seq_len) in
 * which the two differ, appended to `out` as "key: was X, is Y" lines.  Returns their number.
 */
size_t spec_resume_conflicts(const struct spec *was, const struct spec *is, struct buf *out);
/* As above, of all keys: 0 says that the two are the same spec. */
size_t spec_differences(const struct spec *was, const struct spec *is, struct buf *out);

/* A host path of the spec, resolved against cluster.workdir; owned by the caller. */
char *spec_host_path(const struct spec *s, const char *path);

static inline uint32_t spec_world(const struct spec *s)
{
    return s->parallel.data * s->parallel.pipeline * s->parallel.tensor;
}

/* Micro-batches per replica and step. */
static inline uint32_t spec_accumulation(const struct spec *s)
{
    return s->train.batch / (s->parallel.data * s->train.micro_batch);
}

#endif
