/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - compiles spans of keys to runs of blocks.
 *
 * Four passes. Each first counts, then allocates, then repeats and writes:
 *
 *   tiles    consecutive rows of the same origin
 *   grids    the origins that occur, and the last key seen from each
 *   runs     for each tile the blocks that some row touches, and among them
 *            those that every row covers
 *   visits   the runs, transposed
 *
 * Full blocks are never visited one by one: a row's spans become spans of
 * blocks, and the rows of a tile are united and intersected as lists. With S
 * spans, P partial blocks counted once per tile, and V visits, time and memory
 * are O(rows + S + P x tile_rows + V). A causal plan has at most 3 partial
 * blocks per tile, whatever the number of keys:
 *
 *     keys   0       64      128     192     256
 *     row    #       |       |       |       |      touched  [0, 2)
 *      .     ########|##     |       |       |      covered  [0, 0)
 *            --------+-------+-------+-------+--
 *     row    ########|###    |       |       |      touched  [0, 4)
 *      .     ########|#######|#######|####   |      covered  [0, 1) */
#include "mask/plan.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <assert.h>
#include <string.h>

/* The blocks of one origin. */
typedef struct grid {
    size_t origin;
    size_t end;   /* one past the last key that is seen from it */
    size_t block; /* its first block in plan->blocks */
} grid;

/* State needed only while a plan is compiled. */
typedef struct planner {
    const bauta_mask *mask;
    bauta_plan *plan;
    size_t first;      /* row of the mask that is row 0 of the plan */
    size_t tile_rows;  /* at most */
    size_t tile_spans; /* most spans in the rows of one tile */
    grid *grids;       /* (grid_count), with room for one per tile */
    size_t grid_count;
    bauta_span *list[4]; /* (2 * tile_spans) lists of blocks */
    size_t *opened;      /* (blocks) first of the consecutive tiles that see the
                            whole block */
} planner;

/* Zeroed memory, or NULL and an error message. */
static void *alloc(size_t count, size_t size, const char *what,
                   bauta_error *err)
{
    void *memory = bt_alloc_zero(count, size);
    if (!memory)
        bt_fail_memory(err, what, bt_size_mul(count, size));
    return memory;
}

static bt_spans row_spans(const planner *p, size_t row)
{
    return bt_mask_spans(p->mask, p->first + row);
}

/* ---- Tiles --------------------------------------------------------------- */

typedef struct tile_cut {
    size_t rows, spans;
    size_t origin, end; /* of the rows that see something */
    uint64_t pairs;
} tile_cut;

/* The tile that begins at `row`. Rows that see nothing fit into any tile. */
static tile_cut cut_tile(const planner *p, size_t row)
{
    size_t most = bt_size_min(p->tile_rows, p->plan->rows - row);
    tile_cut c = { 0, 0, 0, 0, 0 };
    for (; c.rows < most; c.rows++) {
        bt_spans spans = row_spans(p, row + c.rows);
        if (!spans.count)
            continue;
        size_t origin = bt_mask_rows(p->mask)->origin[p->first + row + c.rows];
        if (c.spans && origin != c.origin)
            break;
        c.origin = origin;
        c.end = bt_size_max(c.end, spans.at[spans.count - 1].hi);
        c.spans += spans.count;
        for (size_t k = 0; k < spans.count; k++)
            c.pairs += spans.at[k].hi - spans.at[k].lo;
    }
    return c;
}

static void count_tiles(planner *p)
{
    bauta_plan *plan = p->plan;
    for (size_t row = 0; row < plan->rows;) {
        tile_cut c = cut_tile(p, row);
        p->tile_spans = bt_size_max(p->tile_spans, c.spans);
        plan->key_end = bt_size_max(plan->key_end, c.end);
        plan->pairs += c.pairs;
        plan->tile_count++;
        row += c.rows;
    }
}

/* The grid of an origin: the last one or a new one. Origins never decrease, so
 * an earlier origin does not recur. */
