/* SPDX-License-Identifier: Apache-2.0 */
/* attention_forward.cu - masked attention on Hopper, forward, bfloat16.
 *
 * An item of work is one tile of queries and one head. A block of threads
 * stays on its multiprocessor and takes items until there are none:
 *
 *   one warpgroup loads    one of its threads has the copy engine fetch the
 *                          tile's queries, then K and V by pairs of blocks
 *                          (128 keys) through rings of shared memory, and with
 *                          a partial pair its bits;
 *   two or three compute   each owns 64 rows of the tile.
 *
 * In a computing warpgroup the scores of the next pair are issued before the
 * values of this pair are, so the tensor cores have work while it
 * exponentiates; the next pair may be the first one of the next item, so short
 * items cost no bubble. And the groups take turns at issuing (ping-pong): one
 * exponentiates while another one multiplies. Scores and weights never leave
 * registers: the layout in which the tensor cores deliver S is, two by two, the
 * one in which they take P.
 *
 *       thread, in a group of 128: warp w, lane 4 * g + t (g < 8, t < 4)
 *       owns rows 16 * w + g and 16 * w + g + 8
 *       and of each 8 keys those at 2 * t and 2 * t + 1
 *
 * Bits. A row's arithmetic is a function of the row, the keys it sees and its
 * origin. A pair that is hidden from a row but visited for its tile's sake is
 * an exact no-op for the row: its base stays, what was summed is not rescaled
 * or multiplied by 1, and weights 2^-inf = 0 are added.
 *
 * Nothing hidden is touched, but the tensor cores would: 0 * NaN is NaN. So
 * where a value in a partial pair is NaN or infinite, every row of the tile
 * comes out NaN in that column. That is never missed and costs next to nothing:
 * the epilogue notes tiles in which something is not finite, and a second
 * kernel (FIXUP), launched after the first one, does those items again:
 *
 *   pass 0   values that are not finite are replaced by 0: the sums of the
 *            finite ones, by the same instructions and so with the same bits;
 *   pass 1   weights are 1 where visible, values are 1 where they are +inf or
 *            NaN, else 0: where the sum is not 0 the output gets + inf;
 *   pass 2   the same with -inf and NaN: the output gets - inf.
 *
 * inf - inf = NaN does the rest. An output is then NaN or infinite if a value
 * that its row sees is, and no other is. */
#include "backend/cuda/bias_kernels.h"
#include "backend/cuda/forward_end.h"
#include "backend/cuda/forward_step.h"
#include "backend/cuda/launch.h"

#include <cuda_runtime.h>

/* ---- computing --------------------------------------------------------- */

