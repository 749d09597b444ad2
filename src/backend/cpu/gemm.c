/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - matrix products on threads: packing and the division into tasks.
 *
 * Few rows go directly to the kernel, in stripes of columns. For many rows, C
 * is divided into parts of rows, and a unit of work is such a part, one panel
 * of columns of B, or two, and a range of k:
 *
 *      part of A               panel of B
 *      [ rows ][ k ->   ]      [ columns ]
 *      [      ]                [    k    ]      ->  rows and columns of C
 *      [      ]                [    |    ]
 *
 * A thread packs the panel for itself, into its L1 or L2 cache, as the kernels
 * prefer, and reads the part from its L2 cache. A is read in place unless it is
 * transposed or its rows compete for cache lines; then a thread packs the part
 * for itself, too. Each thread has units of its own that follow each other, so
 * that neither is read or written by another core; a thread without any left
 * takes those of others. */
#include "backend/cpu/gemm.h"

#include "base/error.h"
#include "base/size.h"
#include "base/thread_pool.h"

#include <math.h>
#include <stdatomic.h>

enum {
    FEW_ROWS = 12,                        /* at most: direct to the kernel */
    STRIPE_COLUMNS = 1024,                /* preferred width of a stripe */
    PACKED_STRIPE = 2 * BT_PANEL_COLUMNS, /* the same for packed weights */
    DEPTH_STEPS = 16,                     /* ranges of k are multiples of it */
    SMALL_PRODUCT = 1 << 17, /* multiply-adds below which threads do not pay */
    COPY_COLUMNS = 128,      /* of C, from which on copying rows of A pays */
    /* What costs as much time: packing B, these rows; packing it transposed;
     * packing A, these columns; a range of k, these steps. */
    PACKING_ROWS = 8,
    TRANSPOSING_ROWS = 20,
    PACKING_COLUMNS = 16,
    RANGE_STEPS = 6
};

static size_t ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

/* The threads that pay for so many multiply-adds. */
static bt_thread_pool *pool_for(const bt_cpu *cpu, size_t work)
{
    return work < SMALL_PRODUCT ? NULL : cpu->pool;
}

/* ---- Few rows ---------------------------------------------------------- */

/* Products in one parallel loop, their stripes numbered consecutively. */
typedef struct direct {
    const bt_kernels *kernels;
    const bt_gemm *gemms;
    size_t threads, stripes;
    struct {
        size_t columns; /* of a stripe */
        size_t end;     /* of the stripes of this product */
    } cuts[BT_GEMM_GROUP_MAX];
} direct;

/* The stripe of a task. There is a range of stripes for each thread, and tasks
 * take turns between the ranges. So a thread that takes every so many tasks
 * reads B from one stripe to the next, as hardware and kernels prefetch it. */
static size_t stripe_of(const direct *d, size_t task)
{
    size_t range = task % d->threads;
    return d->stripes / d->threads * range +
           bt_size_min(range, d->stripes % d->threads) + task / d->threads;
}

static void run_stripe(void *job, size_t task, int thread)
{
    (void)thread;
    const direct *d = job;
    size_t stripe = stripe_of(d, task), i = 0;
    while (stripe >= d->cuts[i].end)
        i++;
    size_t columns = d->cuts[i].columns;
    size_t first = (i ? stripe - d->cuts[i - 1].end : stripe) * columns;
    d->kernels->gemm_columns(&d->gemms[i], first,
                             bt_size_min(columns, d->gemms[i].n - first));
}

/* Stripes are whole cache lines, and wide, because long pieces of B are read
 * faster; packed weights are read sequentially whatever the width. If there are
 * enough columns each thread gets several stripes, so that a thread that loses
 * its core does not delay the others. */
static size_t stripe_columns(const bt_gemm *gemm, size_t threads)
{
    size_t share = ceil_div(gemm->n, threads);
    if (gemm->packed)
        return PACKED_STRIPE;
    return bt_size_round(
        bt_size_max(ceil_div(share, 4), bt_size_min(share, STRIPE_COLUMNS)),
        64);
}

