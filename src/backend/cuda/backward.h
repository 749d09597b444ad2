/* SPDX-License-Identifier: Apache-2.0 */
/* backward.h - the half of attention_backward.cu that loads: what the threads
 * of a block share, and those of them that fill it. */
#ifndef BT_CUDA_BACKWARD_H
#define BT_CUDA_BACKWARD_H

#include "backend/cuda/bias_score.h"
#include "backend/cuda/tiles.h"

#include <cuda_runtime.h>

enum { STEP = BT_STEP };

/* What a kernel is for, as bits: tiles whose results were not finite, see
 * attention_backward.cu; scores with a softcap or a bias. */
enum { FIXUP = 1, BIASED = 2, TENSOR = 4 };

/* Named barriers; 0 is __syncthreads. */
enum { BARRIER_FILTER = 1, BARRIER_ORDER = 2, BARRIER_GROUP = 5 };

/* Beside the flags of a step: it is the item's last one; and its stage. */
enum { LAST = 1 << 16, STAGE = 1 << 20 };

#define LOG2_E 1.44269504088896341f

/* Statistics of the rows of a step over queries, in base 2. For other steps
 * FIXUP has NaN in lse for rows that are not finite and 0 for others. */
typedef struct step_stats {
    float lse[STEP], delta[STEP];
} step_stats;

typedef struct backward_params {
    CUtensorMap stationary[2], streamed[2], grad[2];
    CUtensorMap out; /* dQ */
    const bt_loop_tile *tiles;
    const bt_loop_run *runs;
    const uint64_t *bits;
    const float *lse;              /* dQ: (rows, heads), as delta */
    float *delta;                  /* see backward_delta.h */
    step_stats *row_stats;         /* (heads, places / STEP) */
    const bt_loop_step *step_list; /* dQ: (steps) */
    uint32_t *tile_counter;
    unsigned char *nonfinite_fixup;
    /* In five products: see backward_fused.h. */
    const int32_t *ranks;
    int *added;    /* (heads, steps, dq_counters) tiles that have added to
                      a step's dQ */
    float *dq_sum; /* (heads, steps, STEP * D) */
    int *bad; /* (heads of the stationary side) some result is not finite */
    uint16_t *to[2];
    size_t to_token[2], to_head[2];
    int steps;                   /* over queries, of one head */
    int tile_count, empty_count; /* tiles that see something, and nothing */
    int heads;                   /* of the stationary side */
    int inner;                   /* heads of the streamed side for each: KEYS */
    int share; /* stationary heads that share a streamed one: dQ */
    int l2_heads, items;
    int head_dim; /* columns that are real; the others read as zero */
    float scale;
    bt_cuda_bias bias;           /* BIASED */
    const int32_t *step_anchors; /* KEYS: (steps, STEP) */
    /* In five products, again. */
    bt_cuda_item_range ranges[2];
    int *met;         /* (split tiles, heads, inner, warps) see merge_heads */
    float *head_sums; /* (split tiles, heads, (inner + 1) / 2, warps, sums) */
} backward_params;

/* rowsum(dO * O), by a kernel of its own (attention_delta.cu), once for each
 * row and once in the order of the steps over queries. */
typedef struct delta_params {
    const uint16_t *out, *dout;
    const float *lse; /* (rows, heads) */
    const bt_loop_step *steps;
    float *delta;          /* (rows, heads) */
    step_stats *row_stats; /* (heads, steps) */
    int *bad;              /* set to 0 */
    size_t out_token, out_head;
    int heads, head_dim, bad_count;
} delta_params;

/* From the sums of dQ to dQ. */
typedef struct finish_params {
    const float *dq_sum;
    const bt_loop_step *step_list, *gaps; /* (steps), and rows in no step */
    const int32_t *dense;  /* (dense_count) steps that are summed */
    const int32_t *visits; /* (steps) tiles that add to a step */
    int *added, *bad;
    uint32_t *tile_counter;
    uint16_t *dq;
    size_t token, head; /* strides of dq */
    int heads, group, steps, dense_count, task_count, head_dim;
    int items; /* of the kernel that makes the sums */
    float scale;
} finish_params;

extern "C" cudaError_t bt_launch_delta(const delta_params *params, int width,
                                       size_t steps, cudaStream_t stream);

/* All kernels of a backward pass with heads over 128, but for dense documents
 * (attention_backward_large_head.cu). */
extern "C" cudaError_t bt_launch_backward_large_head(
    const delta_params *delta, int width, size_t steps,
    const backward_params *dq, int dq_blocks, const backward_params *dkv,
    int dkv_blocks, bt_bias_kind bias, cudaStream_t stream);

