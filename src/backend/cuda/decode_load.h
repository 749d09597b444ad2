/* SPDX-License-Identifier: Apache-2.0 */
/* decode_load.h - the part of attention_decode.cu that loads: what the
 * threads of a block share, and the warp that fills it. */
#ifndef BT_CUDA_DECODE_LOAD_H
#define BT_CUDA_DECODE_LOAD_H

extern "C" {
#include "backend/cuda/decode.h"
}
#include "backend/cuda/chunk.h"
#include "backend/cuda/warp.h"

enum {
    TILE = 64,            /* keys */
    WARPS = 8,            /* that compute, and tiles of a block of keys */
    BLOCK = WARPS * TILE, /* keys */
    COMPUTE_THREADS = WARPS * 32,
    COMBINE_THREADS = 128,
    THREADS = COMPUTE_THREADS + COMBINE_THREADS + 128, /* with the loader */
    ROWS = BT_DECODE_ROWS,
    PANEL = 64, /* columns of a swizzled panel */
    IN_FLIGHT_BYTES =
        144 << 10, /* bytes under way, where all blocks are busy */
    BARRIER_COMPUTE = 1,
    BARRIER_COMBINE = 2
};

/* By the width of the heads. */
template <int D> struct kernel_traits {
    static constexpr bool large_head = D > 128;
    static constexpr int items = large_head ? 2 : 3; /* that are known ahead */
    static constexpr int stages = D == 64    ? 24
                                  : D == 128 ? 12
                                  : D == 192 ? 8
                                             : 5;      /* tiles of K or V */
    static constexpr bool all_arrive = stages < WARPS; /* see decode_tile.h */
    /* Keys come in blocks, blocks in the tiles of the softmax: one for each
       warp, or for each two of them. */
    static constexpr int warps_per_tile =
        large_head ? 1 : 2;                       /* warps of a softmax tile */
    static constexpr int columns = D / 8 / WARPS; /* times 8, of a warp */
};

typedef struct decode_params {
    CUtensorMap k, v;
    const bt_decode_item *items;
    const bt_decode_tile *tiles;
    const uint64_t *bits;
    uint32_t *tile_counter, *arrivals;
    float *partial;
    float2 *partial_base;
    const uint16_t *q;
    uint16_t *out;
    float *lse;
    size_t q_token, q_head, out_token, out_head;
    int count;   /* items times columns */
    int columns; /* of work: key heads times shares times parts */
    int lines;   /* of 128 bytes, of the list: items, tiles and bits */
    int heads, kv_heads, group, unit_rows;
    int head_splits,
        heads_per_split; /* units of a key head, and the query heads of one */
    int parts;           /* of a unit's output, of which each is done apart */
    int head_dim;        /* columns that are real; the others read as zero */
    int in_flight;       /* tiles under way, at most */
    int page_shift;      /* a page is 2^page_shift tiles */
    float scale;         /* times log2(e): scores become base-2 logarithms */
} decode_params;

/* What the loader tells the others about the item that it loads. */
typedef struct decode_work {
    bt_decode_item item; /* rows < 0: no more */
    int column;          /* of work */
    int part;            /* of the output */
    int head, heads;     /* query heads of the unit */
    bt_decode_tile tiles[BT_CHUNK_TILES];
} decode_work;

template <int D> struct decode_shared {
    typedef kernel_traits<D> of;
    uint16_t tile[of::stages][TILE * D]; /* of keys or of values */
    uint16_t q[of::items][ROWS][D + 8];  /* + 8: rows in different banks */
    uint16_t weights[ROWS][BLOCK + 8];   /* of a block of keys */
    float4 sum[WARPS][ROWS];             /* of a warp's weights, by thread */
    float2 top[WARPS][ROWS]; /* of a warp's scores: of the head, and of all */
    float correction[WARPS][ROWS]; /* by softmax tile, where a base moved */
    decode_work work[of::items];
    uint64_t work_full[of::items], work_done[of::items], work_empty[of::items];
    uint64_t full[of::stages], empty[of::stages];
    int last; /* whether this block finished the last item of a unit */
};