static size_t grid_of(planner *p, size_t origin)
{
    if (!p->grid_count || p->grids[p->grid_count - 1].origin != origin)
        p->grids[p->grid_count++].origin = origin;
    return p->grid_count - 1;
}

/* Fill in the tiles' rows; `grid` holds the index of the grid for now. */
static void fill_tiles(planner *p)
{
    bauta_plan *plan = p->plan;
    size_t row = 0;
    for (size_t t = 0; t < plan->tile_count; t++) {
        tile_cut c = cut_tile(p, row);
        plan->tiles[t] = (bt_tile){ .row = row, .rows = c.rows };
        row += c.rows;
        if (!c.spans)
            continue;
        size_t g = grid_of(p, c.origin);
        p->grids[g].end = bt_size_max(p->grids[g].end, c.end);
        plan->tiles[t].grid = g;
    }
}

static bauta_status make_tiles(planner *p, bauta_error *err)
{
    bauta_plan *plan = p->plan;
    count_tiles(p);
    plan->tiles = alloc(plan->tile_count, sizeof(*plan->tiles),
                        "the tiles of a plan", err);
    if (!plan->tiles)
        return BAUTA_ERR_NOMEM;
    p->grids = alloc(plan->tile_count, sizeof(*p->grids), "grids", err);
    if (!p->grids)
        return BAUTA_ERR_NOMEM;
    fill_tiles(p);
    return BAUTA_OK;
}

/* ---- Grids --------------------------------------------------------------- */

static void fill_grid(bauta_plan *plan, const grid *g)
{
    bt_key_block *block = plan->blocks + g->block;
    for (size_t key = g->origin; key < g->end; key += BT_BLOCK)
        *block++ = (bt_key_block){
            .key = key,
            .keys = bt_size_min(BT_BLOCK, g->end - key),
        };
}

static bauta_status make_grids(planner *p, bauta_error *err)
{
    bauta_plan *plan = p->plan;
    for (grid *g = p->grids; g < p->grids + p->grid_count; g++) {
        g->block = plan->block_count;
        plan->block_count += (g->end - g->origin + BT_BLOCK - 1) / BT_BLOCK;
    }
    plan->one_origin =
        p->grid_count == 0 || (p->grid_count == 1 && p->grids[0].origin == 0);
    plan->blocks = alloc(plan->block_count, sizeof(*plan->blocks),
                         "the key blocks of a plan", err);
    if (!plan->blocks)
        return BAUTA_ERR_NOMEM;
    for (size_t g = 0; g < p->grid_count; g++)
        fill_grid(plan, &p->grids[g]);
    // A tile that sees nothing has grid 0, which begins at block 0.
    for (size_t t = 0; t < plan->tile_count && p->grid_count; t++)
        plan->tiles[t].grid = p->grids[plan->tiles[t].grid].block;
    return BAUTA_OK;
}

/* ---- Runs ---------------------------------------------------------------- */

/* The key from which the blocks of a tile are counted. */
static size_t tile_origin(const bauta_plan *plan, const bt_tile *tile)
{
    return plan->block_count ? plan->blocks[tile->grid].key : 0;
}

/* Blocks of which a row sees at least one key. */
static size_t touched(bauta_span *to, bt_spans row, size_t origin)
{
    size_t count = 0;
    for (size_t k = 0; k < row.count; k++)
        count =
            bt_spans_append(to, count, (row.at[k].lo - origin) / BT_BLOCK,
                            (row.at[k].hi - origin + BT_BLOCK - 1) / BT_BLOCK);
    return count;
}

/* Blocks of which a row sees all 64 keys. */
static size_t covered(bauta_span *to, bt_spans row, size_t origin)
{
    size_t count = 0;
    for (size_t k = 0; k < row.count; k++)
        count = bt_spans_append(
            to, count, (row.at[k].lo - origin + BT_BLOCK - 1) / BT_BLOCK,
            (row.at[k].hi - origin) / BT_BLOCK);
    return count;
}

/* Combine the rows of a tile, each as a list of blocks. The result is in one of
 * the two lists `at` and `next`. It has no more spans than the rows so far. If
 * it has more than the next row, the difference is in partial blocks, for which
 * the tile has a word per row anyway, so the cost stays bounded. */
