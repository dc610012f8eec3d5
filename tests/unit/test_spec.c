/* Specs that are right: defaults, presets, --set, the resolved text, resume, host paths; and
 * texts that are no specs at all.  The words of errors are in test_spec_golden. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/spec/spec.h"
#include "common/spec/spec_keys.h"
#include "common/spec/yaml.h"

enum { TEXT_MAX = 2 << 20 };

#define MINIMAL                                   \
    "name: a\n"                                   \
    "model: {layers: 2, hidden: 64, heads: 4}\n"  \
    "train: {steps: 10, batch: 8, seq_len: 32}\n" \
    "data: {files: [a.txt]}\n"
#define SETS(...) (char *[]){__VA_ARGS__}, sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)

/* The report of a failure goes to the test's output. */
static struct spec *parse(const char *text, char *const *sets, size_t n_sets)
{
    AUTO_BUF struct buf report = BUF(TEXT_MAX);
    struct err e;
    struct spec *s =
        spec_parse("/jobs/a/cluster.yaml", text, strlen(text), sets, n_sets, &report, &e);
    if (!s)
        print_error("%s\n%s", text, buf_str(&report));
    return s;
}

static size_t errors_of(const char *text, size_t len)
{
    AUTO_BUF struct buf report = BUF(TEXT_MAX);
    struct err e = {0};
    size_t n = 0;
    AUTO(spec) struct spec *s = spec_parse("x.yaml", text, len, NULL, 0, &report, &e);
    if (s)
        return 0;
    assert_int_equal(e.kind, ERR_SPEC);
    assert_int_equal(sscanf(e.text, "x.yaml: %zu error", &n), 1);
    assert_true(report.len > 0 && !report.full);
    return n;
}

static char *yaml_of(const struct spec *s)
{
    struct buf b = BUF(YAML_TEXT_MAX);
    assert_int_equal(spec_to_yaml(s, &b), 0);
    return buf_take(&b);
}

static bool same_lists(char *const *a, char *const *b)
{
    size_t i = 0;
    for (; a && b && a[i] && b[i]; i++)
        if (strcmp(a[i], b[i]) != 0)
            return false;
    return (!a || !a[i]) && (!b || !b[i]);
}

static bool same_field(const struct spec *a, const struct spec *b, const struct spec_key *k)
{
    const char *x = (const char *)a + k->offset, *y = (const char *)b + k->offset;
    switch (k->kind) {
    case KEY_STRING:
        return strcmp(*(char *const *)x, *(char *const *)y) == 0;
    case KEY_U32:
    case KEY_WORD:
        return memcmp(x, y, sizeof(uint32_t)) == 0;
    case KEY_U64:
    case KEY_REAL:
    case KEY_DURATION:
        return memcmp(x, y, 8) == 0;
    case KEY_PAIR:
        return memcmp(x, y, 16) == 0;
    case KEY_BOOL:
        return *(const bool *)x == *(const bool *)y;
    case KEY_STRINGS:
    case KEY_ENV:
        return same_lists(*(char **const *)x, *(char **const *)y);
    case KEY_COUNTS:
        return a->parallel.n_stages == b->parallel.n_stages &&
               !a->parallel.stages == !b->parallel.stages &&
               (!a->parallel.stages ||
                memcmp(a->parallel.stages, b->parallel.stages,
                       a->parallel.n_stages * sizeof *a->parallel.stages) == 0);
    case KEY_NODES:
        for (size_t i = 0; i < a->cluster.n_nodes && i < b->cluster.n_nodes; i++)
            if (strcmp(a->cluster.nodes[i].host, b->cluster.nodes[i].host) != 0 ||
                a->cluster.nodes[i].slots != b->cluster.nodes[i].slots)
                return false;
        return a->cluster.n_nodes == b->cluster.n_nodes;
    }
    return false;
}

static void assert_same(const struct spec *a, const struct spec *b)
{
    size_t n;
    const struct spec_key *keys = spec_keys(&n);
    for (size_t i = 0; i < n; i++)
        if (!same_field(a, b, &keys[i]))
            fail_msg("%s differs", keys[i].path);
}