static void run_direct(const bt_cpu *cpu, const bt_gemm *gemms, size_t count,
                       size_t work)
{
    bt_thread_pool *pool = pool_for(cpu, work);
    size_t threads = (size_t)bt_thread_pool_threads(pool);
    for (size_t i = 0; i < count && threads == 1; i++)
        cpu->kernels->gemm_columns(&gemms[i], 0, gemms[i].n);
    if (threads == 1)
        return;
    direct d = { .kernels = cpu->kernels, .gemms = gemms, .threads = threads };
    for (size_t i = 0; i < count; i++) {
        d.cuts[i].columns = stripe_columns(&gemms[i], threads);
        d.stripes += ceil_div(gemms[i].n, d.cuts[i].columns);
        d.cuts[i].end = d.stripes;
    }
    bt_parallel_for(pool, d.stripes, run_stripe, &d);
}

/* ---- Many rows --------------------------------------------------------- */

/* The units of a thread, which it and others take in order, and what its memory
 * for rows of A has: only the thread itself uses `part` and `range`. */
typedef struct unit_queue {
    _Alignas(BT_ALIGN) atomic_size_t next;
    size_t end;
    size_t part, range;
} unit_queue;

/* C is divided into parts of rows and groups of panels of columns; a strip is a
 * part and a group. Strips are dealt out to the threads in order. The units of
 * a strip go over k range by range, and over its panels in each range, so that
 * the part stays in the L2 cache while B is read. */
typedef struct product {
    const bt_gemm *gemm;
    const bt_kernels *kernels;
    bt_thread_pool *pool;
    size_t threads;
    size_t depth, ranges;  /* of k */
    size_t rows, parts;    /* of C; a part may have fewer rows */
    size_t panels, groups; /* of columns; groups have as many panels, or one
                              more */
    bool packs;            /* A is packed, not read in place */
    unit_queue *queues;    /* (threads) */
    /* Ranges of k that are added to the rows of a part in a panel of columns:
     * (parts, panels), if there are several. */
    bt_progress *added;
    float *a; /* (threads, panels of the rows of a part), if A is packed */
    float *b; /* (threads, depth, tile columns) */
} product;

/* Rows of C, columns of C in one panel, and a range of k. */
typedef struct gemm_unit {
    size_t part, panel, range;
} gemm_unit;

static size_t strips_before(const product *p, size_t thread)
{
    size_t strips = p->parts * p->groups;
    return strips / p->threads * thread +
           bt_size_min(thread, strips % p->threads);
}

static size_t first_panel(const product *p, size_t group)
{
    return p->panels / p->groups * group +
           bt_size_min(group, p->panels % p->groups);
}

/* Panels of a strip. */
static size_t strip_panels(const product *p, size_t strip)
{
    size_t group = strip % p->groups;
    return first_panel(p, group + 1) - first_panel(p, group);
}

static size_t queue_units(const product *p, size_t thread)
{
    size_t panels = 0, end = strips_before(p, thread + 1);
    for (size_t strip = strips_before(p, thread); strip < end; strip++)
        panels += strip_panels(p, strip);
    return panels * p->ranges;
}

/* A unit by its number in the queue of a thread. */
static gemm_unit find_unit(const product *p, size_t thread, size_t number)
{
    size_t strip = strips_before(p, thread), panels = strip_panels(p, strip);
    while (number >= panels * p->ranges) {
        number -= panels * p->ranges;
        panels = strip_panels(p, ++strip);
    }
    size_t first = first_panel(p, strip % p->groups);
    return (gemm_unit){ .part = strip / p->groups,
                        .panel = first + number % panels,
                        .range = number / panels };
}

static size_t unit_from(const product *p, const gemm_unit *u)
{
    return u->range * p->depth;
}

