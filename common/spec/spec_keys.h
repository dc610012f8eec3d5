/* spec_keys.h: the one table of spec keys.  Parser, --set, errors, the resolved spec, the docs
 * and the schema all come from it.
 */
#ifndef DS_SPEC_SPEC_KEYS_H
#define DS_SPEC_SPEC_KEYS_H

#include <stdbool.h>
#include <stddef.h>

enum key_kind {
    KEY_STRING,
    KEY_U32,
    KEY_U64,
    KEY_REAL,
    KEY_BOOL,
    KEY_DURATION, /* int64_t ns */
    KEY_WORD,     /* an enum; its values count from 0 in the order of `words` */
    KEY_STRINGS,  /* char **, NULL-terminated; a single word counts as a list of one */
    KEY_COUNTS,   /* uint32_t *, and size_t right behind it */
    KEY_PAIR,     /* two doubles, one behind the other */
    KEY_ENV,      /* map NAME: value -> char ** of NAME=value */
    KEY_NODES     /* struct spec_node *, and size_t right behind it */
};

struct spec_key {
    const char *path; /* "train.lr.peak" */
    enum key_kind kind;
    size_t offset;     /* in struct spec */
    const char *def;   /* default, as YAML (and JSON, of lists and maps); NULL: stays zero; "!":
                          must be given */
    double min, max;   /* of numbers, and of durations in seconds */
    const char *words; /* KEY_WORD: "gpipe 1f1b" */
    const char *later; /* words of design.md that this version does not have yet */
    bool fixed;        /* may not change on resume */
    const char *help;
};

const struct spec_key *spec_keys(size_t *ret_n);

/* Presets: "key=YAML" lines for model.*, NULL if there is none of that name. */
const char *const *spec_preset(const char *name);
/* All names, blank-separated. */
const char *spec_preset_names(void);

#endif
