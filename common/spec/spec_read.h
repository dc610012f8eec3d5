/* spec_read.h: a spec while it is being read: where each key stood, which keys are already
 * known to be wrong, and what was said so far.  Only the files of this room include it.
 */
#ifndef DS_SPEC_SPEC_READ_H
#define DS_SPEC_SPEC_READ_H

#include <stdbool.h>
#include <stddef.h>

#include "common/spec/spec.h"
#include "common/spec/spec_keys.h"
#include "common/spec/yaml.h"

enum { SPEC_ERRORS_SHOWN = 50 };

struct spec_mark {
    const char *source; /* the file's name or "--set key=value"; NULL: not given */
    int line, column;   /* 0 outside of the file */
};

struct spec_read {
    struct spec *s;
    const char *file;
    const char *source;      /* of the nodes being read: `file`, or a --set */
    struct ynode *root;      /* of the file; NULL if it is no YAML */
    struct spec_mark *marks; /* one per key */
    bool *bad; /* one per key: an error was said about it; its value means nothing */
    struct buf *report;
    size_t n_errors;
};

/* Where a node of the current source stands. */
static inline struct spec_mark spec_at(const struct spec_read *r, const struct ynode *n)
{
    bool in_file = r->source == r->file;
    return (struct spec_mark){r->source, in_file ? n->line : 0, in_file ? n->column : 0};
}

/* One error line "source:line:column: key: text", and a hint line if hint is not NULL; the key,
 * if there is one of that name, is bad from now on.  Always -1. */
int spec_error(struct spec_read *r, struct spec_mark at, const char *key, const char *hint,
               const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* The key, or every key of the section, is bad, though nothing is said about it. */
void spec_spoil(struct spec_read *r, const char *path);
/* Is each of the blank-separated keys free of errors so far? */
bool spec_good(const struct spec_read *r, const char *paths);
/* Which of the blank-separated keys to blame: the first that was given, else the first. */
const struct spec_key *spec_blamed(const struct spec_read *r, const char *paths);
/* Where the key was given; else its section's name; else the file's start. */
struct spec_mark spec_mark_of(const struct spec_read *r, const struct spec_key *k);
bool spec_given(const struct spec_read *r, const char *path);
const struct spec_key *spec_find(const char *path, size_t len); /* NULL if there is none */

/* The value of one key from its node, of the current source, into the struct. */
int spec_convert(struct spec_read *r, const struct spec_key *k, const struct ynode *n);
/* How many characters at the start of `s` can stand in a variable's name. */
size_t spec_env_name(const char *s);
/* What a key holds is freed, and it holds nothing. */
void spec_drop(struct spec *s, const struct spec_key *k);
/* Derived defaults, then all cross-checks whose keys are good. */
void spec_check(struct spec_read *r);

/* Closest of the blank-separated words, NULL if none is close; copied into buf[64]. */
const char *spec_closest(const char *word, const char *words, char *buf);
/* A key or section like the unknown `path`, into buf[64]: a close name in the same section, or
 * the same name elsewhere.  NULL if there is none. */
const char *spec_similar(const char *path, char *buf);

#endif
