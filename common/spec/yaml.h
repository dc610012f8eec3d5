/* yaml.h: a YAML document as a tree that remembers where each node stands.
 *
 * Bounded: text, depth, nodes, keys of a map and scalars have caps, and aliases and tags are
 * refused, so no small document can become a large one, or a slow one.  Duplicate keys are
 * errors.  Lines and columns count from 1, columns in characters.
 */
#ifndef DS_SPEC_YAML_H
#define DS_SPEC_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/own.h"

struct err;

enum {
    YAML_TEXT_MAX = 1 << 20,
    YAML_DEPTH_MAX = 32,
    YAML_NODES_MAX = 100000,
    YAML_KEYS_MAX = 4096, /* of one map: each is compared with those before it */
    YAML_SCALAR_MAX = 65536
};

enum ynode_kind { YNODE_SCALAR, YNODE_LIST, YNODE_MAP };

struct ynode {
    enum ynode_kind kind;
    int line, column;
    char *text;          /* scalar */
    bool quoted;         /* scalar: in quotes, or a block */
    size_t n;            /* children of a list, pairs of a map */
    struct ynode **keys; /* map: [n] scalars */
    struct ynode **kids; /* list, map: [n] */
};

/* ERR_SPEC says what is wrong, *ret_line and *ret_column where.  An empty document is a null.
 */
struct ynode *ynode_parse(const char *text, size_t len, int *ret_line, int *ret_column,
                          struct err *e);
void ynode_free(struct ynode *n);
OWN(ynode);
/* Value of a map's key, NULL if absent or not a map; *ret_key, if wanted, the key's node. */
struct ynode *ynode_get(const struct ynode *map, const char *key, const struct ynode **ret_key);
/* True for a plain null: ~, null or nothing. */
bool ynode_is_null(const struct ynode *n);

#endif
