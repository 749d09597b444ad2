/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_attention.c - the public calls for GPU plans and attention over them. */
#include "base/size.h"
#include "runtime/gpu_context.h"

struct bauta_gpu_plan {
    bt_gpu_owner owner;
    bauta_dtype type;
    bool backward;
    bool ready; /* false: the last update failed */
    size_t rows, keys;
    bt_attention_shape shape; /* heads and dims */
    bt_cuda_plan *tiles;      /* bfloat16 */
    bt_cuda_rows *spans;      /* float32 */
};

/* ---- Plans ------------------------------------------------ */

/* Rows [first, first + rows) of a mask. */
static bauta_status rows_set(bauta_gpu_plan *plan, const bauta_mask *mask,
                             size_t first, size_t rows, void *stream,
                             bauta_error *err)
{
    const bt_gpu *gpu = plan->owner.gpu;
    bauta_status status;
    if (plan->type == BAUTA_FLOAT32) {
        gpu->rows_free(plan->spans);
        plan->spans = NULL;
        status = gpu->rows_create(&plan->spans, mask, first, rows, err);
    } else {
        status =
            gpu->plan_update(plan->tiles, mask, first, rows, 0, stream, err);
    }
    plan->rows = status ? 0 : rows;
    plan->keys = status ? 0 : bauta_mask_keys(mask);
    plan->ready = !status;
    return status;
}

static bauta_status plan_make(bauta_gpu_plan *plan, const bauta_mask *mask,
                              size_t first, size_t rows,
                              const bauta_attention_shape *shape, void *stream,
                              bauta_error *err)
{
    const bt_gpu *gpu = plan->owner.gpu;
    int before;
    bauta_status status = gpu->enter(plan->owner.device, &before, err);
    if (status)
        return status;
    if (plan->type != BAUTA_FLOAT32)
        status = gpu->plan_create(&plan->tiles, shape, plan->backward, err);
    if (!status)
        status = rows_set(plan, mask, first, rows, stream, err);
    // It may be used on any stream from now on.
    if (!status)
        status = gpu->wait(stream, err);
    gpu->leave(before);
    return status;
}

/* The kernels count rows of heads in 32 bits. */
static bauta_status sizes_check(const bauta_mask *mask, size_t first,
                                size_t rows, const bt_attention_shape *shape,
                                bauta_error *err)
{
    size_t queries = bauta_mask_queries(mask), keys = bauta_mask_keys(mask);
    if (first > queries || rows > queries - first)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "rows %zu to %zu of a mask of %zu queries", first,
                       bt_size_add(first, rows), queries);
    if (bt_size_mul(bt_size_max(rows, keys), shape->heads) > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu queries and %zu keys of %zu heads: the GPU kernels "
                       "count in 32 bits",
                       rows, keys, shape->heads);
    return BAUTA_OK;
}

bauta_status bauta_gpu_plan_create(bauta_gpu_plan **out, bauta_context *context,
                                   const bauta_mask *mask, size_t first,
                                   size_t rows,
                                   const bauta_attention_shape *shape,
                                   bauta_dtype type, bool backward,
                                   bauta_error *err)
{
    bauta_attention_shape own;
    bt_attention_shape resolved;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED_GPU(context, err);
    BT_NEED(mask, err);
    bauta_status status = bt_gpu_shape_read(&own, &resolved, shape, err);
    if (!status)
        status = bt_gpu_type_check(type, err);
    if (!status)
        status = sizes_check(mask, first, rows, &resolved, err);
    if (status)
        return status;
    bauta_gpu_plan *plan = bt_alloc_zero(1, sizeof(*plan));
    if (!plan)
        return bt_fail_memory(err, "a plan for the GPU", sizeof(*plan));
    plan->owner = bt_gpu_owner_of(context);
    plan->type = type;
    plan->backward = backward;
    plan->shape = resolved;
    status = plan_make(plan, mask, first, rows, &own, context->gpu_stream, err);
    if (status) {
        bauta_gpu_plan_free(plan);
        return status;
    }
    *out = plan;
    return BAUTA_OK;
}

