/* core.h: the controller's inside, for the files of this folder only.
 *
 *   build.c    makes it all, and releases it
 *   control.c  the queue of events, the loop, its end
 *   carry.c    the job's orders -> frames, journal
 *   hear.c     agents' frames -> events, pages, logs
 *   ranklines.c  ranks' link lines -> rendezvous, metrics, words for people
 *   answer.c   clients' asks; what is published; the status document
 *   blame.c    a failed generation -> failure.json and the report
 *   adopt.c    what a new controller takes over from the journal
 *
 * One thread, one loop.  Events are queued and handled one after the other, never inside an
 * order, so a call-back may post whenever it likes.
 */
#ifndef DS_CONTROL_CORE_H
#define DS_CONTROL_CORE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/base/buf.h"
#include "launcher/control/clients.h"
#include "launcher/control/control.h"
#include "launcher/control/nodes.h"
#include "launcher/rdzv/rdzv.h"
#include "launcher/record/metrics.h"
#include "launcher/record/secret.h"
#include "launcher/super/health.h"
#include "launcher/super/job.h"

struct journal_state;

enum { CONTROL_TEXTS = 32, CONTROL_SPEC_MAX = 1 << 20 };

enum node_view { NODE_AWAY, NODE_BOOTING, NODE_UP, NODE_SUSPECT, NODE_GONE, NODE_VIEW_COUNT };

struct node_seen {
    enum node_view view;
    char *host; /* as the agent says; NULL: not seen yet */
    uint32_t pid;
    uint32_t clear_first; /* leftover generation that is killed before the node is ready */
    int64_t silent_ns;    /* when it was lost */
    char *why;            /* it could not be started, or was lost; NULL: neither yet */
};

struct rank_seen { /* of the running generation */
    uint32_t pid;
    uint64_t rss_bytes;
    bool exited, done;
    int status;        /* exit code or -signal */
    char *kind, *text; /* what it said of its failure; NULL: nothing */
    int64_t hung_ns;   /* standing still when it was called hung; 0: it was not */
};

struct control {
    const struct control_params *params;
    uv_loop_t loop;
    uv_timer_t ticker, deadline;
    uv_signal_t sigterm;
    uint64_t ticks;

    struct jobdir *dir;
    struct spec *spec;
    struct buf spec_text; /* resolved YAML */
    struct plan *plan;
    uint32_t n_nodes; /* that carry ranks: the plan's n_used */
    char *program, *checkpoint_dir, *run_dir, *secret_path, *rdzv_path, *control_path;
    uint8_t secret[SECRET_BYTES];

    struct job *job;
    struct health *health;
    struct rdzv *rdzv;
    struct rdzvlog *rdzvlog; /* of the running generation */
    struct journal *journal;
    int metrics_fd;
    struct nodes *nodes;
    struct clients *clients;

    struct node_seen *node; /* [n_nodes] */
    struct rank_seen *rank; /* [world] */
    enum job_state state;   /* as last published */
    bool begun;             /* the job got its START */
    bool errand_done;       /* the stop that we came for was posted */

    struct job_event *queue;
    uint32_t n_queued, queue_room;
    bool draining;

    uint32_t adopt;     /* generation whose workers may go on; 0: none */
    bool restart_again; /* the dead controller had been asked for it */
    bool rejoining;     /* the rendezvous is rebuilt: nobody is to be answered */

    struct metrics last;
    double tokens, train_s; /* of this controller's steps: the mean speed */
    uint64_t checkpoint_step;
    char *checkpoint_path;
    int64_t started_ms; /* wall clock, of the run */
    char *failure;      /* headline of the last one */
    char *texts[CONTROL_TEXTS];
    uint32_t n_texts; /* ever; the ring's newest is n_texts - 1 */

    bool finished;
    int exit_code;
    enum job_outcome outcome;
};

/* control.c */
void control_post(struct control *c, const struct job_event *ev); /* the text is copied */
void control_begin(struct control *c);                            /* START, once */
uint32_t control_node_of(const struct control *c, uint32_t rank);
void control_forget_ranks(struct control *c); /* a generation begins */

/* build.c; release also what was built in part */
int control_build(struct control *c, struct err *e);
void control_release(struct control *c);

/* carry.c */
void carry_order(void *ctx, const struct job_order *o);

/* hear.c */
void hear_hello(void *ctx, uint32_t node, const Dsl__AgentHello *h);
void hear_frame(void *ctx, uint32_t node, const Dsl__Frame *f);
void hear_failed(void *ctx, uint32_t node, const struct err *why);
void hear_lost(void *ctx, uint32_t node, const struct err *why);
void hear_verdict(void *ctx, enum health_verdict v, uint32_t id, int64_t silent_ns);

/* ranklines.c */
void ranklines_hear(struct control *c, uint32_t rank, const char *line);
void ranklines_rdzv(void *ctx, uint32_t rank, enum rdzv_reply_kind kind, const char *key,
                    const void *val, size_t len);

/* answer.c */
void answer_ask(void *ctx, struct client *cl, const Dsl__ClientAsk *ask);
void answer_status(struct control *c, struct buf *json);
void publish_text(struct control *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void publish_status(struct control *c);
void publish_progress(struct control *c, const char *json);
void publish_report(struct control *c, const char *text);
void publish_ended(struct control *c);

/* blame.c */
void blame(struct control *c, const struct job_order *o);

/* adopt.c: before the job begins; sets c->adopt and fills the rendezvous again. */
int adopt_prepare(struct control *c, const struct journal_state *was, struct err *e);

#endif
