/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_narrow.cu - products of up to 64 rows with small matrices, as in
 * decoding: the weights are spread over the whole GPU and wait in shared memory
 * for the rows.
 *
 * A tile is all rows of a and 16, 32 or 64 rows of weights (columns of the
 * result). A block has one chunk of k of a tile, and the blocks of a cluster
 * have the chunks of one tile. All of a block's weights are fetched at once, and
 * none is replaced, so that where the kernel before this one lets it start early
 * (programmatic dependent launch) they have arrived when that one ends. What is
 * left then is short: few rows are copied by the threads, which takes less time
 * than the copy engine; more by that. One warpgroup multiplies, with the rows of
 * a as the 64 rows of wgmma. It has no use for those beyond m, and reads
 * whatever lies there.
 *
 * With more than one chunk, every block sends the sums of eight columns to the
 * block of the cluster that they belong to, which adds them in the order of k.
 * Each thread receives what the same thread of the others has summed. */
#include "backend/cuda/gemm_end.h"
#include "backend/cuda/gemm_hopper.h"
#include "backend/cuda/launch.h"

#include <cuda_runtime_api.h>

enum {
    THREADS = 128,
    PANEL_K = 64, /* of k: 128 bytes of a row */
    PART = 4,     /* panels that have a barrier in common */
    PARTS = BT_GEMM_CHUNK / PANEL_K / PART,
    MOST_CHUNKS = 8,        /* blocks of a cluster */
    COPIES = 8,             /* loads of a thread under way */
    WGMMA_BYTES = 64 * 128, /* of a panel that wgmma reads */
    MOST_BYTES = 232448     /* of shared memory */
};

template <int ROWS, int TILE> struct narrow {
    static constexpr int A_PANEL = ROWS * 128, B_PANEL = TILE * 128; /* bytes */
    static constexpr bool BY_TMA = ROWS > 16; /* the rows of a */
    static constexpr int GROUPS = TILE / 8;   /* of columns */
    /* Threads that hold rows, and how many of them each; a group's sums. */
    static constexpr int HOLDERS = ROWS <= 16 ? 32 : ROWS * 2;
    static constexpr int HALVES = ROWS > 8 ? 2 : 1;
    static constexpr int GROUP_BYTES = HOLDERS * HALVES * 8;
};

/* Where things are in a block's shared memory. */
template <int ROWS, int TILE> struct narrow_memory {
    uint8_t *rows, *weights;
    uint64_t *full;     /* (PARTS) */
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
    s.received = s.full + PARTS;
    s.sums = (float2 *)(s.received + 2);
    return s;
}

/* Of a block; wgmma reads beyond the last rows. */
template <int ROWS, int TILE>
static int memory_bytes(int panels, int chunks, int blocks)
{
    using C = narrow<ROWS, TILE>;
    int own = blocks > 1 ? (C::GROUPS + blocks - 1) / blocks : 0;
    int bytes = panels * (C::A_PANEL + C::B_PANEL) + (PARTS + 2) * 8 +
                own * chunks * C::GROUP_BYTES;
    int read = (panels - 1) * C::A_PANEL + WGMMA_BYTES;
    return 1024 + (bytes > read ? bytes : read);
}

/* ---- operands ------------------------------------------------------------ */

/* With k outside, rows of weights are TILE columns, swizzled within their 32, 64
 * or 128 bytes; 8 of k are one unit of that pattern. */
template <int TILE, int TB>
BT_DEVICE uint64_t weights_descriptor(const void *at)
{
    if (!TB || TILE == 64)
        return tile_descriptor(at, WGMMA_BYTES);
    return (uint64_t)((shared_address(at) & 0x3ffff) >> 4) | (uint64_t)1 << 16 |
           (uint64_t)TILE << 32 | (uint64_t)(TILE == 32 ? 2 : 3) << 62;
}