static bt_spans fold(const planner *p, const bt_tile *tile,
                     size_t blocks(bauta_span *, bt_spans, size_t),
                     bt_spans_fn *combine, bauta_span *at, bauta_span *next)
{
    size_t origin = tile_origin(p->plan, tile);
    size_t count = blocks(at, row_spans(p, tile->row), origin);
    for (size_t r = 1; r < tile->rows; r++) {
        bt_spans row = { p->list[3], 0 };
        row.count = blocks(p->list[3], row_spans(p, tile->row + r), origin);
        count = combine(next, (bt_spans){ at, count }, row);
        bauta_span *swap = at;
        at = next;
        next = swap;
    }
    return (bt_spans){ at, count };
}

/* Count a run; write it once there is memory. */
static void add_run(bauta_plan *plan, bt_tile *tile, size_t first, size_t end,
                    bool full)
{
    if (first >= end)
        return;
    size_t count = end - first;
    if (plan->runs)
        plan->runs[plan->run_count] =
            (bt_block_run){ first, count, full ? BT_FULL : plan->word_count };
    plan->run_count++;
    if (!full)
        plan->word_count += count * tile->rows;
    tile->runs++;
    tile->visits += count;
}

/* Split the touched blocks by the full ones among them. */
static void add_runs(bauta_plan *plan, bt_tile *tile, bt_spans seen,
                     bt_spans full)
{
    size_t f = 0;
    for (size_t k = 0; k < seen.count; k++) {
        size_t at = seen.at[k].lo;
        for (; f < full.count && full.at[f].lo < seen.at[k].hi; f++) {
            add_run(plan, tile, at, full.at[f].lo, false);
            add_run(plan, tile, full.at[f].lo, full.at[f].hi, true);
            at = full.at[f].hi;
        }
        add_run(plan, tile, at, seen.at[k].hi, false);
    }
}

/* Count the runs and words; write the runs once there is memory for them. */
static void scan_runs(planner *p)
{
    bauta_plan *plan = p->plan;
    plan->run_count = plan->word_count = 0;
    for (size_t t = 0; t < plan->tile_count; t++) {
        bt_tile *tile = &plan->tiles[t];
        tile->run = plan->run_count;
        tile->runs = tile->visits = 0;
        // fold() leaves its result in one of its two lists; the other is free.
        bt_spans seen =
            fold(p, tile, touched, bt_spans_union, p->list[0], p->list[1]);
        bauta_span *other = seen.at == p->list[0] ? p->list[1] : p->list[0];
        bt_spans full =
            fold(p, tile, covered, bt_spans_intersect, other, p->list[2]);
        add_runs(plan, tile, seen, full);
    }
}

/* The words of row r of a tile, in all its partial runs. */
static void fill_words(bauta_plan *plan, const bt_tile *tile, size_t r,
                       bt_spans row)
{
    size_t origin = tile_origin(plan, tile), k = 0;
    for (size_t i = 0; i < tile->runs; i++) {
        const bt_block_run *run = &plan->runs[tile->run + i];
        if (run->words == BT_FULL)
            continue;
        size_t lo = origin + run->first * BT_BLOCK;
        size_t hi = lo + run->count * BT_BLOCK;
        while (k < row.count && row.at[k].hi <= lo)
            k++;
        for (size_t s = k; s < row.count && row.at[s].lo < hi; s++)
            bt_bits_set(plan->words + run->words + r, tile->rows,
                        bt_size_max(lo, row.at[s].lo) - lo,
                        bt_size_min(hi, row.at[s].hi) - lo);
    }
}

