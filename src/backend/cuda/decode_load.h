/* SPDX-License-Identifier: Apache-2.0 */
/* decode_load.h - the part of attention_decode.cu that loads: the shared memory
 * of a thread block, and the warp that fills it. */
#ifndef BT_CUDA_DECODE_LOAD_H
#define BT_CUDA_DECODE_LOAD_H

extern "C" {
#include "backend/cuda/decode.h"
}
#include "backend/cuda/bias_score.h"
#include "backend/cuda/chunk.h"
#include "backend/cuda/warp.h"

/* attention_decode_short.cu has less of these, in smaller blocks. */
#ifndef BT_DECODE_WARPS
#define BT_DECODE_WARPS 8
#define BT_DECODE_UNIT_ROWS BT_DECODE_ROWS
#define BT_DECODE_ITEMS 3
#endif

enum {
    TILE = 64,               /* keys */
    WARPS = BT_DECODE_WARPS, /* compute warps, and tiles of a block of keys */
    BLOCK_BITS = (1 << WARPS) - 1,
    BLOCK = WARPS * TILE, /* keys */
    BLOCKS = BT_CHUNK / BLOCK,
    COMPUTE_THREADS = WARPS * 32,
    COMBINE_THREADS = 128,
    THREADS = COMPUTE_THREADS + COMBINE_THREADS + 128, /* with the loader */
    ROWS = BT_DECODE_UNIT_ROWS,
    PANEL = 64,                 /* columns of a swizzled panel */
    IN_FLIGHT_BYTES = 64 << 10, /* of loads, when every SM has work */
    BARRIER_COMPUTE = 1,
    BARRIER_COMBINE = 2
};

template <int D> struct kernel_traits {
    static constexpr bool large_head = D > 128;
    static constexpr int items =
        large_head ? 2 : BT_DECODE_ITEMS; /* work items in flight */
    static constexpr int stages = D == 64    ? 24
                                  : D == 128 ? 12
                                  : D == 192 ? 8
                                             : 5;      /* tiles of K or V */
    static constexpr bool all_arrive = stages < WARPS; /* see decode_tile.h */
    /* A softmax tile belongs to one compute warp, or to two. */
    static constexpr int warps_per_tile = large_head ? 1 : 2;
    static constexpr int columns = D / 8 / WARPS; /* of a warp, times 8 */
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
    int count;   /* of jobs: items times columns */
    int columns; /* units of an item (key heads times head_splits) times parts
                  */
    int lines;   /* of 128 bytes, of the list: items, tiles and bits */
    int heads, kv_heads, group, unit_rows;
    int head_splits; /* units of a key head, */
    int heads_per_split;
    int parts;         /* of a unit's output columns, each a job of its own */
    int head_dim;      /* real columns; the others read as zero */
    int in_flight;     /* tiles being loaded, at most */
    int page_shift;    /* a page is 2^page_shift tiles */
    bool early_reads;  /* see bt_cuda_pages */
    float scale;       /* times log2(e): scores become base-2 logarithms */
    bt_cuda_bias bias; /* its anchors are positions: rows count from key 0 */
} decode_params;

/* A job: an item (a chunk of keys), a unit of query heads, and a part of the
 * output's columns. There are several parts of 64 columns when SMs would be
 * idle otherwise; each of them computes all weights. */
typedef struct decode_job {
    int item, unit, part;
} decode_job;

BT_DEVICE decode_job job_at(const decode_params *p, int index)
{
    int column = index % p->columns;
    return decode_job{ index / p->columns, column / p->parts,
                       column % p->parts };
}

/* A work item as the loader hands it to the other warps. */
typedef struct decode_work {
    bt_decode_item item; /* rows < 0: no more */
    decode_job job;
    int column;      /* of p->columns: the job's unit and part */
    int head, heads; /* query heads of the unit */
    bt_decode_tile tiles[BT_CHUNK_TILES];
} decode_work;

