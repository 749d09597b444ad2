/* SPDX-License-Identifier: Apache-2.0 */
/* hopper.h - the instructions of sm_90a that C has no name for.
 *
 * A tile travels so: one thread asks the copy engine (TMA) to fetch a box of a
 * tensor into shared memory; the engine reports the bytes to an mbarrier; a
 * warpgroup that waits there hands the tile to the tensor cores (wgmma), which
 * read it from shared memory by a descriptor and run while the warpgroup does
 * something else.
 *
 * Tiles lie in shared memory as TMA writes them with the 128-byte swizzle: in
 * panels of 64 bf16 columns, a row of a panel is 128 bytes, and its eight
 * 16-byte chunks are permuted by XOR with the row's number modulo 8, so that
 * a column of chunks touches every bank once.
 *
 * Every asm is volatile: their order is the program. */
#ifndef BT_CUDA_HOPPER_H
#define BT_CUDA_HOPPER_H

#include <cuda.h>
#include <stdint.h>

#define BT_DEVICE static __device__ __forceinline__

BT_DEVICE uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* ---- mbarriers --------------------------------------------------------- */

/* A barrier completes a phase when `arrivals` threads arrived and the bytes
 * that were announced have landed. Waiters name the parity of the phase. */
BT_DEVICE void barrier_init(uint64_t *barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
                     shared_address(barrier)),
                 "r"(arrivals));
}

BT_DEVICE void barrier_init_done(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

BT_DEVICE void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(
                     shared_address(barrier))
                 : "memory");
}

/* As many threads at once. */
BT_DEVICE void barrier_arrive_many(uint64_t *barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

BT_DEVICE void barrier_arrive_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

BT_DEVICE void barrier_wait(uint64_t *barrier, uint32_t phase)
{
    uint32_t done;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}\n"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(phase)
                     : "memory");
    } while (!done);
}

/* One warp releases a buffer, and one lane arrives for all. compute-sanitizer's
 * racecheck does not see that, so for it every lane arrives (BT_EVERY_LANE).
 *
 * Loads from the buffer must have completed, not only have been issued: nothing
 * makes the copy engine wait for a load in flight. So the loaded values must be
 * used before this by something that cannot move after it, such as a wgmma.
 * Check the machine code. */
#ifdef BT_EVERY_LANE
enum { WARP_ARRIVALS = 32 };
#else
enum { WARP_ARRIVALS = 1 };
#endif

BT_DEVICE void consumer_release(uint64_t *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 < WARP_ARRIVALS)
        barrier_arrive(empty);
}

/* ---- named barriers: some of the warps of a block ---------------------- */

BT_DEVICE void named_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* And whether `mine` is true for one of them. */
BT_DEVICE bool named_any(int id, int threads, bool mine)
{
    uint32_t any;
    asm volatile("{\n"
                 ".reg .pred p, q;\n"
                 "setp.ne.u32 p, %3, 0;\n"
                 "barrier.cta.red.or.pred q, %1, %2, p;\n"
                 "selp.u32 %0, 1, 0, q;\n"
                 "}\n"
                 : "=r"(any)
                 : "r"(id), "r"(threads), "r"((uint32_t)mine)
                 : "memory");
    return any;
}

BT_DEVICE void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- the copy engine --------------------------------------------------- */

BT_DEVICE void tensor_map_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Load a box of a (token, head, column) tensor. */
BT_DEVICE void tma_load_box(void *to, const CUtensorMap *map, int column,
                            int head, int token, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
                 "[%5];" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(head), "r"(token),
                 "r"(shared_address(barrier))
                 : "memory");
}

/* Load a box of a (page, head, key, column) tensor. */
BT_DEVICE void tma_load_page(void *to, const CUtensorMap *map, int column,
                             int key, int head, int page, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
                 "[%6];" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(key), "r"(head), "r"(page),
                 "r"(shared_address(barrier))
                 : "memory");
}

/* Bring such a box into the L2. It need not be complete yet: whoever writes it
 * writes there, too. */
BT_DEVICE void tma_prefetch_page(const CUtensorMap *map, int column, int key,
                                 int head, int page)
{
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile "
                 "[%0, {%1, %2, %3, %4}];" ::"l"(map),
                 "r"(column), "r"(key), "r"(head), "r"(page)
                 : "memory");
}

