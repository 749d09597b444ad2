/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_small.cu - products of up to 64 rows, as in decoding: every weight is
 * read once, so the copies must never pause.
 *
 * The operands change places: 64 rows of weights are the 64 rows of wgmma, and
 * the rows of a its 8 to 64 columns, so little is computed in vain. A block
 * has 64 weights' rows and some chunks of k; the blocks of a cluster have the
 * chunks of the same rows. One warp lets the copy engine fetch steps of k far
 * ahead, a warpgroup multiplies. Sums of chunks meet in shared memory, where
 * the blocks add them in the order of k, each some of the rows. Where the
 * product ends with a gated activation, half of a tile's rows of weights are
 * those of the gate, so that gate and factor meet in one block.
 *
 * Where the kernel before this one lets it start early (programmatic dependent
 * launch), the first weights are fetched while that one still runs. */
#include "backend/cuda/gemm_end.h"
#include "backend/cuda/gemm_hopper.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/warp.h"

#include <cuda_runtime_api.h>

enum {
    TILE = 64,       /* rows of weights */
    USERS = 128,     /* threads that multiply */
    SUM_STRIDE = 68, /* of a row of a's in shared memory: no bank twice */
    AHEAD = 7,       /* loads of other blocks' sums under way */
    MOST_STAGES = 16,
    HALF_BYTES = (228 << 10) / 2 - 1024 /* of shared memory */
};

template <int ROWS> struct small {
    static constexpr int PANELS = ROWS > 32 ? 1 : 2; /* of 64 of k in a stage */
    static constexpr int STEP = PANELS * BT_GEMM_STEP;
    static constexpr int B_BYTES = PANELS * TILE * 128;
    static constexpr int STAGE = B_BYTES + PANELS * ROWS * 128;
    static constexpr int SUM = ROWS * SUM_STRIDE; /* floats of a chunk */
};

/* Of a block's memory, half the multiprocessor's: the next product's first
 * weights are fetched into the other half. */
template <int ROWS> static constexpr int stages_of(int sums)
{
    int left = HALF_BYTES - 1024 - sums * small<ROWS>::SUM * 4;
    int stages = left / (small<ROWS>::STAGE + 16);
    return stages < 3 ? 0 : stages > MOST_STAGES ? MOST_STAGES : stages;
}

/* With a gated end half of a tile's rows are those of the gate. */
template <int ROWS, int TB>
BT_DEVICE void load_weights(const bt_gemm_small_task &t, uint8_t *at,
                            uint64_t *full, int row, int k)
{
    barrier_arrive_expect(full, small<ROWS>::STAGE);
#pragma unroll
    for (int p = 0; p < small<ROWS>::PANELS; p++, k += BT_GEMM_STEP) {
        tma_load_matrix(at + p * TILE * 128, &t.b, TB ? row : k, TB ? k : row,
                        full);
        if (!TB && t.gate.half)
            tma_load_matrix(at + p * TILE * 128 + TILE / 2 * 128, &t.b, k,
                            t.gate.half + row, full);
    }
}

template <int ROWS>
BT_DEVICE void load_rows(const bt_gemm_small_task &t, uint8_t *at,
                         uint64_t *full, int k)
{
    at += small<ROWS>::B_BYTES;
#pragma unroll
    for (int p = 0; p < small<ROWS>::PANELS; p++)
        tma_load_matrix(at + p * ROWS * 128, &t.a, k + p * BT_GEMM_STEP, 0,
                        full);
}

