/* ps.h: all jobs in a table, the live ones first, then the newest. */
#ifndef DS_WATCH_PS_H
#define DS_WATCH_PS_H

struct buf;
struct err;

int ps_text(struct buf *out, struct err *e);

#endif
