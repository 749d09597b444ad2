/* SPDX-License-Identifier: Apache-2.0 */
/* attention_decode.cu - a few queries over a cache in pages, on Hopper, in
 * bfloat16.
 *
 * Decoding reads every visible key and value once and does little with them, so
 * all that counts is to keep the memory busy. A block of threads stays on its
 * multiprocessor, with nearly all of its shared memory as one ring of tiles,
 * and takes items (decode_list.h) until there are none:
 *
 *   one warp loads      tile by tile, items without a gap between them, as far
 *                       ahead as the ring reaches;
 *   four warps compute  each one tile of 64 keys of a quad, for all rows of the
 *                       unit, without a word to the others: scores, weights and
 *                       sums of values by products of 16 rows. Then all four
 *                       sum the quad, each thread four columns of some rows,
 *                       and climb the tree of the stretch. What an item came to
 *                       is the output, or goes to the GPU's memory;
 *   four warps gather   they tell that it is there, and where it was the last
 *                       item of a unit they add up the unit's.
 *
 * Whatever is asked for waits behind the tiles that are under way, and these
 * are few: more of them would not come faster, only later. What is read beside
 * them is asked for early: the list comes into the L2 when the grid starts, an
 * item while the one before it is loaded, its queries while its tiles are; and
 * those who compute wait for no answer at all.
 *
 * Bits. Every sum has its place in a tree that the row's keys alone define; see
 * decode_list.h. In the tree, what sees nothing is an exact no-op: its base is
 * -infinity, so its sums, which are 0, are added times 0.
 *
 * Nothing hidden is touched: scores of hidden keys become -infinity whatever
 * they were, and hidden values become 0 in the registers in which they go to
 * the tensor cores. Where the queries of a unit see different keys of a tile
 * its values are multiplied once for each query. */
extern "C" {
#include "base/error.h"
}
#include "kernels/cuda/decode_gather.h"
#include "kernels/cuda/decode_tile.h"

#include <cuda_runtime.h>

/* ---- computing --------------------------------------------------------- */

/* A quad: each warp its tile, then all of them its sum. Returns how many tiles
 * it took. */
template <int D, int ROWS, int STAGES, int ITERS>
BT_DEVICE int
compute_quad(const decode_params *p, decode_shared<D, ROWS, STAGES> *s,
             ring place, uint32_t *parity, const bt_decode_item *item, int quad,
             const uint16_t *q, const int *query, part *x)
{
    int warp = threadIdx.x / 32;
    const bt_decode_tile *tiles = item->tiles + quad * BT_QUAD;
    uint32_t seen = 0;
#pragma unroll
    for (int j = 0; j < BT_QUAD; j++)
        seen |= tiles[j].block >= 0 ? 1u << j : 0;
#pragma unroll
    for (int i = 0; i < ITERS; i++)
        x[i] = nothing();
    if (seen == 0)
        return 0;

    if (seen >> warp & 1)
        compute_tile<D, ROWS>(
            p, s, ring_ahead(place, __popc(seen & ((1u << warp) - 1)), STAGES),
            *parity, item, tiles[warp].bits, q, query);
    named_sync(BARRIER_QUAD, READERS);
#pragma unroll
    for (int i = 0; i < ITERS; i++)
        if (row_of<D>(i) < item->rows * p->group)
            x[i] = sum_quad(s, seen, row_of<D>(i));
    done_with(&s->result_empty);
    *parity ^= 1;
    return __popc(seen);
}

template <int D, int ROWS, int STAGES>
BT_DEVICE void compute_items(const decode_params *p,
                             decode_shared<D, ROWS, STAGES> *s)
{
    const int iters = ROWS * (D / 4) > READERS ? ROWS * (D / 4) / READERS : 1;
    int g = threadIdx.x % 32 / 4;
    int query[2] = { g / p->group, (g + 8) / p->group };
    ring at = {}, place = {};
    uint32_t parity = 0;

    grid_wait();
    for (;; at = ring_ahead(at, 1, ITEMS)) {
        const decode_work *work = &s->work[at.at];
        part x[iters], left[BT_LEVELS][iters];
        barrier_wait(&s->work_full[at.at], at.parity);
        if (work->item.rows < 0)
            break;
#pragma unroll 1
        for (int i = 0; i < 1 << work->item.level; i++) {
            int count = compute_quad<D, ROWS, STAGES, iters>(
                p, s, place, &parity, &work->item, i, s->q[at.at][0], query, x);
            place = ring_ahead(place, count, STAGES);
            climb<iters>(x, left, i, 0, work->item.level);
        }
        finish<D, iters>(p, work, x);
        done_with(&s->work_done[at.at]);
    }
    done_with(&s->work_done[at.at]);
}

