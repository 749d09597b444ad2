/* SPDX-License-Identifier: Apache-2.0 */
/* ops_embedding.cu - the gradient of an embedding table.
 *
 * Rows are sorted by their id, stably (a radix sort of eight bits at a time),
 * so the rows of an id follow each other in ascending order. Each id is then
 * one chain of fused multiply-adds that starts from what the table holds, and
 * is stored once. Ids with few rows have a warp to 256 columns; those with many
 * a block, which brings some rows at a time into shared memory. Ids are listed
 * in no particular order: none adds to what another one does. */
#include "backend/cuda/ops_device.h"

enum {
    SORT_THREADS = 256,
    SORT_ROUNDS = 4, /* of SORT_THREADS rows, in a block */
    SORT_ROWS = SORT_THREADS * SORT_ROUNDS,
    DIGITS = 256,
    STRIPE = 256, /* columns of a warp or a block */
    MANY = 64     /* rows of an id from which on it has a block */
};

/* A row and the id that it adds to. */
typedef struct id_row {
    uint32_t id, row;
} id_row;

/* Device memory, cut from the workspace. */
typedef struct sort_memory {
    id_row *sorted[2];
    uint32_t *counts; /* (digits, blocks) */
    uint32_t *heads;  /* (rows) where the rows of an id start: with few rows
                         from the front, with many from the back */
    uint32_t *head_counts; /* (2) few, many */
    uint32_t blocks; /* of SORT_ROWS rows, rounded up to a multiple of 16 */
} sort_memory;

static size_t to_16(size_t x)
{
    return (x + 15) / 16 * 16;
}

/* Returns the bytes; `memory` may be NULL. */
static size_t cut_memory(sort_memory *m, void *memory, size_t rows)
{
    size_t blocks = ceil_div(rows, SORT_ROWS * 16) * 16, used = 0;
    size_t sizes[] = { rows * sizeof(id_row), rows * sizeof(id_row),
                       DIGITS * blocks * sizeof(uint32_t),
                       rows * sizeof(uint32_t), 2 * sizeof(uint32_t) };
    void *part[5];
    for (int i = 0; i < 5; i++) {
        part[i] = memory ? (char *)memory + used : NULL;
        used += to_16(sizes[i]);
    }
    *m = { { (id_row *)part[0], (id_row *)part[1] },
           (uint32_t *)part[2],
           (uint32_t *)part[3],
           (uint32_t *)part[4],
           (uint32_t)blocks };
    return used;
}

size_t bt_cuda_embedding_workspace(size_t rows)
{
    sort_memory m;
    return cut_memory(&m, NULL, rows);
}

/* ---- sorting ------------------------------------------------------------- */

/* Padding gets an id that no row of the table has: it sorts last. */
static __global__ void __launch_bounds__(SORT_THREADS)
    sort_begin(id_row *to, uint32_t *head_counts, const uint32_t *ids,
               uint32_t rows, uint32_t padding_id, uint32_t table_rows)
{
    uint32_t i = blockIdx.x * SORT_THREADS + threadIdx.x;
    if (i < 2)
        head_counts[i] = 0;
    if (i < rows)
        to[i] = { ids[i] == padding_id ? table_rows : ids[i], i };
}

static __global__ void __launch_bounds__(SORT_THREADS)
    sort_count(uint32_t *counts, const id_row *from, uint32_t rows, int shift)
{
    __shared__ uint32_t count[DIGITS];
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int r = 0; r < SORT_ROUNDS; r++) {
        uint32_t i = blockIdx.x * SORT_ROWS + r * SORT_THREADS + threadIdx.x;
        if (i < rows)
            atomicAdd(&count[from[i].id >> shift & (DIGITS - 1)], 1);
    }
    __syncthreads();
    counts[threadIdx.x * gridDim.x + blockIdx.x] = count[threadIdx.x];
}

/* The sum over the threads before this one, in a block of 1,024, and over
 * all. */
