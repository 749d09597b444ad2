/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - the reference kernels. x86/pointwise_*.c include this file with
 * another KERNEL to compile the twins. */
#include "backend/cpu/kernels/norm.h"

#include "backend/cpu/kernels/lanes.h"

#include <math.h>
#include <string.h>

#ifndef KERNEL
#define KERNEL(name) name##_c
#endif

/* Prefetch a later row of a matrix: rows are too short for the processor to
 * find out by itself in time. */
enum { ROWS_AHEAD = 4 };

static void row_prefetch(const float *x, size_t row, size_t end, size_t width)
{
    enum { LINE_FLOATS = 16 };
    const float *ahead = x + (row + ROWS_AHEAD) * width;
    for (size_t j = 0; row + ROWS_AHEAD < end && j < width; j += LINE_FLOATS)
        __builtin_prefetch(ahead + j, 0, 2); // into the L2 cache
}

static float row_sum(const float *x, size_t count)
{
    float lanes[BT_LANES] = { 0 };
    size_t j = 0;
    for (; j + BT_LANES <= count; j += BT_LANES)
        for (size_t t = 0; t < BT_LANES; t++)
            lanes[t] += x[j + t];
    for (size_t t = 0; j < count; j++, t++)
        lanes[t] += x[j];
    return bt_lanes_sum(lanes);
}

/* The sum of (x - mean)^2. */
static float row_squares(const float *x, size_t count, float mean)
{
    float lanes[BT_LANES] = { 0 };
    size_t j = 0;
    for (; j + BT_LANES <= count; j += BT_LANES)
        for (size_t t = 0; t < BT_LANES; t++) {
            float d = x[j + t] - mean;
            lanes[t] = fmaf(d, d, lanes[t]);
        }
    for (size_t t = 0; j < count; j++, t++)
        lanes[t] = fmaf(x[j] - mean, x[j] - mean, lanes[t]);
    return bt_lanes_sum(lanes);
}

static void row_add(float *restrict to, const float *restrict a,
                    const float *restrict b, size_t count)
{
    for (size_t j = 0; j < count; j++)
        to[j] = a[j] + b[j];
}

void KERNEL(bt_norm_f32)(const bt_norm *norm, size_t first, size_t count)
{
    size_t width = norm->width;
    const float *restrict gain = norm->gain, *restrict bias = norm->bias;
    for (size_t i = first; i < first + count; i++) {
        const float *restrict x = norm->x + i * width;
        float *restrict y = norm->y + i * width;
        float mean = 0;
        row_prefetch(norm->x, i, first + count, width);
        row_prefetch(norm->y, i, first + count, width);
        if (norm->residual) {
            row_prefetch(norm->residual, i, first + count, width);
            row_prefetch(norm->sum, i, first + count, width);
            row_add(norm->sum + i * width, x, norm->residual + i * width,
                    width);
            x = norm->sum + i * width;
        }
        if (norm->kind == BT_NORM_LAYER)
            mean = row_sum(x, width) / (float)width;
        float square = row_squares(x, width, mean) / (float)width;
        float scale = 1.0f / sqrtf(square + norm->epsilon);
        norm->mean[i] = mean;
        norm->scale[i] = scale;
        if (bias)
            for (size_t j = 0; j < width; j++)
                y[j] = fmaf((x[j] - mean) * scale, gain[j], bias[j]);
        else
            for (size_t j = 0; j < width; j++)
                y[j] = (x[j] - mean) * scale * gain[j];
    }
}

