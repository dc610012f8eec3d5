/* link.h: the rank's side of the line protocol (common/link/linkline.h) and the progress page.
 *
 * Without a DSLAUNCH_LINK (a worker started by hand) link_open_solo gives a link that answers
 * itself: rank 0 of 1, checkpoints written by the process itself.  One thread; waits have
 * deadlines.
 */
#ifndef DS_WORKER_LINK_H
#define DS_WORKER_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/own.h"
#include "common/link/page.h"

struct buf;
struct link;

struct link_identity {
    uint32_t rank, world, generation, local_rank;
    uint8_t secret[32];
    char host_id[128];
    const char *spec; /* resolved YAML, owned by the link */
};

/* From the environment; says hello, waits for welcome. */
struct link *link_open(struct link_identity *ret, struct err *e);
struct link *link_open_solo(const char *spec_yaml, struct link_identity *ret, struct err *e);
void link_free(struct link *l);
OWN(link);

/* Rendezvous. */
int link_put(struct link *l, const char *key, const void *val, size_t n, struct err *e);
int link_get(struct link *l, const char *key, struct buf *ret, int64_t deadline_ns,
             struct err *e);
int link_barrier(struct link *l, int64_t deadline_ns, struct err *e);

/* For poll(2) in communication waits: the link's fd, -1 for a solo link. */
int link_fd(const struct link *l);
/* Takes in what has arrived, without waiting.  A closed link is ERR_NETWORK
 * (the agent is gone, and with it our right to run). */
int link_poll(struct link *l, struct err *e);
/* An order to stop after this step has come. */
bool link_stop_asked(const struct link *l);

/* Reports. */
int link_metrics(struct link *l, const char *pairs,
                 struct err *e); /* "step=12 loss=2.31 ..." */
void link_event(struct link *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void link_failed(struct link *l, const struct err *why, int peer); /* best effort */
int link_done(struct link *l, bool completed, uint64_t step, struct err *e);

/* Checkpoints.  The fds are of two memfds that outlive this process; slot 0 or 1. */
int link_snapshot_fd(const struct link *l, int slot);
int link_shard(struct link *l, uint64_t step, int slot, uint64_t bytes, const char *digest_hex,
               struct err *e);
int link_commit(struct link *l, uint64_t step, int slot, uint64_t offset, uint64_t bytes,
                struct err *e);
/* Newest step whose shard of this rank is on disk and behind which no older one is still being
 * written; or that was committed (rank 0); 0: none yet.  link_lost: was a shard or commit lost
 * since the last call?  The newest one's text. */
uint64_t link_written(const struct link *l);
uint64_t link_committed(const struct link *l);
bool link_lost(struct link *l, struct err *ret);
/* Polls until the step (or a newer one, if this one was never handed over) is written or
 * committed, or lost: ERR_STORAGE; or the deadline: ERR_NETWORK. */
int link_wait_written(struct link *l, uint64_t step, int64_t deadline_ns, struct err *e);
int link_wait_committed(struct link *l, uint64_t step, int64_t deadline_ns, struct err *e);

/* The page; never NULL (a private one if none was inherited). */
struct page *link_page(struct link *l);
void link_phase(struct link *l, enum page_phase p);
void link_beat(struct link *l);

#endif
