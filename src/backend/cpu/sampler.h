/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.h - from a row of logits to a token.
 *
 * Every option is a function on a row of floats. They are applied in the order
 * of transformers: first the logits processors, which mask and force tokens;
 * then, when sampling, the warpers. A masked token has -infinity. A random draw
 * depends on the seed and the position only, so a text does not depend on the
 * rest of the batch. */
#ifndef BT_SAMPLER_H
#define BT_SAMPLER_H

#include "backend/cpu/row_stats.h"
#include "backend/cpu/topk.h"
#include "backend/op_types.h"

/* Scratch memory for sampling, one for each thread. */
typedef struct bt_sampler_scratch {
    const bt_kernels *kernels;
    size_t vocab;
    float *work, *exps;   /* (vocab) */
    unsigned char *marks; /* (vocab) all 0 between calls */
    bt_topk_item *topk;   /* (topk_capacity) at least vocab, and beam candidates
                           */
    size_t topk_capacity;
    float *lse; /* (open beams) */
} bt_sampler_scratch;

/* The maximum and log-sum-exp of a row; see row_stats.h. exp(x - max) is left
 * in scratch->exps. */
bt_sample_status bt_row_stats_compute(bt_row_stats *out,
                                      const bt_sampler_scratch *scratch,
                                      const float *x);

/* Apply the logits processors in this order: repetition penalty, bias, presence
 * and frequency penalties, repeated n-grams, suppressed tokens, bad words, end
 * tokens before the minimum length, forced tokens. */
void bt_logits_processors_apply(float *x, const bt_sampler_scratch *scratch,
                                const bauta_generate_options *o,
                                const bt_token_history *h);

/* The warpers. */
void bt_warp_temperature(float *x, const bt_sampler_scratch *scratch,
                         float temperature);
void bt_warp_top_k(float *x, const bt_sampler_scratch *scratch, size_t k);
void bt_warp_top_p(float *x, const bt_sampler_scratch *scratch, float p);
void bt_warp_min_p(float *x, const bt_sampler_scratch *scratch, float p);

/* The most likely token, or a random one if the options say so. `logits` are
 * not changed. */
bt_sample_status bt_sample(bt_sampled_token *out,
                           const bt_sampler_scratch *scratch,
                           const float *logits, const bauta_generate_options *o,
                           const bt_token_history *h);

/* The best continuations of some open beams: the best one first; of equal
 * scores the earlier beam and the smaller token win. */
typedef struct bt_beam_rows {
    size_t beams;
    const float *rows;   /* (beams, vocab) logits */
    size_t stride;       /* of rows */
    const float *scores; /* (beams) of the beams so far */
    const bauta_generate_options *options;
    const bt_token_history *histories; /* (beams) */
    size_t want;                       /* choices, at most */
    bt_beam_choice *choices;           /* (want) */
    size_t count;                      /* choices found */
} bt_beam_rows;
bt_sample_status bt_beam_rows_select(bt_beam_rows *beams,
                                     const bt_sampler_scratch *scratch);

/* A uniform number in [0, 1) for a seed and a position. */
double bt_sample_uniform(uint64_t seed, uint64_t position);

#endif