static void test_defaults(void **state)
{
    AUTO(spec) struct spec *s = parse(MINIMAL, NULL, 0);
    (void)state;
    assert_non_null(s);
    assert_string_equal(s->path, "/jobs/a/cluster.yaml");
    assert_string_equal(s->cluster.workdir, "/jobs/a");
    assert_int_equal(s->cluster.n_nodes, 1);
    assert_string_equal(s->cluster.nodes[0].host, "localhost");
    assert_int_equal(s->cluster.nodes[0].slots, 0);
    assert_true(s->cluster.timeouts.orphan_ns == 120 * NS_PER_S);
    assert_true(s->job.grace_ns == 30 * NS_PER_S);
    assert_int_equal(s->model.arch, ARCH_LLAMA);
    assert_int_equal(s->model.kv_heads, 4);
    assert_int_equal(s->model.ffn, 192); /* 8/3 of 64 is 170.7, in steps of 64 */
    assert_int_equal(s->model.max_positions, 32);
    assert_int_equal(s->model.vocab, 257);
    assert_false(s->model.tied);
    assert_int_equal(s->parallel.schedule, SCHEDULE_1F1B);
    assert_null(s->parallel.stages);
    assert_true(s->train.optimizer.beta1 == 0.9 && s->train.optimizer.beta2 == 0.95);
    assert_true(s->train.clip == 1.0 && s->train.lr.peak == 3e-4);
    assert_string_equal(s->data.files[0], "a.txt");
    assert_null(s->data.files[1]);
    assert_true(s->checkpoint.shared);
    assert_true(s->restart.window_ns == 3600 * NS_PER_S);
    assert_int_equal(spec_world(s), 1);
    assert_int_equal(spec_accumulation(s), 8);
}

/* What the repository ships is right, and as its names say. */
static void test_configs(void **state)
{
    static const char *const paths[] = {"configs/local.yaml", "configs/local-1.yaml",
                                        "configs/gpt2.yaml"};
    static const uint32_t worlds[] = {8, 1, 4};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        AUTO_BUF struct buf report = BUF(TEXT_MAX);
        struct err e;
        AUTO(spec) struct spec *s = spec_load(paths[i], NULL, 0, &report, &e);
        assert_string_equal(buf_str(&report), "");
        assert_non_null(s);
        assert_int_equal(spec_world(s), worlds[i]);
        assert_true(s->cluster.workdir[0] == '/');
    }
}

static void test_presets(void **state)
{
    (void)state;
    AUTO(spec)
    struct spec *s = parse("name: a\nmodel: {preset: gpt2-124m, layers: 3}\n"
                           "train: {steps: 1, batch: 1, seq_len: 64}\n"
                           "data: {files: a}\n",
                           NULL, 0);
    assert_non_null(s);
    assert_int_equal(s->model.arch, ARCH_GPT2);
    assert_int_equal(s->model.layers, 3); /* given beats preset */
    assert_int_equal(s->model.hidden, 768);
    assert_int_equal(s->model.ffn, 3072);
    assert_int_equal(s->model.vocab, 50257);
    assert_int_equal(s->model.max_positions, 1024);
    assert_true(s->model.tied);
    AUTO_FREE char *names = xstrdup(spec_preset_names());
    for (char *save, *p = strtok_r(names, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
        AUTO_FREE char *set =
            xasprintf("model={preset: %s, layers: ~, hidden: ~, heads: ~}", p);
        AUTO(spec) struct spec *t = parse(MINIMAL, SETS(set));
        assert_non_null(t);
        assert_string_equal(t->model.preset, p);
    }
}

static void test_sets(void **state)
{
    (void)state;
    AUTO(spec)
    struct spec *t = parse(
        MINIMAL "cluster: {setup: [a, b], env: {A: x}, interface: lo, timeouts: {lost: 9s}}\n"
                "parallel: {stages: [1, 1], pipeline: 2}\nrestart: {max: 1, backoff: 7s}\n",
        SETS("train.steps=20", "train.steps=30", "cluster.setup=[c]",
             "cluster.env={B: \"1=2\", C: }",
             "cluster.interface=", "cluster.timeouts.lost=null",
             "parallel={stages: ~, data: 2}", "restart={max: 2}", "name=\"b\"",
             "train.lr.peak=1e-2", "cluster.nodes=[localhost, {host: localhost, slots: 4}]"));
    assert_non_null(t);
    assert_int_equal(t->train.steps, 30);
    assert_string_equal(t->cluster.setup[0], "c");
    assert_null(t->cluster.setup[1]);
    assert_string_equal(t->cluster.env[0], "B=1=2");
    assert_string_equal(t->cluster.env[1], "C=");
    assert_string_equal(t->cluster.interface, "auto");
    assert_true(t->cluster.timeouts.lost_ns == 8 * NS_PER_S);
    assert_null(t->parallel.stages);
    assert_int_equal(t->parallel.n_stages, 0);
    assert_int_equal(t->parallel.data, 2);
    assert_int_equal(t->parallel.pipeline, 2); /* a section's other keys stay */
    assert_int_equal(t->restart.max, 2);
    assert_true(t->restart.backoff_ns == 7 * NS_PER_S);
    assert_string_equal(t->name, "b");
    assert_int_equal(t->cluster.n_nodes, 2);
    assert_int_equal(t->cluster.nodes[1].slots, 4);
}

/* K/V heads may be shared out over the tensor group, or repeated in it. */
static void test_kv_heads(void **state)
{
    (void)state;
    for (unsigned kv = 1; kv <= 16; kv *= 2)
        for (unsigned t = 1; t <= 16; t *= 2) {
            AUTO_FREE char *set =
                xasprintf("model={heads: 16, hidden: 128, ffn: 256, kv_heads: %u}", kv);
            AUTO_FREE char *tensor = xasprintf("parallel.tensor=%u", t);
            AUTO(spec) struct spec *s = parse(MINIMAL, SETS(set, tensor));
            assert_non_null(s);
        }
}

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    return *x ^= *x << 17;
}

