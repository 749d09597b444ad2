/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_large.h - products of many rows.
 *
 * A block is a producer warp and two consumer warpgroups. The producer lets the
 * copy engine fetch steps of 64 of k, a tile of each operand, into a ring of
 * stages; the consumers multiply them (wgmma), keep a chunk's sums and the
 * total in registers, and hand finished tiles to the copy engine, which stores
 * them while the next tile is summed. Blocks of a cluster lie beside each other
 * in the result and share operands: each fetches a slice and delivers it to
 * all that need it.
 *
 * Cooperative: the two warpgroups have the two halves of a tile's rows. Ping
 * pong: each has a tile of its own, and one multiplies while the other stores.
 * They take turns, for the parity of a stage tells only one round from the
 * next. */
#ifndef BT_CUDA_GEMM_LARGE_H
#define BT_CUDA_GEMM_LARGE_H

#include "kernels/cuda/gemm_end.h"
#include "kernels/cuda/gemm_hopper.h"

#include <cuda_runtime_api.h>

enum {
    STEP = BT_GEMM_STEP,
    PANEL_COLUMNS = 64,
    WARPGROUP = 128,
    LARGE_THREADS = 3 * WARPGROUP,
    TURN = 1, /* the first of two named barriers: a warpgroup's turn */
    SHARED_LIMIT = 232448 - 1024 /* a block's, less what alignment takes */
};

/* FORM; rows of a warpgroup's tile in units of 64; columns; ping pong; totals
 * in registers; blocks of a cluster along m and n. */
template <int FORM_, int BLOCKS_, int COLUMNS_, bool PING_, bool TOTAL_,
          int CM_, int CN_>
struct large {
    static constexpr int FORM = FORM_, BLOCKS = BLOCKS_, COLUMNS = COLUMNS_;
    static constexpr bool PING = PING_, TOTAL = TOTAL_;
    static constexpr int CM = CM_, CN = CN_, CLUSTER = CM * CN;
    static constexpr int TA = FORM == BT_GEMM_TN, TB = FORM != BT_GEMM_NT;
    static constexpr int ROWS = 64 * BLOCKS * (PING ? 1 : 2);
    static constexpr int A_BYTES = ROWS * STEP * 2;
    static constexpr int B_BYTES = COLUMNS * STEP * 2;
    static constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
    /* 16 rows of output for each of 8 warps. */
    static constexpr int WARP_BYTES = 16 * COLUMNS * 2;
    static constexpr int OUT_BYTES = 8 * WARP_BYTES;
    static constexpr int STAGES =
        (SHARED_LIMIT - 256 - OUT_BYTES) / STAGE_BYTES;
    static constexpr int SHARED =
        1024 + STAGES * STAGE_BYTES + OUT_BYTES + 16 * STAGES;
    /* Blocks that a block's loads reach or that reach it, itself included. */
    static constexpr int PEERS = CM + CN - 1;
    static constexpr int USERS = PING ? 4 : 8; /* warps that read a stage */
    static constexpr int SUMS = COLUMNS / 2;   /* registers of 64 rows */
};

/* ---- which tile when --------------------------------------------------------
 */

typedef struct unit {
    int row, column;   /* of the cluster's tile */
    int chunk, end;    /* chunks of k */
    int slot, partial; /* where among the partial sums; -1: it is a result */
} unit;

/* Tiles run down `group` tiles of m, then on to the next tile of n, so that
 * those of one round share rows of both operands in the L2. */
BT_DEVICE void tile_at(const bt_gemm_task &t, int tile, int *row, int *column)
{
    int strip = t.group * t.tiles_n;
    int first = tile / strip * t.group;
    int tall = min(t.group, t.tiles_m - first);
    int in = tile % strip;
    *row = first + in % tall;
    *column = in / tall;
}

/* The worker's i-th unit of work; false behind the last. */
BT_DEVICE bool unit_at(const bt_gemm_task &t, int worker, int i, unit *u)
{
    int tile, chunk = 0, end = t.chunks, slot = 0, partial = -1;
    if (i < t.whole) {
        tile = i * t.workers + worker;
    } else {
        int in = worker;
        i -= t.whole;
        if (!t.part)
            return false;
        if (t.head > 1 && worker < t.part) {
            if (i)
                return false;
            end = t.head;
        } else {
            // Where head is 1 the first chunks are dealt like the others.
            int taken = t.head > 1 ? t.part : 0, first = t.head > 1;
            int j = worker - taken + i * (t.workers - taken);
            slot = j / t.part + first;
            if (slot > t.chunks - t.head)
                return false;
            in = j % t.part;
            chunk = slot ? t.head + slot - 1 : 0;
            end = slot ? chunk + 1 : t.head;
        }
        tile = t.whole * t.workers + in;
        if (t.head < t.chunks)
            partial = in;
    }
    tile_at(t, tile, &u->row, &u->column);
    u->chunk = chunk;
    u->end = end;
    u->slot = slot;
    u->partial = partial;
    return true;
}

