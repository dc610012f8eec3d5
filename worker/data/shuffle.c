/* The bijection behind the data order: a balanced Feistel network over the smallest even number
 * of bits that holds n, walked until the value falls below n (at most 4 n values, so 4 walks on
 * average).  A Feistel network permutes whatever its round function is; ours is the finaliser
 * of splitmix64 (Steele, Lea & Flood 2014). */
#include "worker/data/data.h"

enum { ROUNDS = 6 };

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t data_shuffle(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i)
{
    unsigned half = 1;
    while (half < 32 && (n - 1) >> (2 * half))
        half++;
    uint64_t mask = (1ull << half) - 1;
    uint64_t key = mix(seed ^ mix(epoch));
    do {
        uint64_t l = i >> half, r = i & mask;
        for (uint64_t k = 0; k < ROUNDS; k++) {
            uint64_t t = l ^ (mix(key ^ mix(r + (k << 56))) & mask);
            l = r;
            r = t;
        }
        i = l << half | r;
    } while (i >= n);
    return i;
}
