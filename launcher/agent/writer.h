/* writer.h: snapshots from the workers' memfds to a checkpoint on disk.
 *
 *     <dir>/step-00000100-g3.tmp/rank-00000.safetensors ...   while it is written
 *     <dir>/step-00000100-g3/...  manifest.json               committed, never touched again
 *
 * A shard is copied with large sequential writes, its bytes are digested on the way and
 * compared with what the worker said, and it is fsynced before `written` is answered.  A commit
 * checks that the shard of every rank is there, writes and fsyncs the manifest and the folder,
 * renames, fsyncs the parent, then prunes: the newest `keep` committed checkpoints stay (newest
 * by generation, then step: a resumed run supersedes what it did not resume from), others go by
 * rename to .del and removal; so do .tmp folders that nobody can commit any more.  Agents of
 * several nodes write into one .tmp.  Nothing here loads: what is torn is never renamed.
 *
 * The work runs on libuv's threads; results come from the loop.  A shard that is cancelled
 * (its generation is being killed) is dropped without a result; a commit, whose shards are all
 * on disk, is always finished.  Commits run one at a time, in order.
 */
#ifndef DS_AGENT_WRITER_H
#define DS_AGENT_WRITER_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct uv_loop_s;
struct writer;

enum { WRITER_MANIFEST_MAX = 256 << 20 };

struct writer_job {  /* copied; the fd is duplicated */
    const char *dir; /* absolute; made if it is not there */
    int fd;
    uint32_t rank, world, generation, keep;
    uint64_t step, offset, bytes;
    uint8_t digest[16]; /* XXH3-128, canonical; of a shard */
};

struct writer_result { /* borrowed for the call */
    enum writer_task { WRITER_SHARD, WRITER_COMMIT, WRITER_TIDY } task;
    uint32_t rank, generation;
    uint64_t step;
    const char *path;      /* of what was written */
    const struct err *why; /* NULL: it is on disk */
    int64_t took_ns;
};

typedef void writer_fn(void *ctx, const struct writer_result *r);

struct writer *writer_new(struct uv_loop_s *loop, writer_fn *on_result, void *ctx);
void writer_shard(struct writer *w, const struct writer_job *j);
void writer_commit(struct writer *w, const struct writer_job *j);
/* Removes what was not committed up to and with j->generation, whose ranks must all have ended,
 * on every node. */
void writer_tidy(struct writer *w, const struct writer_job *j);
/* Shards in work are given up, as soon as the disk lets go. */
void writer_cancel(struct writer *w);
bool writer_idle(const struct writer *w);
/* After the cancel: no result comes any more.  Frees itself once its threads are done. */
void writer_free(struct writer *w);

/* The steps themselves, on the calling thread.  *stop may be set by another thread; then
 * they fail with ERR_STOPPED.  ret_path is the caller's to free, also on failure. */
int writer_do_shard(const struct writer_job *j, const _Atomic bool *stop, char **ret_path,
                    struct err *e);
int writer_do_commit(const struct writer_job *j, char **ret_path, struct err *e);
void writer_do_tidy(const struct writer_job *j);

#endif
