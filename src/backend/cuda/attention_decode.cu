/* SPDX-License-Identifier: Apache-2.0 */
/* attention_decode.cu - a few queries over a cache in pages, on Hopper, in
 * bfloat16.
 *
 * Decoding reads every visible key and value once and does little with them, so
 * all that counts is to keep the memory busy. A block of threads stays on its
 * multiprocessor, with nearly all of its shared memory as one ring of tiles,
 * and takes items (decode_list.h) until there are none:
 *
 *   one warp loads       tile by tile, items without a gap between them, as far
 *                        ahead as the ring reaches: of each 512 keys (a block)
 *                        first the keys, then the values;
 *   eight warps compute  the scores of 64 keys each, for all rows of the unit,
 *                        by products of 16 rows; then, when they all know the
 *                        maxima, their weights; then, when all weights are in
 *                        shared memory, an eighth of the columns of the output
 *                        each. What a chunk came to is the output, or goes to
 *                        the GPU's memory;
 *   four warps gather    they tell that it is there, and where it was the last
 *                        item of a unit they merge the unit's chunks.
 *
 * Whatever is asked for waits behind the tiles that are under way, and these
 * are few: more of them would not come faster, only later. What is read beside
 * them is asked for early: the list comes into the L2 when the grid starts, an
 * item while the one before it is loaded, its queries while its tiles are; and
 * those who compute wait for no answer at all.
 *
 * Bits. They are those of the forward pass over the same keys: the same chunks,
 * the same tiles and the same order in each sum (softmax.h), on the tensor
 * cores by other instructions that round in the same way.
 *
 * Nothing hidden is touched: scores of hidden keys become -infinity whatever
 * they were, and where a value of a tile is not finite the tile is multiplied
 * once for each query, without what that one does not see. */
extern "C" {
#include "base/error.h"
}
#include "backend/cuda/decode_combine.h"
#include "backend/cuda/launch.h"

#include <cuda_runtime.h>

/* ---- computing --------------------------------------------------------- */

/* A block of keys of which the loader's next tile is the first. */
BT_DEVICE key_block block_at(const decode_work *work, int lane, int block,
                             uint32_t number)
{
    key_block b = { work->tiles + block * WARPS, 0, number, number };
    // A reduction, not a vote: its result is in a uniform register, so the
    // branches on it are known to be uniform.
    bool seen = lane < WARPS && b.tiles[lane % WARPS].block >= 0;
    b.seen = __reduce_or_sync(~0u, (uint32_t)seen << lane % WARPS);
    b.values += __popc(b.seen); // K precedes V
    return b;
}

/* Weights from the scores of a block, and their sums. Returns whether a base
 * moved. */
template <int D, int HALVES, int BIAS>
BT_DEVICE bool weigh_block(const decode_params *p, decode_shared<D> *s,
                           const thread_state *at, const float (*x)[4],
                           float *base, float *sum)
{
    const int softmax_tiles = WARPS / kernel_traits<D>::warps_per_tile;
    publish_maxima<D, HALVES, BIAS>(p, s, at, x);
    named_sync(BARRIER_COMPUTE, COMPUTE_THREADS);
    bool moves = exponentiate_block<D, HALVES, BIAS>(p, s, at, x, base);
    moves = named_any(BARRIER_COMPUTE, COMPUTE_THREADS, moves);
    if (moves)
        rebase_block<D, HALVES, BIAS>(p, s, at, x, base, sum);
    else
#pragma unroll
        for (int r = 0; r < HALVES; r++)
#pragma unroll
            for (int u = 0; u < softmax_tiles; u++)
                sum[r] =
                    __fadd_rn(sum[r], total_of(s, u, at->g + r * 8, at->t));
    return moves;
}

