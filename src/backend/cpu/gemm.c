/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - matrix products on threads: packing and the division into tasks.
 *
 * Few rows go directly to the kernel, in stripes of columns. For many rows, a
 * task takes one panel of columns of B, or two, packs it for itself and
 * multiplies it with a block of A:
 *
 *      block of A (shared)     B panel (the task's own)
 *      [ rows ][ k ->   ]      [ columns ]
 *      [      ]                [    k    ]      ->  a stripe of C
 *      [      ]                [    |    ]
 *
 * The panel stays in the L1 or L2 cache, as the kernels prefer, while the block
 * of A streams from the L2 cache. So B is read once for each block of A, and
 * its packed form never leaves the core. A is read in place unless it is
 * transposed or its rows compete for cache lines; then the first tasks pack it
 * for all. */
#include "backend/cpu/gemm.h"

#include "base/error.h"
#include "base/size.h"
#include "base/thread_pool.h"

enum {
    FEW_ROWS = 12,                        /* at most: direct to the kernel */
    STRIPE_COLUMNS = 1024,                /* preferred width of a stripe */
    PACKED_STRIPE = 2 * BT_PANEL_COLUMNS, /* the same for packed weights */
    BLOCK_ROWS = 1024,       /* preferred in a block of A, before depth */
    DEPTH_STEPS = 16,        /* ranges of k are multiples of it */
    SMALL_PRODUCT = 1 << 17, /* multiply-adds below which threads do not pay */
    PACKING_ROWS = 8,        /* packing B costs as much as this many rows */
    COPY_COLUMNS = 128       /* of C, from which on copying rows of A pays */
};

typedef struct product {
    const bt_gemm *gemm;
    const bt_kernels *kernels;
    bt_thread_pool *pool;
    int threads;
    size_t rows, depth;  /* of a block of A, at most */
    size_t panel_depth;  /* range of k for which a B panel is packed */
    size_t row, row_end; /* the current block of A */
    size_t from, from_end;
    size_t task_rows;   /* rows of C in a task */
    size_t row_tasks;   /* tasks that share a panel of columns */
    bool packs;         /* A is packed, not read in place */
    size_t pack_tasks;  /* the first tasks, which pack A */
    bt_progress packed; /* how many of them are done */
    float *a;           /* (ranges of k, panels, panel_depth, tile rows) */
    float *b;           /* (threads, panel_depth, tile columns) */
} product;

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
    struct {
        size_t columns; /* of a stripe */
        size_t end;     /* of the stripes of this product */
    } cuts[BT_GEMM_GROUP_MAX];
} direct;

static void run_stripe(void *job, size_t task, int thread)
{
    (void)thread;
    const direct *d = job;
    size_t i = 0;
    while (task >= d->cuts[i].end)
        i++;
    size_t stripe = d->cuts[i].columns;
    size_t first = (i ? task - d->cuts[i - 1].end : task) * stripe;
    d->kernels->gemm_columns(&d->gemms[i], first,
                             bt_size_min(stripe, d->gemms[i].n - first));
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
    size_t threads = (size_t)bt_thread_pool_threads(pool), stripes = 0;
    for (size_t i = 0; i < count && threads == 1; i++)
        cpu->kernels->gemm_columns(&gemms[i], 0, gemms[i].n);
    if (threads == 1)
        return;
    direct d = { .kernels = cpu->kernels, .gemms = gemms };
    for (size_t i = 0; i < count; i++) {
        d.cuts[i].columns = stripe_columns(&gemms[i], threads);
        stripes += ceil_div(gemms[i].n, d.cuts[i].columns);
        d.cuts[i].end = stripes;
    }
    bt_parallel_for(pool, stripes, run_stripe, &d);
}

/* ---- Many rows --------------------------------------------------------- */

/* Panels of A are padded by a cache line. Most depths are multiples of large
 * powers of two, and packing writes several panels at once, which would
 * otherwise compete for one set of the L1 cache. */
static size_t panel_stride(const product *p, size_t depth)
{
    return p->kernels->gemm_tiles->rows * depth + BT_ALIGN / sizeof(float);
}

/* Maximum number of panels in a block. */
static size_t panel_count(const product *p)
{
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    return bt_size_round(p->rows, tiles->pack_rows) / tiles->rows;
}

/* The block is packed one range of k after the other, and within it panel by
 * panel, so that a task reads it sequentially. */
static float *panel_at(const product *p, size_t row, size_t from, size_t depth)
{
    size_t before = (from - p->from) / p->panel_depth * panel_count(p);
    return p->a + before * panel_stride(p, p->panel_depth) +
           row / p->kernels->gemm_tiles->rows * panel_stride(p, depth);
}

static void pack_rows(product *p, size_t task)
{
    size_t row = task * p->kernels->gemm_tiles->pack_rows;
    for (size_t from = p->from; from < p->from_end; from += p->panel_depth) {
        size_t depth = bt_size_min(p->panel_depth, p->from_end - from);
        p->kernels->gemm_tiles->pack_a(panel_at(p, row, from, depth),
                                       panel_stride(p, depth), p->gemm,
                                       p->row + row, from, depth);
    }
    bt_progress_increment(&p->packed);
}

/* Floats of a thread's panel of B, in whole cache lines. */
static size_t panel_floats(const product *p)
{
    return bt_size_round(p->kernels->gemm_tiles->columns * p->panel_depth,
                         BT_ALIGN / sizeof(float));
}

