/* SPDX-License-Identifier: Apache-2.0 */
/* paged_attention.c - KV cache writes and paged attention. */
#include "autograd/paged_attention.h"

bool bt_op_kv_write(bt_tape *tape, const bt_kv_batch *batch, size_t layer,
                    const bt_tensor *k, const bt_tensor *v, size_t kv_heads)
{
    if (!k || !v || !batch->count)
        return !bt_tape_status(tape, NULL);
    const bt_attention_shape *s = &batch->sequences[0].table->pool->shape;
    if (s->kv_heads != kv_heads || k->columns != kv_heads * s->head_dim ||
        v->columns != kv_heads * s->value_dim)
        return bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                            "kv_write: k has %zu columns and v %zu, the pages "
                            "%zu heads of %zu and %zu",
                            k->columns, v->columns, s->kv_heads, s->head_dim,
                            s->value_dim);
    bt_kv_write_args args = { batch, layer, k, v };
    return BT_TAPE_RUN(tape, kv_write, &args);
}

bt_tensor *bt_op_paged_attention(bt_tape *tape, bt_tensor *q,
                                 const bt_kv_batch *batch, size_t layer,
                                 const bt_attention_plan *plan, size_t heads,
                                 size_t kv_heads, size_t value_dim, float scale,
                                 const bt_bias_op *bias)
{
    bt_attention_bias inputs;
    if (!q || (bias && !bt_bias_inputs(tape, &inputs, bias, q->rows, heads)))
        return NULL;
    bt_tensor *out = bt_tape_output(tape, q->rows, heads * value_dim, false);
    if (!out)
        return NULL;
    bt_paged_attention_args args = { .plan = plan,
                                     .batch = batch,
                                     .layer = layer,
                                     .heads = heads,
                                     .kv_heads = kv_heads,
                                     .scale = scale,
                                     .q = q,
                                     .out = out,
                                     .bias = bias ? &inputs : NULL };
    return BT_TAPE_RUN(tape, paged_attention, &args) ? out : NULL;
}
