/* jobdir.h: the folder of one job's state, by names, and how it is found, made and put aside.
 *
 * Old state is moved, never deleted: --fresh makes `<dir>.old-1`, `.old-2`, ... beside the
 * folder.  (A job's name has no dot, so these are no jobs.)
 */
#ifndef DS_RECORD_JOBDIR_H
#define DS_RECORD_JOBDIR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/own.h"

struct buf;
struct err;

struct jobdir {
    char *name; /* of the job */
    char *dir;
    char *lock, *spec, *journal, *metrics, *logs, *failure, *log;
};

/* Names only.  kind ERR_USAGE: not a job's name. */
struct jobdir *jobdir_new(const char *job, struct err *e);
void jobdir_free(struct jobdir *d);
OWN(jobdir);

int jobdir_make(const struct jobdir *d, struct err *e);
/* Moves all but the lock to `<dir>.old-N`, and the checkpoints step-* of `checkpoint_dir` to
 * `<checkpoint_dir>.old-N`.  Nothing is moved that is not there.  `ret_to` gets a line, "
 * path", for each folder made. */
int jobdir_put_aside(const struct jobdir *d, const char *checkpoint_dir, struct buf *ret_to,
                     struct err *e);
/* The largest generation that a checkpoint in `checkpoint_dir`, finished or not, carries in its
 * name; 0 if there is none.  A new run begins above it: no name is ever used twice, even where
 * another job saved into the same folder. */
uint32_t jobdir_newest_generation(const char *checkpoint_dir);

/* The job a command without JOB means: the only live one, else the one with the newest journal.
 * kind ERR_USAGE: several live ones (named), or there is no such job or none at all (*ret_none,
 * which may be NULL). */
struct jobdir *jobdir_find(const char *job_or_null, bool *ret_none, struct err *e);

#endif