static uint32_t below(uint64_t *x, uint32_t n)
{
    return (uint32_t)(next(x) >> 33) % n;
}

static const char *any_text(uint64_t *x)
{
    static const char *const texts[] = {
        "\"a b\"",
        "'it''s: #1'",
        "\"\\u0085\\u2028\\u2029\\ufeff\\ufffe\\uffff\"",
        "\"tab\\t nl\\n bell\\a del\\x7f nbsp\\u00a0 c1\\x9b\"",
        "\"\\\"quoted\\\" back\\\\slash\"",
        "gr\xc3\xb6\xc3\x9f"
        "e",
        "\"\\U0001f600 \xf0\x9f\x98\x80 \xe2\x82\xac\"",
        "\" leading and trailing \"",
        "'- [x]'",
        "\"null\"",
        "123",
    };
    return texts[below(x, sizeof texts / sizeof *texts)];
}

/* A spec that is valid by construction. */
static void any_spec(uint64_t *x, struct buf *b)
{
    static const uint32_t counts[] = {1, 2, 4};
    uint32_t t = counts[below(x, 3)], p = counts[below(x, 3)], d = 1 + below(x, 3),
             kv = counts[below(x, 3)], heads = 4 * counts[below(x, 3)], micro = 1 + below(x, 4);
    bool gpt2 = below(x, 2);
    (void)buf_printf(b, "name: j%u\n", below(x, 1000));
    (void)buf_printf(b, "cluster:\n  setup: [%s, %s]\n", any_text(x), any_text(x));
    (void)buf_printf(b, "  env: {A_1: %s, _b: %s}\n", any_text(x), any_text(x));
    (void)buf_printf(b, "  interface: %s\n", any_text(x));
    (void)buf_printf(b, "  timeouts: {orphan: %s, lost: %uus, suspect: 500ms}\n",
                     below(x, 2) ? "never" : "90m", 1000001 + below(x, 1000000000));
    if (below(x, 2))
        (void)buf_printf(b, "  nodes: [localhost, {host: localhost, slots: %u}]\n",
                         64 + below(x, 64));
    (void)buf_printf(b, "job: {threads: %u, env: [PATH, 'A*'], grace: %ums}\n", 1 + below(x, 8),
                     100 + below(x, 99999));
    (void)buf_printf(b, "model: {arch: %s, layers: %u, hidden: %u, heads: %u, ffn: %u",
                     gpt2 ? "gpt2" : "llama", p * 2, heads * 8, heads, 4 * (1 + below(x, 99)));
    if (!gpt2)
        (void)buf_printf(b, ", kv_heads: %u, rope_theta: %.17g", kv,
                         1 + (double)next(x) / 1e15);
    if (below(x, 2))
        (void)buf_printf(b, ", tied: %s, norm_eps: %.17g", below(x, 2) ? "true" : "false",
                         ldexp((double)next(x), -66));
    (void)buf_printf(b, "}\nparallel: {tensor: %u, pipeline: %u, data: %u, sequence: %s", t, p,
                     d, below(x, 2) ? "true" : "false");
    if (p == 2 && below(x, 2))
        (void)buf_puts(b, ", stages: [1, 3]");
    (void)buf_printf(b, ", schedule: %s}\n", below(x, 2) ? "gpipe" : "1f1b");
    (void)buf_printf(b, "train:\n  steps: %u\n  batch: %u\n  micro_batch: %u\n  seq_len: %u\n",
                     1 + below(x, 1u << 30), d * micro * (1 + below(x, 9)), micro,
                     4 * (1 + below(x, 99)));
    (void)buf_printf(b, "  seed: %llu\n  clip: %.17g\n  optimizer: {betas: [%.17g, 0.999]}\n",
                     (unsigned long long)(next(x) >> 12), ldexp((double)next(x), -50),
                     ldexp((double)next(x), -65));
    (void)buf_printf(b, "data: {files: [%s], validation: {files: [%s], every: 0}}\n",
                     any_text(x), any_text(x));
    (void)buf_printf(b, "checkpoint: {dir: %s}\n", any_text(x));
}

