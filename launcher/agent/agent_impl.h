/* agent_impl.h: the agent's state, shared by agent.c (life), orders.c (what the controller
 * says) and reports.c (what it is told).  Nobody else includes it. */
#ifndef DS_AGENT_AGENT_IMPL_H
#define DS_AGENT_AGENT_IMPL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "launcher/agent/agent.h"
#include "launcher/agent/rank/workers.h"
#include "launcher/agent/writer.h"
#include "launcher/wire/frame.h"

struct channel;
struct outbox;

enum { TICK_MS = 250 };
enum { QUEUE_HIGH = 8 << 20, QUEUE_LOW = 1 << 20 }; /* of the controller's channel */

enum agent_state {
    AGENT_SERVING,
    AGENT_ORPHAN_STOP, /* no controller: the ranks were told to stop, and may save */
    AGENT_LEAVING,     /* killing, then cleaning up; no way back */
    AGENT_GONE,        /* handles are closing */
};

struct gone { /* a rank's end, as it is told */
    Dsl__RankExited m;
    Dsl__PageData page;
    char *kind, *text;
};

struct connection {          /* a peer that has connected; freed with its channel */
    struct connection *next; /* of the greeted ones, newest first */
    struct agent *a;
    struct channel *ch;
    size_t told_gone; /* ends that its AgentHello held */
    int64_t since_ns;
};

struct agent {
    struct agent_params p;
    enum agent_state state;
    uv_poll_t listener;
    uv_timer_t tick;
    unsigned handles;
    struct connection *greeted, *controller; /* not yet accepted; accepted */
    struct workers *workers;
    struct writer *writer;
    struct outbox *outbox;
    struct outbox *unheard; /* lines and notes that the controller has not dealt with */
    uint64_t said;          /* of those, on its channel */
    char host_id[128];
    char host[256];

    /* Of ControllerHello. */
    uint32_t world;
    int64_t orphan_ns, grace_ns;
    uint8_t secret[SECRET_BYTES];

    /* Of the generation: the newest launched, or killed. */
    uint32_t generation;
    char *checkpoint_dir;
    uint32_t checkpoint_keep;
    struct gone **gone;
    size_t n_gone;
    bool has_rank0, paused;
    bool clearing;     /* a Kill waits for its NodeClear */
    bool dismissed;    /* ... and the controller for its Dismissed */
    int64_t reaped_ns; /* when the last worker had ended, while clearing or leaving */
    int64_t heard_ns;  /* last word of a controller */
    int64_t ticked_ns;
    int64_t deadline_ns; /* ORPHAN_STOP, LEAVING */
    bool tidied;
};

/* agent.c */
bool agent_live_clear(struct agent *a); /* answers a Kill, goes on with leaving, if it can */
void agent_connection_free(struct connection *c);
void agent_connection_accept(struct connection *c); /* it is the controller now */

/* orders.c: a frame of the accepted or a greeted controller. */
void orders_on_frame(void *ctx, const Dsl__Frame *f);

/* reports.c */
extern const struct workers_ops reports_ops;
void reports_on_written(void *ctx, const struct writer_result *r);
/* To the controller, or into the outbox. */
void reports_say(struct agent *a, uint32_t generation, Dsl__Frame *f, bool lossy);
void reports_hello(struct connection *c);
void reports_missed(struct agent *a); /* ends since that hello, then what was kept */
void reports_pages(struct agent *a);
void reports_logs(struct agent *a);
void reports_note(struct agent *a, Dsl__AgentNote__Kind kind, uint64_t step, int rank,
                  const char *text, int64_t took_ns);
/* `text` may be NULL. */
void reports_gone(struct agent *a, uint32_t rank, const struct proc_exit *x,
                  const struct proc_page *page);
void reports_forget_gone(struct agent *a);
void reports_pause(struct agent *a);

#endif
