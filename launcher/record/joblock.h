/* joblock.h: one live controller per job.
 *
 * The lock is a lock on the file <state>/lock that belongs to the open file (F_OFD_SETLK): it
 * is inherited over fork and exec, and the kernel drops it when its last holder dies, however
 * that happens.  Who holds it, and where the control socket lies, stands in the file as text.
 *
 * A state folder shared between hosts may be on a file system that does not carry locks; so a
 * lock file that names another host and was not cleared is refused, with the words for a person
 * who knows better.
 */
#ifndef DS_RECORD_JOBLOCK_H
#define DS_RECORD_JOBLOCK_H

#include <stdbool.h>
#include <sys/types.h>

struct err;

struct joblock_holder {
    char host[256], boot_id[64];
    int pid;
    char control[256]; /* path of the control socket */
};

enum joblock_state { JOBLOCK_FREE, JOBLOCK_HELD, JOBLOCK_ERROR };

/* Takes the lock: FREE gives *ret_fd (CLOEXEC).  HELD fills *ret_holder (pid 0: it is being
 * started and has not said yet). */
enum joblock_state joblock_take(const char *path, int *ret_fd,
                                struct joblock_holder *ret_holder, struct err *e);
/* Looks without taking.  A missing file is FREE. */
enum joblock_state joblock_look(const char *path, struct joblock_holder *ret_holder,
                                struct err *e);
/* By the holder: says who it is; empties the file at the end. */
int joblock_say(int fd, const char *control, struct err *e);
void joblock_clear(int fd);

/* This host: name and boot id. */
void joblock_host(char *ret_host, size_t host_size, char *ret_boot_id, size_t id_size);

#endif
