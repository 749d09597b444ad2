/* SPDX-License-Identifier: Apache-2.0 */
/* warp.h - the tensor cores as one warp uses them: small products of what its
 * registers hold, fetched from tiles that lie in shared memory as hopper.h
 * says. Lane 4 * g + t holds, of a product of 16 rows,
 *
 *     a (16 x 16)  rows g and g + 8, columns 2 t, 2 t + 1 and 8 more, as bf16:
 *                  (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8)
 *     b (16 x 8)   rows 2 t, 2 t + 1 and 8 more, column g
 *     d (16 x 8)   rows g and g + 8, columns 2 t and 2 t + 1, as float32 */
#ifndef BT_CUDA_WARP_H
#define BT_CUDA_WARP_H

#include "backend/cuda/hopper.h"

/* Four matrices of 8 rows and 16 bytes, to whose rows the lanes point: lane i
 * to row i % 8 of matrix i / 8. Lane 4 * g + t gets the columns 2 t, 2 t + 1 of
 * the rows g; */
BT_DEVICE void ldmatrix_x4(uint32_t *to, uint32_t from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, "
                 "[%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from));
}

/* transposed, the rows 2 t, 2 t + 1 of the columns g. */
BT_DEVICE void ldmatrix_x4_trans(uint32_t *to, uint32_t from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from));
}

/* d += a b. */
BT_DEVICE void mma_16816(float *d, const uint32_t *a, const uint32_t *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Bring a line into the L2. */
BT_DEVICE void prefetch(const void *at)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

/* Increment, or wrap to 0 at `last`; returns the old value. Release and
 * acquire: writes that precede this are visible to threads that count later. */
BT_DEVICE uint32_t atomic_inc_wrap(uint32_t *counter, uint32_t last)
{
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(last)
                 : "memory");
    return before;
}

/* For data that is read once and should not evict other data from the L2. */
BT_DEVICE uint64_t policy_evict_first(void)
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;"
                 : "=l"(policy));
    return policy;
}

/* Load a box of a (page, head, key, column) tensor. */
BT_DEVICE void tma_load_page(void *to, const CUtensorMap *map, int column,
                             int key, int head, int page, uint64_t *barrier,
                             uint64_t policy)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(shared_address(to)),
        "l"(map), "r"(column), "r"(key), "r"(head), "r"(page),
        "r"(shared_address(barrier)), "l"(policy)
        : "memory");
}

#endif