template <int ROWS, int TB>
BT_DEVICE void fetch(const bt_gemm_small_task &t, uint8_t *stages,
                     uint64_t *full, uint64_t *empty, int row, int first,
                     int steps)
{
    using C = small<ROWS>;
    int early = min(steps, t.stages);
    if (!t.b_ready)
        grid_dependency_wait();
    for (int i = 0; i < early; i++)
        load_weights<ROWS, TB>(t, stages + i * C::STAGE, &full[i], row,
                               (first + i) * C::STEP);
    if (t.b_ready)
        grid_dependency_wait();
    for (int i = 0; i < early; i++)
        load_rows<ROWS>(t, stages + i * C::STAGE, &full[i],
                        (first + i) * C::STEP);
    uint32_t parity = 0;
    for (int i = early, at = 0; i < steps; i++) {
        barrier_wait(&empty[at], parity);
        load_weights<ROWS, TB>(t, stages + at * C::STAGE, &full[at], row,
                               (first + i) * C::STEP);
        load_rows<ROWS>(t, stages + at * C::STAGE, &full[at],
                        (first + i) * C::STEP);
        if (++at == t.stages) {
            at = 0;
            parity ^= 1;
        }
    }
    // Not before: weights of the kernels that follow would delay these.
    launch_dependents();
}

/* Where lane and warp keep the element x of a chunk's sum. */
template <int ROWS> BT_DEVICE int sum_at(int x)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int weight = warp * 16 + lane / 4 + x % 4 / 2 * 8;
    int row = x / 4 * 8 + lane % 4 * 2 + x % 2;
    return row * SUM_STRIDE + weight;
}

/* Queue the products of a stage; FIRST: sums start there. */
template <int ROWS, int TB, bool FIRST>
BT_DEVICE void multiply_stage(float *sum, uint64_t w, uint64_t x)
{
    constexpr int B_STEP = TB ? 16 * 128 : 32;
    wgmma_fence();
    wgmma<ROWS, TB, 0, FIRST>(sum, w, x);
#pragma unroll
    for (int k = 1; k < small<ROWS>::STEP / 16; k++)
        wgmma<ROWS, TB, 0, false>(
            sum, w + (k / 4 * TILE * 128 + k % 4 * B_STEP) / 16,
            x + (k / 4 * ROWS * 128 + k % 4 * 32) / 16);
    wgmma_commit();
}

BT_DEVICE void release(uint64_t *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty);
}

template <int ROWS, int TB>
BT_DEVICE void multiply(const bt_gemm_small_task &t, uint8_t *stages,
                        uint64_t *full, uint64_t *empty, int chunk, int end,
                        bool separate, float *sums)
{
    using C = small<ROWS>;
    constexpr int COUNT = ROWS / 2;
    float sum[COUNT], total[COUNT];
    int at = 0;
    uint32_t parity = 0;
    uint64_t w = tile_descriptor(stages, TILE * 128);
    uint64_t x = tile_descriptor(stages + C::B_BYTES, TILE * 128);

    for (int c = chunk; c < end; c++) {
        int steps = min(t.chunk_steps, t.steps - c * t.chunk_steps);
        int before = 0;
        for (int i = 0; i < steps; i++) {
            uint64_t offset = (uint64_t)(at * C::STAGE) >> 4;
            barrier_wait(&full[at], parity);
            if (i) {
                multiply_stage<ROWS, TB, false>(sum, w + offset, x + offset);
                wgmma_wait<1>();
                release(&empty[before]);
            } else {
                multiply_stage<ROWS, TB, true>(sum, w + offset, x + offset);
            }
            before = at;
            if (++at == t.stages) {
                at = 0;
                parity ^= 1;
            }
        }
        wgmma_wait<0>();
        wgmma_fence_operand<COUNT>(sum);
        release(&empty[before]);
        if (separate) {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                sums[(c - chunk) * C::SUM + sum_at<ROWS>(i)] = sum[i];
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                total[i] = c == chunk ? sum[i] : __fadd_rn(total[i], sum[i]);
        }
    }
    if (!separate) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            sums[sum_at<ROWS>(i)] = total[i];
    }
}

/* ---- ends ---------------------------------------------------------------- */

