/* SPDX-License-Identifier: Apache-2.0 */
/* past.h - attention of many sequences at once, over keys and values that are
 * in their books already.
 *
 * The rows of a step are those of its parts, one behind the other; a part is
 * what one sequence reads. Neither op leaves a record. */
#ifndef BT_PAST_H
#define BT_PAST_H

#include "ops/ops.h"
#include "ops/pages.h"

/* Rows `row` to `row + rows - 1` of a step, which stand behind the tokens of a
 * book; there is room reserved for them. rows may be 0. */
typedef struct bt_part {
    bt_book *book;
    size_t row, rows;
} bt_part;

typedef struct bt_past {
    size_t count;
    const bt_part *parts;
} bt_past;

/* Write keys and values of the rows (rows, kv_heads * dim) behind the tokens of
 * their books. The books do not advance, so that it can be done again. False
 * when the tape has failed. */
bool bt_op_remember(bt_tape *tape, const bt_past *past, size_t layer,
                    const bt_tensor *k, const bt_tensor *v, size_t kv_heads);

/* Masked attention over the tokens of the books and their rows. The grids of
 * the plan are the books', in their order. */
bt_tensor *bt_op_attention_past(bt_tape *tape, bt_tensor *q,
                                const bt_past *past, size_t layer,
                                const bauta_plan *plan, size_t heads,
                                size_t kv_heads, size_t value_dim, float scale);

#endif