/* The panel that this thread will likely pack next, to prefetch it: the next
 * range of k, or the columns of the task `threads` tasks further on. */
static void next_panel(const product *p, bt_gemm_block *block, size_t task)
{
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    block->next_column = block->column;
    block->next_from = block->from + block->depth;
    if (block->next_from >= p->from_end) {
        size_t next = (task + (size_t)p->threads) / p->row_tasks;
        block->next_column = next * tiles->columns;
        block->next_from = p->from;
    }
    block->next_depth =
        block->next_column < p->gemm->n
            ? bt_size_min(p->panel_depth, p->from_end - block->next_from)
            : 0;
}

/* Locate the block's rows of A. */
static void find_a(const product *p, bt_gemm_block *block)
{
    const bt_gemm *g = p->gemm;
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    if (p->packs) {
        block->a = panel_at(p, block->row - p->row, block->from, block->depth);
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

static void multiply_panel(const product *p, size_t task, int thread)
{
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    size_t row = task % p->row_tasks * p->task_rows;
    size_t column = task / p->row_tasks * tiles->columns;
    bt_gemm_block block = {
        .row = p->row + row,
        .rows = bt_size_min(p->task_rows, p->row_end - p->row - row),
        .column = column,
        .columns = bt_size_min(tiles->columns, p->gemm->n - column),
        .b = p->b + (size_t)thread * panel_floats(p),
    };
    for (size_t from = p->from; from < p->from_end; from += p->panel_depth) {
        block.from = from;
        block.depth = bt_size_min(p->panel_depth, p->from_end - from);
        find_a(p, &block);
        next_panel(p, &block, task);
        tiles->multiply(p->gemm, &block);
    }
}

static void run_task(void *job, size_t task, int thread)
{
    product *p = job;
    if (task < p->pack_tasks) {
        pack_rows(p, task);
    } else {
        bt_progress_wait(&p->packed, (unsigned)p->pack_tasks);
        multiply_panel(p, task - p->pack_tasks, thread);
    }
}

/* Divide the block's rows into the number of tasks that should finish earliest.
 * A task costs its rows plus the packing of its panel. With an uneven division
 * the threads wait for the last task, and for half a task more on average,
 * since cores are never equally fast. */
static void cut_rows(product *p)
{
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    size_t rows = p->row_end - p->row;
    size_t panels = ceil_div(p->gemm->n, tiles->columns);
    size_t threads = (size_t)p->threads;
    size_t best = SIZE_MAX;
    p->task_rows = rows;
    for (size_t parts = 1; threads > 1 && parts <= 4 * threads; parts++) {
        size_t part = bt_size_round(ceil_div(rows, parts), tiles->rows);
        size_t tasks = panels * ceil_div(rows, part);
        size_t cost =
            (2 * ceil_div(tasks, threads) + 1) * (part + PACKING_ROWS);
        if (cost < best) {
            best = cost;
            p->task_rows = part;
        }
    }
    p->row_tasks = ceil_div(rows, p->task_rows);
}

/* The length of the equal parts, about `most` long and a multiple of `unit`,
 * into which `length` is divided; the last part may be shorter. */
static size_t even_part(size_t length, size_t most, size_t unit)
{
    size_t parts = ceil_div(length, bt_size_round(bt_size_max(most, 1), unit));
    return bt_size_round(ceil_div(length, parts), unit);
}

/* Blocks of A: as much of k as leaves room for BLOCK_ROWS rows, then as many
 * rows as fit. */
static void cut_blocks(product *p)
{
    const bt_gemm *g = p->gemm;
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    size_t depth = tiles->block / bt_size_min(g->m, BLOCK_ROWS);
    depth = bt_size_max(depth / tiles->depth, 1) * tiles->depth;
    p->depth = even_part(g->k, depth, DEPTH_STEPS);
    p->panel_depth = even_part(p->depth, tiles->depth, DEPTH_STEPS);
    p->rows = even_part(g->m, tiles->block / p->depth, tiles->pack_rows);
}

static void take_workspace(product *p, bt_arena *workspace)
{
    size_t ranges = ceil_div(p->depth, p->panel_depth);
    if (p->packs)
        p->a = bt_arena_alloc(workspace, ranges * panel_count(p),
                              panel_stride(p, p->panel_depth) * sizeof(float));
    p->b = bt_arena_alloc(workspace, (size_t)p->threads * panel_floats(p),
                          sizeof(float));
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

static void run_block(product *p)
{
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    size_t panels = ceil_div(p->gemm->n, tiles->columns);
    cut_rows(p);
    if (p->packs)
        p->pack_tasks = ceil_div(p->row_end - p->row, tiles->pack_rows);
    bt_progress_set(&p->packed, 0);
    bt_parallel_for(p->pool, p->pack_tasks + panels * p->row_tasks, run_task,
                    p);
}

static bauta_status run_blocked(product *p, bt_arena *workspace,
                                bauta_error *err)
{
    const bt_gemm *g = p->gemm;
    cut_blocks(p);
    bauta_status status = reserve(p, workspace, err);
    if (status)
        return status;
    for (p->row = 0; p->row < g->m; p->row = p->row_end) {
        p->row_end = bt_size_min(p->row + p->rows, g->m);
        for (p->from = 0; p->from < g->k; p->from = p->from_end) {
            p->from_end = bt_size_min(p->from + p->depth, g->k);
            run_block(p);
        }
    }
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
                  .threads = bt_thread_pool_threads(pool),
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