/* Those, in five products, after delta (attention_backward_fused_large.cu). */
extern "C" cudaError_t
bt_launch_backward_fused_large(int width, const backward_params *p, int blocks,
                               const finish_params *f, int finish_blocks,
                               cudaStream_t stream);

/* An item as the loader hands it to the other warps. */
typedef struct backward_work {
    int item; /* -1: no more */
    int row, rows, head;
    int run, steps;
} backward_work;

/* The results of a kernel: KEYS; dQ is false. Large heads leave registers for
 * one sum, so dK and dV have a kernel each. */
enum { MAKES_DQ = 0, MAKES_BOTH = 1, MAKES_DK = 2, MAKES_DV = 3 };

/* Where the stationary tiles are. dQ with heads of 128 has registers for them:
 * they are read once, and then their memory is free for those of the next item.
 * Otherwise there are two buffers, and gradients are stored through the one
 * whose item is done. Large heads have one buffer. */
template <int D, int KEYS> struct stationary_layout {
    static constexpr bool in_registers = D == 128 && !KEYS;
    static constexpr int buffers = in_registers || D > 128 ? 1 : 2;
    static constexpr int tensors = KEYS == MAKES_DV ? 1 : 2;
    /* The halves of a step have a pipeline each, and the second one has a stage
     * less: it is not needed while the sum runs. */
    static constexpr bool split = D > 128 && KEYS != MAKES_DV;
    static constexpr bool sums_rows = !KEYS && D <= 128; /* see makes_delta */
};

/* The kernel makes delta, which others read. */
template <int D, int KEYS, int MODE>
constexpr bool makes_delta = stationary_layout<D, KEYS>::sums_rows && !MODE;

template <int D, int GROUPS, int STAGES, int KEYS> struct backward_shared {
    typedef stationary_layout<D, KEYS> of;
    uint16_t stationary[of::buffers][of::tensors][GROUPS][GROUP_ROWS * D];
    uint16_t streamed[STAGES][of::split ? 1 : 2][STEP * D];
    /* sums_rows: tiles of O. held: gradients leave through it. split: the
     * second halves. */
    uint16_t more[of::sums_rows ? GROUPS
                  : of::split   ? STAGES - 1
                                : 1][of::sums_rows || of::split ? STEP * D : 8];
    step_stats rows[STAGES];
    int flags[STAGES]; /* see bt_loop_run */
    int bits[STAGES];
    backward_work item[2];
    uint64_t item_full[2], item_empty[2];
    uint64_t stationary_full[of::buffers][GROUPS],
        stationary_empty[of::buffers][GROUPS];
    uint64_t streamed_full[STAGES], streamed_empty[STAGES];
    uint64_t out_full[GROUPS], out_empty[GROUPS], delta_made[2];
    uint64_t second_full[of::split ? STAGES - 1 : 1];
    uint64_t second_empty[of::split ? STAGES - 1 : 1];
    /* BIASED: the first key of the step, or (KEYS) the head of its queries and
     * their anchors. */
    int step_from[STAGES];
    __align__(16) int32_t anchors[KEYS ? STAGES : 1][KEYS ? STEP : 4];
};

/* The second half of the step at `at`, or at `second` if it has a pipeline of
 * its own. */
template <int D, int GROUPS, int STAGES, int KEYS>
BT_DEVICE uint16_t *second_half(backward_shared<D, GROUPS, STAGES, KEYS> *s,
                                int at, int second)
{
    const bool split = stationary_layout<D, KEYS>::split;
    return split ? s->more[split ? second : 0] : s->streamed[at][!split];
}

/* ---- loading ----------------------------------------------------------- */

typedef struct backward_job {
    int item, head;
    bt_loop_tile tile;
} backward_job;

BT_DEVICE backward_job job_of(const backward_params *p, int item)
{
    backward_job j;
    int block = item / (p->tile_count * p->l2_heads);
    int left = item - block * p->tile_count * p->l2_heads;
    int width = min(p->l2_heads, p->heads - block * p->l2_heads);
    j.item = item;
    j.head = block * p->l2_heads + left % width;
    j.tile = p->tiles[left / width];
    return j;
}

/* A loader's place in the steps of an item. */
typedef struct step_cursor {
    bt_loop_run run;
    int head, inner; /* of the streamed side: the current one, and how many are
                        left */
    int next, left;  /* the next run; steps left with this head */
} step_cursor;

template <int KEYS>
BT_DEVICE step_cursor cursor_begin(const backward_params *p,
                                   const backward_work *w)
{
    step_cursor k;
    k.head = KEYS ? w->head * p->inner : w->head / p->share;
    k.inner = p->inner;
    k.next = w->run + 1;
    k.left = w->steps;
    k.run = p->runs[w->run];
    return k;
}

BT_DEVICE bool cursor_is_last(const step_cursor *k)
{
    return k->left == 1 && k->inner == 1;
}

/* On to the next step; false: there is none. */
BT_DEVICE bool cursor_advance(step_cursor *k, const backward_params *p,
                              const backward_work *w)
{
    k->run.row += STEP;
    k->run.padded_row += STEP;
    k->run.bits += k->run.bits >= 0;
    if (--k->left == 0) {
        if (--k->inner == 0)
            return false;
        k->head++;
        k->left = w->steps;
        k->next = w->run;
        k->run.count = 1;
    }
    if (--k->run.count == 0)
        k->run = p->runs[k->next++];
    return true;
}

/* The statistics of the rows of a step over queries, and their anchors. */
template <int MODE> BT_DEVICE int row_stats_bytes(void)
{
    return (int)(sizeof(step_stats) +
                 (MODE & BIASED ? STEP * sizeof(int32_t) : 0));
}

template <int KEYS, int MODE>
BT_DEVICE void load_row_stats(const backward_params *p, const step_cursor *k,
                              step_stats *to, int32_t *anchors, uint64_t *full)
{
    bulk_load(to, p->row_stats + k->head * p->steps + k->run.padded_row / STEP,
              sizeof(*to), full);
    if (MODE & BIASED)
        bulk_load(anchors, p->step_anchors + k->run.padded_row,
                  STEP * sizeof(int32_t), full);
}

/* Announce an item and load the first half of its steps. Claims the next item
 * from the tile counter, when given, shortly before the end. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE uint32_t load_item(const backward_params *p,
                             backward_shared<D, GROUPS, STAGES, KEYS> *s,
                             pipeline_state *items, pipeline_state *streamed,
                             const backward_job *j, uint32_t *tile_counter)
{
    const bool split = stationary_layout<D, KEYS>::split;
    uint32_t claimed = 0;
    backward_work w = { j->item, j->tile.row, j->tile.rows,
                        j->head, j->tile.run, j->tile.steps };

    barrier_wait(&s->item_empty[items->index], items->phase ^ 1);
    s->item[items->index] = w;
    barrier_arrive(&s->item_full[items->index]);
    pipeline_advance(items, 2);

    step_cursor k = cursor_begin<KEYS>(p, &w);
    do {
        int at = streamed->index;
        bool last = cursor_is_last(&k);
        uint64_t *full = &s->streamed_full[at];
        if (tile_counter && last)
            claimed = atomicAdd(tile_counter, 1);
        barrier_wait(&s->streamed_empty[at], streamed->phase ^ 1);
        s->flags[at] = k.run.flags | (last ? LAST : 0) | at * STAGE;
        s->bits[at] = k.run.bits;
        if (MODE & BIASED)
            s->step_from[at] = KEYS ? k.head : k.run.row;
        barrier_arrive_expect(
            full, sizeof(s->streamed[0][0]) +
                      (split && KEYS ? row_stats_bytes<MODE>() : 0));
        if (split && KEYS)
            load_row_stats<KEYS, MODE>(p, &k, &s->rows[at],
                                       s->anchors[KEYS ? at : 0], full);
        load_tile<D, STEP>(s->streamed[at][0], &p->streamed[0], k.head,
                           k.run.row, full);
        pipeline_advance(streamed, STAGES);
    } while (cursor_advance(&k, p, &w));
    return claimed;
}

/* One thread runs this: the other half of the steps, and the statistics of
 * their rows. One thread for both would be the bottleneck. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void load_second(const backward_params *p,
                           backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    const bool split = stationary_layout<D, KEYS>::split;
    const int stages = split ? STAGES - 1 : STAGES;
    const int bytes = sizeof(s->streamed[0][0]) +
                      (KEYS && !split ? row_stats_bytes<MODE>() : 0);
    pipeline_state items = {}, streamed = {};
    for (;; pipeline_advance(&items, 2)) {
        barrier_wait(&s->item_full[items.index], items.phase);
        backward_work w = s->item[items.index];
        if (w.item < 0)
            return;
        step_cursor k = cursor_begin<KEYS>(p, &w);
        do {
            int at = streamed.index;
            uint64_t *full =
                split ? &s->second_full[at] : &s->streamed_full[at];
            uint64_t *empty =
                split ? &s->second_empty[at] : &s->streamed_empty[at];
            barrier_wait(empty, streamed.phase ^ 1);
            barrier_arrive_expect(full, bytes);
            if (KEYS && !split)
                load_row_stats<KEYS, MODE>(p, &k, &s->rows[at],
                                           s->anchors[KEYS ? at : 0], full);
            load_tile<D, STEP>(second_half(s, at, at), &p->streamed[1], k.head,
                               k.run.row, full);
            pipeline_advance(&streamed, stages);
        } while (cursor_advance(&k, p, &w));
        barrier_arrive(&s->item_empty[items.index]);
    }
}

/* One warp runs this, one lane of it loads. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void load_items(const backward_params *p,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s,
                          block_share share)
{
    pipeline_state items = {}, streamed = {};
    int lane = threadIdx.x % 32, grid = share.count;

    if (MODE & FIXUP) {
        for (int base = share.index; base < p->items; base += 32 * grid) {
            int mine = base + lane * grid;
            bool bad = mine < p->items && item_is_bad(p->nonfinite_fixup, mine);
            uint32_t todo = __ballot_sync(~0u, bad);
            for (; lane == 0 && todo; todo &= todo - 1) {
                backward_job j =
                    job_of(p, base + (__ffs((int)todo) - 1) * grid);
                load_item<D, GROUPS, STAGES, KEYS, MODE>(p, s, &items,
                                                         &streamed, &j, NULL);
            }
            __syncwarp();
        }
    } else if (lane == 0) {
        // The first item follows from the block's index; the others are
        // claimed as late as the latency can still be hidden.
        int item = share.index;
        while (item < p->items) {
            backward_job j = job_of(p, item);
            item = grid + (int)load_item<D, GROUPS, STAGES, KEYS, MODE>(
                              p, s, &items, &streamed, &j, p->tile_counter);
        }
    }
    if (lane == 0) {
        barrier_wait(&s->item_empty[items.index], items.phase ^ 1);
        s->item[items.index].item = -1;
        barrier_arrive(&s->item_full[items.index]);
    }
}

/* makes_delta: a group's tile of O. */
template <int D, int GROUPS, int STAGES, int KEYS>
BT_DEVICE void load_out(const backward_params *p,
                        backward_shared<D, GROUPS, STAGES, KEYS> *s,
                        const backward_work *w, int g, uint32_t phase)
{
    barrier_wait(&s->out_empty[g], phase ^ 1);
    barrier_arrive_expect(&s->out_full[g], sizeof(s->more[0]));
    load_tile<D, GROUP_ROWS>(s->more[g], &p->out, w->head,
                             w->row + g * GROUP_ROWS, &s->out_full[g]);
}

