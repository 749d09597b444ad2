/* SPDX-License-Identifier: Apache-2.0 */
/* decode_loading.h - the part of attention_decode.cu that loads: what the
 * threads of a block share, and the warp that fills it. */
#ifndef BT_CUDA_DECODE_LOADING_H
#define BT_CUDA_DECODE_LOADING_H

extern "C" {
#include "kernels/cuda/decode.h"
}
#include "kernels/cuda/warp.h"

enum {
    TILE = 64,       /* keys */
    WARPS = BT_QUAD, /* that compute */
    READERS = WARPS * 32,
    THREADS = 3 * READERS, /* with those that gather, and the loader */
    ITEMS = 4,             /* that are known ahead */
    ENTRIES = 64,          /* that are looked at together */
    PANEL = 64,            /* columns of a swizzled panel */
    FLYING = 3,            /* tiles under way, of heads of 128 */
    BARRIER_QUAD = 1,
    BARRIER_GATHER = 2
};

typedef struct decode_params {
    CUtensorMap k, v;
    const bt_decode_item *items;
    const bt_decode_entry *entries;
    const uint64_t *bits;
    uint32_t *ticket, *arrivals;
    float *partial;
    float2 *partial_base;
    const uint16_t *q;
    uint16_t *out;
    float *lse;
    size_t q_token, q_head, out_token, out_head;
    int count; /* items times key heads */
    int lines; /* of 128 bytes, of the list: items, entries and bits */
    int heads, kv_heads, group, unit_rows;
    int page_shift; /* a page is 2^page_shift tiles */
    float scale;    /* times log2(e): scores become base-2 logarithms */
} decode_params;

/* What the loader tells the others about the item that it loads. */
typedef struct decode_work {
    bt_decode_item item; /* rows < 0: no more */
    int head;            /* key head */
} decode_work;

/* What a tile came to. In row r, column c is at c ^ bank_shift(r). */
template <int D, int ROWS> struct tile_result {
    float o[ROWS][D];
    float base[ROWS], sum[ROWS];
};

/* So that the rows of a warp's store lie in different banks. */
BT_DEVICE int bank_shift(int row)
{
    return row % 4 * 8;
}

template <int D, int ROWS, int STAGES> struct decode_shared {
    uint16_t k[STAGES][TILE * D];
    uint16_t v[STAGES][TILE * D];
    tile_result<D, ROWS> result[BT_QUAD];
    uint16_t q[ITEMS][ROWS][D + 8]; /* + 8: rows in different banks */
    decode_work work[ITEMS];
    uint64_t work_full[ITEMS], work_done[ITEMS], work_empty[ITEMS];
    uint64_t k_full[STAGES], k_empty[STAGES];
    uint64_t v_full[STAGES], v_empty[STAGES];
    uint64_t result_empty;
    bt_decode_entry entries[ENTRIES];
    int last; /* whether this block finished the last item of a unit */
};

/* A place in a ring of `count` buffers, and the parity of the round. */
typedef struct ring {
    int at;
    uint32_t parity;
} ring;

BT_DEVICE ring ring_ahead(ring r, int steps, int count)
{
    r.at += steps;
    if (r.at >= count) {
        r.at -= count;
        r.parity ^= 1;
    }
    return r;
}

/* One warp is done with a buffer. */
BT_DEVICE void done_with(uint64_t *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty);
}

/* The loader's place in the ring of tiles. */
typedef struct loader {
    ring place;
    ring oldest; /* of the tiles that are under way */
    int flying;  /* how many those are, at most */
    uint64_t policy;
} loader;

template <int D, int ROWS, int STAGES>
BT_DEVICE void load_tile(const decode_params *p,
                         decode_shared<D, ROWS, STAGES> *s, loader *l, int head,
                         int block)
{
    const int most = FLYING * 128 / D; // tiles under way
    int page = block >> p->page_shift;
    int key = (block - (page << p->page_shift)) * TILE, at = l->place.at;

    if (l->flying == most) {
        barrier_wait(&s->v_full[l->oldest.at], l->oldest.parity);
        l->oldest = ring_ahead(l->oldest, 1, STAGES);
        l->flying--;
    }
    barrier_wait(&s->k_empty[at], l->place.parity ^ 1);
    barrier_arrive_expect(&s->k_full[at], sizeof(s->k[0]));
#pragma unroll
    for (int panel = 0; panel < D / PANEL; panel++)
        copy_page(s->k[at] + panel * TILE * PANEL, &p->k, panel * PANEL, key,
                  head, page, &s->k_full[at], l->policy);
    barrier_wait(&s->v_empty[at], l->place.parity ^ 1);
    barrier_arrive_expect(&s->v_full[at], sizeof(s->v[0]));
#pragma unroll
    for (int panel = 0; panel < D / PANEL; panel++)
        copy_page(s->v[at] + panel * TILE * PANEL, &p->v, panel * PANEL, key,
                  head, page, &s->v_full[at], l->policy);
    l->place = ring_ahead(l->place, 1, STAGES);
    l->flying++;
}

