/* What must hold between keys.  Each rule stands alone: it is looked at if all keys that it
 * speaks of could be read, whatever else is wrong, and blames the first of them that was given.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/own.h"
#include "common/base/units.h"
#include "common/spec/hosts.h"
#include "common/spec/prompt.h"
#include "common/spec/spec_read.h"

enum { BYTES_VOCAB = 257, PROMPT_MAX = 256, LLAMA_FFN_STEP = 64, WORLD_MAX = 65536 };
/* Micro-batches of a replica in one step: GPipe keeps all of them alive, and a schedule is a
 * table of what each stage does with each. */
enum { GPIPE_MAX = 1024, SCHEDULE_MAX = 1 << 22 };

#define RULE_HINT(keys, holds, hint, ...)                                                  \
    do {                                                                                   \
        if (spec_good(r, keys) && !(holds)) {                                              \
            const struct spec_key *blamed = spec_blamed(r, keys);                          \
            (void)spec_error(r, spec_mark_of(r, blamed), blamed->path, hint, __VA_ARGS__); \
        }                                                                                  \
    } while (0)
#define RULE(keys, holds, ...) RULE_HINT(keys, holds, NULL, __VA_ARGS__)

static void derive(struct spec_read *r)
{
    struct spec *s = r->s;
    if (!s->model.kv_heads)
        s->model.kv_heads = s->model.heads;
    if (!s->model.ffn && s->model.arch == ARCH_GPT2)
        s->model.ffn = 4 * s->model.hidden;
    if (!s->model.ffn)
        s->model.ffn =
            (8 * s->model.hidden / 3 + LLAMA_FFN_STEP - 1) / LLAMA_FFN_STEP * LLAMA_FFN_STEP;
    if (!s->model.max_positions)
        s->model.max_positions = s->train.seq_len;
    if (!spec_given(r, "model.tied"))
        s->model.tied = s->model.arch == ARCH_GPT2;
    if (!spec_given(r, "model.qkv_bias"))
        s->model.qkv_bias = s->model.arch == ARCH_GPT2;
    if (!s->cluster.workdir || !*s->cluster.workdir) {
        const char *slash = strrchr(s->path, '/');
        free(s->cluster.workdir);
        s->cluster.workdir =
            !slash ? xstrdup("/")
                   : xstrndup(s->path, slash == s->path ? 1 : (size_t)(slash - s->path));
    } else if (s->cluster.workdir[0] == '~') { /* with a local boot the host is this one */
        char *full = spec_host_path(s, s->cluster.workdir);
        free(s->cluster.workdir);
        s->cluster.workdir = full;
    }
}

static bool name_ok(const char *name)
{
    size_t n = strlen(name);
    return n && n <= 32 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == n &&
           name[0] != '-' && name[0] != '_';
}

/* As YAML's reader wants it: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
static bool is_utf8(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        unsigned char low = *p == 0xe0   ? 0xa0
                            : *p == 0xf0 ? 0x90
                                         : 0x80,
                      high = *p == 0xed   ? 0x9f
                             : *p == 0xf4 ? 0x8f
                                          : 0xbf;
        int more = *p < 0x80                 ? 0
                   : *p >= 0xc2 && *p < 0xe0 ? 1
                   : *p >= 0xe0 && *p < 0xf0 ? 2
                   : *p >= 0xf0 && *p < 0xf5 ? 3
                                             : -1;
        if (more < 0)
            return false;
        for (p++; more > 0; more--, p++, low = 0x80, high = 0xbf)
            if (*p < low || *p > high)
                return false;
    }
    return true;
}

static void check_slots(struct spec_read *r)
{
    struct spec *s = r->s;
    uint64_t slots = 0,
             world = (uint64_t)s->parallel.data * s->parallel.tensor * s->parallel.pipeline;
    for (size_t i = 0; i < s->cluster.n_nodes; i++) {
        const struct spec_node *n = &s->cluster.nodes[i];
        uint32_t here = n->slots ? n->slots : s->cluster.slots;
        if (!here)
            return; /* the node itself will say */
        slots += here;
    }
    RULE("cluster.nodes cluster.slots parallel.data parallel.tensor parallel.pipeline",
         slots >= world,
         "%" PRIu64 " slots for %" PRIu64 " workers (data %u x tensor %u x pipeline %u)", slots,
         world, s->parallel.data, s->parallel.tensor, s->parallel.pipeline);
}