template <int D> struct decode_shared {
    typedef kernel_traits<D> of;
    uint16_t q[of::items][ROWS][D + 8]; /* + 8: rows in different banks */
    uint16_t weights[ROWS][BLOCK + 8];  /* of a block of keys */
    float4 sum[WARPS][ROWS];            /* of a warp's weights, by thread */
    float2 top[WARPS][ROWS]; /* maxima of a warp's scores: see PROBE_KEYS */
    float correction[WARPS][ROWS]; /* by softmax tile, when a base moved */
    decode_work work[of::items];
    uint64_t work_full[of::items], work_done[of::items], work_empty[of::items];
    uint64_t full[of::stages], empty[of::stages];
    int last; /* whether this block finished the last item of a unit */
    /* Of K or V. The last member: a launch that needs fewer has no more. */
    alignas(1024) uint16_t tile[of::stages][TILE * D];
};

/* A stage of a ring of `count` buffers, and the phase of its barriers. */
typedef struct decode_pipeline_state {
    int index;
    uint32_t phase;
} decode_pipeline_state;

BT_DEVICE decode_pipeline_state pipeline_state_at(uint32_t number, int count)
{
    return decode_pipeline_state{ (int)(number % count), number / count & 1 };
}

BT_DEVICE void pipeline_advance(decode_pipeline_state *r, int count)
{
    if (++r->index == count) {
        r->index = 0;
        r->phase ^= 1;
    }
}

/* Whether a phase is complete. The answer takes as long as two products. */
BT_DEVICE bool barrier_test(uint64_t *barrier, uint32_t phase)
{
    uint32_t done;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}\n"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(phase)
                 : "memory");
    return done;
}

/* One lane of a warp that runs together. */
BT_DEVICE bool elect_lane(void)
{
    uint32_t elected;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "elect.sync _|p, -1;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}\n"
                 : "=r"(elected));
    return elected;
}

/* ---- loading ------------------------------------------------------------ */

typedef struct decode_loader {
    uint64_t policy;
    decode_pipeline_state to;     /* of the next tile, */
    decode_pipeline_state oldest; /* and of the one in_flight tiles before */
    uint32_t early;               /* see load_early */
} decode_loader;

/* Tiles of K or of V that a job loads: `panels` panels of 64 columns of a key
 * head, from `panel` on. */
typedef struct tile_source {
    const CUtensorMap *map;
    int head, panel, panels;
} tile_source;

/* Wait until the oldest tile is there and the next one's buffer is free. The
 * whole warp waits: one lane and a reconvergence would take twice as long. */
template <int D>
BT_DEVICE void wait_for_buffer(decode_shared<D> *s, const decode_loader *l)
{
    uint64_t *oldest = &s->full[l->oldest.index];
    uint64_t *empty = &s->empty[l->to.index];
    bool landed = barrier_test(oldest, l->oldest.phase);
    bool released = barrier_test(empty, l->to.phase ^ 1);
    if (!landed)
        barrier_wait(oldest, l->oldest.phase);
    if (!released)
        barrier_wait(empty, l->to.phase ^ 1);
}

/* Load the next tile, by one lane. */
template <int D>
BT_DEVICE void load_tile(decode_shared<D> *s, const decode_loader *l,
                         tile_source from, int key, int page)
{
    uint64_t *full = &s->full[l->to.index];
    uint16_t *to = s->tile[l->to.index] + from.panel * TILE * PANEL;
    barrier_arrive_expect(full, from.panels * TILE * PANEL * 2);
#pragma unroll
    for (int i = 0; i < D / PANEL; i++)
        if (i < from.panels)
            tma_load_page(to + i * TILE * PANEL, from.map,
                          (from.panel + i) * PANEL, key, from.head, page, full,
                          l->policy);
}

