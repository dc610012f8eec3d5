#include "common/spec/spec_keys.h"

#include <string.h>

#include "common/spec/spec.h"

#define AT(member) offsetof(struct spec, member)
#define BIG 4294967295.0

/* clang-format off */
static const struct spec_key keys[] = {
    {"name", KEY_STRING, AT(name), "!", 0, 0, NULL, NULL, false, "the job's name: a to z, 0 to 9, - and _, at most 32"},

    {"cluster.bootstrap", KEY_WORD, AT(cluster.bootstrap), "local", 0, 0, "local", "ssh slurm pmix auto", false, "how agents are started"},
    {"cluster.nodes", KEY_NODES, AT(cluster.nodes), "[\"localhost\"]", 0, 0, NULL, NULL, false, "host lists, or {host: name, slots: n}"},
    {"cluster.slots", KEY_U32, AT(cluster.slots), "0", 0, 1024, NULL, NULL, false, "workers per node; 0: its cores"},
    {"cluster.workdir", KEY_STRING, AT(cluster.workdir), NULL, 0, 0, NULL, NULL, false, "where host paths start; default: the spec's folder"},
    {"cluster.interface", KEY_STRING, AT(cluster.interface), "auto", 0, 0, NULL, NULL, false, "auto, a CIDR, or an interface's name"},
    {"cluster.setup", KEY_STRINGS, AT(cluster.setup), "[]", 0, 0, NULL, NULL, false, "lines run by sh before each worker"},
    {"cluster.env", KEY_ENV, AT(cluster.env), "{}", 0, 0, NULL, NULL, false, "environment of every worker"},
    {"cluster.timeouts.connect", KEY_DURATION, AT(cluster.timeouts.connect_ns), "10s", 0.1, 3600, NULL, NULL, false, "an agent must be reached within"},
    {"cluster.timeouts.suspect", KEY_DURATION, AT(cluster.timeouts.suspect_ns), "3s", 0.5, 3600, NULL, NULL, false, "a silent node is suspect after"},
    {"cluster.timeouts.lost", KEY_DURATION, AT(cluster.timeouts.lost_ns), "8s", 1, 3600, NULL, NULL, false, "a silent node is lost after"},
    {"cluster.timeouts.orphan", KEY_DURATION, AT(cluster.timeouts.orphan_ns), "120s", 0.5, 1e9, NULL, NULL, false, "agents without a controller save and stop after; or never"},

    {"job.device", KEY_WORD, AT(job.device), "auto", 0, 0, "auto cpu", "cuda", false, "what workers compute on"},
    {"job.threads", KEY_U32, AT(job.threads), "1", 1, 1024, NULL, NULL, false, "threads of each CPU worker"},
    {"job.env", KEY_STRINGS, AT(job.env), "[]", 0, 0, NULL, NULL, false, "names, or PREFIX_*, passed on from your environment"},
    {"job.grace", KEY_DURATION, AT(job.grace_ns), "30s", 0.1, 86400, NULL, NULL, false, "a stop may take this long to save"},

    {"model.preset", KEY_STRING, AT(model.preset), "\"\"", 0, 0, NULL, NULL, false, "defaults for the keys below"},
    {"model.arch", KEY_WORD, AT(model.arch), "llama", 0, 0, "gpt2 llama", "deepseek", true, "gpt2 or llama"},
    {"model.layers", KEY_U32, AT(model.layers), "!", 1, 4096, NULL, NULL, true, "transformer blocks"},
    {"model.hidden", KEY_U32, AT(model.hidden), "!", 1, 65536, NULL, NULL, true, "width of the residual stream"},
    {"model.heads", KEY_U32, AT(model.heads), "!", 1, 1024, NULL, NULL, true, "query heads"},
    {"model.kv_heads", KEY_U32, AT(model.kv_heads), "0", 0, 1024, NULL, NULL, true, "key and value heads; default: heads"},
    {"model.ffn", KEY_U32, AT(model.ffn), "0", 0, 1048576, NULL, NULL, true, "width of the feed-forward; default: 4 hidden (gpt2), 8/3 hidden in steps of 64 (llama)"},
    {"model.vocab", KEY_U32, AT(model.vocab), "257", 2, 16777216, NULL, NULL, true, "ids; the byte tokenizer has 257"},
    {"model.max_positions", KEY_U32, AT(model.max_positions), "0", 0, 16777216, NULL, NULL, true, "rows of gpt2's position table; default: train.seq_len"},
    {"model.tied", KEY_BOOL, AT(model.tied), NULL, 0, 0, NULL, NULL, true, "embedding and head are one table; default: gpt2 true, llama false"},
    {"model.qkv_bias", KEY_BOOL, AT(model.qkv_bias), NULL, 0, 0, NULL, NULL, true, "query, key and value have biases, as in qwen2; default: gpt2 true, llama false"},
    {"model.rope_theta", KEY_REAL, AT(model.rope_theta), "10000", 1, 1e12, NULL, NULL, true, "base of llama's rotary angles"},
    {"model.norm_eps", KEY_REAL, AT(model.norm_eps), "1e-5", 1e-12, 1, NULL, NULL, true, "epsilon of the norms"},

    {"parallel.data", KEY_U32, AT(parallel.data), "1", 1, 65536, NULL, NULL, false, "replicas"},
    {"parallel.tensor", KEY_U32, AT(parallel.tensor), "1", 1, 1024, NULL, NULL, false, "ranks that share each layer"},
    {"parallel.pipeline", KEY_U32, AT(parallel.pipeline), "1", 1, 1024, NULL, NULL, false, "stages"},
    {"parallel.sequence", KEY_BOOL, AT(parallel.sequence), "false", 0, 0, NULL, NULL, false, "sequence parallelism in the tensor group"},
    {"parallel.schedule", KEY_WORD, AT(parallel.schedule), "1f1b", 0, 0, "gpipe 1f1b", "interleaved zb-h1 zb-v dualpipe", false, "order of forwards and backwards"},
    {"parallel.stages", KEY_COUNTS, AT(parallel.stages), NULL, 1, 4096, NULL, NULL, false, "layers of each stage; default: balanced"},

    {"train.steps", KEY_U32, AT(train.steps), "!", 1, BIG, NULL, NULL, false, "optimizer steps"},
    {"train.batch", KEY_U32, AT(train.batch), "!", 1, 16777216, NULL, NULL, true, "sequences per step, over all ranks"},
    {"train.micro_batch", KEY_U32, AT(train.micro_batch), "1", 1, 65536, NULL, NULL, false, "sequences at a time on a rank"},
    {"train.seq_len", KEY_U32, AT(train.seq_len), "!", 1, 1048576, NULL, NULL, true, "tokens per sequence"},
    {"train.precision", KEY_WORD, AT(train.precision), "fp32", 0, 0, "fp32", "bf16 fp16 fp8", false, "type of weights and activations"},
    {"train.clip", KEY_REAL, AT(train.clip), "1.0", 0, 1e9, NULL, NULL, false, "gradient norm is clipped to this; 0: off"},
    {"train.z_loss", KEY_REAL, AT(train.z_loss), "0", 0, 1, NULL, NULL, false, "weight of log(Z)^2, which keeps logits small; not in the loss that is reported"},
    {"train.seed", KEY_U64, AT(train.seed), "1", 0, 9e15, NULL, NULL, true, "of initial weights and data order"},
    {"train.deterministic", KEY_BOOL, AT(train.deterministic), "false", 0, 0, NULL, NULL, false, "same bits in every run; always so on CPU"},
    {"train.optimizer.kind", KEY_WORD, AT(train.optimizer.kind), "adamw", 0, 0, "adamw", "muon", false, "adamw"},
    {"train.optimizer.betas", KEY_PAIR, AT(train.optimizer.beta1), "[0.9, 0.95]", 0, 0.9999999, NULL, NULL, false, "AdamW's decay rates"},
    {"train.optimizer.eps", KEY_REAL, AT(train.optimizer.eps), "1e-8", 1e-30, 1, NULL, NULL, false, "AdamW's epsilon"},
    {"train.optimizer.weight_decay", KEY_REAL, AT(train.optimizer.weight_decay), "0.1", 0, 10, NULL, NULL, false, "of matrices"},
    {"train.lr.peak", KEY_REAL, AT(train.lr.peak), "3e-4", 0, 1000, NULL, NULL, false, "highest learning rate"},
    {"train.lr.min", KEY_REAL, AT(train.lr.min), "0", 0, 1000, NULL, NULL, false, "learning rate of the last step; inverse-sqrt's lowest"},
    {"train.lr.warmup", KEY_U32, AT(train.lr.warmup), "0", 0, BIG, NULL, NULL, false, "steps of linear warm-up"},
    {"train.lr.schedule", KEY_WORD, AT(train.lr.schedule), "cosine", 0, 0, "cosine constant linear wsd inverse-sqrt", NULL, false, "after the warm-up; wsd: constant, then a linear fall"},
    {"train.lr.decay", KEY_REAL, AT(train.lr.decay), "0.2", 0, 1, NULL, NULL, false, "share of the steps, at the end, in which wsd falls"},
    {"train.lr.scale", KEY_WORD, AT(train.lr.scale), "none", 0, 0, "none linear sqrt", NULL, false, "learning rate grows with train.batch / reference_batch"},
    {"train.lr.reference_batch", KEY_U32, AT(train.lr.reference_batch), "0", 0, 16777216, NULL, NULL, false, "the batch that peak and min were chosen for; with scale"},
    {"train.sample.tokens", KEY_U32, AT(train.sample.tokens), "0", 0, 400, NULL, NULL, false, "tokens that the trained model says at the end"},
    {"train.sample.prompt", KEY_STRING, AT(train.sample.prompt), "\"\"", 0, 0, NULL, NULL, false, "what it goes on from: text; with shards, ids and blanks"},
    {"train.sample.temperature", KEY_REAL, AT(train.sample.temperature), "0", 0, 100, NULL, NULL, false, "of the draw, which train.seed fixes; 0: the likeliest token"},

    {"data.kind", KEY_WORD, AT(data.kind), "text", 0, 0, "text shards", "megatron", true, "text, or shards: token files as llm.c writes them, of uint16 or uint32"},
    {"data.files", KEY_STRINGS, AT(data.files), "!", 0, 0, NULL, NULL, false, "globs, on the hosts"},
    {"data.tokenizer", KEY_WORD, AT(data.tokenizer), "bytes", 0, 0, "bytes", "bpe", true, "of text"},
    {"data.validation.files", KEY_STRINGS, AT(data.validation.files), "[]", 0, 0, NULL, NULL, false, "globs; taken out of training"},
    {"data.validation.every", KEY_U32, AT(data.validation.every), "100", 0, BIG, NULL, NULL, false, "steps between validations; 0: at the end only"},

    {"checkpoint.dir", KEY_STRING, AT(checkpoint.dir), "ckpt", 0, 0, NULL, NULL, false, "on the hosts"},
    {"checkpoint.every", KEY_U32, AT(checkpoint.every), "100", 0, BIG, NULL, NULL, false, "steps; 0: at the end and on a stop only"},
    {"checkpoint.keep", KEY_U32, AT(checkpoint.keep), "3", 1, 1000000, NULL, NULL, false, "newest ones kept"},
    {"checkpoint.shared", KEY_BOOL, AT(checkpoint.shared), "true", 0, 0, NULL, NULL, false, "all hosts see the same dir"},

    {"restart.max", KEY_U32, AT(restart.max), "5", 0, 1000, NULL, NULL, false, "restarts within the window"},
    {"restart.window", KEY_DURATION, AT(restart.window_ns), "1h", 1, 1e8, NULL, NULL, false, "the window"},
    {"restart.backoff", KEY_DURATION, AT(restart.backoff_ns), "2s", 0, 3600, NULL, NULL, false, "wait before the second restart; doubles"},
    {"restart.hang_timeout", KEY_DURATION, AT(restart.hang_timeout_ns), "30s", 1, 86400, NULL, NULL, false, "a rank without progress hangs after"},

    {"monitor.log_every", KEY_U32, AT(monitor.log_every), "10", 1, BIG, NULL, NULL, false, "steps between progress lines where there is no terminal"},
};

