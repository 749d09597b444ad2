/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_small.cu - products of up to 64 rows, as in decoding: every weight is
 * read once, so the copies must never pause.
 *
 * The operands change places: 64 rows of weights are the 64 rows of wgmma, and
 * the rows of a its 8 to 64 columns, so little is computed in vain. A block
 * has 64 weights' rows and some chunks of k; the blocks of a cluster have the
 * chunks of the same rows. One warp lets the copy engine fetch steps of k far
 * ahead, a warpgroup multiplies. Where there are more tiles than
 * multiprocessors a block has several of them one after another, so that half of
 * the shared memory is left to the kernel that follows. Rows that the product
 * computes itself (gemm_rows.h) are there from the start; others come with the
 * weights. Sums of chunks meet in shared memory, where
 * the blocks add them in the order of k, each some of the rows.
 *
 * Where the kernel before this one lets it start early (programmatic dependent
 * launch), the first weights are fetched while that one still runs. */
#include "backend/cuda/gemm_end.h"
#include "backend/cuda/gemm_hopper.h"
#include "backend/cuda/gemm_rows.h"
#include "backend/cuda/launch.h"

#include <cuda_runtime_api.h>

enum {
    TILE = 64,       /* rows of weights */
    USERS = 128,     /* threads that multiply */
    SUM_STRIDE = 68, /* of a row of a's in shared memory: no bank twice */
    AHEAD = 7,       /* loads of other blocks' sums under way */
    MOST_STAGES = 16,
    /* Of shared memory, without what every block and a norm's sums take. */
    HALF_BYTES = (228 << 10) / 2 - 1024 - 512
};

template <int ROWS, bool MADE> struct small {
    static constexpr int PANELS = ROWS > 32 ? 1 : 2; /* of 64 of k in a stage */
    static constexpr int STEP = PANELS * BT_GEMM_STEP;
    static constexpr int B_BYTES = PANELS * TILE * 128;
    static constexpr int A_BYTES = PANELS * ROWS * 128;
    static constexpr int STAGE = B_BYTES + (MADE ? 0 : A_BYTES);
    static constexpr int SUM = ROWS * SUM_STRIDE; /* floats of a chunk */
    static constexpr __host__ __device__ int rows_bytes(int steps)
    {
        return MADE ? steps * A_BYTES : 0;
    }
};

/* Of a block's memory, half the multiprocessor's: the next product's first
 * weights are fetched into the other half. */
template <int ROWS, bool MADE>
static constexpr int stages_of(int sums, int steps)
{
    using C = small<ROWS, MADE>;
    int left = HALF_BYTES - 1024 - sums * C::SUM * 4 - C::rows_bytes(steps);
    int stages = left / (C::STAGE + 16);
    return stages < 3 ? 0 : stages > MOST_STAGES ? MOST_STAGES : stages;
}

/* A block's place: its tiles, its steps of k, and its memory. */
struct small_block {
    int rank, tile, tiles; /* tiles: from one of its own to the next */
    int chunk, end;        /* chunks of k */
    int first, steps;
    uint8_t *rows, *stages;
    uint64_t *full, *empty;
    float *sums;
};

template <int ROWS, bool MADE, int TB>
BT_DEVICE void load_weights(const bt_gemm_small_task &t, uint8_t *at,
                            uint64_t *full, int row, int k)
{
    using C = small<ROWS, MADE>;
    barrier_arrive_expect(full, C::STAGE);
#pragma unroll
    for (int p = 0; p < C::PANELS; p++, k += BT_GEMM_STEP)
        tma_load_matrix(at + p * TILE * 128, &t.b, TB ? row : k, TB ? k : row,
                        full);
}

template <int ROWS, bool MADE>
BT_DEVICE void load_rows(const bt_gemm_small_task &t, uint8_t *at,
                         uint64_t *full, int k)
{
    using C = small<ROWS, MADE>;
    at += C::B_BYTES;
#pragma unroll
    for (int p = 0; p < C::PANELS && !MADE; p++)
        tma_load_matrix(at + p * ROWS * 128, &t.a, k + p * BT_GEMM_STEP, 0,
                        full);
}

