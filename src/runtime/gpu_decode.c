/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_decode.c - the public calls for decoding on a GPU. */
#include "base/size.h"
#include "base/sized.h"
#include "runtime/gpu_context.h"

struct bauta_gpu_decode_plan {
    bt_gpu_owner owner;
    bauta_dtype type;
    bt_attention_shape shape; /* heads and dims */
    size_t page_keys;
    bool ready;            /* a step was prepared */
    size_t rows;           /* of the step */
    bt_cuda_decode *steps; /* bfloat16 */
    bt_cuda_rows *spans;   /* float32; of the step */
};

bauta_status bauta_gpu_decode_plan_create(bauta_gpu_decode_plan **out,
                                          bauta_context *context,
                                          const bauta_attention_shape *shape,
                                          size_t page_keys, bauta_dtype type,
                                          bauta_error *err)
{
    int before;
    bauta_attention_shape own;
    bt_attention_shape resolved;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED_GPU(context, err);
    bauta_status status = bt_gpu_shape_read(&own, &resolved, shape, err);
    if (!status)
        status = bt_gpu_type_check(type, err);
    if (status)
        return status;
    if (resolved.value_dim != resolved.head_dim)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "keys of %zu and values of %zu do not share pages",
                       resolved.head_dim, resolved.value_dim);
    bauta_gpu_decode_plan *decode = bt_alloc_zero(1, sizeof(*decode));
    if (!decode)
        return bt_fail_memory(err, "decoding on the GPU", sizeof(*decode));
    decode->owner = bt_gpu_owner_of(context);
    decode->type = type;
    decode->shape = resolved;
    decode->page_keys = page_keys;
    status = context->gpu->enter(context->device, &before, err);
    if (!status) {
        // An empty step checks whether pages of this size are supported.
        status = type == BAUTA_FLOAT32
                     ? context->gpu->rows_of_step(&decode->spans, NULL, 0,
                                                  page_keys, err)
                     : context->gpu->decode_create(&decode->steps, &own,
                                                   page_keys, err);
        context->gpu->leave(before);
    }
    if (status) {
        bt_free(decode);
        return status;
    }
    *out = decode;
    return BAUTA_OK;
}

void bauta_gpu_decode_plan_free(bauta_gpu_decode_plan *decode)
{
    int before;
    if (!decode)
        return;
    if (!decode->owner.gpu->enter(decode->owner.device, &before, NULL)) {
        decode->owner.gpu->decode_free(decode->steps);
        decode->owner.gpu->rows_free(decode->spans);
        decode->owner.gpu->leave(before);
    }
    bt_free(decode);
}

/* Check the caller's sequences and copy them; freed with bt_free(). */
static bauta_status sequences_copy(bt_decode_sequence **out,
                                   const bauta_gpu_sequence *sequences,
                                   size_t count, size_t *rows, bauta_error *err)
{
    if (count)
        BT_NEED(sequences, err);
    BT_NEED_COUNT("sequences", count, BT_SIZED_MAX, err);
    *rows = 0;
    *out = bt_alloc_zero(count, sizeof(**out));
    if (!*out)
        return bt_fail_memory(err, "a decoding step", count * sizeof(**out));
    for (size_t i = 0; i < count; i++) {
        bauta_gpu_sequence s;
        bauta_status status = BT_SIZED_ELEMENT(&s, BAUTA_GPU_SEQUENCE_INIT,
                                               sequences, i, "sequences", err);
        if (status)
            return status;
        if (!s.mask || (!s.block_table && bauta_mask_keys(s.mask)))
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "sequence %zu has no mask or no pages", i);
        size_t queries = bauta_mask_queries(s.mask);
        if (s.first > queries || s.rows > queries - s.first)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "sequence %zu: rows %zu to %zu of a mask of %zu "
                           "queries",
                           i, s.first, bt_size_add(s.first, s.rows), queries);
        *rows = bt_size_add(*rows, s.rows);
        (*out)[i] =
            (bt_decode_sequence){ s.mask, s.first, s.rows, s.block_table };
    }
    return BAUTA_OK;
}

