/* Checkpoints, from arenas to files and back: every rank of a layout saves through
 * ckpt_snapshot, the ranks of another load, and each element must have the bits that its
 * logical name, kind and place say.  Then checkpoints with faults: refused with a reason, an
 * older one is used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/shape/params.h"
#include "common/spec/spec.h"
#include "worker/ckpt/boxes.h"
#include "worker/ckpt/ckpt.h"
#include "worker/ckpt/manifest.h"
#include "worker/comm.h"
#include "worker/link.h"

enum { WORLD_MAX = 36, TEXT_MAX = 1 << 20, PAIRS = 32 };
#define UNTOUCHED 0xdeadbeefu /* of arena elements that no piece holds */

static const char *const models[] = {
    "{arch: gpt2, layers: 3, hidden: 32, heads: 4, ffn: 64, vocab: 259, max_positions: 20}",
    "{arch: llama, layers: 3, hidden: 32, heads: 4, kv_heads: 2, ffn: 48, vocab: 259}",
    "{arch: llama, layers: 3, hidden: 32, heads: 4, kv_heads: 1, ffn: 48, vocab: 259, "
    "tied: true}",
};
enum { MODELS = sizeof models / sizeof *models };

struct layout {
    uint32_t data, tensor, pipeline;
};

/* A folder of checkpoints; ranks other than 0 save below it in folders of their own. */
static char dir[64];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/test_ckpt.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return io_remove_tree(dir, NULL);
}

static struct spec *spec_of(const char *model, struct layout l, const char *ckpt_dir)
{
    AUTO_BUF struct buf text = BUF(TEXT_MAX), report = BUF(TEXT_MAX);
    (void)buf_printf(&text,
                     "name: t\nmodel: %s\nparallel: {data: %u, tensor: %u, pipeline: %u}\n"
                     "train: {steps: 9, batch: 24, seq_len: 16}\ndata: {files: [x]}\n"
                     "checkpoint: {dir: %s}\n",
                     model, l.data, l.tensor, l.pipeline, ckpt_dir);
    struct spec *s = spec_parse("/x.yaml", text.data, text.len, NULL, 0, &report, NULL);
    if (!s)
        fail_msg("%s", buf_str(&report));
    return s;
}

/* The ranks save one after the other, the last first: what they send waits for rank 0. */
struct post {
    struct comm c;
    void *from[WORLD_MAX];
    size_t bytes[WORLD_MAX];
};

static int post_send(struct comm *c, const void *buf, size_t n, enum dtype t, uint32_t to,
                     struct dev_stream *s, struct err *e)
{
    struct post *p = (struct post *)c;
    (void)s, (void)e;
    assert_int_equal(to, 0);
    p->bytes[c->rank] = n * dtype_bytes(t);
    p->from[c->rank] = xmalloc(p->bytes[c->rank]);
    memcpy(p->from[c->rank], buf, p->bytes[c->rank]);
    return 0;
}

static int post_recv(struct comm *c, void *buf, size_t n, enum dtype t, uint32_t from,
                     struct dev_stream *s, struct err *e)
{
    struct post *p = (struct post *)c;
    (void)s, (void)e;
    assert_int_equal(n * dtype_bytes(t), p->bytes[from]);
    memcpy(buf, p->from[from], p->bytes[from]);
    free(p->from[from]);
    return 0;
}

/* Only rank 0 flushes here, and speaks for all. */
static int post_all_reduce(struct comm *c, void *buf, size_t n, enum dtype t, enum comm_red r,
                           struct dev_stream *s, struct err *e)
{
    (void)c, (void)buf, (void)n, (void)t, (void)r, (void)s, (void)e;
    return 0;
}

static const struct comm_ops post_ops = {
    .name = "post", .send = post_send, .recv = post_recv, .all_reduce = post_all_reduce};

/* One rank: its table and arenas. */
struct rank {
    struct params *params;
    uint32_t *arena[CKPT_KIND_COUNT];
    struct ckpt_params p;
};

