/* SPDX-License-Identifier: Apache-2.0 */
/* forward.h - the part of attention_forward.cu that loads: the shared memory of
 * a thread block, and the threads that fill it. */
#ifndef BT_CUDA_FORWARD_H
#define BT_CUDA_FORWARD_H

#include "backend/cuda/bias_score.h"
#include "backend/cuda/chunk.h"
#include "backend/cuda/tiles.h"

#include <math.h>

enum { PAIR = BT_PAIR };

/* Named barriers; 0 is __syncthreads. */
enum { BARRIER_FILTER = 1, BARRIER_GROUP = 2, BARRIER_ORDER = 5 };

/* Tile sizes and stages by head size. Large heads leave room for few keys at a
 * time and for the queries of one item only. */
template <int D> struct kernel_traits {
    static constexpr bool large_head = D > 128;
    static constexpr int groups = D == 64 ? 3 : 2; /* that compute */
    static constexpr int rows = groups * GROUP_ROWS;
    static constexpr int queries = large_head ? 1 : 2; /* tiles of them */
    static constexpr int keys =
        large_head ? 64 : PAIR; /* in a tile of K or V */
    static constexpr int stages = D == 64 ? 4 : D == 192 ? 3 : 2;
    /* Of a thread's D / 8 times four floats, see forward_end.h. */
    static constexpr int acc_shared = D == 64 ? 4 : 5;
    /* Whether a group passes over the last pairs of an item of which it sees
     * nothing. */
    static constexpr bool passes = D == 64;
    static constexpr int prefetched = D == 128 ? 11 : D == 192 ? 8 : 0;
};

typedef struct forward_params {
    CUtensorMap q, k, v, o;
    const bt_work_tile *tiles;
    const bt_work_run *runs;
    const uint64_t *bits;
    uint32_t *tile_counter;
    unsigned char *nonfinite_fixup;
    float4 *chunk_acc;
    const int32_t *table, *start; /* PAGED: see bt_cuda_paged */
    uint16_t *out;
    float *lse;
    size_t out_token, out_head;
    int tile_count, empty_count; /* tiles that see something, and nothing */
    int heads, heads_per_kv, l2_heads, items;
    int head_dim; /* columns that are real; the others read as zero */
    int page_shift;
    float scale; /* times log2(e): scores become base-2 logarithms */
    bt_cuda_bias bias;
} forward_params;

/* An item as the loader hands it to the other warps. */
typedef struct work {
    int item; /* -1: no more */
    int row, rows, head;
    int tiles;  /* of keys */
    int hidden; /* see bt_work_tile */
    int pass;   /* FIXUP only */
} work;

/* And a tile of keys. */
typedef struct tile_info_t {
    int halves;      /* see bt_work_run; large heads: which one. -1: full */
    int chunk_start; /* a chunk, and not the first one of its item */
} tile_info_t;

template <int D> struct forward_shared {
    typedef kernel_traits<D> of;
    uint16_t q[of::queries][of::rows * D]; /* later the output, on its way */
    uint16_t k[of::stages][of::keys * D];
    uint16_t v[of::stages][of::keys * D];
    uint4 bits[of::stages][of::rows]; /* of a pair, 128 a row */
    /* By thread: base and sum of its rows in the chunk that has just ended, and
       in the chunks before, see forward_end.h. */
    float4 chunk_stats[of::groups * GROUP], chunk_acc[of::groups * GROUP];
    float4 acc_shared[of::acc_shared * of::groups * GROUP];
    tile_info_t tile_info[of::stages];
    work item[of::queries];
    uint64_t q_full[of::queries], q_empty[of::queries];
    uint64_t k_full[of::stages], k_empty[of::stages];
    uint64_t v_full[of::stages], v_empty[of::stages];
    int tile_key[of::stages]; /* BIAS: the first key */
};

/* Halves of a pair: bit 0 the first 64 keys, bit 1 the others. And whether a
 * chunk begins there. */
enum { FIRST = 1, SECOND = 2, BOTH = 3, CHUNK_START = 4 };

/* The loader's position. V follows one tile after K, across items too: tiles
 * are loaded in the order in which they are needed. */
typedef struct loader {
    pipeline_state q, k, v;
    int value_key, value_head;   /* of the V that is due; key -1: none */
    int value_seen, value_pages; /* its halves, and its pages */
    int pages;                   /* of the item: where they are in the table */
    int chunk;                   /* of the keys before; -1: a new item */
} loader;

/* The halves of a run's pairs that some row of the tile sees. */
BT_DEVICE int halves_seen(int halves)
{
    return halves < 0 ? BOTH : (halves | halves >> 2 | halves >> 4) & BOTH;
}

/* A tile of keys or of values. In pages, a half of it that nobody sees may have
 * no page, and is the other half again. */
