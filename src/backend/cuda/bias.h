/* SPDX-License-Identifier: Apache-2.0 */
/* bias.h - the softcap and the additive mask of attention, for all kernels.
 *
 * A kernel sees them as numbers and pointers to the GPU's memory. Kernels with
 * a bias are compiled beside those without (BIAS), which stay as they are, and
 * those of the parallel pass with a tensor once more.
 *
 * A distance is that of a key from the row's anchor: the key that stands where
 * the query does. It is the origin of the row plus the position of the query,
 * so distances need no origin. Likewise the row of a tensor that a query uses
 * begins, in memory, at the row's offset plus its origin. */
#ifndef BT_CUDA_BIAS_H
#define BT_CUDA_BIAS_H

#include "backend/cuda/cuda.h"

typedef struct bt_cuda_bias {
    const float *slopes; /* (heads), or NULL */
    const float *table;  /* of last + 1 distances and heads, or NULL; a tensor
                            if last < 0 */
    union {
        const uint32_t *positions;   /* (rows) of the queries, or NULL */
        const uint32_t *tensor_rows; /* (rows) of the tensor, or NULL */
    };
    union {                       /* bfloat16 */
        const int32_t *anchors;   /* (rows); NULL: nothing has a distance */
        const long long *offsets; /* (rows) of a tensor; NULL: rows of the
                                     tensor, as origins are 0 */
    };
    uint32_t head_stride; /* in a table or a tensor: from head to head */
    int first, last; /* the distance of the table's first row; the last row */
    float softcap;   /* 0: none */
    /* bfloat16, where scores are base-2 logarithms: what a product is
     * multiplied by, without a softcap; with one, to become the argument of
     * tanh as tanh_fast() takes it, and the result of that. */
    float scale, tanh_scale, cap;
    uint32_t row_stride; /* and from distance to distance, or row to row */
} bt_cuda_bias;

/* Kernels find what follows a bias among their arguments at a constant place,
 * those without a bias, too. */
#ifdef __cplusplus
static_assert(sizeof(bt_cuda_bias) == 64, "the size of a bias");
#else
_Static_assert(sizeof(bt_cuda_bias) == 64, "the size of a bias");
#endif

/* Whether a shape has a softcap or a bias. */
static inline bool bt_cuda_biased(const bauta_attention_shape *shape)
{
    const bauta_attention_bias *b = shape->bias;
    return b && (b->softcap != 0.0f || b->slopes || b->table || b->tensor);
}

/* What kernels are compiled for. */
typedef enum bt_bias_kind {
    BT_BIAS_NONE,
    BT_BIAS_DISTANCE, /* a softcap, slopes or a table */
    BT_BIAS_TENSOR    /* a tensor, and perhaps a softcap */
} bt_bias_kind;

static inline bt_bias_kind bt_cuda_bias_kind(const bauta_attention_shape *shape)
{
    if (!bt_cuda_biased(shape))
        return BT_BIAS_NONE;
    return shape->bias->tensor ? BT_BIAS_TENSOR : BT_BIAS_DISTANCE;
}

#ifdef __cplusplus
extern "C" {
#endif

/* The bias of a shape that has one, with this scale of the scores. */
bauta_status bt_cuda_bias_init(bt_cuda_bias *bias,
                               const bauta_attention_shape *shape, float scale,
                               bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif
