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

/* One operation after the other. */
static bt_tensor *rotary_then_write(bt_tape *tape, const bt_kv_batch *batch,
                                    size_t layer, bt_tensor *q, bt_tensor *k,
                                    const bt_tensor *v, size_t heads,
                                    size_t kv_heads, const uint32_t *positions,
                                    const float *frequencies)
{
    q = bt_op_rotary(tape, q, heads, positions, frequencies);
    k = bt_op_rotary(tape, k, kv_heads, positions, frequencies);
    return bt_op_kv_write(tape, batch, layer, k, v, kv_heads) ? q : NULL;
}

bt_tensor *bt_op_rotary_kv_write(bt_tape *tape, const bt_kv_batch *batch,
                                 size_t layer, bt_tensor *q, bt_tensor *k,
                                 const bt_tensor *v, size_t heads,
                                 size_t kv_heads, const uint32_t *positions,
                                 const float *frequencies)
{
    const bt_backend *backend = bt_tape_stream(tape)->backend;
    if (!q || !k || !v)
        return NULL;
    size_t dim = q->columns / heads;
    if (!(backend->fusions & BT_FUSE_ROTARY_KV_WRITE) || !batch->count ||
        q->rows != k->rows || q->columns != heads * dim || dim % 2 ||
        k->columns != v->columns)
        return rotary_then_write(tape, batch, layer, q, k, v, heads, kv_heads,
                                 positions, frequencies);
    if (!pages_fit(tape, batch, k, v, kv_heads))
        return NULL;
    bt_kv_write_args args = {
        .batch = batch, .layer = layer, .k = k, .v = v, .heads = heads, .q = q
    };
    bt_tensor *out = bt_tape_output(tape, q->rows, q->columns, false);
    args.q_out = out;
    args.positions = bt_tape_input(tape, BAUTA_UINT32, q->rows, 1, positions);
    args.frequencies =
        bt_tape_input(tape, BAUTA_FLOAT32, 1, dim / 2, frequencies);
    if (!out || !args.frequencies)
        return NULL;
    return BT_TAPE_RUN(tape, kv_write, &args) ? out : NULL;
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