/* One thread lets the copy engine fetch the steps of all tiles. */
template <int ROWS, bool MADE, int TB>
BT_DEVICE void fetch(const bt_gemm_small_task &t, const small_block &b)
{
    using C = small<ROWS, MADE>;
    int early = min(b.steps, t.stages), i = early, at = early % t.stages;
    uint32_t parity = early == t.stages ? 0 : 1; // of what was there before
    if (!t.b_ready)
        grid_dependency_wait();
    for (int e = 0; e < early; e++)
        load_weights<ROWS, MADE, TB>(t, b.stages + e * C::STAGE, &b.full[e],
                                     b.tile * TILE, (b.first + e) * C::STEP);
    if (t.b_ready)
        grid_dependency_wait();
    for (int e = 0; e < early; e++)
        load_rows<ROWS, MADE>(t, b.stages + e * C::STAGE, &b.full[e],
                              (b.first + e) * C::STEP);
    for (int tile = b.tile; tile < t.tiles; tile += b.tiles, i = 0)
        for (; i < b.steps; i++) {
            uint8_t *to = b.stages + at * C::STAGE;
            barrier_wait(&b.empty[at], parity);
            load_weights<ROWS, MADE, TB>(t, to, &b.full[at], tile * TILE,
                                         (b.first + i) * C::STEP);
            load_rows<ROWS, MADE>(t, to, &b.full[at], (b.first + i) * C::STEP);
            if (++at == t.stages) {
                at = 0;
                parity ^= 1;
            }
        }
}

/* Bring what follows the first stages to the L2, while the kernel before this
 * one still runs. */
template <int ROWS, bool MADE, int TB>
BT_DEVICE void prefetch_weights(const bt_gemm_small_task &t,
                                const small_block &b)
{
    using C = small<ROWS, MADE>;
    int from = b.first + t.stages, row = b.tile * TILE;
    int to = min(b.first + b.steps, from + t.ahead);
    for (int k = from * C::STEP; k < to * C::STEP; k += BT_GEMM_STEP)
        tma_prefetch_matrix(&t.b, TB ? row : k, TB ? k : row);
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
    using C = small<ROWS, false>;
    constexpr int B_STEP = TB ? 16 * 128 : 32;
    wgmma_fence();
    wgmma<ROWS, TB, 0, FIRST>(sum, w, x);
#pragma unroll
    for (int k = 1; k < C::STEP / 16; k++)
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

/* The sums of a tile; `at` and `parity` say where the ring is. */
template <int ROWS, bool MADE, int TB>
BT_DEVICE void multiply(const bt_gemm_small_task &t, const small_block &b,
                        int &at, uint32_t &parity)
{
    using C = small<ROWS, MADE>;
    constexpr int COUNT = ROWS / 2;
    float sum[COUNT], total[COUNT];
    bool separate = b.rank > 0;
    uint64_t w = tile_descriptor(b.stages, TILE * 128);
    uint64_t x =
        tile_descriptor(MADE ? b.rows : b.stages + C::B_BYTES, TILE * 128);

    for (int c = b.chunk; c < b.end; c++) {
        int steps = min(t.chunk_steps, t.steps - c * t.chunk_steps);
        int before = 0;
        for (int i = 0; i < steps; i++) {
            uint64_t offset = (uint64_t)(at * C::STAGE) >> 4;
            uint64_t x_at = x + (MADE ? 0 : offset);
            barrier_wait(&b.full[at], parity);
            if (i) {
                multiply_stage<ROWS, TB, false>(sum, w + offset, x_at);
                wgmma_wait<1>();
                release(&b.empty[before]);
            } else {
                multiply_stage<ROWS, TB, true>(sum, w + offset, x_at);
            }
            if (MADE)
                x += C::A_BYTES >> 4;
            before = at;
            if (++at == t.stages) {
                at = 0;
                parity ^= 1;
            }
        }
        wgmma_wait<0>();
        wgmma_fence_operand<COUNT>(sum);
        release(&b.empty[before]);
        if (separate) {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                b.sums[(c - b.chunk) * C::SUM + sum_at<ROWS>(i)] = sum[i];
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                total[i] = c == b.chunk ? sum[i] : __fadd_rn(total[i], sum[i]);
        }
    }
    if (!separate) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            b.sums[sum_at<ROWS>(i)] = total[i];
    }
}

/* A thread has two columns of a tile, and of the rows those of its warp: the
 * warps of all blocks take turns. */
BT_DEVICE int own_column(int tile)
{
    return tile * TILE + threadIdx.x % 32 * 2;
}