/* Load contiguous bytes; addresses and size are multiples of 16. */
BT_DEVICE void bulk_load(void *to, const void *from, uint32_t bytes,
                         uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global"
                 ".mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* Store a box of a (token, head, column) tensor; this thread's stores are a
 * group, and tma_store_wait_read waits until their tiles may be overwritten. */
BT_DEVICE void tma_store_box(const CUtensorMap *map, int column, int head,
                             int token, const void *from)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
                 "[%0, {%1, %2, %3}], [%4];" ::"l"(map),
                 "r"(column), "r"(head), "r"(token), "r"(shared_address(from))
                 : "memory");
}

BT_DEVICE void tma_store_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

BT_DEVICE void tma_store_wait_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* And until they are written. Required before the thread ends. */
BT_DEVICE void tma_store_wait(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Orders this thread's writes to shared memory before accesses by the copy
 * engine or the tensor cores. */
BT_DEVICE void fence_proxy_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- clusters ----------------------------------------------------------- */

/* All threads of all blocks arrive and wait. Barriers that were initialized
 * before, and nothing else, are seen by other blocks after it. */
BT_DEVICE void cluster_arrive(void)
{
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

BT_DEVICE void cluster_wait(void)
{
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
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

/* All threads of all blocks have done what they did before. */
BT_DEVICE void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}

BT_DEVICE uint32_t cluster_rank(void)
{
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Arrive at a barrier of another block. For those who have read what may now be
 * overwritten; */
BT_DEVICE void cluster_barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier)
                 : "memory");
}

/* this one is for those who have written to the other block, and waits until
 * that is there. */
BT_DEVICE void cluster_barrier_release(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, "
                 "[%0];" ::"r"(barrier)
                 : "memory");
}

/* The other side of it. */
BT_DEVICE void cluster_barrier_wait(uint64_t *barrier, uint32_t phase)
{
    uint32_t done;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 "
                     "p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}\n"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(phase)
                     : "memory");
    } while (!done);
}

BT_DEVICE void cluster_store_word(uint32_t address, int word)
{
    asm volatile("st.shared::cluster.s32 [%0], %1;" ::"r"(address), "r"(word)
                 : "memory");
}

/* Send 16 bytes to another block, whose barrier counts them. */
BT_DEVICE void cluster_store_words(uint32_t address, uint4 words,
                                   uint32_t barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
                 "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
                 "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w),
                 "r"(barrier)
                 : "memory");
}

/* tma_load_box to the same place of all blocks in `mask`, and their barriers.
 */
BT_DEVICE void tma_load_box_to_all(void *to, const CUtensorMap *map, int column,
                                   int head, int token, uint64_t *barrier,
                                   uint16_t mask)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(head), "r"(token),
                 "r"(shared_address(barrier)), "h"(mask)
                 : "memory");
}

/* ---- programmatic dependent launch --------------------------------------- */

