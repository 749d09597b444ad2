/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_attention.c - the public calls for GPU plans and attention over them. */
#include "base/size.h"
#include "mask/mask.h"
#include "mask/plan.h"
#include "runtime/gpu_context.h"

struct bauta_gpu_plan {
    bt_gpu_owner owner;
    bauta_dtype type;
    bool backward;
    size_t rows, keys;
    bt_attention_shape shape; /* heads and dims */
    bt_cuda_plan *tiles;      /* bfloat16 */
    bt_cuda_rows *spans;      /* float32 */
};

/* ---- Plans ------------------------------------------------ */

static bauta_status tiles_make(bauta_gpu_plan *plan, const bauta_mask *mask,
                               size_t first, const bauta_attention_shape *shape,
                               bauta_error *err)
{
    const bt_gpu *gpu = plan->owner.gpu;
    bauta_plan *source = NULL;
    // If there is no kernel for this head_dim, plan_create says which exist.
    size_t tile_rows = bt_size_max(gpu->tile_rows(shape->head_dim), 1);
    bauta_status status =
        bt_plan_create(&source, mask, first, plan->rows, tile_rows, err);
    if (!status)
        status = gpu->plan_create(&plan->tiles, source, shape, err);
    if (!status && plan->backward)
        status = gpu->plan_add_backward(plan->tiles, source, err);
    bauta_plan_free(source);
    return status;
}

static bauta_status plan_make(bauta_gpu_plan *plan, const bauta_mask *mask,
                              size_t first, const bauta_attention_shape *shape,
                              bauta_error *err)
{
    int before;
    bauta_status status =
        plan->owner.gpu->enter(plan->owner.device, &before, err);
    if (status)
        return status;
    status = plan->type == BAUTA_FLOAT32
                 ? plan->owner.gpu->rows_create(&plan->spans, mask, first,
                                                plan->rows, err)
                 : tiles_make(plan, mask, first, shape, err);
    plan->owner.gpu->leave(before);
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
    plan->rows = rows;
    plan->keys = bauta_mask_keys(mask);
    plan->shape = resolved;
    status = plan_make(plan, mask, first, &own, err);
    if (status) {
        bauta_gpu_plan_free(plan);
        return status;
    }
    *out = plan;
    return BAUTA_OK;
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
                                             lse, context->stream, err)
                 : context->gpu->forward_bf16(plan->tiles, &own, q, k, v, out,
                                              lse, context->stream, err);
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
    status =
        plan->type == BAUTA_FLOAT32
            ? context->gpu->backward_f32(plan->spans, &own, q, k, v, out, lse,
                                         dout, dq, dk, dv, context->stream, err)
            : context->gpu->backward_bf16(plan->tiles, &own, q, k, v, out, lse,
                                          dout, dq, dk, dv, context->stream,
                                          err);
    context->gpu->leave(before);
    return status;
}
