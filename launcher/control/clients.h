/* clients.h: the control socket: who asks, and who watches.
 *
 * The socket lies in the 0700 run-time folder, is 0600, and each peer's uid is checked.  A
 * client that attached gets every event; one that follows logs gets LOG and ENDED.  A client
 * that does not read loses log lines first (it is told how many; they are in the files), and is
 * cut when the channel's limit is reached; the job never waits for it.  One thread.
 */
#ifndef DS_CONTROL_CLIENTS_H
#define DS_CONTROL_CLIENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/own.h"
#include "launcher/wire/agent.pb-c.h"

struct client;
struct clients;
struct err;
struct uv_loop_s;

/* `c` is valid for the call. */
typedef void clients_ask_fn(void *ctx, struct client *c, const Dsl__ClientAsk *ask);

struct clients *clients_new(struct uv_loop_s *loop, const char *job, const char *socket_path,
                            clients_ask_fn *on_ask, void *ctx, struct err *e);
/* Stops listening, removes the socket, writes what is queued (for at most linger_ms). */
void clients_free(struct clients *cs, uint64_t linger_ms);

/* Call now and then: a socket that was removed from outside is made again. */
void clients_tick(struct clients *cs);

void client_send(struct client *c, const Dsl__ClientEvent *ev);
void client_send_log(struct client *c, uint32_t generation, uint32_t rank, const void *data,
                     size_t n);
/* From now on it gets what is published. */
void client_attach(struct client *c);
/* From now on it gets the log lines of one rank, or of all (-1). */
void client_follow(struct client *c, int32_t rank);

bool clients_any_attached(const struct clients *cs);
void clients_publish(struct clients *cs, const Dsl__ClientEvent *ev); /* to the attached */
void clients_publish_log(struct clients *cs, uint32_t generation, uint32_t rank,
                         const void *data, size_t n);
void clients_publish_all(struct clients *cs, const Dsl__ClientEvent *ev); /* to everyone */

#endif