template <int D, int ROWS, int STAGES>
__global__ void __launch_bounds__(THREADS, 1)
    attention_decode(const __grid_constant__ decode_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    decode_shared<D, ROWS, STAGES> *s =
        (decode_shared<D, ROWS, STAGES> *)memory;

    if (threadIdx.x == 0) {
        for (int i = 0; i < ITEMS; i++) {
            barrier_init(&s->work_full[i], 1);
            barrier_init(&s->work_done[i], WARPS);
            barrier_init(&s->work_empty[i], WARPS);
        }
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&s->k_full[i], 1);
            barrier_init(&s->k_empty[i], 1);
            barrier_init(&s->v_full[i], 1);
            barrier_init(&s->v_empty[i], 1);
        }
        barrier_init(&s->result_empty, WARPS);
        barrier_init_done();
        tensor_map_prefetch(&p.k);
        tensor_map_prefetch(&p.v);
    }
    __syncthreads();
    grid_release();
    if (threadIdx.x < READERS) {
        registers_raise<240>();
        compute_items<D, ROWS, STAGES>(&p, s);
    } else if (threadIdx.x < 2 * READERS) {
        registers_lower<120>();
        gather_items<D, ROWS, STAGES>(&p, s);
    } else {
        registers_lower<56>();
        if (threadIdx.x < 2 * READERS + 32)
            load_items<D, ROWS, STAGES>(&p, s);
    }
}

/* ---- launching --------------------------------------------------------- */

static size_t or_dense(size_t stride, size_t dense)
{
    return stride ? stride : dense;
}

/* Pages as the copy engine sees them: boxes of 64 keys of one head and page and
 * one panel of columns. */
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

template <int D, int ROWS, int STAGES>
static cudaError_t launch(const decode_params *params, int blocks,
                          cudaStream_t stream)
{
    const int bytes = sizeof(decode_shared<D, ROWS, STAGES>);
    cudaError_t status = cudaFuncSetAttribute(
        attention_decode<D, ROWS, STAGES>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status)
        return status;
    // It is brought up while what is before it still runs.
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, attention_decode<D, ROWS, STAGES>,
                              *params);
}

static cudaError_t launch_for(const decode_params *p, size_t head_dim,
                              int blocks, cudaStream_t stream)
{
    int rows = p->unit_rows * p->group;
    if (head_dim == 128)
        return rows <= 4   ? launch<128, 4, 6>(p, blocks, stream)
               : rows <= 8 ? launch<128, 8, 6>(p, blocks, stream)
                           : launch<128, 16, 5>(p, blocks, stream);
    return rows <= 8 ? launch<64, 8, 13>(p, blocks, stream)
                     : launch<64, 16, 12>(p, blocks, stream);
}

static bauta_status check_call(const bt_cuda_decode *decode,
                               const bauta_attention *shape,
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
                              const bauta_attention *shape, const uint16_t *q,
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
    if (status || decode->item_count == 0)
        return status;
    // Rows that see nothing need no page, and the engine no empty tensor.
    if (decode->pages) {
        status = encode(&p.k, decode, pages, "k", pages->k, err);
        if (!status)
            status = encode(&p.v, decode, pages, "v", pages->v, err);
        if (status)
            return status;
    }
    p.items = decode->items;
    p.entries = decode->entries;
    p.bits = decode->bits;
    p.ticket = decode->ticket;
    p.arrivals = decode->arrivals;
    p.partial = decode->partial;
    p.partial_base = (float2 *)decode->partial_base;
    p.q = q;
    p.out = out;
    p.lse = lse;
    p.count = decode->item_count;
    p.lines = decode->list_lines;
    p.heads = (int)decode->heads;
    p.kv_heads = (int)kv_heads;
    p.group = (int)(decode->heads / kv_heads);
    p.unit_rows = (int)decode->unit_rows;
    for (size_t keys = TILE; keys < decode->page_keys; keys *= 2)
        p.page_shift++;
    p.scale = scale * 1.44269504088896341f;

    int blocks = min(p.count, decode->device.multiprocessors);
    cudaError_t result = launch_for(&p, d, blocks, (cudaStream_t)stream);
    if (result)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "cannot launch the decoding kernel: %s",
                       cudaGetErrorString(result));
    return BAUTA_OK;
}