static void rank_init(struct rank *r, const struct spec *s, uint32_t rank)
{
    struct topo t = topo_of_spec(s);
    struct coord at = topo_coord(&t, rank);
    r->params = params_new(s, at);
    size_t n = (size_t)r->params->n_elements;
    for (int k = 0; k < CKPT_KIND_COUNT; k++) {
        r->arena[k] = xmalloc(n * sizeof(uint32_t));
        for (size_t i = 0; i < n; i++)
            r->arena[k][i] = UNTOUCHED;
    }
    r->p = (struct ckpt_params){
        .spec = s,
        .params = r->params,
        .rank = rank,
        .generation = 1,
        .dp = at.dp,
        .tensors = {(float *)r->arena[0], (float *)r->arena[1], (float *)r->arena[2]}};
}

static void rank_done(struct rank *r)
{
    params_free(r->params);
    for (int k = 0; k < CKPT_KIND_COUNT; k++)
        free(r->arena[k]);
}

/* The bits of an element of a logical tensor, after `step` steps: any bits, NaNs included. */
static uint32_t bits_of(const struct params *p, uint32_t param, int kind, int64_t row,
                        int64_t col, uint64_t step)
{
    const struct param *m = &p->params[param];
    struct {
        uint64_t name, element, step, kind;
    } key = {XXH3_64bits(m->name, strlen(m->name)), (uint64_t)(row * m->shape[1] + col), step,
             (uint64_t)kind};
    return (uint32_t)XXH3_64bits(&key, sizeof key);
}

/* Calls with the place of every element that the rank holds of logical tensors. */
#define EACH_ELEMENT(r, kind, q, row, col, at)                                                \
    for (int kind = 0; kind < CKPT_KIND_COUNT; kind++)                                        \
        for (const struct piece *q = (r)->params->pieces;                                     \
             q < (r)->params->pieces + (r)->params->n_pieces; q++)                            \
            for (int64_t row = 0; row < q->size[0]; row++)                                    \
                for (int64_t col = 0, at = (r)->params->stores[q->store].offset + q->offset + \
                                           row * q->stride;                                   \
                     col < q->size[1]; col++, at++)

static void rank_fill(struct rank *r, uint64_t step)
{
    EACH_ELEMENT(r, kind, q, row, col, at)
    r->arena[kind][at] =
        bits_of(r->params, q->param, kind, q->start[0] + row, q->start[1] + col, step);
}

/* All that the rank holds is right, and all else was left alone. */
static void rank_verify(struct rank *r, uint64_t step)
{
    EACH_ELEMENT(r, kind, q, row, col, at)
    {
        if (r->arena[kind][at] !=
            bits_of(r->params, q->param, kind, q->start[0] + row, q->start[1] + col, step))
            fail_msg("%s, kind %d, element %lld,%lld is wrong",
                     r->params->params[q->param].name, kind, (long long)(q->start[0] + row),
                     (long long)(q->start[1] + col));
        r->arena[kind][at] = UNTOUCHED;
    }
    for (int k = 0; k < CKPT_KIND_COUNT; k++)
        for (int64_t i = 0; i < r->params->n_elements; i++)
            assert_int_equal(r->arena[k][i], UNTOUCHED);
}

static struct ckpt_state state_of(uint64_t step)
{
    return (struct ckpt_state){.step = step,
                               .consumed_samples = 24 * step,
                               .optimizer_t = step - 1,
                               .loss_scale = 0.1,
                               .data_digest = 0xfedcba9876543210};
}

static char *step_dir(uint64_t step)
{
    return xasprintf("%s/step-%08llu-g1", dir, (unsigned long long)step);
}

