#include "worker/ckpt/manifest.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/shape/params.h"
#include "common/spec/spec.h"
#include "worker/ckpt/boxes.h"

struct manifest {
    json_t *root;
    json_t *tensors, *files; /* borrowed from root */
    struct ckpt_state state;
    struct manifest_box *boxes; /* of the last manifest_tensor */
};

static json_t *hex(const void *p, size_t n)
{
    AUTO_BUF struct buf b = BUF(128);
    (void)buf_hex(&b, p, n);
    return json_string(buf_str(&b));
}

static json_t *extent(const int64_t v[2], uint32_t ndim)
{
    return ndim == 1 ? json_pack("[I]", (json_int_t)v[0])
                     : json_pack("[II]", (json_int_t)v[0], (json_int_t)v[1]);
}

/* Adds the boxes of one rank's file to `tensors`. */
static void add_rank(json_t *tensors, const struct spec *s, uint32_t rank,
                     const struct manifest_file *f)
{
    struct topo t = topo_of_spec(s);
    struct coord at = topo_coord(&t, rank);
    AUTO(params) struct params *p = params_new(s, at);
    AUTO(boxes) struct boxes *b = boxes_new(s, p, at.dp);
    for (size_t i = 0; i < b->n; i++) {
        char name[128];
        const struct piece *q = &p->pieces[b->box[i].piece];
        const struct param *param = &p->params[q->param];
        boxes_tensor_name(p, q->param, b->box[i].kind, name);
        json_t *entry = json_object_get(tensors, name);
        if (!entry) {
            entry = json_pack("{s:s,s:o,s:[]}", "dtype", "F32", "shape",
                              extent(param->shape, param->ndim), "boxes");
            (void)json_object_set_new(tensors, name, entry);
        }
        json_t *box =
            json_pack("{s:o,s:o,s:I,s:I,s:o}", "start", extent(q->start, param->ndim), "shape",
                      extent(q->size, param->ndim), "file", (json_int_t)rank, "offset",
                      (json_int_t)b->box[i].begin, "digest", hex(f->digests[i], CKPT_DIGEST));
        (void)json_array_append_new(json_object_get(entry, "boxes"), box);
    }
}

int manifest_write(const struct spec *s, uint32_t generation, const struct ckpt_state *st,
                   const struct manifest_file *files, struct buf *out, struct err *e)
{
    AUTO_BUF struct buf yaml = BUF(1 << 20);
    if (spec_to_yaml(s, &yaml) < 0)
        return err_set(e, ERR_STORAGE, "manifest: the resolved spec is too long");
    json_t *tensors = json_object(), *list = json_array();
    for (uint32_t r = 0; r < spec_world(s); r++) {
        char name[32];
        (void)snprintf(name, sizeof name, "rank-%05u.safetensors", r);
        (void)json_array_append_new(
            list, json_pack("{s:s,s:I}", "name", name, "bytes", (json_int_t)files[r].bytes));
        add_rank(tensors, s, r, &files[r]);
    }
    char digest[17];
    (void)snprintf(digest, sizeof digest, "%016llx", (unsigned long long)st->data_digest);
    json_t *root =
        json_pack("{s:s,s:i,s:s,s:I,s:I,s:I,s:I,s:f,s:s,s:{s:I,s:I,s:I},s:s,s:o,s:o}", "format",
                  "dslaunch-checkpoint", "version", 1, "job", s->name, "step",
                  (json_int_t)st->step, "generation", (json_int_t)generation,
                  "consumed_samples", (json_int_t)st->consumed_samples, "optimizer_t",
                  (json_int_t)st->optimizer_t, "loss_scale", st->loss_scale, "data_digest",
                  digest, "layout", "data", (json_int_t)s->parallel.data, "tensor",
                  (json_int_t)s->parallel.tensor, "pipeline", (json_int_t)s->parallel.pipeline,
                  "spec", buf_str(&yaml), "files", list, "tensors", tensors);
    AUTO_FREE char *text =
        root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    if (!text || buf_puts(out, text) < 0 || buf_puts(out, "\n") < 0)
        return err_set(e, ERR_STORAGE, "manifest: larger than %d bytes", MANIFEST_MAX);
    return 0;
}

static int get_u64(const json_t *o, const char *key, uint64_t *ret)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return -1;
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

