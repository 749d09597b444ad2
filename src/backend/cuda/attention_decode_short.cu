/* SPDX-License-Identifier: Apache-2.0 */
/* attention_decode_short.cu - decoding over short contexts, on Hopper, in
 * bfloat16, with the new keys and values of the step on the way.
 *
 * A step of a small model is a chain of kernels of a few microseconds each, and
 * what counts is the time from the end of the kernel before to the end of this
 * one. So a block of threads has one job (decode_load.h), all of whose tiles of
 * keys and values fit its shared memory, and what does not come from the kernel
 * before is done ahead of it: the list, the tiles, the angles of the rotary
 * embedding. Then only a few rows are missing, which the threads load
 * themselves: the queries and, with `new_rows`, the key and the value of the
 * sequence's new token. These are rotated, written to their page for the steps
 * that follow, and put into the tiles in shared memory, whose row for them held
 * anything. From there on it is the job of attention_decode.cu, by the same
 * functions, and the bits are the same. Those of a rotation are the bits of
 * ops_rotary.cu; both files are compiled with -fmad=false.
 *
 * Blocks have four compute warps and not eight, and units of up to 8 rows and
 * not 16, so that more of them fit a multiprocessor: a block that starts when
 * another one has ended has done nothing ahead. */
#define BT_DECODE_WARPS 4
#define BT_DECODE_UNIT_ROWS 8
#define BT_DECODE_ITEMS 2
#include "backend/cuda/decode_compute.h"
#include "backend/cuda/decode_launch.h"

/* The CPU's function, for the device. */
#define inline inline __host__ __device__
#include "backend/cpu/kernels/cos_sin.h"
#undef inline

typedef struct short_params {
    decode_params d;
    bt_cuda_decode_rows rows; /* k NULL: there are no new ones */
    bool ahead;               /* pages may be read before the grid before this
                                 one is done */
    int multiprocessors;
} short_params;

/* Of shared memory, so that no block of a product finds room beside one. */
enum { ALONE_BYTES = 220 << 10 };

/* In place of the queries of a second job, of decode_shared. */
template <int D> struct short_shared {
    float cosine[D / 2], sine[D / 2];
    uint64_t words[BT_CHUNK_TILES]; /* bits of the tiles, if rows == 1 */
    bt_cuda_kv_place place;         /* of the new token, */
    int k_tile, v_tile;             /* and its tiles in shared memory; -1: it is
                                       hidden */
};

/* ---- ahead of the grid before this one ---------------------------------- */

/* Which tiles of a job's chunk are visible, and so loaded. */
typedef struct seen_tiles {
    uint32_t word[2];
} seen_tiles;

BT_DEVICE seen_tiles find_seen(const decode_work *work)
{
    int lane = threadIdx.x % 32;
    return { { __ballot_sync(~0u, work->tiles[lane].block >= 0),
               __ballot_sync(~0u, work->tiles[32 + lane].block >= 0) } };
}

/* The buffers of a visible tile of K and of V: block by block of tiles, K
 * before V, as compute_job expects them. */
BT_DEVICE int2 buffers_of(seen_tiles seen, int tile)
{
    int first = tile % 32 & ~(WARPS - 1);
    uint32_t word = seen.word[tile / 32], block = word >> first & BLOCK_BITS;
    int before = __popc(word & ((1u << first) - 1));
    before += tile < 32 ? 0 : __popc(seen.word[0]);
    int k = 2 * before + __popc(block & ((1u << tile % WARPS) - 1));
    return make_int2(k, k + __popc(block));
}

