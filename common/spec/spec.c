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

/* What came from outside goes to a terminal: no control characters, C1 ones included. */
static void put_clean(struct buf *out, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)s[0], d = (unsigned char)s[1];
        bool c1 = c == 0xc2 && d >= 0x80 && d < 0xa0;
        (void)buf_add(out, c < 0x20 || c == 0x7f || c1 ? "?" : s, 1);
        s += c1;
    }
}

int spec_error(struct spec_read *r, struct spec_mark at, const char *key, const char *hint,
               const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (spec_find(key, strlen(key)))
        spec_spoil(r, key);
    if (++r->n_errors > SPEC_ERRORS_SHOWN)
        return -1;
    put_clean(r->report, at.source ? at.source : r->file);
    if (at.line)
        (void)buf_printf(r->report, ":%d:%d", at.line, at.column);
    (void)buf_puts(r->report, ": ");
    put_clean(r->report, key);
    (void)buf_puts(r->report, *key ? ": " : "");
    put_clean(r->report, text);
    (void)buf_puts(r->report, "\n");
    if (hint)
        (void)buf_printf(r->report, "  hint: %s\n", hint);
    return -1;
}

const struct spec_key *spec_find(const char *path, size_t len)
{
    size_t n;
    const struct spec_key *keys = spec_keys(&n);
    for (size_t i = 0; i < n; i++)
        if (strncmp(keys[i].path, path, len) == 0 && !keys[i].path[len])
            return &keys[i];
    return NULL;
}

static size_t index_of(const struct spec_key *k)
{
    size_t n;
    return (size_t)(k - spec_keys(&n));
}

bool spec_given(const struct spec_read *r, const char *path)
{
    return r->marks[index_of(spec_find(path, strlen(path)))].source;
}

struct spec_mark spec_mark_of(const struct spec_read *r, const struct spec_key *k)
{
    struct spec_mark m = r->marks[index_of(k)];
    const struct ynode *map = r->root, *name = NULL;
    if (m.source)
        return m;
    m = (struct spec_mark){r->file, 1, 1};
    for (const char *p = k->path, *dot; (dot = strchr(p, '.')); p = dot + 1) {
        AUTO_FREE char *section = xstrndup(p, (size_t)(dot - p));
        if (!(map = ynode_get(map, section, &name)))
            break;
        m.line = name->line;
        m.column = name->column;
    }
    return m;
}

/* The next of the blank-separated keys at *paths; NULL at their end. */
static const struct spec_key *next_key(const char **paths)
{
    size_t len = strcspn(*paths, " ");
    const struct spec_key *k = spec_find(*paths, len);
    *paths += len + ((*paths)[len] == ' ');
    return k;
}

bool spec_good(const struct spec_read *r, const char *paths)
{
    for (const struct spec_key *k; (k = next_key(&paths));)
        if (r->bad[index_of(k)])
            return false;
    return true;
}

const struct spec_key *spec_blamed(const struct spec_read *r, const char *paths)
{
    const struct spec_key *first = next_key(&paths), *k = first;
    while (k && !r->marks[index_of(k)].source)
        k = next_key(&paths);
    return k ? k : first;
}

/* Is `key` below the section `path`? */
static bool is_below(const struct spec_key *key, const char *path)
{
    size_t len = strlen(path);
    return strncmp(key->path, path, len) == 0 && key->path[len] == '.';
}

static bool is_section(const char *path)
{
    size_t n;
    const struct spec_key *keys = spec_keys(&n);
    for (size_t i = 0; i < n; i++)
        if (is_below(&keys[i], path))
            return true;
    return false;
}

void spec_spoil(struct spec_read *r, const char *path)
{
    size_t n;
    const struct spec_key *keys = spec_keys(&n);
    for (size_t i = 0; i < n; i++)
        if (is_below(&keys[i], path) || strcmp(keys[i].path, path) == 0)
            r->bad[i] = true;
}

/* "train.lr has: peak, min": what there is in the section where `path` was looked for. */
static void list_section(const char *path, struct buf *ret)
{
    AUTO_FREE char *section = xstrdup(path);
    size_t n, before = 0;
    const struct spec_key *keys = spec_keys(&n);
    const char *last = "";
    do {
        char *dot = strrchr(section, '.');
        *(dot ? dot : section) = 0;
    } while (*section && !is_section(section));
    (void)buf_printf(ret, "%s has: ", *section ? section : "a spec");
    for (size_t i = 0; i < n; i++) {
        if (*section && !is_below(&keys[i], section))
            continue;
        const char *p = keys[i].path + (*section ? strlen(section) + 1 : 0);
        size_t len = strcspn(p, ".");
        if (len != before || strncmp(p, last, len) != 0)
            (void)buf_printf(ret, "%s%.*s", before ? ", " : "", (int)len, p);
        last = p;
        before = len;
    }
}