/* One lane's share of the copies: a part. */
template <int ROWS, int TILE, int TB>
BT_DEVICE void fetch_weights(const bt_gemm_narrow_task &t,
                             const narrow_memory<ROWS, TILE> &s, int part,
                             int panels, int column, int k)
{
    using C = narrow<ROWS, TILE>;
    int first = part * PART, end = min(first + PART, panels);
    if (first >= end)
        return;
    barrier_arrive_expect(&s.full[part],
                          (uint32_t)((end - first) *
                                     (C::B_PANEL + C::BY_TMA * C::A_PANEL)));
    for (int p = first; p < end; p++) {
        int at = k + p * PANEL_K;
        tma_load_matrix(s.weights + p * C::B_PANEL, &t.b, TB ? column : at,
                        TB ? at : column, &s.full[part]);
    }
}

template <int ROWS, int TILE>
BT_DEVICE void fetch_rows(const bt_gemm_narrow_task &t,
                          const narrow_memory<ROWS, TILE> &s, int part,
                          int panels, int k)
{
    using C = narrow<ROWS, TILE>;
    for (int p = part * PART; p < min(part * PART + PART, panels); p++)
        tma_load_matrix(s.rows + p * C::A_PANEL, &t.a, k + p * PANEL_K, 0,
                        &s.full[part]);
}

/* Where the eight elements `unit` of a row are in shared memory. */
template <int ROWS> BT_DEVICE uint4 *unit_at(uint8_t *rows, int row, int unit)
{
    return (uint4 *)(rows + unit / 8 * ROWS * 128 + row * 128 +
                     ((unit ^ row) & 7) * 16);
}

