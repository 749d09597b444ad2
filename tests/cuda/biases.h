/* SPDX-License-Identifier: Apache-2.0 */
/* biases.h - softcaps and biases with random numbers, for the checks of the GPU
 * kernels: here, on the device, and what they do to a score in float64. */
#ifndef BT_TEST_CUDA_BIASES_H
#define BT_TEST_CUDA_BIASES_H

#include "mask/mask.h"
#include "masks.h"

/* The terms of a kind, as bits. */
enum {
    BIAS_NONE = 0,
    BIAS_CAP = 1,
    BIAS_SLOPES = 2,
    BIAS_TABLE = 4,
    BIAS_HOLES = 8, /* some biases of the table are -infinity */
    BIAS_POSITIONS = 16
};

static const char *const bias_names[] = { "",           "cap",   "slopes",
                                          "cap+slopes", "table", "cap+table" };

typedef struct test_bias {
    int kind;
    size_t heads, rows, distances;
    ptrdiff_t first;
    float softcap, *slopes, *table;
    int64_t *anchors; /* (rows) the key at distance 0 */
    uint32_t *positions;
    float *device_slopes, *device_table, *device_dtable;
    uint32_t *device_positions;
} test_bias;

/* For all rows of a mask. Without BIAS_POSITIONS they are those of the mask. */
static inline test_bias bias_make(int kind, const bauta_mask *mask,
                                  size_t heads)
{
    test_bias b = { .kind = kind, .heads = heads, .rows = mask->queries };
    const bt_row_list *rows = bt_mask_rows(mask);
    if (kind == BIAS_NONE)
        return b;
    if (kind & BIAS_CAP)
        b.softcap = below(2) ? 2.5f : 20.0f;
    b.distances = 1 + below(below(3) ? 40 : 700);
    b.first = (ptrdiff_t)below(30) - (ptrdiff_t)below(b.distances + 20);
    b.slopes = malloc(heads * sizeof(float));
    b.table = malloc(b.distances * heads * sizeof(float));
    b.anchors = malloc((b.rows + 1) * sizeof(*b.anchors));
    b.positions = malloc((b.rows + 1) * sizeof(*b.positions));
    // Up to those of the steepest head of ALiBi.
    for (size_t i = 0; i < heads; i++)
        b.slopes[i] =
            ldexpf(0.7f + 0.3f * test_float(&random_stream), -(int)below(9));
    for (size_t i = 0; i < b.distances * heads; i++)
        b.table[i] = kind & BIAS_HOLES && below(4) == 0
                         ? -INFINITY
                         : 3.0f * test_float(&random_stream);
    for (size_t i = 0; i < b.rows; i++) {
        b.positions[i] = (uint32_t)below(mask->keys + 9);
        b.anchors[i] = kind & BIAS_POSITIONS
                           ? (int64_t)(rows->origin[i] + b.positions[i])
                           : (int64_t)(i + mask->keys) - (int64_t)mask->queries;
    }
    b.device_slopes = to_device(b.slopes, heads * 4);
    b.device_table = to_device(b.table, b.distances * heads * 4);
    b.device_dtable = to_device(b.table, b.distances * heads * 4);
    b.device_positions = to_device(b.positions, b.rows * 4);
    return b;
}

static inline void bias_free(test_bias *b)
{
    free(b->slopes);
    free(b->table);
    free(b->anchors);
    free(b->positions);
    cudaFree(b->device_slopes);
    cudaFree(b->device_table);
    cudaFree(b->device_dtable);
    cudaFree(b->device_positions);
    *b = (test_bias){ 0 };
}

/* As a call takes it, for rows from `first` on. `dtable`: its gradient is
 * wanted. */
static inline bauta_attention_bias bias_of(const test_bias *b, size_t first,
                                           bool dtable)
{
    bauta_attention_bias to = BAUTA_ATTENTION_BIAS_INIT;
    to.softcap = b->softcap;
    if (b->kind & BIAS_SLOPES)
        to.slopes = b->device_slopes;
    if (b->kind & BIAS_TABLE) {
        to.table = b->device_table;
        to.distances = b->distances;
        to.first_distance = b->first;
        to.dtable = dtable ? b->device_dtable : NULL;
    }
    if (b->kind & BIAS_POSITIONS)
        to.positions = b->device_positions + first;
    return to;
}

/* The row of the table for a pair. */
static inline size_t bias_row(const test_bias *b, size_t row, size_t key)
{
    int64_t at = (int64_t)key - b->anchors[row] - (int64_t)b->first;
    return at < 0                        ? 0
           : at >= (int64_t)b->distances ? b->distances - 1
                                         : (size_t)at;
}

/* A scaled score with its softcap and bias. *size: the magnitudes of what is
 * added and of the softcap; *slope: the derivative of the softcap. */
static inline double bias_score(const test_bias *b, double x, size_t row,
                                size_t head, size_t key, double *size,
                                double *slope)
{
    double m = 0.0;
    *size = 0.0;
    *slope = 1.0;
    if (b->kind & BIAS_CAP) {
        double t = tanh(x / (double)b->softcap);
        x = (double)b->softcap * t;
        *size = (double)b->softcap;
        *slope = 1.0 - t * t;
    }
    if (b->kind & BIAS_SLOPES)
        m = (double)b->slopes[head] * (double)((int64_t)key - b->anchors[row]);
    if (b->kind & BIAS_TABLE)
        m = (double)b->table[bias_row(b, row, key) * b->heads + head];
    *size += isfinite(m) ? fabs(m) : 0.0;
    return x + m;
}

#endif
