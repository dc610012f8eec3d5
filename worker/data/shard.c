#include "worker/data/shard.h"

#include "common/base/err.h"

static const struct {
    uint32_t magic, version, width;
} kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

uint32_t shard_token(const uint8_t *raw, uint32_t width, uint64_t i)
{
    uint32_t v = 0;
    for (uint32_t b = 0; b < width; b++)
        v |= (uint32_t)raw[i * width + b] << 8 * b;
    return v;
}

int shard_parse(const uint8_t head[SHARD_HEADER_BYTES], uint64_t file_bytes, struct shard *ret,
                struct err *e)
{
    const uint32_t magic = shard_token(head, 4, 0), version = shard_token(head, 4, 1),
                   tokens = shard_token(head, 4, 2);
    uint32_t k = 0;
    while (k < N_KINDS && kinds[k].magic != magic)
        k++;
    if (k == N_KINDS)
        return err_set(e, ERR_STORAGE, "not a token shard: magic number %u, not %u or %u",
                       magic, kinds[0].magic, kinds[1].magic);
    if (kinds[k].version != version)
        return err_set(e, ERR_STORAGE, "token shard of version %u, not %u", version,
                       kinds[k].version);
    if (tokens > INT32_MAX)
        return err_set(e, ERR_STORAGE, "token shard of %u tokens", tokens);
    const uint64_t want = SHARD_HEADER_BYTES + (uint64_t)tokens * kinds[k].width;
    if (file_bytes != want)
        return err_set(e, ERR_STORAGE,
                       "token shard of %u tokens is %llu bytes, its header makes %llu", tokens,
                       (unsigned long long)file_bytes, (unsigned long long)want);
    *ret = (struct shard){kinds[k].width, tokens};
    return 0;
}
