/* SPDX-License-Identifier: Apache-2.0 */
/* backward_kernel.h - the half of attention_backward.cu that computes, and the
 * kernel. */
#ifndef BT_CUDA_BACKWARD_KERNEL_H
#define BT_CUDA_BACKWARD_KERNEL_H

#include "backend/cuda/backward_large_head.h"
#include "backend/cuda/launch.h"

/* Store the sums of an item, note whether they are finite, and start others.
 */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void finish_item(thread_state<D, KEYS, MODE> *b,
                           const backward_params *p,
                           backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    int slot = b->items.index ^ (int)b->item_prefetched,
        first = b->group * GROUP_ROWS;
    int buffer =
        b->in_registers ? 0 : b->stationary.index ^ (int)b->item_prefetched;
    const backward_work *w = &s->item[slot];
    uint16_t *out = b->in_registers ? s->more[b->in_registers ? b->group : 0]
                                    : s->stationary[buffer][0][b->group];
    bool good = true;
    if (b->in_registers) {
        if (threadIdx.x % 32 == 0)
            tma_store_wait_read(); // the previous contents are stored
        __syncwarp();
        b->storing = makes_delta<D, KEYS, MODE> && b->item_prefetched ? 0 : -1;
    } else {
        release_store_buffer(b, s);
        b->storing = buffer;
        // All four warps must have read what is written over.
        named_sync(BARRIER_GROUP + b->group, GROUP);
    }
    if (b->both)
        good &= store_sum<D>(p, 1, s->stationary[buffer][b->second][b->group],
                             w, first, b->sum_p, 1.0f);
    good &= store_sum<D>(p, b->weights, out, w, first, b->sum,
                         b->weights ? 1.0f : p->scale);
    if (!(MODE & FIXUP)) {
        good = __all_sync(~0u, good);
        if (threadIdx.x % 32 == 0)
            p->nonfinite_fixup[(size_t)w->item * BT_FIXUP_BYTES +
                               threadIdx.x / 32 - 4] = !good;
    }
    consumer_release(&s->item_empty[slot]);
    b->item_prefetched = false;
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        b->sum[i] = b->sum_p[b->both ? i : 0] = 0.0f;
}