BT_DEVICE int unit_steps(const bt_gemm_task &t, const unit &u)
{
    return min(u.end * t.chunk_steps, t.steps) - u.chunk * t.chunk_steps;
}

/* ---- the ring of stages
 * ------------------------------------------------------ */

typedef struct stage_at {
    int at;
    uint32_t parity;
} stage_at;

template <int STAGES> BT_DEVICE void stage_next(stage_at *s)
{
    if (++s->at == STAGES) {
        s->at = 0;
        s->parity ^= 1;
    }
}

template <int STAGES> BT_DEVICE void stage_skip(stage_at *s, int count)
{
    int sum = s->at + count;
    s->parity ^= (uint32_t)(sum / STAGES) & 1;
    s->at = sum % STAGES;
}

/* The producer: `at` is the stage's memory, k the first of its step. A slice of
 * a tile with k inside is some of its rows; with k outside, some of its k. */
template <class C>
BT_DEVICE void load_step(const bt_gemm_task &t, uint8_t *at, uint64_t *full,
                         int row, int column, int k, int in_m, int in_n)
{
    uint16_t to_row = 0, to_column = 0;
    for (int j = 0; j < C::CN; j++)
        to_row |= (uint16_t)(1 << (in_m + C::CM * j));
    for (int i = 0; i < C::CM; i++)
        to_column |= (uint16_t)(1 << (i + C::CM * in_n));

    auto copy = [&](void *to, const CUtensorMap *map, int x, int y,
                    uint16_t peers, bool many) {
        if (many)
            tma_load_matrix_multicast(to, map, x, y, full, peers);
        else
            tma_load_matrix(to, map, x, y, full);
    };
    if (!C::TA) {
        int slice = C::ROWS / C::CN;
        copy(at + in_n * slice * 128, &t.a, k, row + in_n * slice, to_row,
             C::CN > 1);
    } else {
        int slice = STEP / C::CN;
#pragma unroll
        for (int p = 0; p < C::ROWS / PANEL_COLUMNS; p++)
            copy(at + p * STEP * 128 + in_n * slice * 128, &t.a,
                 row + p * PANEL_COLUMNS, k + in_n * slice, to_row, C::CN > 1);
    }
    at += C::A_BYTES;
    if (!C::TB) {
        int slice = C::COLUMNS / C::CM;
        copy(at + in_m * slice * 128, &t.b, k, column + in_m * slice, to_column,
             C::CM > 1);
    } else {
        int slice = STEP / C::CM;
#pragma unroll
        for (int p = 0; p < C::COLUMNS / PANEL_COLUMNS; p++)
            copy(at + p * STEP * 128 + in_m * slice * 128, &t.b,
                 column + p * PANEL_COLUMNS, k + in_m * slice, to_column,
                 C::CM > 1);
    }
}

template <class C>
BT_DEVICE void produce(const bt_gemm_task &t, uint8_t *stages, uint64_t *full,
                       uint64_t *empty, int worker, int in_m, int in_n)
{
    stage_at s = { 0, 0 };
    unit u;
    tensor_map_prefetch(&t.a);
    tensor_map_prefetch(&t.b);
    for (int i = 0; unit_at(t, worker, i, &u); i++) {
        int row = (u.row * C::CM + in_m) * C::ROWS;
        int column = (u.column * C::CN + in_n) * C::COLUMNS;
        int k = u.chunk * t.chunk_steps * STEP;
        for (int left = unit_steps(t, u); left > 0; left--, k += STEP) {
            barrier_wait(&empty[s.at], s.parity ^ 1);
            barrier_arrive_expect(&full[s.at], C::STAGE_BYTES);
            load_step<C>(t, stages + s.at * C::STAGE_BYTES, &full[s.at], row,
                         column, k, in_m, in_n);
            stage_next<C::STAGES>(&s);
        }
    }
}

/* ---- the consumers
 * -------------------------------------------------------------- */