/* A job, block by block of keys. Returns how many tiles it took. */
template <int D, int HALVES, int COLUMNS, int BIAS>
BT_DEVICE uint32_t compute_job(const decode_params *p, decode_shared<D> *s,
                               const decode_work *work, const uint16_t *q,
                               thread_state *at, uint32_t number)
{
    uint32_t begin = number, taint = 0;
    uint32_t todo = visible_blocks(work, at->lane);
    query_fragments<D> queries;
    float x[TILE / 8][4], o[COLUMNS][4];
    float base[2] = { -INFINITY, -INFINITY }, sum[2] = { 0.0f, 0.0f };
    job_bias bias;

    load_queries(&queries, q, work->item.rows * work->heads);
    at->column = (work->job.part * WARPS + at->warp) * COLUMNS;
#pragma unroll
    for (int r = 0; r < HALVES; r++)
        at->query[r] = min((at->g + r * 8) / work->heads, work->item.rows - 1);
    load_job_bias<HALVES, BIAS>(&bias, at, p, work);
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
        o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0.0f;
#pragma unroll 1
    for (; todo; todo &= todo - 1) {
        key_block b = block_at(work, at->lane, __ffs((int)todo) - 1, number);
        score_block<D, HALVES, BIAS>(p, s, &queries, at, &bias, b, x);
        bool moved = weigh_block<D, HALVES, BIAS>(p, s, at, x, base, sum);
        value_block<D, HALVES, COLUMNS>(p, s, work, at, b, moved, o, &taint);
        number += 2 * __popc(b.seen);
    }
    finish<D, HALVES, COLUMNS, BIAS>(p, work, at, o, taint, base, sum);
    return number - begin;
}

template <int D, int HALVES, int COLUMNS, int BIAS>
BT_DEVICE void compute_jobs(const decode_params *p, decode_shared<D> *s)
{
    int lane = threadIdx.x % 32;
    // Through a shuffle, so that the compiler knows it to be warp-uniform.
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);
    thread_state at = { warp, lane, lane / 4, lane % 4, { 0, 0 }, 0 };
    uint32_t tiles = 0;

    grid_dependency_wait();
    for (uint32_t number = 0;; number++) {
        decode_pipeline_state here =
            pipeline_state_at(number, kernel_traits<D>::items);
        const decode_work *work = &s->work[here.index];
        const uint16_t *q = s->q[here.index][0];
        barrier_wait(&s->work_full[here.index], here.phase);
        bool end = work->item.rows < 0;
        if (!end)
            tiles += compute_job<D, HALVES, COLUMNS, BIAS>(p, s, work, q, &at,
                                                           tiles);
        consumer_release(&s->work_done[here.index]);
        if (end)
            break;
    }
}

template <int D, int HALVES, int COLUMNS, int BIAS>
__global__ void __launch_bounds__(THREADS, 1)
    attention_decode(const __grid_constant__ decode_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    decode_shared<D> *s = (decode_shared<D> *)memory;

    if (threadIdx.x == 0) {
        for (int i = 0; i < kernel_traits<D>::items; i++) {
            barrier_init(&s->work_full[i], 1);
            barrier_init(&s->work_done[i], WARPS);
            barrier_init(&s->work_empty[i], COMBINE_THREADS / 32);
        }
        for (int i = 0; i < kernel_traits<D>::stages; i++) {
            barrier_init(&s->full[i], 1);
            barrier_init(&s->empty[i], WARPS);
        }
        barrier_init_done();
        tensor_map_prefetch(&p.k);
        tensor_map_prefetch(&p.v);
    }
    // Columns from head_dim on stay 0.
    for (int i = threadIdx.x; i < (int)sizeof(s->q) / 4; i += THREADS)
        ((uint32_t *)s->q)[i] = 0;
    fence_proxy_async();
    __syncthreads();
    launch_dependents();
    if (threadIdx.x < COMPUTE_THREADS) {
        setmaxnreg_inc<168>();
        compute_jobs<D, HALVES, COLUMNS, BIAS>(&p, s);
    } else if (threadIdx.x < COMPUTE_THREADS + COMBINE_THREADS) {
        setmaxnreg_dec<104>();
        combine_jobs<D, BIAS>(&p, s);
    } else {
        setmaxnreg_dec<72>();
        if (threadIdx.x < COMPUTE_THREADS + COMBINE_THREADS + 32)
            load_jobs<D>(&p, s);
    }
}

/* ---- launching --------------------------------------------------------- */

static size_t or_dense(size_t stride, size_t dense)
{
    return stride ? stride : dense;
}

/* Pages as a tensor map describes them: boxes of 64 keys of one head and page
 * and one panel of columns. */
