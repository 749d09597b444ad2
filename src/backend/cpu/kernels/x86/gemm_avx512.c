/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_avx512.c - the AVX-512 twin of the matrix product. */
#include "backend/cpu/kernels/x86/gemm_columns.h"

void bt_gemm_columns_f32_avx512(const bt_gemm *gemm, size_t first, size_t count)
{
    columns(gemm, first, count);
}

const bt_gemm_tiles bt_gemm_tiles_f32_avx512 = {
    .rows = TILE_ROWS,
    .columns = BLOCK_COLUMNS,
    .pack_rows = PACK_PANELS * TILE_ROWS,
    .depth = DEPTH,
    .part = PART_FLOATS,
    .pack_a = pack_a,
    .multiply = multiply,
};