BT_DEVICE uint32_t load_bias(const bt_gemm_end &e, int tile)
{
    int column = own_column(tile);
    return e.bias && column < e.n ? load_two(e.bias + column, e.n - column) : 0;
}

/* The total of two elements, from the sums of all blocks. */
template <int ROWS>
BT_DEVICE void total_of(float *v, const bt_gemm_small_task &t, const float *at)
{
    using C = small<ROWS, false>;
    if (t.blocks == 1) {
        v[0] = at[0];
        v[1] = at[1];
        return;
    }
    float2 first = cluster_load(cluster_address(at, 0));
    v[0] = first.x;
    v[1] = first.y;
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

/* Add the chunks of all blocks, and finish this block's share of the tile. */
template <int ROWS>
BT_DEVICE void merge(const bt_gemm_small_task &t, const small_block &b,
                     uint32_t bias, int tile)
{
    constexpr int PAIRS = ROWS < 32 ? ROWS / 4 : 8;
    int step = t.blocks * (USERS / 32);
    for (int row = b.rank * (USERS / 32) + threadIdx.x / 32; row < t.end.m;
         row += PAIRS * step) {
        end_pairs<PAIRS> p;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            p.row[i] = row + i * step;
            p.column[i] = own_column(tile);
            p.in[i] = p.row[i] < t.end.m && p.column[i] < t.end.n;
            p.bias[i] = bias;
            p.v[i][0] = p.v[i][1] = 0.0f;
            if (p.row[i] < t.end.m)
                total_of<ROWS>(p.v[i], t,
                               b.sums + p.row[i] * SUM_STRIDE +
                                   threadIdx.x % 32 * 2);
        }
        finish_pairs(p, t.end);
    }
}

/* The warpgroup that multiplies. Where a tile has several blocks, they have yet
 * to meet and merge; returns the bias for that. HELD: see gemm_rows.h. */
template <int ROWS, int TB, bt_gemm_source SOURCE, int HELD>
BT_DEVICE uint32_t use(const bt_gemm_small_task &t, const small_block &b)
{
    constexpr bool MADE = SOURCE != BT_ROWS_GIVEN;
    using C = small<ROWS, MADE>;
    row_part_of part = { b.first * C::STEP, b.steps * C::PANELS, b.tile,
                         b.tiles };
    norm_weights<HELD> norm;
    int at = 0;
    uint32_t parity = 0;
    if (!t.b_ready)
        grid_dependency_wait();
    else if (threadIdx.x == 0)
        prefetch_weights<ROWS, MADE, TB>(t, b);
    // The end would wait for it: a weight, too, and seldom in the L2.
    uint32_t bias = load_bias(t.end, b.tile);
    if constexpr (SOURCE == BT_ROWS_NORM)
        norm_weights_load(&norm, t.rows, part);
    grid_dependency_wait();
    if constexpr (MADE) {
        make_rows<ROWS, SOURCE>(t.rows, norm, b.rows, part);
        named_sync(1, USERS);
    }
    for (int tile = b.tile; tile < t.tiles; tile += b.tiles) {
        multiply<ROWS, MADE, TB>(t, b, at, parity);
        if (t.blocks > 1)
            break;
        named_sync(1, USERS);
        merge<ROWS>(t, b, bias, tile);
        bias = load_bias(t.end, tile + b.tiles);
        named_sync(1, USERS);
    }
    return bias;
}

