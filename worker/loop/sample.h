/* sample.h: what the trained model goes on with from train.sample.prompt.
 *
 * For a few tokens: each is one forward over the pipeline, with the last seq_len tokens as the
 * first sequence of a micro-batch and nothing kept from the token before.  The first rank of
 * the last stage chooses and tells all ranks; so the text is the same wherever the logits have
 * the same bits.
 */
#ifndef DS_LOOP_SAMPLE_H
#define DS_LOOP_SAMPLE_H

#include <stdint.h>

struct err;
struct groups;
struct params;
struct pipeline;
struct spec;

/* Between steps; `p` is the rank's, of which input and losses are not used.  Rank 0 says the
 * text as an event.  Collective. */
int sample_run(const struct spec *s, const struct params *params, struct groups *g,
               const struct pipeline *p, struct err *e);

/* Of logits[n]: the largest, the first of equals, if temperature is 0; else drawn with chances
 * in proportion to exp(logit / temperature), by `u` in [0, 1). */
uint32_t sample_choose(const float *logits, uint32_t n, double temperature, double u);

#endif
