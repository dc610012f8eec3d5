/* keeper.h: `dsagent exec`, the process between an agent and one worker.
 *
 * A keeper is a subreaper: whatever its worker forks stays below it.  It ends only when nothing
 * is left below it.  It kills the tree when the worker has ended, when it gets SIGTERM, and
 * when its agent dies (PDEATHSIG, and a look at getppid for an agent that died before that was
 * set). The worker dies with the keeper (PDEATHSIG=KILL); what the worker had forked then falls
 * to the agent, which is a subreaper too.  HUP, INT, QUIT, USR1 and USR2 are passed on to the
 * worker, which starts with the default action for every signal, without core files, and on the
 * processors that the agent may use: another job may be there, so none are picked.
 *
 * Inherited fds: 0 /dev/null, 1 and 2 the log pipe, KEEPER_LINK_FD..KEEPER_STATUS_FD below. The
 * status pipe tells the agent what really happened, as records of one atomic write each; a
 * keeper that ends without KEEPER_ENDED was killed.
 */
#ifndef DS_AGENT_KEEPER_H
#define DS_AGENT_KEEPER_H

#include <stdint.h>

enum {
    KEEPER_LINK_FD = 3,
    KEEPER_PAGE_FD,
    KEEPER_SNAPSHOT_FD, /* and the next */
    KEEPER_STATUS_FD = KEEPER_SNAPSHOT_FD + 2,
    KEEPER_FDS
};

enum keeper_tag {
    KEEPER_STARTED = 1, /* value: the worker's pid; its exec has succeeded */
    KEEPER_NO_EXEC,     /* value: errno of the fork, chdir or exec */
    KEEPER_ENDED,       /* value: the worker's wait status; the tree is gone */
};

struct keeper_record {
    int32_t tag, value;
};

/* `dsagent exec --parent PID --threads N --workdir DIR [--setup LINE]... [--name TEXT]
 *  -- PROGRAM [ARG]...`; the environment is the worker's already.  Returns the exit code, which
 * mirrors the worker's (128 + signal). */
int keeper_main(int argc, char **argv);

#endif
