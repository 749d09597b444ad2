/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_narrow.cu - products of up to 64 rows with small matrices, as in
 * decoding: the weights are spread over the whole GPU and wait in shared memory
 * for the rows.
 *
 * A tile is all rows of a and 32 or 64 rows of weights (columns of the result).
 * A block has one chunk of k of a tile, and the blocks of a cluster have the
 * chunks of one tile. All of a block's weights are fetched at once, and none is
 * replaced, so that where the kernel before this one lets it start early
 * (programmatic dependent launch) they have arrived when that one ends, and
 * only the rows are left to come. One warpgroup multiplies, with the rows of a
 * as the 64 rows of wgmma. It has no use for those beyond m, and reads whatever
 * lies there.
 *
 * With more than one chunk, every block sends the sums of eight columns to the
 * block of the cluster that they belong to, which adds them in the order of k.
 * Each thread receives what the same thread of the others has summed. */
#include "backend/cuda/gemm_end.h"
#include "backend/cuda/gemm_hopper.h"
#include "backend/cuda/gemm_rows.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/warp.h"

#include <cuda_runtime_api.h>

enum {
    THREADS = 128,
    PANEL_K = 64,       /* of k: 128 bytes of a row */
    BARRIER_PANELS = 4, /* that have a barrier in common */
    BARRIERS = BT_GEMM_NARROW_K / PANEL_K / BARRIER_PANELS,
    MOST_CHUNKS = 8,        /* blocks of a cluster */
    WGMMA_BYTES = 64 * 128, /* of a panel that wgmma reads */
    MOST_BYTES = BT_GEMM_NARROW_BYTES
};

template <int ROWS, int TILE> struct narrow {
    static constexpr int A_PANEL = ROWS * 128, B_PANEL = TILE * 128; /* bytes */
    static constexpr int GROUPS = TILE / 8; /* of columns */
    /* Threads that hold rows, and how many of them each; a group's sums. */
    static constexpr int HOLDERS = ROWS <= 16 ? 32 : ROWS * 2;
    static constexpr int HALVES = ROWS > 8 ? 2 : 1;
    static constexpr int GROUP_BYTES = HOLDERS * HALVES * 8;
};

/* Where things are in a block's shared memory. */
template <int ROWS, int TILE> struct narrow_memory {
    uint8_t *rows, *weights;
    uint64_t *full;     /* (BARRIERS) */
    uint64_t *received; /* sums of other blocks */
    float2 *sums;       /* (groups, chunks, halves, holders) */
};

template <int ROWS, int TILE>
BT_DEVICE narrow_memory<ROWS, TILE> memory_of(const bt_gemm_narrow_task &t,
                                              uint8_t *memory)
{
    using C = narrow<ROWS, TILE>;
    narrow_memory<ROWS, TILE> s;
    s.rows = memory + (1024 - shared_address(memory) % 1024) % 1024;
    s.weights = s.rows + t.chunk_panels * C::A_PANEL;
    s.full = (uint64_t *)(s.weights + t.chunk_panels * C::B_PANEL);
    s.received = s.full + BARRIERS;
    s.sums = (float2 *)(s.received + 2);
    return s;
}

/* Of a block; wgmma reads beyond the last rows. */
template <int ROWS, int TILE>
static int memory_bytes(int panels, int chunks, int blocks)
{
    using C = narrow<ROWS, TILE>;
    int own = blocks > 1 ? (C::GROUPS + blocks - 1) / blocks : 0;
    int bytes = panels * (C::A_PANEL + C::B_PANEL) + (BARRIERS + 2) * 8 +
                own * chunks * C::GROUP_BYTES;
    int read = (panels - 1) * C::A_PANEL + WGMMA_BYTES;
    return 1024 + (bytes > read ? bytes : read);
}

/* ---- operands ------------------------------------------------------------ */

/* With k outside, rows of weights are TILE columns, swizzled within their 64 or
 * 128 bytes; 8 of k are one unit of that pattern. */
template <int TILE, int TB>
BT_DEVICE uint64_t weights_descriptor(const void *at)
{
    if (!TB || TILE == 64)
        return tile_descriptor(at, WGMMA_BYTES);
    return (uint64_t)((shared_address(at) & 0x3ffff) >> 4) | (uint64_t)1 << 16 |
           (uint64_t)TILE << 32 | (uint64_t)2 << 62;
}

