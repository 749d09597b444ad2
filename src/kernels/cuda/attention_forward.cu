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
 * kernel (EXACT), launched behind the first one, does those items again:
 *
 *   pass 0   values that are not finite are replaced by 0: the sums of the
 *            finite ones, by the same instructions and so with the same bits;
 *   pass 1   weights are 1 where visible, values are 1 where they are +inf or
 *            NaN, else 0: where the sum is not 0 the output gets + inf;
 *   pass 2   the same with -inf and NaN: the output gets - inf.
 *
 * inf - inf = NaN does the rest. An output is then NaN or infinite if a value
 * that its row sees is, and no other is. */
#include "kernels/cuda/forward_end.h"
#include "kernels/cuda/forward_step.h"

#include <cuda_runtime.h>

/* ---- computing --------------------------------------------------------- */

template <int D, int EXACT>
BT_DEVICE void compute_items(const forward_params *p, forward_shared<D> *s)
{
    const int groups = kind<D>::groups, stages = kind<D>::stages;
    // Through a shuffle, so that the compiler sees that a warp agrees on it and
    // keeps what follows from it (the descriptors) in uniform registers.
    int group = __shfl_sync(~0u, (int)threadIdx.x / GROUP - 1, 0);
    int row =
        group * GROUP_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    int turn = BARRIER_TURN + group;
    int turn_next = BARRIER_TURN + (group + 1) % groups;
    ring q = {}, k = {}, v = {};
    float x[PAIR / 2];    // scores of a pair, then its weights
    uint32_t w[PAIR / 4]; // weights as bf16, until the values are added
    float o[D / 2];
    float4 early[kind<D>::early + 1]; // of the chunks before
    float base[2] = { -INFINITY, -INFINITY }, sum[2] = { 0.0f, 0.0f };
    float total[2] = { 0.0f, 0.0f }, keep[2] = { 1.0f, 1.0f };
    bool rested = false; // this item had a chunk before
    bool rough = false;  // a row of this warp may have leapt
    int pass = 0;        // EXACT: of the item at q
    int storing = -1;    // stage of the item before, while its output leaves

    int left = next_item(s, q);
    if (left == 0)
        return;
    // Group 0 has the first turn.
    if (group == groups - 1)
        named_arrive(BARRIER_TURN, 2 * GROUP);
    if (EXACT)
        pass = s->item[q.at].pass;
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        o[i] = 0.0f;

    // The first scores have no values to run beside.
    barrier_wait(&s->k_full[k.at], k.parity);
    issue_scores<D>(x, s->q[q.at] + group * GROUP_ROWS * PANEL, s->k[k.at]);
    product_wait<0>();
    product_hold<PAIR / 2>(x);
    int halves = look<D, EXACT>(s, k.at, group, row, pass, x);
    uint32_t note = 0;
    if (!EXACT || pass == 0) {
        seek<PAIR, EXACT>(x, base, keep, p->scale);
        soften<PAIR>(x, base, keep, sum, total, p->scale);
        note = survey(base, total);
        if (note & GROWN)
            grow_base<PAIR>(x, base, keep, sum, total);
    }
    ring_next(&k, stages);
    rough = note & ROUGH;
    pack_weights<PAIR>(w, x);
    if (--left > 0)
        barrier_wait(&s->k_full[k.at], k.parity);

    int stage;
    for (;;) {
        // w holds weights, and the next scores may be those of the next item.
        bool last = left == 0;
        int stage_pass = pass;
        stage = q.at;
        if (last) {
            if (storing >= 0)
                done_storing(&s->q_empty[storing]);
            storing = -1;
            ring_next(&q, 2);
            left = next_item(s, q);
            if (left == 0)
                break;
            if (EXACT)
                pass = s->item[q.at].pass;
            barrier_wait(&s->k_full[k.at], k.parity);
        }
        if (!EXACT)
            named_sync(turn, 2 * GROUP);
        issue_scores<D>(x, s->q[q.at] + group * GROUP_ROWS * PANEL, s->k[k.at]);
        barrier_wait(&s->v_full[v.at], v.parity);
        if (EXACT)
            clean_values<D>(s->v[v.at], stage_pass);
        issue_values<D>(o, w, s->v[v.at], halves);
        if (!EXACT)
            named_arrive(turn_next, 2 * GROUP);
        if (storing >= 0)
            done_storing(&s->q_empty[storing]);
        storing = -1;
        product_wait<1>();
        product_hold<PAIR / 2>(x);

        halves = look<D, EXACT>(s, k.at, group, row, pass, x);
        bool begins = last || halves & BEGINS; // a chunk, of this item or not
        if (begins)
            end_chunk<D>(p, s, base, sum, rested, early);
        ring_next(&k, stages);
        left--;

        // All that follows is to be done while the values are multiplied. But
        // nothing of it is needed before the wait for them, and the compiler
        // would rather do it behind. So the next keys are waited for here, at
        // a parity that only the finished weights can tell.
        uint32_t done = 0;
        bool sought = EXACT || begins || note & FRESH;
        keep[0] = keep[1] = 1.0f;
        note = 0;
        if (!EXACT || pass == 0) {
            if (sought)
                seek<PAIR, EXACT>(x, base, keep, p->scale);
            done = soften<PAIR>(x, base, keep, sum, total, p->scale);
            note = survey(base, total);
        }
        if (left > 0)
            barrier_wait(&s->k_full[k.at], k.parity ^ done >> 31);
        if (note & GROWN)
            grow_base<PAIR>(x, base, keep, sum, total);
        product_wait<0>();
        product_hold<D / 2>(o);
        done_with(&s->v_empty[v.at]);
        ring_next(&v, stages);
        if (begins) {
            if (last) {
                finish<D, EXACT>(p, s, stage, o, early, rested, rough);
                storing = stage;
                rough = false;
            } else {
                rest_chunk<D>(p, s, o, early, rested);
            }
            rested = !last;
#pragma unroll
            for (int i = 0; i < D / 2; i++)
                o[i] = 0.0f;
        } else if (EXACT || note & GROWN) {
            rescale<D>(o, keep, false);
        }
        rough |= note & ROUGH;
        pack_weights<PAIR>(w, x);
    }

    // The last values have no scores to run beside.
    barrier_wait(&s->v_full[v.at], v.parity);
    if (EXACT)
        clean_values<D>(s->v[v.at], pass);
    issue_values<D>(o, w, s->v[v.at], halves);
    end_chunk<D>(p, s, base, sum, rested, early);
    product_wait<0>();
    product_hold<D / 2>(o);
    // finish() writes where the queries are, so all four warps must have read
    // them. In the loop a turn lies between, or the cleaning.
    named_sync(BARRIER_GROUP + group, GROUP);
    finish<D, EXACT>(p, s, stage, o, early, rested, rough);
    if (threadIdx.x % 32 == 0)
        store_read();
}

