/* SPDX-License-Identifier: Apache-2.0 */
/* attention_shape.h - the shape of an attention, checked, with its defaults
 * filled in. */
#ifndef BT_ATTENTION_SHAPE_H
#define BT_ATTENTION_SHAPE_H

#include "bauta.h"

/* Head h of token t starts at t * token + h * head. */
typedef struct bt_attention_strides {
    size_t token, head;
} bt_attention_strides;

typedef struct bt_attention_shape {
    size_t heads, kv_heads, group; /* group: query heads per key head */
    size_t head_dim, head_pad, value_dim, value_pad;
    float scale;
    bt_attention_strides q, k, v, out;
    bauta_attention_bias bias; /* all 0: none */
} bt_attention_shape;

enum { BT_HEAD_DIM_MAX = 256 };

/* Fill in defaults and padded sizes; an error if a value is out of range. */
bauta_status bt_attention_shape_resolve(bt_attention_shape *shape,
                                        const bauta_attention_shape *given,
                                        bauta_error *err);

/* An error if elements of what is written overlap: the larger of the two
 * strides must step over the whole extent of the smaller. */
bauta_status bt_attention_strides_disjoint(const bt_attention_strides *strides,
                                           const char *name, size_t tokens,
                                           size_t heads, size_t dim,
                                           bauta_error *err);
/* The same for the gradients of q, k and v, which have the strides of q, k and
 * v. */
bauta_status bt_attention_gradients_disjoint(const bt_attention_shape *shape,
                                             size_t rows, size_t keys,
                                             bauta_error *err);

#endif
