/* logs.h: what the ranks printed, from the log files, and onwards from a live job. */
#ifndef DS_WATCH_LOGS_H
#define DS_WATCH_LOGS_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct jobdir;

struct logs_params {
    const struct jobdir *dir;
    int64_t rank, node; /* -1: all */
    int64_t tail;       /* lines per rank; -1: all */
    bool follow;        /* until the job has ended */
};

/* Writes the newest generation's lines to stdout, prefixed with their rank. */
int logs_show(const struct logs_params *p, struct err *e);

#endif