/* Wide heads: an item has its queries' memory for itself, so it ends before the
 * next one begins; and the groups take no turns, for products take most of the
 * time. */
template <int D, int EXACT>
BT_DEVICE void compute_wide(const forward_params *p, forward_shared<D> *s)
{
    const int keys = kind<D>::keys, stages = kind<D>::stages;
    int group = __shfl_sync(~0u, (int)threadIdx.x / GROUP - 1, 0);
    int row =
        group * GROUP_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    ring q = {}, k = {}, v = {};
    float x[keys / 2], o[D / 2];
    float4 early[kind<D>::early + 1]; // of the chunks before
    uint32_t w[keys / 4];

    for (int left; (left = next_item(s, q)) > 0; ring_next(&q, 1)) {
        const uint16_t *queries = s->q[q.at] + group * GROUP_ROWS * PANEL;
        int pass = EXACT ? s->item[q.at].pass : 0;
        float base[2] = { -INFINITY, -INFINITY }, sum[2] = { 0.0f, 0.0f };
        float total[2] = { 0.0f, 0.0f }, keep[2] = { 1.0f, 1.0f };
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            o[i] = 0.0f;

        // The first scores have no values to run beside.
        barrier_wait(&s->k_full[k.at], k.parity);
        issue_scores<D>(x, queries, s->k[k.at]);
        product_wait<0>();
        product_hold<keys / 2>(x);
        look<D, EXACT>(s, k.at, group, row, pass, x);
        ring_next(&k, stages);
        uint32_t note = 0;
        if (!EXACT || pass == 0) {
            seek<keys, EXACT>(x, base, keep, p->scale);
            soften<keys>(x, base, keep, sum, total, p->scale);
            note = survey(base, total);
            if (note & GROWN)
                grow_base<keys>(x, base, keep, sum, total);
        }
        bool rested = false, rough = note & ROUGH;
        pack_weights<keys>(w, x);
        if (--left > 0)
            barrier_wait(&s->k_full[k.at], k.parity);
        for (; left > 0; left--) {
            issue_scores<D>(x, queries, s->k[k.at]);
            barrier_wait(&s->v_full[v.at], v.parity);
            if (EXACT)
                clean_values<D>(s->v[v.at], pass);
            issue_values<D>(o, w, s->v[v.at], BOTH);
            product_wait<1>();
            product_hold<keys / 2>(x);
            bool begins = look<D, EXACT>(s, k.at, group, row, pass, x) & BEGINS;
            if (begins)
                end_chunk<D>(p, s, base, sum, rested, early);
            ring_next(&k, stages);

            // As in compute_items: the weights before the wait for the values.
            uint32_t done = 0;
            bool sought = EXACT || begins || note & FRESH;
            keep[0] = keep[1] = 1.0f;
            note = 0;
            if (!EXACT || pass == 0) {
                if (sought)
                    seek<keys, EXACT>(x, base, keep, p->scale);
                done = soften<keys>(x, base, keep, sum, total, p->scale);
                note = survey(base, total);
            }
            if (left > 1)
                barrier_wait(&s->k_full[k.at], k.parity ^ done >> 31);
            if (note & GROWN)
                grow_base<keys>(x, base, keep, sum, total);
            product_wait<0>();
            product_hold<D / 2>(o);
            done_with(&s->v_empty[v.at]);
            ring_next(&v, stages);
            if (begins)
                rest_chunk<D>(p, s, o, early, rested);
            rested |= begins;
            // (With zeros of their own, where a chunk begins, the compiler
            // serializes all products.)
            if (begins || EXACT || note & GROWN)
                rescale<D>(o, keep, begins);
            rough |= note & ROUGH;
            pack_weights<keys>(w, x);
        }

        // The last values have no scores to run beside.
        barrier_wait(&s->v_full[v.at], v.parity);
        if (EXACT)
            clean_values<D>(s->v[v.at], pass);
        issue_values<D>(o, w, s->v[v.at], BOTH);
        product_wait<0>();
        product_hold<D / 2>(o);
        end_chunk<D>(p, s, base, sum, rested, early);
        done_with(&s->v_empty[v.at]);
        ring_next(&v, stages);
        // finish() writes where the queries are, so all must have read them.
        named_sync(BARRIER_GROUP + group, GROUP);
        finish<D, EXACT>(p, s, q.at, o, early, rested, rough);
        done_storing(&s->q_empty[q.at]);
    }
}

