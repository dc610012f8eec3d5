/* spec_read.h: a spec while it is being read: where each key stood, and what is wrong so far.
 * Only the files of this room include it.
 */
#ifndef DS_SPEC_SPEC_READ_H
#define DS_SPEC_SPEC_READ_H

#include <stdbool.h>
#include <stddef.h>

#include "common/spec/spec.h"
#include "common/spec/spec_keys.h"

struct ynode;

struct spec_mark {
    const char *source; /* the file's name or "--set key=value"; NULL: not given */
    int line, column;   /* 0 for --set */
};

struct spec_read {
    struct spec *s;
    const char *file;
    const char *source;      /* of the nodes being read */
    struct spec_mark *marks; /* one per key */
    struct buf *report;
    size_t n_errors;
};

/* One error line "source:line:column: key: text", and a hint line if hint is not NULL.  Always
 * -1. */
int spec_error(struct spec_read *r, struct spec_mark at, const char *key, const char *hint,
               const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Where the key was given; else the file's start. */
struct spec_mark spec_mark_of(const struct spec_read *r, const char *key);
bool spec_given(const struct spec_read *r, const char *key);

/* The value of one key from its node into the struct. */
int spec_convert(struct spec_read *r, const struct spec_key *k, const struct ynode *n,
                 struct spec_mark at);
/* Derived defaults, then all cross-checks. */
void spec_check(struct spec_read *r);
/* Closest of the blank-separated words, NULL if none is close; copied into buf[64]. */
const char *spec_closest(const char *word, const char *words, char *buf);
size_t spec_distance(const char *a,
                     const char *b); /* edit distance, <= 63 characters looked at */

#endif
