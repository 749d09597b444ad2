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

#include "bauta.h"
#include "decode/topk.h"

/* Scratch memory for sampling, one for each thread. */
typedef struct bt_desk {
    const bt_kernels *kernels;
    size_t vocab;
    float *work, *exps;   /* (vocab) */
    unsigned char *marks; /* (vocab) all 0 between calls */
    bt_pick *picks;       /* (picks_room) at least vocab, and beam candidates */
    size_t picks_room;
} bt_desk;

/* The tokens before the one that is sampled. */
typedef struct bt_history {
    const uint32_t *ids; /* (count) NULL unless bt_rules_read_history() */
    size_t count;
    size_t prompt; /* of these, the prompt's */
    size_t limit;  /* most tokens, prompt included */
} bt_history;

typedef enum bt_chosen {
    BT_CHOSEN = 0,
    BT_NOT_FINITE,  /* a logit is NaN or +infinity */
    BT_NOTHING_LEFT /* every token is masked */
} bt_chosen;

/* The maximum and log-sum-exp of a row. exp(x - max) is left in scratch->exps,
 * and `sum` is its sum. */
typedef struct bt_row {
    float max, sum, lse;
} bt_row;
bt_chosen bt_row_look(bt_row *out, const bt_desk *scratch, const float *x);

/* Whether any logits processor would change the row, and whether one reads the
 * history's tokens. */
bool bt_rules_act(const bauta_generate_options *o, const bt_history *h);
bool bt_rules_read_history(const bauta_generate_options *o);
/* Apply them in this order: repetition penalty, repeated n-grams, suppressed
 * tokens, bad words, end tokens before the minimum length, forced tokens. */
void bt_rules_apply(float *x, const bt_desk *scratch,
                    const bauta_generate_options *o, const bt_history *h);

/* The warpers. */
void bt_warp_temperature(float *x, const bt_desk *scratch, float temperature);
void bt_warp_top_k(float *x, const bt_desk *scratch, size_t k);
void bt_warp_top_p(float *x, const bt_desk *scratch, float p);
void bt_warp_min_p(float *x, const bt_desk *scratch, float p);

typedef struct bt_choice {
    uint32_t token;
    float logprob; /* from the model's logits */
    double score;  /* log-probability after processors and warpers */
} bt_choice;

/* The most likely token, or a random one if the options say so. `logits` are
 * not changed. */
bt_chosen bt_sample(bt_choice *out, const bt_desk *scratch, const float *logits,
                    const bauta_generate_options *o, const bt_history *h);

/* A uniform number in [0, 1) for a seed and a position. */
double bt_draw(uint64_t seed, uint64_t position);

#endif