template <int D, int FIXUP, int BIAS>
BT_DEVICE void compute_items(const forward_params *p, forward_shared<D> *s)
{
    const int groups = kernel_traits<D>::groups,
              stages = kernel_traits<D>::stages;
    // Through a shuffle, so that the compiler sees that a warp agrees on it and
    // keeps what follows from it (the descriptors) in uniform registers.
    int group = __shfl_sync(~0u, (int)threadIdx.x / GROUP - 1, 0);
    int row =
        group * GROUP_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    int order_barrier = BARRIER_ORDER + group;
    int next_order_barrier = BARRIER_ORDER + (group + 1) % groups;
    pipeline_state q = {}, k = {}, v = {};
    float x[PAIR / 2];    // scores of a pair, then its weights
    uint32_t w[PAIR / 4]; // weights as bf16, until the values are added
    float o[D / 2];
    float4 prefetched[kernel_traits<D>::prefetched + 1]; // of the chunks before
    float base[2] = { -INFINITY, -INFINITY }, sum[2] = { 0.0f, 0.0f };
    float total[2] = { 0.0f, 0.0f }, correction[2] = { 1.0f, 1.0f };
    bool accumulated = false;  // this item had a chunk before
    bool may_overflow = false; // a base of this warp may have jumped
    int pass = 0;              // FIXUP: of the item at q
    int storing = -1; // stage of the item before, while its output leaves
    item_bias bias;

    int left = next_item(s, q);
    if (left == 0)
        return;
    left -= hidden_of<D, FIXUP>(s, q.index, group);
    // Group 0 issues first.
    if (group == groups - 1)
        named_arrive(BARRIER_ORDER, 2 * GROUP);
    if (FIXUP)
        pass = s->item[q.index].pass;
    load_item_bias<D, BIAS>(&bias, p, s, q.index, row);
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        o[i] = 0.0f;

    // The first scores have no values to run beside.
    barrier_wait(&s->k_full[k.index], k.phase);
    issue_scores<D>(x, s->q[q.index] + group * GROUP_ROWS * PANEL,
                    s->k[k.index]);
    wgmma_wait<0>();
    wgmma_fence_operand<PAIR / 2>(x);
    bias_tile<D, BIAS>(&bias, p, s, k.index, row, x);
    int halves = mask_scores<D, FIXUP>(s, k.index, group, row, pass, x);
    uint32_t row_flags = 0;
    if (!FIXUP || pass == 0) {
        update_bases<PAIR, FIXUP || BIAS>(x, base, correction,
                                          scale_of<BIAS>(p));
        exponentiate<PAIR>(x, base, correction, sum, total, scale_of<BIAS>(p));
        row_flags = check_rows(base, total);
        if (row_flags & BASE_GREW)
            grow_base<PAIR>(x, base, correction, sum, total);
    }
    pipeline_advance(&k, stages);
    may_overflow = row_flags & (BIAS ? 0 : MAY_OVERFLOW);
    pack_weights<PAIR>(w, x);
    if (--left > 0)
        barrier_wait(&s->k_full[k.index], k.phase);

    int stage;
    for (;;) {
        // w holds weights, and the next scores may be those of the next item.
        bool last = left == 0;
        int stage_pass = pass;
        stage = q.index;
        int hidden = 0;
        if (last) {
            hidden = hidden_of<D, FIXUP>(s, q.index, group);
            for (int i = 0; i < hidden; i++) {
                barrier_wait(&s->k_full[k.index], k.phase);
                named_sync(order_barrier, 2 * GROUP);
                named_arrive(next_order_barrier, 2 * GROUP);
                consumer_release(&s->k_empty[k.index]);
                pipeline_advance(&k, stages);
            }
            if (storing >= 0)
                consumer_release_stored(&s->q_empty[storing]);
            storing = -1;
            pipeline_advance(&q, 2);
            left = next_item(s, q);
            if (left == 0)
                break;
            left -= hidden_of<D, FIXUP>(s, q.index, group);
            if (FIXUP)
                pass = s->item[q.index].pass;
            load_item_bias<D, BIAS>(&bias, p, s, q.index, row);
            barrier_wait(&s->k_full[k.index], k.phase);
        }
        if (!FIXUP)
            named_sync(order_barrier, 2 * GROUP);
        issue_scores<D>(x, s->q[q.index] + group * GROUP_ROWS * PANEL,
                        s->k[k.index]);
        barrier_wait(&s->v_full[v.index], v.phase);
        if (FIXUP)
            filter_values<D>(s->v[v.index], stage_pass);
        issue_values<D>(o, w, s->v[v.index], halves);
        if (!FIXUP)
            named_arrive(next_order_barrier, 2 * GROUP);
        if (storing >= 0)
            consumer_release_stored(&s->q_empty[storing]);
        storing = -1;
        wgmma_wait<1>();
        wgmma_fence_operand<PAIR / 2>(x);

        bias_tile<D, BIAS>(&bias, p, s, k.index, row, x);
        halves = mask_scores<D, FIXUP>(s, k.index, group, row, pass, x);
        bool chunk_start =
            last || halves & CHUNK_START; // a chunk, of this item or not
        if (chunk_start)
            end_chunk<D>(p, s, base, sum, accumulated, prefetched);
        pipeline_advance(&k, stages);
        left--;

        // All that follows is to be done while the values are multiplied. But
        // nothing of it is needed before the wait for them, and the compiler
        // would rather do it afterwards. So the next keys are waited for here,
        // with a phase that depends on the finished weights.
        uint32_t dependency = 0;
        bool needs_base = FIXUP || BIAS || chunk_start || row_flags & ROW_EMPTY;
        correction[0] = correction[1] = 1.0f;
        row_flags = 0;
        if (!FIXUP || pass == 0) {
            if (needs_base)
                update_bases<PAIR, FIXUP || BIAS>(x, base, correction,
                                                  scale_of<BIAS>(p));
            dependency = exponentiate<PAIR>(x, base, correction, sum, total,
                                            scale_of<BIAS>(p));
            row_flags = check_rows(base, total);
            if (BIAS)
                row_flags |= check_jumps(correction);
        }
        if (left > 0)
            barrier_wait(&s->k_full[k.index], k.phase ^ dependency >> 31);
        if (row_flags & BASE_GREW)
            grow_base<PAIR>(x, base, correction, sum, total);
        wgmma_wait<0>();
        wgmma_fence_operand<D / 2>(o);
        consumer_release(&s->v_empty[v.index]);
        pipeline_advance(&v, stages);
        if (chunk_start) {
            if (last) {
                for (; hidden > 0; hidden--) {
                    barrier_wait(&s->v_full[v.index], v.phase);
                    consumer_release(&s->v_empty[v.index]);
                    pipeline_advance(&v, stages);
                }
                finish<D, FIXUP>(p, s, stage, o, prefetched, accumulated,
                                 may_overflow);
                storing = stage;
                may_overflow = false;
            } else {
                accumulate_chunk<D, FIXUP>(p, s, o, prefetched, accumulated);
            }
            accumulated = !last;
#pragma unroll
            for (int i = 0; i < D / 2; i++)
                o[i] = 0.0f;
        } else if (FIXUP ||
                   row_flags & (BIAS ? BASE_GREW | BASE_JUMPED : BASE_GREW)) {
            rescale<D>(o, correction, false);
        }
        may_overflow |= row_flags & (BIAS ? 0 : MAY_OVERFLOW);
        pack_weights<PAIR>(w, x);
    }

    // The last values have no scores to run beside.
    barrier_wait(&s->v_full[v.index], v.phase);
    if (FIXUP)
        filter_values<D>(s->v[v.index], pass);
    issue_values<D>(o, w, s->v[v.index], halves);
    end_chunk<D>(p, s, base, sum, accumulated, prefetched);
    wgmma_wait<0>();
    wgmma_fence_operand<D / 2>(o);
    // finish() writes where the queries are, so all four warps must have read
    // them. In the loop an order barrier lies between, or the filter's.
    named_sync(BARRIER_GROUP + group, GROUP);
    finish<D, FIXUP>(p, s, stage, o, prefetched, accumulated, may_overflow);
    if (threadIdx.x % 32 == 0)
        tma_store_wait_read();
}

