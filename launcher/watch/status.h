/* status.h: how a job stands, live or ended, as a document and as text. */
#ifndef DS_WATCH_STATUS_H
#define DS_WATCH_STATUS_H

struct buf;
struct err;
struct jobdir;

/* The JSON document: the controller's answer, or what the state folder says. */
int status_of(const struct jobdir *dir, struct buf *json, struct err *e);
/* That document for people. */
int status_text(const char *json, struct buf *out, struct err *e);

#endif
