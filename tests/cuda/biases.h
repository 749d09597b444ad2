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
    BIAS_HOLES = 8,      /* some biases of the table are -infinity */
    BIAS_POSITIONS = 16, /* positions are given, or rows of the tensor */
    BIAS_TENSOR = 32,
    BIAS_SHARED = 64 /* rows and heads may share elements of the tensor */
};

static inline const char *bias_name(int kind)
{
    static const char *const names[] = { "",           "cap",   "slopes",
                                         "cap+slopes", "table", "cap+table" };
    if (!(kind & BIAS_TENSOR))
        return names[kind & 7];
    return kind & BIAS_CAP ? "cap+tensor" : "tensor";
}

typedef struct test_bias {
    int kind;
    size_t heads, rows, distances;
    ptrdiff_t first;
    float softcap, *slopes;
    float *table; /* (count) elements of the table, or of the tensor */
    size_t count, tensor_row, tensor_head;
    int64_t *anchors; /* (rows) the key at distance 0, or the tensor's first */
    uint32_t *positions, *tensor_rows; /* (rows) */
    float *device_slopes, *device_table, *device_dtable;
    uint32_t *device_positions, *device_tensor_rows;
} test_bias;

/* The row of the table for a pair. */
static inline size_t bias_row(const test_bias *b, size_t row, size_t key)
{
    int64_t at = (int64_t)key - b->anchors[row] - (int64_t)b->first;
    return at < 0                        ? 0
           : at >= (int64_t)b->distances ? b->distances - 1
                                         : (size_t)at;
}

/* The element of the table or tensor for a pair and a head. */
static inline size_t bias_at(const test_bias *b, size_t row, size_t head,
                             size_t key)
{
    if (b->kind & BIAS_TENSOR)
        return b->tensor_rows[row] * b->tensor_row + head * b->tensor_head +
               key - (size_t)b->anchors[row];
    return bias_row(b, row, key) * b->heads + head;
}

/* How the tensor lies, whose rows have elements of `keys` keys. */
static inline void tensor_shape(test_bias *b, size_t keys)
{
    enum { MOST = 1 << 24 }; /* elements; then rows are shared, too */
    size_t length = keys + below(5), heads = b->heads, rows = b->rows;
    bool shared = b->kind & BIAS_SHARED;
    if (shared && below(2))
        heads = 1;
    if (rows * heads * length > MOST)
        rows = 1 + MOST / (heads * length);
    if (shared)
        rows = below(3) ? 1 + below(rows) : 1;
    bool by_head = below(2);
    b->tensor_row = by_head ? length : heads * length;
    b->tensor_head = by_head ? rows * length : length;
    if (heads == 1)
        b->tensor_head = 0;
    if (rows == 1 && below(2))
        b->tensor_row = 0;
    b->count = rows * heads * length;
    for (size_t i = 0; i < b->rows; i++)
        b->tensor_rows[i] = (uint32_t)(rows < b->rows             ? below(rows)
                                       : b->kind & BIAS_POSITIONS ? rows - 1 - i
                                                                  : i);
    if (rows < b->rows) // a row is not the plan's
        b->kind |= BIAS_POSITIONS;
}

/* Elements of the tensor that no visible pair has are NaN. */
static inline void tensor_hide(test_bias *b, const bauta_mask *mask)
{
    unsigned char *used = calloc(b->count, 1);
    for (size_t i = 0; i < b->rows; i++) {
        size_t spans;
        const bauta_span *span = bauta_mask_row(mask, i, &spans);
        for (size_t s = 0; s < spans; s++)
            for (size_t h = 0; h < (b->tensor_head ? b->heads : 1); h++)
                memset(used + bias_at(b, i, h, span[s].lo), 1,
                       span[s].hi - span[s].lo);
    }
    for (size_t i = 0; i < b->count; i++)
        if (!used[i])
            b->table[i] = NAN;
    free(used);
}