static void test_round_trip(void **state)
{
    uint64_t x = 0x9e3779b97f4a7c15;
    (void)state;
    for (int i = 0; i < 400; i++) {
        AUTO_BUF struct buf text = BUF(TEXT_MAX);
        any_spec(&x, &text);
        AUTO(spec) struct spec *s = parse(buf_str(&text), NULL, 0);
        assert_non_null(s);
        AUTO_FREE char *first = yaml_of(s);
        AUTO(spec) struct spec *again = parse(first, NULL, 0);
        assert_non_null(again);
        AUTO_FREE char *second = yaml_of(again);
        assert_string_equal(first, second);
        assert_same(s, again);
    }
}

/* Every key is in the resolved text, so that nothing of a run rests on a later version's
 * defaults. */
static void test_yaml_is_whole(void **state)
{
    size_t n, lines = 0;
    const struct spec_key *keys = spec_keys(&n);
    AUTO(spec) struct spec *s = parse(MINIMAL, NULL, 0);
    (void)state;
    assert_non_null(s);
    AUTO_FREE char *text = yaml_of(s);
    int line, column;
    AUTO(ynode) struct ynode *root = ynode_parse(text, strlen(text), &line, &column, NULL);
    for (size_t i = 0; i < n; i++) {
        AUTO_FREE char *path = xstrdup(keys[i].path);
        const struct ynode *at = root;
        for (char *save, *p = strtok_r(path, ".", &save); p; p = strtok_r(NULL, ".", &save))
            at = ynode_get(at, p, NULL);
        assert_non_null(at);
        lines++;
    }
    assert_true(lines > 50);
    assert_non_null(strstr(text, "norm_eps: 1e-05\n")); /* no 1.0000000000000001e-05 */
}

static void test_resume(void **state)
{
    AUTO_BUF struct buf out = BUF(TEXT_MAX);
    (void)state;
    AUTO(spec) struct spec *was = parse(MINIMAL, NULL, 0);
    /* What may change on a resume. */
    AUTO(spec)
    struct spec *may =
        parse(MINIMAL, SETS("parallel={data: 2, tensor: 2, pipeline: 2}", "train.steps=99",
                            "train.micro_batch=2", "train.lr.peak=1", "cluster.slots=16",
                            "name=b", "checkpoint.every=7"));
    assert_int_equal(spec_resume_conflicts(was, may, &out), 0);
    assert_string_equal(buf_str(&out), "");
    /* What may not, named with both values. */
    AUTO(spec)
    struct spec *not = parse(
        MINIMAL, SETS("model.layers=3", "train={seed: 7, batch: 16}", "model.norm_eps=1e-6"));
    assert_int_equal(spec_resume_conflicts(was, not, &out), 4);
    assert_string_equal(buf_str(&out), "model.layers: was 2, is 3\n"
                                       "model.norm_eps: was 1e-05, is 1e-06\n"
                                       "train.batch: was 8, is 16\n"
                                       "train.seed: was 1, is 7\n");
}

