/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - masked attention on the tape, of tensors and of the pages of a
 * KV cache. */
#include "autograd/ops.h"

typedef struct attention_record {
    bt_tensor *q, *k, *v, *out;
    bt_tensor *table; /* of the bias, or NULL */
    bt_attention_bias bias;
    bt_attention_grad_args args;
} attention_record;

/* Where the backward pass, which overwrites, can put a gradient: the tensor's
 * own gradient if this is the first one, else a tensor that is added to it. */
typedef struct grad_target {
    bt_tensor *of;
    bt_tensor to;
    bool add;
} grad_target;

static bool target_take(bt_tape *tape, grad_target *target, bt_tensor *tensor)
{
    bool add;
    *target = (grad_target){ .of = tensor };
    if (bt_tape_grad(tape, tensor, &add) && !add) {
        target->to = bt_tensor_grad(tensor);
        return true;
    }
    target->add = tensor->requires_grad;
    const bt_tensor *own =
        bt_tape_scratch(tape, tensor->grad_dtype, tensor->rows, tensor->stride);
    if (own)
        target->to = *own;
    target->to.columns = tensor->columns;
    return own != NULL;
}

static void target_add(bt_tape *tape, const grad_target *target)
{
    if (!target->add)
        return;
    bt_tensor grad = bt_tensor_grad(target->of);
    bt_accumulate_args args = { &target->to, &grad, true };
    BT_TAPE_RUN(tape, accumulate, &args);
}

static void backward(bt_tape *tape, void *saved)
{
    attention_record *r = saved;
    grad_target q, k, v;
    bt_tensor dtable;
    if (!r->out->grad)
        return;
    bt_tensor dout = bt_tensor_grad(r->out);
    if (!target_take(tape, &q, r->q) || !target_take(tape, &k, r->k) ||
        !target_take(tape, &v, r->v))
        return; // the tape has failed
    if (r->table && bt_tape_grad(tape, r->table, &r->args.add_dtable)) {
        dtable = bt_tensor_grad(r->table);
        r->args.dtable = &dtable;
    }
    r->args.dout = &dout;
    r->args.dq = &q.to;
    r->args.dk = &k.to;
    r->args.dv = &v.to;
    if (!BT_TAPE_RUN(tape, attention_grad, &r->args))
        return;
    target_add(tape, &q);
    target_add(tape, &k);
    target_add(tape, &v);
}

static bool shapes_fit(bt_tape *tape, const bt_tensor *q, const bt_tensor *k,
                       const bt_tensor *v, const bt_attention_plan *plan,
                       size_t heads, size_t kv_heads)
{
    if (q->columns % heads == 0 &&
        k->columns == q->columns / heads * kv_heads &&
        v->columns % kv_heads == 0 && q->rows == plan->rows &&
        k->rows == plan->keys && v->rows == plan->keys)
        return true;
    bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                 "attention: q is %zu x %zu, k %zu x %zu, v %zu x %zu, for %zu "
                 "heads over %zu and a plan of %zu over %zu",
                 q->rows, q->columns, k->rows, k->columns, v->rows, v->columns,
                 heads, kv_heads, plan->rows, plan->keys);
    return false;
}

bool bt_bias_inputs(bt_tape *tape, bt_attention_bias *to,
                    const bt_bias_op *bias, size_t rows, size_t heads)
{
    *to = (bt_attention_bias){ .softcap = bias->softcap,
                               .table = bias->table,
                               .first_distance = bias->first_distance };
    if (bias->table && (!bias->table->rows || bias->table->columns != heads))
        return bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                            "attention: the table of the bias is %zu x %zu, "
                            "for %zu heads",
                            bias->table->rows, bias->table->columns, heads);
    if (bias->slopes)
        to->slopes = bt_tape_input(tape, BAUTA_FLOAT32, 1, heads, bias->slopes);
    if (bias->slopes || bias->table)
        to->positions =
            bt_tape_input(tape, BAUTA_UINT32, rows, 1, bias->positions);
    return !bt_tape_status(tape, NULL);
}

bt_tensor *bt_op_attention(bt_tape *tape, bt_tensor *q, bt_tensor *k,
                           bt_tensor *v, const bt_attention_plan *plan,
                           size_t heads, size_t kv_heads, float scale,
                           const bt_bias_op *bias)
{
    if (!q || !k || !v || !shapes_fit(tape, q, k, v, plan, heads, kv_heads))
        return NULL;
    attention_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    const bt_tensor *lse = bt_tape_scratch(tape, BAUTA_FLOAT32, q->rows, heads);
    bt_tensor *out = bt_tape_output(
        tape, q->rows, heads * (v->columns / kv_heads),
        q->requires_grad || k->requires_grad || v->requires_grad ||
            (bias && bias->table && bias->table->requires_grad));
    if (!r || !lse || !out)
        return NULL;
    *r = (attention_record){ .q = q,
                             .k = k,
                             .v = v,
                             .out = out,
                             .args = { .plan = plan,
                                       .heads = heads,
                                       .kv_heads = kv_heads,
                                       .scale = scale,
                                       .q = q,
                                       .k = k,
                                       .v = v,
                                       .out = out,
                                       .lse = lse } };
    if (bias) {
        if (!bt_bias_inputs(tape, &r->bias, bias, q->rows, heads))
            return NULL;
        r->args.bias = &r->bias;
        r->table = bias->table;
    }
    bt_attention_args args = { .plan = plan,
                               .heads = heads,
                               .kv_heads = kv_heads,
                               .scale = scale,
                               .q = q,
                               .k = k,
                               .v = v,
                               .out = out,
                               .lse = lse,
                               .bias = r->args.bias };
    if (!BT_TAPE_RUN(tape, attention, &args))
        return NULL;
    bt_tape_record(tape, backward, r, out);
    return out;
}

/* ---- Over the pages of a KV cache --------------------------------------- */

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