/* The most keys from a row's origin to the last one that it sees. */
static inline size_t mask_extent(const bauta_mask *mask)
{
    const bt_row_list *rows = bt_mask_rows(mask);
    size_t most = 1;
    for (size_t i = 0; i < mask->queries; i++) {
        size_t spans;
        const bauta_span *span = bauta_mask_row(mask, i, &spans);
        if (spans && span[spans - 1].hi - rows->origin[i] > most)
            most = span[spans - 1].hi - rows->origin[i];
    }
    return most;
}

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
    b.anchors = malloc((b.rows + 1) * sizeof(*b.anchors));
    b.positions = malloc((b.rows + 1) * sizeof(*b.positions));
    b.tensor_rows = malloc((b.rows + 1) * sizeof(*b.tensor_rows));
    b.count = b.distances * heads;
    if (kind & BIAS_TENSOR)
        tensor_shape(&b, mask_extent(mask));
    kind = b.kind;
    b.table = malloc(b.count * sizeof(float));
    // Up to those of the steepest head of ALiBi.
    for (size_t i = 0; i < heads; i++)
        b.slopes[i] =
            ldexpf(0.7f + 0.3f * test_float(&random_stream), -(int)below(9));
    for (size_t i = 0; i < b.count; i++)
        b.table[i] = kind & BIAS_HOLES && below(4) == 0
                         ? -INFINITY
                         : 3.0f * test_float(&random_stream);
    for (size_t i = 0; i < b.rows; i++) {
        b.positions[i] = (uint32_t)below(mask->keys + 9);
        b.anchors[i] = kind & BIAS_TENSOR ? (int64_t)rows->origin[i]
                       : kind & BIAS_POSITIONS
                           ? (int64_t)(rows->origin[i] + b.positions[i])
                           : (int64_t)(i + mask->keys) - (int64_t)mask->queries;
    }
    if (kind & BIAS_TENSOR)
        tensor_hide(&b, mask);
    b.device_slopes = to_device(b.slopes, heads * 4);
    b.device_table = to_device(b.table, b.count * 4);
    b.device_dtable = to_device(b.table, b.count * 4);
    b.device_positions = to_device(b.positions, b.rows * 4);
    b.device_tensor_rows = to_device(b.tensor_rows, b.rows * 4);
    return b;
}

static inline void bias_free(test_bias *b)
{
    free(b->slopes);
    free(b->table);
    free(b->anchors);
    free(b->positions);
    free(b->tensor_rows);
    cudaFree(b->device_tensor_rows);
    cudaFree(b->device_slopes);
    cudaFree(b->device_table);
    cudaFree(b->device_dtable);
    cudaFree(b->device_positions);
    *b = (test_bias){ 0 };
}

/* As a call takes it, for rows from `first` on. `gradient`: that of the table
 * or tensor is wanted. */
static inline bauta_attention_bias bias_of(const test_bias *b, size_t first,
                                           bool gradient)
{
    bauta_attention_bias to = BAUTA_ATTENTION_BIAS_INIT;
    to.softcap = b->softcap;
    if (b->kind & BIAS_SLOPES)
        to.slopes = b->device_slopes;
    if (b->kind & BIAS_TABLE) {
        to.table = b->device_table;
        to.distances = b->distances;
        to.first_distance = b->first;
        to.dtable = gradient ? b->device_dtable : NULL;
    }
    if (b->kind & BIAS_POSITIONS)
        to.positions = b->device_positions + first;
    if (b->kind & BIAS_TENSOR) {
        bool given = b->kind & BIAS_POSITIONS;
        size_t at = given ? 0 : first * b->tensor_row;
        to.tensor = b->device_table + at;
        to.tensor_row = b->tensor_row;
        to.tensor_head = b->tensor_head;
        to.tensor_rows = given ? b->device_tensor_rows + first : NULL;
        to.dtensor = gradient ? b->device_dtable + at : NULL;
    }
    return to;
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
    if (b->kind & BIAS_TENSOR)
        m = (double)b->table[bias_at(b, row, head, key)];
    *size += isfinite(m) ? fabs(m) : 0.0;
    return x + m;
}

#endif
