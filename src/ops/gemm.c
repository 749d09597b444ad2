/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - a matrix product on threads: who packs what, and who computes it.
 *
 * Few rows go straight to the kernel, in stripes of columns. For many rows, A
 * is packed by all threads into one shared block of panels; then each task
 * takes one panel of columns, packs it for itself and multiplies it with the
 * whole block:
 *
 *      A panels (shared)       B panel (the task's own)
 *      [ 0 ][ k ->      ]      [ columns ]
 *      [ 1 ]                   [    k    ]      ->  a stripe of C
 *      [...]                   [    |    ]
 *
 * One panel of B lives in the L2 cache while the block of A streams past it, so
 * B is read once for each block of A and its packed form never leaves the
 * core. Threads meet twice a block, and there is one block unless A is large.
 */
#include "ops/gemm.h"

#include "base/error.h"
#include "base/size.h"
#include "base/threads.h"

enum {
    FEW_ROWS = 12,           /* go straight to the kernel */
    BLOCK_FLOATS = 1 << 20,  /* of A are packed at once: 4 MiB */
    BLOCK_ROWS = 1024,       /* wanted in a block before depth is */
    SMALL_PRODUCT = 1 << 17, /* multiply-adds that are not worth a thread */
    PACKING_ROWS = 16        /* rows that cost what packing their B costs */
};

typedef struct product {
    const bt_gemm *gemm;
    const bt_kernels *kernels;
    int threads;
    size_t rows, depth;  /* of a block of A, at most */
    size_t stretch;      /* of k, for which a B panel is packed */
    size_t row, row_end; /* the block of A at hand */
    size_t from, from_end;
    size_t task_rows; /* rows of C in a task */
    size_t row_tasks; /* tasks that share a panel of columns */
    size_t stripe;    /* columns in a task of the direct product */
    float *a;         /* (panels, depth, tile rows) */
    float *b;         /* (threads, stretch, tile columns) */
} product;

static size_t ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

/* ---- Few rows ---------------------------------------------------------- */

static void run_stripe(void *job, size_t task, int thread)
{
    (void)thread;
    const product *p = job;
    size_t first = task * p->stripe;
    p->kernels->gemm_columns(p->gemm, first,
                             bt_size_min(p->stripe, p->gemm->n - first));
}

/* Stripes are whole cache lines, and several a thread, so that a thread that
 * loses its core does not hold up the others. */
static void run_direct(product *p)
{
    size_t wanted = ceil_div(p->gemm->n, 4 * (size_t)p->threads);
    p->stripe = p->threads == 1 ? p->gemm->n : bt_size_round(wanted, 64);
    bt_parallel(p->threads, ceil_div(p->gemm->n, p->stripe), run_stripe, p);
}

/* ---- Many rows --------------------------------------------------------- */

static size_t panel_stride(const product *p)
{
    return p->kernels->gemm_tiles->rows * (p->from_end - p->from);
}

static void pack_rows(void *job, size_t task, int thread)
{
    (void)thread;
    const product *p = job;
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    size_t row = task * tiles->pack_rows;
    float *to = p->a + row / tiles->rows * panel_stride(p);
    tiles->pack_a(to, panel_stride(p), p->gemm, p->row + row, p->from,
                  p->from_end - p->from);
}

static void multiply_panel(void *job, size_t task, int thread)
{
    const product *p = job;
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    size_t row = task % p->row_tasks * p->task_rows;
    size_t column = task / p->row_tasks * tiles->columns;
    float *b = p->b + (size_t)thread * tiles->columns * p->stretch;
    bt_gemm_block block = {
        .row = p->row + row,
        .rows = bt_size_min(p->task_rows, p->row_end - p->row - row),
        .column = column,
        .columns = bt_size_min(tiles->columns, p->gemm->n - column),
        .a_stride = panel_stride(p),
        .b = b,
    };
    const float *a = p->a + row / tiles->rows * panel_stride(p);
    for (size_t from = p->from; from < p->from_end; from += p->stretch) {
        block.from = from;
        block.depth = bt_size_min(p->stretch, p->from_end - from);
        block.a = a + (from - p->from) * tiles->rows;
        tiles->pack_b(b, p->gemm, column, from, block.depth);
        tiles->multiply(p->gemm, &block);
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

/* Blocks of A: all of k if they can have BLOCK_ROWS rows, and then as many
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
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    p->a = bt_arena_take(workspace, p->rows * p->depth, sizeof(float));
    p->b = bt_arena_take(workspace,
                         (size_t)p->threads * tiles->columns * p->stretch,
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
    size_t rows = p->row_end - p->row;
    cut_rows(p);
    bt_parallel(p->threads, ceil_div(rows, tiles->pack_rows), pack_rows, p);
    bt_parallel(p->threads, ceil_div(p->gemm->n, tiles->columns) * p->row_tasks,
                multiply_panel, p);
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

bauta_status bt_gemm_f32(const bt_kernels *kernels, int threads,
                         const bt_gemm *gemm, bt_arena *workspace,
                         bauta_error *err)
{
    if (gemm->m == 0 || gemm->n == 0)
        return BAUTA_OK;
    size_t work = bt_size_mul(bt_size_mul(gemm->m, gemm->n), gemm->k);
    product p = { .gemm = gemm, .kernels = kernels, .threads = threads };
    if (work < SMALL_PRODUCT)
        p.threads = 1;
    if (kernels->gemm_tiles && gemm->m > FEW_ROWS && gemm->k > 0)
        return run_blocked(&p, workspace, err);
    run_direct(&p);
    return BAUTA_OK;
}