/* A place in a ring of `count` buffers, and the parity of the round. */
typedef struct pipeline_state {
    int index;
    uint32_t phase;
} pipeline_state;

BT_DEVICE pipeline_state pipeline_state_at(uint32_t number, int count)
{
    return pipeline_state{ (int)(number % count), number / count & 1 };
}

/* One warp is done with a buffer. */
BT_DEVICE void consumer_release(uint64_t *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty);
}

/* ---- loading ------------------------------------------------------------ */

/* The loader's place in the ring of tiles. */
typedef struct loader {
    pipeline_state next;
    pipeline_state oldest; /* of the tiles that are under way */
    int in_flight;         /* how many those are, at most */
    uint64_t policy;
} loader;

BT_DEVICE void pipeline_advance(pipeline_state *r, int count)
{
    if (++r->index == count) {
        r->index = 0;
        r->phase ^= 1;
    }
}

/* `panels` panels of a tile, from `panel` on. */
template <int D>
BT_DEVICE void load_tile(const decode_params *p, decode_shared<D> *s, loader *l,
                         const CUtensorMap *map, int head, int block, int panel,
                         int panels)
{
    const int stages = kernel_traits<D>::stages;
    int page = block >> p->page_shift, at = l->next.index;
    int key = (block - (page << p->page_shift)) * TILE;

    if (l->in_flight == p->in_flight) {
        barrier_wait(&s->full[l->oldest.index], l->oldest.phase);
        pipeline_advance(&l->oldest, stages);
        l->in_flight--;
    }
    barrier_wait(&s->empty[at], l->next.phase ^ 1);
    barrier_arrive_expect(&s->full[at], panels * TILE * PANEL * 2);
    for (; panels > 0; panel++, panels--)
        tma_load_page(s->tile[at] + panel * TILE * PANEL, map, panel * PANEL,
                      key, head, page, &s->full[at], l->policy);
    pipeline_advance(&l->next, stages);
    l->in_flight++;
}

/* The tiles of a block of keys that are `seen`: their keys, then their values.
 * One lane runs this. */
template <int D>
BT_DEVICE void load_block(const decode_params *p, decode_shared<D> *s,
                          loader *l, const bt_decode_tile *tiles, uint32_t seen,
                          int column)
{
    int head = column / (p->head_splits * p->parts),
        panels = D / PANEL / p->parts;
    int panel = column % p->parts * panels; // of the values
#pragma unroll 1
    for (uint32_t todo = seen; todo; todo &= todo - 1)
        load_tile(p, s, l, &p->k, head, tiles[__ffs((int)todo) - 1].block, 0,
                  D / PANEL);
#pragma unroll 1
    for (uint32_t todo = seen; todo; todo &= todo - 1)
        load_tile(p, s, l, &p->v, head, tiles[__ffs((int)todo) - 1].block,
                  panel, panels);
}

/* An item as the loader knows it: its words lane by lane, and its tiles, of
 * each 32 one. */
typedef struct item_record {
    int index; /* the item and the column; from `count` on: there is none */
    int word;
    bt_decode_tile tile[2];
} item_record;

template <int D>
BT_DEVICE item_record fetch_item(const decode_params *p, int index)
{
    const int words = sizeof(bt_decode_item) / sizeof(int);
    const int tiles = BT_CHUNK / TILE;
    int lane = threadIdx.x % 32;
    item_record r = { index, -1, { { -1, -1 }, { -1, -1 } } };
    if (index < p->count) {
        int at = index / p->columns;
        r.word = lane < words ? ((const int *)(p->items + at))[lane] : 0;
#pragma unroll
        for (int i = 0; i < tiles / 32; i++)
            r.tile[i] = p->tiles[(size_t)at * tiles + i * 32 + lane];
    }
    return r;
}

/* Hand an item to the others, with its queries; one whose words are -1 is the
 * end. Query head h of query i is row i * heads + h of the unit. */
