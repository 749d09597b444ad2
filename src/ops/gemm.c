/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - a matrix product on threads: who packs what, and who computes it.
 *
 * Few rows go straight to the kernel, in stripes of columns. For many rows, a
 * task takes one panel of columns of B, packs it for itself and multiplies it
 * with a block of A:
 *
 *      block of A (shared)     B panel (the task's own)
 *      [ rows ][ k ->   ]      [ columns ]
 *      [      ]                [    k    ]      ->  a stripe of C
 *      [      ]                [    |    ]
 *
 * The panel lives in the L2 cache while the block of A, which stays in the L3
 * cache, streams past it. So B is read once for each block of A, and its packed
 * form never leaves the core. A is read in place, unless it is transposed: then
 * the first tasks pack it for all. */
#include "ops/gemm.h"

#include "base/error.h"
#include "base/size.h"
#include "base/threads.h"

enum {
    FEW_ROWS = 12,                   /* go straight to the kernel */
    STRIPE_COLUMNS = 1024,           /* wanted in a stripe of theirs */
    COMPACT_STRIPE = 2 * BT_ABREAST, /* columns of compact weights */
    BLOCK_FLOATS = 1 << 20,          /* of A: 4 MiB of the L3 cache */
    BLOCK_ROWS = 1024,               /* wanted in a block before depth is */
    SMALL_PRODUCT = 1 << 17, /* multiply-adds that are not worth a thread */
    PACKING_ROWS = 8         /* rows that cost what packing their B costs */
};

typedef struct product {
    const bt_gemm *gemm;
    const bt_kernels *kernels;
    int threads;
    size_t rows, depth;  /* of a block of A, at most */
    size_t stretch;      /* of k, for which a B panel is packed */
    size_t row, row_end; /* the block of A at hand */
    size_t from, from_end;
    size_t task_rows;   /* rows of C in a task */
    size_t row_tasks;   /* tasks that share a panel of columns */
    size_t pack_tasks;  /* that come first */
    bt_progress packed; /* how many of them are done */
    size_t stripe;      /* columns in a task of the direct product */
    float *a;           /* (stretches, panels, stretch, tile rows) */
    float *b;           /* (threads, stretch, tile columns) */
} product;

static size_t ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

/* ---- Few rows ---------------------------------------------------------- */

/* Products that are computed in one go, their stripes one behind the other. */
typedef struct direct {
    const product *products;
    size_t ends[BT_GEMM_TOGETHER]; /* of their stripes */
} direct;

static void run_stripe(void *job, size_t task, int thread)
{
    (void)thread;
    const direct *d = job;
    size_t i = 0;
    while (task >= d->ends[i])
        i++;
    const product *p = &d->products[i];
    size_t first = (i ? task - d->ends[i - 1] : task) * p->stripe;
    p->kernels->gemm_columns(p->gemm, first,
                             bt_size_min(p->stripe, p->gemm->n - first));
}

/* Stripes are whole cache lines, and wide, because B is read the faster the
 * longer its pieces are; compact weights are read in order of memory, however
 * short the stripes are. Where there are columns enough there are several a
 * thread, so that a thread that loses its core does not hold up the others. */
static void cut_stripes(product *p)
{
    size_t n = p->gemm->n, threads = (size_t)p->threads;
    size_t share = ceil_div(n, threads);
    size_t wanted =
        bt_size_max(ceil_div(share, 4), bt_size_min(share, STRIPE_COLUMNS));
    if (p->gemm->compact)
        wanted = COMPACT_STRIPE;
    p->stripe = p->threads == 1    ? n
                : p->gemm->compact ? wanted
                                   : bt_size_round(wanted, 64);
}

static void run_direct(product *products, size_t count)
{
    direct d = { .products = products };
    size_t stripes = 0;
    for (size_t i = 0; i < count; i++) {
        cut_stripes(&products[i]);
        stripes += ceil_div(products[i].gemm->n, products[i].stripe);
        d.ends[i] = stripes;
    }
    bt_parallel(products->threads, stripes, run_stripe, &d);
}

/* ---- Many rows --------------------------------------------------------- */

/* Panels of A lie a cache line further apart than their size. Most depths are
 * multiples of large powers of two, and packing writes several panels at once,
 * which would otherwise fight for one set of the L1 cache. */
static size_t panel_stride(const product *p, size_t depth)
{
    return p->kernels->gemm_tiles->rows * depth + BT_ALIGN / sizeof(float);
}

/* Panels that the block has room for. */
static size_t panel_count(const product *p)
{
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    return bt_size_round(p->rows, tiles->pack_rows) / tiles->rows;
}

/* The block is packed stretch by stretch, and within a stretch panel by panel,
 * so that a task reads one stream from end to end. */
static float *panel_at(const product *p, size_t row, size_t from, size_t depth)
{
    size_t before = (from - p->from) / p->stretch * panel_count(p);
    return p->a + before * panel_stride(p, p->stretch) +
           row / p->kernels->gemm_tiles->rows * panel_stride(p, depth);
}

static void pack_rows(product *p, size_t task)
{
    size_t row = task * p->kernels->gemm_tiles->pack_rows;
    for (size_t from = p->from; from < p->from_end; from += p->stretch) {
        size_t depth = bt_size_min(p->stretch, p->from_end - from);
        p->kernels->gemm_tiles->pack_a(panel_at(p, row, from, depth),
                                       panel_stride(p, depth), p->gemm,
                                       p->row + row, from, depth);
    }
    bt_progress_step(&p->packed);
}

/* Floats of a thread's own panel of B, in whole cache lines. */
static size_t panel_room(const product *p)
{
    return bt_size_round(p->kernels->gemm_tiles->columns * p->stretch,
                         BT_ALIGN / sizeof(float));
}

/* The panel that this thread will likely pack after this one: the next stretch
 * of k, or the columns of the task that is as far away as there are threads. */
static void look_ahead(const product *p, bt_gemm_block *block, size_t task)
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
            ? bt_size_min(p->stretch, p->from_end - block->next_from)
            : 0;
}