/* One lane's share of the copies: a part. */
template <int ROWS, int TILE, int TB, bool WITH_ROWS>
BT_DEVICE void fetch_weights(const bt_gemm_narrow_task &t,
                             const narrow_memory<ROWS, TILE> &s, int part,
                             int panels, int column, int k)
{
    using C = narrow<ROWS, TILE>;
    int first = part * BARRIER_PANELS,
        end = min(first + BARRIER_PANELS, panels);
    if (first >= end)
        return;
    barrier_arrive_expect(
        &s.full[part],
        (uint32_t)((end - first) * (C::B_PANEL + WITH_ROWS * C::A_PANEL)));
    uint64_t policy = policy_evict_first(); // weights are read once
    for (int p = first; p < end; p++) {
        int at = k + p * PANEL_K;
        tma_load_matrix_by(s.weights + p * C::B_PANEL, &t.b, TB ? column : at,
                           TB ? at : column, &s.full[part], policy);
    }
}

template <int ROWS, int TILE>
BT_DEVICE void fetch_rows(const bt_gemm_narrow_task &t,
                          const narrow_memory<ROWS, TILE> &s, int part,
                          int panels, int k)
{
    using C = narrow<ROWS, TILE>;
    int first = part * BARRIER_PANELS;
    for (int p = first; p < min(first + BARRIER_PANELS, panels); p++)
        tma_load_matrix(s.rows + p * C::A_PANEL, &t.a, k + p * PANEL_K, 0,
                        &s.full[part]);
}

/* ---- products ------------------------------------------------------------ */

template <int ROWS, int TILE, int TB>
BT_DEVICE void multiply(float *sum, const narrow_memory<ROWS, TILE> &s,
                        int panels)
{
    using C = narrow<ROWS, TILE>;
    constexpr int B_STEP = TB ? TILE * 32 : 32; /* bytes of 16 of k */
    uint64_t x = tile_descriptor(s.rows, WGMMA_BYTES);
    uint64_t w = weights_descriptor<TILE, TB>(s.weights);
#pragma unroll
    for (int i = 0; i < TILE / 2; i++)
        sum[i] = 0.0f;
    for (int p = 0; p < panels; p++) {
        if (p % BARRIER_PANELS == 0)
            barrier_wait(&s.full[p / BARRIER_PANELS], 0);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < PANEL_K / 16; i++)
            wgmma<TILE, 0, TB, false>(sum, x + i * 2, w + i * (B_STEP / 16));
        wgmma_commit();
        x += C::A_PANEL / 16;
        w += C::B_PANEL / 16;
    }
    wgmma_wait<0>();
    wgmma_fence_operand<TILE / 2>(sum);
}

/* ---- ends ---------------------------------------------------------------- */

/* This thread's first row and column of a group; other halves have the row
 * that is eight further down. */
BT_DEVICE int own_row(void)
{
    return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
}

BT_DEVICE int own_column(void)
{
    return threadIdx.x % 4 * 2;
}

/* Where the pairs of this thread are, and their biases: the block's groups are
 * rank, rank + blocks, ... */
template <int ROWS, int TILE, class P>
BT_DEVICE void place_pairs(P &p, const bt_gemm_narrow_task &t, int rank,
                           int column)
{
    using C = narrow<ROWS, TILE>;
#pragma unroll
    for (int i = 0; i < C::GROUPS * C::HALVES; i++) {
        int group = rank + i / C::HALVES * t.blocks;
        p.row[i] = own_row() + i % C::HALVES * 8;
        p.column[i] = column + group * 8 + own_column();
        p.in[i] = group < C::GROUPS && p.row[i] < t.end.m &&
                  p.column[i] < t.end.n && threadIdx.x < C::HOLDERS;
        p.bias[i] = t.end.bias && p.in[i] ? load_two(t.end.bias + p.column[i],
                                                     t.end.n - p.column[i])
                                          : 0;
        p.v[i][0] = p.v[i][1] = 0.0f;
    }
}

/* Send all sums to the blocks that they belong to. */
template <int ROWS, int TILE>
BT_DEVICE void send(const bt_gemm_narrow_task &t,
                    const narrow_memory<ROWS, TILE> &s, const float *sum,
                    int rank)
{
    using C = narrow<ROWS, TILE>;
    int to = 0, index = 0;
#pragma unroll
    for (int group = 0; group < C::GROUPS; group++) {
        uint32_t received = cluster_address(s.received, (uint32_t)to);
        uint32_t at = cluster_address(
            s.sums + (index * t.chunks + rank) * C::HALVES * C::HOLDERS +
                threadIdx.x,
            (uint32_t)to);
#pragma unroll
        for (int half = 0; half < C::HALVES; half++)
            cluster_store(at + half * C::HOLDERS * 8, sum[group * 4 + half * 2],
                          sum[group * 4 + half * 2 + 1], received);
        if (++to == t.blocks) {
            to = 0;
            index++;
        }
    }
}