/* A warp is done with a stage, and says so to all blocks that write to it. */
template <class C>
BT_DEVICE void release(uint64_t *empty, int lane, int in_m, int in_n)
{
    __syncwarp();
    if (C::CLUSTER == 1) {
        if (lane == 0)
            barrier_arrive(empty);
    } else if (lane < C::PEERS) {
        // The blocks of its row, then the others of its column.
        int m = in_m, n = lane;
        if (lane >= C::CN) {
            n = in_n;
            m = lane - C::CN;
            m += m >= in_m;
        }
        cluster_arrive(empty, (uint32_t)(m + C::CM * n));
    }
}

/* The chunks of a unit. Where it may have several, their sums are added to
 * `total`, which begins at -0: the number that changes no bit of what is added
 * to it. Else the sum of its only chunk is left in `sum`. */
template <class C>
BT_DEVICE void multiply(const bt_gemm_task &t, const unit &u,
                        float (*sum)[C::SUMS], float (*total)[C::SUMS],
                        const uint8_t *stages, uint64_t *full, uint64_t *empty,
                        stage_at *s, int group, int lane, int in_m, int in_n,
                        bool hand_over)
{
    // A's 64 rows of this warpgroup and the next: rows of 128 bytes, or panels.
    constexpr uint32_t A_BLOCK = 64 * 128;
    constexpr int A_STEP = C::TA ? 16 * 128 : 32,
                  B_STEP = C::TB ? 16 * 128 : 32;
    uint32_t first_block = C::PING ? 0 : group * C::BLOCKS;
    uint64_t a0 = tile_descriptor(stages + first_block * A_BLOCK, A_BLOCK);
    uint64_t b0 = tile_descriptor(stages + C::A_BYTES, A_BLOCK);

    if constexpr (C::TOTAL) {
#pragma unroll
        for (int block = 0; block < C::BLOCKS; block++)
#pragma unroll
            for (int x = 0; x < C::SUMS; x++)
                total[block][x] = -0.0f;
    }
    for (int chunk = u.chunk; chunk < u.end; chunk++) {
        int steps = min(t.chunk_steps, t.steps - chunk * t.chunk_steps);
        int before = 0;
        for (int i = 0; i < steps; i++) {
            uint64_t offset = (uint64_t)(s->at * C::STAGE_BYTES) >> 4;
            barrier_wait(&full[s->at], s->parity);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < STEP / 16; k++)
#pragma unroll
                for (int block = 0; block < C::BLOCKS; block++)
                    wgmma<C::COLUMNS, C::TA, C::TB>(
                        sum[block],
                        a0 + offset + (block * A_BLOCK + k * A_STEP) / 16,
                        b0 + offset + k * B_STEP / 16, i + k);
            wgmma_commit();
            if (i) {
                wgmma_wait<1>();
                release<C>(&empty[before], lane, in_m, in_n);
            }
            before = s->at;
            stage_next<C::STAGES>(s);
        }
        if (C::PING && hand_over && chunk + 1 == u.end)
            named_arrive(TURN + 1 - group, 2 * WARPGROUP);
        wgmma_wait<0>();
#pragma unroll
        for (int block = 0; block < C::BLOCKS; block++)
            wgmma_fence_operand<C::SUMS>(sum[block]);
        release<C>(&empty[before], lane, in_m, in_n);
        if constexpr (C::TOTAL) {
#pragma unroll
            for (int block = 0; block < C::BLOCKS; block++)
#pragma unroll
                for (int x = 0; x < C::SUMS; x++)
                    total[block][x] = __fadd_rn(total[block][x], sum[block][x]);
        }
    }
}

/* ---- the end of a tile
 * ------------------------------------------------------------ */

/* 16 rows of a warp, as partial sums. */
template <class C>
BT_DEVICE void store_partial(const bt_gemm_task &t, const float *sum,
                             float *tile, int row, int lane)
{
    float4 *at = (float4 *)tile + row / 16 * (C::COLUMNS / 8) * 32 + lane;
#pragma unroll
    for (int j = 0; j < C::COLUMNS / 8; j++)
        at[j * 32] = make_float4(sum[j * 4], sum[j * 4 + 1], sum[j * 4 + 2],
                                 sum[j * 4 + 3]);
}