static void test_host_paths(void **state)
{
    (void)state;
    assert_int_equal(setenv("HOME", "/home/u", 1), 0);
    AUTO(spec) struct spec *s = parse(MINIMAL, SETS("cluster.workdir=/w"));
    AUTO(spec) struct spec *home = parse(MINIMAL, SETS("cluster.workdir=~/w"));
    AUTO_FREE char *a = spec_host_path(s, "ckpt"), *b = spec_host_path(s, "/x/y"),
                   *c = spec_host_path(s, "~/z"), *d = spec_host_path(s, "~"),
                   *e = spec_host_path(home, "ckpt"), *f = spec_host_path(s, "~user/z");
    assert_string_equal(a, "/w/ckpt");
    assert_string_equal(b, "/x/y");
    assert_string_equal(c, "/home/u/z");
    assert_string_equal(d, "/home/u");
    assert_string_equal(e, "/home/u/w/ckpt");
    assert_string_equal(f, "/w/~user/z");
}

static void test_relative_path(void **state)
{
    AUTO_BUF struct buf report = BUF(TEXT_MAX);
    struct err e;
    (void)state;
    AUTO_FREE char *cwd = getcwd(NULL, 0), *want = xasprintf("%s/jobs", cwd);
    AUTO(spec)
    struct spec *s = spec_parse("jobs/x.yaml", MINIMAL, strlen(MINIMAL), NULL, 0, &report, &e);
    assert_non_null(s);
    assert_string_equal(s->cluster.workdir, want);
}

/* Files that cannot be a spec: one line that says why, and ERR_SPEC. */
static void refuse_file(const char *path, const char *why)
{
    AUTO_BUF struct buf report = BUF(TEXT_MAX);
    struct err e = {0};
    assert_null(spec_load(path, NULL, 0, &report, &e));
    assert_int_equal(e.kind, ERR_SPEC);
    if (report.len) /* it was read */
        assert_non_null(strstr(e.text, "1 error"));
    const char *said = report.len ? buf_str(&report) : e.text;
    if (!strstr(said, why))
        fail_msg("\"%s\" lacks \"%s\"", said, why);
}

static void test_no_specs(void **state)
{
    char dir[] = "/tmp/test_spec.XXXXXX";
    struct err e;
    (void)state;
    assert_non_null(mkdtemp(dir));
    AUTO_FREE char *big = xasprintf("%s/big.yaml", dir), *none = xasprintf("%s/none", dir),
                   *nul = xasprintf("%s/nul.yaml", dir), *line = xasprintf("%s/line.yaml", dir);
    AUTO_FREE char *text = xmalloc(10 << 20);
    memset(text, '#', 10 << 20);
    assert_int_equal(io_replace_file(big, text, 10 << 20, &e), 0);
    memset(text, 'a', 100000);
    memcpy(text, "name: ", 6);
    assert_int_equal(io_replace_file(line, text, 100000, &e), 0);
    memcpy(text, MINIMAL "\0", sizeof MINIMAL);
    assert_int_equal(io_replace_file(nul, text, sizeof MINIMAL, &e), 0);
    refuse_file(dir, "not a regular file");
    refuse_file("/dev/null", "not a regular file");
    refuse_file(none, "No such file");
    refuse_file(big, "larger than the limit of 1048576 bytes");
    refuse_file(nul, "a NUL byte: this is not a text file");
    refuse_file(line, "line.yaml:1:7: a value is too long");
    assert_int_equal(io_remove_tree(dir, &e), 0);
}

/* 1 MiB of what costs a careless reader most; each must end soon (the test has a time limit).
 */
