#include "common/spec/spec.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/spec/spec_read.h"
#include "common/spec/yaml.h"

int spec_error(struct spec_read *r, struct spec_mark at, const char *key, const char *hint,
               const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->n_errors++;
    (void)buf_puts(r->report, at.source ? at.source : r->file);
    if (at.line)
        (void)buf_printf(r->report, ":%d:%d", at.line, at.column);
    (void)buf_printf(r->report, ": %s%s%s\n", key, *key ? ": " : "", text);
    if (hint)
        (void)buf_printf(r->report, "  hint: %s\n", hint);
    return -1;
}

static const struct spec_key *find_key(const char *path)
{
    size_t n;
    const struct spec_key *keys = spec_keys(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(keys[i].path, path) == 0)
            return &keys[i];
    return NULL;
}

static size_t index_of(const struct spec_key *k)
{
    size_t n;
    return (size_t)(k - spec_keys(&n));
}

bool spec_given(const struct spec_read *r, const char *key)
{
    return r->marks[index_of(find_key(key))].source;
}

struct spec_mark spec_mark_of(const struct spec_read *r, const char *key)
{
    struct spec_mark m = r->marks[index_of(find_key(key))];
    return m.source ? m : (struct spec_mark){r->file, 1, 1};
}

size_t spec_distance(const char *a, const char *b)
{
    size_t row[64], n = strnlen(a, 63), m = strnlen(b, 63);
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t above = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = above;
            row[j] = best;
        }
    }
    return row[m];
}

const char *spec_closest(const char *word, const char *words, char *buf)
{
    size_t limit = strlen(word) / 3 + 1, best = limit + 1;
    char one[64];
    for (const char *p = words; *p;) {
        size_t len = strcspn(p, " ");
        if (len < sizeof one) {
            memcpy(one, p, len);
            one[len] = 0;
            size_t d = spec_distance(word, one);
            if (d < best) {
                best = d;
                memcpy(buf, one, len + 1);
            }
        }
        p += len + (p[len] == ' ');
    }
    return best <= limit ? buf : NULL;
}

/* "train.lr" is a section if some key begins with "train.lr." */
static bool is_section(const char *path)
{
    size_t n, len = strlen(path);
    const struct spec_key *keys = spec_keys(&n);
    for (size_t i = 0; i < n; i++)
        if (strncmp(keys[i].path, path, len) == 0 && keys[i].path[len] == '.')
            return true;
    return false;
}

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* A key like `path`: a close name in the same section, or the same last word elsewhere. */
static const char *similar(const char *path)
{
    size_t n, prefix = (size_t)(last_part(path) - path), best = SIZE_MAX;
    const struct spec_key *keys = spec_keys(&n);
    const char *found = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *p = keys[i].path, *tail = last_part(path);
        bool here = strncmp(p, path, prefix) == 0;
        size_t section = here ? strcspn(p + prefix, ".") : 0;
        char word[64];
        (void)snprintf(word, sizeof word, "%.*s", here ? (int)section : 63,
                       here ? p + prefix : last_part(p));
        size_t d = spec_distance(tail, word), limit = here ? strlen(tail) / 3 + 1 : 0;
        if (d <= limit && 2 * d + !here < best) {
            best = 2 * d + !here;
            found = p;
        }
    }
    return found;
}

static void unknown_key(struct spec_read *r, const char *path, struct spec_mark at)
{
    char hint[128];
    const char *like = similar(path);
    if (like) {
        /* A section that is close is named alone. */
        size_t depth = (size_t)(last_part(path) - path);
        size_t n =
            strncmp(like, path, depth) == 0 ? depth + strcspn(like + depth, ".") : strlen(like);
        (void)snprintf(hint, sizeof hint, "did you mean %.*s?", (int)n, like);
    }
    (void)spec_error(r, at, path, like ? hint : NULL, "unknown key");
}

/* Recursion is bounded by YAML_DEPTH_MAX, and in fact by the depth of the key table. */
static void walk(struct spec_read *r, const struct ynode *map, const char *prefix)
{
    for (size_t i = 0; i < map->n; i++) {
        AUTO_FREE char *path = xasprintf("%s%.100s", prefix, map->keys[i]->text);
        const struct ynode *v = map->kids[i];
        struct spec_mark at = {r->source, map->keys[i]->line, map->keys[i]->column};
        const struct spec_key *k = find_key(path);
        if (!k && !is_section(path)) {
            unknown_key(r, path, at);
        } else if (ynode_is_null(v)) {
            continue; /* as if it were not there */
        } else if (k) {
            struct spec_mark value = {r->source, v->line, v->column};
            r->marks[index_of(k)] = value;
            (void)spec_convert(r, k, v, value);
        } else if (v->kind != YNODE_MAP) {
            (void)spec_error(r, at, path, NULL, "expected a map of keys");
        } else {
            AUTO_FREE char *deeper = xasprintf("%s.", path);
            walk(r, v, deeper);
        }
    }
}