template <int D>
BT_DEVICE void publish_item(const decode_params *p, decode_shared<D> *s,
                            uint32_t number, item_record r)
{
    const int words = sizeof(bt_decode_item) / sizeof(int);
    int column = r.index % p->columns, unit = column / p->parts;
    int heads_per_split = unit % p->head_splits,
        head = unit / p->head_splits * p->group;
    int heads = min(p->heads_per_split,
                    p->group - heads_per_split * p->heads_per_split);
    int lane = threadIdx.x % 32;
    int first = __shfl_sync(~0u, r.word, 0);
    int rows = max(__shfl_sync(~0u, r.word, 1), 0) * heads;
    pipeline_state to = pipeline_state_at(number, kernel_traits<D>::items);
    decode_work *work = &s->work[to.index];

    barrier_wait(&s->work_empty[to.index], to.phase ^ 1);
    if (lane < words)
        ((int *)&work->item)[lane] = r.word;
#pragma unroll
    for (int i = 0; i < BT_CHUNK / TILE / 32; i++)
        work->tiles[i * 32 + lane] = r.tile[i];
    work->column = column;
    work->part = column % p->parts;
    work->head = head + heads_per_split * p->heads_per_split;
    work->heads = heads;
    __syncwarp();
    if (lane == 0)
        barrier_arrive_expect(&s->work_full[to.index], rows * p->head_dim * 2);
    __syncwarp();
    if (lane < rows)
        bulk_load(s->q[to.index][lane],
                  p->q + (first + lane / heads) * p->q_token +
                      (work->head + lane % heads) * p->q_head,
                  p->head_dim * 2, &s->work_full[to.index]);
}

/* The block's share of the list comes into the L2. */
BT_DEVICE void prefetch_list(const decode_params *p)
{
    for (int i = blockIdx.x * 32 + threadIdx.x % 32; i < p->lines;
         i += gridDim.x * 32)
        prefetch((const char *)p->items + (size_t)i * 128);
}

/* Have the tiles of an item loaded, block by block. The next item is drawn as
 * late as its arrival can still be hidden, for the sake of the balance, and is
 * returned. */
template <int D>
BT_DEVICE item_record load_item(const decode_params *p, decode_shared<D> *s,
                                loader *l, const decode_work *work,
                                const item_record *r)
{
    const int blocks = BT_CHUNK / BLOCK;
    int lane = threadIdx.x % 32, column = r->index % p->columns;
    uint32_t seen[2], claimed = 0;
    item_record next = {};
#pragma unroll
    for (int i = 0; i < 2; i++)
        seen[i] = __ballot_sync(~0u, r->tile[i].block >= 0);
#pragma unroll 1
    for (int b = 0; b < blocks; b++) {
        // Two blocks before the end it is drawn, then fetched.
        if (b == blocks - 2 && lane == 0)
            claimed = atomicAdd(p->tile_counter, 1);
        if (b == blocks - 1)
            next = fetch_item<D>(p, gridDim.x + __shfl_sync(~0u, claimed, 0));
        uint32_t mine = (b < 4 ? seen[0] : seen[1]) >> b % 4 * 8 & 0xff;
        if (lane == 0)
            load_block(p, s, l, work->tiles + b * WARPS, mine, column);
    }
    return next;
}

/* One warp runs this, one lane of it loads. */
template <int D>
BT_DEVICE void load_items(const decode_params *p, decode_shared<D> *s)
{
    loader l = { {}, {}, 0, policy_evict_first() };
    uint32_t number = 0;

    // The first item is the block's own; each next one is drawn.
    item_record r = fetch_item<D>(p, blockIdx.x);
    prefetch_list(p);
    grid_dependency_wait(); // the list was there before, the rest is from now
                            // on
    while (r.index < p->count) {
        const decode_work *work = &s->work[number % kernel_traits<D>::items];
        publish_item(p, s, number++, r);
        r = load_item(p, s, &l, work, &r);
    }
    publish_item(p, s, number, r);
    // The last block to be done makes the ticket ready for the next launch.
    if (threadIdx.x % 32 == 0) {
        uint32_t last = gridDim.x - 1;
        __threadfence();
        if (atomicInc(p->tile_counter + 1, last) == last)
            p->tile_counter[0] = 0;
    }
}

#endif
