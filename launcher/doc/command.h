/* command.h: what a command of dslaunch is, to the one who runs it and the one who documents
 * it.
 *
 * `args` is also read by programs: blanks part the words, [ ] holds what may be left out, a
 * word with a dash is an option, and a word in capitals behind it is its argument.  SPEC stands
 * for a file, JOB for a job's name.
 */
#ifndef DS_DOC_COMMAND_H
#define DS_DOC_COMMAND_H

struct command {
    const char *name, *args;
    const char *help; /* NULL: not for people */
    int (*run)(int argc, char **argv);
    const char *more; /* lines "  OPTION  what it does", then notes; may be NULL */
};

#endif
