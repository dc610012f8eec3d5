/* secret.h: the job's secret, 32 random bytes in a 0600 file of the run-time folder.
 *
 * Ranks prove with it that they belong to the job.  It never enters the state folder, a log or
 * the journal, which only names the file.
 */
#ifndef DS_RECORD_SECRET_H
#define DS_RECORD_SECRET_H

#include <stdint.h>

#include "launcher/wire/frame.h"

struct err;

/* A new one, in place of an old one. */
int secret_make(const char *path, uint8_t ret[SECRET_BYTES], struct err *e);
int secret_read(const char *path, uint8_t ret[SECRET_BYTES], struct err *e);

#endif
