/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - the public calls for attention on the CPU: checks, then
 * the computation. */
#include "backend/cpu/attention.h"
#include "base/error.h"
#include "runtime/context.h"

bauta_status bauta_attention_forward(bauta_context *context,
                                     const bauta_plan *plan,
                                     const bauta_attention_shape *shape,
                                     const float *q, const float *k,
                                     const float *v, float *out, float *lse,
                                     bauta_error *err)
{
    bt_attention_shape s;
    BT_NEED_CPU(context, err);
    BT_NEED(plan, err);
    BT_NEED(q, err);
    BT_NEED(k, err);
    BT_NEED(v, err);
    BT_NEED(out, err);
    bauta_status status = bt_attention_shape_resolve(&s, shape, err);
    if (!status)
        status = bt_attention_strides_disjoint(&s.out, "out", plan->rows,
                                               s.heads, s.value_dim, err);
    if (status)
        return status;
    return bt_attention_forward_cpu(bt_cpu_of_context(context), plan, &s, q, k,
                                    v, out, lse, err);
}

bauta_status
bauta_attention_backward(bauta_context *context, const bauta_plan *plan,
                         const bauta_attention_shape *shape, const float *q,
                         const float *k, const float *v, const float *out,
                         const float *lse, const float *dout, float *dq,
                         float *dk, float *dv, bauta_error *err)
{
    bt_attention_shape s;
    BT_NEED_CPU(context, err);
    BT_NEED(plan, err);
    BT_NEED(q, err);
    BT_NEED(k, err);
    BT_NEED(v, err);
    BT_NEED(out, err);
    BT_NEED(lse, err);
    BT_NEED(dout, err);
    BT_NEED(dq, err);
    BT_NEED(dk, err);
    BT_NEED(dv, err);
    bauta_status status = bt_attention_shape_resolve(&s, shape, err);
    if (!status)
        status =
            bt_attention_gradients_disjoint(&s, plan->rows, plan->keys, err);
    if (status)
        return status;
    return bt_attention_backward_cpu(bt_cpu_of_context(context), plan, &s, q, k,
                                     v, out, lse, dout, dq, dk, dv, err);
}
