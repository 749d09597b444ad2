/* SPDX-License-Identifier: Apache-2.0 */
/* paged_attention.h - paged attention: many sequences at once, over keys and
 * values in their block tables. Neither op leaves a record. */
#ifndef BT_PAGED_ATTENTION_H
#define BT_PAGED_ATTENTION_H

#include "autograd/ops.h"
#include "backend/block_table.h"

/* Write the keys and values of the rows (rows, kv_heads * dim) after the tokens
 * of their block tables. The tables do not advance, so the step can be
 * repeated. False if the tape has failed. */
bool bt_op_kv_write(bt_tape *tape, const bt_kv_batch *batch, size_t layer,
                    const bt_tensor *k, const bt_tensor *v, size_t kv_heads);

/* Masked attention over the tokens of the block tables. The sequences of the
 * plan correspond to the tables, in order. */
typedef struct bt_paged_attention_op {
    const bt_kv_batch *batch;
    size_t layer;
    const bt_attention_plan *plan;
    size_t heads, kv_heads, value_dim;
    float scale;            /* 0: 1 / sqrt(dim) */
    const bt_bias_op *bias; /* or NULL */
} bt_paged_attention_op;

bt_tensor *bt_op_paged_attention(bt_tape *tape, bt_tensor *q,
                                 const bt_paged_attention_op *op);

/* Rotate q and k, unless positions is NULL (see bt_op_rotary), write k and v,
 * and attend to the tokens of the tables and the new rows. */
bt_tensor *bt_op_write_and_attend(bt_tape *tape, bt_tensor *q, bt_tensor *k,
                                  const bt_tensor *v,
                                  const bt_paged_attention_op *op,
                                  const uint32_t *positions,
                                  const float *frequencies);

#endif
