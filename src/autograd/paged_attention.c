/* SPDX-License-Identifier: Apache-2.0 */
/* paged_attention.c - KV cache writes and paged attention. */
#include "autograd/paged_attention.h"

/* Whether k and v fit the pages; if not, the tape fails. */
static bool pages_fit(bt_tape *tape, const bt_kv_batch *batch,
                      const bt_tensor *k, const bt_tensor *v, size_t kv_heads)
{
    const bt_attention_shape *s = &batch->sequences[0].table->pool->shape;
    if (s->kv_heads == kv_heads && k->columns == kv_heads * s->head_dim &&
        v->columns == kv_heads * s->value_dim)
        return true;
    bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                 "kv_write: k has %zu columns and v %zu, the pages %zu heads "
                 "of %zu and %zu",
                 k->columns, v->columns, s->kv_heads, s->head_dim,
                 s->value_dim);
    return false;
}

bool bt_op_kv_write(bt_tape *tape, const bt_kv_batch *batch, size_t layer,
                    const bt_tensor *k, const bt_tensor *v, size_t kv_heads)
{
    if (!k || !v || !batch->count)
        return !bt_tape_status(tape, NULL);
    if (!pages_fit(tape, batch, k, v, kv_heads))
        return false;
    bt_kv_write_args args = { .batch = batch, .layer = layer, .k = k, .v = v };
    return BT_TAPE_RUN(tape, kv_write, &args);
}

static bt_tensor *attend(bt_tape *tape, bt_tensor *q,
                         const bt_paged_attention_op *op,
                         const bt_kv_write_args *write)
{
    bt_attention_bias inputs;
    if (!q || (op->bias &&
               !bt_bias_inputs(tape, &inputs, op->bias, q->rows, op->heads)))
        return NULL;
    bt_tensor *out =
        bt_tape_output(tape, q->rows, op->heads * op->value_dim, false);
    if (!out)
        return NULL;
    bt_paged_attention_args args = { .plan = op->plan,
                                     .batch = op->batch,
                                     .layer = op->layer,
                                     .heads = op->heads,
                                     .kv_heads = op->kv_heads,
                                     .scale = op->scale,
                                     .q = q,
                                     .out = out,
                                     .bias = op->bias ? &inputs : NULL,
                                     .write = write };
    return BT_TAPE_RUN(tape, paged_attention, &args) ? out : NULL;
}

bt_tensor *bt_op_paged_attention(bt_tape *tape, bt_tensor *q,
                                 const bt_paged_attention_op *op)
{
    return attend(tape, q, op, NULL);
}

/* The parts that the backend does not run as one: rotations. */
static bool rotate_apart(bt_tape *tape, bt_tensor **q, bt_tensor **k,
                         const bt_tensor *v, const bt_paged_attention_op *op,
                         const uint32_t *positions, const float *frequencies)
{
    const bt_backend *backend = bt_tape_stream(tape)->backend;
    size_t dim = (*q)->columns / op->heads;
    if ((backend->fusions & BT_FUSE_ROTARY_KV_WRITE) &&
        (*q)->rows == (*k)->rows && (*q)->columns == op->heads * dim &&
        dim % 2 == 0 && (*k)->columns == v->columns)
        return false;
    *q = bt_op_rotary(tape, *q, op->heads, positions, frequencies);
    *k = bt_op_rotary(tape, *k, op->kv_heads, positions, frequencies);
    return true;
}

/* The queries are rotated with the keys. */
static bool write_rotated(bt_tape *tape, bt_kv_write_args *args, bt_tensor **q,
                          const bt_paged_attention_op *op,
                          const uint32_t *positions, const float *frequencies)
{
    size_t rows = (*q)->rows, columns = (*q)->columns;
    bt_tensor *out = bt_tape_output(tape, rows, columns, false);
    args->heads = op->heads;
    args->q = *q;
    args->q_out = out;
    args->positions = bt_tape_input(tape, BAUTA_UINT32, rows, 1, positions);
    args->frequencies = bt_tape_input(tape, BAUTA_FLOAT32, 1,
                                      columns / op->heads / 2, frequencies);
    *q = out;
    return out && args->frequencies;
}

bt_tensor *bt_op_write_and_attend(bt_tape *tape, bt_tensor *q, bt_tensor *k,
                                  const bt_tensor *v,
                                  const bt_paged_attention_op *op,
                                  const uint32_t *positions,
                                  const float *frequencies)
{
    const bt_backend *backend = bt_tape_stream(tape)->backend;
    if (!q || !k || !v)
        return NULL;
    if (!op->batch->count)
        return attend(tape, q, op, NULL);
    bool apart =
        !positions || rotate_apart(tape, &q, &k, v, op, positions, frequencies);
    if (!q || !k || !pages_fit(tape, op->batch, k, v, op->kv_heads))
        return NULL;
    bt_kv_write_args write = {
        .batch = op->batch, .layer = op->layer, .k = k, .v = v
    };
    if (!apart && !write_rotated(tape, &write, &q, op, positions, frequencies))
        return NULL;
    if (backend->fusions & BT_FUSE_KV_WRITE_ATTENTION)
        return attend(tape, q, op, &write);
    return BT_TAPE_RUN(tape, kv_write, &write) ? attend(tape, q, op, NULL)
                                               : NULL;
}