/* Allow the next grid to start while this one still runs; */
BT_DEVICE void launch_dependents(void)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* it waits here until the previous grids are complete and visible. */
BT_DEVICE void grid_dependency_wait(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* The first call of a kernel that does nothing ahead of the grid before it:
 * only the launch itself overlaps. */
BT_DEVICE void grid_begin(void)
{
    launch_dependents();
    grid_dependency_wait();
}

/* ---- registers --------------------------------------------------------- */

template <int COUNT> BT_DEVICE void setmaxnreg_inc(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> BT_DEVICE void setmaxnreg_dec(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* ---- the tensor cores -------------------------------------------------- */

/* A product runs from its issue until wgmma_wait says that at most `LEFT`
 * groups are still running. Until then its registers are not to be touched;
 * wgmma_fence_operand tells the compiler that they change at that place. */
BT_DEVICE void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

BT_DEVICE void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int LEFT> BT_DEVICE void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

template <int COUNT> BT_DEVICE void wgmma_fence_operand(float *x)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+f"(x[i])::"memory");
}

/* The descriptor of a swizzled tile: address, distance of the 64-column panels
 * (only read where columns are the outer dimension), 1024 bytes from eight rows
 * to the next eight, 128-byte swizzle. All in units of 16 bytes. */
BT_DEVICE uint64_t tile_descriptor(const void *tile, uint32_t panel_bytes)
{
    return (uint64_t)((shared_address(tile) & 0x3ffff) >> 4) |
           (uint64_t)(panel_bytes >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

#define BT_ACC_8(d, i)                                          \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
        "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define BT_ACC_32(d, i) \
    BT_ACC_8(d, i), BT_ACC_8(d, i + 8), BT_ACC_8(d, i + 16), BT_ACC_8(d, i + 24)

/* d (64 x 128) = or += a (64 x 16, shared) b^T (b 128 x 16, shared). */
BT_DEVICE void wgmma_ss_128(float *d, uint64_t a, uint64_t b, int accumulate)
{
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        " %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        " %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
        " %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
        " %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1, 0, 0;\n"
        "}\n"
        : BT_ACC_32(d, 0), BT_ACC_32(d, 32)
        : "l"(a), "l"(b), "r"(accumulate));
}

/* d (64 x 64) = or += a (64 x 16, shared) b^T (b 64 x 16, shared). */
BT_DEVICE void wgmma_ss_64(float *d, uint64_t a, uint64_t b, int accumulate)
{
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        " %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        " %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 0, 0;\n"
        "}\n"
        : BT_ACC_32(d, 0)
        : "l"(a), "l"(b), "r"(accumulate));
}

/* d (64 x 64) = or += a (64 x 16, registers) b^T (b 64 x 16, shared). */
BT_DEVICE void wgmma_rs_64(float *d, const uint32_t *a, uint64_t b,
                           int accumulate)
{
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        " %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        " %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n"
        "}\n"
        : BT_ACC_32(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

/* d (64 x 128) += a (64 x 16, registers) b (16 x 128, shared, row by row). */
BT_DEVICE void wgmma_pv_128(float *d, const uint32_t *a, uint64_t b)
{
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.eq.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        " %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        " %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
        " %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
        " %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, p, 1, 1, 1;\n"
        "}\n"
        : BT_ACC_32(d, 0), BT_ACC_32(d, 32)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* d (64 x 64) += a (64 x 16, registers) b (16 x 64, shared, row by row). */
BT_DEVICE void wgmma_pv_64(float *d, const uint32_t *a, uint64_t b)
{
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.eq.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        " %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        " %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n"
        "}\n"
        : BT_ACC_32(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* d = or += the same. */
BT_DEVICE void wgmma_pv_64(float *d, const uint32_t *a, uint64_t b,
                           int accumulate)
{
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        " %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        " %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n"
        "}\n"
        : BT_ACC_32(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

/* Sixteen rows and columns of a tile as a product takes them from registers:
 * lane l names the 16-byte chunk of row l % 16 in which column l / 16 * 8 is.
 */
BT_DEVICE void load_fragment(uint32_t *a, const void *chunk)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, "
                 "[%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(shared_address(chunk))
                 : "memory");
}

/* The same way back: the words of a product's 16 rows and 16 columns. */
BT_DEVICE void store_fragment(void *chunk, const uint32_t *a)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, "
                 "%4};" ::"r"(shared_address(chunk)),
                 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
                 : "memory");
}

/* The same, column by column: lanes give the addresses of rows of the four
 * transposed matrices. */
BT_DEVICE void store_fragment_transposed(void *chunk, const uint32_t *a)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, "
                 "%2, %3, %4};" ::"r"(shared_address(chunk)),
                 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
                 : "memory");
}

/* ---- arithmetic -------------------------------------------------------- */

/* 2^x, 2 ulp; exact 1 for 0 and exact 0 for -infinity. Volatile, so that it
 * stays where it is written: while a product runs, not after it. */
BT_DEVICE float exp2_fast(float x)
{
    float y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Two floats as two bf16 in a word, the first one low. */
BT_DEVICE uint32_t pack_bf16(float low, float high)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

/* Fold two bf16 into a check: it stays 0 (of either sign) as long as all are
 * finite, for only 0 * finite is 0. */
BT_DEVICE uint32_t check_finite(uint32_t check, uint32_t two)
{
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(check) : "r"(two), "r"(0));
    return check;
}

#endif