/* The weights x of a step become w_ds, what its sum takes. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void make_ds(thread_state<D, KEYS, MODE> *b,
                       backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    typedef thread_state<D, KEYS, MODE> kernel_traits;
    if (kernel_traits::both) {
        if (!kernel_traits::biased)
            pack_pairs(b->w_p, b->x);
        issue_sum<D>(b->sum_p, b->w_p, second_half(s, at, at));
        wgmma_wait<1>();
    } else {
        wgmma_wait<0>();
    }
    wgmma_fence_operand<STEP / 2>(b->y);
    if (kernel_traits::reuses_packed)
        compute_ds_packed(b->y, kernel_traits::biased ? b->w_q : b->w_p,
                          columns_of(s->rows[at].delta, b->t));
    else
        compute_ds<KEYS>(b->y, b->x, b->delta,
                         columns_of(s->rows[at].delta, b->t));
    if (b->partial)
        apply_mask(b->y, b->word, b->t);
    pack_pairs(b->w_ds, b->y);
}

/* Loop over steps until there is one that the group does not see, or no more.
 * x is ready, y is being computed. For dQ the first step of the next item
 * follows the last one of an item: the sums are stored while its y is made.
 * Returns the stage of the last step, whose w_ds is still to be summed. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE int loop_steps(thread_state<D, KEYS, MODE> *b,
                         const backward_params *p,
                         backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    typedef thread_state<D, KEYS, MODE> kernel_traits;
    for (;;) {
        weigh_step(b, p, s, at);
        make_ds<D, GROUPS, STAGES, KEYS, MODE>(b, s, at);
        release_store_buffer(b, s);
        int before = at;
        at = next_step<D, GROUPS, STAGES, KEYS, MODE>(s, &b->steps, b->group);
        bool over =
            kernel_traits::overlaps_items && at < 0 && b->steps.flags & LAST;
        if (over)
            prefetch_item(b, p, s);
        if (over && b->item_prefetched)
            at = next_step<D, GROUPS, STAGES, KEYS, MODE>(s, &b->steps,
                                                          b->group);
        if (at < 0)
            return before;
        load_words(b, p, s, at);
        order_wait<GROUPS, kernel_traits::ordered>(b->group);
        issue_sum<D>(b->sum, b->w_ds, s->streamed[before][0]);
        if (over)
            load_stationary_fragments(b, s);
        if (kernel_traits::reuses_packed) {
            wgmma_wait<1>(); // w_p may lie where x will
            wgmma_fence_operand<D / 2>(b->sum_p);
        }
        issue_pairs<D, kernel_traits::in_registers>(
            b->x, b->f[0], s->stationary[b->stationary.index][0][b->group],
            s->streamed[at][0]);
        if (kernel_traits::defers_y) {
            wgmma_wait<1>(); // all but x
            wgmma_fence_operand<D / 2>(b->sum);
            wgmma_fence_operand<kernel_traits::both ? D / 2 : 0>(b->sum_p);
            consumer_release(&s->streamed_empty[before]);
        }
        issue_pairs<D, kernel_traits::in_registers>(
            b->y, b->f[1],
            s->stationary[b->stationary.index][b->second][b->group],
            second_half(s, at, at));
        wgmma_wait<1>(); // all but y
        order_arrive<GROUPS, kernel_traits::ordered>(b->group);
        wgmma_fence_operand<STEP / 2>(b->x);
        if (!kernel_traits::defers_y) {
            wgmma_fence_operand<D / 2>(b->sum);
            wgmma_fence_operand<kernel_traits::both ? D / 2 : 0>(b->sum_p);
            consumer_release(&s->streamed_empty[before]);
        }
        if (over) {
            release_stationary(b, s);
            finish_item(b, p, s);
            use_row_stats(b);
        }
    }
}

/* The steps of an item that the group sees from `at` on, and those of the next
 * ones as far as they follow. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void loop_item(thread_state<D, KEYS, MODE> *b,
                         const backward_params *p,
                         backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    typedef thread_state<D, KEYS, MODE> kernel_traits;
    while (at >= 0) {
        load_words(b, p, s, at);
        order_wait<GROUPS, kernel_traits::ordered>(b->group);
        issue_pairs<D, kernel_traits::in_registers>(
            b->x, b->f[0], s->stationary[b->stationary.index][0][b->group],
            s->streamed[at][0]);
        issue_pairs<D, kernel_traits::in_registers>(
            b->y, b->f[1],
            s->stationary[b->stationary.index][b->second][b->group],
            second_half(s, at, at));
        wgmma_wait<1>(); // all but y
        order_arrive<GROUPS, kernel_traits::ordered>(b->group);
        wgmma_fence_operand<STEP / 2>(b->x);
        release_stationary(b, s);
        int before = loop_steps<D, GROUPS, STAGES, KEYS, MODE>(b, p, s, at);
        issue_sum<D>(b->sum, b->w_ds, s->streamed[before][0]);
        bool over = b->item_prefetched || b->steps.flags & LAST;
        if (kernel_traits::prefetches_item && over && !b->item_prefetched)
            prefetch_item(b, p, s);
        if (!over) { // the next step is not for this group
            order_wait<GROUPS, kernel_traits::ordered>(b->group);
            order_arrive<GROUPS, kernel_traits::ordered>(b->group);
        }
        wgmma_wait<0>();
        wgmma_fence_operand<D / 2>(b->sum);
        wgmma_fence_operand<kernel_traits::both ? D / 2 : 0>(b->sum_p);
        consumer_release(&s->streamed_empty[before]);
        if (over)
            return;
        at = skip_steps<D, GROUPS, STAGES, KEYS, MODE>(s, &b->steps, b->group,
                                                       true);
    }
}

template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void compute_items(const backward_params *p,
                             backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    typedef thread_state<D, KEYS, MODE> kernel_traits;
    thread_state<D, KEYS, MODE> b = {};
    // Through a shuffle, so that the compiler sees that a warp agrees on it and
    // keeps what follows from it (the descriptors) in uniform registers.
    b.group = __shfl_sync(~0u, (int)threadIdx.x / GROUP - 1, 0);
    b.t = threadIdx.x % 4;
    b.row =
        b.group * GROUP_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    b.scale = p->scale * LOG2_E;
    b.storing = -1;

    // Group 0 issues first.
    if (b.group == GROUPS - 1)
        order_arrive<GROUPS, kernel_traits::ordered>(b.group);
    // The loaders are ahead: they need nothing of the kernel before this one,
    // which may make delta.
    if (!KEYS)
        grid_dependency_wait();
    bool more = begin_item(&b, p, s);
    while (more) {
        use_row_stats(&b);
        load_stationary_fragments(&b, s);
        int at = skip_steps<D, GROUPS, STAGES, KEYS, MODE>(s, &b.steps, b.group,
                                                           false);
        if (kernel_traits::weights)
            loop_weights<D, GROUPS, STAGES, KEYS, MODE>(&b, p, s, at);
        else if (stationary_layout<D, KEYS>::split)
            loop_large_head<D, GROUPS, STAGES, KEYS, MODE>(&b, p, s, at);
        else
            loop_item<D, GROUPS, STAGES, KEYS, MODE>(&b, p, s, at);
        release_stationary(&b, s);
        if (kernel_traits::prefetches_item && !b.item_prefetched)
            prefetch_item(&b, p, s);
        bool item_prefetched = b.item_prefetched;
        finish_item(&b, p, s);
        if (!item_prefetched) {
            pipeline_advance(&b.items, 2);
            pipeline_advance(&b.stationary,
                             stationary_layout<D, KEYS>::buffers);
            if (D > 128)
                release_store_buffer(&b, s); // the only one
            more = begin_item(&b, p, s);
        }
    }
    if (threadIdx.x % 32 == 0)
        tma_store_wait();
}

template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void init_barriers(const backward_params *p,
                             backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    const int warps = GROUPS * 4; // that compute
    const bool split = stationary_layout<D, KEYS>::split;
    const bool sums_rows = makes_delta<D, KEYS, MODE>;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(&s->item_full[i], 1);
            barrier_init(&s->item_empty[i],
                         warps * WARP_ARRIVALS + 2 + sums_rows);
            barrier_init(&s->delta_made[i], warps * WARP_ARRIVALS);
            tensor_map_prefetch(&p->stationary[i]);
            tensor_map_prefetch(&p->streamed[i]);
            tensor_map_prefetch(&p->grad[i]);
        }
        for (int i = 0; i < GROUPS * stationary_layout<D, KEYS>::buffers; i++) {
            barrier_init(&s->stationary_full[0][0] + i, 1);
            barrier_init(&s->stationary_empty[0][0] + i, 4 * WARP_ARRIVALS);
        }
        for (int i = 0; i < GROUPS; i++) {
            barrier_init(&s->out_full[i], 1);
            barrier_init(&s->out_empty[i], 4 * WARP_ARRIVALS);
        }
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&s->streamed_full[i], split ? 1 : 2);
            barrier_init(&s->streamed_empty[i], warps * WARP_ARRIVALS);
        }
        for (int i = 0; split && i < STAGES - 1; i++) {
            barrier_init(&s->second_full[i], 1);
            barrier_init(&s->second_empty[i], warps * WARP_ARRIVALS);
        }
        barrier_init_done();
    }
    __syncthreads();
}

/* What each warp does, when the barriers are there. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void run_roles(const backward_params *p,
                         backward_shared<D, GROUPS, STAGES, KEYS> *s,
                         block_share share)
{
    const bool fixup = MODE & FIXUP;
    const bool sums_rows = makes_delta<D, KEYS, MODE>;
    if (threadIdx.x < GROUP) {
        if (GROUPS > 1)
            setmaxnreg_dec<GROUPS == 3 ? 32 : 24>();
        if (threadIdx.x < 32)
            load_items<D, GROUPS, STAGES, KEYS, MODE>(p, s, share);
        else if (threadIdx.x == 32)
            load_stationary<D, GROUPS, STAGES, KEYS, MODE>(p, s);
        else if (threadIdx.x == 64)
            load_second<D, GROUPS, STAGES, KEYS, MODE>(p, s);
        else if (threadIdx.x >= 96 && !fixup) {
            if (!KEYS) {
                grid_dependency_wait();
                if (!sums_rows)
                    launch_dependents();
            }
            store_empty<D, KEYS>(p);
            if constexpr (sums_rows)
                copy_row_stats(p, s);
        }
        // Kernels that wait for this one then wait for the previous one, too.
        if (KEYS)
            grid_dependency_wait();
    } else {
        if (GROUPS > 1) // else all have what they need
            setmaxnreg_inc<GROUPS == 3 ? 160 : 240>();
        compute_items<D, GROUPS, STAGES, KEYS, MODE>(p, s);
    }
}

template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
__global__ void __launch_bounds__(GROUP *(GROUPS + 1), 1)
    attention_backward(const __grid_constant__ backward_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    backward_shared<D, GROUPS, STAGES, KEYS> *s =
        (backward_shared<D, GROUPS, STAGES, KEYS> *)memory;
    const bool fixup = MODE & FIXUP;

    // The kernel of dK and dV needs nothing of that of dQ, which is before it:
    // its blocks begin while the last ones of dQ still compute. (What both need
    // is there: those of dQ let others begin only when they have it, or have
    // made it: see copy_row_stats.)
    if (fixup) {
        if (!KEYS)
            grid_dependency_wait();
        launch_dependents();
        if (!begin_fixup(p.nonfinite_fixup, p.items, p.tile_counter,
                         share_of_grid())) {
            grid_dependency_wait(); // see below
            return;
        }
    }
    init_barriers<D, GROUPS, STAGES, KEYS, MODE>(&p, s);
    if (KEYS && !fixup)
        launch_dependents();
    run_roles<D, GROUPS, STAGES, KEYS, MODE>(&p, s, share_of_grid());
}

/* The items of a share that were not finite, once more. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void fix_items(const backward_params *p, void *memory,
                         block_share share)
{
    backward_shared<D, GROUPS, STAGES, KEYS> *s =
        (backward_shared<D, GROUPS, STAGES, KEYS> *)memory;
    if (!begin_fixup(p->nonfinite_fixup, p->items, p->tile_counter, share))
        return;
    init_barriers<D, GROUPS, STAGES, KEYS, MODE>(p, s);
    run_roles<D, GROUPS, STAGES, KEYS, MODE>(p, s, share);
}

/* The second kernel of dQ, in even blocks, and that of dK and dV, in odd ones:
 * a launch less at the end of every backward pass. */