static size_t unit_depth(const product *p, const gemm_unit *u)
{
    return bt_size_min(p->depth, p->gemm->k - unit_from(p, u));
}

/* Panels of A are padded by a cache line. Most depths are multiples of large
 * powers of two, and packing writes several panels at once, which would
 * otherwise compete for one set of the L1 cache. */
static size_t panel_stride(const product *p, size_t depth)
{
    return p->kernels->gemm_tiles->rows * depth + BT_ALIGN / sizeof(float);
}

/* Floats of a thread's packed rows of A. */
static size_t part_floats(const product *p)
{
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    return bt_size_mul(bt_size_round(p->rows, tiles->pack_rows) / tiles->rows,
                       panel_stride(p, p->depth));
}

/* Floats of a thread's panel of B, in whole cache lines. */
static size_t panel_floats(const product *p)
{
    return bt_size_round(p->kernels->gemm_tiles->columns * p->depth,
                         BT_ALIGN / sizeof(float));
}

static void pack_rows(const product *p, const gemm_unit *u, float *to)
{
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    size_t first = u->part * p->rows, depth = unit_depth(p, u);
    size_t end = bt_size_min(first + p->rows, p->gemm->m);
    for (size_t row = first; row < end; row += tiles->pack_rows)
        tiles->pack_a(to + (row - first) / tiles->rows * panel_stride(p, depth),
                      panel_stride(p, depth), p->gemm, row,
                      bt_size_min(tiles->pack_rows, end - row), unit_from(p, u),
                      depth);
}

/* Locate the rows of A of a block, after packing them if the thread has others
 * in its memory. */
static void find_a(const product *p, const gemm_unit *u, size_t thread,
                   bt_gemm_block *block)
{
    const bt_gemm *g = p->gemm;
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    if (p->packs) {
        float *a = p->a + thread * part_floats(p);
        unit_queue *own = &p->queues[thread];
        if (own->part != u->part || own->range != u->range)
            pack_rows(p, u, a);
        own->part = u->part;
        own->range = u->range;
        block->a = a;
        block->a_row = g->trans_a ? 1 : block->depth;
        block->a_step = g->trans_a ? tiles->rows : 1;
        block->a_tile = panel_stride(p, block->depth);
    } else {
        block->a = g->a + block->row * g->lda + block->from;
        block->a_row = g->lda;
        block->a_step = 1;
        block->a_tile = tiles->rows * g->lda;
    }
}

/* A unit, and the one that the thread takes next, to prefetch its panel of B;
 * NULL: it has none. */
static void run_unit(const product *p, const gemm_unit *u,
                     const gemm_unit *next, size_t thread)
{
    const bt_gemm *g = p->gemm;
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    size_t row = u->part * p->rows, column = u->panel * tiles->columns;
    bt_progress *added =
        p->added ? &p->added[u->part * p->panels + u->panel] : NULL;
    bt_gemm_block block = {
        .row = row,
        .rows = bt_size_min(p->rows, g->m - row),
        .column = column,
        .columns = bt_size_min(tiles->columns, g->n - column),
        .from = unit_from(p, u),
        .depth = unit_depth(p, u),
        .b = p->b + thread * panel_floats(p),
    };
    find_a(p, u, thread, &block);
    if (next) {
        block.next_column = next->panel * tiles->columns;
        block.next_from = unit_from(p, next);
        block.next_depth = unit_depth(p, next);
    }
    if (added)
        bt_progress_wait(added, (unsigned)u->range);
    tiles->multiply(g, &block);
    if (added)
        bt_progress_set(added, (unsigned)u->range + 1);
}

