/* From YAML nodes to values, and back to nothing.  Each kind of key has one converter. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/own.h"
#include "common/base/units.h"
#include "common/spec/hosts.h"
#include "common/spec/spec_read.h"

enum { ENV_NAME_MAX = 128 };

#define FIELD(type) ((type *)((char *)r->s + k->offset))

static int expect(struct spec_read *r, const struct spec_key *k, const struct ynode *n,
                  enum ynode_kind kind, const char *what)
{
    static const char *const names[] = {"one value", "a list", "a map"};
    if (n->kind == kind)
        return 0;
    return spec_error(r, spec_at(r, n), k->path, NULL, "expected %s, found %s", what,
                      names[n->kind]);
}

/* The whole text as a number, in decimal. */
static int to_real(const char *text, double *ret)
{
    char *end;
    errno = 0;
    *ret = strtod(text, &end);
    if (end == text || *end || strpbrk(text, "xXnN ") || !isfinite(*ret))
        return -1;
    return 0;
}

static int in_range(struct spec_read *r, const struct spec_key *k, const struct ynode *n,
                    double v)
{
    const char *unit = k->kind == KEY_DURATION ? "s" : "";
    if (v >= k->min && v <= k->max)
        return 0;
    return spec_error(r, spec_at(r, n), k->path, NULL,
                      "%.64s is out of range: %.12g%s to %.12g%s", n->text, k->min, unit,
                      k->max, unit);
}

static int real(struct spec_read *r, const struct spec_key *k, const struct ynode *n,
                double *ret)
{
    double v;
    if (expect(r, k, n, YNODE_SCALAR, "a number") < 0)
        return -1;
    if (to_real(n->text, &v) < 0)
        return spec_error(r, spec_at(r, n), k->path, NULL, "\"%.64s\" is not a number",
                          n->text);
    if (in_range(r, k, n, v) < 0)
        return -1;
    *ret = v;
    return 0;
}

static int whole(struct spec_read *r, const struct spec_key *k, const struct ynode *n,
                 uint64_t *ret)
{
    double v;
    if (real(r, k, n, &v) < 0)
        return -1;
    if (v != floor(v))
        return spec_error(r, spec_at(r, n), k->path, NULL, "%.64s is not a whole number",
                          n->text);
    *ret = (uint64_t)v;
    return 0;
}

static int boolean(struct spec_read *r, const struct spec_key *k, const struct ynode *n)
{
    if (expect(r, k, n, YNODE_SCALAR, "true or false") < 0)
        return -1;
    bool yes = strcmp(n->text, "true") == 0;
    if (!yes && strcmp(n->text, "false") != 0)
        return spec_error(r, spec_at(r, n), k->path, NULL,
                          "\"%.64s\" is neither true nor false", n->text);
    *FIELD(bool) = yes;
    return 0;
}

static int duration(struct spec_read *r, const struct spec_key *k, const struct ynode *n)
{
    int64_t ns;
    if (expect(r, k, n, YNODE_SCALAR, "a duration") < 0)
        return -1;
    if (units_duration(n->text, &ns) < 0)
        return spec_error(r, spec_at(r, n), k->path,
                          "write a number and a unit: 500ms, 30s, 5m, 1h30m",
                          "\"%.64s\" is not a duration", n->text);
    bool never = ns == INT64_MAX && k->max >= 1e9;
    if (!never && in_range(r, k, n, (double)ns / 1e9) < 0)
        return -1;
    *FIELD(int64_t) = ns;
    return 0;
}

static int word_index(const char *words, const char *word)
{
    size_t n = strlen(word);
    int i = 0;
    for (const char *p = words; p && *p && n; i++) {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, word, n) == 0)
            return i;
        p += len + (p[len] == ' ');
    }
    return -1;
}

