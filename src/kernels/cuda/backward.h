/* SPDX-License-Identifier: Apache-2.0 */
/* backward.h - the half of attention_backward.cu that loads: what the threads
 * of a block share, and those of them that fill it. */
#ifndef BT_CUDA_BACKWARD_H
#define BT_CUDA_BACKWARD_H

#include "kernels/cuda/tiles.h"

#include <cuda_runtime.h>

enum { STEP = BT_STEP };

/* Named barriers; 0 is __syncthreads. */
enum { BARRIER_CLEAN = 1, BARRIER_TURN = 2, BARRIER_GROUP = 5 };

/* Beside the flags of a step: it is the item's last one; and its stage. */
enum { LAST = 1 << 16, STAGE = 1 << 20 };

#define LOG2_E 1.44269504088896341f

/* What is known of the rows of a step over queries, in base 2. For other steps
 * EXACT keeps in lse NaN for rows that are not finite and 0 for others. */
typedef struct step_rows {
    float lse[STEP], delta[STEP];
} step_rows;

typedef struct backward_params {
    CUtensorMap kept[2], swept[2], grad[2];
    const bt_sweep_tile *tiles;
    const bt_sweep *sweeps;
    const uint64_t *bits;
    const float *lse, *delta; /* dQ: (rows, heads) */
    const step_rows *known;   /* KEYS: (heads, places / STEP) */
    uint32_t *ticket;
    unsigned char *redo;
    /* In five products: see backward_fused.h. */
    const int32_t *ranks;
    int *added;    /* (heads, steps, 2) tiles that have added to the halves of
                      a step's dQ */
    float *dq_sum; /* (heads, steps, STEP * D) */
    int *bad;      /* (heads of the kept side) some result is not finite */
    uint16_t *to[2];
    size_t to_token[2], to_head[2];
    int steps;                   /* over queries, of one head */
    int tile_count, empty_count; /* tiles that see something, and nothing */
    int heads;                   /* of the kept side */
    int inner;                   /* heads of the swept side for each: KEYS */
    int share;                   /* kept heads that share a swept one: dQ */
    int band, items;
    int head_dim; /* columns that are real; the others read as zero */
    float scale;
} backward_params;

/* rowsum(dO * O), by a kernel of its own (attention_delta.cu), once for each
 * row and once in the order of the steps over queries. */
typedef struct delta_params {
    const uint16_t *out, *dout;
    const float *lse; /* (rows, heads) */
    const bt_sweep_step *steps;
    float *delta;     /* (rows, heads) */
    step_rows *known; /* (heads, steps) */
    int *bad;         /* set to 0 */
    size_t out_token, out_head;
    int heads, head_dim, bad_count;
} delta_params;

/* From the sums of dQ to dQ. */
typedef struct finish_params {
    const float *dq_sum;
    const bt_sweep_step *places, *gaps; /* (steps), and rows in none of them */
    int *added, *bad;
    uint32_t *ticket;
    uint16_t *dq;
    size_t token, head; /* strides of dq */
    int heads, group, steps, places_count, head_dim;
    float scale;
} finish_params;

extern "C" cudaError_t bt_launch_delta(const delta_params *params, int width,
                                       size_t steps, cudaStream_t stream);

/* All kernels of a backward pass with heads over 128, as wide as `width`
 * (attention_backward_wide.cu). */
extern "C" cudaError_t
bt_launch_backward_wide(const delta_params *delta, int width, size_t steps,
                        const backward_params *dq, int dq_blocks,
                        const backward_params *dkv, int dkv_blocks,
                        cudaStream_t stream);

/* What the loader tells the others about an item. */
typedef struct work {
    int item; /* -1: no more */
    int row, rows, head;
    int sweep, steps;
    int sweeps, visit;
} work;

/* What a kernel makes: KEYS, and false is dQ. Wide heads have registers for one
 * sum, so for them dK and dV have a kernel each. */
enum { MAKES_DQ = 0, MAKES_BOTH = 1, MAKES_DK = 2, MAKES_DV = 3 };

/* How the kept tiles lie. dQ with heads of 128 has registers for them (held):
 * they are read once, and then their memory is free for those of the next item.
 * Elsewhere there are two buffers, and gradients leave through the one whose
 * item is done. Wide heads have memory for one. */
template <int D, int KEYS> struct keeping {
    static constexpr bool held = D == 128 && !KEYS;
    static constexpr int buffers = held || D > 128 ? 1 : 2;
    static constexpr int tensors = KEYS == MAKES_DV ? 1 : 2;
    /* The halves of a step have a ring each, and the second one a stage less:
     * nobody needs it while the sum runs. */
    static constexpr bool split = D > 128 && KEYS != MAKES_DV;
};

