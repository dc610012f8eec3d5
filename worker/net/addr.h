/* addr.h: the addresses under which other ranks may try to reach this host, and their text.
 *
 * Candidates are guesses until a peer has connected to one and both sides proved the job's
 * secret (hello.h).  Link-local IPv6 is left out: its scope means nothing on another host.  The
 * text is what rendezvous carries: "host=HEX ADDRESS:PORT ...", IPv6 in brackets.
 */
#ifndef DS_NET_ADDR_H
#define DS_NET_ADDR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

struct buf;
struct err;

enum { ADDR_MAX = 16, ADDR_TEXT = INET6_ADDRSTRLEN + 10, ADDR_LIST_TEXT = 2048 };

struct addr {
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    };
};

struct addr_list {
    char host_id[128];
    size_t n;
    struct addr at[ADDR_MAX];
};

socklen_t addr_len(const struct addr *a);
bool addr_is_loopback(const struct addr *a);
/* "10.0.0.1:4000", "[fd00::1]:4000"; returns `ret`. */
const char *addr_text(const struct addr *a, char ret[static ADDR_TEXT]);

/* The addresses, port 0, of this host's interfaces that are up and pass `interface`: "auto"
 * (all), a CIDR ("10.0.0.0/8", "fd00::/8") or an interface's name.  Loopback always passes (for
 * peers on this host), and comes first.  ERR_SPEC if nothing else matches a filter. */
int addr_candidates(const char *interface, struct addr_list *ret, struct err *e);
/* One decision of the above; `interface` is not "auto". */
int addr_matches(const struct addr *a, const char *name, const char *interface, bool *ret,
                 struct err *e);

void addr_list_text(const struct addr_list *l, struct buf *out);
/* Untrusted text. */
int addr_list_parse(const char *text, size_t n, struct addr_list *ret, struct err *e);

#endif