static int check(struct manifest *m)
{
    uint64_t version, generation;
    const char *format = json_string_value(json_object_get(m->root, "format"));
    const char *digest = json_string_value(json_object_get(m->root, "data_digest"));
    const json_t *scale = json_object_get(m->root, "loss_scale");
    m->tensors = json_object_get(m->root, "tensors");
    m->files = json_object_get(m->root, "files");
    if (!format || strcmp(format, "dslaunch-checkpoint") != 0 ||
        get_u64(m->root, "version", &version) < 0 || version != 1 ||
        get_u64(m->root, "generation", &generation) < 0 ||
        get_u64(m->root, "step", &m->state.step) < 0 ||
        get_u64(m->root, "consumed_samples", &m->state.consumed_samples) < 0 ||
        get_u64(m->root, "optimizer_t", &m->state.optimizer_t) < 0 || !json_is_number(scale) ||
        !digest || !json_is_object(m->tensors) || !json_is_array(m->files) || !manifest_spec(m))
        return -1;
    m->state.loss_scale = json_number_value(scale);
    m->state.data_digest = strtoull(digest, NULL, 16);
    return 0;
}

struct manifest *manifest_read(const char *dir, struct err *e)
{
    AUTO_FREE char *path = xasprintf("%s/manifest.json", dir);
    AUTO_BUF struct buf text = BUF(MANIFEST_MAX);
    AUTO(manifest) struct manifest *m = xcalloc(1, sizeof *m);
    json_error_t why;
    if (io_read_file(path, &text, e) < 0)
        return NULL;
    m->root = json_loadb(buf_str(&text), text.len, JSON_REJECT_DUPLICATES, &why);
    if (!m->root) {
        (void)err_set(e, ERR_STORAGE, "%s:%d: %s", path, why.line, why.text);
        return NULL;
    }
    if (check(m) < 0) {
        (void)err_set(e, ERR_STORAGE, "%s: not a checkpoint manifest of version 1", path);
        return NULL;
    }
    return TAKE(m);
}

void manifest_free(struct manifest *m)
{
    if (!m)
        return;
    json_decref(m->root);
    free(m->boxes);
    free(m);
}

const struct ckpt_state *manifest_state(const struct manifest *m)
{
    return &m->state;
}

const char *manifest_spec(const struct manifest *m)
{
    return json_string_value(json_object_get(m->root, "spec"));
}

static int get_extent(const json_t *o, const char *key, int64_t one, int64_t ret[2])
{
    const json_t *a = json_object_get(o, key);
    size_t n = json_array_size(a);
    if (n < 1 || n > 2)
        return -1;
    ret[1] = one;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) > INT32_MAX)
            return -1;
        ret[i] = json_integer_value(v);
    }
    return 0;
}

static int get_box(const json_t *o, struct manifest_box *ret)
{
    uint64_t file;
    const char *digest = json_string_value(json_object_get(o, "digest"));
    if (get_extent(o, "start", 0, ret->start) < 0 || get_extent(o, "shape", 1, ret->size) < 0 ||
        get_u64(o, "file", &file) < 0 || file > UINT32_MAX ||
        get_u64(o, "offset", &ret->begin) < 0 || !digest ||
        hex_decode(digest, ret->digest, CKPT_DIGEST) != CKPT_DIGEST)
        return -1;
    ret->file = (uint32_t)file;
    return 0;
}

/* Two boxes of the same elements: a count of elements would take one for the other's lack. */
static bool overlap(const struct manifest_box *box, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) {
            bool meet = true;
            for (int d = 0; d < 2; d++)
                meet &= box[i].start[d] < box[k].start[d] + box[k].size[d] &&
                        box[k].start[d] < box[i].start[d] + box[i].size[d];
            if (meet)
                return true;
        }
    return false;
}

const struct manifest_box *manifest_tensor(struct manifest *m, const char *name, size_t *ret_n,
                                           struct err *e)
{
    const json_t *list = json_object_get(json_object_get(m->tensors, name), "boxes");
    size_t n = json_array_size(list);
    if (!n || n > MANIFEST_BOXES_MAX) {
        (void)err_set(e, ERR_STORAGE, "manifest.json: %s %s",
                      n ? "too many boxes of" : "no tensor", name);
        return NULL;
    }
    free(m->boxes);
    m->boxes = xcalloc(n, sizeof *m->boxes);
    for (size_t i = 0; i < n; i++)
        if (get_box(json_array_get(list, i), &m->boxes[i]) < 0) {
            (void)err_set(e, ERR_STORAGE, "manifest.json: %s: box %zu is malformed", name, i);
            return NULL;
        }
    if (overlap(m->boxes, n)) {
        (void)err_set(e, ERR_STORAGE, "manifest.json: %s: boxes overlap", name);
        return NULL;
    }
    *ret_n = n;
    return m->boxes;
}

const char *manifest_file_name(const struct manifest *m, uint32_t file, uint64_t *ret_bytes)
{
    const json_t *f = json_array_get(m->files, file);
    const char *name = json_string_value(json_object_get(f, "name"));
    if (!name || strchr(name, '/') || get_u64(f, "bytes", ret_bytes) < 0)
        return NULL;
    return name;
}