static bauta_status make_runs(planner *p, bauta_error *err)
{
    bauta_plan *plan = p->plan;
    for (size_t i = 0; i < BT_LEN(p->list); i++) {
        p->list[i] = alloc(bt_size_mul(2, p->tile_spans), sizeof(bauta_span),
                           "lists of blocks", err);
        if (!p->list[i])
            return BAUTA_ERR_NOMEM;
    }
    scan_runs(p);
    plan->runs =
        alloc(plan->run_count, sizeof(*plan->runs), "the runs of a plan", err);
    if (!plan->runs)
        return BAUTA_ERR_NOMEM;
    plan->words = alloc(plan->word_count, sizeof(*plan->words),
                        "the words of a plan", err);
    if (!plan->words)
        return BAUTA_ERR_NOMEM;
    scan_runs(p);
    for (size_t t = 0; t < plan->tile_count; t++)
        for (size_t r = 0; r < plan->tiles[t].rows; r++)
            fill_words(plan, &plan->tiles[t], r,
                       row_spans(p, plan->tiles[t].row + r));
    return BAUTA_OK;
}

/* ---- Visits -------------------------------------------------------------- */

/* Count a visit; write it once there is memory. The visits of a block come in
 * tile order. */
static void add_visit(bauta_plan *plan, size_t block, bt_tile_run visit)
{
    bt_key_block *b = &plan->blocks[block];
    if (plan->visits)
        plan->visits[b->visit + b->visits] = visit;
    b->visits++;
}

/* The full blocks of a tile, as indices into plan->blocks. */
static size_t full_blocks(bauta_span *to, const bauta_plan *plan, size_t t)
{
    size_t count = 0;
    const bt_tile *tile = &plan->tiles[t];
    for (size_t i = 0; i < tile->runs; i++) {
        const bt_block_run *run = &plan->runs[tile->run + i];
        size_t first = tile->grid + run->first;
        if (run->words == BT_FULL)
            count = bt_spans_append(to, count, first, first + run->count);
    }
    return count;
}

static void add_partial_visits(bauta_plan *plan, size_t t)
{
    const bt_tile *tile = &plan->tiles[t];
    for (size_t i = 0; i < tile->runs; i++) {
        const bt_block_run *run = &plan->runs[tile->run + i];
        for (size_t k = 0; k < run->count && run->words != BT_FULL; k++)
            add_visit(plan, tile->grid + run->first + k,
                      (bt_tile_run){ t, 1, run->words + k * tile->rows });
    }
}

/* Only the differences from tile to tile matter: a block that is no longer full
 * ends a run of tiles, and one that becomes full opens one. After the last tile
 * every run ends. */
static void scan_visits(planner *p)
{
    bauta_plan *plan = p->plan;
    bt_spans before = { p->list[0], 0 };
    for (size_t t = 0; t <= plan->tile_count; t++) {
        bauta_span *to = before.at == p->list[0] ? p->list[1] : p->list[0];
        bt_spans now = { to, 0 };
        if (t < plan->tile_count)
            now.count = full_blocks(to, plan, t);
        size_t ended = bt_spans_subtract(p->list[2], before, now);
        for (size_t k = 0; k < ended; k++)
            for (size_t b = p->list[2][k].lo; b < p->list[2][k].hi; b++)
                add_visit(
                    plan, b,
                    (bt_tile_run){ p->opened[b], t - p->opened[b], BT_FULL });
        size_t begun = bt_spans_subtract(p->list[2], now, before);
        for (size_t k = 0; k < begun; k++)
            for (size_t b = p->list[2][k].lo; b < p->list[2][k].hi; b++)
                p->opened[b] = t;
        if (t < plan->tile_count)
            add_partial_visits(plan, t);
        before = now;
    }
}

static bauta_status make_visits(planner *p, bauta_error *err)
{
    bauta_plan *plan = p->plan;
    p->opened = alloc(plan->block_count, sizeof(*p->opened), "open tiles", err);
    if (!p->opened)
        return BAUTA_ERR_NOMEM;
    scan_visits(p);
    for (size_t b = 0; b < plan->block_count; b++) {
        plan->blocks[b].visit = plan->visit_count;
        plan->visit_count += plan->blocks[b].visits;
        plan->blocks[b].visits = 0;
    }
    plan->visits = alloc(plan->visit_count, sizeof(*plan->visits),
                         "the visits of a plan", err);
    if (!plan->visits)
        return BAUTA_ERR_NOMEM;
    scan_visits(p);
    return BAUTA_OK;
}

