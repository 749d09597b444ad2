/* SPDX-License-Identifier: Apache-2.0 */
/* bias.h - the softcap and the additive mask of attention, for all kernels.
 *
 * A kernel sees them as numbers and pointers to the GPU's memory. Kernels with
 * a bias are compiled beside those without (BIAS), which stay as they are.
 *
 * A distance is that of a key from the row's anchor: the key that stands where
 * the query does. It is the origin of the row plus the position of the query,
 * so distances need no origin. */
#ifndef BT_CUDA_BIAS_H
#define BT_CUDA_BIAS_H

#include "backend/cuda/cuda.h"

typedef struct bt_cuda_bias {
    const float *slopes;       /* (heads), or NULL */
    const float *table;        /* (last + 1, heads), or NULL */
    const uint32_t *positions; /* (rows) of the queries, or NULL */
    const int32_t *anchors; /* (rows) bfloat16; NULL: nothing has a distance */
    int heads;
    int first, last; /* the distance of the table's first row; the last row */
    float softcap;   /* 0: none */
    /* bfloat16, where scores are base-2 logarithms: what a product is
     * multiplied by, without a softcap; with one, to become the argument of
     * tanh as tanh_fast() takes it, and the result of that. */
    float scale, tanh_scale, cap;
} bt_cuda_bias;

/* Whether a shape has a softcap or a bias. */
static inline bool bt_cuda_biased(const bauta_attention_shape *shape)
{
    const bauta_attention_bias *b = shape->bias;
    return b && (b->softcap != 0.0f || b->slopes || b->table || b->tensor);
}

#ifdef __cplusplus
extern "C" {
#endif

/* The bias of a shape that has one, with this scale of the scores; a tensor is
 * an error. */
bauta_status bt_cuda_bias_init(bt_cuda_bias *bias,
                               const bauta_attention_shape *shape, float scale,
                               bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif
