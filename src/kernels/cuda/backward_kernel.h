/* SPDX-License-Identifier: Apache-2.0 */
/* backward_kernel.h - the half of attention_backward.cu that computes, and the
 * kernel. */
#ifndef BT_CUDA_BACKWARD_KERNEL_H
#define BT_CUDA_BACKWARD_KERNEL_H

#include "kernels/cuda/backward_wide.h"

/* Store the sums of an item, note whether they are finite, and start others.
 */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void finish_item(desk<D, KEYS, EXACT> *b, const backward_params *p,
                           backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    int slot = b->items.at ^ (int)b->entered, first = b->group * GROUP_ROWS;
    int buffer = b->held ? 0 : b->kept.at ^ (int)b->entered;
    const work *w = &s->item[slot];
    uint16_t *out = b->held ? s->more[b->held ? b->group : 0]
                            : s->kept[buffer][0][b->group];
    bool good = true;
    if (b->held) {
        if (threadIdx.x % 32 == 0)
            store_read(); // what was here before has left
        __syncwarp();
    } else {
        give_buffer(b, s);
        b->storing = buffer;
        // All four warps must have read what is written over.
        named_sync(BARRIER_GROUP + b->group, GROUP);
    }
    if (b->both)
        good &= store_sum<D>(p, 1, s->kept[buffer][b->second][b->group], w,
                             first, b->sum_p, 1.0f);
    good &= store_sum<D>(p, b->weights, out, w, first, b->sum,
                         b->weights ? 1.0f : p->scale);
    if (!EXACT) {
        good = __all_sync(~0u, good);
        if (threadIdx.x % 32 == 0)
            p->redo[(size_t)w->item * BT_REDO_BYTES + threadIdx.x / 32 - 4] =
                !good;
    }
    done_with(&s->item_empty[slot]);
    b->entered = false;
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        b->sum[i] = b->sum_p[b->both ? i : 0] = 0.0f;
}