static void unknown_key(struct spec_read *r, const char *path, struct spec_mark at)
{
    char like[64], hint[128];
    if (spec_similar(path, like)) {
        spec_spoil(r, like); /* a key misspelt is not a key missing as well */
        (void)snprintf(hint, sizeof hint, "did you mean %s?", like);
        (void)spec_error(r, at, path, hint, "unknown key");
        return;
    }
    /* --set setup.0=x: the table has no keys inside of a value. */
    for (size_t n = strlen(path); n > 0; n--)
        if ((path[n] == '.' || path[n] == '[') && spec_find(path, n)) {
            (void)snprintf(hint, sizeof hint, "%.*s is set as a whole", (int)n, path);
            (void)spec_error(r, at, path, hint, "unknown key");
            return;
        }
    AUTO_BUF struct buf has = BUF(1024);
    list_section(path, &has);
    (void)spec_error(r, at, path, buf_str(&has), "unknown key");
}

/* A null is as good as nothing: in the file no value, after --set the default again. */
static void give(struct spec_read *r, const struct spec_key *k, const struct ynode *v)
{
    spec_drop(r->s, k);
    r->marks[index_of(k)] = (struct spec_mark){0};
    if (ynode_is_null(v))
        return;
    r->marks[index_of(k)] = spec_at(r, v);
    (void)spec_convert(r, k, v);
}

/* A key, or a section with all that is in it.  Recursion is bounded by the depth of the key
 * table. */
static void walk(struct spec_read *r, const char *path, struct spec_mark at,
                 const struct ynode *v)
{
    const struct spec_key *k = spec_find(path, strlen(path));
    if (k) {
        give(r, k, v);
    } else if (*path && !is_section(path)) {
        unknown_key(r, path, at);
    } else if (v->kind == YNODE_MAP) {
        for (size_t i = 0; i < v->n; i++) {
            AUTO_FREE char *deeper =
                xasprintf("%s%s%.100s", path, *path ? "." : "", v->keys[i]->text);
            walk(r, deeper, spec_at(r, v->keys[i]), v->kids[i]);
        }
    } else if (!ynode_is_null(v)) {
        spec_spoil(r, path);
        (void)spec_error(r, *path ? at : spec_at(r, v), path, NULL,
                         "expected a map of keys, found %s",
                         v->kind == YNODE_LIST ? "a list" : "one value");
    }
}

/* What to do about YAML's most common traps.  `line` is where the parser gave up. */
static const char *syntax_hint(const char *text, size_t len, int line, const struct err *why)
{
    const char *p = text, *end = text + len;
    bool bracket = false, tab = false;
    for (int i = 1; i < line && p; i++) {
        p = memchr(p, '\n', (size_t)(end - p));
        p = p ? p + 1 : NULL;
    }
    for (; p && p < end && *p != '\n'; p++) {
        tab |= *p == '\t';
        bracket |= p + 1 < end && isalnum((unsigned char)*p) && p[1] == '[';
    }
    if (bracket)
        return "quote a host list inside a flow list: nodes: [\"gpu[001-004]\"]";
    if (!strstr(why->text, "cannot start any token"))
        return NULL;
    return tab ? "YAML wants spaces for indentation, not tabs"
               : "put a value that begins with @, ` or % in quotes";
}

static int read_text(struct spec_read *r, const char *text, size_t len)
{
    struct err e;
    struct spec_mark at = {.source = r->source};
    if (memchr(text, 0, len))
        return spec_error(r, at, "", NULL, "a NUL byte: this is not a text file");
    struct ynode *root = r->root = ynode_parse(text, len, &at.line, &at.column, &e);
    if (!root)
        return spec_error(r, at, "", syntax_hint(text, len, at.line, &e), "%s", e.text);
    walk(r, "", at, root);
    return root->kind == YNODE_MAP || ynode_is_null(root) ? 0 : -1;
}

/* One value given outside of the file: a --set, a preset's line, a default. */
static void read_value(struct spec_read *r, const char *path, const char *yaml)
{
    struct err e;
    struct spec_mark at = {.source = r->source};
    int line, column;
    AUTO(ynode) struct ynode *n = ynode_parse(yaml, strlen(yaml), &line, &column, &e);
    if (n)
        walk(r, path, at, n);
    else
        (void)spec_error(r, at, path, syntax_hint(yaml, strlen(yaml), line, &e), "%s", e.text);
}