BT_DEVICE uint32_t scan_before(uint32_t x, uint32_t *all, uint32_t *warps)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = x;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        uint32_t y = __shfl_up_sync(ALL_LANES, sum, i);
        sum += lane >= i ? y : 0;
    }
    __syncthreads();
    if (lane == 31)
        warps[warp] = sum;
    __syncthreads();
    uint32_t before = 0, total = 0;
    for (uint32_t i = 0; i < 32; i++) {
        before += i < warp ? warps[i] : 0;
        total += warps[i];
    }
    *all = total;
    return before + sum - x;
}

/* Each count becomes the sum of those before it. One block, whose threads have
 * a stretch of counts each, a multiple of four. */
static __global__ void __launch_bounds__(1024)
    sort_scan(uint4 *counts, uint32_t each)
{
    __shared__ uint32_t warps[32];
    uint32_t sum = 0, all;
    counts += threadIdx.x * each;
#pragma unroll 4
    for (uint32_t i = 0; i < each; i++) {
        uint4 x = counts[i];
        sum += x.x + x.y + x.z + x.w;
    }
    sum = scan_before(sum, &all, warps);
#pragma unroll 4
    for (uint32_t i = 0; i < each; i++) {
        uint4 x = counts[i];
        counts[i] =
            make_uint4(sum, sum + x.x, sum + x.x + x.y, sum + x.x + x.y + x.z);
        sum += x.x + x.y + x.z + x.w;
    }
}

/* Rows go to where their digit's rows start, in order: those of the block's
 * rounds, of the warps of a round and of the lanes of a warp before them. */
static __global__ void __launch_bounds__(SORT_THREADS)
    sort_move(id_row *to, const id_row *from, const uint32_t *counts,
              uint32_t blocks, uint32_t rows, int shift)
{
    const int warps = SORT_THREADS / 32;
    __shared__ uint32_t start[DIGITS], of_warp[warps][DIGITS];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    start[threadIdx.x] = counts[threadIdx.x * blocks + blockIdx.x];
    for (int r = 0; r < SORT_ROUNDS; r++) {
        uint32_t i = blockIdx.x * SORT_ROWS + r * SORT_THREADS + threadIdx.x;
        bool in = i < rows;
        id_row row = in ? from[i] : id_row{ 0, 0 };
        uint32_t digit = in ? row.id >> shift & (DIGITS - 1) : DIGITS;
        for (int w = 0; w < warps; w++)
            of_warp[w][threadIdx.x] = 0;
        __syncthreads();
        uint32_t same = __match_any_sync(ALL_LANES, digit);
        uint32_t before = __popc(same & ((1u << lane) - 1));
        if (in && before == 0)
            of_warp[warp][digit] = __popc(same);
        __syncthreads();
        if (in) {
            uint32_t at = start[digit] + before;
            for (uint32_t w = 0; w < warp; w++)
                at += of_warp[w][digit];
            to[at] = row;
        }
        __syncthreads();
        for (int w = 0; w < warps; w++)
            start[threadIdx.x] += of_warp[w][threadIdx.x];
        __syncthreads();
    }
}

/* List the places where an id's rows start. */
static __global__ void __launch_bounds__(SORT_THREADS)
    find_heads(uint32_t *heads, uint32_t *head_counts, const id_row *sorted,
               uint32_t rows, uint32_t table_rows)
{
    uint32_t i = blockIdx.x * SORT_THREADS + threadIdx.x;
    uint32_t lane = threadIdx.x % 32, id = i < rows ? sorted[i].id : table_rows;
    bool head = id != table_rows && (i == 0 || sorted[i - 1].id != id);
    bool many = head && i + MANY - 1 < rows && sorted[i + MANY - 1].id == id;
    for (int kind = 0; kind < 2; kind++) {
        bool mine = head && many == (kind == 1);
        uint32_t all = __ballot_sync(ALL_LANES, mine), at = 0;
        if (all && lane == 0)
            at = atomicAdd(&head_counts[kind], __popc(all));
        at = __shfl_sync(ALL_LANES, at, 0) + __popc(all & ((1u << lane) - 1));
        if (mine)
            heads[kind ? rows - 1 - at : at] = i;
    }
}

/* ---- chains -------------------------------------------------------------- */

template <class T> struct chain_params {
    const id_row *sorted;
    const uint32_t *heads, *head_counts;
    uint32_t rows, columns;
    matrix<const T> dy;
    float *dtable;
    float scale;
    bool wide, wide_table;
};