static bauta_status encode(CUtensorMap *map, const bt_cuda_decode *decode,
                           const bt_cuda_pages *pages, const char *name,
                           const void *tensor, bauta_error *err)
{
    size_t d = decode->head_dim, token = or_dense(pages->token, d);
    size_t head = or_dense(pages->head, pages->page_keys * d);
    size_t page =
        or_dense(pages->page, decode->kv_heads * pages->page_keys * d);
    cuuint64_t sizes[4] = { d, pages->page_keys, decode->kv_heads,
                            pages->pages };
    cuuint64_t strides[3] = { token * 2, head * 2, page * 2 };
    cuuint32_t box[4] = { PANEL, TILE, 1, 1 };
    cuuint32_t steps[4] = { 1, 1, 1, 1 };

    if ((uintptr_t)tensor % 16 || token % 8 || head % 8 || page % 8)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s must be aligned to 16 bytes and its strides, %zu, "
                       "%zu and %zu, be multiples of 8",
                       name, page, head, token);
    CUresult result = decode->device.tensor_map_encode(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)tensor, sizes,
        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s of %zu pages with strides %zu, %zu and %zu is "
                       "nothing for the GPU's copy engine (%d)",
                       name, pages->pages, page, head, token, (int)result);
    return BAUTA_OK;
}

template <int D, int HALVES, int COLUMNS, int BIAS>
static cudaError_t launch(decode_params *params, int blocks, bool idle,
                          cudaStream_t stream)
{
    const int bytes = sizeof(decode_shared<D>), tile = TILE * D * 2;
    static_assert(bytes <= 227 * 1024, "shared memory of a block");
    // Where some multiprocessors have nothing to do the others may ask for all
    // that they have room for.
    params->in_flight =
        idle ? kernel_traits<D>::stages : max(IN_FLIGHT_BYTES / tile, 4);
    // The prologue may overlap the previous kernel.
    return launch_kernel(attention_decode<D, HALVES, COLUMNS, BIAS>, (unsigned)blocks,
                         THREADS, bytes, BT_START_EARLY, stream, *params);
}

template <int D, int COLUMNS, int BIAS>
static cudaError_t launch_rows(decode_params *p, int blocks, bool idle,
                               cudaStream_t stream)
{
    return p->unit_rows * p->heads_per_split <= 8
               ? launch<D, 1, COLUMNS, BIAS>(p, blocks, idle, stream)
               : launch<D, 2, COLUMNS, BIAS>(p, blocks, idle, stream);
}

/* The output is made in one part, or in parts of 64 columns. */
template <int D, int BIAS>
static cudaError_t launch_parts(decode_params *p, int blocks, bool idle,
                                cudaStream_t stream)
{
    return p->parts == 1 ? launch_rows<D, D / 64, BIAS>(p, blocks, idle, stream)
                         : launch_rows<D, 1, BIAS>(p, blocks, idle, stream);
}

template <int D>
static cudaError_t launch_for(decode_params *p, bool biased, int blocks,
                              bool idle, cudaStream_t stream)
{
    return biased ? launch_parts<D, 1>(p, blocks, idle, stream)
                  : launch_parts<D, 0>(p, blocks, idle, stream);
}

static bauta_status check_call(const bt_cuda_decode *decode,
                               const bauta_attention_shape *shape,
                               const bt_cuda_pages *pages, size_t kv_heads,
                               float scale, bauta_error *err)
{
    if (shape->heads != decode->heads || kv_heads != decode->kv_heads ||
        shape->head_dim != decode->head_dim ||
        (shape->value_dim && shape->value_dim != decode->head_dim))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the step is for %zu heads, %zu kv_heads and head_dim "
                       "%zu; the shape has %zu, %zu and %zu",
                       decode->heads, decode->kv_heads, decode->head_dim,
                       shape->heads, kv_heads, shape->head_dim);
    if (pages->page_keys != decode->page_keys || pages->pages < decode->pages)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the step reads page %zu of pages of %zu keys; there "
                       "are %zu of %zu",
                       decode->pages, decode->page_keys, pages->pages,
                       pages->page_keys);
    if (!(scale > 0.0f) || isinf(scale))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a scale of %g: the GPU kernels need a positive one",
                       (double)scale);
    return BAUTA_OK;
}

static bauta_status check_strides(const char *name, const void *tensor,
                                  size_t token, size_t head, bauta_error *err)
{
    if ((uintptr_t)tensor % 16 || token % 8 || head % 8)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s must be aligned to 16 bytes and its strides, %zu "
                       "and %zu, be multiples of 8",
                       name, token, head);
    return BAUTA_OK;
}

