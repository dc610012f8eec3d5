/* doc.h: the documents that are made from tables, so that they cannot say what is no longer so.
 *
 * The spec's key table gives the JSON Schema, docs/spec.md and dslaunch.yaml(5); the command
 * table gives dslaunch(1) and the shells' completions.  The files are committed; `make docs`
 * writes them anew, and a test compares.  Nothing here reads the environment or the clock:
 * equal tables make equal bytes.
 */
#ifndef DS_DOC_DOC_H
#define DS_DOC_DOC_H

#include <stdbool.h>
#include <stddef.h>

#include "launcher/doc/command.h"

struct buf;
struct spec_key;

/* Appends the document; `table` ends with a NULL name.  The caller looks at out->full. */
typedef void doc_fn(const struct command *table, struct buf *out);

doc_fn doc_schema, doc_spec_md, doc_man_command, doc_man_spec, doc_bash, doc_zsh;

struct doc_file {
    const char *path; /* from the root of the sources */
    doc_fn *write;
};
/* Ended by a NULL path. */
extern const struct doc_file doc_files[];

/* Rest of the room: a key in words. */
enum { DOC_TEXT_MAX = 512 };
/* "whole number, 1 to 1024"; into text[DOC_TEXT_MAX], which it returns. */
const char *doc_type(const struct spec_key *k, char *text);
/* "required", the default, or NULL: there is none, or `help` tells it. */
const char *doc_default(const struct spec_key *k);
/* The top-level section at the front of the path, its length in bytes: 5 of "train.lr.peak", 0
 * of "name". */
size_t doc_section(const struct spec_key *k);
/* Calls `fn` with each preset and its settings, as "arch=gpt2 layers=2 ...". */
void doc_presets(struct buf *out,
                 void (*fn)(struct buf *out, const char *name, const char *set));

/* An option as read from `args`, its help from `more`. */
struct doc_option {
    char name[32], arg[32]; /* arg "": takes none */
    char help[128];         /* "": none */
    bool repeats;
};
/* Reads the next option at *at, which starts at c->args; false: there is none left. */
bool doc_next_option(const struct command *c, const char **at, struct doc_option *ret);
/* The first word of `args` that is no option: "SPEC", "JOB" or another; "" if there is none. */
const char *doc_operand(const struct command *c, char name[32]);

#endif