template <int D, int GROUPS, int STAGES, int KEYS> struct backward_shared {
    typedef keeping<D, KEYS> of;
    uint16_t kept[of::buffers][of::tensors][GROUPS][GROUP_ROWS * D];
    uint16_t swept[STAGES][of::split ? 1 : 2][STEP * D];
    /* held: gradients leave through it. split: the second halves. */
    uint16_t more[of::held    ? GROUPS
                  : of::split ? STAGES - 1
                              : 1][of::held || of::split ? STEP * D : 8];
    step_rows rows[STAGES];
    int flags[STAGES]; /* see bt_sweep */
    int bits[STAGES];
    work item[2];
    uint64_t item_full[2], item_empty[2];
    uint64_t kept_full[of::buffers][GROUPS], kept_empty[of::buffers][GROUPS];
    uint64_t swept_full[STAGES], swept_empty[STAGES];
    uint64_t second_full[of::split ? STAGES - 1 : 1];
    uint64_t second_empty[of::split ? STAGES - 1 : 1];
};

/* The second half of the step at `at`, if it has a ring of its own at `second`.
 */
template <int D, int GROUPS, int STAGES, int KEYS>
BT_DEVICE uint16_t *second_half(backward_shared<D, GROUPS, STAGES, KEYS> *s,
                                int at, int second)
{
    const bool split = keeping<D, KEYS>::split;
    return split ? s->more[split ? second : 0] : s->swept[at][!split];
}

/* ---- loading ----------------------------------------------------------- */

typedef struct job {
    int item, head;
    bt_sweep_tile tile;
} job;

BT_DEVICE job job_of(const backward_params *p, int item)
{
    job j;
    int band = item / (p->tile_count * p->band);
    int rest = item - band * p->tile_count * p->band;
    int width = min(p->band, p->heads - band * p->band);
    j.item = item;
    j.head = band * p->band + rest % width;
    j.tile = p->tiles[rest / width];
    return j;
}

/* A loader's place in the steps of an item. */
typedef struct walk {
    bt_sweep sweep;
    int head, inner; /* of the swept side: the present one, and how many come */
    int next, left;  /* sweep to come; steps left with this head */
} walk;

template <int KEYS>
BT_DEVICE walk walk_begin(const backward_params *p, const work *w)
{
    walk k;
    k.head = KEYS ? w->head * p->inner : w->head / p->share;
    k.inner = p->inner;
    k.next = w->sweep + 1;
    k.left = w->steps;
    k.sweep = p->sweeps[w->sweep];
    return k;
}

BT_DEVICE bool walk_last(const walk *k)
{
    return k->left == 1 && k->inner == 1;
}

/* On to the next step; false: there is none. */
BT_DEVICE bool walk_on(walk *k, const backward_params *p, const work *w)
{
    k->sweep.row += STEP;
    k->sweep.place += STEP;
    k->sweep.bits += k->sweep.bits >= 0;
    if (--k->left == 0) {
        if (--k->inner == 0)
            return false;
        k->head++;
        k->left = w->steps;
        k->next = w->sweep;
        k->sweep.count = 1;
    }
    if (--k->sweep.count == 0)
        k->sweep = p->sweeps[k->next++];
    return true;
}

/* What is known of the rows of a step over queries. */
template <int KEYS>
BT_DEVICE void load_rows(const backward_params *p, const walk *k, step_rows *to,
                         uint64_t *full)
{
    copy_bytes(to, p->known + k->head * p->steps + k->sweep.place / STEP,
               sizeof(*to), full);
}

/* Announce an item and load the first half of its steps. Draws the next item
 * from the ticket, when given, shortly before the end. */
template <int D, int GROUPS, int STAGES, int KEYS>
BT_DEVICE uint32_t load_item(const backward_params *p,
                             backward_shared<D, GROUPS, STAGES, KEYS> *s,
                             ring *items, ring *swept, const job *j,
                             uint32_t *ticket)
{
    const bool split = keeping<D, KEYS>::split;
    uint32_t drawn = 0;
    work w = { j->item, j->tile.row,   j->tile.rows,
               j->head, j->tile.sweep, j->tile.steps };

    barrier_wait(&s->item_empty[items->at], items->parity ^ 1);
    s->item[items->at] = w;
    barrier_arrive(&s->item_full[items->at]);
    ring_next(items, 2);

    walk k = walk_begin<KEYS>(p, &w);
    do {
        int at = swept->at;
        bool last = walk_last(&k);
        uint64_t *full = &s->swept_full[at];
        if (ticket && last)
            drawn = atomicAdd(ticket, 1);
        barrier_wait(&s->swept_empty[at], swept->parity ^ 1);
        s->flags[at] = k.sweep.flags | (last ? LAST : 0) | at * STAGE;
        s->bits[at] = k.sweep.bits;
        barrier_arrive_expect(full,
                              sizeof(s->swept[0][0]) +
                                  (split && KEYS ? sizeof(s->rows[0]) : 0));
        if (split && KEYS)
            load_rows<KEYS>(p, &k, &s->rows[at], full);
        load_tile<D, STEP>(s->swept[at][0], &p->swept[0], k.head, k.sweep.row,
                           full);
        ring_next(swept, STAGES);
    } while (walk_on(&k, p, &w));
    return drawn;
}

