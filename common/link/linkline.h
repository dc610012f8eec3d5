/* linkline.h: the line protocol on DSLAUNCH_LINK, between a worker and its agent.
 *
 * One line is `verb key=value ...\n`: verbs and keys are [a-z_]+, values are printable ASCII
 * without blanks, and may be empty; bytes are hex, text that may hold blanks is hex too.  A
 * line is at most LINK_LINE_MAX bytes.  The fd number is in the environment variable
 * DSLAUNCH_LINK (an inherited stream socket); DSLAUNCH_PAGE is the fd of the progress page
 * (page.h), DSLAUNCH_SNAPSHOT=fd,fd the two snapshot memfds.
 *
 * worker -> agent
 *   hello proto=1
 *   put key=K value=HEX           once per key and generation
 *   get key=K                     answered after all ranks entered the barrier
 *   barrier                       enter; the generation has one
 *   metrics step=N loss=X ...     numbers of one step; rank 0 only; keys of metrics.jsonl
 *   event text=HEX                a line for people (resumed from, validation); any rank
 *   shard step=N slot=0|1 bytes=N digest=HEX
 *                                 a snapshot lies complete in that memfd (from offset 0;
 *                                 XXH3-128 of those bytes); the slot is the agent's until
 *                                 `written`
 *   commit step=N slot=S offset=O bytes=N
 *                                 rank 0: all ranks' shards of N are written; the manifest lies
 *                                 in the slot's memfd at that offset
 *   failed kind=KIND peer=R|- text=HEX
 *                                 why this rank is about to exit (err.h's kind names)
 *   done reason=completed|stopped step=N
 *                                 the rank exits 0 next
 * agent -> worker
 *   welcome proto=1 rank=R world=W generation=G local_rank=L secret=HEX host=HEX spec=HEX
 *                                 host: an id equal for ranks that reach each other by loopback
 *   value key=K value=HEX         or `void key=K`: the generation ended, or nobody put it
 *   released                      all ranks are in the barrier
 *   written step=N                the shard is on disk, fsynced; or
 *   lost step=N text=HEX          it is not
 *   committed step=N              (rank 0)
 *   stop                          finish the step, save, say done, exit 0
 *   refused text=HEX              the line before was against the rules; the worker ends
 */
#ifndef DS_LINK_LINKLINE_H
#define DS_LINK_LINKLINE_H

#include <stddef.h>
#include <stdint.h>

struct buf;
struct err;

enum { LINK_PROTO = 1, LINK_LINE_MAX = 4 << 20, LINK_PAIRS_MAX = 32 };

/* A parsed line; all pointers are into the caller's line, which the parser cut into pieces. */
struct link_line {
    const char *verb;
    size_t n;
    struct {
        const char *key, *value;
    } pairs[LINK_PAIRS_MAX];
};

/* Cuts `line` (NUL-terminated, no newline) in place.  ERR_PROTOCOL says what is wrong. */
int link_line_parse(char *line, struct link_line *ret, struct err *e);
/* NULL if the key is absent. */
const char *link_line_get(const struct link_line *l, const char *key);
/* Decimal digits only.  An absent key is an error, here and below. */
int link_line_u64(const struct link_line *l, const char *key, uint64_t *ret, struct err *e);
/* Decodes a hex value, appended to `out`. */
int link_line_hex(const struct link_line *l, const char *key, struct buf *out, struct err *e);

#endif
