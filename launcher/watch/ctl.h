/* ctl.h: a client's end of the control socket. */
#ifndef DS_WATCH_CTL_H
#define DS_WATCH_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/own.h"
#include "launcher/wire/agent.pb-c.h"

struct buf;
struct ctl;
struct err;
struct uv_loop_s;

struct ctl_handlers {
    /* `generation` is of LOG events. */
    void (*on_event)(void *ctx, uint32_t generation, const Dsl__ClientEvent *ev);
    /* Last; why->kind is ERR_NONE if the controller closed. */
    void (*on_end)(void *ctx, const struct err *why);
    void *ctx;
};

/* Call-backs come from the loop only. */
struct ctl *ctl_open(struct uv_loop_s *loop, const char *socket_path,
                     const struct ctl_handlers *h, struct err *e);
void ctl_free(struct ctl *c);
OWN(ctl);

void ctl_ask(struct ctl *c, Dsl__ClientAsk__Kind kind);
void ctl_ask_logs(struct ctl *c, int32_t rank, bool follow, uint32_t tail);

/* The status document of a live job; waits no longer than timeout_ms.  kind ERR_NETWORK. */
int ctl_status(const char *socket_path, unsigned timeout_ms, struct buf *json, struct err *e);

#endif