static int word(struct spec_read *r, const struct spec_key *k, const struct ynode *n)
{
    char close[64], hint[160];
    if (expect(r, k, n, YNODE_SCALAR, "one word") < 0)
        return -1;
    int i = word_index(k->words, n->text);
    if (i < 0 && word_index(k->later, n->text) >= 0) {
        (void)snprintf(hint, sizeof hint, "this version has: %s", k->words);
        return spec_error(r, spec_at(r, n), k->path, hint,
                          "%.64s is not available in this version", n->text);
    }
    if (i < 0) {
        const char *like = spec_closest(n->text, k->words, close);
        if (like)
            (void)snprintf(hint, sizeof hint, "did you mean %s?", like);
        else
            (void)snprintf(hint, sizeof hint, "one of: %s", k->words);
        return spec_error(r, spec_at(r, n), k->path, hint, "\"%.64s\" is not known here",
                          n->text);
    }
    *FIELD(unsigned) = (unsigned)i;
    return 0;
}

static int strings(struct spec_read *r, const struct spec_key *k, const struct ynode *n)
{
    char ***field = FIELD(char **);
    const struct ynode *const *kids = (const struct ynode *const *)n->kids;
    size_t count = n->n;
    if (n->kind == YNODE_SCALAR) {
        kids = &n;
        count = 1;
    } else if (expect(r, k, n, YNODE_LIST, "a list of words") < 0) {
        return -1;
    }
    *field = xcalloc(count + 1, sizeof **field);
    for (size_t i = 0; i < count; i++) {
        if (kids[i]->kind != YNODE_SCALAR || !*kids[i]->text)
            return spec_error(r, spec_at(r, kids[i]), k->path, NULL, "expected a word");
        (*field)[i] = xstrdup(kids[i]->text);
    }
    return 0;
}

static int counts(struct spec_read *r, const struct spec_key *k, const struct ynode *n)
{
    struct {
        uint32_t *v;
        size_t n;
    } *field = (void *)FIELD(char);
    if (expect(r, k, n, YNODE_LIST, "a list of numbers") < 0)
        return -1;
    field->v = xcalloc(n->n, sizeof *field->v);
    field->n = n->n;
    for (size_t i = 0; i < n->n; i++) {
        uint64_t v = 0;
        if (whole(r, k, n->kids[i], &v) < 0)
            return -1;
        field->v[i] = (uint32_t)v;
    }
    return 0;
}

static int pair(struct spec_read *r, const struct spec_key *k, const struct ynode *n)
{
    if (expect(r, k, n, YNODE_LIST, "a list of two numbers") < 0)
        return -1;
    if (n->n != 2)
        return spec_error(r, spec_at(r, n), k->path, NULL, "expected two numbers, found %zu",
                          n->n);
    return real(r, k, n->kids[0], FIELD(double)) < 0 ||
                   real(r, k, n->kids[1], FIELD(double) + 1) < 0
               ? -1
               : 0;
}

size_t spec_env_name(const char *s)
{
    return strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
}

static bool env_name(const char *s)
{
    return *s && !(*s >= '0' && *s <= '9') && !s[spec_env_name(s)] && strlen(s) <= ENV_NAME_MAX;
}

static int environment(struct spec_read *r, const struct spec_key *k, const struct ynode *n)
{
    char ***field = FIELD(char **);
    if (expect(r, k, n, YNODE_MAP, "a map of NAME: value") < 0)
        return -1;
    *field = xcalloc(n->n + 1, sizeof **field);
    for (size_t i = 0; i < n->n; i++) {
        const char *name = n->keys[i]->text;
        if (!env_name(name))
            return spec_error(r, spec_at(r, n->keys[i]), k->path, NULL,
                              "\"%.64s\" is not a variable's name", name);
        if (n->kids[i]->kind != YNODE_SCALAR)
            return spec_error(r, spec_at(r, n->kids[i]), k->path, NULL,
                              "%s: expected one value", name);
        (*field)[i] = xasprintf("%s=%s", name, n->kids[i]->text);
    }
    return 0;
}

