/* cmd.h: the commands of dslaunch.
 *
 * One table (main.c) drives dispatch and help.  A command parses its own arguments, prints its
 * errors on stderr and returns the exit code of docs/design.md ("Exit codes"; 2: usage or
 * spec).  argv[0] is the command's name.
 */
#ifndef DS_CMD_H
#define DS_CMD_H

#include "launcher/doc/command.h"

struct buf;
struct err;

int cmd_plan(int argc, char **argv);
int cmd_up(int argc, char **argv);
int cmd_down(int argc, char **argv);
int cmd_restart(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_schema(int argc, char **argv);
int cmd_doc(int argc, char **argv);        /* for `make docs` */
int cmd_controller(int argc, char **argv); /* started by up */

/* The table, ended by a NULL name. */
extern const struct command commands[];

/* "usage: dslaunch NAME ARGS" on stderr; returns 2. */
int cmd_usage(const char *name);
/* As cmd_error, below the lines of `report`: what spec_load had to say. */
int cmd_spec_error(const char *name, struct buf *report, const struct err *e);
/* "dslaunch NAME: text" on stderr; returns 2 for usage and spec, else 3. */
int cmd_error(const char *name, const struct err *e);

#endif
