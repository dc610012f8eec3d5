#include "worker/net/hello.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

enum { MAGIC_HELLO = 0x31435344, MAGIC_REPLY = 0x32435344 }; /* "DSC1", "DSC2" */

struct hello_wire {
    uint32_t magic, generation, from, to, kind, instance, size, zero;
    uint8_t digest[32], nonce[HELLO_NONCE], mac[HELLO_MAC];
};
struct reply_wire {
    uint32_t magic, answer, generation, zero;
    uint8_t nonce[HELLO_NONCE], mac[HELLO_MAC];
};
_Static_assert(sizeof(struct hello_wire) == HELLO_BYTES, "no padding");
_Static_assert(sizeof(struct reply_wire) == REPLY_BYTES, "no padding");

/* HMAC of label || a || b. */
static void mac(const uint8_t *secret, const char label[static 8], const void *a, size_t n_a,
                const void *b, size_t n_b, uint8_t out[HELLO_MAC])
{
    uint8_t m[8 + HELLO_BYTES + REPLY_BYTES];
    unsigned n = 0;
    assert(8 + n_a + n_b <= sizeof m);
    memcpy(m, label, 8);
    memcpy(m + 8, a, n_a);
    if (n_b)
        memcpy(m + 8 + n_a, b, n_b);
    const unsigned char *ok =
        HMAC(EVP_sha256(), secret, HELLO_SECRET, m, 8 + n_a + n_b, out, &n);
    assert(ok && n == HELLO_MAC);
}

static void nonce(uint8_t out[HELLO_NONCE])
{
    int ok = RAND_bytes(out, HELLO_NONCE);
    assert(ok == 1);
}

void hello_write(const struct hello *h, const uint8_t secret[HELLO_SECRET],
                 uint8_t out[HELLO_BYTES])
{
    struct hello_wire w = {
        .magic = MAGIC_HELLO,
        .generation = h->generation,
        .from = h->from,
        .to = h->to,
        .kind = h->key.kind,
        .instance = h->key.instance,
        .size = h->key.size,
    };
    memcpy(w.digest, h->key.digest, sizeof w.digest);
    nonce(w.nonce);
    mac(secret, "ds-hello", &w, offsetof(struct hello_wire, mac), NULL, 0, w.mac);
    memcpy(out, &w, sizeof w);
}

enum hello_answer hello_read(const uint8_t in[HELLO_BYTES], const uint8_t secret[HELLO_SECRET],
                             struct hello *ret)
{
    struct hello_wire w;
    uint8_t want[HELLO_MAC];
    memcpy(&w, in, sizeof w);
    if (w.magic != MAGIC_HELLO || w.zero != 0)
        return HELLO_BAD_FORM;
    mac(secret, "ds-hello", &w, offsetof(struct hello_wire, mac), NULL, 0, want);
    if (CRYPTO_memcmp(want, w.mac, HELLO_MAC) != 0)
        return HELLO_BAD_KEY;
    *ret = (struct hello){w.generation, w.from, w.to, {w.kind, w.instance, w.size, {0}}};
    memcpy(ret->key.digest, w.digest, sizeof w.digest);
    return HELLO_YES;
}

void reply_write(enum hello_answer a, uint32_t generation, const uint8_t hello[HELLO_BYTES],
                 const uint8_t secret[HELLO_SECRET], uint8_t out[REPLY_BYTES])
{
    struct reply_wire w = {
        .magic = MAGIC_REPLY, .answer = (uint32_t)a, .generation = generation};
    if (a == HELLO_YES) {
        nonce(w.nonce);
        mac(secret, "ds-reply", hello, HELLO_BYTES, &w, offsetof(struct reply_wire, mac),
            w.mac);
    }
    memcpy(out, &w, sizeof w);
}

enum hello_answer reply_read(const uint8_t in[REPLY_BYTES], const uint8_t hello[HELLO_BYTES],
                             const uint8_t secret[HELLO_SECRET], uint32_t *ret_generation)
{
    struct reply_wire w;
    uint8_t want[HELLO_MAC];
    memcpy(&w, in, sizeof w);
    if (w.magic != MAGIC_REPLY || w.answer >= HELLO_ANSWER_COUNT)
        return HELLO_BAD_FORM;
    *ret_generation = w.generation;
    if (w.answer != HELLO_YES)
        return (enum hello_answer)w.answer;
    mac(secret, "ds-reply", hello, HELLO_BYTES, &w, offsetof(struct reply_wire, mac), want);
    return CRYPTO_memcmp(want, w.mac, HELLO_MAC) == 0 ? HELLO_YES : HELLO_BAD_KEY;
}

void finish_write(const uint8_t hello[HELLO_BYTES], const uint8_t reply[REPLY_BYTES],
                  const uint8_t secret[HELLO_SECRET], uint8_t out[FINISH_BYTES])
{
    mac(secret, "ds-final", hello, HELLO_BYTES, reply, REPLY_BYTES, out);
}

void net_key_digest(const uint32_t *ranks, uint32_t size, uint8_t ret[32])
{
    (void)SHA256((const unsigned char *)ranks, sizeof *ranks * size, ret);
}

int net_key_same(const struct net_key *a, const struct net_key *b)
{
    return a->kind == b->kind && a->instance == b->instance && a->size == b->size &&
           memcmp(a->digest, b->digest, sizeof a->digest) == 0;
}