/* As results in float32, straight to memory: four lanes fill a sector. */
template <class C>
BT_DEVICE void store_plain_f32(const bt_gemm_task &t, const float *sum, int row,
                               int column, int lane)
{
    row += lane / 4;
    column += lane % 4 * 2;
    float *out = (float *)t.end.out + (size_t)row * t.end.ldo + column;
#pragma unroll
    for (int j = 0; j < C::COLUMNS / 8; j++) {
        int left = t.end.n - column - j * 8;
        if (left > 0 && row < t.end.m)
            store_f32<2>(out + j * 8, &sum[j * 4], t.end.accumulate, left);
        if (left > 0 && row + 8 < t.end.m)
            store_f32<2>(out + 8 * t.end.ldo + j * 8, &sum[j * 4 + 2],
                         t.end.accumulate, left);
    }
}

/* In bfloat16, by way of shared memory and the copy engine, which leaves out
 * what lies beyond m and n; n is a multiple of 8, for it writes 16 bytes. */
template <class C>
BT_DEVICE void store_plain_bf16(const bt_gemm_task &t, const float *sum,
                                uint8_t *out, int row, int column, int lane)
{
    if (lane == 0)
        tma_store_wait_read();
    __syncwarp();
    int c = column + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < C::COLUMNS / 16; j++) {
        uint32_t two[4];
#pragma unroll
        for (int x = 0; x < 2; x++) {
            const float *v = &sum[j * 8 + x * 4];
            float bias[2] = { 0, 0 };
            int left = t.end.n - c - j * 16 - x * 8;
            if (t.end.bias && left > 0) {
                load_bf16<2>(bias, t.end.bias + c + j * 16 + x * 8, left);
                two[x * 2] = pack_bf16(__fadd_rn(v[0], bias[0]),
                                       __fadd_rn(v[1], bias[1]));
                two[x * 2 + 1] = pack_bf16(__fadd_rn(v[2], bias[0]),
                                           __fadd_rn(v[3], bias[1]));
            } else {
                two[x * 2] = pack_bf16(v[0], v[1]);
                two[x * 2 + 1] = pack_bf16(v[2], v[3]);
            }
        }
        int in = lane % 16, part = j % 4 * 2 + lane / 16;
        store_fragment(out + j / 4 * 2048 + in * 128 + ((part ^ in % 8) << 4),
                       two);
    }
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) {
#pragma unroll
        for (int p = 0; p < C::COLUMNS / PANEL_COLUMNS; p++)
            tma_store_matrix(&t.out, column + p * PANEL_COLUMNS, row,
                             out + p * 2048);
        tma_store_commit();
    }
}

/* With everything else that an end may have. The sums go through shared memory,
 * half the columns at a time, so that lanes read and write memory in rows and
 * the code that follows is there once. 16-byte parts of a row are permuted by
 * XOR with the row. */
template <class C>
BT_DEVICE void store_any(const bt_gemm_task &t, const float *sum, uint8_t *out,
                         int row, int column, int lane)
{
    constexpr int HALF = C::COLUMNS / 2, PARTS = HALF / 4;
    float4 *rows = (float4 *)out;
    if (lane == 0)
        tma_store_wait_read();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < HALF / 8; j++) {
            const float *v = &sum[(half * HALF / 8 + j) * 4];
            int in = lane / 4, part = (j * 2 + lane % 4 / 2) ^ in;
            float2 *at = (float2 *)&rows[in * PARTS + part] + lane % 2;
            at[0] = make_float2(v[0], v[1]);
            at[8 * PARTS * 2] = make_float2(v[2], v[3]);
        }
        __syncwarp();
#pragma unroll 1
        for (int i = lane; i < 16 * PARTS; i += 32) {
            int in = i / PARTS, part = i % PARTS;
            int r = row + in, c = column + half * HALF + part * 4;
            float4 four = rows[in * PARTS + (part ^ in % 8)];
            float v[4] = { four.x, four.y, four.z, four.w };
            if (r < t.end.m && c < t.end.n)
                end_elements<4>(t.end, v, r, c);
        }
    }
    __syncwarp();
}

template <class C>
BT_DEVICE void finish(const bt_gemm_task &t, const unit &u, const float *sum,
                      uint8_t *out, int row, int column, int block_row,
                      int lane, int rank)
{
    const bt_gemm_end &e = t.end;
    if (u.partial >= 0) {
        size_t tile = (size_t)(u.slot * t.part + u.partial) * C::CLUSTER + rank;
        store_partial<C>(t, sum, t.partial + tile * C::ROWS * C::COLUMNS,
                         block_row, lane);
        return;
    }
    row += block_row;
    if (e.kind || e.pre || e.residual || (e.out_f32 ? !!e.bias : e.n % 8 != 0))
        store_any<C>(t, sum, out, row, column, lane);
    else if (e.out_f32)
        store_plain_f32<C>(t, sum, row, column, lane);
    else
        store_plain_bf16<C>(t, sum, out, row, column, lane);
}