/* The sums over a row of g = dy gain, and of g h. */
static void row_sums(const bt_norm *norm, size_t row, float *g_sum,
                     float *gh_sum)
{
    float g_lanes[BT_LANES] = { 0 }, gh_lanes[BT_LANES] = { 0 };
    const float *x = norm->x + row * norm->width, *gain = norm->gain;
    const float *dy = norm->dy + row * norm->width;
    float mean = norm->mean[row], scale = norm->scale[row];
    size_t j = 0;
    for (; j + BT_LANES <= norm->width; j += BT_LANES)
        for (size_t t = 0; t < BT_LANES; t++) {
            float g = dy[j + t] * gain[j + t];
            g_lanes[t] += g;
            gh_lanes[t] = fmaf(g, (x[j + t] - mean) * scale, gh_lanes[t]);
        }
    for (size_t t = 0; j < norm->width; j++, t++) {
        float g = dy[j] * gain[j];
        g_lanes[t] += g;
        gh_lanes[t] = fmaf(g, (x[j] - mean) * scale, gh_lanes[t]);
    }
    *g_sum = bt_lanes_sum(g_lanes);
    *gh_sum = bt_lanes_sum(gh_lanes);
}

void KERNEL(bt_norm_backward_f32)(const bt_norm *norm, size_t first,
                                  size_t count)
{
    size_t width = norm->width;
    const float *restrict gain = norm->gain;
    bool add = norm->add_dx;
    for (size_t i = first; i < first + count; i++) {
        const float *restrict x = norm->x + i * width;
        const float *restrict dy = norm->dy + i * width;
        float *restrict dx = norm->dx + i * width;
        float mean = norm->mean[i], scale = norm->scale[i], g_mean, gh_mean;
        row_prefetch(norm->x, i, first + count, width);
        row_prefetch(norm->dy, i, first + count, width);
        row_prefetch(norm->dx, i, first + count, width);
        row_sums(norm, i, &g_mean, &gh_mean);
        g_mean = norm->kind == BT_NORM_LAYER ? g_mean / (float)width : 0;
        gh_mean /= (float)width;
        for (size_t j = 0; j < width; j++) {
            float h = (x[j] - mean) * scale;
            float d = scale * fmaf(-h, gh_mean, dy[j] * gain[j] - g_mean);
            dx[j] = add ? dx[j] + d : d;
        }
    }
}

/* Sums over rows, of some columns at a time. */
enum { COLUMNS = 128 };

typedef struct lane_sums {
    float sum[BT_LANES][COLUMNS];
} lane_sums;

/* Reduce each column by the tree of bt_lanes_sum() and store it. */
static void lane_sums_store(lane_sums *l, float *to, size_t count, bool add)
{
    for (size_t width = BT_LANES / 2; width; width /= 2)
        for (size_t t = 0; t < width; t++)
            for (size_t c = 0; c < COLUMNS; c++)
                l->sum[t][c] += l->sum[t + width][c];
    for (size_t c = 0; c < count; c++)
        to[c] = add ? to[c] + l->sum[0][c] : l->sum[0][c];
}

/* The sums of dy h (or, with `plain`, of dy) of at most COLUMNS columns. */
static void columns_sum(const bt_norm *norm, bool plain, lane_sums *l,
                        size_t first, size_t count)
{
    memset(l, 0, sizeof(*l));
    for (size_t i = 0; i < norm->rows; i++) {
        float *restrict sum = l->sum[i % BT_LANES];
        const float *restrict x = norm->x + i * norm->width + first;
        const float *restrict dy = norm->dy + i * norm->width + first;
        float mean = norm->mean[i], scale = norm->scale[i];
        if (plain)
            for (size_t c = 0; c < count; c++)
                sum[c] += dy[c];
        else
            for (size_t c = 0; c < count; c++)
                sum[c] = fmaf(dy[c], (x[c] - mean) * scale, sum[c]);
    }
}

void KERNEL(bt_norm_backward_gain_f32)(const bt_norm *norm, size_t first,
                                       size_t count)
{
    lane_sums l;
    for (size_t c = first, end = first + count, n; c < end; c += n) {
        n = end - c < COLUMNS ? end - c : COLUMNS;
        if (norm->dgain) {
            columns_sum(norm, false, &l, c, n);
            lane_sums_store(&l, norm->dgain + c, n, norm->add_dgain);
        }
        if (norm->dbias) {
            columns_sum(norm, true, &l, c, n);
            lane_sums_store(&l, norm->dbias + c, n, norm->add_dbias);
        }
    }
}
