/* resume.h: what `up` means for a job, given its past.  Pure.
 *
 *     no past, or --fresh              a new run from step 0
 *     ended, steps still to do         a new run that resumes from the newest checkpoint
 *     ended, all steps done            nothing to do
 *     not ended, nobody controls it    a new controller takes the run over
 */
#ifndef DS_CONTROL_RESUME_H
#define DS_CONTROL_RESUME_H

#include <stdbool.h>

struct err;
struct journal_state;
struct spec;

enum resume { RESUME_NEW, RESUME_AGAIN, RESUME_DONE, RESUME_TAKE_OVER };

/* `was`: the spec of the job's last run, NULL if it never had one.  ERR_SPEC: the text is for
 * people, with the keys that stand against it. */
int resume_decide(const struct journal_state *past, const struct spec *was,
                  const struct spec *is, bool fresh, enum resume *ret, struct err *e);

#endif