extern "C" bauta_status
bt_attention_decode_bf16_cuda(bt_cuda_decode *decode,
                              const bauta_attention_shape *shape, const uint16_t *q,
                              const bt_cuda_pages *pages, uint16_t *out,
                              float *lse, void *stream, bauta_error *err)
{
    size_t d = decode->head_dim, kv_heads = decode->kv_heads;
    float scale = shape->scale != 0.0f ? shape->scale : 1.0f / sqrtf((float)d);
    decode_params p = {};
    bauta_status status = check_call(
        decode, shape, pages, shape->kv_heads ? shape->kv_heads : shape->heads,
        scale, err);

    p.q_head = or_dense(shape->q_head, d);
    p.q_token = or_dense(shape->q_token, decode->heads * d);
    p.out_head = or_dense(shape->out_head, d);
    p.out_token = or_dense(shape->out_token, decode->heads * d);
    if (!status)
        status = check_strides("q", q, p.q_token, p.q_head, err);
    if (!status)
        status = check_strides("out", out, p.out_token, p.out_head, err);
    bool many = decode->prefill.tile_count + decode->prefill.empty_count > 0;
    if (status || (decode->item_count == 0 && !many))
        return status;
    // Rows that see nothing need no page, and the engine no empty tensor.
    if (decode->pages) {
        status = encode(&p.k, decode, pages, "k", pages->k, err);
        if (!status)
            status = encode(&p.v, decode, pages, "v", pages->v, err);
        if (status)
            return status;
    }
    for (size_t keys = TILE; keys < decode->page_keys; keys *= 2)
        p.page_shift++;
    bool biased = bt_cuda_biased(shape);
    if (biased) {
        status = bt_cuda_bias_init(&p.bias, shape, scale, err);
        if (status)
            return status;
        if (!p.bias.positions)
            p.bias.positions = decode->positions;
        if (p.bias.slopes || p.bias.table)
            p.bias.anchors = (const int32_t *)p.bias.positions;
    }
    if (many) {
        bt_cuda_paged paged = {
            p.k,         p.v, decode->table, decode->start, p.bias.positions,
            p.page_shift
        };
        status = bt_attention_paged_bf16_cuda(&decode->prefill, shape, q,
                                              &paged, out, lse, stream, err);
    }
    if (status || decode->item_count == 0)
        return status;
    p.items = decode->items;
    p.tiles = decode->tiles;
    p.bits = decode->bits;
    p.tile_counter = decode->tile_counter;
    p.arrivals = decode->arrivals;
    p.partial = decode->partial;
    p.partial_base = (float2 *)decode->partial_base;
    p.q = q;
    p.out = out;
    p.lse = lse;
    p.lines = decode->list_lines;
    p.heads = (int)decode->heads;
    p.kv_heads = (int)kv_heads;
    p.group = (int)(decode->heads / kv_heads);
    p.head_splits = (int)bt_decode_head_splits((size_t)p.group);
    p.heads_per_split = (p.group + p.head_splits - 1) / p.head_splits;
    p.parts = decode->parts;
    p.columns = p.kv_heads * p.head_splits * p.parts;
    p.count = decode->item_count * p.columns;
    p.unit_rows = (int)decode->unit_rows;
    p.head_dim = (int)d;
    p.scale = scale * 1.44269504088896341f;

    int blocks = min(p.count, decode->device.multiprocessors);
    bool idle = blocks < decode->device.multiprocessors;
    cudaStream_t queue = (cudaStream_t)stream;
    cudaError_t result = cudaErrorInvalidValue;
    switch (bt_cuda_width(d)) {
    case 64:
        result = launch_for<64>(&p, biased, blocks, idle, queue);
        break;
    case 128:
        result = launch_for<128>(&p, biased, blocks, idle, queue);
        break;
    case 192:
        result = launch_for<192>(&p, biased, blocks, idle, queue);
        break;
    case 256:
        result = launch_for<256>(&p, biased, blocks, idle, queue);
        break;
    }
    if (result)
        return bt_fail(err, BAUTA_ERR_DEVICE,
                       "cannot launch the decoding kernel: %s",
                       cudaGetErrorString(result));
    return BAUTA_OK;
}