/* Load the visible tiles of a block, of K or of V. Lane `lane` + i has the
 * place of tile i. The whole warp runs this loop, so addresses are in uniform
 * registers, where the copy engine needs them. Lanes with a tile each would be
 * served one after the other, and all wait for the slowest one's buffer. */
template <int D>
BT_DEVICE void load_block(const decode_params *p, decode_shared<D> *s,
                          decode_loader *l, tile_source from, int tiles,
                          int lane, uint32_t seen)
{
    const int stages = kernel_traits<D>::stages;
#pragma unroll 1
    for (int i = 0; i < WARPS; i++) {
        if (!(seen >> i & 1))
            continue;
        int block = __shfl_sync(~0u, tiles, lane + i);
        int page = block >> p->page_shift;
        int key = (block - (page << p->page_shift)) * TILE;
        wait_for_buffer(s, l);
        if (elect_lane())
            load_tile(s, l, from, key, page);
        pipeline_advance(&l->to, stages);
        pipeline_advance(&l->oldest, stages);
    }
}

/* A job as the loader fetches it: the item's words, one a lane, and its tiles,
 * two a lane. */
typedef struct job_record {
    int index; /* p->count or more: there is none */
    int word;
    bt_decode_tile tile[2];
} job_record;

BT_DEVICE job_record fetch_job(const decode_params *p, int index)
{
    const int words = sizeof(bt_decode_item) / sizeof(int);
    const int tiles = BT_CHUNK / TILE;
    int lane = threadIdx.x % 32;
    job_record r = { index, -1, { { -1, -1 }, { -1, -1 } } };
    if (index < p->count) {
        int at = job_at(p, index).item;
        r.word = lane < words ? ((const int *)(p->items + at))[lane] : 0;
#pragma unroll
        for (int i = 0; i < tiles / 32; i++)
            r.tile[i] = p->tiles[(size_t)at * tiles + i * 32 + lane];
    }
    return r;
}

/* The index of the next job, in lane 0. The first one of a thread block is that
 * of its own index. */
BT_DEVICE uint32_t claim_job(const decode_params *p)
{
    return threadIdx.x % 32 == 0 ? gridDim.x + atomicAdd(p->tile_counter, 1)
                                 : 0;
}

/* The query heads of a job: the first one, and how many. */
BT_DEVICE int job_heads(const decode_params *p, decode_job job, int *heads)
{
    int split = job.unit % p->head_splits * p->heads_per_split;
    *heads = min(p->heads_per_split, p->group - split);
    return job.unit / p->head_splits * p->group + split;
}

/* A warp writes down a job. Words of -1 mark the end. */
BT_DEVICE void write_work(const decode_params *p, decode_work *work,
                          job_record r)
{
    const int words = sizeof(bt_decode_item) / sizeof(int);
    decode_job job = job_at(p, r.index);
    int lane = threadIdx.x % 32, heads;
    if (lane < words)
        ((int *)&work->item)[lane] = r.word;
#pragma unroll
    for (int i = 0; i < BT_CHUNK / TILE / 32; i++)
        work->tiles[i * 32 + lane] = r.tile[i];
    work->job = job;
    work->column = job.unit * p->parts + job.part;
    work->head = job_heads(p, job, &heads);
    work->heads = heads;
    __syncwarp();
}

/* Hand a job to the other warps, with its queries. Query head h of query i is
 * row i * heads + h of the unit. */
template <int D>
BT_DEVICE void publish_job(const decode_params *p, decode_shared<D> *s,
                           uint32_t number, job_record r)
{
    int heads, head = job_heads(p, job_at(p, r.index), &heads);
    int lane = threadIdx.x % 32;
    int first = __shfl_sync(~0u, r.word, 0);
    int rows = max(__shfl_sync(~0u, r.word, 1), 0) * heads;
    decode_pipeline_state to =
        pipeline_state_at(number, kernel_traits<D>::items);

    barrier_wait(&s->work_empty[to.index], to.phase ^ 1);
    write_work(p, &s->work[to.index], r);
    if (lane == 0)
        barrier_arrive_expect(&s->work_full[to.index], rows * p->head_dim * 2);
    else if (WARP_ARRIVALS > 1)
        barrier_arrive(&s->work_full[to.index]);
    __syncwarp();
    if (lane < rows)
        bulk_load(s->q[to.index][lane],
                  p->q + (first + lane / heads) * p->q_token +
                      (head + lane % heads) * p->q_head,
                  p->head_dim * 2, &s->work_full[to.index]);
}

