/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - bringing the rows of a mask to the GPU. */
#include "kernels/cuda/rows.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/mask.h"

#include <cuda_runtime_api.h>
#include <string.h>

/* Starts, origins, spans: in 32 bits, one behind the other. */
static void fill(int32_t *to, const bauta_mask *mask, size_t first, size_t rows)
{
    size_t from = mask->start[first];
    for (size_t i = 0; i <= rows; i++)
        *to++ = (int32_t)(mask->start[first + i] - from);
    for (size_t i = 0; i < rows; i++)
        *to++ = (int32_t)mask->origin[first + i];
    for (size_t i = from; i < mask->start[first + rows]; i++) {
        *to++ = (int32_t)mask->spans[i].lo;
        *to++ = (int32_t)mask->spans[i].hi;
    }
}

static bauta_status upload(bt_cuda_rows *rows, const int32_t *words,
                           size_t bytes, bauta_error *err)
{
    cudaError_t status = cudaMalloc(&rows->memory, bytes);
    if (status) {
        rows->memory = NULL;
        cudaGetLastError(); // it was told; the next call starts clean
        return bt_fail(err, BAUTA_ERR_NOMEM, "%zu bytes on the GPU: %s", bytes,
                       cudaGetErrorString(status));
    }
    status = cudaMemcpy(rows->memory, words, bytes, cudaMemcpyHostToDevice);
    if (status)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "cannot copy the rows of a mask to the GPU: %s",
                       cudaGetErrorString(status));
    return BAUTA_OK;
}

bauta_status bt_cuda_rows_create(bt_cuda_rows **out, const bauta_mask *mask,
                                 size_t first, size_t rows, bauta_error *err)
{
    bt_cuda_rows *r = NULL;
    int32_t *words = NULL;
    bauta_status status = BAUTA_OK;

    *out = NULL;
    if (first > mask->queries || rows > mask->queries - first)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "rows %zu to %zu of a mask of %zu queries", first,
                       bt_size_add(first, rows), mask->queries);
    size_t spans = mask->start[first + rows] - mask->start[first];
    if (spans > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu spans: the GPU kernels count in 32 bits", spans);
    size_t count = 2 * rows + 1 + 2 * spans;
    r = bt_alloc_zero(1, sizeof(*r));
    words = bt_alloc(bt_size_mul(count, sizeof(*words)));
    if (!r || !words) {
        status = bt_fail_memory(err, "the rows of a mask",
                                bt_size_mul(count, sizeof(*words)));
        goto done;
    }
    fill(words, mask, first, rows);
    status = upload(r, words, count * sizeof(*words), err);
    if (status)
        goto done;
    const int32_t *memory = r->memory;
    r->device = (bt_row_spans){
        .count = (int32_t)rows,
        .keys = (int32_t)mask->keys,
        .start = memory,
        .origin = memory + rows + 1,
        .spans = (const bt_row_span *)(memory + 2 * rows + 1),
    };
    *out = r;
    r = NULL;
done:
    bt_free(words);
    bt_cuda_rows_free(r);
    return status;
}

void bt_cuda_rows_free(bt_cuda_rows *rows)
{
    if (!rows)
        return;
    cudaFree(rows->memory);
    bt_free(rows);
}