static void read_sets(struct spec_read *r, char *const *sets, size_t n, char **labels)
{
    for (size_t i = 0; i < n; i++) {
        const char *eq = strchr(sets[i], '=');
        labels[i] = xasprintf("--set %.100s", sets[i]);
        r->source = labels[i];
        if (!eq || eq == sets[i]) {
            (void)spec_error(r, (struct spec_mark){.source = labels[i]}, "", NULL,
                             "expected key.path=value");
            continue;
        }
        AUTO_FREE char *path = xstrndup(sets[i], (size_t)(eq - sets[i]));
        read_value(r, path, eq + 1);
    }
}

static void fill_preset(struct spec_read *r)
{
    const char *name = r->s->model.preset;
    const struct spec_key *key = spec_blamed(r, "model.preset");
    if (!name || !*name)
        return;
    const char *const *lines = spec_preset(name);
    if (!lines) {
        char close[64], hint[160];
        const char *like = spec_closest(name, spec_preset_names(), close);
        (void)snprintf(hint, sizeof hint, like ? "did you mean %s?" : "one of: %s",
                       like ? like : spec_preset_names());
        spec_spoil(r, "model");
        (void)spec_error(r, spec_mark_of(r, key), key->path, hint, "there is no preset %.64s",
                         name);
        return;
    }
    for (; *lines; lines++) {
        const char *eq = strchr(*lines, '=');
        AUTO_FREE char *path = xasprintf("model.%.*s", (int)(eq - *lines), *lines);
        if (spec_given(r, path))
            continue;
        read_value(r, path, eq + 1);
        r->marks[index_of(spec_find(path, strlen(path)))] = spec_mark_of(r, key);
    }
}

static void fill_defaults(struct spec_read *r)
{
    size_t n;
    const struct spec_key *keys = spec_keys(&n);
    r->source = "default";
    for (size_t i = 0; i < n; i++) {
        if (r->marks[i].source || !keys[i].def)
            continue;
        if (strcmp(keys[i].def, "!") != 0) {
            read_value(r, keys[i].path, keys[i].def);
            r->marks[i].source = NULL;
        } else if (!r->bad[i]) {
            (void)spec_error(r, spec_mark_of(r, &keys[i]), keys[i].path, keys[i].help,
                             "must be given");
        }
    }
}

/* What was loaded can be written down and loaded again, or it was not loaded. */
static void check_size(struct spec_read *r)
{
    AUTO_BUF struct buf text = BUF(YAML_TEXT_MAX);
    if (spec_to_yaml(r->s, &text) < 0)
        (void)spec_error(r, (struct spec_mark){r->file, 1, 1}, "", NULL,
                         "with all defaults the spec is larger than %d bytes", YAML_TEXT_MAX);
}

static int conclude(struct spec_read *r, struct err *e)
{
    if (!r->n_errors)
        return 0;
    if (r->n_errors > SPEC_ERRORS_SHOWN)
        (void)buf_printf(r->report, "%s: %zu more errors are not shown\n", r->file,
                         r->n_errors - SPEC_ERRORS_SHOWN);
    return err_set(e, ERR_SPEC, "%s: %zu error%s", r->file, r->n_errors,
                   r->n_errors == 1 ? "" : "s");
}

static char *absolute(const char *path)
{
    AUTO_FREE char *cwd = path[0] == '/' ? NULL : getcwd(NULL, 0);
    return cwd ? xasprintf("%s/%s", cwd, path) : xstrdup(path);
}

struct spec *spec_parse(const char *path, const char *text, size_t len, char *const *sets,
                        size_t n_sets, struct buf *report, struct err *e)
{
    size_t n_keys;
    (void)spec_keys(&n_keys);
    AUTO(spec) struct spec *s = xcalloc(1, sizeof *s);
    AUTO_FREE struct spec_mark *marks = xcalloc(n_keys, sizeof *marks);
    AUTO_FREE bool *bad = xcalloc(n_keys, sizeof *bad);
    AUTO_FREE char **labels = xcalloc(n_sets + 1, sizeof *labels);
    struct spec_read r = {
        .s = s, .file = path, .source = path, .marks = marks, .bad = bad, .report = report};
    s->path = absolute(path);
    int tree = read_text(&r, text, len);
    read_sets(&r, sets, n_sets, labels);
    if (tree == 0) {
        fill_preset(&r);
        fill_defaults(&r);
        spec_check(&r);
        if (!r.n_errors)
            check_size(&r);
    }
    for (size_t i = 0; i < n_sets; i++)
        free(labels[i]);
    ynode_free(r.root);
    return conclude(&r, e) < 0 ? NULL : TAKE(s);
}

struct spec *spec_load(const char *path, char *const *sets, size_t n_sets, struct buf *report,
                       struct err *e)
{
    AUTO_BUF struct buf text = BUF(YAML_TEXT_MAX);
    if (io_read_file(path, &text, e) < 0) {
        if (e)
            e->kind = ERR_SPEC;
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
        spec_drop(s, &keys[i]);
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