/* A warp to an id with few rows and 256 columns. */
template <class T>
static __global__ void __launch_bounds__(256) chain_few(const chain_params<T> p)
{
    uint32_t count = p.head_counts[0], lane = threadIdx.x % 32;
    uint32_t column = blockIdx.y * STRIPE + lane * 8;
    int left = (int)p.columns - (int)column;
    for (uint32_t h = blockIdx.x * 8 + threadIdx.x / 32; h < count;
         h += gridDim.x * 8) {
        uint32_t first = p.heads[h], n;
        // The lanes have the next 64 rows, of which fewer are this id's.
        id_row low = p.sorted[min(first + lane, p.rows - 1)];
        id_row high = p.sorted[min(first + 32 + lane, p.rows - 1)];
        uint32_t id = __shfl_sync(ALL_LANES, low.id, 0);
        n = __popc(__ballot_sync(ALL_LANES,
                                 low.id == id && first + lane < p.rows)) +
            __popc(__ballot_sync(ALL_LANES,
                                 high.id == id && first + 32 + lane < p.rows));
        float *to = p.dtable + (size_t)id * p.columns + column;
        float sum[8], v[8];
        load8(sum, to, left, p.wide_table);
#pragma unroll 4
        for (uint32_t i = 0; i < n; i++) {
            uint32_t row =
                __shfl_sync(ALL_LANES, i < 32 ? low.row : high.row, i % 32);
            load8(v, p.dy.data + row * p.dy.stride + column, left, p.wide);
#pragma unroll
            for (int c = 0; c < 8; c++)
                sum[c] = fmaf(v[c], p.scale, sum[c]);
        }
        store8(to, sum, left, p.wide_table);
    }
}

