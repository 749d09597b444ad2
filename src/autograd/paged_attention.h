/* SPDX-License-Identifier: Apache-2.0 */
/* paged_attention.h - paged attention: many sequences at once, over keys and
 * values in their block tables.
 *
 * The rows of a step are the new tokens of its sequences, concatenated. Neither
 * op leaves a record. */
#ifndef BT_PAGED_ATTENTION_H
#define BT_PAGED_ATTENTION_H

#include "autograd/ops.h"
#include "backend/cpu/block_table.h"

/* Rows `row` to `row + rows - 1` of a step, which follow the tokens of a block
 * table; pages are reserved for them. rows may be 0. */
typedef struct bt_kv_sequence {
    bt_block_table *table;
    size_t row, rows;
} bt_kv_sequence;

/* The sequences of a step. */
typedef struct bt_kv_batch {
    size_t count;
    const bt_kv_sequence *sequences;
} bt_kv_batch;

/* Write the keys and values of the rows (rows, kv_heads * dim) after the tokens
 * of their block tables. The tables do not advance, so the step can be
 * repeated. False if the tape has failed. */
bool bt_op_kv_write(bt_tape *tape, const bt_kv_batch *batch, size_t layer,
                    const bt_tensor *k, const bt_tensor *v, size_t kv_heads);

/* Masked attention over the tokens of the block tables and the new rows. The
 * grids of the plan correspond to the tables, in order. */
bt_tensor *bt_op_paged_attention(bt_tape *tape, bt_tensor *q,
                                 const bt_kv_batch *batch, size_t layer,
                                 const bauta_plan *plan, size_t heads,
                                 size_t kv_heads, size_t value_dim,
                                 float scale);

#endif