/* Take the next unit of a queue and run it; false if there is none. */
static bool take_unit(const product *p, size_t queue, size_t thread)
{
    unit_queue *q = &p->queues[queue];
    if (atomic_load_explicit(&q->next, memory_order_relaxed) >= q->end)
        return false;
    size_t number =
        atomic_fetch_add_explicit(&q->next, 1, memory_order_relaxed);
    if (number >= q->end)
        return false;
    bool more = number + 1 < q->end;
    gemm_unit u = find_unit(p, queue, number);
    gemm_unit next = more ? find_unit(p, queue, number + 1) : u;
    run_unit(p, &u, more ? &next : NULL, thread);
    return true;
}

/* There are as many tasks as units, and each takes one: of the thread's own
 * queue or else of the next that has some. A unit waits only for one before it
 * in its queue, which a thread has taken. */
static void run_task(void *job, size_t task, int thread)
{
    (void)task;
    const product *p = job;
    size_t own = (size_t)thread, i = 0;
    while (i < p->threads && !take_unit(p, (own + i) % p->threads, own))
        i++;
}

/* Groups that make as many strips for each thread, if there are panels for
 * it. */
static size_t groups_for(const product *p)
{
    size_t a = p->parts, b = p->threads;
    while (b) {
        size_t rest = a % b;
        a = b;
        b = rest;
    }
    return bt_size_min(p->threads / a, p->panels);
}

/* The length of the equal parts, about `most` long and a multiple of `step`,
 * into which `length` is divided; the last part may be shorter. */
static size_t even_part(size_t length, size_t most, size_t step)
{
    size_t parts = ceil_div(length, bt_size_round(bt_size_max(most, 1), step));
    return bt_size_round(ceil_div(length, parts), step);
}

/* The time of a product, in multiply-adds of a thread. A panel of B is packed
 * for each part, and the rows of a part for each of its strips; sums are read
 * and written for each range; and threads wait for half a unit in the end,
 * since cores are never equally fast. */
static double time_of(const product *p)
{
    const bt_gemm *g = p->gemm;
    double tile_columns = (double)p->kernels->gemm_tiles->columns;
    double rows = (double)p->rows, depth = (double)p->depth;
    double columns = (double)ceil_div(p->panels, p->groups) * tile_columns;
    double strips = (double)ceil_div(p->parts * p->groups, p->threads);
    double packing_b = columns * (g->trans_b ? TRANSPOSING_ROWS : PACKING_ROWS);
    double packing_a = p->packs ? rows * PACKING_COLUMNS : 0;
    double range = rows * columns * (depth + RANGE_STEPS) +
                   (packing_a + packing_b) * depth;
    double tail = p->threads > 1 ? rows * tile_columns * depth / 2 : 0;
    return strips * (double)p->ranges * range + tail;
}

static void cut_rows(product *p, size_t parts)
{
    size_t tile_rows = p->kernels->gemm_tiles->rows;
    p->rows = bt_size_round(ceil_div(p->gemm->m, parts), tile_rows);
    p->parts = ceil_div(p->gemm->m, p->rows);
    p->groups = groups_for(p);
}

/* Cut k into ranges as deep as panels may be, and the rows into as many parts
 * as should take the least time, which fit the L2 cache of a thread. */
static void cut(product *p)
{
    const bt_gemm *g = p->gemm;
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    product best = *p;
    double least = INFINITY;
    p->depth = even_part(g->k, tiles->depth, DEPTH_STEPS);
    p->ranges = ceil_div(g->k, p->depth);
    p->panels = ceil_div(g->n, tiles->columns);
    size_t most = bt_size_max(tiles->part / p->depth, tiles->rows);
    size_t parts = ceil_div(g->m, most);
    size_t end = bt_size_min(parts + 4 * p->threads,
                             bt_size_max(ceil_div(g->m, tiles->rows), parts));
    for (; parts <= end; parts++) {
        cut_rows(p, parts);
        double time = time_of(p);
        if (time < least) {
            least = time;
            best = *p;
        }
    }
    *p = best;
}

