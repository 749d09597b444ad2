/* SPDX-License-Identifier: Apache-2.0 */
/* sampling.h - from a row of logits to a token.
 *
 * Every option is a function on a row of floats. They are applied in the order
 * of transformers: first the logits processors, which mask and force tokens;
 * then, when sampling, the warpers. A masked token has -infinity. A random draw
 * depends on the seed and the position only, so a text does not depend on the
 * rest of the batch. */
#ifndef BT_SAMPLING_H
#define BT_SAMPLING_H

#include "backend/cpu/kernels/kernels.h"
#include "backend/op_types.h"

/* ---- The log-sum-exp of a row ------------------------------------------- */

/* A log-probability is logits[token] - lse, in float32, wherever it is
 * computed: in the sampler, in beam search, and in bauta_model_logprobs(). */
typedef struct bt_row_stats {
    float max; /* largest logit, ignoring NaN */
    float sum; /* of exp(x - max); NaN if a logit is */
    float lse; /* NaN if a logit is NaN or +infinity, or all are -infinity */
} bt_row_stats;

/* exp(x - max) is left in exps (count), which may be x. */
bt_row_stats bt_row_stats_of(const bt_kernels *kernels, const float *x,
                             size_t count, float *exps);

/* ---- The k largest of many numbers -------------------------------------- */

/* A vocabulary has tens of thousands of scores, of which a few are wanted, so
 * nothing is sorted. A heap holds the best so far with the smallest at its
 * root, and a block whose maximum does not exceed the root is skipped. */
typedef struct bt_topk_item {
    float value;
    uint32_t row, id;
} bt_topk_item;

typedef struct bt_topk {
    size_t want, count;
    bt_topk_item *all; /* (want) */
} bt_topk;

/* Start empty, for at most `want` items, with an array of that size. */
bt_topk bt_topk_init(bt_topk_item *memory, size_t want);

/* The largest number of each block of BT_TOPK_BLOCK, the last one shorter, and
 * of all; ignoring NaN. */
enum { BT_TOPK_BLOCK = 256 };
float bt_block_maxima(float *maxima, const bt_kernels *kernels, const float *x,
                      size_t count);

/* Add a row: the value of id is (x[id] - less) + more. Rows come in ascending
 * order, and of equal values the first one wins. -infinity and NaN are never
 * taken. `maxima` are those of the blocks of x. */
void bt_topk_add_row(bt_topk *picks, const float *x, size_t count,
                     const float *maxima, uint32_t row, float less, float more);

/* Sort in descending order. */
void bt_topk_sort(bt_topk *picks);

/* ---- Tokens ------------------------------------------------------------- */

/* Scratch memory for sampling, one for each thread. */
typedef struct bt_sampler_scratch {
    const bt_kernels *kernels;
    size_t vocab;
    float *work, *exps;   /* (vocab) */
    float *maxima;        /* (blocks of vocab) */
    unsigned char *marks; /* (vocab) all 0 between calls */
    bt_topk_item *topk;   /* (topk_capacity) at least vocab, and beam candidates
                           */
    size_t topk_capacity;
    float *lse; /* (open beams) */
} bt_sampler_scratch;

/* The maximum and log-sum-exp of a row. exp(x - max) is left
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
