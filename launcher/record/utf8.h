/* utf8.h: bytes that a worker or a peer wrote, made fit for JSON and for a terminal. */
#ifndef DS_RECORD_UTF8_H
#define DS_RECORD_UTF8_H

#include <stddef.h>

struct buf;

/* Appends the n bytes with ill-formed UTF-8 and control characters (tab and newline apart) each
 * replaced by '?', so that nobody's log line moves the cursor or breaks a JSON file. */
void utf8_clean(const char *p, size_t n, struct buf *out);

#endif