static void test_bombs(void **state)
{
    AUTO_BUF struct buf keys = BUF(YAML_TEXT_MAX), sections = BUF(YAML_TEXT_MAX);
    AUTO_FREE char *text = xmalloc(YAML_TEXT_MAX);
    (void)state;
    memset(text, '[', YAML_TEXT_MAX);
    assert_int_equal(errors_of(text, YAML_TEXT_MAX), 1);
    memset(text, '{', YAML_TEXT_MAX);
    assert_int_equal(errors_of(text, YAML_TEXT_MAX), 1);
    for (size_t i = 0; i < YAML_TEXT_MAX; i++)
        text[i] = "? "[i % 2];
    assert_int_equal(errors_of(text, YAML_TEXT_MAX), 1);
    for (size_t i = 0; i < YAML_TEXT_MAX; i++)
        text[i] = "- "[i % 2];
    assert_int_equal(errors_of(text, YAML_TEXT_MAX), 1);
    for (size_t i = 0; i < YAML_TEXT_MAX; i++)
        text[i] = "a,"[i % 2];
    memcpy(text, "x: [", 4);
    assert_int_equal(errors_of(text, YAML_TEXT_MAX), 1);
    for (int i = 0; buf_printf(&keys, "k%d:\n", i) == 0; i++)
        ;
    assert_int_equal(errors_of(keys.data, keys.len), 1);
    /* As many errors as fit: their number is said. */
    static const char *const names[] = {"cluster", "job", "model", "parallel", "train", "data"};
    for (int k = 0; k < 6; k++) {
        (void)buf_printf(&sections, "%s:\n", names[k]);
        for (int i = 0; i < YAML_KEYS_MAX; i++)
            (void)buf_printf(&sections, "  zzzzzzzzzzzz%d: 1\n", i);
    }
    assert_false(sections.full);
    assert_true(errors_of(sections.data, sections.len) >= 6 * YAML_KEYS_MAX);
    /* Small in the file, too large once written out. */
    AUTO_BUF struct buf wide = BUF(YAML_TEXT_MAX);
    (void)buf_puts(&wide, MINIMAL "cluster: {setup: [");
    for (int i = 0; i < 900; i++) {
        (void)buf_puts(&wide, i ? ", \"" : "\"");
        for (int k = 0; k < 200; k++)
            (void)buf_puts(&wide, "\\e");
        (void)buf_puts(&wide, "\"");
    }
    (void)buf_puts(&wide, "]}\n");
    assert_false(wide.full);
    assert_int_equal(errors_of(wide.data, wide.len), 1);
}

/* Broken in one or a few places, a spec is read or refused, and nothing leaks or is overrun. */
static void test_mutations(void **state)
{
    uint64_t x = 12345;
    size_t read = 0;
    (void)state;
    for (int i = 0; i < 3000; i++) {
        AUTO_BUF struct buf text = BUF(TEXT_MAX);
        any_spec(&x, &text);
        for (uint32_t k = below(&x, 4); k > 0; k--) {
            uint32_t at = below(&x, (uint32_t)text.len);
            switch (below(&x, 3)) {
            case 0:
                text.data[at] = (char)next(&x);
                break;
            case 1:
                text.data[at] = "[]{}:,-\"'&*!|>%@#\n\t ?"[below(&x, 21)];
                break;
            default:
                text.len = at + 1;
            }
        }
        read += errors_of(text.data, text.len) == 0;
    }
    assert_true(read > 500 && read < 3000);
}

static void test_line_ends(void **state)
{
    (void)state;
    AUTO_BUF struct buf crlf = BUF(TEXT_MAX), bom = BUF(TEXT_MAX);
    for (const char *p = MINIMAL; *p; p++)
        (void)buf_add(&crlf, *p == '\n' ? "\r\n" : p, *p == '\n' ? 2 : 1);
    (void)buf_puts(&bom, "\xef\xbb\xbf" MINIMAL);
    AUTO(spec) struct spec *a = parse(MINIMAL, NULL, 0);
    AUTO(spec) struct spec *b = parse(buf_str(&crlf), NULL, 0);
    AUTO(spec) struct spec *c = parse(buf_str(&bom), NULL, 0);
    assert_true(a && b && c);
    assert_same(a, b);
    assert_same(a, c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),      cmocka_unit_test(test_configs),
        cmocka_unit_test(test_presets),       cmocka_unit_test(test_sets),
        cmocka_unit_test(test_kv_heads),      cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_yaml_is_whole), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_host_paths),    cmocka_unit_test(test_relative_path),
        cmocka_unit_test(test_no_specs),      cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_mutations),     cmocka_unit_test(test_line_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