/* A lane has two tiles of the chunk. One barrier tells when all are there. */
template <int D>
BT_DEVICE void load_tiles(const decode_params *p, decode_shared<D> *s)
{
    const decode_work *work = &s->work[0];
    int lane = threadIdx.x % 32, head = work->job.unit / p->head_splits;
    uint64_t policy = policy_evict_first();
    seen_tiles seen = find_seen(work);
    if (lane == 0)
        barrier_arrive_expect(
            &s->full[0],
            2 * TILE * D * 2 * (__popc(seen.word[0]) + __popc(seen.word[1])));
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int tile = i * 32 + lane, block = work->tiles[tile].block;
        if (block < 0)
            continue;
        int2 to = buffers_of(seen, tile);
        int page = block >> p->page_shift;
        int key = (block - (page << p->page_shift)) * TILE;
#pragma unroll
        for (int c = 0; c < D / PANEL; c++)
            tma_load_page(s->tile[to.x] + c * TILE * PANEL, &p->k, c * PANEL,
                          key, head, page, &s->full[0], policy);
#pragma unroll
        for (int c = 0; c < D / PANEL; c++)
            tma_load_page(s->tile[to.y] + c * TILE * PANEL, &p->v, c * PANEL,
                          key, head, page, &s->full[0], policy);
    }
}

/* Where the new token is among the tiles of the job. */
template <int D>
BT_DEVICE void find_new_tile(short_shared<D> *e, const decode_work *work,
                             bt_cuda_kv_place place)
{
    int lane = threadIdx.x % 32, page = (int)place.page;
    seen_tiles seen = find_seen(work);
    uint32_t low = __ballot_sync(~0u, work->tiles[lane].block == page);
    uint32_t high = __ballot_sync(~0u, work->tiles[32 + lane].block == page);
    int2 at = buffers_of(seen, low ? __ffs((int)low) - 1
                                   : (__ffs((int)high) + 31) % BT_CHUNK_TILES);
    if (lane == 0) {
        e->place = place;
        e->k_tile = low | high ? at.x : -1;
        e->v_tile = low | high ? at.y : -1;
    }
}

/* The first warp: the job, its barriers and its tiles. */
template <int D>
BT_DEVICE void prepare_job(const short_params *p, decode_shared<D> *s,
                           short_shared<D> *e)
{
    const decode_params *d = &p->d;
    int lane = threadIdx.x % 32;
    job_record r = fetch_job(d, blockIdx.x);
    if (lane == 0) {
        tensor_map_prefetch(&d->k);
        tensor_map_prefetch(&d->v);
    }
    if (lane == 0) {
        barrier_init(&s->full[0], 1);
        barrier_init_done();
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (p->rows.numbers && r.tile[i].block >= 0)
            r.tile[i].block = (int)p->rows.numbers[r.tile[i].block];
        if (d->unit_rows == 1 && r.tile[i].bits >= 0)
            e->words[i * 32 + lane] = d->bits[r.tile[i].bits];
    }
    write_work(d, &s->work[0], r);
    if (p->ahead)
        load_tiles<D>(d, s);
    if (p->rows.k)
        find_new_tile<D>(e, &s->work[0], p->rows.places[s->work[0].item.row]);
}

/* The second warp. */
template <int D>
BT_DEVICE void prepare_angles(const short_params *p, short_shared<D> *e)
{
    int row = p->d.items[job_at(&p->d, blockIdx.x).item].row;
    double position = (double)p->rows.positions[row];
    for (int i = threadIdx.x % 32; i < p->d.head_dim / 2; i += 32)
        bt_cos_sin(position * (double)p->rows.frequencies[i], &e->cosine[i],
                   &e->sine[i]);
}

/* ---- rows --------------------------------------------------------------- */

/* Eight columns of a row, and with `pairs` those half a head further. */
typedef struct row_piece {
    uint4 low, high;
} row_piece;

BT_DEVICE row_piece read_piece(const uint16_t *from, int half, bool pairs)
{
    row_piece x = {};
    x.low = __ldcg((const uint4 *)from);
    if (pairs)
        x.high = __ldcg((const uint4 *)(from + half));
    return x;
}

BT_DEVICE float low_of(uint32_t two)
{
    return __uint_as_float(two << 16);
}

