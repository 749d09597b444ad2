/* SPDX-License-Identifier: Apache-2.0 */
/* chunk_free.h - chunk.h of the bench that measures what the order of
 * arithmetic costs (model_gpu_free): sums are divided as suits a problem's size
 * and the GPU, so that their bits depend on the batch. Never part of the
 * library.
 *
 * BT_FREE_FEW_CHUNK is the shortest part of k that products of few rows may be
 * divided into. */
#ifndef BT_CUDA_CHUNK_FREE_H
#define BT_CUDA_CHUNK_FREE_H

#ifndef BT_FREE_FEW_CHUNK
#define BT_FREE_FEW_CHUNK 256
#endif

enum {
    BT_CHUNK = 4096, /* keys of decoding, which its kernels are made for */
    BT_FORWARD_CHUNK = 1 << 28,
    BT_GEMM_CHUNK = 1 << 24,
    BT_GEMM_ROW_CHUNK = 4096 /* the rows of logits, too */
};

static inline int bt_gemm_row_chunk(size_t m, size_t n)
{
    (void)m, (void)n;
    return BT_GEMM_ROW_CHUNK;
}

#define BT_GEMM_CHUNKS 1 << 24, 16384, 8192, 4096, 2048, 1024

/* As many parts as the GPU has room for at once, of tiles of 64 columns; the
 * whole of k where the tiles alone nearly fill it. */
static inline int bt_gemm_few_chunk(size_t n, size_t k)
{
    enum { LONGEST = 1024, PARTS = 8, BLOCKS = 128 };
    size_t tiles = (n + 63) / 64;
    if (tiles * 10 >= BLOCKS * 9)
        return BT_GEMM_CHUNK;
    for (size_t chunk = BT_FREE_FEW_CHUNK; chunk < LONGEST; chunk += 128) {
        size_t parts = (k + chunk - 1) / chunk;
        if (parts <= PARTS && tiles * parts <= BLOCKS)
            return (int)chunk;
    }
    return LONGEST;
}

#endif
