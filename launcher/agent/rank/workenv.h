/* workenv.h: the environment of a worker.
 *
 * What the plan says, above a few variables of the agent's own (PATH, HOME, locale and the
 * like).  The rest of the agent's environment is not passed on: a job must not depend on the
 * shell somebody happened to start it from.
 */
#ifndef DS_AGENT_WORKENV_H
#define DS_AGENT_WORKENV_H

#include <stddef.h>

/* NULL-terminated, each string and the array the caller's.  Of equal names the last of `plan`
 * wins; DSLAUNCH_LINK, _PAGE and _SNAPSHOT are set here and cannot be overridden. */
char **workenv_new(char *const *plan, size_t n);

#endif
