/* What must hold between keys.  Each rule stands alone and reports at the key most likely
 * wrong. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/base/own.h"
#include "common/spec/hosts.h"
#include "common/spec/spec_read.h"

enum { BYTES_VOCAB = 257, LLAMA_FFN_STEP = 64 };

#define BAD(key, ...) spec_error(r, spec_mark_of(r, key), key, NULL, __VA_ARGS__)
#define BAD_HINT(key, hint, ...) spec_error(r, spec_mark_of(r, key), key, hint, __VA_ARGS__)

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
    if (!s->cluster.workdir || !*s->cluster.workdir) {
        const char *slash = strrchr(s->path, '/');
        free(s->cluster.workdir);
        s->cluster.workdir =
            xstrndup(s->path, slash == s->path ? 1 : (size_t)(slash - s->path));
    }
}

static void check_name(struct spec_read *r)
{
    const char *name = r->s->name;
    size_t n = strlen(name), ok = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_");
    if (!n || n > 32 || ok != n || name[0] == '-' || name[0] == '_')
        BAD("name",
            "\"%.64s\" must be 1 to 32 of a-z, 0-9, - and _, and begin with a letter or digit",
            name);
}

static void check_cluster(struct spec_read *r)
{
    struct spec *s = r->s;
    uint64_t slots = 0,
             world = (uint64_t)s->parallel.data * s->parallel.tensor * s->parallel.pipeline;
    bool known = true;
    if (s->cluster.workdir[0] != '/' && s->cluster.workdir[0] != '~')
        BAD("cluster.workdir", "%s is not an absolute path", s->cluster.workdir);
    if (world > HOSTS_MAX) {
        BAD("parallel.data", "data x tensor x pipeline is %llu workers, more than %d",
            (unsigned long long)world, HOSTS_MAX);
        return;
    }
    for (size_t i = 0; i < s->cluster.n_nodes; i++) {
        const struct spec_node *n = &s->cluster.nodes[i];
        if (s->cluster.bootstrap == BOOT_LOCAL && strcmp(n->host, "localhost") != 0) {
            BAD_HINT("cluster.nodes", "with bootstrap: local every node is localhost",
                     "%s is not this machine", n->host);
            return;
        }
        uint32_t here = n->slots ? n->slots : s->cluster.slots;
        known = known && here;
        slots += here;
    }
    if (known && slots < world)
        BAD("cluster.nodes", "%llu slots for %llu workers (data %u x tensor %u x pipeline %u)",
            (unsigned long long)slots, (unsigned long long)world, s->parallel.data,
            s->parallel.tensor, s->parallel.pipeline);
    if (s->cluster.timeouts.lost_ns <= s->cluster.timeouts.suspect_ns)
        BAD("cluster.timeouts.lost", "must be longer than cluster.timeouts.suspect");
}

static void check_model(struct spec_read *r)
{
    struct spec *s = r->s;
    uint32_t h = s->model.hidden, heads = s->model.heads, kv = s->model.kv_heads;
    if (h % heads)
        BAD("model.heads", "%u does not divide model.hidden %u", heads, h);
    else if (s->model.arch == ARCH_LLAMA && h / heads % 2)
        BAD("model.heads", "rotary positions need an even head dimension, not %u", h / heads);
    if (heads % kv)
        BAD("model.kv_heads", "%u does not divide model.heads %u", kv, heads);
    if (s->model.arch == ARCH_GPT2 && kv != heads)
        BAD("model.kv_heads", "gpt2 has as many as model.heads %u", heads);
    if (s->data.tokenizer == TOKENIZER_BYTES && s->model.vocab < BYTES_VOCAB)
        BAD("model.vocab", "%u is too small: the byte tokenizer has %d ids", s->model.vocab,
            BYTES_VOCAB);
    if (s->model.arch == ARCH_GPT2 && s->train.seq_len > s->model.max_positions)
        BAD("train.seq_len", "%u is longer than model.max_positions %u", s->train.seq_len,
            s->model.max_positions);
}

static void check_parallel(struct spec_read *r)
{
    struct spec *s = r->s;
    uint32_t t = s->parallel.tensor, p = s->parallel.pipeline, kv = s->model.kv_heads;
    if (s->model.heads % t)
        BAD("parallel.tensor", "%u does not divide model.heads %u", t, s->model.heads);
    if (s->model.ffn % t)
        BAD("parallel.tensor", "%u does not divide model.ffn %u", t, s->model.ffn);
    if (kv % t && t % kv)
        BAD("parallel.tensor", "%u and model.kv_heads %u: one must divide the other", t, kv);
    if (s->model.vocab < t)
        BAD("parallel.tensor", "%u is more than model.vocab %u", t, s->model.vocab);
    if (s->parallel.sequence && s->train.seq_len % t)
        BAD("parallel.tensor", "%u does not divide train.seq_len %u (parallel.sequence)", t,
            s->train.seq_len);
    if (p > s->model.layers)
        BAD("parallel.pipeline", "%u stages for %u layers (model.layers)", p, s->model.layers);
    if (!s->parallel.stages)
        return;
    uint64_t sum = 0;
    for (size_t i = 0; i < s->parallel.n_stages; i++)
        sum += s->parallel.stages[i];
    if (s->parallel.n_stages != p)
        BAD("parallel.stages", "%zu entries for parallel.pipeline %u", s->parallel.n_stages, p);
    else if (sum != s->model.layers)
        BAD("parallel.stages", "add up to %llu, model.layers is %u", (unsigned long long)sum,
            s->model.layers);
}

static void check_train(struct spec_read *r)
{
    struct spec *s = r->s;
    uint64_t round = (uint64_t)s->parallel.data * s->train.micro_batch;
    char hint[96];
    if (s->train.batch % round) {
        (void)snprintf(hint, sizeof hint, "the next multiple is %llu",
                       (unsigned long long)((s->train.batch + round - 1) / round * round));
        BAD_HINT("train.batch", hint,
                 "%u is no multiple of parallel.data x train.micro_batch = %llu",
                 s->train.batch, (unsigned long long)round);
    }
    if (s->train.lr.min > s->train.lr.peak)
        BAD("train.lr.min", "%g is above train.lr.peak %g", s->train.lr.min, s->train.lr.peak);
    if (s->train.lr.warmup > s->train.steps)
        BAD("train.lr.warmup", "%u is more than train.steps %u", s->train.lr.warmup,
            s->train.steps);
    if (!s->data.files[0])
        BAD("data.files", "no file");
    if (!*s->checkpoint.dir)
        BAD("checkpoint.dir", "is empty");
    if (!s->checkpoint.shared && s->cluster.n_nodes > 1)
        BAD("checkpoint.shared", "false is not available in this version with several nodes");
}

void spec_check(struct spec_read *r)
{
    derive(r);
    check_name(r);
    check_cluster(r);
    check_model(r);
    check_parallel(r);
    check_train(r);
}
