/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.h - the reduction of sums that are kept in sixteen lanes. */
#ifndef BT_LANES_H
#define BT_LANES_H

#include <stddef.h>

enum { BT_LANES = 16 };

/* The sum of the lanes, always by the same binary tree. */
static inline float bt_lanes_sum(const float lanes[BT_LANES])
{
    float sum[BT_LANES / 2];
    for (size_t t = 0; t < BT_LANES / 2; t++)
        sum[t] = lanes[t] + lanes[t + BT_LANES / 2];
    for (size_t width = BT_LANES / 4; width; width /= 2)
        for (size_t t = 0; t < width; t++)
            sum[t] += sum[t + width];
    return sum[0];
}

/* The same tree, in double. */
static inline double bt_lanes_sum_double(const double lanes[BT_LANES])
{
    double sum[BT_LANES / 2];
    for (size_t t = 0; t < BT_LANES / 2; t++)
        sum[t] = lanes[t] + lanes[t + BT_LANES / 2];
    for (size_t width = BT_LANES / 4; width; width /= 2)
        for (size_t t = 0; t < width; t++)
            sum[t] += sum[t + width];
    return sum[0];
}

#endif