/* Large heads: there is one buffer of queries, so an item ends before the next
 * one begins; and groups are not ordered, for products take most of the time.
 */
template <int D, int FIXUP, int BIAS>
BT_DEVICE void compute_large_head(const forward_params *p, forward_shared<D> *s)
{
    const int keys = kernel_traits<D>::keys, stages = kernel_traits<D>::stages;
    int group = __shfl_sync(~0u, (int)threadIdx.x / GROUP - 1, 0);
    int row =
        group * GROUP_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    pipeline_state q = {}, k = {}, v = {};
    float x[keys / 2], o[D / 2];
    float4 prefetched[kernel_traits<D>::prefetched + 1]; // of the chunks before
    uint32_t w[keys / 4];

    for (int left; (left = next_item(s, q)) > 0; pipeline_advance(&q, 1)) {
        const uint16_t *queries = s->q[q.index] + group * GROUP_ROWS * PANEL;
        int pass = FIXUP ? s->item[q.index].pass : 0;
        item_bias bias;
        load_item_bias<D, BIAS>(&bias, p, s, q.index, row);
        float base[2] = { -INFINITY, -INFINITY }, sum[2] = { 0.0f, 0.0f };
        float total[2] = { 0.0f, 0.0f }, correction[2] = { 1.0f, 1.0f };
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            o[i] = 0.0f;

        // The first scores have no values to run beside.
        barrier_wait(&s->k_full[k.index], k.phase);
        issue_scores<D>(x, queries, s->k[k.index]);
        wgmma_wait<0>();
        wgmma_fence_operand<keys / 2>(x);
        bias_tile<D, BIAS>(&bias, p, s, k.index, row, x);
        mask_scores<D, FIXUP>(s, k.index, group, row, pass, x);
        pipeline_advance(&k, stages);
        uint32_t row_flags = 0;
        if (!FIXUP || pass == 0) {
            update_bases<keys, FIXUP || BIAS>(x, base, correction,
                                              scale_of<BIAS>(p));
            exponentiate<keys>(x, base, correction, sum, total,
                               scale_of<BIAS>(p));
            row_flags = check_rows(base, total);
            if (row_flags & BASE_GREW)
                grow_base<keys>(x, base, correction, sum, total);
        }
        bool accumulated = false;
        bool may_overflow = row_flags & (BIAS ? 0 : MAY_OVERFLOW);
        pack_weights<keys>(w, x);
        if (--left > 0)
            barrier_wait(&s->k_full[k.index], k.phase);
        for (; left > 0; left--) {
            issue_scores<D>(x, queries, s->k[k.index]);
            barrier_wait(&s->v_full[v.index], v.phase);
            if (FIXUP)
                filter_values<D>(s->v[v.index], pass);
            issue_values<D>(o, w, s->v[v.index], BOTH);
            wgmma_wait<1>();
            wgmma_fence_operand<keys / 2>(x);
            bias_tile<D, BIAS>(&bias, p, s, k.index, row, x);
            bool chunk_start =
                mask_scores<D, FIXUP>(s, k.index, group, row, pass, x) &
                CHUNK_START;
            if (chunk_start)
                end_chunk<D>(p, s, base, sum, accumulated, prefetched);
            pipeline_advance(&k, stages);

            // As in compute_items: the weights before the wait for the values.
            uint32_t dependency = 0;
            bool needs_base =
                FIXUP || BIAS || chunk_start || row_flags & ROW_EMPTY;
            correction[0] = correction[1] = 1.0f;
            row_flags = 0;
            if (!FIXUP || pass == 0) {
                if (needs_base)
                    update_bases<keys, FIXUP || BIAS>(x, base, correction,
                                                      scale_of<BIAS>(p));
                dependency = exponentiate<keys>(x, base, correction, sum, total,
                                                scale_of<BIAS>(p));
                row_flags = check_rows(base, total);
                if (BIAS)
                    row_flags |= check_jumps(correction);
            }
            if (left > 1)
                barrier_wait(&s->k_full[k.index], k.phase ^ dependency >> 31);
            if (row_flags & BASE_GREW)
                grow_base<keys>(x, base, correction, sum, total);
            wgmma_wait<0>();
            wgmma_fence_operand<D / 2>(o);
            consumer_release(&s->v_empty[v.index]);
            pipeline_advance(&v, stages);
            if (chunk_start)
                accumulate_chunk<D, FIXUP>(p, s, o, prefetched, accumulated);
            accumulated |= chunk_start;
            // (With zeros of their own, where a chunk begins, the compiler
            // serializes all products.)
            if (chunk_start || FIXUP ||
                row_flags & (BIAS ? BASE_GREW | BASE_JUMPED : BASE_GREW))
                rescale<D>(o, correction, chunk_start);
            may_overflow |= row_flags & (BIAS ? 0 : MAY_OVERFLOW);
            pack_weights<keys>(w, x);
        }

        // The last values have no scores to run beside.
        barrier_wait(&s->v_full[v.index], v.phase);
        if (FIXUP)
            filter_values<D>(s->v[v.index], pass);
        issue_values<D>(o, w, s->v[v.index], BOTH);
        wgmma_wait<0>();
        wgmma_fence_operand<D / 2>(o);
        end_chunk<D>(p, s, base, sum, accumulated, prefetched);
        consumer_release(&s->v_empty[v.index]);
        pipeline_advance(&v, stages);
        // finish() writes where the queries are, so all must have read them.
        named_sync(BARRIER_GROUP + group, GROUP);
        finish<D, FIXUP>(p, s, q.index, o, prefetched, accumulated,
                         may_overflow);
        consumer_release_stored(&s->q_empty[q.index]);
    }
}

