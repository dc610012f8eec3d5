/* link_state.h: inside the link (link.h): its state, and the half that takes in what the agent
 * says. */
#ifndef DS_WORKER_LINK_STATE_H
#define DS_WORKER_LINK_STATE_H

#include "common/base/buf.h"
#include "worker/link.h"
#include "worker/link_solo.h"

struct link {
    int fd;            /* -1: solo */
    struct solo *solo; /* NULL unless solo */
    struct link_identity id;
    char *spec;
    struct buf in, out;
    size_t scanned; /* bytes of `in` known to hold no newline */
    bool dead;      /* `why` is what every call answers from now on */
    struct err why;

    bool welcomed, released, stop;
    char *asked; /* key of the get in flight */
    struct buf *answer;
    bool answered, is_void;
    /* Steps handed over that are not answered yet, by slot; 0: none. */
    uint64_t shard_out[2], commit_out[2];
    uint64_t heard; /* newest that was said to be written */
    uint64_t written, committed;
    uint64_t wanted; /* step of the wait in progress */
    bool lost;       /* not told yet by link_lost */
    uint64_t lost_step;
    struct err lost_why;

    int snapshot[2];
    struct page *page;
};

/* What an agent's answer, or a solo link's own, changes. */
void link_on_written(struct link *l, uint64_t step);
void link_on_committed(struct link *l, uint64_t step);
void link_on_lost(struct link *l, uint64_t step, const char *text);

/* Carries out every whole line in `in`, and leaves at most LINK_LINE_MAX bytes of the next.
 * -1: the agent broke the rules, or refused what this side said. */
int link_take_lines(struct link *l, struct err *e);

#endif