/* What rank's agent wrote, to where the shared folder of all agents would have it. */
static void move_shard(uint64_t step, uint32_t rank)
{
    AUTO_FREE char *to = step_dir(step);
    AUTO_FREE char *from = xasprintf("%s/rank%u/step-%08llu-g1.tmp/rank-00000.safetensors", dir,
                                     rank, (unsigned long long)step);
    AUTO_FREE char *file = xasprintf("%s/rank-%05u.safetensors", to, rank);
    AUTO_FREE char *own = xasprintf("%s/rank%u", dir, rank);
    if (rank)
        assert_int_equal(rename(from, file), 0);
    if (rank)
        assert_int_equal(io_remove_tree(own, NULL), 0);
}

/* One rank's ckpt_snapshot, with an agent of its own that writes to its own folder. */
static void save_rank(struct post *post, const char *model, struct layout l, uint32_t rank,
                      uint64_t step)
{
    AUTO_FREE char *own = rank ? xasprintf("%s/rank%u", dir, rank) : xstrdup(dir);
    AUTO(spec) struct spec *s = spec_of(model, l, own);
    AUTO_BUF struct buf yaml = BUF(TEXT_MAX);
    struct link_identity id;
    struct err e = {0};
    struct rank r;
    struct ckpt_state st = state_of(step);
    assert_int_equal(spec_to_yaml(s, &yaml), 0);
    AUTO(link) struct link *link = link_open_solo(buf_str(&yaml), &id, &e);
    if (!link)
        fail_msg("%s", e.text);
    rank_init(&r, s, rank);
    rank_fill(&r, step);
    post->c.rank = rank;
    r.p.world = post->c.size > 1 ? &post->c : NULL;
    r.p.link = link;
    AUTO(ckpt) struct ckpt *c = ckpt_new(&r.p, &e);
    if (ckpt_snapshot(c, &st, &e) < 0)
        fail_msg("%s", e.text);
    if (rank == 0 && ckpt_flush(c, clock_now_ns() + 60 * NS_PER_S, &e) < 0)
        fail_msg("%s", e.text);
    rank_done(&r);
}

static void save(const char *model, struct layout l, uint64_t step)
{
    uint32_t world = l.data * l.tensor * l.pipeline;
    struct post post = {.c = {.ops = &post_ops, .size = world}};
    assert_true(world <= WORLD_MAX);
    for (uint32_t r = world; r-- > 0;)
        save_rank(&post, model, l, r, step);
    /* Rank 0's solo agent counts generations by what lies there: take its name for g1. */
    AUTO_FREE char *want = step_dir(step);
    for (int g = 2; g < 9 && access(want, F_OK) != 0; g++) {
        AUTO_FREE char *is = xasprintf("%s/step-%08llu-g%d", dir, (unsigned long long)step, g);
        (void)rename(is, want);
    }
    for (uint32_t r = 0; r < world; r++)
        move_shard(step, r);
}

/* Loads rank `rank` of the layout, which finds by itself what lies in `dir`. */
static int load_rank(const char *model, struct layout l, uint32_t rank, uint64_t verify_step,
                     bool *ret_differs, struct err *e)
{
    AUTO(spec) struct spec *s = spec_of(model, l, dir);
    AUTO_BUF struct buf yaml = BUF(TEXT_MAX);
    struct link_identity id;
    struct rank r;
    struct ckpt_state st = {0};
    assert_int_equal(spec_to_yaml(s, &yaml), 0);
    AUTO(link) struct link *link = link_open_solo(buf_str(&yaml), &id, e);
    rank_init(&r, s, rank);
    r.p.rank = 0; /* the one that looks into the folder */
    r.p.link = link;
    AUTO(ckpt) struct ckpt *c = ckpt_new(&r.p, e);
    int got = ckpt_load(c, &st, e);
    if (got == 1) {
        struct ckpt_state want = state_of(verify_step);
        assert_int_equal(st.step, want.step);
        assert_int_equal(st.consumed_samples, want.consumed_samples);
        assert_int_equal(st.optimizer_t, want.optimizer_t);
        assert_true(st.loss_scale == want.loss_scale);
        assert_true(st.data_digest == want.data_digest);
        rank_verify(&r, verify_step);
        *ret_differs = ckpt_layout_differs(c);
    }
    rank_done(&r);
    return got;
}