/* One thread runs this: the other half of the steps, and what is known of their
 * rows. A thread that did it all would be the slowest of the block. */
template <int D, int GROUPS, int STAGES, int KEYS>
BT_DEVICE void load_second(const backward_params *p,
                           backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    const bool split = keeping<D, KEYS>::split;
    const int stages = split ? STAGES - 1 : STAGES;
    const int bytes =
        sizeof(s->swept[0][0]) + (KEYS && !split ? sizeof(s->rows[0]) : 0);
    ring items = {}, swept = {};
    for (;; ring_next(&items, 2)) {
        barrier_wait(&s->item_full[items.at], items.parity);
        work w = s->item[items.at];
        if (w.item < 0)
            return;
        walk k = walk_begin<KEYS>(p, &w);
        do {
            int at = swept.at;
            uint64_t *full = split ? &s->second_full[at] : &s->swept_full[at];
            uint64_t *empty =
                split ? &s->second_empty[at] : &s->swept_empty[at];
            barrier_wait(empty, swept.parity ^ 1);
            barrier_arrive_expect(full, bytes);
            if (KEYS && !split)
                load_rows<KEYS>(p, &k, &s->rows[at], full);
            load_tile<D, STEP>(second_half(s, at, at), &p->swept[1], k.head,
                               k.sweep.row, full);
            ring_next(&swept, stages);
        } while (walk_on(&k, p, &w));
        barrier_arrive(&s->item_empty[items.at]);
    }
}

/* One warp runs this, one lane of it loads. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void load_items(const backward_params *p,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    ring items = {}, swept = {};
    int lane = threadIdx.x % 32, grid = gridDim.x;

    if (EXACT) {
        for (int base = blockIdx.x; base < p->items; base += 32 * grid) {
            int mine = base + lane * grid;
            uint4 note = { 0, 0, 0, 0 };
            if (mine < p->items)
                note = ((const uint4 *)p->redo)[mine];
            bool bad = (note.x | note.y | note.z | note.w) != 0;
            uint32_t todo = __ballot_sync(~0u, bad);
            for (; lane == 0 && todo; todo &= todo - 1) {
                job j = job_of(p, base + (__ffs((int)todo) - 1) * grid);
                load_item<D, GROUPS, STAGES, KEYS>(p, s, &items, &swept, &j,
                                                   NULL);
            }
            __syncwarp();
        }
        if (lane == 0 && blockIdx.x == 0)
            *p->ticket = 0; // for the next launch: the first kernel is done
    } else if (lane == 0) {
        // The first item is the block's own; each next one is drawn as late
        // as its arrival can still be hidden, for the sake of the balance.
        int item = blockIdx.x;
        while (item < p->items) {
            job j = job_of(p, item);
            item = grid + (int)load_item<D, GROUPS, STAGES, KEYS>(
                              p, s, &items, &swept, &j, p->ticket);
        }
    }
    if (lane == 0) {
        barrier_wait(&s->item_empty[items.at], items.parity ^ 1);
        s->item[items.at].item = -1;
        barrier_arrive(&s->item_full[items.at]);
    }
}

/* One thread runs this: each group gets its kept tiles as soon as it is done
 * with those before. */
template <int D, int GROUPS, int STAGES, int KEYS>
BT_DEVICE void load_kept(const backward_params *p,
                         backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    const int tensors = keeping<D, KEYS>::tensors;
    const int bytes = tensors * sizeof(s->kept[0][0][0]);
    ring items = {}, kept = {};
    for (;; ring_next(&kept, keeping<D, KEYS>::buffers)) {
        barrier_wait(&s->item_full[items.at], items.parity);
        work w = s->item[items.at];
        if (w.item < 0)
            return;
        for (int g = 0; g < GROUPS; g++) {
            uint64_t *full = &s->kept_full[kept.at][g];
            barrier_wait(&s->kept_empty[kept.at][g], kept.parity ^ 1);
            barrier_arrive_expect(full, bytes);
            for (int i = 0; i < tensors; i++)
                load_tile<D, GROUP_ROWS>(s->kept[kept.at][i][g], &p->kept[i],
                                         w.head, w.row + g * GROUP_ROWS, full);
        }
        barrier_arrive(&s->item_empty[items.at]);
        ring_next(&items, 2);
    }
}

/* One warp has time: it writes the gradients of tiles that see nothing. */
template <int D, int KEYS> BT_DEVICE void store_empty(const backward_params *p)
{
    const int chunks = D / 8; // of 16 bytes in a row
    const int first = KEYS == MAKES_DV, behind = KEYS & 1;
    for (int i = blockIdx.x; i < p->empty_count * p->heads; i += gridDim.x) {
        bt_sweep_tile tile = p->tiles[p->tile_count + i / p->heads];
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