/* Where the block's rows of A are. */
static void find_a(const product *p, bt_gemm_block *block)
{
    const bt_gemm *g = p->gemm;
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    if (g->trans_a) {
        block->a = panel_at(p, block->row - p->row, block->from, block->depth);
        block->a_row = 1;
        block->a_step = tiles->rows;
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
        .b = p->b + (size_t)thread * panel_room(p),
    };
    for (size_t from = p->from; from < p->from_end; from += p->stretch) {
        block.from = from;
        block.depth = bt_size_min(p->stretch, p->from_end - from);
        find_a(p, &block);
        look_ahead(p, &block, task);
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

/* Cut the block's rows into the number of tasks that should end first. A task
 * costs its rows and the packing of its panel; threads that do not share the
 * tasks evenly wait for the last, and half a task more on average, since cores
 * are never equally fast. */
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

/* Blocks of A: as much of k as lets them have BLOCK_ROWS rows, and then as many
 * rows as there is room for. The stretches of k are of one length. */
static void cut_blocks(product *p)
{
    const bt_gemm *g = p->gemm;
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    size_t depth = BLOCK_FLOATS / bt_size_min(g->m, BLOCK_ROWS);
    depth = bt_size_max(depth / tiles->depth, 1) * tiles->depth;
    p->depth = ceil_div(g->k, ceil_div(g->k, depth));
    p->stretch = ceil_div(p->depth, ceil_div(p->depth, tiles->depth));
    size_t rows = BLOCK_FLOATS / p->depth / tiles->pack_rows * tiles->pack_rows;
    p->rows = bt_size_min(bt_size_max(rows, tiles->pack_rows),
                          bt_size_round(g->m, tiles->pack_rows));
}

static void take_workspace(product *p, bt_arena *workspace)
{
    size_t stretches = ceil_div(p->depth, p->stretch);
    if (p->gemm->trans_a)
        p->a = bt_arena_take(workspace, stretches * panel_count(p),
                             panel_stride(p, p->stretch) * sizeof(float));
    p->b = bt_arena_take(workspace, (size_t)p->threads * panel_room(p),
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
    if (p->gemm->trans_a)
        p->pack_tasks = ceil_div(p->row_end - p->row, tiles->pack_rows);
    bt_progress_set(&p->packed, 0);
    bt_parallel(p->threads, p->pack_tasks + panels * p->row_tasks, run_task, p);
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

static size_t work_of(const bt_gemm *g)
{
    return bt_size_mul(bt_size_mul(g->m, g->n), g->k);
}

static bool is_direct(const bt_kernels *kernels, const bt_gemm *g)
{
    return !kernels->gemm_tiles || g->m <= FEW_ROWS || g->k == 0;
}

bauta_status bt_gemm_f32(const bt_kernels *kernels, int threads,
                         const bt_gemm *gemm, bt_arena *workspace,
                         bauta_error *err)
{
    if (gemm->m == 0 || gemm->n == 0)
        return BAUTA_OK;
    product p = { .gemm = gemm, .kernels = kernels, .threads = threads };
    if (work_of(gemm) < SMALL_PRODUCT)
        p.threads = 1;
    if (!is_direct(kernels, gemm))
        return run_blocked(&p, workspace, err);
    run_direct(&p, 1);
    return BAUTA_OK;
}

bauta_status bt_gemm_several_f32(const bt_kernels *kernels, int threads,
                                 const bt_gemm *gemms, size_t count,
                                 bt_arena *workspace, bauta_error *err)
{
    product all[BT_GEMM_TOGETHER];
    bauta_status status = BAUTA_OK;
    size_t work = 0;
    bool together = count > 0 && count <= BT_GEMM_TOGETHER;
    for (size_t i = 0; i < count && together; i++) {
        all[i] = (product){ .gemm = &gemms[i], .kernels = kernels };
        work = bt_size_add(work, work_of(&gemms[i]));
        together = is_direct(kernels, &gemms[i]) && gemms[i].m && gemms[i].n;
    }
    for (size_t i = 0; i < count && !together && !status; i++)
        status = bt_gemm_f32(kernels, threads, &gemms[i], workspace, err);
    if (!together)
        return status;
    for (size_t i = 0; i < count; i++)
        all[i].threads = work < SMALL_PRODUCT ? 1 : threads;
    run_direct(all, count);
    return BAUTA_OK;
}