static void load_all(const char *model, struct layout l, uint64_t step, bool want_differs)
{
    for (uint32_t rank = 0; rank < l.data * l.tensor * l.pipeline; rank++) {
        struct err e = {0};
        bool differs = false;
        if (load_rank(model, l, rank, step, &differs, &e) != 1)
            fail_msg("%s", e.text);
        assert_int_equal(differs, want_differs);
    }
}

/* Every element of every logical tensor is in exactly one box of the manifest. */
static void check_cover(const char *model, uint64_t step)
{
    AUTO_FREE char *at = step_dir(step);
    AUTO(spec) struct spec *s = spec_of(model, (struct layout){1, 1, 1}, dir);
    AUTO(params) struct params *p = params_new(s, (struct coord){0});
    struct err e;
    AUTO(manifest) struct manifest *m = manifest_read(at, &e);
    assert_non_null(m);
    for (uint32_t i = 0; i < p->n_params; i++)
        for (enum ckpt_kind k = 0; k < CKPT_KIND_COUNT; k++) {
            const int64_t *shape = p->params[i].shape;
            AUTO_FREE uint8_t *seen = xcalloc((size_t)(shape[0] * shape[1]), 1);
            char name[128];
            size_t n;
            boxes_tensor_name(p, i, k, name);
            const struct manifest_box *b = manifest_tensor(m, name, &n, &e);
            assert_non_null(b);
            for (size_t x = 0; x < n; x++)
                for (int64_t r = 0; r < b[x].size[0]; r++)
                    for (int64_t c = 0; c < b[x].size[1]; c++)
                        seen[(b[x].start[0] + r) * shape[1] + b[x].start[1] + c]++;
            for (int64_t x = 0; x < shape[0] * shape[1]; x++)
                assert_int_equal(seen[x], 1);
        }
}

static uint32_t below(uint64_t *x, uint32_t n)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return (uint32_t)(*x >> 33) % n;
}

static struct layout any_layout(uint64_t *x)
{
    static const uint32_t tensors[] = {1, 2, 4};
    return (struct layout){1 + below(x, 3), tensors[below(x, 3)], 1 + below(x, 3)};
}

static void test_any_to_any(void **state)
{
    uint64_t x = 0x123456789abcdef;
    struct err e;
    (void)state;
    for (uint32_t i = 0; i < PAIRS; i++) {
        const char *model = models[i % MODELS];
        struct layout from = any_layout(&x), to = any_layout(&x);
        if (i < MODELS)
            to = from;
        save(model, from, i + 1);
        check_cover(model, i + 1);
        load_all(model, to, i + 1, memcmp(&from, &to, sizeof to) != 0);
        AUTO_FREE char *done = step_dir(i + 1);
        assert_int_equal(io_remove_tree(done, &e), 0);
    }
}

/* A file of rank 0's is a safetensors file: header, then each box where the header says. */
static void test_safetensors(void **state)
{
    AUTO_BUF struct buf b = BUF(64 << 20);
    AUTO_FREE char *at = step_dir(5), *path = xasprintf("%s/rank-00001.safetensors", at);
    struct err e;
    uint64_t len;
    size_t boxes = 0;
    (void)state;
    save(models[1], (struct layout){2, 2, 1}, 5);
    assert_int_equal(io_read_file(path, &b, &e), 0);
    memcpy(&len, b.data, 8);
    assert_int_equal(len % 8, 0);
    json_t *root = json_loadb(b.data + 8, len, 0, NULL), *v;
    const char *name;
    uint64_t end = 0;
    assert_non_null(root);
    json_object_foreach(root, name, v)
    {
        json_t *offsets = json_object_get(v, "data_offsets");
        if (!offsets)
            continue;
        assert_non_null(strchr(name, '@'));
        assert_string_equal(json_string_value(json_object_get(v, "dtype")), "F32");
        assert_int_equal(json_integer_value(json_array_get(offsets, 0)), end); /* no gaps */
        end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
        boxes++;
    }
    assert_true(boxes > 10);
    assert_int_equal(b.len, 8 + len + end);
    json_decref(root);
}

