/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.h - from the logits of a row to a token.
 *
 * What an option does is a function on a row of floats, in the order in which
 * transformers applies them: first the rules that forbid and force, then, where
 * tokens are drawn, the warpers. What a function takes away becomes -infinity.
 * A draw is a function of the seed and of the position alone, so a text does
 * not depend on what is made beside it. */
#ifndef BT_SAMPLER_H
#define BT_SAMPLER_H

#include "bauta.h"
#include "decode/topk.h"

/* Memory that choosing needs, one for each thread. */
typedef struct bt_desk {
    const bt_kernels *kernels;
    size_t vocab;
    float *work, *exps;   /* (vocab) */
    unsigned char *marks; /* (vocab) 0 between calls */
    bt_pick *picks;       /* (picks_room) at least vocab, and what beams want */
    size_t picks_room;
} bt_desk;

/* What has been read before the token that is chosen. */
typedef struct bt_history {
    const uint32_t *ids; /* (count) NULL unless bt_rules_read_history() */
    size_t count;
    size_t prompt; /* of them were given */
    size_t limit;  /* how many there may be in the end */
} bt_history;

typedef enum bt_chosen {
    BT_CHOSEN = 0,
    BT_NOT_FINITE,  /* a logit is NaN or +infinity: a broken model */
    BT_NOTHING_LEFT /* every token is forbidden */
} bt_chosen;

/* Maximum and log-sum-exp of a row; its exponentials, less the maximum, are in
 * desk->exps, and `sum` is their sum. */
typedef struct bt_row {
    float max, sum, lse;
} bt_row;
bt_chosen bt_row_look(bt_row *out, const bt_desk *desk, const float *x);

/* Whether any rule changes a row behind `count` tokens, and whether one looks
 * at the tokens themselves. */
bool bt_rules_act(const bauta_generate_options *o, const bt_history *h);
bool bt_rules_read_history(const bauta_generate_options *o);
/* Apply them: repetition, n-grams, banned, words, ends that come too early,
 * forced. */
void bt_rules_apply(float *x, const bt_desk *desk,
                    const bauta_generate_options *o, const bt_history *h);

/* The warpers. */
void bt_warp_temperature(float *x, const bt_desk *desk, float temperature);
void bt_warp_top_k(float *x, const bt_desk *desk, size_t k);
void bt_warp_top_p(float *x, const bt_desk *desk, float p);
void bt_warp_min_p(float *x, const bt_desk *desk, float p);

typedef struct bt_choice {
    uint32_t token;
    float logprob; /* by the model */
    double score;  /* the logarithm of the probability that it was chosen by */
} bt_choice;

/* The likeliest token, or one that is drawn; `logits` stay as they are. */
bt_chosen bt_sample(bt_choice *out, const bt_desk *desk, const float *logits,
                    const bauta_generate_options *o, const bt_history *h);

/* From 0 to below 1, for a seed and a position. */
double bt_draw(uint64_t seed, uint64_t position);

#endif