/* An item as the loader knows it: its first words lane by lane, and its tiles.
 */
typedef struct record {
    int index; /* the item and the head; from `count` on: there is none */
    int word;
    bt_decode_tile tile;
} record;

BT_DEVICE record fetch(const decode_params *p, int index)
{
    const int words = offsetof(bt_decode_item, tiles) / sizeof(int);
    int lane = threadIdx.x % 32;
    record r = { index, -1, { -1, -1 } };
    if (index < p->count) {
        const bt_decode_item *item = p->items + index / p->kv_heads;
        r.word = lane < words ? ((const int *)item)[lane] : 0;
        r.tile = item->tiles[lane];
    }
    return r;
}

/* Hand an item to the others, with its queries; one whose words are -1 is the
 * end. Query head h of query i is row i * group + h of the unit. */
template <int D, int ROWS, int STAGES>
BT_DEVICE void tell(const decode_params *p, decode_shared<D, ROWS, STAGES> *s,
                    ring work, record r, int head)
{
    const int words = offsetof(bt_decode_item, tiles) / sizeof(int);
    int lane = threadIdx.x % 32, query = lane / p->group, at = work.at;
    int first = __shfl_sync(~0u, r.word, 0);
    int rows = max(__shfl_sync(~0u, r.word, 1), 0) * p->group;

    barrier_wait(&s->work_empty[at], work.parity ^ 1);
    if (lane < words)
        ((int *)&s->work[at].item)[lane] = r.word;
    s->work[at].item.tiles[lane] = r.tile;
    s->work[at].head = head;
    __syncwarp();
    if (lane == 0)
        barrier_arrive_expect(&s->work_full[at], rows * D * 2);
    __syncwarp();
    if (lane < rows)
        copy_bytes(s->q[at][lane],
                   p->q + (first + query) * p->q_token +
                       (head * p->group + lane - query * p->group) * p->q_head,
                   D * 2, &s->work_full[at]);
}

/* The block's share of the list comes into the L2. */
BT_DEVICE void prefetch_list(const decode_params *p)
{
    for (int i = blockIdx.x * 32 + threadIdx.x % 32; i < p->lines;
         i += gridDim.x * 32)
        prefetch((const char *)p->items + (size_t)i * 128);
}

/* Have the tiles of an item loaded. The next item is drawn as late as its
 * arrival can still be hidden, for the sake of the balance, and is returned. */
template <int D, int ROWS, int STAGES>
BT_DEVICE record load_item(const decode_params *p,
                           decode_shared<D, ROWS, STAGES> *s, loader *l,
                           bt_decode_tile tile, int head)
{
    const int ahead = 1024 / D; // tiles: 256 KB
    int lane = threadIdx.x % 32;
    uint32_t todo = __ballot_sync(~0u, tile.block >= 0), drawn = 0;
    int left = __popc(todo), draw = min(left, ahead), ask = max(draw - 3, 1);
    record next = {};
    for (; left > 0; left--, todo &= todo - 1) {
        int block = __shfl_sync(~0u, tile.block, __ffs((int)todo) - 1);
        if (lane == 0 && left == draw)
            drawn = atomicAdd(p->ticket, 1);
        if (left == ask)
            next = fetch(p, gridDim.x + __shfl_sync(~0u, drawn, 0));
        if (lane == 0)
            load_tile(p, s, l, head, block);
    }
    if (draw == 0) { // a unit that sees nothing
        drawn = lane == 0 ? atomicAdd(p->ticket, 1) : 0;
        next = fetch(p, gridDim.x + __shfl_sync(~0u, drawn, 0));
    }
    return next;
}

/* One warp runs this, one lane of it loads. */
template <int D, int ROWS, int STAGES>
BT_DEVICE void load_items(const decode_params *p,
                          decode_shared<D, ROWS, STAGES> *s)
{
    loader l = { {}, {}, 0, policy_once() };
    ring work = {};

    // The first item is the block's own; each next one is drawn.
    record r = fetch(p, blockIdx.x);
    prefetch_list(p);
    grid_wait(); // the list was there before, the rest is from now on
    while (r.index < p->count) {
        int head = r.index % p->kv_heads;
        tell(p, s, work, r, head);
        work = ring_ahead(work, 1, ITEMS);
        r = load_item(p, s, &l, r.tile, head);
    }
    tell(p, s, work, r, 0);
    // The last block to be done makes the ticket ready for the next launch.
    if (threadIdx.x % 32 == 0) {
        uint32_t last = gridDim.x - 1;
        __threadfence();
        if (atomicInc(p->ticket + 1, last) == last)
            p->ticket[0] = 0;
    }
}

#endif