bauta_status bauta_gpu_decode_plan_update(bauta_context *context,
                                          bauta_gpu_decode_plan *decode,
                                          const bauta_gpu_sequence *sequences,
                                          size_t count, bauta_error *err)
{
    int before;
    size_t rows = 0;
    bt_decode_sequence *copies = NULL;
    BT_NEED_GPU(context, err);
    BT_NEED(decode, err);
    decode->ready = false;
    bauta_status status =
        bt_gpu_owner_check(&decode->owner, context, "decoding object", err);
    if (!status)
        status = sequences_copy(&copies, sequences, count, &rows, err);
    if (!status)
        status = context->gpu->enter(context->device, &before, err);
    if (status) {
        bt_free(copies);
        return status;
    }
    if (decode->type == BAUTA_FLOAT32) {
        context->gpu->rows_free(decode->spans);
        status = context->gpu->rows_of_step(&decode->spans, copies, count,
                                            decode->page_keys, err);
    } else {
        status = context->gpu->decode_step(decode->steps, copies, count,
                                           context->gpu_stream, err);
    }
    context->gpu->leave(before);
    bt_free(copies);
    decode->ready = !status;
    decode->rows = rows;
    return status;
}

/* Check the pages and convert them to the kernels' struct. */
static bauta_status pages_take(bt_cuda_pages *to, const bauta_gpu_pages *given,
                               const bauta_gpu_decode_plan *decode,
                               bauta_error *err)
{
    bauta_gpu_pages own;
    const bauta_gpu_pages *pages = &own;
    if (!given)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "pages is NULL");
    bauta_status status =
        BT_SIZED_READ(&own, BAUTA_GPU_PAGES_INIT, given, "pages", err);
    if (status)
        return status;
    if (pages->page_keys != decode->page_keys)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "pages have %zu keys; the decoding object was made for "
                       "%zu",
                       pages->page_keys, decode->page_keys);
    if (pages->pages && (!pages->k || !pages->v))
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "%zu pages, and no k or no v",
                       pages->pages);
    *to = (bt_cuda_pages){ .k = pages->k,
                           .v = pages->v,
                           .pages = pages->pages,
                           .page_keys = pages->page_keys,
                           .page = pages->page_stride,
                           .head = pages->head_stride,
                           .token = pages->token_stride,
                           .early_reads = pages->early_reads };
    return BAUTA_OK;
}

bauta_status bauta_gpu_attention_decode(bauta_context *context,
                                        bauta_gpu_decode_plan *decode,
                                        const bauta_attention_shape *shape,
                                        const void *q,
                                        const bauta_gpu_pages *pages, void *out,
                                        float *lse, bauta_error *err)
{
    bauta_attention_shape own;
    bt_attention_shape s;
    bt_cuda_pages taken;
    int before;
    BT_NEED_GPU(context, err);
    BT_NEED(decode, err);
    BT_NEED(q, err);
    BT_NEED(out, err);
    bauta_status status = bt_gpu_shape_read(&own, &s, shape, err);
    if (!status)
        status =
            bt_gpu_owner_check(&decode->owner, context, "decoding object", err);
    if (!status)
        status = bt_gpu_shape_match(&decode->shape, &s, "decoding object", err);
    if (!status && !decode->ready)
        status =
            bt_fail(err, BAUTA_ERR_ARGUMENT,
                    "there is no step: bauta_gpu_decode_plan_update() comes "
                    "first");
    if (!status)
        status = pages_take(&taken, pages, decode, err);
    if (!status)
        status = bt_attention_strides_disjoint(&s.out, "out", decode->rows,
                                               s.heads, s.value_dim, err);
    if (!status)
        status = context->gpu->enter(context->device, &before, err);
    if (status)
        return status;
    status =
        decode->type == BAUTA_FLOAT32
            ? context->gpu->decode_f32(decode->spans, &own, q, &taken, out, lse,
                                       context->gpu_stream, err)
            : context->gpu->decode_bf16(decode->steps, &own, q, &taken, out,
                                        lse, context->gpu_stream, err);
    context->gpu->leave(before);
    return status;
}
