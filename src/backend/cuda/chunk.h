/* SPDX-License-Identifier: Apache-2.0 */
/* chunk.h - the lengths of chunks, constants of the library: they decide the
 * bits of every row that sees more keys than that (see softmax.h), and of every
 * product of more terms than that (see gemm.h).
 *
 * Long chunks cost the forward pass least; short ones give decoding more jobs
 * that run in parallel. docs/performance-log.md has the figures, and those of
 * a build without this order (chunk_free.h). */
#ifndef BT_CUDA_CHUNK_H
#define BT_CUDA_CHUNK_H

#include <stddef.h>

#ifdef BT_FREE_ORDER
#include "backend/cuda/chunk_free.h"
#else

enum {
    BT_CHUNK = 4096, /* keys, from a row's origin */
    BT_FORWARD_CHUNK = BT_CHUNK,
    BT_GEMM_CHUNK = 1024,     /* of k in NT and NN; a multiple of 64 */
    BT_GEMM_ROW_CHUNK = 4096, /* of k in TN for large matrices; the same */
    BT_GEMM_FEW_ROWS = 512    /* and for small ones */
};

/* Lengths that large products may choose from; 0 stands for the above. */
#define BT_GEMM_CHUNKS 0

/* The length of k in TN for a result of so many rows and columns. A small one
 * has few tiles, so short chunks let more blocks share the sums. */
static inline int bt_gemm_row_chunk(size_t m, size_t n)
{
    size_t tiles = ((m + 127) / 128) * ((n + 127) / 128);
    return tiles <= 4    ? BT_GEMM_FEW_ROWS
           : tiles <= 16 ? 2 * BT_GEMM_FEW_ROWS
                         : BT_GEMM_ROW_CHUNK;
}

/* The length for products of few rows. */
static inline int bt_gemm_few_chunk(size_t n, size_t k)
{
    (void)n, (void)k;
    return BT_GEMM_CHUNK;
}

#endif
#endif