/* "gpu[1-4]" unquoted in a flow list is YAML's most common trap here. */
static bool bracket_trap(const char *text, size_t len, int line)
{
    const char *p = text, *end = text + len;
    for (int i = 1; i < line && p; i++) {
        p = memchr(p, '\n', (size_t)(end - p));
        p = p ? p + 1 : NULL;
    }
    for (; p && p + 1 < end && *p != '\n'; p++)
        if (isalnum((unsigned char)*p) && p[1] == '[')
            return true;
    return false;
}

static int read_text(struct spec_read *r, const char *text, size_t len)
{
    struct err e;
    struct spec_mark at = {.source = r->source};
    const char *hint = NULL;
    if (memchr(text, 0, len < 65536 ? len : 65536))
        return spec_error(r, at, "", NULL, "a NUL byte: this is not a text file");
    AUTO(ynode) struct ynode *root = ynode_parse(text, len, &at.line, &at.column, &e);
    if (!root) {
        if (bracket_trap(text, len, at.line))
            hint = "quote a host list inside a flow list: nodes: [\"gpu[001-004]\"]";
        else if (strstr(e.text, "cannot start any token"))
            hint = "YAML wants spaces for indentation, not tabs";
        return spec_error(r, at, "", hint, "%s", e.text);
    }
    if (root->kind != YNODE_MAP)
        return spec_error(r, (struct spec_mark){r->source, root->line, root->column}, "", NULL,
                          "expected a map of keys");
    walk(r, root, "");
    return 0;
}

/* The old value of a key that --set gives again. */
static void drop(struct spec *s, const struct spec_key *k)
{
    void *at = (char *)s + k->offset;
    char **list;
    switch (k->kind) {
    case KEY_STRING:
        free(*(char **)at);
        *(char **)at = NULL;
        break;
    case KEY_STRINGS:
    case KEY_ENV:
        list = *(char ***)at;
        for (size_t i = 0; list && list[i]; i++)
            free(list[i]);
        free(list);
        *(char ***)at = NULL;
        break;
    case KEY_COUNTS:
        free(s->parallel.stages);
        s->parallel.stages = NULL;
        s->parallel.n_stages = 0;
        break;
    case KEY_NODES:
        for (size_t i = 0; i < s->cluster.n_nodes; i++)
            free(s->cluster.nodes[i].host);
        free(s->cluster.nodes);
        s->cluster.nodes = NULL;
        s->cluster.n_nodes = 0;
        break;
    case KEY_U32:
    case KEY_U64:
    case KEY_REAL:
    case KEY_BOOL:
    case KEY_DURATION:
    case KEY_WORD:
    case KEY_PAIR:
        break;
    }
}

/* One value given outside of the file: a --set, a preset's line, a default. */
static int read_value(struct spec_read *r, const char *path, const char *yaml)
{
    struct err e;
    struct spec_mark at = {.source = r->source};
    int line, column;
    const struct spec_key *k = find_key(path);
    if (!k) {
        if (is_section(path))
            return spec_error(r, at, path, NULL, "is a section; set one of its keys");
        unknown_key(r, path, at);
        return -1;
    }
    /* A word by itself is what most values are; [..], {..} and quotes are YAML. */
    AUTO(ynode) struct ynode *n = ynode_parse(yaml, strlen(yaml), &line, &column, &e);
    if (!n)
        return spec_error(r, at, path, NULL, "%s", e.text);
    n->line = n->column = 0;
    for (size_t i = 0; i < n->n; i++)
        n->kids[i]->line = n->kids[i]->column = 0;
    if (ynode_is_null(n) && *yaml)
        return 0;
    drop(r->s, k);
    r->marks[index_of(k)] = at;
    return spec_convert(r, k, n, at);
}

static void read_sets(struct spec_read *r, char *const *sets, size_t n, char **labels)
{
    for (size_t i = 0; i < n; i++) {
        const char *eq = strchr(sets[i], '=');
        labels[i] = xasprintf("--set %.100s", sets[i]);
        r->source = labels[i];
        if (!eq) {
            (void)spec_error(r, (struct spec_mark){.source = labels[i]}, "", NULL,
                             "expected key.path=value");
            continue;
        }
        AUTO_FREE char *path = xstrndup(sets[i], (size_t)(eq - sets[i]));
        (void)read_value(r, path, eq + 1);
    }
}

