#include "common/spec/yaml.h"

#include <string.h>
#include <yaml.h>

#include "common/base/err.h"

/* An open list or map; key: the map's key that waits for its value. */
struct level {
    struct ynode *node, *key;
};

struct builder {
    struct level stack[YAML_DEPTH_MAX];
    size_t depth, nodes;
    struct ynode *root;
    const char *text;
    size_t len;
    int *line, *column;
};

/* Depth is bounded by YAML_DEPTH_MAX. */
void ynode_free(struct ynode *n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n->n; i++) {
        if (n->keys)
            ynode_free(n->keys[i]);
        ynode_free(n->kids[i]);
    }
    free(n->keys);
    free(n->kids);
    free(n->text);
    free(n);
}

static const char no_tags[] = "tags (!name) are not allowed; write a plain value";

static int fail(struct builder *b, yaml_mark_t at, struct err *e, const char *what)
{
    *b->line = (int)at.line + 1;
    *b->column = (int)at.column + 1;
    return err_set(e, ERR_SPEC, "%s", what);
}

static void push(struct ynode *parent, struct ynode *key, struct ynode *kid)
{
    if ((parent->n & (parent->n - 1)) == 0) {
        size_t room = parent->n ? 2 * parent->n : 1;
        parent->kids = xrealloc_array(parent->kids, room, sizeof(struct ynode *));
        if (parent->kind == YNODE_MAP)
            parent->keys = xrealloc_array(parent->keys, room, sizeof(struct ynode *));
    }
    if (key)
        parent->keys[parent->n] = key;
    parent->kids[parent->n++] = kid;
}

/* Puts a scalar, or a list or map that opens, where it belongs; takes it over in any case.
 * Lists and maps are never keys: open_node has seen to that. */
static int place(struct builder *b, struct ynode *n, yaml_mark_t at, struct err *e)
{
    if (++b->nodes > YAML_NODES_MAX) {
        ynode_free(n);
        return fail(b, at, e, "the document has too many nodes");
    }
    if (!b->depth) {
        b->root = n;
        return 0;
    }
    struct level *l = &b->stack[b->depth - 1];
    if (l->node->kind == YNODE_LIST) {
        push(l->node, NULL, n);
        return 0;
    }
    if (l->key) {
        push(l->node, TAKE(l->key), n);
        return 0;
    }
    const struct ynode *first;
    if (l->node->n == YAML_KEYS_MAX) {
        ynode_free(n);
        return fail(b, at, e, "a map has too many keys");
    }
    if (ynode_get(l->node, n->text, &first)) {
        AUTO_FREE char *what = xasprintf("key \"%.64s\" stands here twice, first in line %d",
                                         n->text, first->line);
        ynode_free(n);
        return fail(b, at, e, what);
    }
    l->key = n;
    return 0;
}

static int open_node(struct builder *b, enum ynode_kind kind, const yaml_char_t *tag,
                     yaml_mark_t at, struct err *e)
{
    if (tag)
        return fail(b, at, e, no_tags);
    if (b->depth == YAML_DEPTH_MAX)
        return fail(b, at, e, "nested deeper than 32 levels");
    struct ynode *n = xcalloc(1, sizeof *n);
    n->kind = kind;
    n->line = (int)at.line + 1;
    n->column = (int)at.column + 1;
    if (b->depth && b->stack[b->depth - 1].node->kind == YNODE_MAP &&
        !b->stack[b->depth - 1].key) {
        ynode_free(n);
        return fail(b, at, e, "a key must be a plain word");
    }
    if (place(b, n, at, e) < 0)
        return -1;
    b->stack[b->depth++] = (struct level){.node = n};
    return 0;
}

static int scalar(struct builder *b, const yaml_event_t *ev, struct err *e)
{
    if (ev->data.scalar.tag)
        return fail(b, ev->start_mark, e, no_tags);
    size_t len = ev->data.scalar.length;
    const char *value = (const char *)ev->data.scalar.value;
    if (len > YAML_SCALAR_MAX)
        return fail(b, ev->start_mark, e, "a value is too long");
    if (memchr(value, 0, len))
        return fail(b, ev->start_mark, e, "a NUL byte in a value");
    struct ynode *n = xcalloc(1, sizeof *n);
    n->line = (int)ev->start_mark.line + 1;
    n->column = (int)ev->start_mark.column + 1;
    n->text = xstrndup(value, len);
    n->quoted = ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return place(b, n, ev->start_mark, e);
}