template <int D, int PAGED>
BT_DEVICE void load_side(const forward_params *p, uint16_t *to,
                         const CUtensorMap *map, int head, int key, int pages,
                         int seen, uint64_t *full)
{
    const int keys = kernel_traits<D>::keys;
    if constexpr (!PAGED) {
        load_tile<D, keys>(to, map, head, key, full);
    } else {
#pragma unroll
        for (int h = 0; h < keys / 64; h++) {
            int half = keys == 64 || seen >> h & 1 ? h : h ^ 1;
            int block = key / 64 + half;
            int page = __ldg(p->table + pages + (block >> p->page_shift));
            int first = (block & ((1 << p->page_shift) - 1)) * 64;
#pragma unroll
            for (int panel = 0; panel < D / PANEL; panel++)
                tma_load_page(to + (panel * keys + h * 64) * PANEL, map,
                              panel * PANEL, first, head, page, full);
        }
    }
}

template <int D, int PAGED>
BT_DEVICE void load_values(const forward_params *p, forward_shared<D> *s,
                           loader *l)
{
    if (l->value_key < 0)
        return;
    uint64_t *full = &s->v_full[l->v.index];
    barrier_wait(&s->v_empty[l->v.index], l->v.phase ^ 1);
    barrier_arrive_expect(full, sizeof(s->v[0]));
    load_side<D, PAGED>(p, s->v[l->v.index], &p->v, l->value_head, l->value_key,
                        l->value_pages, l->value_seen, full);
    pipeline_advance(&l->v, kernel_traits<D>::stages);
    l->value_key = -1;
}

/* The next keys, and the values before them. */
template <int D, int PAGED, int BIAS>
BT_DEVICE void load_keys(const forward_params *p, forward_shared<D> *s,
                         loader *l, int head, int origin, int key, int bits,
                         int halves)
{
    uint64_t *full = &s->k_full[l->k.index];
    int chunk = (key - origin) / BT_FORWARD_CHUNK;
    barrier_wait(&s->k_empty[l->k.index], l->k.phase ^ 1);
    s->tile_info[l->k.index] =
        tile_info_t{ halves, l->chunk >= 0 && l->chunk != chunk };
    if (BIAS)
        s->tile_key[l->k.index] = key;
    l->chunk = chunk;
    if (bits >= 0) {
        barrier_arrive_expect(full, sizeof(s->k[0]) + sizeof(s->bits[0]));
        bulk_load(s->bits[l->k.index],
                  p->bits + (size_t)bits * kernel_traits<D>::rows * 2,
                  sizeof(s->bits[0]), full);
    } else {
        barrier_arrive_expect(full, sizeof(s->k[0]));
    }
    load_side<D, PAGED>(p, s->k[l->k.index], &p->k, head, key, l->pages,
                        halves_seen(halves), full);
    pipeline_advance(&l->k, kernel_traits<D>::stages);
    load_values<D, PAGED>(p, s, l);
    l->value_key = key;
    l->value_head = head;
    l->value_seen = halves_seen(halves);
    l->value_pages = l->pages;
}

/* An item as the loader reads it. */
typedef struct job {
    int item, head;
    bt_work_tile tile;
} job;

BT_DEVICE job job_of(const forward_params *p, int item)
{
    job j;
    int block = item / (p->tile_count * p->l2_heads);
    int left = item - block * p->tile_count * p->l2_heads;
    int width = min(p->l2_heads, p->heads - block * p->l2_heads);
    j.item = item;
    j.head = block * p->l2_heads + left % width;
    j.tile = p->tiles[left / width];
    return j;
}

/* How many tiles of keys an item has. */
template <int D>
BT_DEVICE int count_tiles(const forward_params *p, const bt_work_tile *tile)
{
    if constexpr (kernel_traits<D>::large_head) {
        int count = 0;
        for (int left = tile->pairs, at = tile->run; left > 0; at++) {
            bt_work_run run = p->runs[at];
            count += run.count * __popc(halves_seen(run.halves));
            left -= run.count;
        }
        return count;
    }
    return tile->pairs;
}

template <int D>
BT_DEVICE void load_queries(const forward_params *p, forward_shared<D> *s,
                            loader *l, const job *j, int pass)
{
    uint64_t *full = &s->q_full[l->q.index];
    int tiles = count_tiles<D>(p, &j->tile);
    barrier_wait(&s->q_empty[l->q.index], l->q.phase ^ 1);
    s->item[l->q.index] = work{ j->item, j->tile.row,    j->tile.rows, j->head,
                                tiles,   j->tile.hidden, pass };
    barrier_arrive_expect(full, sizeof(s->q[0]));
    load_tile<D, kernel_traits<D>::rows>(s->q[l->q.index], &p->q, j->head,
                                         j->tile.row, full);
    pipeline_advance(&l->q, kernel_traits<D>::queries);
}

