/* data.h: files as an endless, seeded, resumable stream of training windows.
 *
 * Globs are resolved on the host; each real file counts once (by device and inode), validation
 * files are taken out of training.  Files are sorted by path.  A window is seq_len + 1
 * consecutive tokens of one file, windows do not overlap but for that token, and a file's last
 * one is padded; targets in the padding are -1 (ignored).  Sample i of the run is
 * window shuffle(epoch = i / n, i % n): a seeded bijection, so any split of samples over ranks
 * and any resume see the same stream.  Sample index alone is the state.
 *
 * Tokens are bytes (kind text; padding is id 256), or what a token shard holds (shard.h;
 * padding is id 0, which no target and no loss sees either).
 */
#ifndef DS_DATA_DATA_H
#define DS_DATA_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"

struct err;
struct spec;
struct data;

struct data *data_open(const struct spec *s, struct err *e);
void data_free(struct data *d);
OWN(data);

uint64_t data_windows(const struct data *d);            /* training windows per epoch */
uint64_t data_validation_windows(const struct data *d); /* 0: no validation */
/* XXH3-64 of the training files' sizes and of the first and last 64 KiB of each: changed data
 * is noticed on resume. */
uint64_t data_digest(const struct data *d);
/* ids, targets: [seq_len] each.  ERR_STORAGE if the file changed or cannot be read, or holds an
 * id that the model does not have. */
int data_train(struct data *d, uint64_t sample, int32_t *ids, int32_t *targets, struct err *e);
int data_validation(struct data *d, uint64_t window, int32_t *ids, int32_t *targets,
                    struct err *e);
/* Targets that count in sample, without reading it. */
uint32_t data_train_count(const struct data *d, uint64_t sample);
/* Beyond the last validation window: 0. */
uint32_t data_validation_count(const struct data *d, uint64_t window);
/* The file list for people: "12 files, 251 kB, 1969 windows of 128". */
const char *data_describe(const struct data *d);

/* Seeded bijection of [0, n): Feistel network with cycle walking. */
uint64_t data_shuffle(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);

#endif
