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
 * transposed or its rows compete for cache lines; then the first tasks of a
 * block pack it for all. */
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

/* How the rows of a block of A are divided into tasks. */
typedef struct row_cut {
    size_t rows;       /* of C in a task */
    size_t row_tasks;  /* tasks that share a panel of columns */
    size_t pack_tasks; /* the first tasks, which pack A */
    size_t tasks;      /* of the block */
} row_cut;

/* A block of A is a range of rows and one of k. The tasks of all blocks are one
 * loop, block by block, so that no thread waits for the others at the end of a
 * block. Ranges of k are added to a stripe of C one after another. */
typedef struct product {
    const bt_gemm *gemm;
    const bt_kernels *kernels;
    bt_thread_pool *pool;
    int threads;
    size_t rows, depth; /* of a block of A, at most */
    size_t row_blocks, k_blocks;
    size_t panel_depth; /* range of k for which a B panel is packed */
    row_cut cut[2];     /* of blocks with `rows` rows, and of the last ones */
    bool packs;         /* A is packed, not read in place */
    /* How many tasks of a block have packed A, and how many have multiplied it:
     * (blocks), if A is packed. */
    bt_progress *packed, *multiplied;
    /* Ranges of k that are added to a stripe of C, the rows of a task:
     * (row_blocks, stripes), if there are several. */
    bt_progress *added;
    size_t stripes; /* of a row block, at most */
    size_t tasks;
    float *a; /* (2, ranges of k, panels, panel_depth, tile rows): blocks take
                 turns */
    float *b; /* (threads, panel_depth, tile columns) */
} product;

/* A block of A and a task of it. */
typedef struct block_task {
    const row_cut *cut;
    size_t index, block;
    size_t task; /* of the block */
    bool packs;
    size_t stripe; /* if it multiplies: by panel of columns, then rows */
    size_t row, row_end, from, from_end;
} block_task;

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

static block_task find_task(const product *p, size_t task)
{
    size_t whole = (p->row_blocks - 1) * p->k_blocks; // blocks before the last
    size_t before = whole * p->cut[0].tasks;
    bool last = task >= before;
    const row_cut *cut = &p->cut[last];
    size_t left = last ? task - before : task;
    block_task t = { .cut = cut,
                     .index = task,
                     .block = (last ? whole : 0) + left / cut->tasks,
                     .task = left % cut->tasks };
    t.row = t.block / p->k_blocks * p->rows;
    t.row_end = bt_size_min(t.row + p->rows, p->gemm->m);
    t.from = t.block % p->k_blocks * p->depth;
    t.from_end = bt_size_min(t.from + p->depth, p->gemm->k);
    t.packs = t.task < cut->pack_tasks;
    t.stripe = t.packs ? 0 : t.task - cut->pack_tasks;
    return t;
}

static size_t first_column(const product *p, const block_task *t)
{
    return t->stripe / t->cut->row_tasks * p->kernels->gemm_tiles->columns;
}

/* Floats of a packed block. */
static size_t block_floats(const product *p)
{
    size_t ranges = ceil_div(p->depth, p->panel_depth);
    return bt_size_mul(ranges * panel_count(p),
                       panel_stride(p, p->panel_depth));
}

/* The block is packed one range of k after the other, and within it panel by
 * panel, so that a task reads it sequentially. */
static float *panel_at(const product *p, const block_task *t, size_t row,
                       size_t from, size_t depth)
{
    size_t before = (from - t->from) / p->panel_depth * panel_count(p);
    return p->a + t->block % 2 * block_floats(p) +
           before * panel_stride(p, p->panel_depth) +
           row / p->kernels->gemm_tiles->rows * panel_stride(p, depth);
}

/* The block before the one before was at the same place. */
static void pack_rows(product *p, const block_task *t)
{
    size_t row = t->task * p->kernels->gemm_tiles->pack_rows;
    if (t->block >= 2) {
        size_t before = t->block - 2;
        const row_cut *cut = &p->cut[before / p->k_blocks + 1 == p->row_blocks];
        bt_progress_wait(&p->multiplied[before],
                         (unsigned)(cut->tasks - cut->pack_tasks));
    }
    for (size_t from = t->from; from < t->from_end; from += p->panel_depth) {
        size_t depth = bt_size_min(p->panel_depth, t->from_end - from);
        p->kernels->gemm_tiles->pack_a(panel_at(p, t, row, from, depth),
                                       panel_stride(p, depth), p->gemm,
                                       t->row + row, from, depth);
    }
    bt_progress_increment(&p->packed[t->block]);
}

/* Floats of a thread's panel of B, in whole cache lines. */
static size_t panel_floats(const product *p)
{
    return bt_size_round(p->kernels->gemm_tiles->columns * p->panel_depth,
                         BT_ALIGN / sizeof(float));
}

/* The panel that this thread will likely pack next, to prefetch it: the next
 * range of k, or that of the task `threads` tasks further on. */
static void next_panel(const product *p, const block_task *t,
                       bt_gemm_block *block)
{
    size_t ahead = t->index + (size_t)p->threads;
    block->next_column = block->column;
    block->next_from = block->from + block->depth;
    block->next_depth = 0;
    if (block->next_from < t->from_end) {
        block->next_depth =
            bt_size_min(p->panel_depth, t->from_end - block->next_from);
    } else if (ahead < p->tasks) {
        block_task next = find_task(p, ahead);
        block->next_column = first_column(p, &next);
        block->next_from = next.from;
        if (!next.packs)
            block->next_depth =
                bt_size_min(p->panel_depth, next.from_end - next.from);
    }
}