/* One pair, by halves for large heads. Then the queries are loaded after the
 * first keys: they wait for the previous item, and so for its last values. */
template <int D, int PAGED, int BIAS>
BT_DEVICE void load_pair(const forward_params *p, forward_shared<D> *s,
                         loader *l, const job *j, const bt_work_run *run,
                         int pass, bool *first)
{
    int kv_head = j->head / p->heads_per_kv;
    if (!kernel_traits<D>::large_head)
        load_keys<D, PAGED, BIAS>(p, s, l, kv_head, j->tile.key, run->key,
                                  run->bits, run->halves);
    for (int h = 0; h < (kernel_traits<D>::large_head ? 2 : 0); h++) {
        if (!(halves_seen(run->halves) >> h & 1))
            continue;
        load_keys<D, PAGED, BIAS>(p, s, l, kv_head, j->tile.key,
                                  run->key + h * kernel_traits<D>::keys,
                                  run->bits, run->halves < 0 ? -1 : h);
        if (*first)
            load_queries(p, s, l, j, pass);
        *first = false;
    }
}

/* Claims the next item from the tile counter, when given, shortly before the
 * end. */
template <int D, int PAGED, int BIAS>
BT_DEVICE uint32_t load_item(const forward_params *p, forward_shared<D> *s,
                             loader *l, const job *j, int pass,
                             uint32_t *tile_counter)
{
    uint32_t claimed = 0;
    bool first = true;
    bt_work_tile tile = j->tile;
    bt_work_run run = p->runs[tile.run];

    l->chunk = -1;
    l->pages = PAGED ? p->start[tile.plan] : 0;
    if (!kernel_traits<D>::large_head)
        load_queries(p, s, l, j, pass);
    for (int left = tile.pairs, next = tile.run + 1; left > 0; left--) {
        if (tile_counter && left == 1)
            claimed = atomicAdd(tile_counter, 1);
        load_pair<D, PAGED, BIAS>(p, s, l, j, &run, pass, &first);
        run.key += PAIR;
        run.bits += run.bits >= 0;
        if (--run.count == 0 && left > 1)
            run = p->runs[next++];
    }
    return claimed;
}

/* One warp runs this, one lane of it loads. */
template <int D, int FIXUP, int PAGED, int BIAS>
BT_DEVICE void load_items(const forward_params *p, forward_shared<D> *s)
{
    loader l = { {}, {}, {}, -1, 0, 0, 0, 0, -1 };
    int lane = threadIdx.x % 32, grid = gridDim.x;

    if (FIXUP) {
        for (int base = blockIdx.x; base < p->items; base += 32 * grid) {
            int mine = base + lane * grid;
            bool bad = mine < p->items && item_is_bad(p->nonfinite_fixup, mine);
            uint32_t todo = __ballot_sync(~0u, bad);
            for (; lane == 0 && todo; todo &= todo - 1) {
                job j = job_of(p, base + (__ffs((int)todo) - 1) * grid);
                for (int pass = 0; pass < 3; pass++)
                    load_item<D, PAGED, BIAS>(p, s, &l, &j, pass, NULL);
            }
            __syncwarp();
        }
    } else if (lane == 0) {
        // The first item follows from the block's index; the others are
        // claimed as late as the latency can still be hidden.
        int item = blockIdx.x;
        while (item < p->items) {
            job j = job_of(p, item);
            item = grid + (int)load_item<D, PAGED, BIAS>(p, s, &l, &j, 0,
                                                         p->tile_counter);
        }
    }
    if (lane == 0) {
        load_values<D, PAGED>(p, s, &l);
        barrier_wait(&s->q_empty[l.q.index], l.q.phase ^ 1);
        s->item[l.q.index].item = -1;
        barrier_arrive(&s->q_full[l.q.index]);
    }
}

/* The other warps of the loading group write the tiles that see nothing. */
template <int D> BT_DEVICE void store_empty(const forward_params *p)
{
    const int chunks = D / 8; // of 16 bytes in a row
    for (int i = blockIdx.x; i < p->empty_count * p->heads; i += gridDim.x) {
        bt_work_tile tile = p->tiles[p->tile_count + i / p->heads];
        int head = i % p->heads;
        for (int j = threadIdx.x - 32; j < tile.rows * chunks;
             j += GROUP - 32) {
            size_t row = (size_t)(tile.row + j / chunks), chunk = j % chunks;
            if ((int)chunk * 8 >= p->head_dim)
                continue;
            *(uint4 *)(p->out + row * p->out_token + head * p->out_head +
                       chunk * 8) = make_uint4(0, 0, 0, 0);
            if (p->lse && chunk == 0)
                p->lse[row * p->heads + head] = -INFINITY;
        }
    }
}

#endif
