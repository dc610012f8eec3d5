/* report.h: why a generation failed, for people and for programs.
 *
 * Pure: the controller gathers a struct failure, this turns it into failure.json and into the
 * text that ends up on the screen.  The first failure that is not a victim's is the culprit;
 * the victims (exit 94: a peer was lost) are only listed.
 */
#ifndef DS_RECORD_REPORT_H
#define DS_RECORD_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/super/job.h"

struct buf;
struct health_page;

enum { REPORT_LOG_LINES = 50, REPORT_SCREEN_LINES = 12 };

struct failure { /* all pointers are borrowed */
    const char *job;
    uint32_t generation;
    enum job_cause cause;
    uint32_t rank;                  /* UINT32_MAX: a node failed, no rank */
    uint32_t node;                  /* UINT32_MAX: unknown */
    const char *host, *device;      /* NULL: unknown */
    int exit_code;                  /* 0..255, or -signal; of a rank that exited */
    const struct health_page *page; /* as it last stood; NULL: never seen */
    const char *kind, *text;        /* what the rank said of itself; NULL or "": nothing */
    int64_t silent_ns;              /* of a hang or a lost node */
    const uint32_t *victims;
    uint32_t n_victims;
    const char *rule; /* the rule that fired, in words */
    bool restarts;
    uint32_t restarts_left;
    const char *log_path; /* NULL: none */
    const char *log_tail; /* its last REPORT_LOG_LINES lines, NULL: none */
};

/* One object. */
void report_json(const struct failure *f, struct buf *out);
/* Some lines, each ended by a newline; the log is cut to REPORT_SCREEN_LINES. */
void report_text(const struct failure *f, struct buf *out);
/* The first line of the text without the newline: for the journal and `status`. */
void report_headline(const struct failure *f, struct buf *out);

#endif