static int take(struct builder *b, const yaml_event_t *ev, struct err *e)
{
    switch (ev->type) {
    case YAML_SCALAR_EVENT:
        return scalar(b, ev, e);
    case YAML_SEQUENCE_START_EVENT:
        return open_node(b, YNODE_LIST, ev->data.sequence_start.tag, ev->start_mark, e);
    case YAML_MAPPING_START_EVENT:
        return open_node(b, YNODE_MAP, ev->data.mapping_start.tag, ev->start_mark, e);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        b->depth--;
        return 0;
    case YAML_ALIAS_EVENT:
        return fail(b, ev->start_mark, e,
                    "aliases (*name) are not allowed; write the value out");
    case YAML_DOCUMENT_START_EVENT:
        return b->root ? fail(b, ev->start_mark, e, "a second document; a spec is one") : 0;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        break;
    }
    return 0;
}

static int syntax(struct builder *b, const yaml_parser_t *p, struct err *e)
{
    if (p->error == YAML_READER_ERROR) { /* comes without a mark */
        for (size_t i = 0; i < p->problem_offset && i < b->len; i++) {
            unsigned char c = (unsigned char)b->text[i];
            *b->line += c == '\n';
            *b->column = c == '\n' ? 1 : *b->column + ((c & 0xc0) != 0x80);
        }
        return err_set(e, ERR_SPEC, "not UTF-8 text: %s", p->problem);
    }
    *b->line = (int)p->problem_mark.line + 1;
    *b->column = (int)p->problem_mark.column + 1;
    return err_set(e, ERR_SPEC, "YAML: %s%s%s", p->problem, p->context ? ", " : "",
                   p->context ? p->context : "");
}

struct ynode *ynode_parse(const char *text, size_t len, int *ret_line, int *ret_column,
                          struct err *e)
{
    yaml_parser_t parser;
    struct builder b = {.text = text, .len = len, .line = ret_line, .column = ret_column};
    int r = 0;
    *ret_line = *ret_column = 1;
    if (len > YAML_TEXT_MAX) {
        (void)err_set(e, ERR_SPEC, "larger than %d bytes", YAML_TEXT_MAX);
        return NULL;
    }
    if (!yaml_parser_initialize(&parser)) {
        (void)err_set(e, ERR_SYSTEM, "libyaml: out of memory");
        return NULL;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    for (bool end = false; !end && r == 0;) {
        yaml_event_t ev;
        if (!yaml_parser_parse(&parser, &ev)) {
            r = syntax(&b, &parser, e);
            break;
        }
        end = ev.type == YAML_STREAM_END_EVENT;
        r = take(&b, &ev, e);
        yaml_event_delete(&ev);
    }
    yaml_parser_delete(&parser);
    for (size_t i = 0; i < b.depth; i++)
        ynode_free(b.stack[i].key);
    if (r < 0) {
        ynode_free(b.root);
        return NULL;
    }
    if (!b.root) {
        b.root = xcalloc(1, sizeof *b.root);
        b.root->line = b.root->column = 1;
        b.root->text = xstrdup("");
    }
    return b.root;
}

struct ynode *ynode_get(const struct ynode *map, const char *key, const struct ynode **ret_key)
{
    if (!map || map->kind != YNODE_MAP)
        return NULL;
    for (size_t i = 0; i < map->n; i++)
        if (strcmp(map->keys[i]->text, key) == 0) {
            if (ret_key)
                *ret_key = map->keys[i];
            return map->kids[i];
        }
    return NULL;
}

bool ynode_is_null(const struct ynode *n)
{
    return n->kind == YNODE_SCALAR && !n->quoted &&
           (!*n->text || strcmp(n->text, "~") == 0 || strcmp(n->text, "null") == 0);
}