template <int D, int EXACT, int PAGED>
__global__ void __launch_bounds__(GROUP *(kind<D>::groups + 1), 1)
    attention_forward(const __grid_constant__ forward_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    forward_shared<D> *s = (forward_shared<D> *)memory;
    const int arrivals = kind<D>::groups * 4 * WARP_ARRIVALS;

    if (threadIdx.x == 0) {
        for (int i = 0; i < kind<D>::queries; i++) {
            barrier_init(&s->q_full[i], 1);
            barrier_init(&s->q_empty[i], arrivals);
        }
        for (int i = 0; i < kind<D>::stages; i++) {
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
    if (!EXACT)
        grid_release();

    if (threadIdx.x < GROUP) {
        registers_lower<kind<D>::groups == 2 ? 40 : 32>();
        if (threadIdx.x < 32)
            load_items<D, EXACT, PAGED>(&p, s);
        else if (!EXACT)
            store_empty<D>(&p);
    } else {
        registers_raise<kind<D>::groups == 2 ? 232 : 160>();
        if constexpr (kind<D>::wide)
            compute_wide<D, EXACT>(&p, s);
        else
            compute_items<D, EXACT>(&p, s);
    }
}

/* ---- launching --------------------------------------------------------- */

template <int D, int EXACT, int PAGED>
static cudaError_t launch(const forward_params *params, int blocks,
                          cudaStream_t stream)
{
    // The tiles' swizzle needs the 1024-byte alignment that a block's dynamic
    // shared memory has when there is no other.
    const int bytes = sizeof(forward_shared<D>);
    static_assert(bytes <= 227 * 1024, "shared memory of a block");
    cudaError_t status = cudaFuncSetAttribute(
        attention_forward<D, EXACT, PAGED>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status)
        return status;
    // The second kernel is brought up while the first one runs.
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(GROUP * (kind<D>::groups + 1));
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = EXACT ? 1 : 0;
    return cudaLaunchKernelEx(&config, attention_forward<D, EXACT, PAGED>,
                              *params);
}

template <int D, int PAGED>
static cudaError_t launch_pair(const forward_params *params, int blocks,
                               cudaStream_t stream)
{
    cudaError_t status = launch<D, 0, PAGED>(params, blocks, stream);
    if (!status)
        status = launch<D, 1, PAGED>(params, blocks, stream);
    return status;
}

template <int D>
static cudaError_t launch_both(const forward_params *params, int blocks,
                               cudaStream_t stream)
{
    return params->table ? launch_pair<D, 1>(params, blocks, stream)
                         : launch_pair<D, 0>(params, blocks, stream);
}

/* With k, v and what pages need already in p. */
static bauta_status launch_all(forward_params *p, bt_cuda_plan *plan,
                               const bauta_attention *shape, const uint16_t *q,
                               uint16_t *out, float *lse, float scale,
                               void *stream, bauta_error *err)
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
    p->ticket = plan->ticket;
    p->redo = plan->redo;
    p->rest = (float4 *)plan->rest;
    p->out = out;
    p->lse = lse;
    p->tile_count = plan->tile_count;
    p->empty_count = plan->empty_count;
    p->heads = (int)plan->heads;
    p->heads_per_kv = (int)(plan->heads / plan->kv_heads);
    p->band = plan->band;
    p->items = plan->tile_count * (int)plan->heads;
    p->head_dim = (int)d;
    p->scale = scale * 1.44269504088896341f;

    int blocks =
        min(p->items + p->empty_count * p->heads, plan->multiprocessors);
    cudaStream_t queue = (cudaStream_t)stream;
    cudaError_t result = cudaErrorInvalidValue;
    switch (bt_cuda_width(d)) {
    case 64:
        result = launch_both<64>(p, blocks, queue);
        break;
    case 128:
        result = launch_both<128>(p, blocks, queue);
        break;
    case 192:
        result = launch_both<192>(p, blocks, queue);
        break;
    case 256:
        result = launch_both<256>(p, blocks, queue);
        break;
    }
    if (result)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "cannot launch the attention kernel: %s",
                       cudaGetErrorString(result));
    return BAUTA_OK;
}

extern "C" bauta_status
bt_attention_forward_bf16_cuda(bt_cuda_plan *plan, const bauta_attention *shape,
                               const uint16_t *q, const uint16_t *k,
                               const uint16_t *v, uint16_t *out, float *lse,
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
    return launch_all(&p, plan, shape, q, out, lse, scale, stream, err);
}

extern "C" bauta_status
bt_attention_paged_bf16_cuda(bt_cuda_plan *plan, const bauta_attention *shape,
                             const uint16_t *q, const bt_cuda_paged *pages,
                             uint16_t *out, float *lse, void *stream,
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
    return launch_all(&p, plan, shape, q, out, lse, scale, stream, err);
}
