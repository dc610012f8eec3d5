#include "launcher/control/resume.h"

#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/spec/spec.h"
#include "launcher/record/journal.h"

static int refuse(struct err *e, const char *what, const char *lines, const char *hint)
{
    return err_set(e, ERR_SPEC, "%s:\n%shint: %s", what, lines, hint);
}

int resume_decide(const struct journal_state *past, const struct spec *was,
                  const struct spec *is, bool fresh, enum resume *ret, struct err *e)
{
    AUTO_BUF struct buf lines = BUF(1 << 16);
    if (!past->started || !was) {
        *ret = RESUME_NEW;
        return 0;
    }
    if (!past->ended) {
        if (fresh)
            return err_set(e, ERR_USAGE,
                           "the job was not ended, its controller died; run `dslaunch down %s` "
                           "before --fresh",
                           is->name);
        if (spec_differences(was, is, &lines) > 0)
            return refuse(e, "the job was not ended, and runs with another spec",
                          buf_str(&lines), "`dslaunch down` it first, then `up` again");
        *ret = RESUME_TAKE_OVER;
        return 0;
    }
    if (fresh) {
        *ret = RESUME_NEW;
        return 0;
    }
    if (spec_resume_conflicts(was, is, &lines) > 0)
        return refuse(e, "the job's checkpoints cannot be resumed with this spec",
                      buf_str(&lines), "--fresh moves them aside and begins anew");
    bool done = strcmp(past->outcome, "completed") == 0 && past->step >= is->train.steps;
    *ret = done ? RESUME_DONE : RESUME_AGAIN;
    return 0;
}