static void check_cluster(struct spec_read *r)
{
    struct spec *s = r->s;
    const char *stranger = NULL;
    char suspect[32], lost[32];
    for (size_t i = 0; i < s->cluster.n_nodes && !stranger; i++)
        if (s->cluster.bootstrap == BOOT_LOCAL &&
            strcmp(s->cluster.nodes[i].host, "localhost") != 0)
            stranger = s->cluster.nodes[i].host;
    RULE_HINT("cluster.nodes cluster.bootstrap", !stranger,
              "with bootstrap: local every node is localhost", "%.64s is not this machine",
              stranger);
    RULE("cluster.workdir", s->cluster.workdir[0] == '/', "%.200s is not an absolute path",
         s->cluster.workdir);
    RULE_HINT("cluster.workdir", is_utf8(s->cluster.workdir),
              "the spec's folder is the default, and has such a name", "is not UTF-8 text");
    RULE("cluster.interface", *s->cluster.interface, "is empty; auto takes all");
    RULE("cluster.timeouts.lost cluster.timeouts.suspect",
         s->cluster.timeouts.lost_ns > s->cluster.timeouts.suspect_ns,
         "lost (%s) must be longer than suspect (%s)",
         units_duration_text(s->cluster.timeouts.lost_ns, lost),
         units_duration_text(s->cluster.timeouts.suspect_ns, suspect));
    check_slots(r);
}

static void check_job(struct spec_read *r)
{
    for (char **p = r->s->job.env; p && *p; p++) {
        size_t n = spec_env_name(*p);
        RULE_HINT("job.env", n && (!(*p)[n] || strcmp(*p + n, "*") == 0),
                  "values are given in cluster.env: {NAME: value}",
                  "\"%.64s\" is neither a variable's name nor PREFIX_*", *p);
    }
}

static void check_model(struct spec_read *r)
{
    struct spec *s = r->s;
    uint32_t h = s->model.hidden, heads = s->model.heads, kv = s->model.kv_heads;
    bool gpt2 = s->model.arch == ARCH_GPT2;
    RULE("model.heads model.hidden", h % heads == 0, "%u does not divide model.hidden %u",
         heads, h);
    RULE("model.heads model.hidden model.arch", gpt2 || h % heads || h / heads % 2 == 0,
         "rotary positions need an even head dimension, not %u", h / heads);
    RULE("model.kv_heads model.heads", heads % kv == 0, "%u does not divide model.heads %u", kv,
         heads);
    RULE("model.kv_heads model.heads model.arch", !gpt2 || kv == heads || heads % kv,
         "gpt2 has as many as model.heads %u", heads);
    RULE("model.qkv_bias model.arch", !gpt2 || s->model.qkv_bias, "gpt2 has them always");
    RULE("model.vocab data.tokenizer data.kind",
         s->data.kind != DATA_TEXT || s->data.tokenizer != TOKENIZER_BYTES ||
             s->model.vocab >= BYTES_VOCAB,
         "%u is too small: the byte tokenizer has %d ids", s->model.vocab, BYTES_VOCAB);
    RULE("train.seq_len model.max_positions model.arch",
         !gpt2 || s->train.seq_len <= s->model.max_positions,
         "%u is longer than model.max_positions %u", s->train.seq_len, s->model.max_positions);
}

static void check_stages(struct spec_read *r)
{
    struct spec *s = r->s;
    uint64_t sum = 0;
    if (!s->parallel.stages)
        return;
    for (size_t i = 0; i < s->parallel.n_stages; i++)
        sum += s->parallel.stages[i];
    RULE("parallel.stages parallel.pipeline", s->parallel.n_stages == s->parallel.pipeline,
         "%zu entries for parallel.pipeline %u", s->parallel.n_stages, s->parallel.pipeline);
    RULE("parallel.stages model.layers", sum == s->model.layers,
         "add up to %" PRIu64 ", model.layers is %u", sum, s->model.layers);
}