BT_DEVICE float high_of(uint32_t two)
{
    return __uint_as_float(two & 0xffff0000u);
}

/* Eight cosines or sines, aligned to 16 bytes. */
BT_DEVICE void read_angles(float *to, const float *from)
{
    float4 low = ((const float4 *)from)[0], high = ((const float4 *)from)[1];
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

/* As ops_rotary.cu does. */
BT_DEVICE void rotate_piece(row_piece *x, const float *cosine,
                            const float *sine)
{
    uint32_t *low = (uint32_t *)&x->low, *high = (uint32_t *)&x->high;
    float c[8], s[8];
    read_angles(c, cosine);
    read_angles(s, sine);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float a[2], b[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float u = j ? high_of(low[i]) : low_of(low[i]);
            float w = j ? high_of(high[i]) : low_of(high[i]);
            a[j] = fmaf(-w, s[2 * i + j], u * c[2 * i + j]);
            b[j] = fmaf(u, s[2 * i + j], w * c[2 * i + j]);
        }
        low[i] = pack_bf16(a[0], a[1]);
        high[i] = pack_bf16(b[0], b[1]);
    }
}

BT_DEVICE void write_piece(uint16_t *to, row_piece x, int half, bool pairs)
{
    *(uint4 *)to = x.low;
    if (pairs)
        *(uint4 *)(to + half) = x.high;
}

/* Eight columns of a row of a tile in shared memory, see hopper.h. */
BT_DEVICE uint4 *tile_chunk(uint16_t *tile, int row, int column)
{
    return (uint4 *)(tile + column / PANEL * TILE * PANEL + row * PANEL +
                     ((column % PANEL / 8) ^ (row % 8)) * 8);
}

/* The key (which 0) or the value (1) of the new token, to its tile in shared
 * memory and, by one unit of the key head, to its page. */
template <int D>
BT_DEVICE void store_new(const short_params *p, decode_shared<D> *s,
                         const short_shared<D> *e, int which, int column,
                         row_piece x, int half, bool pairs)
{
    int unit = s->work[0].job.unit, head = unit / p->d.head_splits;
    int tile = which ? e->v_tile : e->k_tile, row = (int)e->place.slot;
    if (tile >= 0) {
        *tile_chunk(s->tile[tile], row, column) = x.low;
        if (pairs)
            *tile_chunk(s->tile[tile], row, column + half) = x.high;
    }
    if (unit % p->d.head_splits)
        return;
    uint16_t *pages = which ? p->rows.v_pages : p->rows.k_pages;
    write_piece(pages + e->place.page * p->rows.page + head * p->rows.head +
                    row * p->rows.token + column,
                x, half, pairs);
}

/* What one thread takes of the queries of the job, the new key and the new
 * value, which are rows one after the other. */
typedef struct row_task {
    const uint16_t *from; /* NULL: nothing */
    int row, which;       /* which < 0: a query, 0: the key, 1: the value */
    int column;
} row_task;

template <int D>
BT_DEVICE row_task task_at(const short_params *p, const decode_shared<D> *s,
                           int i)
{
    const decode_params *d = &p->d;
    const decode_work *work = &s->work[0];
    // Pieces of a row.
    int width = p->rows.positions ? d->head_dim / 16 : d->head_dim / 8;
    int queries = work->item.rows * work->heads, row = i / width;
    row_task task = { NULL, row, row - queries, (i - row * width) * 8 };
    if (task.which >= (p->rows.k ? 2 : 0))
        return task;
    size_t token = work->item.row;
    size_t kv = work->job.unit / d->head_splits * d->head_dim;
    if (task.which < 0) {
        int query = query_of(work, row);
        task.from = d->q + (token + query) * d->q_token +
                    (work->head + row - query * work->heads) * d->q_head;
    } else {
        task.from = task.which ? p->rows.v + token * p->rows.v_token + kv
                               : p->rows.k + token * p->rows.k_token + kv;
    }
    task.from += task.column;
    return task;
}