static void fill_preset(struct spec_read *r)
{
    const char *name = r->s->model.preset;
    if (!name || !*name)
        return;
    const char *const *lines = spec_preset(name);
    if (!lines) {
        char close[64], hint[160];
        const char *like = spec_closest(name, spec_preset_names(), close);
        (void)snprintf(hint, sizeof hint, like ? "did you mean %s?" : "one of: %s",
                       like ? like : spec_preset_names());
        (void)spec_error(r, spec_mark_of(r, "model.preset"), "model.preset", hint,
                         "there is no preset %.64s", name);
        return;
    }
    r->source = "preset";
    for (; *lines; lines++) {
        const char *eq = strchr(*lines, '=');
        AUTO_FREE char *path = xasprintf("model.%.*s", (int)(eq - *lines), *lines);
        struct spec_mark *m = &r->marks[index_of(find_key(path))];
        if (m->source)
            continue;
        (void)read_value(r, path, eq + 1);
        *m = spec_mark_of(r, "model.preset");
    }
}

static void fill_defaults(struct spec_read *r)
{
    size_t n;
    const struct spec_key *keys = spec_keys(&n);
    for (size_t i = 0; i < n; i++) {
        if (r->marks[i].source || !keys[i].def)
            continue;
        if (strcmp(keys[i].def, "!") == 0) {
            (void)spec_error(r, (struct spec_mark){r->file, 1, 1}, keys[i].path, keys[i].help,
                             "must be given");
            continue;
        }
        r->source = "default";
        (void)read_value(r, keys[i].path, keys[i].def);
        r->marks[i].source = NULL;
    }
}

struct spec *spec_parse(const char *path, const char *text, size_t len, char *const *sets,
                        size_t n_sets, struct buf *report, struct err *e)
{
    size_t n_keys;
    (void)spec_keys(&n_keys);
    AUTO(spec) struct spec *s = xcalloc(1, sizeof *s);
    AUTO_FREE struct spec_mark *marks = xcalloc(n_keys, sizeof *marks);
    AUTO_FREE char **labels = xcalloc(n_sets + 1, sizeof *labels);
    struct spec_read r = {
        .s = s, .file = path, .source = path, .marks = marks, .report = report};
    if (path[0] == '/') {
        s->path = xstrdup(path);
    } else {
        AUTO_FREE char *cwd = getcwd(NULL, 0);
        s->path = xasprintf("%s/%s", cwd ? cwd : "", path);
    }
    int r0 = read_text(&r, text, len);
    if (r0 == 0) {
        read_sets(&r, sets, n_sets, labels);
        size_t before = r.n_errors;
        fill_preset(&r);
        fill_defaults(&r);
        /* Cross-checks on half-read values would only add noise. */
        if (!before && !r.n_errors)
            spec_check(&r);
    }
    for (size_t i = 0; i < n_sets; i++)
        free(labels[i]);
    if (r.n_errors) {
        (void)err_set(e, ERR_SPEC, "%s: %zu error%s", path, r.n_errors,
                      r.n_errors == 1 ? "" : "s");
        return NULL;
    }
    return TAKE(s);
}

struct spec *spec_load(const char *path, char *const *sets, size_t n_sets, struct buf *report,
                       struct err *e)
{
    AUTO_BUF struct buf text = BUF(YAML_TEXT_MAX);
    struct err why;
    if (io_read_file(path, &text, &why) < 0) {
        (void)buf_printf(report, "%s\n", why.text);
        (void)err_set(e, ERR_SPEC, "%s", why.text);
        return NULL;
    }
    return spec_parse(path, buf_str(&text), text.len, sets, n_sets, report, e);
}

void spec_free(struct spec *s)
{
    size_t n;
    if (!s)
        return;
    const struct spec_key *keys = spec_keys(&n);
    for (size_t i = 0; i < n; i++)
        drop(s, &keys[i]);
    free(s->path);
    free(s);
}

char *spec_host_path(const struct spec *s, const char *path)
{
    const char *home = getenv("HOME");
    if (path[0] == '~' && (path[1] == '/' || !path[1]) && home)
        return xasprintf("%s%s", home, path + 1);
    return path[0] == '/' ? xstrdup(path) : xasprintf("%s/%s", s->cluster.workdir, path);
}