/* Fewer than eight elements, and zeros. */
BT_DEVICE uint4 load_some(const uint16_t *from, int left)
{
    uint32_t word[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int x = 0; x < 7; x++)
        if (x < left)
            word[x / 2] |= (uint32_t)from[x] << x % 2 * 16;
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Each thread has eight of the chunk's columns. */
template <int ROWS, int TILE>
BT_DEVICE void copy_rows(const bt_gemm_narrow_task &t,
                         const narrow_memory<ROWS, TILE> &s, int panels, int k)
{
    static_assert(BT_GEMM_CHUNK <= THREADS * 8, "a thread has eight columns");
    int unit = threadIdx.x, left = t.k - k - unit * 8;
    const uint16_t *from = t.rows + k + unit * 8;
    int rows = unit < panels * (PANEL_K / 8) ? t.end.m : 0;
    for (int first = 0; first < rows; first += COPIES) {
        uint4 v[COPIES];
#pragma unroll
        for (int r = 0; r < COPIES; r++) {
            v[r] = make_uint4(0, 0, 0, 0);
            if (first + r < rows && left >= 8)
                v[r] = *(const uint4 *)(from + (first + r) * t.lda);
        }
#pragma unroll
        for (int r = 0; r < COPIES; r++)
            if (first + r < rows)
                *unit_at<ROWS>(s.rows, first + r, unit) = v[r];
    }
    if (left > 0 && left < 8)
        for (int row = 0; row < rows; row++)
            *unit_at<ROWS>(s.rows, row, unit) =
                load_some(from + row * t.lda, left);
    fence_proxy_async();
    __syncthreads();
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
        if (p % PART == 0)
            barrier_wait(&s.full[p / PART], 0);
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
        p.bias[i] = t.end.bias && p.in[i]
                        ? load_two(t.end.bias + p.column[i],
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
    for (int i = 0; i < PARTS; i++)
        barrier_init(&s.full[i], 1);
    barrier_init(s.received, 1);
    barrier_init_done();
    if (t.blocks > 1 && rank < C::GROUPS) {
        int own = (C::GROUPS - rank + t.blocks - 1) / t.blocks;
        barrier_arrive_expect(s.received,
                              (uint32_t)(own * t.chunks * C::GROUP_BYTES));
    }
}

template <int ROWS, int TILE, int TB>
__global__ void __launch_bounds__(THREADS)
    gemm_narrow(const __grid_constant__ bt_gemm_narrow_task t)
{
    using C = narrow<ROWS, TILE>;
    extern __shared__ uint8_t memory[];
    narrow_memory<ROWS, TILE> s = memory_of<ROWS, TILE>(t, memory);
    int rank = blockIdx.x % t.blocks, column = blockIdx.x / t.blocks * TILE;
    int panels = max(min(t.chunk_panels, t.panels - rank * t.chunk_panels), 0);
    int k = rank * t.chunk_panels * PANEL_K, warp = threadIdx.x / 32;
    bool copies = threadIdx.x % 32 == 0; // a lane for each part
    end_pairs<C::GROUPS * C::HALVES> p;
    float sum[TILE / 2];

    static_assert(THREADS / 32 == PARTS, "a warp for each part");
    if (threadIdx.x == 0)
        init<ROWS, TILE>(t, s, rank);
    __syncthreads();
    if (!t.b_ready)
        grid_dependency_wait();
    if (copies)
        fetch_weights<ROWS, TILE, TB>(t, s, warp, panels, column, k);
    launch_dependents();
    place_pairs<ROWS, TILE>(p, t, rank, column);
    // The barriers of all blocks are ready.
    if (t.blocks > 1)
        cluster_sync();
    grid_dependency_wait();
    if (C::BY_TMA) {
        if (copies)
            fetch_rows<ROWS, TILE>(t, s, warp, panels, k);
        __syncwarp();
    } else {
        copy_rows<ROWS, TILE>(t, s, panels, k);
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

template <int ROWS, int TILE, int TB>
static cudaError_t launch(const bt_gemm_narrow_task *t, void *stream)
{
    bt_cuda_kernel how = {};
    how.function = (const void *)gemm_narrow<ROWS, TILE, TB>;
    how.grid[0] = (unsigned)((t->end.n + TILE - 1) / TILE * t->blocks);
    how.grid[1] = how.grid[2] = 1;
    how.threads = THREADS;
    how.cluster = (unsigned)t->blocks;
    how.start = BT_START_EARLY;
    how.shared = (size_t)memory_bytes<ROWS, TILE>(t->chunk_panels, t->chunks,
                                                  t->blocks);
    how.shared_limit = MOST_BYTES;
    return launch_values(how, stream, *t);
}

/* Calls RUN(ROWS, TILE) for the ones that there are. */
#define BT_NARROW_SHAPES(rows, tile, RUN, OTHERWISE) \
    switch ((rows) * 1000 + (tile)) {                \
    case 8016:                                       \
        RUN(8, 16);                                  \
    case 8032:                                       \
        RUN(8, 32);                                  \
    case 8064:                                       \
        RUN(8, 64);                                  \
    case 16016:                                      \
        RUN(16, 16);                                 \
    case 16032:                                      \
        RUN(16, 32);                                 \
    case 16064:                                      \
        RUN(16, 64);                                 \
    case 32016:                                      \
        RUN(32, 16);                                 \
    case 32032:                                      \
        RUN(32, 32);                                 \
    case 32064:                                      \
        RUN(32, 64);                                 \
    case 64016:                                      \
        RUN(64, 16);                                 \
    case 64032:                                      \
        RUN(64, 32);                                 \
    case 64064:                                      \
        RUN(64, 64);                                 \
    default:                                         \
        OTHERWISE;                                   \
    }

extern "C" int bt_gemm_narrow(bt_gemm_form form, int rows, int tile,
                              const bt_gemm_narrow_task *task, void *stream)
{
#define RUN(ROWS, TILE)                                              \
    return form == BT_GEMM_NT ? launch<ROWS, TILE, 0>(task, stream)  \
                              : launch<ROWS, TILE, 1>(task, stream)
    BT_NARROW_SHAPES(rows, tile, RUN, return cudaErrorInvalidValue)
#undef RUN
}

extern "C" int bt_gemm_narrow_bytes(int rows, int tile, int panels, int chunks,
                                    int blocks)
{
#define RUN(ROWS, TILE) return memory_bytes<ROWS, TILE>(panels, chunks, blocks)
    BT_NARROW_SHAPES(rows, tile, RUN, return 0)
#undef RUN
}