/* Bring the block's share of the list into the L2. */
BT_DEVICE void prefetch_list(const decode_params *p)
{
    for (int i = blockIdx.x * 32 + threadIdx.x % 32; i < p->lines;
         i += gridDim.x * 32)
        prefetch((const char *)p->items + (size_t)i * 128);
}

/* Bring the first tiles of a job into the L2 while the grid before this one
 * still runs: lanes 0 to 7 have one of K each, lanes 8 to 15 one of V. */
template <int D>
BT_DEVICE void prefetch_job(const decode_params *p, job_record r)
{
    int lane = threadIdx.x % 32;
    int block = __shfl_sync(~0u, r.tile[0].block, lane % WARPS);
    if (lane >= 2 * WARPS || block < 0)
        return;
    decode_job job = job_at(p, r.index);
    int page = block >> p->page_shift;
    int key = (block - (page << p->page_shift)) * TILE;
    int panels = lane < WARPS ? D / PANEL : D / PANEL / p->parts;
    int panel = lane < WARPS ? 0 : job.part * panels;
    for (; panels > 0; panel++, panels--)
        tma_prefetch_page(lane < WARPS ? &p->k : &p->v, panel * PANEL, key,
                          job.unit / p->head_splits, page);
}

/* K and V of a job: what a block of keys is loaded from, in this order. */
typedef struct job_sources {
    tile_source of[2];
} job_sources;

BT_DEVICE job_sources sources_of(const decode_params *p, decode_job job, int d)
{
    int head = job.unit / p->head_splits, panels = d / PANEL / p->parts;
    return job_sources{ { { &p->k, head, 0, d / PANEL },
                          { &p->v, head, job.part * panels, panels } } };
}

/* The first block of a job of which a tile is visible, if it is among the first
 * 32 tiles: its first tile, and the visible ones. */
typedef struct first_block {
    int tile;
    uint32_t visible;
} first_block;

BT_DEVICE first_block find_first_block(const job_record *r)
{
    // A reduction, not a vote: its result is known to be uniform, and so are
    // the addresses in all that follows.
    uint32_t seen = __reduce_or_sync(~0u, (uint32_t)(r->tile[0].block >= 0)
                                              << threadIdx.x % 32);
    int tile = max(__ffs((int)seen) - 1, 0) / WARPS * WARPS;
    return first_block{ tile, seen >> tile & BLOCK_BITS };
}

/* Load tiles of a job's first visible block while the grid before this one
 * still runs: those that nothing writes, as far as the ring reaches. l->early
 * has a bit for each of them. */
template <int D>
BT_DEVICE void load_early(const decode_params *p, decode_shared<D> *s,
                          decode_loader *l, const job_record *r)
{
    const int stages = kernel_traits<D>::stages;
    const uint32_t room = (1u << (stages < 2 * WARPS ? stages : 2 * WARPS)) - 1;
    const int word = offsetof(bt_decode_item, old_tiles) / sizeof(int);
    job_sources from = sources_of(p, job_at(p, r->index), D);
    first_block b = find_first_block(r);
    int old = __reduce_max_sync(
        ~0u, (int)threadIdx.x % 32 == word ? r->word - b.tile : 0);
    uint32_t keys = b.visible & ((1u << min(old, WARPS)) - 1);
    l->early = (keys | (keys == b.visible ? b.visible << WARPS : 0)) &
               (p->early_reads ? room : 0);
#pragma unroll 1
    for (int i = 0; i < 2; i++)
        load_block(p, s, l, from.of[i], r->tile[0].block, b.tile,
                   l->early >> i * WARPS & BLOCK_BITS);
}