static int add_hosts(struct spec_read *r, const struct spec_key *k, const struct ynode *at,
                     const char *list, uint32_t slots)
{
    struct err e;
    char **names;
    size_t n;
    if (hosts_expand(list, &names, &n, &e) < 0)
        return spec_error(r, spec_at(r, at), k->path, NULL, "%s", e.text);
    struct spec *s = r->s;
    if (s->cluster.n_nodes + n > HOSTS_MAX) {
        hosts_free(names, n);
        return spec_error(r, spec_at(r, at), k->path, NULL, "more than %d nodes", HOSTS_MAX);
    }
    s->cluster.nodes =
        xrealloc_array(s->cluster.nodes, s->cluster.n_nodes + n, sizeof *s->cluster.nodes);
    for (size_t i = 0; i < n; i++)
        s->cluster.nodes[s->cluster.n_nodes++] = (struct spec_node){names[i], slots};
    free(names);
    return 0;
}

static int node_map(struct spec_read *r, const struct spec_key *k, const struct ynode *n)
{
    uint64_t slots = 0;
    struct spec_key slots_key = {.path = "cluster.nodes", .min = 1, .max = 1024};
    const struct ynode *host = ynode_get(n, "host", NULL), *count = ynode_get(n, "slots", NULL);
    for (size_t i = 0; i < n->n; i++)
        if (strcmp(n->keys[i]->text, "host") != 0 && strcmp(n->keys[i]->text, "slots") != 0)
            return spec_error(r, spec_at(r, n->keys[i]), k->path, "a node has: host, slots",
                              "unknown key %.64s", n->keys[i]->text);
    if (!host || host->kind != YNODE_SCALAR)
        return spec_error(r, spec_at(r, n), k->path, NULL, "a node needs a host");
    if (count && whole(r, &slots_key, count, &slots) < 0)
        return -1;
    return add_hosts(r, k, host, host->text, (uint32_t)slots);
}

static int nodes(struct spec_read *r, const struct spec_key *k, const struct ynode *n)
{
    if (n->kind == YNODE_SCALAR)
        return add_hosts(r, k, n, n->text, 0);
    if (expect(r, k, n, YNODE_LIST, "a list of hosts") < 0)
        return -1;
    if (!n->n)
        return spec_error(r, spec_at(r, n), k->path, NULL, "no node");
    int bad = 0;
    for (size_t i = 0; i < n->n; i++) {
        const struct ynode *kid = n->kids[i];
        if (kid->kind == YNODE_SCALAR)
            bad |= add_hosts(r, k, kid, kid->text, 0) < 0;
        else if (kid->kind == YNODE_MAP)
            bad |= node_map(r, k, kid) < 0;
        else
            bad |= spec_error(r, spec_at(r, kid), k->path,
                              "quote a host list inside a flow list: \"gpu[1-4]\"",
                              "expected a host list or a map") < 0;
    }
    return bad ? -1 : 0;
}

int spec_convert(struct spec_read *r, const struct spec_key *k, const struct ynode *n)
{
    uint64_t v = 0;
    switch (k->kind) {
    case KEY_STRING:
        if (expect(r, k, n, YNODE_SCALAR, "one value") < 0)
            return -1;
        *FIELD(char *) = xstrdup(n->text);
        return 0;
    case KEY_U32:
        if (whole(r, k, n, &v) < 0)
            return -1;
        *FIELD(uint32_t) = (uint32_t)v;
        return 0;
    case KEY_U64:
        return whole(r, k, n, FIELD(uint64_t));
    case KEY_REAL:
        return real(r, k, n, FIELD(double));
    case KEY_BOOL:
        return boolean(r, k, n);
    case KEY_DURATION:
        return duration(r, k, n);
    case KEY_WORD:
        return word(r, k, n);
    case KEY_STRINGS:
        return strings(r, k, n);
    case KEY_COUNTS:
        return counts(r, k, n);
    case KEY_PAIR:
        return pair(r, k, n);
    case KEY_ENV:
        return environment(r, k, n);
    case KEY_NODES:
        return nodes(r, k, n);
    }
    return -1;
}

void spec_drop(struct spec *s, const struct spec_key *k)
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
