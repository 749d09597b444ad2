/* SPDX-License-Identifier: Apache-2.0 */
/* ops_pieces.c - the pieces of the optimizer's parameters, as
 * train/optimizer.c cuts them. */
#include "backend/cuda/ops.h"

size_t bt_cuda_pieces(bt_cuda_piece *pieces, const size_t *counts, size_t slots)
{
    size_t all = 0;
    for (size_t i = 0; i < slots; i++)
        for (size_t from = 0; from < counts[i]; from += BT_CUDA_PIECE) {
            size_t left = counts[i] - from;
            if (pieces)
                pieces[all] = (bt_cuda_piece){
                    (uint32_t)i,
                    (uint32_t)(left < BT_CUDA_PIECE ? left : BT_CUDA_PIECE),
                    from
                };
            all++;
        }
    return all;
}