/* Load what load_early left of that block. */
template <int D>
BT_DEVICE void load_late(const decode_params *p, decode_shared<D> *s,
                         decode_loader *l, const job_record *r)
{
    job_sources from = sources_of(p, job_at(p, r->index), D);
    first_block b = find_first_block(r);
    uint32_t left = (b.visible | b.visible << WARPS) & ~l->early;
#pragma unroll 1
    for (int i = 0; i < 2; i++)
        load_block(p, s, l, from.of[i], r->tile[0].block, b.tile,
                   left >> i * WARPS & BLOCK_BITS);
}

/* Load the tiles of a job, block by block. The next job is claimed two blocks
 * before the end and fetched one block before: as late as the latency can still
 * be hidden, which balances the SMs best. It is returned. */
template <int D>
BT_DEVICE job_record load_job(const decode_params *p, decode_shared<D> *s,
                              decode_loader *l, const job_record *r)
{
    job_sources from = sources_of(p, job_at(p, r->index), D);
    uint32_t seen[2], todo = 0, claimed = 0;
    bool claims = true, fetches = true;
    job_record next = {};
#pragma unroll
    for (int i = 0; i < 2; i++)
        seen[i] = __ballot_sync(~0u, r->tile[i].block >= 0);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
        if (seen[b / 4] >> b % 4 * WARPS & 0xff)
            todo |= 1u << b;
    if (l->early) // load_late had the first one
        todo &= todo - 1;
    l->early = 0;
#pragma unroll 1
    for (; todo; todo &= todo - 1) {
        int b = __ffs((int)todo) - 1, left = __popc(todo);
        if (left <= 2 && claims) {
            claimed = claim_job(p);
            claims = false;
        } else if (left == 1) {
            next = fetch_job(p, __shfl_sync(~0u, claimed, 0));
            fetches = false;
        }
        int tiles = b < 4 ? r->tile[0].block : r->tile[1].block;
        int lane = b % 4 * WARPS;
        uint32_t visible = (b < 4 ? seen[0] : seen[1]) >> lane & BLOCK_BITS;
        load_block(p, s, l, from.of[0], tiles, lane, visible);
        load_block(p, s, l, from.of[1], tiles, lane, visible);
    }
    if (claims)
        claimed = claim_job(p);
    if (fetches)
        next = fetch_job(p, __shfl_sync(~0u, claimed, 0));
    return next;
}

/* One warp runs this. */
template <int D>
BT_DEVICE void load_jobs(const decode_params *p, decode_shared<D> *s)
{
    const int stages = kernel_traits<D>::stages;
    // The tiles before the first one count as loaded: their phase is the one
    // that precedes the first.
    decode_loader l = {
        policy_evict_first(), { 0, 0 }, { stages - p->in_flight, 1 }, 0
    };
    uint32_t number = 0;

    // The first job follows from the block's index; the others are claimed.
    job_record r = fetch_job(p, blockIdx.x);
    prefetch_list(p);
    if (!p->early_reads)
        prefetch_job<D>(p, r);
    __syncwarp();
    load_early(p, s, &l, &r);
    grid_dependency_wait(); // only the list and what is loaded early precede it
    while (r.index < p->count) {
        publish_job(p, s, number++, r);
        if (l.early)
            load_late(p, s, &l, &r);
        r = load_job(p, s, &l, &r);
    }
    publish_job(p, s, number, r);
    // The last block resets the counter for the next launch.
    if (threadIdx.x % 32 == 0) {
        uint32_t last = gridDim.x - 1;
        __threadfence();
        if (atomicInc(p->tile_counter + 1, last) == last)
            p->tile_counter[0] = 0;
    }
}

#endif
