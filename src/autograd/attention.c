/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - masked attention on the tape. */
#include "backend/cpu/attention.h"

#include "autograd/ops.h"
#include "backend/cpu/gradient_accumulation.h"
#include "base/error.h"

typedef struct saved {
    bt_attention_shape shape;
    const bauta_plan *plan;
    bt_tensor *q, *k, *v, *out;
    float *lse;
} saved;

static bauta_status shape_of(bt_attention_shape *out, const bt_tensor *q,
                             size_t value_dim, size_t heads, size_t kv_heads,
                             float scale, bauta_error *err)
{
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_dim = q->columns / heads;
    shape.value_dim = value_dim;
    shape.scale = scale;
    return bt_attention_shape_resolve(out, &shape, err);
}

/* Where the backward pass, which overwrites, can put a gradient: the tensor's
 * own buffer if this is the first gradient, else a buffer to be added to it. */
static float *grad_target(bt_tape *tape, bt_tensor *tensor, float **own)
{
    bool add;
    float *grad = bt_tape_grad(tape, tensor, &add);
    *own = NULL;
    if (grad && !add)
        return grad;
    *own = bt_tape_alloc(tape, tensor->rows * tensor->columns, sizeof(float));
    return *own;
}

static void grad_add(bt_tape *tape, bt_tensor *tensor, const float *own)
{
    if (own && tensor->requires_grad)
        bt_grad_accumulate(bt_tape_threads(tape), tensor->grad, tensor->columns,
                           own, tensor->rows, tensor->columns, true);
}

static void attention_backward(bt_tape *tape, void *memory)
{
    saved *s = memory;
    float *own[3];
    bauta_error err;
    if (!s->out->grad)
        return;
    float *dq = grad_target(tape, s->q, &own[0]);
    float *dk = grad_target(tape, s->k, &own[1]);
    float *dv = grad_target(tape, s->v, &own[2]);
    if (!dq || !dk || !dv)
        return; // the tape has failed
    bt_cpu cpu = bt_tape_cpu(tape);
    bauta_status status = bt_attention_backward_cpu(
        &cpu, s->plan, &s->shape, s->q->data, s->k->data, s->v->data,
        s->out->data, s->lse, s->out->grad, dq, dk, dv, &err);
    if (status) {
        bt_tape_fail(tape, status, "attention: %s", err.message);
        return;
    }
    grad_add(tape, s->q, own[0]);
    grad_add(tape, s->k, own[1]);
    grad_add(tape, s->v, own[2]);
}

static bool shapes_fit(bt_tape *tape, const bt_tensor *q, const bt_tensor *k,
                       const bt_tensor *v, const bauta_plan *plan, size_t heads,
                       size_t kv_heads)
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

bt_tensor *bt_op_attention(bt_tape *tape, bt_tensor *q, bt_tensor *k,
                           bt_tensor *v, const bauta_plan *plan, size_t heads,
                           size_t kv_heads, float scale)
{
    bauta_error err;
    if (!q || !k || !v || !shapes_fit(tape, q, k, v, plan, heads, kv_heads))
        return NULL;
    size_t value_dim = v->columns / kv_heads;
    saved *s = bt_tape_alloc(tape, 1, sizeof(*s));
    float *lse = bt_tape_alloc(tape, q->rows * heads, sizeof(float));
    bt_tensor *out = bt_tape_output(tape, q->rows, heads * value_dim,
                                    q->requires_grad || k->requires_grad ||
                                        v->requires_grad);
    if (!s || !lse || !out)
        return NULL;
    *s =
        (saved){ .plan = plan, .q = q, .k = k, .v = v, .out = out, .lse = lse };
    bt_cpu cpu = bt_tape_cpu(tape);
    bauta_status status =
        shape_of(&s->shape, q, value_dim, heads, kv_heads, scale, &err);
    if (!status)
        status =
            bt_attention_forward_cpu(&cpu, plan, &s->shape, q->data, k->data,
                                     v->data, out->data, lse, &err);
    if (status)
        return bt_tape_fail(tape, status, "attention: %s", err.message);
    bt_tape_record(tape, attention_backward, s);
    return out;
}