static void check_parallel(struct spec_read *r)
{
    struct spec *s = r->s;
    uint32_t t = s->parallel.tensor, p = s->parallel.pipeline, kv = s->model.kv_heads;
    RULE("parallel.tensor model.heads", s->model.heads % t == 0,
         "%u does not divide model.heads %u", t, s->model.heads);
    RULE("parallel.tensor model.ffn model.hidden model.arch", s->model.ffn % t == 0,
         "%u does not divide model.ffn %u", t, s->model.ffn);
    RULE_HINT("parallel.tensor model.kv_heads model.heads", kv % t == 0 || t % kv == 0,
              "one must divide the other: key and value heads are shared out, or repeated",
              "%u does not go with model.kv_heads %u", t, kv);
    RULE("parallel.tensor model.vocab", t <= s->model.vocab, "%u is more than model.vocab %u",
         t, s->model.vocab);
    RULE("parallel.tensor train.seq_len parallel.sequence",
         !s->parallel.sequence || s->train.seq_len % t == 0,
         "%u does not divide train.seq_len %u (parallel.sequence)", t, s->train.seq_len);
    RULE("parallel.pipeline model.layers", p <= s->model.layers,
         "%u stages for %u layers (model.layers)", p, s->model.layers);
    check_stages(r);
    RULE("parallel.data parallel.tensor parallel.pipeline",
         (uint64_t)s->parallel.data * t * p <= WORLD_MAX,
         "data %u x tensor %u x pipeline %u is more than %d workers", s->parallel.data, t, p,
         WORLD_MAX);
}

static void check_sample(struct spec_read *r)
{
    struct spec *s = r->s;
    AUTO_FREE int32_t *ids = NULL;
    size_t n = 0;
    if (!spec_good(r, "train.sample.prompt data.kind model.vocab"))
        return;
    bool are_ids = prompt_ids(s, &ids, &n) == 0;
    RULE("train.sample.prompt data.kind", are_ids,
         "with data.kind shards it is ids below model.vocab %u, separated by blanks",
         s->model.vocab);
    RULE("train.sample.prompt", strlen(s->train.sample.prompt) <= PROMPT_MAX,
         "is longer than %d bytes", PROMPT_MAX);
    RULE("train.sample.tokens train.sample.prompt", !s->train.sample.tokens || !are_ids || n,
         "needs a train.sample.prompt to go on from");
}

static void check_train(struct spec_read *r)
{
    struct spec *s = r->s;
    uint64_t round = (uint64_t)s->parallel.data * s->train.micro_batch, batch = s->train.batch;
    char hint[96];
    if (spec_good(r, "parallel.data train.micro_batch"))
        (void)snprintf(hint, sizeof hint, "the next multiple is %" PRIu64,
                       (batch + round - 1) / round * round);
    RULE_HINT("train.batch parallel.data train.micro_batch", batch % round == 0, hint,
              "%" PRIu64 " is no multiple of parallel.data x train.micro_batch = %" PRIu64,
              batch, round);
    bool gpipe = s->parallel.schedule == SCHEDULE_GPIPE;
    RULE_HINT("train.batch parallel.data train.micro_batch parallel.schedule parallel.pipeline",
              batch / round <= (gpipe ? GPIPE_MAX : SCHEDULE_MAX / s->parallel.pipeline),
              "raise train.micro_batch or parallel.data",
              "%" PRIu64 " micro-batches for each replica, more than %d", batch / round,
              gpipe ? GPIPE_MAX : (int)(SCHEDULE_MAX / s->parallel.pipeline));
    RULE("train.lr.min train.lr.peak", s->train.lr.min <= s->train.lr.peak,
         "%g is above train.lr.peak %g", s->train.lr.min, s->train.lr.peak);
    RULE("train.lr.warmup train.steps", s->train.lr.warmup <= s->train.steps,
         "%u is more than train.steps %u", s->train.lr.warmup, s->train.steps);
    RULE("train.lr.scale train.lr.reference_batch",
         s->train.lr.scale == LR_SCALE_NONE || s->train.lr.reference_batch,
         "needs train.lr.reference_batch");
    check_sample(r);
    RULE("data.files", s->data.files[0], "no file");
    RULE("checkpoint.dir", *s->checkpoint.dir, "is empty");
    RULE("checkpoint.shared cluster.nodes", s->checkpoint.shared || s->cluster.n_nodes == 1,
         "false is not available in this version with several nodes");
}

void spec_check(struct spec_read *r)
{
    derive(r);
    RULE("name", name_ok(r->s->name),
         "\"%.64s\" must be 1 to 32 of a-z, 0-9, - and _, and begin with a letter or digit",
         r->s->name);
    check_cluster(r);
    check_job(r);
    check_model(r);
    check_parallel(r);
    check_train(r);
}
