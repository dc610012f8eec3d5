/* train.h: one rank of the trainer, from identity to `done`.
 *
 * Order of a step: forward and backward of all micro-batches by the schedule table, gradients
 * reduced over the data group, tied tables exchanged, norm, agreement (agree.h), clip, AdamW,
 * then checkpoint and validation where due.  Loss is the mean over unmasked tokens of the
 * global batch; the factor 1/tokens enters once, in dlogits, with a count every rank computes
 * by itself from the sample indices.
 */
#ifndef DS_WORKER_TRAIN_H
#define DS_WORKER_TRAIN_H

struct err;
struct link;
struct link_identity;
struct spec;

/* Runs to the last step or to an agreed stop.  A failure is said on the link (link_failed),
 * with the peer that was lost; the caller prints it.  e is not NULL. */
int train_run(const struct spec *s, struct link *link, const struct link_identity *id,
              struct err *e);

#endif