template <int D>
BT_DEVICE void run_task(const short_params *p, decode_shared<D> *s,
                        const short_shared<D> *e, row_task task)
{
    bool pairs = p->rows.positions != NULL;
    int half = p->d.head_dim / 2;
    if (!task.from)
        return;
    row_piece x = read_piece(task.from, half, pairs);
    if (pairs && task.which != 1)
        rotate_piece(&x, e->cosine + task.column, e->sine + task.column);
    if (task.which < 0)
        write_piece(s->q[0][task.row] + task.column, x, half, pairs);
    else
        store_new<D>(p, s, e, task.which, task.column, x, half, pairs);
}

/* ---- the kernel --------------------------------------------------------- */

template <int D, int BIAS>
__global__ void __launch_bounds__(COMPUTE_THREADS, D == 64 && !BIAS ? 4 : 2)
    attention_decode_short(const __grid_constant__ short_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    decode_shared<D> *s = (decode_shared<D> *)memory;
    short_shared<D> *e = (short_shared<D> *)s->q[1];
    int lane = threadIdx.x % 32;
    // Through a shuffle, so that the compiler knows it to be warp-uniform.
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    if (warp == 0) {
        prepare_job<D>(&p, s, e);
    } else {
        if (warp == 1 && p.rows.positions)
            prepare_angles<D>(&p, e);
        // Columns from head_dim on stay 0.
        for (int i = threadIdx.x - 32; i < (int)sizeof(s->q[0]) / 4;
             i += COMPUTE_THREADS - 32)
            ((uint32_t *)s->q[0])[i] = 0;
    }
    __syncthreads();
    row_task task = task_at<D>(&p, s, threadIdx.x);
    if (p.ahead)
        barrier_wait(&s->full[0], 0);
    // Not before: the weights of the products that follow would delay the keys.
    launch_dependents();
    grid_dependency_wait();
    if (!p.ahead) {
        if (warp == 0)
            load_tiles<D>(&p.d, s);
        barrier_wait(&s->full[0], 0);
    }
#pragma unroll 1
    for (int i = threadIdx.x; task.from; task = task_at<D>(&p, s, i)) {
        run_task<D>(&p, s, e, task);
        i += COMPUTE_THREADS;
    }
    __syncthreads();

    thread_state at = { warp, lane, lane / 4, lane % 4, { 0, 0 }, 0 };
    compute_job<D, 1, kernel_traits<D>::columns, BIAS, 1>(
        &p.d, s, &s->work[0], p.d.unit_rows == 1 ? e->words : NULL, s->q[0][0],
        &at, 0);
}

/* ---- launching ----------------------------------------------------------- */

template <int D> static size_t shared_bytes(int tiles)
{
    return offsetof(decode_shared<D>, tile) + (size_t)tiles * TILE * D * 2;
}

template <int D, int BIAS>
static cudaError_t launch(const short_params *p, int tiles, cudaStream_t stream)
{
    const int stages = kernel_traits<D>::stages;
    bt_cuda_kernel how = {};
    how.function = (const void *)attention_decode_short<D, BIAS>;
    how.grid[0] = (unsigned)p->d.count;
    how.grid[1] = how.grid[2] = 1;
    how.threads = COMPUTE_THREADS;
    // Outside of a step the kernels before this one may write pages.
    how.start = p->ahead ? BT_START_EARLY_IN_STEP : BT_START_EARLY;
    // Few blocks have a multiprocessor for themselves: where the product that
    // follows fetches its first weights, their rows would arrive later.
    bool alone = 4 * p->d.count <= p->multiprocessors;
    how.shared_limit = max(shared_bytes<D>(stages), (size_t)ALONE_BYTES);
    how.shared = alone ? (size_t)ALONE_BYTES : shared_bytes<D>(2 * tiles);
    return launch_values(how, stream, *p);
}