/* Two neighbouring totals of a tile: the chunks of all blocks. */
template <int ROWS>
BT_DEVICE void total_two(float *v, const bt_gemm_small_task &t,
                         const float *sums, int row, int in)
{
    using C = small<ROWS>;
    const float *at = sums + row * SUM_STRIDE + in;
    float2 first = cluster_load(cluster_address(at, 0));
    v[0] = first.x, v[1] = first.y;
    for (int c = t.per; c < t.chunks; c += AHEAD) {
        float2 add[AHEAD];
#pragma unroll
        for (int x = 0; x < AHEAD; x++)
            if (c + x < t.chunks)
                add[x] = cluster_load(
                    cluster_address(at, (uint32_t)((c + x) / t.per)) +
                    (c + x) % t.per * C::SUM * 4);
#pragma unroll
        for (int x = 0; x < AHEAD; x++)
            if (c + x < t.chunks) {
                v[0] = __fadd_rn(v[0], add[x].x);
                v[1] = __fadd_rn(v[1], add[x].y);
            }
    }
}

/* Four of them. */
template <int ROWS>
BT_DEVICE float4 total_four(const bt_gemm_small_task &t, const float *sums,
                            int row, int in)
{
    using C = small<ROWS>;
    const float *at = sums + row * SUM_STRIDE + in;
    float4 v = cluster_load4(cluster_address(at, 0));
    for (int c = t.per; c < t.chunks; c += AHEAD) {
        float4 add[AHEAD];
#pragma unroll
        for (int x = 0; x < AHEAD; x++)
            if (c + x < t.chunks)
                add[x] = cluster_load4(
                    cluster_address(at, (uint32_t)((c + x) / t.per)) +
                    (c + x) % t.per * C::SUM * 4);
#pragma unroll
        for (int x = 0; x < AHEAD; x++)
            if (c + x < t.chunks) {
                v.x = __fadd_rn(v.x, add[x].x);
                v.y = __fadd_rn(v.y, add[x].y);
                v.z = __fadd_rn(v.z, add[x].z);
                v.w = __fadd_rn(v.w, add[x].w);
            }
    }
    return v;
}

template <int ROWS>
BT_DEVICE void finish_gates(const bt_gemm_small_task &t, const float *sums,
                            int rank, int column)
{
    const bt_gemm_gate &a = t.gate;
    int gate = a.gate_first ? 0 : TILE / 2;
    for (int e = rank * USERS + threadIdx.x; e < t.end.m * (TILE / 8);
         e += t.blocks * USERS) {
        int row = e / (TILE / 8), in = e % (TILE / 8) * 4;
        float4 x = total_four<ROWS>(t, sums, row, in + gate);
        float4 by = total_four<ROWS>(t, sums, row, in + TILE / 2 - gate);
        gate_four(a, t.end, x, by, row, column + in);
    }
}

/* Whether totals are only rounded. Such ends are most of decoding, and four
 * results at a time need a quarter of the loads from other blocks. */
BT_DEVICE bool is_plain(const bt_gemm_end &e)
{
    return !e.bias && !e.pre && !e.kind && !e.residual && !e.out_f32 &&
           e.n % 4 == 0;
}

template <int ROWS>
BT_DEVICE void finish_plain(const bt_gemm_small_task &t, const float *sums,
                            int rank, int column)
{
    for (int e = rank * USERS + threadIdx.x; e < t.end.m * (TILE / 4);
         e += t.blocks * USERS) {
        int row = e / (TILE / 4), in = e % (TILE / 4) * 4;
        if (column + in >= t.end.n)
            continue;
        float4 v = total_four<ROWS>(t, sums, row, in);
        *(uint2 *)((uint16_t *)t.end.out + row * t.end.ldo + column + in) =
            make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
    }
}

/* Add the chunks of all blocks, and finish this block's share of the tile. */
template <int ROWS>
BT_DEVICE void finish(const bt_gemm_small_task &t, const float *sums, int rank,
                      int column)
{
    for (int e = rank * USERS + threadIdx.x; e < t.end.m * (TILE / 2);
         e += t.blocks * USERS) {
        int row = e / (TILE / 2), in = e % (TILE / 2) * 2;
        float v[2];
        if (column + in >= t.end.n)
            continue;
        total_two<ROWS>(v, t, sums, row, in);
        end_two(t.end, v, row, column + in);
    }
}

/* ---- the kernel ---------------------------------------------------------- */