/* Locate the block's rows of A. */
static void find_a(const product *p, const block_task *t, bt_gemm_block *block)
{
    const bt_gemm *g = p->gemm;
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    if (p->packs) {
        block->a =
            panel_at(p, t, block->row - t->row, block->from, block->depth);
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

static void multiply_panel(const product *p, const block_task *t, int thread)
{
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    size_t row = t->row + t->stripe % t->cut->row_tasks * t->cut->rows;
    size_t column = first_column(p, t);
    bt_gemm_block block = {
        .row = row,
        .rows = bt_size_min(t->cut->rows, t->row_end - row),
        .column = column,
        .columns = bt_size_min(tiles->columns, p->gemm->n - column),
        .b = p->b + (size_t)thread * panel_floats(p),
    };
    for (size_t from = t->from; from < t->from_end; from += p->panel_depth) {
        block.from = from;
        block.depth = bt_size_min(p->panel_depth, t->from_end - from);
        find_a(p, t, &block);
        next_panel(p, t, &block);
        tiles->multiply(p->gemm, &block);
    }
}

/* A task waits for earlier ones only: those that pack its rows, and the one
 * that adds the range of k before to its stripe of C. */
static void run_task(void *job, size_t task, int thread)
{
    product *p = job;
    block_task t = find_task(p, task);
    if (t.packs) {
        pack_rows(p, &t);
        return;
    }
    unsigned range = (unsigned)(t.block % p->k_blocks);
    bt_progress *added =
        p->added ? p->added + t.block / p->k_blocks * p->stripes + t.stripe
                 : NULL;
    if (p->packs)
        bt_progress_wait(&p->packed[t.block], (unsigned)t.cut->pack_tasks);
    if (added)
        bt_progress_wait(added, range);
    multiply_panel(p, &t, thread);
    if (added)
        bt_progress_set(added, range + 1);
    if (p->packs)
        bt_progress_increment(&p->multiplied[t.block]);
}

/* Divide the rows of a block into the number of tasks that should finish
 * earliest if it were the only one. A task costs its rows plus the packing of
 * its panel. With an uneven division the threads wait for the last task, and
 * for half a task more on average, since cores are never equally fast. Fewer
 * tasks would do for several blocks; but a thread that takes every other task
 * has the same half of the rows in its L2 cache all along. */
static row_cut cut_rows(const product *p, size_t rows)
{
    const bt_gemm_tiles *tiles = p->kernels->gemm_tiles;
    size_t panels = ceil_div(p->gemm->n, tiles->columns);
    size_t threads = (size_t)p->threads;
    size_t best = SIZE_MAX;
    row_cut cut = { .rows = rows };
    for (size_t parts = 1; threads > 1 && parts <= 4 * threads; parts++) {
        size_t part = bt_size_round(ceil_div(rows, parts), tiles->rows);
        size_t tasks = panels * ceil_div(rows, part);
        size_t cost =
            (2 * ceil_div(tasks, threads) + 1) * (part + PACKING_ROWS);
        if (cost < best) {
            best = cost;
            cut.rows = part;
        }
    }
    cut.row_tasks = ceil_div(rows, cut.rows);
    cut.pack_tasks = p->packs ? ceil_div(rows, tiles->pack_rows) : 0;
    cut.tasks = cut.pack_tasks + panels * cut.row_tasks;
    return cut;
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
    p->row_blocks = ceil_div(g->m, p->rows);
    p->k_blocks = ceil_div(g->k, p->depth);
    p->cut[0] = cut_rows(p, p->rows);
    p->cut[1] = cut_rows(p, g->m - (p->row_blocks - 1) * p->rows);
    p->tasks = (p->row_blocks - 1) * p->k_blocks * p->cut[0].tasks +
               p->k_blocks * p->cut[1].tasks;
    for (size_t i = 0; i < 2; i++)
        p->stripes =
            bt_size_max(p->stripes, p->cut[i].tasks - p->cut[i].pack_tasks);
}

static bt_progress *take_progress(bt_arena *workspace, size_t rows,
                                  size_t columns)
{
    return bt_arena_alloc(workspace, rows, columns * sizeof(bt_progress));
}

static void take_workspace(product *p, bt_arena *workspace)
{
    size_t blocks = p->row_blocks * p->k_blocks;
    if (p->packs) {
        p->a = bt_arena_alloc(workspace, blocks > 1 ? 2 : 1,
                              block_floats(p) * sizeof(float));
        p->packed = take_progress(workspace, 1, blocks);
        p->multiplied = take_progress(workspace, 1, blocks);
    }
    if (p->k_blocks > 1)
        p->added = take_progress(workspace, p->row_blocks, p->stripes);
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

static void reset_progress(bt_progress *progress, size_t count)
{
    for (size_t i = 0; i < count && progress; i++)
        bt_progress_set(&progress[i], 0);
}

static bauta_status run_blocked(product *p, bt_arena *workspace,
                                bauta_error *err)
{
    cut_blocks(p);
    bauta_status status = reserve(p, workspace, err);
    if (status)
        return status;
    size_t blocks = p->row_blocks * p->k_blocks;
    reset_progress(p->packed, blocks);
    reset_progress(p->multiplied, blocks);
    reset_progress(p->added, p->row_blocks * p->stripes);
    bt_parallel_for(p->pool, p->tasks, run_task, p);
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
