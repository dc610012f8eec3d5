#include "worker/net/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/own.h"

static void own_ifaddrs(struct ifaddrs **p)
{
    if (*p)
        freeifaddrs(*p);
}

socklen_t addr_len(const struct addr *a)
{
    return a->sa.sa_family == AF_INET ? sizeof a->in : sizeof a->in6;
}

bool addr_is_loopback(const struct addr *a)
{
    if (a->sa.sa_family == AF_INET)
        return ntohl(a->in.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

const char *addr_text(const struct addr *a, char ret[static ADDR_TEXT])
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (a->sa.sa_family == AF_INET) {
        (void)inet_ntop(AF_INET, &a->in.sin_addr, ip, sizeof ip);
        (void)snprintf(ret, ADDR_TEXT, "%s:%u", ip, ntohs(a->in.sin_port));
    } else {
        (void)inet_ntop(AF_INET6, &a->in6.sin6_addr, ip, sizeof ip);
        (void)snprintf(ret, ADDR_TEXT, "[%s]:%u", ip, ntohs(a->in6.sin6_port));
    }
    return ret;
}

/* The bytes of the address, in network order. */
static const uint8_t *bytes_of(const struct addr *a, size_t *ret_n)
{
    *ret_n = a->sa.sa_family == AF_INET ? 4 : 16;
    return a->sa.sa_family == AF_INET ? (const uint8_t *)&a->in.sin_addr
                                      : (const uint8_t *)&a->in6.sin6_addr;
}

static int parse_ip(const char *text, struct addr *ret)
{
    *ret = (struct addr){0};
    if (inet_pton(AF_INET, text, &ret->in.sin_addr) == 1)
        ret->sa.sa_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &ret->in6.sin6_addr) == 1)
        ret->sa.sa_family = AF_INET6;
    else
        return -1;
    return 0;
}

/* Decimal digits only, at most `max`. */
static int parse_number(const char *s, unsigned max, unsigned *ret)
{
    unsigned v = 0;
    if (!*s)
        return -1;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return -1;
        v = v * 10 + (unsigned)(*s - '0');
        if (v > max)
            return -1;
    }
    *ret = v;
    return 0;
}

int addr_matches(const struct addr *a, const char *name, const char *interface, bool *ret,
                 struct err *e)
{
    const char *slash = strchr(interface, '/');
    if (!slash) {
        *ret = strcmp(name, interface) == 0;
        return 0;
    }
    struct addr net;
    unsigned bits;
    AUTO_FREE char *ip = xstrndup(interface, (size_t)(slash - interface));
    if (parse_ip(ip, &net) < 0 ||
        parse_number(slash + 1, net.sa.sa_family == AF_INET ? 32 : 128, &bits) < 0)
        return err_set(e, ERR_SPEC, "cluster.interface: `%s` is no CIDR", interface);
    *ret = false;
    if (net.sa.sa_family != a->sa.sa_family)
        return 0;
    size_t n;
    const uint8_t *x = bytes_of(a, &n), *y = bytes_of(&net, &n);
    if (memcmp(x, y, bits / 8) != 0)
        return 0;
    *ret = bits % 8 == 0 || (uint8_t)((x[bits / 8] ^ y[bits / 8]) >> (8 - bits % 8)) == 0;
    return 0;
}

/* False for what can never be a candidate. */
static bool usable(const struct ifaddrs *i, struct addr *ret)
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
        return false;
    *ret = (struct addr){0};
    if (i->ifa_addr->sa_family == AF_INET)
        memcpy(&ret->in, i->ifa_addr, sizeof ret->in);
    else if (i->ifa_addr->sa_family == AF_INET6)
        memcpy(&ret->in6, i->ifa_addr, sizeof ret->in6);
    else
        return false;
    return ret->sa.sa_family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&ret->in6.sin6_addr);
}

int addr_candidates(const char *interface, struct addr_list *ret, struct err *e)
{
    __attribute__((cleanup(own_ifaddrs))) struct ifaddrs *all = NULL;
    AUTO_BUF struct buf seen = BUF(4096);
    bool filter = strcmp(interface, "auto") != 0;
    size_t n_matched = 0, n_dropped = 0;
    if (getifaddrs(&all) < 0)
        return err_sys(e, "list the addresses of this host");
    ret->n = 0;
    for (int loopback = 1; loopback >= 0; loopback--) {
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            struct addr a;
            char text[ADDR_TEXT];
            bool match = true;
            if (!usable(i, &a) || addr_is_loopback(&a) != (loopback == 1))
                continue;
            if (filter && addr_matches(&a, i->ifa_name, interface, &match, e) < 0)
                return -1;
            n_matched += match;
            (void)buf_printf(&seen, " %s=%s", i->ifa_name, addr_text(&a, text));
            if (!match && !loopback)
                continue;
            if (ret->n < ADDR_MAX)
                ret->at[ret->n++] = a;
            else
                n_dropped++;
        }
    }
    if (filter && !n_matched)
        return err_set(e, ERR_SPEC,
                       "cluster.interface: no address of this host matches `%s`; it has%s",
                       interface, seen.len ? buf_str(&seen) : " none");
    if (!ret->n)
        return err_set(e, ERR_NETWORK, "this host has no address (is `lo` up?)");
    if (n_dropped)
        log_warn("this host has more than %d addresses; the last %zu are not offered to peers "
                 "(cluster.interface chooses)",
                 ADDR_MAX, n_dropped);
    return 0;
}

void addr_list_text(const struct addr_list *l, struct buf *out)
{
    char text[ADDR_TEXT];
    (void)buf_puts(out, "host=");
    (void)buf_hex(out, l->host_id, strlen(l->host_id));
    for (size_t i = 0; i < l->n; i++)
        (void)buf_printf(out, " %s", addr_text(&l->at[i], text));
}

static int parse_one(char *word, struct addr *ret)
{
    char *colon = strrchr(word, ':');
    unsigned port;
    if (!colon || parse_number(colon + 1, 65535, &port) < 0 || port == 0)
        return -1;
    *colon = 0;
    if (word[0] == '[' && colon > word + 1 && colon[-1] == ']') {
        colon[-1] = 0;
        word++;
    }
    if (parse_ip(word, ret) < 0)
        return -1;
    if (ret->sa.sa_family == AF_INET)
        ret->in.sin_port = htons((uint16_t)port);
    else
        ret->in6.sin6_port = htons((uint16_t)port);
    return 0;
}

int addr_list_parse(const char *text, size_t n, struct addr_list *ret, struct err *e)
{
    struct addr_list l = {0};
    if (n > ADDR_LIST_TEXT)
        return err_set(e, ERR_PROTOCOL, "an address list of %zu bytes", n);
    AUTO_FREE char *copy = xstrndup(text, n);
    char *save = NULL, *word = strtok_r(copy, " ", &save);
    long len = word && strncmp(word, "host=", 5) == 0
                   ? hex_decode(word + 5, l.host_id, sizeof l.host_id - 1)
                   : -1;
    if (len < 0)
        return err_set(e, ERR_PROTOCOL, "an address list without a host");
    l.host_id[len] = 0;
    while ((word = strtok_r(NULL, " ", &save))) {
        if (l.n == ADDR_MAX)
            return err_set(e, ERR_PROTOCOL, "an address list of more than %d", ADDR_MAX);
        if (parse_one(word, &l.at[l.n++]) < 0)
            return err_set(e, ERR_PROTOCOL, "an address list with `%s`", word);
    }
    *ret = l;
    return 0;
}