/* Nothing there, no folder, and folders that are no checkpoints: a fresh start. */
static void test_fresh(void **state)
{
    static const char *const others[] = {"step-00000004-g1.tmp", "step-x-g1", "lost+found",
                                         "step-00000003-g1-old"};
    struct layout one = {1, 1, 1};
    struct err e = {0};
    bool differs;
    (void)state;
    assert_int_equal(load_rank(models[0], one, 0, 0, &differs, &e), 0);
    for (size_t i = 0; i < 4; i++) {
        AUTO_FREE char *path = xasprintf("%s/%s", dir, others[i]);
        assert_int_equal(io_mkdirs(path, 0755, &e), 0);
    }
    assert_int_equal(load_rank(models[0], one, 0, 0, &differs, &e), 0);
    assert_int_equal(io_remove_tree(dir, &e), 0);
    assert_int_equal(load_rank(models[0], one, 0, 0, &differs, &e), 0);
}

/* A folder that cannot be made is known at the start, not when the first checkpoint is due. */
static void test_no_folder(void **state)
{
    struct layout one = {1, 1, 1};
    struct err e = {0};
    bool differs;
    (void)state;
    assert_int_equal(io_remove_tree(dir, &e), 0);
    assert_int_equal(symlink("/proc/none/of/these", dir), 0);
    assert_int_equal(load_rank(models[0], one, 0, 0, &differs, &e), -1);
    assert_int_equal(e.kind, ERR_STORAGE);
    assert_non_null(strstr(e.text, "checkpoint.dir"));
    assert_int_equal(unlink(dir), 0);
    assert_int_equal(mkdir(dir, 0700), 0);
}

/* Faults.  Each is done to the newest checkpoint at `at`. */
static void edit_file(const char *at, const char *name, off_t where, const void *p, size_t n)
{
    AUTO_FREE char *path = xasprintf("%s/%s", at, name);
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, p, n, where), n);
}

static void truncated(const char *at)
{
    struct stat st;
    AUTO_FREE char *path = xasprintf("%s/rank-00001.safetensors", at);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
}

static void flipped(const char *at)
{
    struct stat st;
    AUTO_FREE char *path = xasprintf("%s/rank-00000.safetensors", at);
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char c;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pread(fd, &c, 1, st.st_size - 1), 1);
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, st.st_size - 1), 1);
}

static void no_file(const char *at)
{
    AUTO_FREE char *path = xasprintf("%s/rank-00001.safetensors", at);
    assert_int_equal(unlink(path), 0);
}

static void long_header(const char *at)
{
    uint64_t len = UINT64_MAX - 3;
    edit_file(at, "rank-00000.safetensors", 0, &len, sizeof len);
}

static void shifted_header(const char *at)
{
    uint64_t len = 8;
    edit_file(at, "rank-00000.safetensors", 0, &len, sizeof len);
}

static void no_manifest(const char *at)
{
    AUTO_FREE char *path = xasprintf("%s/manifest.json", at);
    assert_int_equal(unlink(path), 0);
}

static void torn_manifest(const char *at)
{
    AUTO_FREE char *path = xasprintf("%s/manifest.json", at);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size / 2), 0);
}

static void empty_manifest(const char *at)
{
    AUTO_FREE char *path = xasprintf("%s/manifest.json", at);
    assert_int_equal(truncate(path, 0), 0);
}

static json_t *open_manifest(const char *at)
{
    AUTO_FREE char *path = xasprintf("%s/manifest.json", at);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    return root;
}

