/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.c - embedding: rows of a table by id. In the backward pass rows
 * with equal ids are added to the same row of the table, in order. */
#include "autograd/ops.h"

typedef struct embedding_record {
    bt_tensor *table, *y;
    const bt_tensor *ids;
    uint32_t padding_id;
    float scale;
} embedding_record;

static void backward(bt_tape *tape, void *saved)
{
    const embedding_record *r = saved;
    bool add;
    if (!r->y->grad || !bt_tape_grad(tape, r->table, &add))
        return;
    bt_tensor dy = bt_tensor_grad(r->y), dtable = bt_tensor_grad(r->table);
    bt_embedding_grad_args args = { &dy,      &dtable,       r->ids,
                                    r->scale, r->padding_id, add };
    BT_TAPE_RUN(tape, embedding_grad, &args);
}

bt_tensor *bt_op_embedding(bt_tape *tape, bt_tensor *table, const uint32_t *ids,
                           size_t rows, float scale, uint32_t padding_id)
{
    if (!table)
        return NULL;
    for (size_t i = 0; i < rows; i++)
        if (ids[i] >= table->rows)
            return bt_tape_fail(
                tape, BAUTA_ERR_ARGUMENT,
                "embed: id %u of row %zu is not in a table of %zu rows", ids[i],
                i, table->rows);
    bt_tensor *y =
        bt_tape_output(tape, rows, table->columns, table->requires_grad);
    embedding_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    const bt_tensor *index = bt_tape_input(tape, BAUTA_UINT32, rows, 1, ids);
    if (!y || !index)
        return NULL;
    *r = (embedding_record){ .table = table,
                             .y = y,
                             .ids = index,
                             .padding_id = padding_id,
                             .scale = scale };
    bt_embedding_args args = { table, y, index, scale };
    if (!BT_TAPE_RUN(tape, embedding, &args))
        return NULL;
    if (y->requires_grad)
        bt_tape_record(tape, backward, r, y);
    return y;
}

bt_tensor *bt_op_embedding_of(bt_tape *tape, bt_tensor *table,
                              const bt_tensor *ids, float scale)
{
    if (!table || !ids)
        return NULL;
    bt_tensor *y = bt_tape_output(tape, ids->rows, table->columns, false);
    bt_embedding_args args = { table, y, ids, scale };
    return y && BT_TAPE_RUN(tape, embedding, &args) ? y : NULL;
}
