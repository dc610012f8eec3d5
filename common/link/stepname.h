/* stepname.h: how a checkpoint's folder is called, on which worker and agent agree:
 * "step-<step>-g<generation>", the step in eight digits or more. */
#ifndef DS_LINK_STEPNAME_H
#define DS_LINK_STEPNAME_H

#include <stdint.h>

/* With an unsigned long long and an unsigned. */
#define STEP_NAME "step-%08llu-g%u"

/* -1 if `name` does not begin so.  *ret_suffix: what is behind ("" of a committed one). */
int step_name_parse(const char *name, uint64_t *ret_step, uint32_t *ret_generation,
                    const char **ret_suffix);

#endif