/* This block's totals: its own sums, */
template <int ROWS, int TILE, class P>
BT_DEVICE void take_own(P &p, const float *sum)
{
    using C = narrow<ROWS, TILE>;
#pragma unroll
    for (int i = 0; i < C::GROUPS * C::HALVES; i++) {
        p.v[i][0] = sum[i / C::HALVES * 4 + i % C::HALVES * 2];
        p.v[i][1] = sum[i / C::HALVES * 4 + i % C::HALVES * 2 + 1];
    }
}

/* or those of all chunks of its groups, of which it has at most half. */
template <int ROWS, int TILE, class P>
BT_DEVICE void merge(P &p, const bt_gemm_narrow_task &t,
                     const narrow_memory<ROWS, TILE> &s, int rank)
{
    using C = narrow<ROWS, TILE>;
    constexpr int STRIDE = C::HALVES * C::HOLDERS;
    barrier_wait(s.received, 0);
#pragma unroll
    for (int i = 0; i < C::GROUPS / 2 * C::HALVES; i++) {
        int index = i / C::HALVES, half = i % C::HALVES;
        const float2 *at = s.sums + index * t.chunks * STRIDE +
                           half * C::HOLDERS + threadIdx.x;
        float2 add[MOST_CHUNKS] = {};
#pragma unroll
        for (int c = 0; c < MOST_CHUNKS; c++)
            if (c < t.chunks && rank + index * t.blocks < C::GROUPS)
                add[c] = at[c * STRIDE];
        p.v[i][0] = add[0].x;
        p.v[i][1] = add[0].y;
#pragma unroll
        for (int c = 1; c < MOST_CHUNKS; c++)
            if (c < t.chunks) {
                p.v[i][0] = __fadd_rn(p.v[i][0], add[c].x);
                p.v[i][1] = __fadd_rn(p.v[i][1], add[c].y);
            }
    }
}

/* ---- the kernel ---------------------------------------------------------- */

/* Barriers, and the first copies by the thread that has made them. */
template <int ROWS, int TILE>
BT_DEVICE void init(const bt_gemm_narrow_task &t,
                    const narrow_memory<ROWS, TILE> &s, int rank)
{
    using C = narrow<ROWS, TILE>;
    for (int i = 0; i < BARRIERS; i++)
        barrier_init(&s.full[i], 1);
    barrier_init(s.received, 1);
    barrier_init_done();
    if (t.blocks > 1 && rank < C::GROUPS) {
        int own = (C::GROUPS - rank + t.blocks - 1) / t.blocks;
        barrier_arrive_expect(s.received,
                              (uint32_t)(own * t.chunks * C::GROUP_BYTES));
    }
}

/* HELD: see gemm_rows.h. */
template <int ROWS, int TILE, int TB, bt_gemm_source SOURCE, int HELD>
__global__ void __launch_bounds__(THREADS)
    gemm_narrow(const __grid_constant__ bt_gemm_narrow_task t)
{
    using C = narrow<ROWS, TILE>;
    extern __shared__ uint8_t memory[];
    narrow_memory<ROWS, TILE> s = memory_of<ROWS, TILE>(t, memory);
    int rank = blockIdx.x % t.blocks, tile = blockIdx.x / t.blocks;
    int column = tile * TILE;
    int panels = max(min(t.chunk_panels, t.panels - rank * t.chunk_panels), 0);
    int k = rank * t.chunk_panels * PANEL_K, warp = threadIdx.x / 32;
    bool copies = threadIdx.x % 32 == 0;            // a lane for each part
    constexpr bool GIVEN = SOURCE == BT_ROWS_GIVEN; // the copy engine has them
    row_part_of part = { k, panels, tile, (int)gridDim.x / t.blocks };
    norm_weights<HELD> norm;
    end_pairs<C::GROUPS * C::HALVES> p;
    float sum[TILE / 2];

    static_assert(THREADS / 32 == BARRIERS, "a warp for each part");
    static_assert(THREADS == ROW_THREADS, "all threads compute rows");
    if (GIVEN && threadIdx.x == 32) // it would come from memory after the wait
        tensor_map_prefetch(&t.a);
    if (threadIdx.x == 0)
        init<ROWS, TILE>(t, s, rank);
    __syncthreads();
    if (t.blocks > 1)
        cluster_arrive();
    if (!t.b_ready)
        grid_dependency_wait();
    if (copies)
        fetch_weights<ROWS, TILE, TB, GIVEN>(t, s, warp, panels, column, k);
    launch_dependents();
    place_pairs<ROWS, TILE>(p, t, rank, column);
    if constexpr (SOURCE == BT_ROWS_NORM)
        norm_weights_load(&norm, t.rows, part);
    // The barriers of all blocks are ready.
    if (t.blocks > 1)
        cluster_wait();
    grid_dependency_wait();
    if constexpr (GIVEN) {
        if (copies)
            fetch_rows<ROWS, TILE>(t, s, warp, panels, k);
        __syncwarp();
    } else {
        make_rows<ROWS, SOURCE>(t.rows, norm, s.rows, part);
        __syncthreads();
    }
    multiply<ROWS, TILE, TB>(sum, s, panels);
    if (threadIdx.x >= C::HOLDERS)
        return;
    if (t.blocks == 1)
        take_own<ROWS, TILE>(p, sum);
    else if (rank < t.chunks)
        send<ROWS, TILE>(t, s, sum, rank);
    if (rank >= C::GROUPS)
        return;
    if (t.blocks > 1)
        merge<ROWS, TILE>(p, t, s, rank);
    finish_pairs(p, t.end);
}