static const struct {
    const char *name;
    const char *const set[12];
} presets[] = {
    {"gpt2-tiny", {"arch=gpt2", "layers=2", "hidden=64", "heads=4"}},
    {"gpt2-124m", {"arch=gpt2", "layers=12", "hidden=768", "heads=12", "vocab=50257", "max_positions=1024"}},
    {"gpt2-355m", {"arch=gpt2", "layers=24", "hidden=1024", "heads=16", "vocab=50257", "max_positions=1024"}},
    {"gpt2-774m", {"arch=gpt2", "layers=36", "hidden=1280", "heads=20", "vocab=50257", "max_positions=1024"}},
    {"gpt2-1558m", {"arch=gpt2", "layers=48", "hidden=1600", "heads=25", "vocab=50257", "max_positions=1024"}},
    {"llama-tiny", {"arch=llama", "layers=2", "hidden=64", "heads=4", "kv_heads=2", "ffn=192"}},
    {"llama-1.2b", {"arch=llama", "layers=16", "hidden=2048", "heads=32", "kv_heads=8", "ffn=8192", "vocab=128256", "tied=true", "rope_theta=500000"}},
    {"llama-3.2b", {"arch=llama", "layers=28", "hidden=3072", "heads=24", "kv_heads=8", "ffn=8192", "vocab=128256", "tied=true", "rope_theta=500000"}},
    {"llama-8b", {"arch=llama", "layers=32", "hidden=4096", "heads=32", "kv_heads=8", "ffn=14336", "vocab=128256", "rope_theta=500000"}},
};
/* clang-format on */

const struct spec_key *spec_keys(size_t *ret_n)
{
    *ret_n = sizeof keys / sizeof *keys;
    return keys;
}

const char *const *spec_preset(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(presets[i].name, name) == 0)
            return presets[i].set;
    return NULL;
}

const char *spec_preset_names(void)
{
    return "gpt2-tiny gpt2-124m gpt2-355m gpt2-774m gpt2-1558m "
           "llama-tiny llama-1.2b llama-3.2b llama-8b";
}
