/* err.h: how a failure travels.
 *
 * A function that can fail takes `struct err *e` last and returns 0/-1 (or a pointer/NULL). The
 * text is set once, where most is known, with `return err_set(e, ...)`; callers on the way up
 * may prefix it with err_wrap.  Only main, the controller or the agent prints it, once. Callers
 * branch on the kind alone: it decides retry, blame and exit code.
 *
 * The storage is the caller's; nothing is allocated.  `e` may be NULL when the text is not
 * wanted. On success *e is untouched.
 */
#ifndef DS_BASE_ERR_H
#define DS_BASE_ERR_H

enum err_kind {
    ERR_NONE = 0,
    ERR_USAGE,    /* the command line */
    ERR_SPEC,     /* the cluster spec, or a layout that cannot work */
    ERR_SYSTEM,   /* a system call */
    ERR_NETWORK,  /* a peer cannot be reached, or was lost */
    ERR_PROTOCOL, /* a peer said what it must not say, or is of another generation */
    ERR_RANK,     /* a worker ended, or does not go on */
    ERR_NUMERIC,  /* NaN or Inf where none may be */
    ERR_STORAGE,  /* a checkpoint or data file cannot be read or written */
    ERR_MEMORY,   /* what was asked for does not fit */
    ERR_STOPPED,  /* not a failure: an order to stop was carried out */
    ERR_KIND_COUNT
};

enum { ERR_TEXT_MAX = 1024 };

struct err {
    enum err_kind kind;
    char text[ERR_TEXT_MAX];
};

/* Each returns -1, so that it can stand in the return statement.  Long texts are cut. */
int err_set(struct err *e, enum err_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* ERR_SYSTEM, and the words of errno behind the text. */
int err_sys(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* As err_sys with another kind (ERR_STORAGE, ERR_NETWORK). */
int err_sys_kind(struct err *e, enum err_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Puts "prefix: " before the text; the kind stays. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *err_kind_name(enum err_kind kind);

/* Exit codes of workers (docs/design.md, "Exit codes"). */
enum worker_exit {
    WORKER_EXIT_OK = 0,
    WORKER_EXIT_SPEC = 2,
    WORKER_EXIT_PREEMPTED = 75,
    WORKER_EXIT_NO_RESTART = 93,
    WORKER_EXIT_PEER_LOST = 94, /* a victim, not a culprit */
    WORKER_EXIT_NUMERIC = 95,
    WORKER_EXIT_STORAGE = 96,
    WORKER_EXIT_MEMORY = 97,
};
int err_worker_exit(enum err_kind kind);

#endif
