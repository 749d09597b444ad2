/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_hopper.h - what products need of sm_90a beyond hopper.h: wgmma of every
 * width and either layout, boxes of matrices that the copy engine delivers to
 * several blocks of a cluster at once, and barriers of another block. */
#ifndef BT_CUDA_GEMM_HOPPER_H
#define BT_CUDA_GEMM_HOPPER_H

#include "kernels/cuda/hopper.h"

/* ---- clusters ----------------------------------------------------------- */

BT_DEVICE uint32_t cluster_rank(void)
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* All threads of all blocks; what they wrote before is seen after it. */
BT_DEVICE void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;\n" ::
                     : "memory");
}

/* Where block `rank` has what this block has at this address. */
BT_DEVICE uint32_t cluster_address(const void *pointer, uint32_t rank)
{
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(address)
                 : "r"(shared_address(pointer)), "r"(rank));
    return address;
}

/* Tell that block's barrier; for tiles that a wgmma has read. (A release that
 * is wider than the block would wait for all memory.) */
BT_DEVICE void cluster_arrive(uint64_t *barrier, uint32_t rank)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(
                     cluster_address(barrier, rank))
                 : "memory");
}

/* Two floats of another block. Only volatile, so that loads overlap: they are
 * ordered by cluster_sync() alone. */
BT_DEVICE float2 cluster_load(uint32_t address)
{
    float2 v;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(address));
    return v;
}

/* ---- boxes of a matrix --------------------------------------------------- */

BT_DEVICE void tma_load_matrix(void *to, const CUtensorMap *map, int column,
                               int row, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                 "[%4];" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
                 : "memory");
}

/* To the same place in every block of the cluster whose bit is set in `to`,
 * each of which is told by its own barrier. */
BT_DEVICE void tma_load_matrix_multicast(void *at, const CUtensorMap *map,
                                         int column, int row, uint64_t *barrier,
                                         uint16_t to)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(at)),
                 "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)),
                 "h"(to)
                 : "memory");
}

BT_DEVICE void tma_store_matrix(const CUtensorMap *map, int column, int row,
                                const void *from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
                 "[%0, {%1, %2}], [%3];" ::"l"(map),
                 "r"(column), "r"(row), "r"(shared_address(from))
                 : "memory");
}

/* ---- products ------------------------------------------------------------ */

#define BT_REGS_4 "%0, %1, %2, %3"
#define BT_REGS_8 BT_REGS_4 ", %4, %5, %6, %7"
#define BT_REGS_16 BT_REGS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define BT_REGS_32                                                             \
    BT_REGS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27," \
               " %28, %29, %30, %31"
#define BT_REGS_64                                                             \
    BT_REGS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43," \
               " %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55,"  \
               " %56, %57, %58, %59, %60, %61, %62, %63"
#define BT_REGS_96                                                             \
    BT_REGS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75," \
               " %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87,"  \
               " %88, %89, %90, %91, %92, %93, %94, %95"
#define BT_REGS_128                                                          \
    BT_REGS_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105,"   \
               " %106, %107, %108, %109, %110, %111, %112, %113, %114, %115" \
               ", %116, %117, %118, %119, %120, %121, %122, %123, %124,"     \
               " %125, %126, %127"

/* The operands that follow the registers are %A, %B, %P, %TA, %TB. */
#define BT_WGMMA(N, REGS, A, B, P, TA_, TB_, ...)                            \
    asm volatile("{\n"                                                       \
                 ".reg .pred p;\n"                                           \
                 "setp.ne.b32 p, %" #P ", 0;\n"                              \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 " \
                 "{" REGS "}, %" #A ", %" #B ", p, 1, 1, %" #TA_ ", %" #TB_  \
                 ";\n"                                                       \
                 "}\n"                                                       \
                 : __VA_ARGS__                                               \
                 : "l"(a), "l"(b), "r"(accumulate), "n"(TA), "n"(TB))

#define BT_ACC_4(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define BT_ACC_16(d, i) BT_ACC_8(d, i), BT_ACC_8(d, i + 8)
#define BT_ACC_64(d, i) BT_ACC_32(d, i), BT_ACC_32(d, i + 32)

/* d (64 x N, N / 2 registers a thread) = or += a (64 x 16) b^T (b N x 16),
 * both from shared memory. TA, TB: the operand lies with k outside, in panels
 * of 64 rows of a or b. */
template <int N, int TA, int TB>
BT_DEVICE void wgmma(float *d, uint64_t a, uint64_t b, int accumulate)
{
    if constexpr (N == 8)
        BT_WGMMA(8, BT_REGS_4, 4, 5, 6, 7, 8, BT_ACC_4(d, 0));
    else if constexpr (N == 16)
        BT_WGMMA(16, BT_REGS_8, 8, 9, 10, 11, 12, BT_ACC_8(d, 0));
    else if constexpr (N == 32)
        BT_WGMMA(32, BT_REGS_16, 16, 17, 18, 19, 20, BT_ACC_16(d, 0));
    else if constexpr (N == 64)
        BT_WGMMA(64, BT_REGS_32, 32, 33, 34, 35, 36, BT_ACC_32(d, 0));
    else if constexpr (N == 128)
        BT_WGMMA(128, BT_REGS_64, 64, 65, 66, 67, 68, BT_ACC_64(d, 0));
    else if constexpr (N == 192)
        BT_WGMMA(192, BT_REGS_96, 96, 97, 98, 99, 100, BT_ACC_64(d, 0),
                 BT_ACC_32(d, 64));
    else {
        static_assert(N == 256, "no such product");
        BT_WGMMA(256, BT_REGS_128, 128, 129, 130, 131, 132, BT_ACC_64(d, 0),
                 BT_ACC_64(d, 64));
    }
}

#endif
