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
#include "backend/cuda/decode_compute.h"
#include "backend/cuda/decode_launch.h"

/* ---- computing --------------------------------------------------------- */

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
            tiles += compute_job<D, HALVES, COLUMNS, BIAS, 0>(p, s, work, NULL,
                                                              q, &at, tiles);
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
            barrier_init(&s->work_full[i], WARP_ARRIVALS);
            barrier_init(&s->work_done[i], WARPS * WARP_ARRIVALS);
            barrier_init(&s->work_empty[i],
                         COMBINE_THREADS / 32 * WARP_ARRIVALS);
        }
        for (int i = 0; i < kernel_traits<D>::stages; i++) {
            barrier_init(&s->full[i], 1);
            barrier_init(&s->empty[i], WARPS * WARP_ARRIVALS);
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
    return launch_kernel(attention_decode<D, HALVES, COLUMNS, BIAS>,
                         (unsigned)blocks, THREADS, bytes, BT_START_EARLY,
                         stream, *params);
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

extern "C" bauta_status bt_attention_decode_bf16_cuda(
    bt_cuda_decode *decode, const bauta_attention_shape *shape,
    const uint16_t *q, const bt_cuda_pages *pages, uint16_t *out, float *lse,
    void *stream, bauta_error *err)
{
    size_t d = decode->head_dim;
    bool biased = bt_cuda_biased(shape);
    if (bt_cuda_decode_is_short(decode))
        return bt_attention_decode_short_bf16_cuda(
            decode, shape, q, NULL, false, pages, out, lse, stream, err);
    bool many = decode->prefill.tile_count + decode->prefill.empty_count > 0;
    decode_params p;
    bauta_status status =
        call_params(&p, decode, shape, q, pages, out, lse, err);
    if (status || (decode->item_count == 0 && !many))
        return status;
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
    job_params(&p, decode, decode->parts);
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
