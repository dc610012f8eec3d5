/* cmd.h: the commands of dslaunch.
 *
 * One table (main.c) drives dispatch and help.  A command parses its own arguments, prints its
 * errors on stderr and returns the exit code of docs/design.md ("Exit codes"; 2: usage or
 * spec).  argv[0] is the command's name.
 */
#ifndef DS_CMD_H
#define DS_CMD_H

struct command {
    const char *name, *args, *help;
    int (*run)(int argc, char **argv);
};

int cmd_plan(int argc, char **argv);
int cmd_up(int argc, char **argv);
int cmd_down(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_logs(int argc, char **argv);

/* The table, ended by a NULL name. */
extern const struct command commands[];

/* "dslaunch NAME: usage: ..." on stderr, made from the table; returns 2. */
int cmd_usage(const char *name);

#endif
