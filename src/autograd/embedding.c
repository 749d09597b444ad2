/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.c - embedding: rows of a table by id.
 *
 * In the backward pass rows with equal ids are added to the same row of the
 * table. Each thread takes some columns and adds all rows in order, so no bit
 * depends on the number of threads. */
#include "autograd/ops.h"
#include "backend/cpu/parallel_ranges.h"

#include <string.h>

typedef struct embedding_record {
    const bt_kernels *kernels;
    bt_tensor *table, *y;
    const uint32_t *ids; /* the caller's, until the tape is rewound */
    uint32_t padding_id;
    float scale;
    float *to; /* the table's gradient, in the backward pass */
} embedding_record;

static void forward(void *job, size_t first, size_t count)
{
    const embedding_record *r = job;
    const bt_packed_weight *packed = r->table->packed;
    size_t columns = r->y->columns;
    for (size_t i = first; i < first + count; i++)
        if (packed)
            bt_packed_weight_row(r->y->data + i * columns, packed, r->ids[i],
                                 r->scale);
        else
            r->kernels->scale(r->y->data + i * columns,
                              r->table->data + r->ids[i] * columns, r->scale,
                              columns, false);
}

static void backward(void *job, size_t first, size_t count)
{
    const embedding_record *r = job;
    size_t columns = r->y->columns;
    for (size_t i = 0; i < r->y->rows; i++)
        if (r->ids[i] != r->padding_id)
            r->kernels->scale(r->to + r->ids[i] * columns + first,
                              r->y->grad + i * columns + first, r->scale, count,
                              true);
}

static void embed_backward(bt_tape *tape, void *saved)
{
    embedding_record *r = saved;
    size_t columns = r->y->columns;
    bool add;
    if (!r->y->grad)
        return;
    r->to = bt_tape_grad(tape, r->table, &add);
    if (!r->to)
        return;
    if (!add)
        memset(r->to, 0, r->table->rows * columns * sizeof(float));
    int threads = bt_tape_threads(tape);
    bt_parallel_ranges(threads, columns, bt_columns_per_task(threads, columns),
                       backward, r);
}

bt_tensor *bt_op_embedding(bt_tape *tape, bt_tensor *table, const uint32_t *ids,
                           size_t rows, float scale, uint32_t padding_id)
{
    if (!table)
        return NULL;
    for (size_t i = 0; i < rows; i++)
        if (ids[i] >= table->rows)
            return bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                                "embed: id %u of row %zu is not in a table of "
                                "%zu rows",
                                (unsigned)ids[i], i, table->rows);
    bt_tensor *y =
        bt_tape_output(tape, rows, table->columns, table->requires_grad);
    embedding_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    if (!y || !r)
        return NULL;
    *r = (embedding_record){ .kernels = bt_tape_kernels(tape),
                             .table = table,
                             .y = y,
                             .ids = ids,
                             .padding_id = padding_id,
                             .scale = scale };
    bt_parallel_ranges(bt_tape_threads(tape), rows,
                       bt_rows_per_task(table->columns), forward, r);
    if (y->requires_grad)
        bt_tape_record(tape, embed_backward, r);
    return y;
}