template <int ROWS, int TB, bt_gemm_source SOURCE, int HELD>
__global__ void __launch_bounds__(USERS + 32)
    gemm_small(const __grid_constant__ bt_gemm_small_task t)
{
    constexpr bool MADE = SOURCE != BT_ROWS_GIVEN;
    using C = small<ROWS, MADE>;
    extern __shared__ uint8_t memory[];
    small_block b;
    b.rank = blockIdx.x % t.blocks;
    b.tile = blockIdx.x / t.blocks;
    b.tiles = gridDim.x / t.blocks;
    b.chunk = min(b.rank * t.per, t.chunks);
    b.end = min(b.chunk + t.per, t.chunks);
    b.first = b.chunk * t.chunk_steps;
    b.steps = max(min(b.end * t.chunk_steps, t.steps) - b.first, 0);
    b.rows = memory + (1024 - shared_address(memory) % 1024) % 1024;
    b.stages = b.rows + C::rows_bytes(min(t.per * t.chunk_steps, t.steps));
    b.full = (uint64_t *)(b.stages + t.stages * C::STAGE);
    b.empty = b.full + t.stages;
    b.sums = (float *)(b.empty + t.stages);

    if (threadIdx.x == 0) {
        for (int i = 0; i < t.stages; i++) {
            barrier_init(&b.full[i], 1);
            barrier_init(&b.empty[i], USERS / 32);
        }
        barrier_init_done();
    }
    __syncthreads();
    launch_dependents();
    uint32_t bias = 0;
    if (threadIdx.x >= USERS) {
        if (threadIdx.x == USERS)
            fetch<ROWS, MADE, TB>(t, b);
        __syncwarp();
    } else {
        bias = use<ROWS, TB, SOURCE, HELD>(t, b);
    }
    if (t.blocks == 1)
        return;
    cluster_sync();
    if (threadIdx.x < USERS)
        merge<ROWS>(t, b, bias, b.tile);
    // Others may still read this block's sums.
    cluster_sync();
}

template <int ROWS, int TB, bt_gemm_source SOURCE, int HELD>
static cudaError_t launch(const bt_gemm_small_task *t, void *stream)
{
    using C = small<ROWS, SOURCE != BT_ROWS_GIVEN>;
    int sums = t->blocks > 1 ? t->per : 1, steps = t->per * t->chunk_steps;
    int bytes = 1024 + C::rows_bytes(steps < t->steps ? steps : t->steps) +
                t->stages * (C::STAGE + 16) + sums * C::SUM * 4;
    bt_cuda_kernel how = {};
    how.function = (const void *)gemm_small<ROWS, TB, SOURCE, HELD>;
    how.grid[0] = (unsigned)(t->workers * t->blocks);
    how.grid[1] = how.grid[2] = 1;
    how.threads = USERS + 32;
    how.cluster = (unsigned)t->blocks;
    how.start = BT_START_EARLY;
    how.shared = (size_t)bytes;
    how.shared_limit = HALF_BYTES;
    return launch_values(how, stream, *t);
}

template <int ROWS, int TB>
static cudaError_t launch_source(bt_gemm_source source,
                                 const bt_gemm_small_task *t, void *stream)
{
    if (source == BT_ROWS_GIVEN)
        return launch<ROWS, TB, BT_ROWS_GIVEN, 1>(t, stream);
    if constexpr (ROWS == 8) {
        if (source == BT_ROWS_GATED)
            return launch<ROWS, TB, BT_ROWS_GATED, 1>(t, stream);
        return t->rows.k <= NORM_HELD
                   ? launch<ROWS, TB, BT_ROWS_NORM, 1>(t, stream)
                   : launch<ROWS, TB, BT_ROWS_NORM, 2>(t, stream);
    }
    return cudaErrorInvalidValue;
}

template <int ROWS>
static cudaError_t launch_form(bt_gemm_form form, bt_gemm_source source,
                               const bt_gemm_small_task *t, void *stream)
{
    return form == BT_GEMM_NT ? launch_source<ROWS, 0>(source, t, stream)
                              : launch_source<ROWS, 1>(source, t, stream);
}

extern "C" int bt_gemm_small(bt_gemm_form form, int rows, bt_gemm_source source,
                             const bt_gemm_small_task *task, void *stream)
{
    switch (rows) {
    case 8:
        return launch_form<8>(form, source, task, stream);
    case 16:
        return launch_form<16>(form, source, task, stream);
    case 32:
        return launch_form<32>(form, source, task, stream);
    default:
        return launch_form<64>(form, source, task, stream);
    }
}

extern "C" int bt_gemm_small_stages(int rows, bt_gemm_source source, int sums,
                                    int steps)
{
    if (source != BT_ROWS_GIVEN)
        return rows == 8 ? stages_of<8, true>(sums, steps) : 0;
    return rows == 8    ? stages_of<8, false>(sums, steps)
           : rows == 16 ? stages_of<16, false>(sums, steps)
           : rows == 32 ? stages_of<32, false>(sums, steps)
                        : stages_of<64, false>(sums, steps);
}

extern "C" int bt_gemm_small_step(int rows)
{
    return rows == 64 ? small<64, false>::STEP : small<32, false>::STEP;
}