template <class C>
BT_DEVICE void consume(const bt_gemm_task &t, const uint8_t *stages,
                       uint8_t *out, uint64_t *full, uint64_t *empty,
                       int worker, int rank)
{
    int in_m = rank % C::CM, in_n = rank / C::CM;
    int group = threadIdx.x / WARPGROUP - 1;
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    float sum[C::BLOCKS][C::SUMS];
    float total[C::BLOCKS][C::SUMS]; // not there where it is not used
    stage_at s = { 0, 0 };
    unit u;

    out += warp * C::WARP_BYTES;
    if (C::PING && group == 1)
        named_arrive(TURN, 2 * WARPGROUP);
    for (int i = 0; unit_at(t, worker, i, &u); i++) {
        if (C::PING && i % 2 != group) {
            stage_skip<C::STAGES>(&s, unit_steps(t, u));
            continue;
        }
        unit next;
        bool more = C::PING && unit_at(t, worker, i + 1, &next);
        if (C::PING)
            named_sync(TURN + group, 2 * WARPGROUP);
        multiply<C>(t, u, sum, total, stages, full, empty, &s, group, lane,
                    in_m, in_n, more);
        int row = (u.row * C::CM + in_m) * C::ROWS;
        int column = (u.column * C::CN + in_n) * C::COLUMNS;
        int mine = (C::PING ? 0 : group * C::BLOCKS * 64) + warp % 4 * 16;
#pragma unroll
        for (int block = 0; block < C::BLOCKS; block++)
            finish<C>(t, u, C::TOTAL ? total[block] : sum[block], out, row,
                      column, mine + block * 64, lane, rank);
    }
    if (lane == 0)
        tma_store_wait();
}

template <class C>
__global__ void __launch_bounds__(LARGE_THREADS, 1)
    gemm_large(const __grid_constant__ bt_gemm_task t)
{
    extern __shared__ uint8_t memory[];
    uint8_t *stages = memory + (1024 - shared_address(memory) % 1024) % 1024;
    uint8_t *out = stages + C::STAGES * C::STAGE_BYTES;
    uint64_t *full = (uint64_t *)(out + C::OUT_BYTES);
    uint64_t *empty = full + C::STAGES;
    int rank = C::CLUSTER > 1 ? (int)cluster_rank() : 0;
    int worker = blockIdx.x / C::CLUSTER;

    if (threadIdx.x == 0) {
        for (int i = 0; i < C::STAGES; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], C::USERS * C::PEERS);
        }
        barrier_init_done();
    }
    if (C::CLUSTER > 1)
        cluster_sync();
    else
        __syncthreads();

    launch_dependents(); // the merge, which waits for all of this
    if (threadIdx.x < WARPGROUP) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0)
            produce<C>(t, stages, full, empty, worker, rank % C::CM,
                       rank / C::CM);
    } else {
        setmaxnreg_inc<240>();
        consume<C>(t, stages, out, full, empty, worker, rank);
    }
    // A block must not end while another may still write to its memory.
    if (C::CLUSTER > 1) {
        __syncwarp();
        cluster_sync();
    }
}

template <class C> static int large_workers(void)
{
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = C::CLUSTER;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(C::CLUSTER);
    config.blockDim = dim3(LARGE_THREADS);
    config.dynamicSmemBytes = C::SHARED;
    config.attrs = &cluster;
    config.numAttrs = 1;
    int count = 0;
    if (cudaFuncSetAttribute(gemm_large<C>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             C::SHARED) ||
        cudaOccupancyMaxActiveClusters(&count, gemm_large<C>, &config))
        return 0;
    return count;
}

template <class C>
static cudaError_t large_launch(const bt_gemm_task *task, cudaStream_t stream)
{
    cudaError_t status = cudaFuncSetAttribute(
        gemm_large<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, C::SHARED);
    if (status)
        return status;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = C::CLUSTER;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(task->workers * C::CLUSTER));
    config.blockDim = dim3(LARGE_THREADS);
    config.dynamicSmemBytes = C::SHARED;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = C::CLUSTER > 1;
    return cudaLaunchKernelEx(&config, gemm_large<C>, *task);
}

#endif