/* One thread runs this: each group gets its stationary tiles as soon as it has
 * released the previous ones. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void load_stationary(const backward_params *p,
                               backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    const int tensors = stationary_layout<D, KEYS>::tensors;
    const int bytes = tensors * sizeof(s->stationary[0][0][0]);
    pipeline_state items = {}, stationary = {};
    for (;;
         pipeline_advance(&stationary, stationary_layout<D, KEYS>::buffers)) {
        barrier_wait(&s->item_full[items.index], items.phase);
        backward_work w = s->item[items.index];
        if (w.item < 0)
            return;
        for (int g = 0; g < GROUPS; g++) {
            uint64_t *full = &s->stationary_full[stationary.index][g];
            barrier_wait(&s->stationary_empty[stationary.index][g],
                         stationary.phase ^ 1);
            barrier_arrive_expect(full, bytes);
            for (int i = 0; i < tensors; i++)
                load_tile<D, GROUP_ROWS>(s->stationary[stationary.index][i][g],
                                         &p->stationary[i], w.head,
                                         w.row + g * GROUP_ROWS, full);
            if constexpr (makes_delta<D, KEYS, MODE>)
                load_out<D, GROUPS, STAGES, KEYS>(p, s, &w, g,
                                                  (uint32_t)items.index);
        }
        barrier_arrive(&s->item_empty[items.index]);
        pipeline_advance(&items, 2);
    }
}

/* An otherwise idle warp writes the gradients of tiles that see nothing. */
template <int D, int KEYS> BT_DEVICE void store_empty(const backward_params *p)
{
    const int chunks = D / 8; // of 16 bytes in a row
    const int first = KEYS == MAKES_DV, behind = KEYS & 1;
    for (int i = blockIdx.x; i < p->empty_count * p->heads; i += gridDim.x) {
        bt_loop_tile tile = p->tiles[p->tile_count + i / p->heads];
        size_t head = i % p->heads;
        for (int j = threadIdx.x % 32; j < tile.rows * chunks; j += 32) {
            size_t row = (size_t)(tile.row + j / chunks), chunk = j % chunks;
            if ((int)chunk * 8 >= p->head_dim)
                continue;
#pragma unroll
            for (int k = first; k <= behind; k++)
                *(uint4 *)(p->to[k] + row * p->to_token[k] +
                           head * p->to_head[k] + chunk * 8) =
                    make_uint4(0, 0, 0, 0);
        }
    }
}

#endif
