/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h - the table of what a library with CUDA can do, for those who know
 * nothing of CUDA. A library without has none, and the rest of it is the same.
 *
 * Calls that take no device are for the current one: between enter and leave,
 * which put back whatever the caller's thread had. */
#ifndef BT_CUDA_GPU_H
#define BT_CUDA_GPU_H

#include "backend/cuda/cuda.h"

typedef struct bt_gpu {
    size_t (*count)(void); /* that the kernels run on */
    /* CUDA's number of a device that the kernels run on: `number` itself, or
     * the first one for -1. A sentence where there is none. */
    bauta_status (*find)(int number, int *device, bauta_error *err);
    bauta_status (*enter)(int device, int *before, bauta_error *err);
    void (*leave)(int before);

    bauta_status (*alloc)(void **out, size_t bytes, bauta_error *err);
    void (*free)(void *memory);
    bauta_status (*copy)(void *to, const void *from, size_t bytes, bool to_gpu,
                         void *stream, bauta_error *err);
    bauta_status (*wait)(void *stream, bauta_error *err);

    /* See cuda.h. */
    bauta_status (*plan_create)(bt_cuda_plan **out,
                                const bauta_attention_shape *shape,
                                bool backward, bauta_error *err);
    bauta_status (*plan_update)(bt_cuda_plan *plan, const bauta_mask *mask,
                                size_t first, size_t rows, size_t tile_rows,
                                void *stream, bauta_error *err);
    void (*plan_free)(bt_cuda_plan *plan);
    bauta_status (*forward_bf16)(bt_cuda_plan *plan,
                                 const bauta_attention_shape *shape,
                                 const uint16_t *q, const uint16_t *k,
                                 const uint16_t *v, uint16_t *out, float *lse,
                                 void *stream, bauta_error *err);
    bauta_status (*backward_bf16)(bt_cuda_plan *plan,
                                  const bauta_attention_shape *shape,
                                  const uint16_t *q, const uint16_t *k,
                                  const uint16_t *v, const uint16_t *out,
                                  const float *lse, const uint16_t *dout,
                                  uint16_t *dq, uint16_t *dk, uint16_t *dv,
                                  void *stream, bauta_error *err);
    bauta_status (*rows_create)(bt_cuda_rows **out, const bauta_mask *mask,
                                size_t first, size_t rows, bauta_error *err);
    void (*rows_free)(bt_cuda_rows *rows);
    bauta_status (*forward_f32)(const bt_cuda_rows *rows,
                                const bauta_attention_shape *shape,
                                const float *q, const float *k, const float *v,
                                float *out, float *lse, void *stream,
                                bauta_error *err);
    bauta_status (*backward_f32)(const bt_cuda_rows *rows,
                                 const bauta_attention_shape *shape,
                                 const float *q, const float *k, const float *v,
                                 const float *out, const float *lse,
                                 const float *dout, float *dq, float *dk,
                                 float *dv, void *stream, bauta_error *err);
    bauta_status (*decode_create)(bt_cuda_decode **out,
                                  const bauta_attention_shape *shape,
                                  size_t page_keys, bauta_error *err);
    void (*decode_free)(bt_cuda_decode *decode);
    bauta_status (*decode_step)(bt_cuda_decode *decode,
                                const bt_decode_sequence *sequences,
                                size_t count, void *stream, bauta_error *err);
    bauta_status (*decode_bf16)(bt_cuda_decode *decode,
                                const bauta_attention_shape *shape,
                                const uint16_t *q, const bt_cuda_pages *pages,
                                uint16_t *out, float *lse, void *stream,
                                bauta_error *err);
    bauta_status (*rows_of_step)(bt_cuda_rows **out,
                                 const bt_decode_sequence *sequences,
                                 size_t count, size_t page_keys,
                                 bauta_error *err);
    bauta_status (*decode_f32)(const bt_cuda_rows *rows,
                               const bauta_attention_shape *shape,
                               const float *q, const bt_cuda_pages *pages,
                               float *out, float *lse, void *stream,
                               bauta_error *err);
} bt_gpu;

/* NULL: the library was built without CUDA. */
const bt_gpu *bt_gpu_table(void);

#endif
