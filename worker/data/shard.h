/* shard.h: the token files of llm.c (its dev/data/data_common.py).
 *
 * 256 little-endian int32, of which the first three are magic, version and the number of
 * tokens; then the tokens, without padding.  Two kinds: 20240520 version 1 holds uint16 (gpt2),
 * 20240801 version 7 uint32 (llama 3).  Pure; trusts no byte.
 */
#ifndef DS_DATA_SHARD_H
#define DS_DATA_SHARD_H

#include <stdint.h>

struct err;

enum { SHARD_HEADER_BYTES = 1024 };

struct shard {
    uint32_t width; /* bytes of a token: 2 or 4 */
    uint64_t tokens;
};

/* ERR_STORAGE unless header and size of the file say the same. */
int shard_parse(const uint8_t head[SHARD_HEADER_BYTES], uint64_t file_bytes, struct shard *ret,
                struct err *e);
/* Token i of those at `raw`; width 1, 2 or 4. */
uint32_t shard_token(const uint8_t *raw, uint32_t width, uint64_t i);

#endif
