/* tree.h: what a process has below it, found in /proc, and its end.
 *
 * A worker may fork, double-fork, setsid: none of that takes a process out of the tree of a
 * subreaper above it.  /proc is no snapshot, so one pass may miss a child that is just being
 * born or re-parented: the caller repeats until waitpid says that it has no children (keeper)
 * or none but those it knows (agent).
 */
#ifndef DS_AGENT_TREE_H
#define DS_AGENT_TREE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct err;

/* SIGKILLs every descendant of `root` but the n `spare` ones and what is below them.  Returns
 * how many it signalled (zombies need none and do not count), or -1: /proc cannot be read. */
int tree_kill(pid_t root, const pid_t *spare, size_t n, struct err *e);

/* Of /proc/PID/stat; 0 for what cannot be read. */
struct tree_stat {
    pid_t parent;
    char state; /* 'R' 'S' 'D' 'T' 'Z' ... */
    uint64_t rss_bytes;
};
struct tree_stat tree_stat(pid_t pid);

/* The first descendant of `root` that is in uninterruptible sleep, 0 if none. */
pid_t tree_stuck(pid_t root);

#endif