template <int D, int FIXUP, int PAGED, int BIAS>
__global__ void __launch_bounds__(GROUP *(kernel_traits<D>::groups + 1), 1)
    attention_forward(const __grid_constant__ forward_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    forward_shared<D> *s = (forward_shared<D> *)memory;
    const int arrivals = kernel_traits<D>::groups * 4 * WARP_ARRIVALS;

    if (FIXUP) {
        grid_dependency_wait();
        if (!begin_fixup(p.nonfinite_fixup, p.items, p.tile_counter,
                         share_of_grid()))
            return;
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < kernel_traits<D>::queries; i++) {
            barrier_init(&s->q_full[i], 1);
            barrier_init(&s->q_empty[i], arrivals);
        }
        for (int i = 0; i < kernel_traits<D>::stages; i++) {
            barrier_init(&s->k_full[i], 1);
            barrier_init(&s->k_empty[i], arrivals);
            barrier_init(&s->v_full[i], 1);
            barrier_init(&s->v_empty[i], arrivals);
        }
        barrier_init_done();
        tensor_map_prefetch(&p.q);
        tensor_map_prefetch(&p.k);
        tensor_map_prefetch(&p.v);
        tensor_map_prefetch(&p.o);
    }
    __syncthreads();
    if (!FIXUP)
        launch_dependents();

    if (threadIdx.x < GROUP) {
        setmaxnreg_dec<kernel_traits<D>::groups == 2 ? 40 : 32>();
        if (threadIdx.x < 32)
            load_items<D, FIXUP, PAGED, BIAS>(&p, s);
        else if (!FIXUP)
            store_empty<D>(&p);
    } else {
        setmaxnreg_inc<kernel_traits<D>::groups == 2 ? 232 : 160>();
        if constexpr (kernel_traits<D>::large_head)
            compute_large_head<D, FIXUP, BIAS>(&p, s);
        else
            compute_items<D, FIXUP, BIAS>(&p, s);
    }
}

