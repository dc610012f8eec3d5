/* journal.h: journal.jsonl, what a job went through, so that a controller started again goes on
 * where a killed one stopped.
 *
 * One JSON object a line: `at_ms` (wall clock, since the epoch), `kind`, and the fields of the
 * kind.  Records are appended with one write(2) and fsynced before the function returns, so
 * that no order is carried out which the journal does not know.  A last line torn by a crash is
 * dropped by the reader and cut off by the next writer; a bad line before it is an error.
 *
 * A file holds all runs of a job: `started` opens one, `ended` closes it.  journal_read folds
 * the file into the state of the last run; the generation number goes on over runs.
 */
#ifndef DS_RECORD_JOURNAL_H
#define DS_RECORD_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/own.h"

struct err;
struct journal;

struct journal *journal_open(const char *path, struct err *e);
void journal_free(struct journal *j);
OWN(journal);

struct journal_start {
    const char *host, *boot_id; /* of the controller */
    int pid;
    const char *secret; /* the path of the secret's file; never the secret */
    const char *run_dir, *checkpoint_dir;
    uint32_t n_nodes, world, steps;
};

int journal_started(struct journal *j, const struct journal_start *s, struct err *e);
/* A new controller goes on with the run. */
int journal_took_over(struct journal *j, const struct journal_start *s, struct err *e);
int journal_agent(struct journal *j, uint32_t node, const char *host, uint32_t pid,
                  struct err *e);
int journal_agent_gone(struct journal *j, uint32_t node, const char *why, struct err *e);
int journal_generation(struct journal *j, uint32_t generation, struct err *e);
int journal_barrier(struct journal *j, uint32_t generation, struct err *e);
int journal_checkpoint(struct journal *j, uint32_t generation, uint64_t step, const char *path,
                       struct err *e);
/* `restarts`: a restart was granted; it counts against the budget from now. */
int journal_failure(struct journal *j, uint32_t generation, const char *cause, const char *text,
                    bool restarts, struct err *e);
int journal_stop_asked(struct journal *j, bool at_once, struct err *e);
/* A new generation was asked for; void once one begins. */
int journal_restart_asked(struct journal *j, struct err *e);
int journal_ended(struct journal *j, const char *outcome, int exit_code, uint64_t step,
                  struct err *e);

/* The last run. */
struct journal_state {
    bool started, ended;
    int exit_code;
    char outcome[24];
    char host[256], boot_id[64]; /* of its newest controller */
    int pid;
    char *secret, *run_dir, *checkpoint_dir; /* NULL if not started */
    uint32_t n_nodes, world, steps;
    uint32_t generation; /* the newest ever opened; 0: none */
    bool in_this_run;    /* ... opened by this run */
    bool barrier;        /* its ranks all met */
    bool *agent_live;    /* [n_nodes] */
    uint32_t *agent_pid; /* [n_nodes] */
    int64_t *restart_ms; /* [n_restarts], ascending */
    uint32_t n_restarts;
    uint64_t checkpoint_step; /* newest committed, of any run into checkpoint_dir; 0: none */
    char *checkpoint_path;
    char *failure; /* text of the last failure, NULL if none */
    bool stop_asked, stop_at_once;
    bool restart_asked; /* of its newest generation, which has not ended yet */
    uint64_t step;      /* `ended`: the last finished step */
    int64_t started_ms, ended_ms;
};

/* A missing file is an empty state.  `*s` needs no init; journal_state_done after success. */
int journal_read(const char *path, struct journal_state *s, struct err *e);
void journal_state_done(struct journal_state *s);

#endif
