/* SPDX-License-Identifier: Apache-2.0 */
/* row_stats.c - the log-sum-exp of a row of logits. */
#include "backend/cpu/row_stats.h"

#include "backend/cpu/kernels/exp2.h"

bt_row_stats bt_row_stats_of(const bt_kernels *kernels, const float *x,
                             size_t count, float *exps)
{
    bt_row_stats row = { .max = kernels->row_max(x, count), .lse = NAN };
    // -infinity: all logits are, or some are NaN.
    float base = row.max == -INFINITY ? 0.0f : row.max;
    row.sum = kernels->row_exp_sum(exps, x, count, base);
    if (isfinite(row.max) && !isnan(row.sum))
        row.lse = (float)((double)row.max + bt_log2((double)row.sum) * BT_LN2);
    return row;
}