template <int ROWS, int TB>
__global__ void __launch_bounds__(USERS + 32)
    gemm_small(const __grid_constant__ bt_gemm_small_task t)
{
    using C = small<ROWS>;
    extern __shared__ uint8_t memory[];
    uint8_t *stages = memory + (1024 - shared_address(memory) % 1024) % 1024;
    uint64_t *full = (uint64_t *)(stages + t.stages * C::STAGE);
    uint64_t *empty = full + t.stages;
    float *sums = (float *)(empty + t.stages);
    int rank = blockIdx.x % t.blocks, tile = blockIdx.x / t.blocks;
    int column = tile * (t.gate.half ? TILE / 2 : TILE);
    int chunk = min(rank * t.per, t.chunks);
    int end = min(chunk + t.per, t.chunks), first = chunk * t.chunk_steps;

    if (threadIdx.x == 0) {
        for (int i = 0; i < t.stages; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], USERS / 32);
        }
        barrier_init_done();
        // The end would wait for it: a weight, too, and seldom in the L2.
        if (t.end.bias)
            prefetch(t.end.bias + column);
    }
    __syncthreads();
    if (threadIdx.x >= USERS) {
        int steps = min(end * t.chunk_steps, t.steps) - first;
        if (threadIdx.x == USERS)
            fetch<ROWS, TB>(t, stages, full, empty, column, first, steps);
        __syncwarp();
    } else {
        grid_dependency_wait();
        multiply<ROWS, TB>(t, stages, full, empty, chunk, end, rank > 0, sums);
        named_sync(1, USERS);
    }
    if (t.blocks > 1)
        cluster_sync();
    if (threadIdx.x < USERS) {
        if (t.gate.half)
            finish_gates<ROWS>(t, sums, rank, column);
        else if (is_plain(t.end))
            finish_plain<ROWS>(t, sums, rank, column);
        else
            finish<ROWS>(t, sums, rank, column);
    }
    // Others may still read this block's sums.
    if (t.blocks > 1)
        cluster_sync();
}

/* ---- launches ------------------------------------------------------------ */

template <int ROWS, int TB>
static cudaError_t launch(const bt_gemm_small_task *t, void *stream)
{
    using C = small<ROWS>;
    int sums = t->blocks > 1 ? t->per : 1;
    int bytes = 1024 + t->stages * (C::STAGE + 16) + sums * C::SUM * 4;
    int tiles = (t->end.n + TILE - 1) / TILE;
    bt_cuda_kernel how = {};
    how.function = (const void *)gemm_small<ROWS, TB>;
    how.grid[0] = (unsigned)(tiles * t->blocks);
    how.grid[1] = how.grid[2] = 1;
    how.threads = USERS + 32;
    how.cluster = (unsigned)t->blocks;
    how.start = BT_START_EARLY;
    how.shared = (size_t)bytes;
    how.shared_limit = HALF_BYTES;
    return launch_values(how, stream, *t);
}

template <int ROWS>
static cudaError_t launch_form(bt_gemm_form form, const bt_gemm_small_task *t,
                               void *stream)
{
    return form == BT_GEMM_NT ? launch<ROWS, 0>(t, stream)
                              : launch<ROWS, 1>(t, stream);
}

extern "C" int bt_gemm_small(bt_gemm_form form, int rows,
                             const bt_gemm_small_task *task, void *stream)
{
    switch (rows) {
    case 8:
        return launch_form<8>(form, task, stream);
    case 16:
        return launch_form<16>(form, task, stream);
    case 32:
        return launch_form<32>(form, task, stream);
    default:
        return launch_form<64>(form, task, stream);
    }
}

extern "C" int bt_gemm_small_stages(int rows, int sums)
{
    return rows == 8    ? stages_of<8>(sums)
           : rows == 16 ? stages_of<16>(sums)
           : rows == 32 ? stages_of<32>(sums)
                        : stages_of<64>(sums);
}

extern "C" int bt_gemm_small_step(int rows)
{
    return rows == 64 ? small<64>::STEP : small<32>::STEP;
}
