/* prompt.h: the ids that train.sample.prompt stands for. */
#ifndef DS_SPEC_PROMPT_H
#define DS_SPEC_PROMPT_H

#include <stddef.h>
#include <stdint.h>

struct spec;

/* Its bytes with data.kind text; with shards, whose tokenizer is not ours, the decimal numbers
 * in it, separated by blanks.  -1 if one is no id of the model.  ret: the caller frees it. */
int prompt_ids(const struct spec *s, int32_t **ret, size_t *ret_n);

#endif
