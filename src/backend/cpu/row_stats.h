/* SPDX-License-Identifier: Apache-2.0 */
/* row_stats.h - the log-sum-exp of a row of logits.
 *
 * A log-probability is logits[token] - lse, in float32, wherever it is
 * computed: in the sampler, in beam search, and in bauta_model_logprobs(). */
#ifndef BT_ROW_STATS_H
#define BT_ROW_STATS_H

#include "backend/cpu/kernels/kernels.h"

typedef struct bt_row_stats {
    float max; /* largest logit, ignoring NaN */
    float sum; /* of exp(x - max); NaN if a logit is */
    float lse; /* NaN if a logit is NaN or +infinity, or all are -infinity */
} bt_row_stats;

/* exp(x - max) is left in exps (count), which may be x. */
bt_row_stats bt_row_stats_of(const bt_kernels *kernels, const float *x,
                             size_t count, float *exps);

#endif
