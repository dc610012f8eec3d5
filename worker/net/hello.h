/* hello.h: how two ranks prove to each other that they belong to one job and generation.
 *
 *   dialler -> listener   hello:  who it is, whom it wants, for which group, a nonce, MAC
 *   listener -> dialler   reply:  yes or why not, its generation, a nonce, MAC over both
 *   dialler -> listener   finish: MAC over both
 *
 * MACs are HMAC-SHA256 with the job's secret, each with a label of its own.  hello's MAC shows
 * that the caller is worth an answer; it can be replayed, so nothing is believed before finish.
 * Nothing is encrypted.  No I/O here; all input is untrusted.
 */
#ifndef DS_NET_HELLO_H
#define DS_NET_HELLO_H

#include <stdint.h>

enum {
    HELLO_SECRET = 32,
    HELLO_NONCE = 32,
    HELLO_MAC = 32,
    HELLO_BYTES = 32 + 32 + HELLO_NONCE + HELLO_MAC,
    REPLY_BYTES = 16 + HELLO_NONCE + HELLO_MAC,
    FINISH_BYTES = HELLO_MAC
};

enum hello_answer {
    HELLO_YES,
    HELLO_BAD_FORM,   /* not our protocol, or another version of it */
    HELLO_BAD_KEY,    /* another job's secret */
    HELLO_GENERATION, /* the caller is of another generation */
    HELLO_BAD_RANK,   /* the caller wants another rank, or is none */
    HELLO_ANSWER_COUNT
};

/* Which communicator a connection is for. */
struct net_key {
    uint32_t kind;     /* enum group_kind */
    uint32_t instance; /* counts communicators of the same kind and ranks in this process */
    uint32_t size;
    uint8_t digest[32]; /* SHA-256 of the ranks */
};

struct hello {
    uint32_t generation;
    uint32_t from, to; /* world ranks */
    struct net_key key;
};

void hello_write(const struct hello *h, const uint8_t secret[HELLO_SECRET],
                 uint8_t out[HELLO_BYTES]);
/* HELLO_YES, HELLO_BAD_FORM or HELLO_BAD_KEY; *ret only with the first. */
enum hello_answer hello_read(const uint8_t in[HELLO_BYTES], const uint8_t secret[HELLO_SECRET],
                             struct hello *ret);

void reply_write(enum hello_answer a, uint32_t generation, const uint8_t hello[HELLO_BYTES],
                 const uint8_t secret[HELLO_SECRET], uint8_t out[REPLY_BYTES]);
/* A yes whose MAC is wrong is HELLO_BAD_KEY.  A no is believed as it is: at worst a stranger
 * on the path ends an attempt that he could have ended anyway. */
enum hello_answer reply_read(const uint8_t in[REPLY_BYTES], const uint8_t hello[HELLO_BYTES],
                             const uint8_t secret[HELLO_SECRET], uint32_t *ret_generation);

void finish_write(const uint8_t hello[HELLO_BYTES], const uint8_t reply[REPLY_BYTES],
                  const uint8_t secret[HELLO_SECRET], uint8_t out[FINISH_BYTES]);

void net_key_digest(const uint32_t *ranks, uint32_t size, uint8_t ret[32]);
int net_key_same(const struct net_key *a, const struct net_key *b);

#endif
