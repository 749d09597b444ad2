/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.h - the reduction of sums that are kept in sixteen lanes. */
#ifndef BT_LANES_H
#define BT_LANES_H

#include <stddef.h>
#include <string.h>

enum { BT_LANES = 16 };

/* The lanes as a vector of the compiler's. */
typedef float bt_sixteen __attribute__((vector_size(BT_LANES * sizeof(float))));

/* The sum of the lanes, always by the same binary tree: lane t and lane t + 8,
 * then t and t + 4 of those, t and t + 2, t and t + 1. The first two levels are
 * written as vectors, which the compiler does not find by itself. */
static inline float bt_lanes_sum(const float lanes[BT_LANES])
{
    typedef float four __attribute__((vector_size(16)));
    four a, b, c, d;
    memcpy(&a, lanes, sizeof(a));
    memcpy(&b, lanes + 4, sizeof(b));
    memcpy(&c, lanes + 8, sizeof(c));
    memcpy(&d, lanes + 12, sizeof(d));
    four sum = (a + c) + (b + d);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
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
