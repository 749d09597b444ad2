/* SPDX-License-Identifier: Apache-2.0 */
/* loop_list.c - from a plan to what the backward kernels read.
 *
 * Each list is built by one pass over the plan, made twice: first to count,
 * then to fill. Over keys the plan has everything but the flags. Over queries
 * the pass goes step by step: what the step's rows see is collected in a
 * mask_tile for each tile of keys, and then appended, transposed, to the runs
 * of that tile. */
#include "mask/loop_list.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- what both have ---------------------------------------------------- */

/* Append a step to the runs that end with *last, of which there are *count.
 * Returns whether a new one was begun. */
static bool append(bt_loop_run *last, size_t *count, bt_loop_run step)
{
    if (*count && last->flags == step.flags &&
        last->row + last->count * BT_STEP == step.row &&
        last->padded_row + last->count * BT_STEP == step.padded_row) {
        last->count++;
        return false;
    }
    *last = step;
    ++*count;
    return true;
}

/* Longest first; equal ones by row, so neighbours share rows in the cache. */
static int tile_order(const void *a, const void *b)
{
    const bt_loop_tile *x = a, *y = b;
    if (x->order != y->order)
        return x->order > y->order ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static void sort_tiles(bt_loop_list *list)
{
    qsort(list->tiles, list->tile_count, sizeof(bt_loop_tile), tile_order);
    list->empty_count = 0;
    for (size_t t = 0; t < list->tile_count; t++)
        list->empty_count += list->tiles[t].steps == 0;
}

/* Allocate runs and bits, once they are counted. */
static bauta_status make_room(bt_loop_list *list, bauta_error *err)
{
    if (list->run_count > INT32_MAX || list->bits_count > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu runs and %zu partial steps: the GPU kernels "
                       "count in 32 bits",
                       list->run_count, list->bits_count);
    size_t words = bt_size_mul(list->bits_count, list->tile_rows);
    list->runs = bt_alloc_zero(list->run_count, sizeof(bt_loop_run));
    list->bits = bt_alloc_zero(words, sizeof(uint64_t));
    if (!list->runs || !list->bits)
        return bt_fail_memory(err, "the runs of a plan",
                              bt_size_mul(words, sizeof(uint64_t)));
    return BAUTA_OK;
}

void bt_loop_list_release(bt_loop_list *list)
{
    bt_free(list->tiles);
    bt_free(list->runs);
    bt_free(list->bits);
    bt_free(list->step_list);
    bt_free(list->ranks);
    bt_free(list->gaps);
    *list = (bt_loop_list){ 0 };
}

/* ---- over keys --------------------------------------------------------- */

/* Rows [at, at + rows) of a tile of the plan: all of it, or a piece where it
 * has more rows than the kernel's tiles. */
typedef struct list_piece {
    const bt_tile *tile;
    size_t at, rows;
} list_piece;

/* What the groups of a piece see of a block, whose words begin with that of its
 * first row; NULL: it is full. */
static int32_t block_flags(const list_piece *of, const uint64_t *words)
{
    int32_t flags = 0;
    for (size_t row = 0; row < of->rows; row++) {
        size_t g = row / BT_STEP;
        if (!words || words[row])
            flags |= 1 << g;
        if (words && words[row] != UINT64_MAX)
            flags |= 1 << (BT_STEP_PARTIAL + g);
    }
    return flags;
}

/* A run of the plan as runs of steps, as far as the piece sees something of
 * them. Returns how many steps they have. */
static size_t add_blocks(bt_loop_list *list, const bauta_plan *plan,
                         const list_piece *of, const bt_block_run *run)
{
    const bt_tile *tile = of->tile;
    bt_loop_run last = { 0 };
    size_t count = 0, steps = 0;
    bool full = run->words == BT_FULL;
    for (size_t k = 0; k < run->count; k++) {
        const uint64_t *words =
            full ? NULL : plan->words + run->words + k * tile->rows + of->at;
        int32_t flags = block_flags(of, words);
        int32_t key = (int32_t)plan->blocks[tile->grid + run->first + k].key;
        if (!(flags & ((1 << BT_STEP_GROUPS) - 1)))
            continue;
        append(&last, &count,
               (bt_loop_run){ key, key, 1, flags,
                              full ? -1 : (int32_t)list->bits_count });
        if (list->runs)
            list->runs[list->run_count + count - 1] = last;
        if (!full && list->bits)
            memcpy(list->bits + list->bits_count * list->tile_rows, words,
                   of->rows * sizeof(uint64_t));
        list->bits_count += !full;
        steps++;
    }
    list->run_count += count;
    return steps;
}

/* Without an array of tiles, only count them. */
static void walk_blocks(bt_loop_list *list, const bauta_plan *plan)
{
    list->tile_count = list->run_count = list->bits_count = 0;
    for (size_t t = 0; t < plan->tile_count; t++) {
        const bt_tile *tile = &plan->tiles[t];
        for (size_t at = 0; at < tile->rows; at += list->tile_rows) {
            list_piece of = { tile, at,
                              bt_size_min(tile->rows - at, list->tile_rows) };
            size_t run = list->run_count, steps = 0;
            for (size_t r = 0; r < tile->runs; r++)
                steps +=
                    add_blocks(list, plan, &of, &plan->runs[tile->run + r]);
            if (list->tiles)
                list->tiles[list->tile_count] =
                    (bt_loop_tile){ .row = (int32_t)(tile->row + at),
                                    .rows = (int32_t)of.rows,
                                    .run = (int32_t)run,
                                    .runs = (int32_t)(list->run_count - run),
                                    .steps = (int32_t)steps,
                                    .order = (int32_t)steps };
            list->tile_count++;
        }
    }
}

bauta_status bt_loop_list_over_keys(bt_loop_list *list, const bauta_plan *plan,
                                    size_t tile_rows, bauta_error *err)
{
    *list = (bt_loop_list){ .tile_rows = tile_rows };
    walk_blocks(list, plan);
    list->tiles = bt_alloc_zero(list->tile_count, sizeof(bt_loop_tile));
    if (!list->tiles)
        return bt_fail_memory(err, "the tiles of a plan", list->tile_count);
    bauta_status status = make_room(list, err);
    if (status) {
        bt_loop_list_release(list);
        return status;
    }
    walk_blocks(list, plan);
    sort_tiles(list);
    return BAUTA_OK;
}

/* ---- over queries: the steps ------------------------------------------- */

/* The next tile, from t on, that sees something; tile_count: none. */
static size_t next_visible_tile(const bauta_plan *plan, size_t t)
{
    while (t < plan->tile_count && !plan->tiles[t].runs)
        t++;
    return t;
}

/* The first tile of the next origin. Origins never come back. */
static size_t next_origin(const bauta_plan *plan, size_t t)
{
    size_t grid = plan->tiles[t].grid;
    while (t < plan->tile_count && plan->tiles[t].grid == grid)
        t = next_visible_tile(plan, t + 1);
    return t;
}

static bool row_sees(const bauta_plan *plan, size_t row, size_t *t)
{
    while (plan->tiles[*t].row + plan->tiles[*t].rows <= row)
        ++*t;
    while (plan->tiles[*t].row > row)
        --*t;
    const bt_tile *tile = &plan->tiles[*t];
    for (size_t r = tile->run; r < tile->run + tile->runs; r++)
        for (size_t k = 0; k < plan->runs[r].count; k++)
            if (plan->runs[r].words == BT_FULL ||
                plan->words[plan->runs[r].words + k * tile->rows + row -
                            tile->row])
                return true;
    return false;
}

/* The rows of the origin of tile t, from the first to the last one that sees
 * something, as steps; without an array, only counted. */
static void split_rows(bt_loop_list *list, const bauta_plan *plan, size_t t)
{
    size_t next = next_origin(plan, t);
    size_t row = plan->tiles[t].row;
    size_t end = next < plan->tile_count ? plan->tiles[next].row : plan->rows;
    while (!row_sees(plan, row, &t))
        row++;
    t = next - 1;
    while (!row_sees(plan, end - 1, &t))
        end--;
    for (; row < end; row += BT_STEP) {
        if (list->step_list)
            list->step_list[list->step_count] =
                (bt_loop_step){ (int32_t)row,
                                (int32_t)bt_size_min(BT_STEP, end - row) };
        list->step_count++;
    }
}

static void walk_rows(bt_loop_list *list, const bauta_plan *plan)
{
    list->step_count = 0;
    for (size_t t = next_visible_tile(plan, 0); t < plan->tile_count;
         t = next_origin(plan, t))
        split_rows(list, plan, t);
}

/* Rows that are in no step; without an array, only counted. */
static void walk_gaps(bt_loop_list *list, const bauta_plan *plan)
{
    size_t row = 0;
    list->gap_count = 0;
    for (size_t s = 0; s <= list->step_count; s++) {
        const bt_loop_step *step = &list->step_list[s];
        bool last = s == list->step_count;
        size_t end = last ? plan->rows : (size_t)step->row;
        for (; row < end; row += BT_STEP) {
            if (list->gaps)
                list->gaps[list->gap_count] =
                    (bt_loop_step){ (int32_t)row,
                                    (int32_t)bt_size_min(BT_STEP, end - row) };
            list->gap_count++;
        }
        row = last ? end : end + (size_t)step->rows;
    }
}

static bauta_status make_gaps(bt_loop_list *list, const bauta_plan *plan,
                              bauta_error *err)
{
    walk_gaps(list, plan);
    list->gaps = bt_alloc_zero(list->gap_count, sizeof(bt_loop_step));
    if (!list->gaps)
        return bt_fail_memory(err, "the rows of a plan that see nothing",
                              list->gap_count);
    walk_gaps(list, plan);
    return BAUTA_OK;
}

/* ---- over queries: the tiles of keys ----------------------------------- */

/* Cut keys [from, to) into tiles; without an array, only count. */
static void split_keys(bt_loop_list *list, size_t from, size_t to)
{
    for (size_t key = from; key < to; key += list->tile_rows) {
        if (list->tiles)
            list->tiles[list->tile_count] =
                (bt_loop_tile){ .row = (int32_t)key,
                                .rows = (int32_t)bt_size_min(list->tile_rows,
                                                             to - key) };
        list->tile_count++;
    }
}

/* Tiles begin where a grid does, unless it overlaps those before. */
static void walk_grids(bt_loop_list *list, const bauta_plan *plan)
{
    size_t from = 0, end = 0;
    list->tile_count = 0;
    for (size_t t = next_visible_tile(plan, 0); t < plan->tile_count;) {
        size_t next = next_origin(plan, t);
        size_t behind = next < plan->tile_count ? plan->tiles[next].grid
                                                : plan->block_count;
        const bt_key_block *last = &plan->blocks[behind - 1];
        size_t origin = plan->blocks[plan->tiles[t].grid].key;
        if (origin >= end) {
            split_keys(list, from, end);
            split_keys(list, end, origin); // keys that nobody sees
            from = origin;
        }
        end = bt_size_max(end, last->key + last->keys);
        t = next;
    }
    split_keys(list, from, end);
    split_keys(list, end, plan->keys);
}

/* ---- over queries: the runs -------------------------------------------- */

/* What the rows of one step see of one tile of keys. */
typedef struct mask_tile {
    bool used;
    bool full[BT_STEP_GROUPS];              /* every row sees these 64 keys */
    uint64_t word[BT_STEP_GROUPS][BT_STEP]; /* index: row, bit: key */
} mask_tile;

/* The runs of one tile of keys so far. */
typedef struct column {
    bt_loop_run last;
    size_t run, runs;     /* its slice of list->runs */
    size_t bits, partial; /* and of list->bits */
    size_t visit, steps;  /* and of list->ranks */
} column;

typedef struct transposer {
    bt_loop_list *list;
    const bauta_plan *plan;
    mask_tile *mask_tiles; /* (tile_count) */
    column *columns;       /* (tile_count) */
    size_t low, high;      /* panes that may be in use */
} transposer;

static uint64_t low_bits(size_t count)
{
    return count >= 64 ? UINT64_MAX : ((uint64_t)1 << count) - 1;
}

static size_t tile_of_key(const bt_loop_list *list, size_t key)
{
    size_t low = 0, high = list->tile_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if ((size_t)list->tiles[middle].row <= key)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Row `row` of a step sees keys of the tile, from its key `at` on. */
static void mark_row(mask_tile *p, size_t row, size_t at, uint64_t word)
{
    size_t w = at / 64, shift = at % 64;
    p->word[w][row] |= word << shift;
    if (shift && w + 1 < BT_STEP_GROUPS)
        p->word[w + 1][row] |= word >> (64 - shift);
}

/* Rows [lo, hi) of a step see of a block what the words say that begin with
 * that of row lo; NULL: all of it. A block may lie in several tiles of keys
 * where grids overlap. */
static void mark_block(transposer *x, size_t lo, size_t hi,
                       const bt_key_block *block, const uint64_t *words)
{
    size_t done = 0;
    for (size_t t = tile_of_key(x->list, block->key); done < block->keys; t++) {
        const bt_loop_tile *tile = &x->list->tiles[t];
        size_t at = block->key + done - (size_t)tile->row;
        size_t here = bt_size_min(block->keys - done, (size_t)tile->rows - at);
        mask_tile *p = &x->mask_tiles[t];
        p->used = true;
        x->low = bt_size_min(x->low, t);
        x->high = bt_size_max(x->high, t + 1);
        if (!words && hi - lo == BT_STEP && here == 64 && at % 64 == 0)
            p->full[at / 64] = true;
        else
            for (size_t row = lo; row < hi; row++)
                mark_row(p, row, at,
                         (words ? words[row - lo] >> done : UINT64_MAX) &
                             low_bits(here));
        done += here;
    }
}

/* Fill the panes with what a step's rows see. *t: a tile at or before it. */
static void mark_step(transposer *x, const bt_loop_step *step, size_t *t)
{
    const bauta_plan *plan = x->plan;
    size_t first = (size_t)step->row, end = first + (size_t)step->rows;
    while (plan->tiles[*t].row + plan->tiles[*t].rows <= first)
        ++*t;
    for (size_t u = *t; u < plan->tile_count && plan->tiles[u].row < end; u++) {
        const bt_tile *tile = &plan->tiles[u];
        size_t lo = bt_size_max(tile->row, first);
        size_t hi = bt_size_min(tile->row + tile->rows, end);
        for (size_t r = tile->run; r < tile->run + tile->runs; r++) {
            const bt_block_run *run = &plan->runs[r];
            for (size_t k = 0; k < run->count; k++)
                mark_block(x, lo - first, hi - first,
                           &plan->blocks[tile->grid + run->first + k],
                           run->words == BT_FULL
                               ? NULL
                               : plan->words + run->words + k * tile->rows +
                                     (lo - tile->row));
        }
    }
}

/* What the 64 keys of group g see of the step, see bt_loop_run. */
static int32_t mask_tile_flags(const mask_tile *p, size_t g, size_t keys,
                               size_t rows)
{
    uint64_t any = 0, all = UINT64_MAX;
    if (p->full[g])
        return 1 << g;
    for (size_t row = 0; row < BT_STEP; row++) {
        any |= p->word[g][row];
        all &= p->word[g][row];
    }
    if (!any)
        return 0;
    // Rows after the step's last one and keys after the tile's last one are
    // hidden: they would be summed.
    bool full = rows == BT_STEP && keys >= 64 && all == UINT64_MAX;
    return 1 << g | (full ? 0 : 1 << (BT_STEP_PARTIAL + g));
}

/* Transpose the words of a mask_tile: index key, bit row. */
static void transpose_bits(uint64_t *to, const mask_tile *p, size_t groups)
{
    for (size_t g = 0; g < groups; g++)
        for (size_t row = 0; row < BT_STEP; row++) {
            uint64_t word = p->full[g] ? UINT64_MAX : p->word[g][row];
            for (; word; word &= word - 1)
                to[g * 64 + (size_t)__builtin_ctzll(word)] |= (uint64_t)1
                                                              << row;
        }
}

/* Returns whether the tile visits the step; `rank` others did before. */
static bool add_mask_tile(transposer *x, size_t t, size_t s, size_t rank)
{
    bt_loop_list *list = x->list;
    const bt_loop_step *step = &list->step_list[s];
    column *c = &x->columns[t];
    mask_tile *p = &x->mask_tiles[t];
    size_t groups = list->tile_rows / BT_STEP,
           keys = (size_t)list->tiles[t].rows;
    int32_t flags = 0;
    for (size_t g = 0; g < groups && g * 64 < keys; g++)
        flags |= mask_tile_flags(p, g, keys - g * 64, (size_t)step->rows);
    bool partial = flags >> BT_STEP_PARTIAL;
    if (flags) {
        append(&c->last, &c->runs,
               (bt_loop_run){ step->row, (int32_t)(s * BT_STEP), 1, flags,
                              partial ? (int32_t)(c->bits + c->partial) : -1 });
        if (list->runs)
            list->runs[c->run + c->runs - 1] = c->last;
        if (partial && list->bits)
            transpose_bits(list->bits +
                               (c->bits + c->partial) * list->tile_rows,
                           p, groups);
        if (list->ranks)
            list->ranks[c->visit + c->steps] = (int32_t)rank;
        c->partial += partial;
        c->steps++;
    }
    memset(p, 0, sizeof(*p));
    return flags;
}

static void walk_steps(transposer *x)
{
    size_t t = 0;
    for (size_t s = 0; s < x->list->step_count; s++) {
        x->low = SIZE_MAX;
        x->high = 0;
        mark_step(x, &x->list->step_list[s], &t);
        size_t rank = 0;
        for (size_t k = x->low; k < x->high; k++)
            if (x->mask_tiles[k].used)
                rank += add_mask_tile(x, k, s, rank);
    }
}

/* After counting: give each tile of keys its slices. */
static void place_columns(transposer *x)
{
    bt_loop_list *list = x->list;
    for (size_t t = 0; t < list->tile_count; t++) {
        column *c = &x->columns[t];
        bt_loop_tile *tile = &list->tiles[t];
        tile->run = (int32_t)list->run_count;
        tile->runs = (int32_t)c->runs;
        tile->steps = (int32_t)c->steps;
        tile->visit = (int32_t)list->visit_count;
        size_t run = list->run_count, bits = list->bits_count;
        list->run_count += c->runs;
        list->bits_count += c->partial;
        list->visit_count += c->steps;
        *c = (column){ .run = run, .bits = bits, .visit = (size_t)tile->visit };
    }
}

/* Longest first would be best for the balance; but a tile waits for those that
 * add to its steps before it, and must not be begun before them. So it counts
 * as no longer than any of these. Tiles lie in the order of their keys yet.
 * `shortest` (step_count) is scratch memory. */
static void order_tiles(bt_loop_list *list, int32_t *shortest)
{
    for (size_t s = 0; s < list->step_count; s++)
        shortest[s] = INT32_MAX;
    for (size_t t = 0; t < list->tile_count; t++) {
        bt_loop_tile *tile = &list->tiles[t];
        const bt_loop_run *first = list->runs + tile->run;
        const bt_loop_run *end = first + tile->runs;
        int32_t before = INT32_MAX;
        for (const bt_loop_run *w = first; w < end; w++)
            for (int32_t k = 0; k < w->count; k++)
                if (shortest[w->padded_row / BT_STEP + k] < before)
                    before = shortest[w->padded_row / BT_STEP + k];
        list->chain_count += tile->steps && before == INT32_MAX;
        tile->order = before < tile->steps ? before : tile->steps;
        for (const bt_loop_run *w = first; w < end; w++)
            for (int32_t k = 0; k < w->count; k++)
                shortest[w->padded_row / BT_STEP + k] = tile->order;
    }
}

static bauta_status make_ranks(bt_loop_list *list, bauta_error *err)
{
    if (list->visit_count > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu visits of steps: the GPU kernels count in 32 bits",
                       list->visit_count);
    list->ranks = bt_alloc_zero(list->visit_count, sizeof(int32_t));
    if (!list->ranks)
        return bt_fail_memory(err, "the visits of a plan",
                              bt_size_mul(list->visit_count, sizeof(int32_t)));
    return BAUTA_OK;
}

static bauta_status make_runs(bt_loop_list *list, const bauta_plan *plan,
                              bauta_error *err)
{
    transposer x = { .list = list, .plan = plan };
    bauta_status status;
    int32_t *shortest = bt_alloc_zero(list->step_count, sizeof(int32_t));
    x.mask_tiles = bt_alloc_zero(list->tile_count, sizeof(mask_tile));
    x.columns = bt_alloc_zero(list->tile_count, sizeof(column));
    if (!x.mask_tiles || !x.columns || !shortest) {
        status =
            bt_fail_memory(err, "the runs of a plan",
                           bt_size_mul(list->tile_count, sizeof(mask_tile)));
        goto done;
    }
    walk_steps(&x);
    place_columns(&x);
    status = make_room(list, err);
    if (!status)
        status = make_ranks(list, err);
    if (status)
        goto done;
    walk_steps(&x);
    order_tiles(list, shortest);
    sort_tiles(list);
done:
    bt_free(shortest);
    bt_free(x.mask_tiles);
    bt_free(x.columns);
    return status;
}

bauta_status bt_loop_list_over_queries(bt_loop_list *list,
                                       const bauta_plan *plan, size_t tile_rows,
                                       bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    *list = (bt_loop_list){ .tile_rows = tile_rows };
    walk_rows(list, plan);
    walk_grids(list, plan);
    list->step_list = bt_alloc_zero(list->step_count, sizeof(bt_loop_step));
    list->tiles = bt_alloc_zero(list->tile_count, sizeof(bt_loop_tile));
    if (!list->step_list || !list->tiles)
        status =
            bt_fail_memory(err, "the steps of a plan",
                           bt_size_mul(list->step_count, sizeof(bt_loop_step)));
    if (!status && bt_size_mul(list->step_count, BT_STEP) > INT32_MAX)
        status = bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                         "%zu steps over queries: the GPU kernels count in 32 "
                         "bits",
                         list->step_count);
    if (!status) {
        walk_rows(list, plan);
        walk_grids(list, plan);
        status = make_gaps(list, plan, err);
    }
    if (!status)
        status = make_runs(list, plan, err);
    if (status)
        bt_loop_list_release(list);
    return status;
}
