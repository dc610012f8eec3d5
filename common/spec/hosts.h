/* hosts.h: hostlists, as Slurm and pdsh write them: gpu[001-004,7],login,n[1-2]r[1-2].
 *
 * Zero padding is kept, brackets multiply, the last one runs fastest.  Bounded: HOSTS_MAX
 * names. No name begins with - or a dot: it may become an argument of a program, or a folder.
 */
#ifndef DS_SPEC_HOSTS_H
#define DS_SPEC_HOSTS_H

#include <stddef.h>

struct err;

enum { HOSTS_MAX = 16384, HOSTS_NAME_MAX = 253 };

/* Names in a malloced array of malloced strings.  ERR_SPEC says at which character what is
 * wrong. */
int hosts_expand(const char *list, char ***ret, size_t *ret_n, struct err *e);
void hosts_free(char **names, size_t n);

#endif