/* ---- The plan ----------------------------------------------------------- */

static bauta_status check(const bauta_mask *mask, size_t first, size_t rows,
                          size_t tile_rows, bauta_error *err)
{
    if (!mask)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "the mask to plan is NULL");
    if (first > mask->queries || rows > mask->queries - first)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a plan of %zu rows from row %zu on exceeds a mask of "
                       "%zu queries",
                       rows, first, mask->queries);
    if (tile_rows < 1 || tile_rows > BT_TILE_ROWS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "tiles of %zu rows: from 1 to %d are supported",
                       tile_rows, BT_TILE_ROWS_MAX);
    return BAUTA_OK;
}

static bauta_status make(planner *p, bauta_error *err)
{
    bauta_status status = make_tiles(p, err);
    if (!status)
        status = make_grids(p, err);
    if (!status)
        status = make_runs(p, err);
    if (!status)
        status = make_visits(p, err);
    return status;
}

static void planner_release(planner *p)
{
    bt_free(p->grids);
    bt_free(p->opened);
    for (size_t i = 0; i < BT_LEN(p->list); i++)
        bt_free(p->list[i]);
}

bauta_status bt_plan_create(bauta_plan **out, const bauta_mask *mask,
                            size_t first, size_t rows, size_t tile_rows,
                            bauta_error *err)
{
    if (!out)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "out is NULL: there is no place for the plan");
    *out = NULL;
    bauta_status status = check(mask, first, rows, tile_rows, err);
    if (status)
        return status;

    bauta_plan *plan = alloc(1, sizeof(*plan), "a plan", err);
    if (!plan)
        return BAUTA_ERR_NOMEM;
    plan->rows = rows;
    plan->keys = mask->keys;
    plan->first_position =
        (ptrdiff_t)first + (ptrdiff_t)mask->keys - (ptrdiff_t)mask->queries;
    planner p = {
        .mask = mask, .plan = plan, .first = first, .tile_rows = tile_rows
    };
    status = make(&p, err);
    planner_release(&p);
    if (status)
        bauta_plan_free(plan);
    else
        *out = plan;
    return status;
}

bauta_status bauta_plan_create(bauta_plan **out, const bauta_mask *mask,
                               size_t first, size_t rows, bauta_error *err)
{
    return bt_plan_create(out, mask, first, rows, BT_TILE_ROWS, err);
}

void bauta_plan_free(bauta_plan *plan)
{
    if (!plan)
        return;
    bt_free(plan->tiles);
    bt_free(plan->runs);
    bt_free(plan->blocks);
    bt_free(plan->visits);
    bt_free(plan->words);
    bt_free(plan);
}

/* ---- Decoding: one span per row ----------------------------------------- */

/* From row to row neither end of the span decreases, and consecutive spans
 * overlap or touch. So the blocks that some row of a tile touches are one
 * range, from the first block of the first row to the last block of the last
 * row; and the blocks that all rows cover lie between the start of the last
 * row's span and the end of the first row's. */

/* The runs of a tile that begins at row r of its sequence. */
static void add_row_runs(bauta_plan *plan, const bt_row_visibility *rule,
                         bt_tile *tile, size_t r)
{
    bauta_span first = bt_row_span(rule, r);
    bauta_span last = bt_row_span(rule, r + tile->rows - 1);
    bauta_span seen = { first.lo / BT_BLOCK,
                        bt_size_round(last.hi, BT_BLOCK) / BT_BLOCK };
    bauta_span full = { bt_size_round(last.lo, BT_BLOCK) / BT_BLOCK,
                        first.hi / BT_BLOCK };
    tile->run = plan->run_count;
    add_runs(plan, tile, (bt_spans){ &seen, seen.lo < seen.hi },
             (bt_spans){ &full, full.lo < full.hi });
}