bauta_status bauta_gpu_plan_update(bauta_context *context, bauta_gpu_plan *plan,
                                   const bauta_mask *mask, size_t first,
                                   size_t rows, bauta_error *err)
{
    int before;
    BT_NEED_GPU(context, err);
    BT_NEED(plan, err);
    BT_NEED(mask, err);
    bauta_status status =
        bt_gpu_owner_check(&plan->owner, context, "plan", err);
    if (!status)
        status = sizes_check(mask, first, rows, &plan->shape, err);
    if (!status)
        status = context->gpu->enter(context->device, &before, err);
    if (status)
        return status;
    status = rows_set(plan, mask, first, rows, context->gpu_stream, err);
    context->gpu->leave(before);
    return status;
}

void bauta_gpu_plan_free(bauta_gpu_plan *plan)
{
    int before;
    if (!plan)
        return;
    if (!plan->owner.gpu->enter(plan->owner.device, &before, NULL)) {
        plan->owner.gpu->plan_free(plan->tiles);
        plan->owner.gpu->rows_free(plan->spans);
        plan->owner.gpu->leave(before);
    }
    bt_free(plan);
}

/* ---- Attention ----------------------------------------------------------- */

static bauta_status
call_check(bauta_attention_shape *own, bt_attention_shape *s,
           const bauta_context *context, const bauta_gpu_plan *plan,
           const bauta_attention_shape *shape, bauta_error *err)
{
    bauta_status status = bt_gpu_shape_read(own, s, shape, err);
    if (!status)
        status = bt_gpu_owner_check(&plan->owner, context, "plan", err);
    if (!status)
        status = bt_gpu_shape_match(&plan->shape, s, "plan", err);
    if (!status && !plan->ready)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "the plan has no rows: its last update failed");
    return status;
}

bauta_status bauta_gpu_attention_forward(bauta_context *context,
                                         bauta_gpu_plan *plan,
                                         const bauta_attention_shape *shape,
                                         const void *q, const void *k,
                                         const void *v, void *out, float *lse,
                                         bauta_error *err)
{
    bauta_attention_shape own;
    bt_attention_shape s;
    int before;
    BT_NEED_GPU(context, err);
    BT_NEED(plan, err);
    BT_NEED(q, err);
    BT_NEED(k, err);
    BT_NEED(v, err);
    BT_NEED(out, err);
    bauta_status status = call_check(&own, &s, context, plan, shape, err);
    if (!status)
        status = bt_attention_strides_disjoint(&s.out, "out", plan->rows,
                                               s.heads, s.value_dim, err);
    if (!status)
        status = context->gpu->enter(context->device, &before, err);
    if (status)
        return status;
    status = plan->type == BAUTA_FLOAT32
                 ? context->gpu->forward_f32(plan->spans, &own, q, k, v, out,
                                             lse, context->gpu_stream, err)
                 : context->gpu->forward_bf16(plan->tiles, &own, q, k, v, out,
                                              lse, context->gpu_stream, err);
    context->gpu->leave(before);
    return status;
}

bauta_status
bauta_gpu_attention_backward(bauta_context *context, bauta_gpu_plan *plan,
                             const bauta_attention_shape *shape, const void *q,
                             const void *k, const void *v, const void *out,
                             const float *lse, const void *dout, void *dq,
                             void *dk, void *dv, bauta_error *err)
{
    bauta_attention_shape own;
    bt_attention_shape s;
    int before;
    BT_NEED_GPU(context, err);
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
    bauta_status status = call_check(&own, &s, context, plan, shape, err);
    if (!status)
        status =
            bt_attention_gradients_disjoint(&s, plan->rows, plan->keys, err);
    if (!status && !plan->backward)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "the plan was created for the forward pass only");
    if (!status)
        status = context->gpu->enter(context->device, &before, err);
    if (status)
        return status;
    status = plan->type == BAUTA_FLOAT32
                 ? context->gpu->backward_f32(plan->spans, &own, q, k, v, out,
                                              lse, dout, dq, dk, dv,
                                              context->gpu_stream, err)
                 : context->gpu->backward_bf16(plan->tiles, &own, q, k, v, out,
                                               lse, dout, dq, dk, dv,
                                               context->gpu_stream, err);
    context->gpu->leave(before);
    return status;
}