template <int D, int GROUPS, int QUERY_STAGES, int KEY_STAGES, int MODE>
__global__ void __launch_bounds__(GROUP *(GROUPS + 1), 1)
    attention_backward_fixup(const __grid_constant__ backward_params dq,
                             const __grid_constant__ backward_params dkv)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    block_share share = { (int)blockIdx.x / 2, (int)gridDim.x / 2 };
    grid_dependency_wait();
    launch_dependents();
    if (blockIdx.x % 2)
        fix_items<D, GROUPS, KEY_STAGES, 1, FIXUP | MODE>(&dkv, memory, share);
    else
        fix_items<D, GROUPS, QUERY_STAGES, 0, FIXUP | MODE>(&dq, memory, share);
}

/* `early`: the prologue may overlap the previous kernel. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
static cudaError_t launch(const backward_params *params, int blocks, bool early,
                          cudaStream_t stream)
{
    // The tiles' swizzle needs the 1024-byte alignment that a block's dynamic
    // shared memory has when there is no other.
    const int bytes = sizeof(backward_shared<D, GROUPS, STAGES, KEYS>);
    static_assert(bytes <= 227 * 1024, "shared memory of a block");
    return launch_kernel(attention_backward<D, GROUPS, STAGES, KEYS, MODE>,
                         (unsigned)blocks, GROUP * (GROUPS + 1), bytes,
                         early ? BT_START_EARLY : BT_START_AFTER, stream,
                         *params);
}

template <int D, int GROUPS, int QUERY_STAGES, int KEY_STAGES, int MODE>
static cudaError_t launch_fixup(const backward_params *dq,
                                const backward_params *dkv, int blocks,
                                cudaStream_t stream)
{
    const int query_bytes = sizeof(backward_shared<D, GROUPS, QUERY_STAGES, 0>);
    const int key_bytes = sizeof(backward_shared<D, GROUPS, KEY_STAGES, 1>);
    return launch_kernel(
        attention_backward_fixup<D, GROUPS, QUERY_STAGES, KEY_STAGES, MODE>,
        (unsigned)blocks & ~1u, GROUP * (GROUPS + 1),
        max(query_bytes, key_bytes), BT_START_EARLY, stream, *dq, *dkv);
}

#endif