/* ---- launching --------------------------------------------------------- */

template <int D, int FIXUP, int PAGED, int BIAS>
static bt_cuda_kernel kernel_of(int blocks)
{
    bt_cuda_kernel kernel = {};
    static_assert(sizeof(forward_shared<D>) <= 227 * 1024,
                  "shared memory of a block");
    kernel.function = (const void *)attention_forward<D, FIXUP, PAGED, BIAS>;
    kernel.grid[0] = (unsigned)blocks;
    kernel.grid[1] = kernel.grid[2] = 1;
    kernel.threads = GROUP * (kernel_traits<D>::groups + 1);
    // The second kernel's prologue overlaps the first kernel.
    kernel.start = FIXUP ? BT_START_EARLY : BT_START_AFTER;
    // The tiles' swizzle needs the 1024-byte alignment that a block's dynamic
    // shared memory has when there is no other.
    kernel.shared = sizeof(forward_shared<D>);
    return kernel;
}

template <int D, int PAGED, int BIAS>
static cudaError_t launch_pair(const forward_params *params, bt_cuda_pair *pair,
                               int blocks, cudaStream_t stream)
{
    const bt_cuda_kernel kernels[] = { kernel_of<D, 0, PAGED, BIAS>(blocks),
                                       kernel_of<D, 1, PAGED, BIAS>(blocks) };
    void *const args[] = { (void *)params };
    const size_t sizes[] = { sizeof(*params) };
    return (cudaError_t)bt_cuda_launch_pair(pair, kernels, args, sizes, 1,
                                            stream);
}

template <int D, int BIAS>
static cudaError_t launch_both(const forward_params *params, bt_cuda_pair *pair,
                               int blocks, cudaStream_t stream)
{
    return params->table
               ? launch_pair<D, 1, BIAS>(params, pair, blocks, stream)
               : launch_pair<D, 0, BIAS>(params, pair, blocks, stream);
}

template <int D>
static cudaError_t launch_any(const forward_params *params, bt_cuda_pair *pair,
                              bt_bias_kind bias, int blocks,
                              cudaStream_t stream)
{
    if (bias == BT_BIAS_TENSOR)
        return launch_both<D, BT_BIAS_TENSOR>(params, pair, blocks, stream);
    return bias ? launch_both<D, BT_BIAS_DISTANCE>(params, pair, blocks, stream)
                : launch_both<D, BT_BIAS_NONE>(params, pair, blocks, stream);
}

static cudaError_t launch_width(const forward_params *p, bt_cuda_pair *pair,
                                bt_bias_kind bias, size_t width, int blocks,
                                cudaStream_t stream)
{
    switch (width) {
    case 64:
        return launch_any<64>(p, pair, bias, blocks, stream);
    case 128:
        return launch_any<128>(p, pair, bias, blocks, stream);
    case 192:
        return launch_any<192>(p, pair, bias, blocks, stream);
    case 256:
        return launch_any<256>(p, pair, bias, blocks, stream);
    }
    return cudaErrorInvalidValue;
}

