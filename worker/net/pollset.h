/* pollset.h: the fds of one poll(2), put together anew for each wait.
 *
 * Who adds an fd keeps the index and asks for its revents after.  An index of -1 is "not in
 * this poll".
 */
#ifndef DS_NET_POLLSET_H
#define DS_NET_POLLSET_H

#include <poll.h>
#include <stddef.h>

#include "common/base/own.h"

struct pollset {
    struct pollfd *fds;
    size_t n, room;
};

static inline int pollset_add(struct pollset *ps, int fd, short events)
{
    if (ps->n == ps->room) {
        ps->room = ps->room ? 2 * ps->room : 32;
        ps->fds = xrealloc_array(ps->fds, ps->room, sizeof *ps->fds);
    }
    ps->fds[ps->n] = (struct pollfd){.fd = fd, .events = events};
    return (int)ps->n++;
}

static inline short pollset_got(const struct pollset *ps, int index)
{
    return index >= 0 && (size_t)index < ps->n ? ps->fds[index].revents : 0;
}

#endif
