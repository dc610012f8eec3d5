/* frame.h: protobuf frames over a byte stream.
 *
 * A channel owns one connected stream fd (socketpair, unix socket, pipe, TCP) on a libuv loop.
 * On the wire a frame is its length (u32, little-endian) and a packed Dsl__Frame of at most
 * FRAME_MAX_BYTES.  What arrives is handed over whole frame by whole frame; anything else (a
 * length beyond the cap, bytes that are no Frame, an end inside a frame) ends the channel with
 * ERR_PROTOCOL.  A peer that does not read is cut once CHANNEL_HIGH_WATER bytes wait for it, so
 * memory is bounded on both sides.
 *
 * All on the loop's thread.  Call-backs come from the loop only, never from inside channel_send
 * or channel_open_fd, and may close the channel they are called for.  The program must ignore
 * SIGPIPE.
 */
#ifndef DS_WIRE_FRAME_H
#define DS_WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "launcher/wire/agent.pb-c.h"

struct channel;
struct err;
struct uv_loop_s;

enum { FRAME_MAX_BYTES = 16 << 20, FRAME_HEAD_BYTES = 4, CHANNEL_HIGH_WATER = 64 << 20 };
enum { FRAME_PROTOCOL = 1 }; /* AgentHello.protocol, ControllerHello.protocol */
enum { SECRET_BYTES = 32 };  /* ControllerHello.secret */

/* `f` is borrowed for the call.  A body this program does not know is
 * DSL__FRAME__BODY__NOT_SET: ignore it. */
typedef void channel_frame_fn(void *ctx, const Dsl__Frame *f);
/* Once, and last.  why->kind is ERR_NONE if the peer closed between two frames.  The channel is
 * dead but still the owner's: channel_close it, here or later. */
typedef void channel_end_fn(void *ctx, const struct err *why);

/* Takes the fd in any case (closed on failure).  NULL: *e says why. */
struct channel *channel_open_fd(struct uv_loop_s *loop, int fd, channel_frame_fn *on_frame,
                                channel_end_fn *on_end, void *ctx, struct err *e);
/* Packs and queues.  -1 if the channel has ended, or ends by this very frame (too large, too
 * much waiting); on_end then tells, so the result may be ignored. */
int channel_send(struct channel *c, const Dsl__Frame *f);
/* Bytes queued that the kernel has not taken yet: what a polite sender looks at. */
size_t channel_queued(const struct channel *c);
/* No call-back comes after this.  What is queued is dropped.  NULL is fine. */
void channel_close(struct channel *c);
/* As channel_close, but first writes what is queued, for at most linger_ms. */
void channel_finish(struct channel *c, uint64_t linger_ms);

#endif