static void fill_run(const bauta_plan *plan, const bt_block_run *run,
                     const bt_row_visibility *rule, const bt_tile *tile,
                     size_t r)
{
    size_t lo = run->first * BT_BLOCK, hi = lo + run->count * BT_BLOCK;
    for (size_t i = 0; i < tile->rows && run->words != BT_FULL; i++) {
        bauta_span span = bt_row_span(rule, r + i);
        span.lo = bt_size_max(span.lo, lo) - lo;
        span.hi = bt_size_max(bt_size_min(span.hi, hi), lo) - lo;
        bt_bits_set(plan->words + run->words + i, tile->rows, span.lo, span.hi);
    }
}

static void add_rows(bauta_plan *plan, const bt_row_visibility *rule, size_t r)
{
    size_t rows = bt_size_min(BT_TILE_ROWS, rule->rows - r);
    bt_tile tile = { .row = plan->rows + r, .rows = rows };
    if (rule->keys) {
        tile.grid = plan->block_count;
        add_row_runs(plan, rule, &tile, r);
    } else {
        tile.run = plan->run_count;
    }
    if (plan->tiles) {
        plan->tiles[plan->tile_count] = tile;
        for (size_t i = tile.run; i < plan->run_count; i++)
            fill_run(plan, &plan->runs[i], rule, &tile, r);
    }
    plan->tile_count++;
    for (size_t i = 0; i < rows && !plan->tiles; i++) {
        bauta_span span = bt_row_span(rule, r + i);
        plan->pairs += span.hi - span.lo;
    }
}

static void add_grid(bauta_plan *plan, size_t keys)
{
    for (size_t key = 0; key < keys; key += BT_BLOCK) {
        if (plan->blocks)
            plan->blocks[plan->block_count] = (bt_key_block){
                .key = plan->keys + key,
                .keys = bt_size_min(BT_BLOCK, keys - key),
            };
        plan->block_count++;
    }
}

/* First pass: count everything. Second pass, with memory: write it. */
static void build_rows(bauta_plan *plan, const bt_batch_mask *mask)
{
    plan->rows = plan->keys = plan->key_end = 0;
    plan->tile_count = plan->run_count = plan->block_count = 0;
    plan->word_count = 0;
    plan->one_origin = true;
    for (size_t d = 0; d < mask->queries.count; d++) {
        bt_row_visibility rule = bt_row_visibility_of(mask, d);
        for (size_t r = 0; r < rule.rows; r += BT_TILE_ROWS)
            add_rows(plan, &rule, r);
        add_grid(plan, rule.keys);
        if (rule.keys) {
            plan->one_origin = plan->keys == 0;
            plan->key_end = plan->keys + rule.keys;
        }
        plan->rows += rule.rows;
        plan->keys += rule.keys;
    }
}

static void arrays_alloc(bauta_plan *plan, bt_arena *arena)
{
    plan->tiles = bt_arena_alloc(arena, plan->tile_count, sizeof(*plan->tiles));
    plan->runs = bt_arena_alloc(arena, plan->run_count, sizeof(*plan->runs));
    plan->blocks =
        bt_arena_alloc(arena, plan->block_count, sizeof(*plan->blocks));
    plan->words = bt_arena_alloc(arena, plan->word_count, sizeof(*plan->words));
}

bauta_status bt_decode_plan_build(bt_decode_plan *out,
                                  const bt_batch_mask *mask, bauta_error *err)
{
    bauta_plan *plan = &out->plan;
    bt_arena measure = { NULL, 0, 0 };
    assert(!mask->extra); // each row is one span
    *plan = (bauta_plan){ 0 };
    build_rows(plan, mask);
    arrays_alloc(plan, &measure);
    if (bt_arena_reserve(&out->memory, measure.used)) {
        *plan = (bauta_plan){ 0 };
        return bt_fail_memory(err, "the plan of a decoding step", measure.used);
    }
    arrays_alloc(plan, &out->memory);
    memset(plan->words, 0, plan->word_count * sizeof(*plan->words));
    build_rows(plan, mask);
    return BAUTA_OK;
}

void bt_decode_plan_release(bt_decode_plan *plan)
{
    bt_arena_release(&plan->memory);
    *plan = (bt_decode_plan){ 0 };
}