static void take_workspace(product *p, bt_arena *workspace)
{
    p->queues = bt_arena_alloc(workspace, p->threads, sizeof(unit_queue));
    if (p->packs)
        p->a = bt_arena_alloc(workspace, p->threads,
                              bt_size_mul(part_floats(p), sizeof(float)));
    if (p->ranges > 1)
        p->added = bt_arena_alloc(workspace, p->parts,
                                  p->panels * sizeof(bt_progress));
    p->b =
        bt_arena_alloc(workspace, p->threads * panel_floats(p), sizeof(float));
}

static bauta_status reserve(product *p, bt_arena *workspace, bauta_error *err)
{
    bt_arena measure = { NULL, 0, 0 };
    take_workspace(p, &measure);
    if (bt_arena_reserve(workspace, measure.used))
        return bt_fail_memory(err, "the panels of a matrix product",
                              measure.used);
    take_workspace(p, workspace);
    return BAUTA_OK;
}

static bauta_status run_blocked(product *p, bt_arena *workspace,
                                bauta_error *err)
{
    cut(p);
    bauta_status status = reserve(p, workspace, err);
    if (status)
        return status;
    size_t units = 0;
    for (size_t i = 0; i < p->threads; i++) {
        unit_queue *q = &p->queues[i];
        atomic_init(&q->next, 0);
        q->end = queue_units(p, i);
        q->part = q->range = SIZE_MAX;
        units += q->end;
    }
    for (size_t i = 0; p->added && i < p->parts * p->panels; i++)
        bt_progress_set(&p->added[i], 0);
    bt_parallel_for(p->pool, units, run_task, p);
    return BAUTA_OK;
}

/* Whether A is packed: it is transposed, or the rows of a tile would evict each
 * other from the L1 cache. */
static bool packs_a(const bt_gemm_tiles *tiles, const bt_gemm *g)
{
    bool aliased = tiles->aliased && g->lda % tiles->aliased == 0;
    return g->trans_a || (aliased && g->n >= COPY_COLUMNS);
}

static size_t work_of(const bt_gemm *g)
{
    return bt_size_mul(bt_size_mul(g->m, g->n), g->k);
}

static bool is_direct(const bt_kernels *kernels, const bt_gemm *g)
{
    return !kernels->gemm_tiles || g->m <= FEW_ROWS || g->k == 0;
}

bool bt_gemm_blocked(const bt_cpu *cpu, const bt_gemm *gemm)
{
    return !is_direct(cpu->kernels, gemm);
}

bauta_status bt_gemm_f32(bt_cpu *cpu, const bt_gemm *gemm, bauta_error *err)
{
    size_t work = work_of(gemm);
    if (gemm->m == 0 || gemm->n == 0)
        return BAUTA_OK;
    if (is_direct(cpu->kernels, gemm)) {
        run_direct(cpu, gemm, 1, work);
        return BAUTA_OK;
    }
    bt_thread_pool *pool = pool_for(cpu, work);
    product p = { .gemm = gemm,
                  .kernels = cpu->kernels,
                  .pool = pool,
                  .threads = (size_t)bt_thread_pool_threads(pool),
                  .packs = packs_a(cpu->kernels->gemm_tiles, gemm) };
    return run_blocked(&p, &cpu->workspace, err);
}

bauta_status bt_gemm_grouped_f32(bt_cpu *cpu, const bt_gemm *gemms,
                                 size_t count, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t work = 0;
    bool grouped = count > 0 && count <= BT_GEMM_GROUP_MAX;
    for (size_t i = 0; i < count && grouped; i++) {
        work = bt_size_add(work, work_of(&gemms[i]));
        grouped =
            is_direct(cpu->kernels, &gemms[i]) && gemms[i].m && gemms[i].n;
    }
    for (size_t i = 0; i < count && !grouped && !status; i++)
        status = bt_gemm_f32(cpu, &gemms[i], err);
    if (grouped)
        run_direct(cpu, gemms, count, work);
    return status;
}