/* Where the rows of an id end that start at `first`. */
template <class T>
BT_DEVICE uint32_t chain_end(const chain_params<T> &p, uint32_t first)
{
    uint32_t low = first, high = p.rows, id = p.sorted[first].id;
    while (low + 1 < high) {
        uint32_t middle = (low + high) / 2;
        if (p.sorted[middle].id == id)
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* A tile of rows of an id in shared memory: 256 columns of TILE rows. */
template <class T> struct chain_tile {
    static const uint32_t rows = sizeof(T) == 2 ? 64 : 32;
    static const uint32_t each = rows / 8; /* of a warp */
    octet<T> o[rows][STRIPE / 8];
};

BT_DEVICE float float_of(float x)
{
    return x;
}

BT_DEVICE float float_of(bf16 x)
{
    return __uint_as_float((uint32_t)x << 16);
}

/* A block to an id with many rows and 256 columns: a warp loads every eighth
 * row of a tile, a thread adds up one column. While a tile is added up the next
 * one is on its way, and the numbers of the rows after that. */
template <class T>
static __global__ void __launch_bounds__(256)
    chain_many(const chain_params<T> p)
{
    typedef chain_tile<T> tiles;
    __shared__ tiles tile;
    uint32_t count = p.head_counts[1], lane = threadIdx.x % 32;
    uint32_t warp = threadIdx.x / 32;
    uint32_t column = blockIdx.y * STRIPE + lane * 8;
    uint32_t mine = blockIdx.y * STRIPE + threadIdx.x;
    int left = (int)p.columns - (int)column;
    for (uint32_t h = blockIdx.x; h < count; h += gridDim.x) {
        uint32_t first = p.heads[p.rows - 1 - h], end = chain_end(p, first);
        float *to = p.dtable + (size_t)p.sorted[first].id * p.columns;
        float sum = mine < p.columns ? to[mine] : 0.0f;
        octet<T> next[tiles::each];
        uint32_t row[tiles::each];
#pragma unroll
        for (int r = 0; r < tiles::each; r++)
            row[r] = p.sorted[min(first + r * 8 + warp, end - 1)].row;
        for (uint32_t i = first; i < end + tiles::rows; i += tiles::rows) {
            if (i > first) { // the tile before is in `next`
                __syncthreads();
#pragma unroll
                for (int r = 0; r < tiles::each; r++)
                    tile.o[r * 8 + warp][lane] = next[r];
                __syncthreads();
            }
            if (i < end)
#pragma unroll
                for (int r = 0; r < tiles::each; r++)
                    next[r] = read8(p.dy.data + row[r] * p.dy.stride + column,
                                    left, p.wide);
#pragma unroll
            for (int r = 0; r < tiles::each; r++)
                row[r] =
                    p.sorted[min(i + tiles::rows + r * 8 + warp, end - 1)].row;
            if (i == first)
                continue;
            uint32_t rows = min(tiles::rows, end - (i - tiles::rows));
            const T *from = (const T *)tile.o[0] + threadIdx.x;
#pragma unroll 8
            for (uint32_t r = 0; r < rows; r++)
                sum = fmaf(float_of(from[r * STRIPE]), p.scale, sum);
        }
        if (mine < p.columns)
            to[mine] = sum;
    }
}

template <class T>
static void run_chains(const bt_cuda_embedding_backward_args *a,
                       const sort_memory *m, const id_row *sorted,
                       cudaStream_t stream)
{
    layout8 l = layout_of(a->rows, a->columns);
    layout_add(&l, a->dy.data, a->dy.stride, a->dtype);
    chain_params<T> p = { sorted,
                          m->heads,
                          m->head_counts,
                          (uint32_t)a->rows,
                          (uint32_t)a->columns,
                          matrix_of<T>(a->dy, a->columns),
                          a->dtable,
                          a->scale,
                          l.starts && l.lines,
                          (uintptr_t)a->dtable % 16 == 0 &&
                              a->columns % 4 == 0 };
    unsigned stripes = (unsigned)ceil_div(a->columns, STRIPE);
    unsigned few = (unsigned)ceil_div(a->rows, 8);
    unsigned many = (unsigned)ceil_div(a->rows, MANY);
    chain_many<T>
        <<<dim3(many < 1024 ? many : 1024, stripes), 256, 0, stream>>>(p);
    chain_few<T><<<dim3(few < 2048 ? few : 2048, stripes), 256, 0, stream>>>(p);
}

bauta_status
bt_cuda_embedding_backward(const bt_cuda_embedding_backward_args *a,
                           void *workspace, void *stream, bauta_error *err)
{
    const char *what = "embedding's gradient";
    cudaStream_t on = (cudaStream_t)stream;
    bauta_status status = check_dtype(what, a->dtype, err);
    if (status || a->rows == 0 || a->columns == 0)
        return status;
    if (a->rows >= (size_t)1 << 31 || a->table_rows >= (size_t)1 << 31)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: %zu rows for %zu ids are too many for one call",
                       what, a->rows, a->table_rows);
    sort_memory m;
    cut_memory(&m, workspace, a->rows);
    uint32_t rows = (uint32_t)a->rows, table_rows = (uint32_t)a->table_rows;
    sort_begin<<<(unsigned)ceil_div(rows, SORT_THREADS), SORT_THREADS, 0, on>>>(
        m.sorted[0], m.head_counts, a->ids, rows, a->padding_id, table_rows);
    int from = 0;
    for (int shift = 0; shift < 32 && table_rows >> shift; shift += 8) {
        sort_count<<<m.blocks, SORT_THREADS, 0, on>>>(m.counts, m.sorted[from],
                                                      rows, shift);
        sort_scan<<<1, 1024, 0, on>>>((uint4 *)m.counts,
                                      DIGITS * m.blocks / 1024 / 4);
        sort_move<<<(unsigned)ceil_div(rows, SORT_ROWS), SORT_THREADS, 0, on>>>(
            m.sorted[!from], m.sorted[from], m.counts, m.blocks, rows, shift);
        from = !from;
    }
    find_heads<<<(unsigned)ceil_div(rows, SORT_THREADS), SORT_THREADS, 0, on>>>(
        m.heads, m.head_counts, m.sorted[from], rows, table_rows);
    if (a->dtype == BAUTA_FLOAT32)
        run_chains<float>(a, &m, m.sorted[from], on);
    else
        run_chains<bf16>(a, &m, m.sorted[from], on);
    return launched(what, err);
}
