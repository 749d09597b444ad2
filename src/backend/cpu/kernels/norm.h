/* SPDX-License-Identifier: Apache-2.0 */
/* norm.h - layer norm and RMS norm of rows, forward and backward.
 *
 *     layer   m = mean of x             v = mean of (x - m)^2
 *     RMS     m = 0                     v = mean of x^2
 *
 *     h = (x - m) s,  s = 1 / sqrt(v + epsilon)
 *     y = h gain + bias
 *
 * where x may be the sum of two arrays, which is stored as well.
 *
 * Sums over a row are kept in sixteen lanes, element j in lane j % 16, and
 * reduced by bt_lanes_sum(); squares are fused into their lane. With g = dy
 * gain and means taken over the row,
 *
 *     dx    = s (g - mean of g - h (mean of g h)),  RMS: without mean of g
 *     dgain = sum over rows of dy h
 *     dbias = sum over rows of dy
 *
 * Sums over rows use sixteen lanes as well, row i in lane i % 16, separately
 * for each column. One C source serves every instruction set. */
#ifndef BT_NORM_H
#define BT_NORM_H

#include "backend/op_types.h"

/* No output overlaps another array. */
typedef struct bt_norm {
    bt_norm_kind kind;
    size_t rows, width;
    float epsilon;
    const float *x;        /* (rows, width) */
    const float *residual; /* (rows, width): x + residual is normalized, and
                              stored in `sum`; or NULL */
    float *sum;            /* (rows, width) */
    const float *gain;     /* (width) */
    const float *bias;     /* (width), or NULL */
    float *mean;           /* (rows): m */
    float *scale;          /* (rows): s */
    float *y;              /* (rows, width) */
    const float *dy; /* (rows, width); from here on for the backward pass */
    float *dx;       /* (rows, width) */
    float *dgain;    /* (width), or NULL */
    float *dbias;    /* (width), or NULL */
    bool add_dx, add_dgain, add_dbias; /* to what is there */
} bt_norm;

/* y, mean and scale of rows first to first + count - 1. */
typedef void bt_norm_fn(const bt_norm *norm, size_t first, size_t count);
/* dx of such rows, given mean and scale. */
typedef void bt_norm_backward_fn(const bt_norm *norm, size_t first,
                                 size_t count);
/* dgain and dbias of columns first to first + count - 1, over all rows. */
typedef void bt_norm_backward_gain_fn(const bt_norm *norm, size_t first,
                                      size_t count);

bt_norm_fn bt_norm_f32_c;
bt_norm_backward_fn bt_norm_backward_f32_c;
bt_norm_backward_gain_fn bt_norm_backward_gain_f32_c;

#endif