/* ---- launches ------------------------------------------------------------ */

template <int ROWS, int TILE, int TB, bt_gemm_source SOURCE, int HELD>
static cudaError_t launch(const bt_gemm_narrow_task *t, void *stream)
{
    bt_cuda_kernel how = {};
    how.function = (const void *)gemm_narrow<ROWS, TILE, TB, SOURCE, HELD>;
    how.grid[0] = (unsigned)((t->end.n + TILE - 1) / TILE * t->blocks);
    how.grid[1] = how.grid[2] = 1;
    how.threads = THREADS;
    how.cluster = (unsigned)t->blocks;
    how.start = BT_START_EARLY;
    how.shared =
        (size_t)memory_bytes<ROWS, TILE>(t->chunk_panels, t->chunks, t->blocks);
    how.shared_limit = MOST_BYTES;
    return launch_values(how, stream, *t);
}

template <int ROWS, int TILE, int TB>
static cudaError_t launch_source(bt_gemm_source source,
                                 const bt_gemm_narrow_task *t, void *stream)
{
    if (source == BT_ROWS_GIVEN)
        return launch<ROWS, TILE, TB, BT_ROWS_GIVEN, 1>(t, stream);
    if constexpr (ROWS == 8) {
        if (source == BT_ROWS_GATED)
            return launch<ROWS, TILE, TB, BT_ROWS_GATED, 1>(t, stream);
        return t->rows.k <= NORM_HELD
                   ? launch<ROWS, TILE, TB, BT_ROWS_NORM, 1>(t, stream)
                   : launch<ROWS, TILE, TB, BT_ROWS_NORM, 2>(t, stream);
    }
    return cudaErrorInvalidValue;
}

template <int ROWS, int TILE>
static cudaError_t launch_form(bt_gemm_form form, bt_gemm_source source,
                               const bt_gemm_narrow_task *t, void *stream)
{
    return form == BT_GEMM_NT ? launch_source<ROWS, TILE, 0>(source, t, stream)
                              : launch_source<ROWS, TILE, 1>(source, t, stream);
}

template <int ROWS>
static cudaError_t launch_tile(bt_gemm_form form, int tile,
                               bt_gemm_source source,
                               const bt_gemm_narrow_task *t, void *stream)
{
    return tile == 32 ? launch_form<ROWS, 32>(form, source, t, stream)
                      : launch_form<ROWS, 64>(form, source, t, stream);
}

extern "C" int bt_gemm_narrow(bt_gemm_form form, int rows, int tile,
                              bt_gemm_source source,
                              const bt_gemm_narrow_task *task, void *stream)
{
    return rows == 8    ? launch_tile<8>(form, tile, source, task, stream)
           : rows == 16 ? launch_tile<16>(form, tile, source, task, stream)
           : rows == 32 ? launch_tile<32>(form, tile, source, task, stream)
                        : launch_tile<64>(form, tile, source, task, stream);
}

template <int ROWS>
static int bytes_of(int tile, int panels, int chunks, int blocks)
{
    return tile == 32 ? memory_bytes<ROWS, 32>(panels, chunks, blocks)
                      : memory_bytes<ROWS, 64>(panels, chunks, blocks);
}

extern "C" int bt_gemm_narrow_bytes(int rows, int tile, int panels, int chunks,
                                    int blocks)
{
    return rows == 8    ? bytes_of<8>(tile, panels, chunks, blocks)
           : rows == 16 ? bytes_of<16>(tile, panels, chunks, blocks)
           : rows == 32 ? bytes_of<32>(tile, panels, chunks, blocks)
                        : bytes_of<64>(tile, panels, chunks, blocks);
}
