/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_hopper.h - what products need of sm_90a beyond hopper.h: wgmma of every
 * width and either layout, boxes of matrices, and what another block of a
 * cluster has in shared memory. */
#ifndef BT_CUDA_GEMM_HOPPER_H
#define BT_CUDA_GEMM_HOPPER_H

#include "backend/cuda/hopper.h"

/* ---- clusters ----------------------------------------------------------- */

/* Send two floats to another block, whose barrier counts their 8 bytes. */
BT_DEVICE void cluster_store(uint32_t address, float x, float y,
                             uint32_t barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 "
                 "[%0], {%1, %2}, [%3];" ::"r"(address),
                 "f"(x), "f"(y), "r"(barrier)
                 : "memory");
}

/* Send four, 16 bytes. */
BT_DEVICE void cluster_store4(uint32_t address, const float *v,
                              uint32_t barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                 "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
                 "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(barrier)
                 : "memory");
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

/* The same with a policy of the L2. */
BT_DEVICE void tma_load_matrix_by(void *to, const CUtensorMap *map, int column,
                                  int row, uint64_t *barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)),
                 "l"(policy)
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

/* Wait until all but the latest N groups of stores have been read. */
template <int N> BT_DEVICE void tma_store_wait_read_but(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
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

/* The operands that follow the registers are %A, %B, %TA, %TB; P says whether
 * sums are added to. */
#define BT_WGMMA(N, REGS, P, A, B, TA_, TB_, ...)                            \
    asm volatile("{\n"                                                       \
                 ".reg .pred p;\n"                                           \
                 "setp." P ".b32 p, 0, 0;\n"                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 " \
                 "{" REGS "}, %" #A ", %" #B ", p, 1, 1, %" #TA_ ", %" #TB_  \
                 ";\n"                                                       \
                 "}\n"                                                       \
                 : __VA_ARGS__                                               \
                 : "l"(a), "l"(b), "n"(TA), "n"(TB))

/* Registers that are added to, and registers that are only written: what they
 * held need not be kept until then. */
#define BT_ADD_4(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define BT_SET_4(d, i) \
    "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3])
#define BT_ALL_8(F, d, i) F(d, i), F(d, i + 4)
#define BT_ALL_16(F, d, i) BT_ALL_8(F, d, i), BT_ALL_8(F, d, i + 8)
#define BT_ALL_32(F, d, i) BT_ALL_16(F, d, i), BT_ALL_16(F, d, i + 16)
#define BT_ALL_64(F, d, i) BT_ALL_32(F, d, i), BT_ALL_32(F, d, i + 32)

#define BT_WGMMA_OF(N, REGS, A, B, TA_, TB_, ALL)                         \
    do {                                                                  \
        if constexpr (FIRST)                                              \
            BT_WGMMA(N, REGS, "ne", A, B, TA_, TB_, ALL(BT_SET_4, d, 0)); \
        else                                                              \
            BT_WGMMA(N, REGS, "eq", A, B, TA_, TB_, ALL(BT_ADD_4, d, 0)); \
    } while (0)

#define BT_ALL_4(F, d, i) F(d, i)
#define BT_ALL_96(F, d, i) BT_ALL_64(F, d, i), BT_ALL_32(F, d, i + 64)

/* d (64 x N, N / 2 registers a thread) += a (64 x 16) b^T (b N x 16), both from
 * shared memory; = where it is the FIRST. TA, TB: the operand lies with k
 * outside, in panels of 64 rows of a or b. */
template <int N, int TA, int TB, bool FIRST>
BT_DEVICE void wgmma(float *d, uint64_t a, uint64_t b)
{
    if constexpr (N == 8)
        BT_WGMMA_OF(8, BT_REGS_4, 4, 5, 6, 7, BT_ALL_4);
    else if constexpr (N == 16)
        BT_WGMMA_OF(16, BT_REGS_8, 8, 9, 10, 11, BT_ALL_8);
    else if constexpr (N == 32)
        BT_WGMMA_OF(32, BT_REGS_16, 16, 17, 18, 19, BT_ALL_16);
    else if constexpr (N == 64)
        BT_WGMMA_OF(64, BT_REGS_32, 32, 33, 34, 35, BT_ALL_32);
    else if constexpr (N == 128)
        BT_WGMMA_OF(128, BT_REGS_64, 64, 65, 66, 67, BT_ALL_64);
    else {
        static_assert(N == 192, "no such product");
        BT_WGMMA_OF(192, BT_REGS_96, 96, 97, 98, 99, BT_ALL_96);
    }
}

#endif
