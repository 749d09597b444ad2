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
#include "bauta.h"
#include "decode/topk.h"

/* Scratch memory for sampling, one for each thread. */
typedef struct bt_sampler_scratch {
    const bt_kernels *kernels;
    size_t vocab;
    float *work, *exps;   /* (vocab) */
    unsigned char *marks; /* (vocab) all 0 between calls */
    bt_topk_item *topk;   /* (picks_room) at least vocab, and beam candidates */
    size_t topk_capacity;
} bt_sampler_scratch;

/* The tokens before the one that is sampled. */
typedef struct bt_token_history {
    const uint32_t
        *ids; /* (count) NULL unless bt_logits_processors_need_history() */
    size_t count;
    size_t prompt; /* of these, the prompt's */
    size_t limit;  /* most tokens, prompt included */
} bt_token_history;

typedef enum bt_sample_status {
    BT_SAMPLE_OK = 0,
    BT_SAMPLE_NOT_FINITE, /* a logit is NaN or +infinity */
    BT_SAMPLE_ALL_MASKED  /* every token is masked */
} bt_sample_status;

/* The maximum and log-sum-exp of a row; see row_stats.h. exp(x - max) is left
 * in scratch->exps. */
bt_sample_status bt_row_stats_compute(bt_row_stats *out,
                                      const bt_sampler_scratch *scratch,
                                      const float *x);

/* Whether any logits processor would change the row, and whether one reads the
 * history's tokens. */
bool bt_logits_processors_active(const bauta_generate_options *o,
                                 const bt_token_history *h);
bool bt_logits_processors_need_history(const bauta_generate_options *o);
/* Apply them in this order: repetition penalty, repeated n-grams, suppressed
 * tokens, bad words, end tokens before the minimum length, forced tokens. */
void bt_logits_processors_apply(float *x, const bt_sampler_scratch *scratch,
                                const bauta_generate_options *o,
                                const bt_token_history *h);

/* The warpers. */
void bt_warp_temperature(float *x, const bt_sampler_scratch *scratch,
                         float temperature);
void bt_warp_top_k(float *x, const bt_sampler_scratch *scratch, size_t k);
void bt_warp_top_p(float *x, const bt_sampler_scratch *scratch, float p);
void bt_warp_min_p(float *x, const bt_sampler_scratch *scratch, float p);

typedef struct bt_sampled_token {
    uint32_t token;
    float logprob; /* from the model's logits */
    double score;  /* log-probability after processors and warpers */
} bt_sampled_token;

/* The most likely token, or a random one if the options say so. `logits` are
 * not changed. */
bt_sample_status bt_sample(bt_sampled_token *out,
                           const bt_sampler_scratch *scratch,
                           const float *logits, const bauta_generate_options *o,
                           const bt_token_history *h);

/* A uniform number in [0, 1) for a seed and a position. */
double bt_sample_uniform(uint64_t seed, uint64_t position);

#endif