static void close_manifest(const char *at, json_t *root)
{
    AUTO_FREE char *path = xasprintf("%s/manifest.json", at);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

static const char tensor[] = "model.layers.1.self_attn.q_proj.weight.exp_avg_sq";

static json_t *boxes_in(json_t *root)
{
    json_t *v = json_object_get(json_object_get(root, "tensors"), tensor);
    v = json_object_get(v, "boxes");
    assert_int_equal(json_array_size(v), 2);
    return v;
}

static void no_tensor(const char *at)
{
    json_t *root = open_manifest(at);
    assert_int_equal(json_object_del(json_object_get(root, "tensors"), tensor), 0);
    close_manifest(at, root);
}

static void no_box(const char *at)
{
    json_t *root = open_manifest(at);
    assert_int_equal(json_array_remove(boxes_in(root), 1), 0);
    close_manifest(at, root);
}

/* As many elements as there should be, but some twice and some never. */
static void box_twice(const char *at)
{
    json_t *root = open_manifest(at), *boxes = boxes_in(root);
    assert_int_equal(json_array_set(boxes, 1, json_array_get(boxes, 0)), 0);
    close_manifest(at, root);
}

static void set_in_box(const char *at, const char *key, json_t *v)
{
    json_t *root = open_manifest(at);
    assert_int_equal(json_object_set_new(json_array_get(boxes_in(root), 0), key, v), 0);
    close_manifest(at, root);
}

static void box_beyond(const char *at)
{
    set_in_box(at, "offset", json_integer(INT64_MAX));
}

static void box_huge(const char *at)
{
    set_in_box(at, "shape", json_pack("[II]", (json_int_t)INT32_MAX, (json_int_t)INT32_MAX));
}

static void box_negative(const char *at)
{
    set_in_box(at, "start", json_pack("[ii]", -1, 0));
}

static void box_no_file(const char *at)
{
    set_in_box(at, "file", json_integer(77));
}

static void box_digest(const char *at)
{
    set_in_box(at, "digest", json_string("00112233"));
}

static void file_elsewhere(const char *at)
{
    json_t *root = open_manifest(at);
    json_t *f = json_array_get(json_object_get(root, "files"), 0);
    (void)json_object_set_new(f, "name", json_string("../../etc/passwd"));
    close_manifest(at, root);
}

static void other_version(const char *at)
{
    json_t *root = open_manifest(at);
    (void)json_object_set_new(root, "version", json_integer(2));
    close_manifest(at, root);
}

static void spec_garbage(const char *at)
{
    json_t *root = open_manifest(at);
    (void)json_object_set_new(root, "spec", json_string("hello"));
    close_manifest(at, root);
}

static const struct fault {
    void (*plant)(const char *at);
    const char *why;
} faults[] = {
    {truncated, "rank-00001.safetensors: "},
    {flipped, "a digest does not match"},
    {no_file, "rank-00001.safetensors: No such file"},
    {long_header, "the header is longer than the file"},
    {shifted_header, "a digest does not match"},
    {no_manifest, "manifest.json: No such file"},
    {torn_manifest, "manifest.json:1: "},
    {empty_manifest, "manifest.json:1: "},
    {no_tensor, "no tensor model.layers.1.self_attn.q_proj.weight.exp_avg_sq"},
    {no_box, "elements are missing"},
    {box_twice, "boxes overlap"},
    {box_beyond, "lies beyond its end"},
    {box_huge, "overlap"},
    {box_negative, "box 0 is malformed"},
    {box_no_file, "there is no file 77"},
    {box_digest, "box 0 is malformed"},
    {file_elsewhere, "there is no file 0"},
    {other_version, "not a checkpoint manifest of version 1"},
    {spec_garbage, "its spec cannot be read"},
};

static void test_faults(void **state)
{
    struct layout from = {1, 2, 1}, to = {1, 1, 1};
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        AUTO_FREE char *newest = step_dir(7), *older = step_dir(6);
        struct err e = {0};
        bool differs;
        save(models[1], from, 7);
        load_all(models[1], to, 7, true); /* whole, it loads */
        faults[i].plant(newest);
        /* Alone: no start from nothing, and the reason. */
        assert_int_equal(load_rank(models[1], to, 0, 0, &differs, &e), -1);
        assert_int_equal(e.kind, ERR_STORAGE);
        if (!strstr(e.text, faults[i].why))
            fail_msg("fault %zu: \"%s\" lacks \"%s\"", i, e.text, faults[i].why);
        /* With an older one beside it, that one. */
        save(models[1], from, 6);
        load_all(models[1], to, 6, true);
        assert_int_equal(io_remove_tree(newest, &e), 0);
        assert_int_equal(io_remove_tree(older, &e), 0);
    }
}

