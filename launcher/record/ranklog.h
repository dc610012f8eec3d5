/* ranklog.h: what the ranks print, complete, in logs/g<generation>/<rank>.log.
 *
 * The agent counts a rank's bytes and sends each stretch with its offset; it keeps them until
 * they are acknowledged, so a stretch may come twice, and again after the controller was
 * replaced.  A file's length is the position: nothing else is remembered.
 */
#ifndef DS_RECORD_RANKLOG_H
#define DS_RECORD_RANKLOG_H

#include <stddef.h>
#include <stdint.h>

struct buf;
struct err;

/* The path of a rank's log below `dir` (".../logs"); owned by the caller. */
char *ranklog_path(const char *dir, uint32_t generation, uint32_t rank);

/* Writes the bytes that the file does not have yet.  *ret_end is the file's length after,
 * *ret_new how many of the n bytes were new (the last ones).  kind ERR_STORAGE. */
int ranklog_write(const char *dir, uint32_t generation, uint32_t rank, uint64_t offset,
                  const void *data, size_t n, uint64_t *ret_end, size_t *ret_new,
                  struct err *e);

/* Bytes the file has; 0 if there is none. */
uint64_t ranklog_length(const char *dir, uint32_t generation, uint32_t rank);

/* Appends the last `lines` whole lines (looking at no more than RANKLOG_TAIL_BYTES). */
enum { RANKLOG_TAIL_BYTES = 256 << 10 };
int ranklog_tail(const char *dir, uint32_t generation, uint32_t rank, unsigned lines,
                 struct buf *out, struct err *e);

#endif
