/* SPDX-License-Identifier: Apache-2.0 */
/* decode_plan.c - a plan from one span per row; see steps.h.
 *
 * From row to row neither end of the span decreases, and consecutive spans
 * overlap or touch. So the blocks that some row of a tile touches are one
 * range, from the first block of the first row to the last block of the last
 * row; and the blocks that all rows cover lie between the start of the last
 * row's span and the end of the first row's. */
#include "mask/decode_plan.h"

#include "base/error.h"
#include "base/size.h"
#include "mask/bits.h"

#include <assert.h>
#include <string.h>

/* Count a run; write it once there is memory. */
static void add_run(bauta_plan *plan, bt_tile *tile, size_t first, size_t end,
                    bool full)
{
    if (first >= end)
        return;
    if (plan->runs)
        plan->runs[plan->run_count] =
            (bt_block_run){ first, end - first,
                            full ? BT_FULL : plan->word_count };
    plan->run_count++;
    if (!full)
        plan->word_count += (end - first) * tile->rows;
    tile->runs++;
    tile->visits += end - first;
}

/* The runs of a tile that begins at row r of its sequence. */
static void add_runs(bauta_plan *plan, const bt_row_visibility *rule,
                     bt_tile *tile, size_t r)
{
    bauta_span first = bt_row_span(rule, r);
    bauta_span last = bt_row_span(rule, r + tile->rows - 1);
    size_t lo = first.lo / BT_BLOCK;
    size_t hi = bt_size_round(last.hi, BT_BLOCK) / BT_BLOCK;
    size_t full_lo = bt_size_round(last.lo, BT_BLOCK) / BT_BLOCK;
    size_t full_hi = first.hi / BT_BLOCK;
    if (full_lo >= full_hi)
        full_lo = full_hi = hi;
    tile->run = plan->run_count;
    add_run(plan, tile, lo, full_lo, false);
    add_run(plan, tile, full_lo, full_hi, true);
    add_run(plan, tile, full_hi, hi, false);
}

static void fill_words(const bauta_plan *plan, const bt_block_run *run,
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

static void add_tile(bauta_plan *plan, const bt_row_visibility *rule, size_t r)
{
    size_t rows = bt_size_min(BT_TILE_ROWS, rule->rows - r);
    bt_tile tile = { .row = plan->rows + r, .rows = rows };
    if (rule->keys) {
        tile.grid = plan->block_count;
        add_runs(plan, rule, &tile, r);
    } else {
        tile.run = plan->run_count;
    }
    if (plan->tiles) {
        plan->tiles[plan->tile_count] = tile;
        for (size_t i = tile.run; i < plan->run_count; i++)
            fill_words(plan, &plan->runs[i], rule, &tile, r);
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
static void build(bauta_plan *plan, const bt_batch_mask *mask)
{
    plan->rows = plan->keys = plan->key_end = 0;
    plan->tile_count = plan->run_count = plan->block_count = 0;
    plan->word_count = 0;
    plan->one_origin = true;
    for (size_t d = 0; d < mask->queries.count; d++) {
        bt_row_visibility rule = bt_row_visibility_of(mask, d);
        for (size_t r = 0; r < rule.rows; r += BT_TILE_ROWS)
            add_tile(plan, &rule, r);
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
    build(plan, mask);
    arrays_alloc(plan, &measure);
    if (bt_arena_reserve(&out->memory, measure.used)) {
        *plan = (bauta_plan){ 0 };
        return bt_fail_memory(err, "the plan of a decoding step", measure.used);
    }
    arrays_alloc(plan, &out->memory);
    memset(plan->words, 0, plan->word_count * sizeof(*plan->words));
    build(plan, mask);
    return BAUTA_OK;
}

void bt_decode_plan_release(bt_decode_plan *plan)
{
    bt_arena_release(&plan->memory);
    *plan = (bt_decode_plan){ 0 };
}