/* A checkpoint of another model is no storage fault: nothing older is tried. */
static void test_other_model(void **state)
{
    struct layout one = {1, 1, 1};
    struct err e = {0};
    bool differs;
    (void)state;
    save(models[1], one, 3);
    save(models[0], one, 4);
    assert_int_equal(load_rank(models[1], one, 0, 0, &differs, &e), -1);
    assert_int_equal(e.kind, ERR_SPEC);
    assert_non_null(strstr(e.text, "--fresh"));
    assert_non_null(strstr(e.text, "model.arch: was gpt2, is llama"));
}

/* Takes snapshots of steps 1 to 4 and flushes, and hears of no agreement before: as where steps
 * are shorter than the disk is slow.  `broken`: nothing can be written. */
static int four_snapshots(bool broken, struct err *e)
{
    AUTO_FREE char *to = xasprintf("%s/ckpt", dir);
    AUTO(spec) struct spec *s = spec_of(models[0], (struct layout){1, 1, 1}, to);
    AUTO_BUF struct buf yaml = BUF(TEXT_MAX);
    struct link_identity id;
    struct rank r;
    assert_int_equal(spec_to_yaml(s, &yaml), 0);
    AUTO(link) struct link *link = link_open_solo(buf_str(&yaml), &id, e);
    assert_non_null(link);
    if (broken)
        assert_int_equal(io_replace_file(to, "", 0, e), 0);
    rank_init(&r, s, 0);
    r.p.link = link;
    AUTO(ckpt) struct ckpt *c = ckpt_new(&r.p, e);
    for (uint64_t step = 1; step <= 4; step++) {
        struct ckpt_state st = state_of(step);
        rank_fill(&r, step);
        if (ckpt_snapshot(c, &st, e) < 0)
            fail_msg("step %d: %s", (int)step, e->text);
        assert_int_equal(link_committed(link), broken || step < 3 ? 0 : step - 2);
    }
    int result = ckpt_flush(c, clock_now_ns() + 60 * NS_PER_S, e);
    assert_int_equal(link_committed(link), broken ? 0 : 4);
    rank_done(&r);
    return result;
}

/* No snapshot is overwritten before it is committed. */
static void test_slow_disk(void **state)
{
    struct err e = {0};
    (void)state;
    assert_int_equal(four_snapshots(false, &e), 0);
    for (unsigned step = 2; step <= 4; step++) { /* keep: 3 */
        AUTO_FREE char *at = xasprintf("%s/ckpt/step-%08u-g1/manifest.json", dir, step);
        assert_int_equal(access(at, R_OK), 0);
    }
}

/* Training goes on without checkpoints; that the last one is not there is an error. */
static void test_no_disk(void **state)
{
    struct err e = {0};
    (void)state;
    assert_int_equal(four_snapshots(true, &e), -1);
    assert_int_equal(e.kind, ERR_STORAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_any_to_any), TEST(test_safetensors), TEST(test_fresh),
        TEST(test_no_folder),  TEST(test_faults),      TEST(test_other_model),
        TEST(test_slow_disk),  TEST(test_no_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