template <int D>
static cudaError_t launch_for(short_params *p, bool biased, int tiles,
                              cudaStream_t stream)
{
    static_assert(sizeof(short_shared<D>) <= ROWS * (D + 8) * 2,
                  "queries of a job");
    return biased ? launch<D, 1>(p, tiles, stream)
                  : launch<D, 0>(p, tiles, stream);
}

/* Whether rows and tiles fit, and at most WAVES blocks come one after the
 * other: of more, one should compute while the next one loads, as
 * attention_decode.cu does it. */
template <int D> static bool fits(const bt_cuda_decode *decode)
{
    enum { WAVES = 2 };
    if (2 * decode->most_tiles > kernel_traits<D>::stages)
        return false;
    size_t bytes = shared_bytes<D>(2 * decode->most_tiles) + 1024;
    size_t each = min((size_t)(D == 64 ? 4 : 2), 228 * 1024 / bytes);
    size_t group = decode->heads / decode->kv_heads;
    if (decode->unit_rows * min(group, (size_t)BT_DECODE_ROWS) > ROWS)
        return false;
    size_t jobs = (size_t)decode->item_count * decode->kv_heads *
                  bt_decode_head_splits(group);
    return jobs <= WAVES * each * (size_t)decode->device.multiprocessors;
}

extern "C" bool bt_cuda_decode_is_short(const bt_cuda_decode *decode)
{
    if (decode->item_count == 0 ||
        decode->item_count != (int)decode->unit_count ||
        decode->prefill.tile_count + decode->prefill.empty_count > 0)
        return false;
    switch (bt_cuda_width(decode->head_dim)) {
    case 64:
        return fits<64>(decode);
    case 128:
        return fits<128>(decode);
    default:
        return false;
    }
}

/* Pieces of eight columns, and where there is a rotation pairs of them. */
extern "C" bool bt_cuda_decode_takes_rows(const bt_cuda_decode *decode,
                                          const bt_cuda_decode_rows *rows)
{
    size_t strides =
        rows->k_token | rows->v_token | rows->page | rows->head | rows->token;
    uintptr_t starts = (uintptr_t)rows->k | (uintptr_t)rows->v |
                       (uintptr_t)rows->k_pages | (uintptr_t)rows->v_pages;
    return bt_cuda_decode_is_short(decode) && decode->unit_rows == 1 &&
           decode->page_keys == TILE && strides % 8 == 0 && starts % 16 == 0 &&
           decode->head_dim % (rows->positions ? 16 : 8) == 0;
}

extern "C" bauta_status bt_attention_decode_short_bf16_cuda(
    const bt_cuda_decode *decode, const bauta_attention_shape *shape,
    const uint16_t *q, const bt_cuda_decode_rows *rows, bool ahead,
    const bt_cuda_pages *pages, uint16_t *out, float *lse, void *stream,
    bauta_error *err)
{
    short_params p = {};
    bauta_status status =
        call_params(&p.d, decode, shape, q, pages, out, lse, err);
    if (status)
        return status;
    job_params(&p.d, decode, 1);
    if (rows)
        p.rows = *rows;
    p.ahead = ahead;
    p.multiprocessors = decode->device.multiprocessors;
    bool biased = bt_cuda_biased(shape);
    cudaStream_t queue = (cudaStream_t)stream;
    cudaError_t result = cudaErrorInvalidValue;
    switch (bt_cuda_width(decode->head_dim)) {
    case 64:
        result = launch_for<64>(&p, biased, decode->most_tiles, queue);
        break;
    case 128:
        result = launch_for<128>(&p, biased, decode->most_tiles, queue);
        break;
    }
    if (result)
        return bt_fail(err, BAUTA_ERR_DEVICE,
                       "cannot launch the decoding kernel: %s",
                       cudaGetErrorString(result));
    return BAUTA_OK;
}
