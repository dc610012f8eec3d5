/* summary.h: the end of a job, from its status document to the screen. */
#ifndef DS_WATCH_SUMMARY_H
#define DS_WATCH_SUMMARY_H

#include <jansson.h>

struct buf;
struct progress;

void summary_show(struct progress *p, json_t *status, struct buf *out);

#endif