/* The weights x of a step become w_ds, what its sum takes. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void make_ds(desk<D, KEYS, EXACT> *b,
                       backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    typedef desk<D, KEYS, EXACT> kind;
    if (kind::both) {
        pack_pairs(b->w_p, b->x);
        issue_sum<D>(b->sum_p, b->w_p, second_half(s, at, at));
        product_wait<1>();
    } else {
        product_wait<0>();
    }
    product_hold<STEP / 2>(b->y);
    if (kind::tight)
        differ_packed(b->y, b->w_p, s->rows[at].delta, b->t);
    else
        differ<KEYS>(b->y, b->x, b->delta, s->rows[at].delta, b->t);
    if (b->partial)
        hide(b->y, b->word, b->t);
    pack_pairs(b->w_ds, b->y);
}

/* Sweep over steps until there is one that the group does not see, or no more.
 * x is there, y under way. For dQ the first step of the next item is next
 * behind the last one of an item: the sums are stored while its y is made.
 * Returns the stage of the last step, whose w_ds is still to be summed. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE int sweep_steps(desk<D, KEYS, EXACT> *b, const backward_params *p,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    typedef desk<D, KEYS, EXACT> kind;
    for (;;) {
        weigh<KEYS, EXACT>(b->x, b->lse, s->rows[at].lse, b->t, b->scale);
        if (b->partial)
            hide(b->x, b->word, b->t);
        make_ds<D, GROUPS, STAGES, KEYS, EXACT>(b, s, at);
        give_buffer(b, s);
        int before = at;
        at = next_step<D, GROUPS, STAGES, KEYS, EXACT>(s, &b->steps, b->group);
        bool over = kind::flows && at < 0 && b->steps.flags & LAST;
        if (over)
            enter_item(b, p, s);
        if (over && b->entered)
            at = next_step<D, GROUPS, STAGES, KEYS, EXACT>(s, &b->steps,
                                                           b->group);
        if (at < 0)
            return before;
        load_words(b, p, s, at);
        turn_take<GROUPS, kind::turns>(b->group);
        issue_sum<D>(b->sum, b->w_ds, s->swept[before][0]);
        if (over)
            take_tiles(b, s);
        if (kind::tight) {
            product_wait<1>(); // w_p may lie where x will
            product_hold<D / 2>(b->sum_p);
        }
        issue_pairs<D, kind::held>(
            b->x, b->f[0], s->kept[b->kept.at][0][b->group], s->swept[at][0]);
        if (kind::late) {
            product_wait<1>(); // all but x
            product_hold<D / 2>(b->sum);
            product_hold<kind::both ? D / 2 : 0>(b->sum_p);
            done_with(&s->swept_empty[before]);
        }
        issue_pairs<D, kind::held>(b->y, b->f[1],
                                   s->kept[b->kept.at][b->second][b->group],
                                   second_half(s, at, at));
        product_wait<1>(); // all but y
        turn_pass<GROUPS, kind::turns>(b->group);
        product_hold<STEP / 2>(b->x);
        if (!kind::late) {
            product_hold<D / 2>(b->sum);
            product_hold<kind::both ? D / 2 : 0>(b->sum_p);
            done_with(&s->swept_empty[before]);
        }
        if (over) {
            give_tiles(b, s);
            finish_item(b, p, s);
            take_rows(b);
        }
    }
}

/* The steps of an item that the group sees from `at` on, and those of the next
 * ones as far as they follow. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void sweep_item(desk<D, KEYS, EXACT> *b, const backward_params *p,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    typedef desk<D, KEYS, EXACT> kind;
    while (at >= 0) {
        load_words(b, p, s, at);
        turn_take<GROUPS, kind::turns>(b->group);
        issue_pairs<D, kind::held>(
            b->x, b->f[0], s->kept[b->kept.at][0][b->group], s->swept[at][0]);
        issue_pairs<D, kind::held>(b->y, b->f[1],
                                   s->kept[b->kept.at][b->second][b->group],
                                   second_half(s, at, at));
        product_wait<1>(); // all but y
        turn_pass<GROUPS, kind::turns>(b->group);
        product_hold<STEP / 2>(b->x);
        give_tiles(b, s);
        int before = sweep_steps<D, GROUPS, STAGES, KEYS, EXACT>(b, p, s, at);
        issue_sum<D>(b->sum, b->w_ds, s->swept[before][0]);
        bool over = b->entered || b->steps.flags & LAST;
        if (kind::enters && over && !b->entered)
            enter_item(b, p, s);
        if (!over) { // the next step is not for this group
            turn_take<GROUPS, kind::turns>(b->group);
            turn_pass<GROUPS, kind::turns>(b->group);
        }
        product_wait<0>();
        product_hold<D / 2>(b->sum);
        product_hold<kind::both ? D / 2 : 0>(b->sum_p);
        done_with(&s->swept_empty[before]);
        if (over)
            return;
        at = skip_steps<D, GROUPS, STAGES, KEYS, EXACT>(s, &b->steps, b->group,
                                                        true);
    }
}

template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void compute_items(const backward_params *p,
                             backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    typedef desk<D, KEYS, EXACT> kind;
    desk<D, KEYS, EXACT> b = {};
    // Through a shuffle, so that the compiler sees that a warp agrees on it and
    // keeps what follows from it (the descriptors) in uniform registers.
    b.group = __shfl_sync(~0u, (int)threadIdx.x / GROUP - 1, 0);
    b.t = threadIdx.x % 4;
    b.row =
        b.group * GROUP_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    b.scale = p->scale * LOG2_E;
    b.storing = -1;

    // Group 0 has the first turn.
    if (b.group == GROUPS - 1)
        turn_pass<GROUPS, kind::turns>(b.group);
    bool more = begin_item(&b, p, s);
    while (more) {
        take_rows(&b);
        take_tiles(&b, s);
        int at = skip_steps<D, GROUPS, STAGES, KEYS, EXACT>(s, &b.steps,
                                                            b.group, false);
        if (kind::weights)
            sweep_weights<D, GROUPS, STAGES, KEYS, EXACT>(&b, p, s, at);
        else if (keeping<D, KEYS>::split)
            sweep_wide<D, GROUPS, STAGES, KEYS, EXACT>(&b, p, s, at);
        else
            sweep_item<D, GROUPS, STAGES, KEYS, EXACT>(&b, p, s, at);
        give_tiles(&b, s);
        if (kind::enters && !b.entered)
            enter_item(&b, p, s);
        bool entered = b.entered;
        finish_item(&b, p, s);
        if (!entered) {
            ring_next(&b.items, 2);
            ring_next(&b.kept, keeping<D, KEYS>::buffers);
            if (D > 128)
                give_buffer(&b, s); // the only one
            more = begin_item(&b, p, s);
        }
    }
    if (threadIdx.x % 32 == 0)
        store_done();
}

template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
__global__ void __launch_bounds__(GROUP *(GROUPS + 1), 1)
    attention_backward(const __grid_constant__ backward_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    backward_shared<D, GROUPS, STAGES, KEYS> *s =
        (backward_shared<D, GROUPS, STAGES, KEYS> *)memory;
    const int warps = GROUPS * 4; // that compute
    const bool split = keeping<D, KEYS>::split;

    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(&s->item_full[i], 1);
            barrier_init(&s->item_empty[i], warps * WARP_ARRIVALS + 2);
            tensor_map_prefetch(&p.kept[i]);
            tensor_map_prefetch(&p.swept[i]);
            tensor_map_prefetch(&p.grad[i]);
        }
        for (int i = 0; i < GROUPS * keeping<D, KEYS>::buffers; i++) {
            barrier_init(&s->kept_full[0][0] + i, 1);
            barrier_init(&s->kept_empty[0][0] + i, 4 * WARP_ARRIVALS);
        }
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&s->swept_full[i], split ? 1 : 2);
            barrier_init(&s->swept_empty[i], warps * WARP_ARRIVALS);
        }
        for (int i = 0; split && i < STAGES - 1; i++) {
            barrier_init(&s->second_full[i], 1);
            barrier_init(&s->second_empty[i], warps * WARP_ARRIVALS);
        }
        barrier_init_done();
    }
    __syncthreads();
    // The kernel of dK and dV needs nothing of that of dQ, which is before it:
    // its blocks begin while the last ones of dQ still compute. (What both need
    // is there: those of dQ let others begin only when they have it.)
    if (!KEYS)
        grid_wait();
    grid_release();

    if (threadIdx.x < GROUP) {
        if (GROUPS > 1)
            registers_lower<GROUPS == 3 ? 32 : 24>();
        if (threadIdx.x < 32)
            load_items<D, GROUPS, STAGES, KEYS, EXACT>(&p, s);
        else if (threadIdx.x == 32)
            load_kept<D, GROUPS, STAGES, KEYS>(&p, s);
        else if (threadIdx.x == 64)
            load_second<D, GROUPS, STAGES, KEYS>(&p, s);
        else if (threadIdx.x >= 96 && !EXACT)
            store_empty<D, KEYS>(&p);
        // Whoever waits for this kernel waits for the one before, too.
        if (KEYS)
            grid_wait();
    } else {
        if (GROUPS > 1) // else all have what they need
            registers_raise<GROUPS == 3 ? 160 : 240>();
        compute_items<D, GROUPS, STAGES, KEYS, EXACT>(&p, s);
    }
}

/* `early`: brought up while the kernel before still runs. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
static cudaError_t launch(const backward_params *params, int blocks, bool early,
                          cudaStream_t stream)
{
    // The tiles' swizzle needs the 1024-byte alignment that a block's dynamic
    // shared memory has when there is no other.
    const int bytes = sizeof(backward_shared<D, GROUPS, STAGES, KEYS>);
    static_assert(bytes <= 227 * 1024, "shared memory of a block");
    cudaError_t status = cudaFuncSetAttribute(
        attention_backward<D, GROUPS, STAGES, KEYS, EXACT>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status)
        return status;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(GROUP * (GROUPS + 1));
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    return cudaLaunchKernelEx(
        &config, attention_backward<D, GROUPS, STAGES, KEYS, EXACT>, *params);
}

#endif
