/* ranklink.h: the agent's end of one rank's link (common/link/linkline.h).
 *
 * Reads lines, checks them, and hands over what they say.  A worker must say hello first and
 * once; anything that is no line of the protocol is answered by `refused`, after which nothing
 * more is read: the owner ends the worker.  A worker that does not read its answers is cut off
 * in the same way, so memory is bounded.
 *
 * All on the loop's thread.  The call-back must not free the link it is called for.
 */
#ifndef DS_AGENT_RANKLINK_H
#define DS_AGENT_RANKLINK_H

#include <stdbool.h>
#include <stdint.h>

struct ranklink;
struct uv_loop_s;

enum ranklink_kind {
    RANKLINK_FORWARD, /* put, get, barrier, metrics, event: `line` is for the controller */
    RANKLINK_SHARD,   /* step, slot, bytes, digest */
    RANKLINK_COMMIT,  /* step, slot, offset, bytes */
    RANKLINK_FAILED,  /* text, kind, peer */
    RANKLINK_DONE,    /* stopped, step */
    RANKLINK_BROKEN,  /* text: against the rules; said once, and last */
};

struct ranklink_event {
    enum ranklink_kind kind;
    const char *line, *text, *error_kind; /* borrowed for the call */
    bool lossy;                           /* FORWARD: nobody waits for an answer */
    uint64_t step, offset, bytes;
    uint8_t digest[16];
    int slot, peer; /* peer -1: none */
    bool stopped;
};

typedef void ranklink_fn(void *ctx, const struct ranklink_event *ev);

/* Takes the fd (non-blocking).  `welcome` answers the hello; copied. */
struct ranklink *ranklink_new(struct uv_loop_s *loop, int fd, const char *welcome,
                              ranklink_fn *on_event, void *ctx);
void ranklink_free(struct ranklink *l); /* NULL is fine; the handle closes later by itself */

/* Queues a line (without its newline). */
void ranklink_send(struct ranklink *l, const char *line);
/* Against the rules in a way that only the owner sees; as if it had been found here. */
void ranklink_refuse(struct ranklink *l, const char *text);
/* While paused nothing is read; a rank that talks too much waits in its own send. */
void ranklink_pause(struct ranklink *l, bool paused);
/* Takes in all that the worker had written before its end. */
void ranklink_drain(struct ranklink *l);

#endif