/* With k, v and what pages need already in p. */
static bauta_status launch_all(forward_params *p, bt_cuda_plan *plan,
                               const bauta_attention_shape *shape,
                               const uint16_t *q, uint16_t *out, float *lse,
                               float scale, void *stream, bauta_error *err)
{
    size_t d = plan->head_dim;
    p->out_head = or_dense(shape->out_head, d);
    p->out_token = or_dense(shape->out_token, plan->heads * d);
    bauta_status status =
        encode(&p->q, plan, "q", q, plan->rows, plan->heads,
               or_dense(shape->q_token, plan->heads * d),
               or_dense(shape->q_head, d), bt_cuda_tile_rows(d), err);
    if (!status)
        status = encode(&p->o, plan, "out", out, plan->rows, plan->heads,
                        p->out_token, p->out_head, 16, err);
    if (status)
        return status;
    if (plan->keys == 0) // nothing is read, but the kernel knows of them
        p->k = p->v = p->q;
    p->tiles = plan->tiles;
    p->runs = plan->runs;
    p->bits = plan->bits;
    p->tile_counter = plan->tile_counter;
    p->nonfinite_fixup = plan->nonfinite_fixup;
    p->chunk_acc = (float4 *)plan->chunk_acc;
    p->out = out;
    p->lse = lse;
    p->tile_count = plan->tile_count;
    p->empty_count = plan->empty_count;
    p->heads = (int)plan->heads;
    p->heads_per_kv = (int)(plan->heads / plan->kv_heads);
    p->l2_heads = plan->l2_heads;
    p->items = plan->tile_count * (int)plan->heads;
    p->head_dim = (int)d;
    p->scale = scale * 1.44269504088896341f;

    int blocks =
        min(p->items + p->empty_count * p->heads, plan->multiprocessors);
    cudaStream_t queue = (cudaStream_t)stream;
    cudaError_t result = cudaSuccess;
    bt_bias_kind bias = bt_cuda_bias_kind(shape);
    if (bias) {
        const uint32_t *positions = p->bias.positions; // of pages
        status = bt_cuda_bias_init(&p->bias, shape, scale, err);
        if (status)
            return status;
        if (positions && bias == BT_BIAS_DISTANCE)
            p->bias.positions = positions;
        result = bt_cuda_launch_anchors(&p->bias, plan, false, queue);
    }
    if (!result)
        result =
            launch_width(p, plan->pair, bias, bt_cuda_width(d), blocks, queue);
    if (result)
        return bt_fail(err, BAUTA_ERR_DEVICE,
                       "cannot launch the attention kernel: %s",
                       cudaGetErrorString(result));
    return BAUTA_OK;
}

extern "C" bauta_status bt_attention_forward_bf16_cuda(
    bt_cuda_plan *plan, const bauta_attention_shape *shape, const uint16_t *q,
    const uint16_t *k, const uint16_t *v, uint16_t *out, float *lse,
    void *stream, bauta_error *err)
{
    size_t d = plan->head_dim, kv_heads = plan->kv_heads;
    size_t keys = bt_cuda_width(d) > 128 ? 64 : PAIR;
    float scale;
    forward_params p = {};
    bauta_status status = bt_cuda_plan_fits(plan, shape, &scale, err);
    if (status || plan->tile_count + plan->empty_count == 0)
        return status;
    // A mask without keys has nothing to read, and the engine no empty tensor.
    if (plan->keys) {
        status = encode(&p.k, plan, "k", k, plan->keys, kv_heads,
                        or_dense(shape->k_token, kv_heads * d),
                        or_dense(shape->k_head, d), keys, err);
        if (!status)
            status = encode(&p.v, plan, "v", v, plan->keys, kv_heads,
                            or_dense(shape->v_token, kv_heads * d),
                            or_dense(shape->v_head, d), keys, err);
        if (status)
            return status;
    }
    status = launch_all(&p, plan, shape, q, out, lse, scale, stream, err);
    return status ? status : bt_cuda_plan_complete(plan, stream, err);
}

extern "C" bauta_status bt_attention_paged_bf16_cuda(
    bt_cuda_plan *plan, const bauta_attention_shape *shape, const uint16_t *q,
    const bt_cuda_paged *pages, uint16_t *out, float *lse, void *stream,
    bauta_error *err)
{
    float scale;
    forward_params p = {};
    bauta_status status = bt_cuda_plan_fits(plan, shape, &scale, err);
    if (status)
        return status;
    p.k = pages->k;
    p.v = pages->v;
    p.table = pages->table;
    p.start = pages->start;
    p.page_shift = pages->page_shift;
    p.bias.positions = pages->positions;
    return launch_all(&p, plan, shape, q, out, lse, scale, stream, err);
}
