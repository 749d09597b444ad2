/* SPDX-License-Identifier: Apache-2.0 */
/* loop_list.c - from bands to what the backward kernels read. */
#include "mask/loop_list.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <stddef.h>
#include <string.h>

/* ---- what both have ---------------------------------------------------- */

static bauta_status begin(bt_loop_list *list, size_t tile_rows,
                          bauta_error *err)
{
    list->tile_rows = tile_rows;
    list->tile_count = list->run_count = list->bits_count = 0;
    list->step_count = list->empty_count = list->gap_count = 0;
    list->chain_count = list->visit_count = 0;
    list->dense_count = list->dense_visits = list->dense_step_count = 0;
    list->split_count = 0;
    return bt_scan_begin(&list->scan, err);
}

static bauta_status no_memory(bauta_error *err, size_t count, size_t size)
{
    return bt_fail_memory(err, "the runs of a plan", bt_size_mul(count, size));
}

/* What the groups of a tile see, as the flags of a step. */
static int32_t flags_of(uint32_t bits)
{
    uint32_t sees = bits & ((1 << BT_STEP_GROUPS) - 1);
    uint32_t partial = sees & ~(bits >> BT_SEES_ALL);
    return (int32_t)(sees | partial << BT_STEP_PARTIAL);
}

/* Append the segments of a tile as runs: step 0 begins at `row`, and at
 * `padded_row` in the other numbering. */
static bauta_status add_runs(bt_loop_list *list, size_t row, size_t padded_row,
                             bauta_error *err)
{
    const bt_band_scan *scan = &list->scan;
    if (BT_ARRAY_RESERVE(list->runs, list->run_capacity, list->run_count,
                         scan->segment_count))
        return no_memory(err, scan->segment_count, sizeof(bt_loop_run));
    bt_loop_run *last = NULL;
    for (size_t i = 0; i < scan->segment_count; i++) {
        const bt_block_segment *s = &scan->segments[i];
        int32_t flags = flags_of(s->bits), count = (int32_t)(s->hi - s->lo);
        int32_t first = (int32_t)(row + s->lo * BT_STEP);
        if (last && last->flags == flags &&
            last->row + last->count * BT_STEP == first) {
            last->count += count;
            continue;
        }
        last = &list->runs[list->run_count++];
        *last = (bt_loop_run){ first, (int32_t)(padded_row + s->lo * BT_STEP),
                               count, flags, -1 };
    }
    return BAUTA_OK;
}

/* The bits of a run whose shape was scanned: those of an equal one, or new
 * ones. *words: where to set them; NULL: they are there. */
static bauta_status place_bits(bt_loop_list *list, bt_loop_run *run,
                               uint64_t **words, bauta_error *err)
{
    size_t count = (size_t)run->count,
           used = list->bits_count * list->tile_rows;
    size_t more = bt_size_mul(count, list->tile_rows);
    *words = NULL;
    run->bits = bt_scan_find(&list->scan);
    if (run->bits >= 0)
        return BAUTA_OK;
    if (list->bits_count + count > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu partial steps: the GPU kernels count in 32 bits",
                       list->bits_count + count);
    if (BT_ARRAY_RESERVE(list->bits, list->bits_capacity, used, more))
        return no_memory(err, more, sizeof(uint64_t));
    memset(list->bits + used, 0, more * sizeof(uint64_t));
    *words = list->bits + used;
    run->bits = (int32_t)list->bits_count;
    list->bits_count += count;
    return bt_scan_remember(&list->scan, run->bits, err);
}

/* Append a tile whose runs are those from `run` on. */
static bauta_status add_tile(bt_loop_list *list, size_t row, size_t rows,
                             size_t run, bauta_error *err)
{
    size_t steps = 0;
    for (size_t r = run; r < list->run_count; r++)
        steps += (size_t)list->runs[r].count;
    if (BT_ARRAY_RESERVE(list->tiles, list->tile_capacity, list->tile_count, 1))
        return no_memory(err, 1, sizeof(bt_loop_tile));
    if (list->run_count > INT32_MAX || list->visit_count + steps > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu visits of steps: the GPU kernels count in 32 bits",
                       list->visit_count + steps);
    list->tiles[list->tile_count++] =
        (bt_loop_tile){ .row = (int32_t)row,
                        .rows = (int32_t)rows,
                        .run = (int32_t)run,
                        .runs = (int32_t)(list->run_count - run),
                        .steps = (int32_t)steps,
                        .visit = (int32_t)list->visit_count,
                        .order = (int32_t)steps };
    list->visit_count += steps;
    list->empty_count += steps == 0;
    return BAUTA_OK;
}

/* Where the tiles of an origin begin. */
typedef struct list_end {
    size_t tile, run, visit;
    const bt_origin_group *of; /* all that follows is of this one */
} list_end;

static list_end end_of(const bt_loop_list *list)
{
    return (list_end){ list->tile_count, list->run_count, list->visit_count,
                       NULL };
}

/* How far tiles, and the rows of their runs in both numberings, are moved. */
typedef struct tile_move {
    size_t tile, run, padded;
} tile_move;

/* Append what there is from `from` on once more, moved. */
static bauta_status repeat(bt_loop_list *list, const list_end *from,
                           tile_move move, bauta_error *err)
{
    list_end to = end_of(list);
    size_t tiles = to.tile - from->tile, runs = to.run - from->run;
    size_t visits = to.visit - from->visit;
    if (BT_ARRAY_RESERVE(list->tiles, list->tile_capacity, to.tile, tiles) ||
        BT_ARRAY_RESERVE(list->runs, list->run_capacity, to.run, runs))
        return no_memory(err, runs, sizeof(bt_loop_run));
    if (to.run + runs > INT32_MAX || to.visit + visits > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu visits of steps: the GPU kernels count in 32 bits",
                       to.visit + visits);
    for (size_t i = 0; i < tiles; i++) {
        bt_loop_tile *tile = &list->tiles[to.tile + i];
        *tile = list->tiles[from->tile + i];
        tile->row += (int32_t)move.tile;
        tile->run += (int32_t)runs;
        tile->visit += (int32_t)visits;
    }
    for (size_t i = 0; i < runs; i++) {
        bt_loop_run *run = &list->runs[to.run + i];
        *run = list->runs[from->run + i];
        run->row += (int32_t)move.run;
        run->padded_row += (int32_t)move.padded;
    }
    list->tile_count += tiles;
    list->run_count += runs;
    list->visit_count += visits;
    return BAUTA_OK;
}

static bauta_status sort_tiles(bt_loop_list *list, bt_tile_order order,
                               bauta_error *err)
{
    return bt_sort_tiles(&list->sort, list->tiles, list->tile_count,
                         sizeof(bt_loop_tile), offsetof(bt_loop_tile, order),
                         order, err);
}

void bt_loop_list_release(bt_loop_list *list)
{
    bt_free(list->tiles);
    bt_free(list->runs);
    bt_free(list->bits);
    bt_free(list->step_list);
    bt_free(list->ranks);
    bt_free(list->gaps);
    bt_free(list->step_visits);
    bt_free(list->dense_steps);
    bt_band_scan_release(&list->scan);
    bt_tile_sort_release(&list->sort);
    *list = (bt_loop_list){ 0 };
}

/* ---- over keys --------------------------------------------------------- */

/* Rows [row, row + rows) of a tile of the plan: all of it, or a piece. */
static bauta_status add_rows(bt_loop_list *list, const bt_bands *bands,
                             const bt_row_tile *tile, size_t row, size_t rows,
                             bauta_error *err)
{
    size_t first = list->run_count;
    bauta_status status =
        bt_scan_rows(&list->scan, bands, tile, row, rows, err);
    if (!status)
        status = add_runs(list, tile->origin, tile->origin, err);
    for (size_t r = first; r < list->run_count && !status; r++) {
        bt_loop_run *run = &list->runs[r];
        uint64_t *words = NULL;
        if (!(run->flags >> BT_STEP_PARTIAL))
            continue;
        status = bt_scan_shape(&list->scan, bands, tile->band, tile->band_end,
                               row, rows, (size_t)run->row,
                               (size_t)run->count * BT_STEP, err);
        if (!status)
            status = place_bits(list, run, &words, err);
        if (!status && words)
            bt_scan_fill_rows(&list->scan, words,
                              (bt_bit_layout){ 1, list->tile_rows, false });
    }
    return status ? status : add_tile(list, row, rows, first, err);
}

bauta_status bt_loop_list_over_keys(bt_loop_list *list, const bt_bands *bands,
                                    size_t most, size_t tile_rows,
                                    bt_tile_order order, bauta_error *err)
{
    bt_row_tile tile = { 0 };
    list_end before = { 0 }, here;
    size_t at_origin = 0;
    bauta_status status = begin(list, tile_rows, err);
    while (!status && bt_row_tile_next(&tile, bands, most)) {
        const bt_origin_group *origin = bt_row_tile_origin(&tile, bands);
        while (tile.sees && bands->origins[at_origin].key != tile.origin)
            at_origin++;
        if (tile.sees && bands->origins[at_origin].dense)
            continue;
        here = end_of(list);
        if (origin && origin->repeats && before.of == origin - 1) {
            size_t keys = origin->key - origin[-1].key;
            status = repeat(
                list, &before,
                (tile_move){ origin->row - origin[-1].row, keys, keys }, err);
            bt_row_tile_skip(&tile, origin);
        }
        for (size_t at = 0; at < tile.rows && !status; at += tile_rows)
            status = add_rows(list, bands, &tile, tile.row + at,
                              bt_size_min(tile.rows - at, tile_rows), err);
        if (origin) {
            before = here;
            before.of = origin;
        }
    }
    return status ? status : sort_tiles(list, order, err);
}

/* ---- over queries: the steps ------------------------------------------- */

/* Cut rows [row, end) into steps. */
static bauta_status split_rows(bt_loop_step **steps, size_t *count,
                               size_t *capacity, size_t row, size_t end,
                               bauta_error *err)
{
    size_t more = (end - row + BT_STEP - 1) / BT_STEP;
    if (BT_ARRAY_RESERVE(*steps, *capacity, *count, more))
        return no_memory(err, more, sizeof(bt_loop_step));
    for (; row < end; row += BT_STEP)
        (*steps)[(*count)++] =
            (bt_loop_step){ (int32_t)row,
                            (int32_t)bt_size_min(BT_STEP, end - row) };
    return BAUTA_OK;
}

/* The rows of every origin in steps, and those between them in gaps. */
static bauta_status add_steps(bt_loop_list *list, const bt_bands *bands,
                              bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t row = 0;
    for (size_t i = 0; i <= bands->origin_count && !status; i++) {
        bt_origin_group end = { .row = bands->rows, .row_end = bands->rows };
        bt_origin_group *at = &end;
        if (i < bands->origin_count)
            at = &bands->origins[i];
        at->step = list->step_count;
        status = split_rows(&list->gaps, &list->gap_count, &list->gap_capacity,
                            row, at->row, err);
        if (!status)
            status =
                split_rows(&list->step_list, &list->step_count,
                           &list->step_capacity, at->row, at->row_end, err);
        row = at->row_end;
    }
    if (!status && bt_size_mul(list->step_count, BT_STEP) > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu steps over queries: the GPU kernels count in 32 "
                       "bits",
                       list->step_count);
    return status;
}

/* ---- over queries: the tiles of keys ----------------------------------- */

/* The runs of a tile of keys over the steps of one origin. */
static bauta_status add_origin(bt_loop_list *list, const bt_bands *bands,
                               const bt_origin_group *origin, size_t key,
                               size_t keys, bauta_error *err)
{
    size_t first = list->run_count;
    bauta_status status =
        bt_scan_keys(&list->scan, bands, origin, key, keys, err);
    if (!status)
        status = add_runs(list, origin->row, origin->step * BT_STEP, err);
    for (size_t r = first; r < list->run_count && !status; r++) {
        bt_loop_run *run = &list->runs[r];
        size_t row = (size_t)run->row, rows = (size_t)run->count * BT_STEP;
        uint64_t *words = NULL;
        if (!(run->flags >> BT_STEP_PARTIAL))
            continue;
        rows = bt_size_min(rows, origin->row_end - row);
        status = bt_scan_shape(&list->scan, bands, origin->band,
                               origin->band_end, row, rows, key, keys, err);
        if (!status)
            status = place_bits(list, run, &words, err);
        if (!status && words)
            bt_scan_fill_keys(&list->scan, words,
                              (bt_bit_layout){ 1, list->tile_rows, false });
    }
    return status;
}

/* In how many passes the tiles of a document add. */
static size_t pass_count(const bt_loop_list *list)
{
    return (BT_PASS_KEYS + list->tile_rows - 1) / list->tile_rows;
}

/* Cut keys [from, to) into tiles; only origins [origin, end) see them. */
static bauta_status add_keys(bt_loop_list *list, const bt_bands *bands,
                             size_t from, size_t to, size_t origin, size_t end,
                             bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t key = from; key < to && !status; key += list->tile_rows) {
        size_t keys = bt_size_min(list->tile_rows, to - key);
        size_t run = list->run_count;
        for (size_t i = origin; i < end && !status; i++) {
            const bt_origin_group *of = &bands->origins[i];
            if (of->key < key + keys && of->key_end > key)
                status = add_origin(list, bands, of, key, keys, err);
        }
        if (!status)
            status = add_tile(list, key, keys, run, err);
        if (!status)
            list->tiles[list->tile_count - 1].pass =
                (int32_t)((key - from) / list->tile_rows % pass_count(list));
    }
    return status;
}

/* Tiles begin where an origin is, unless keys before it are seen from an
 * earlier one that also sees keys after it. */
static bauta_status add_tiles(bt_loop_list *list, const bt_bands *bands,
                              bauta_error *err)
{
    size_t end = 0, next;
    list_end before = { 0 };
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < bands->origin_count && !status; i = next) {
        const bt_origin_group *at = &bands->origins[i];
        list_end here;
        // Keys that nobody sees.
        status = add_keys(list, bands, end, at->key, 0, 0, err);
        end = at->key_end;
        for (next = i + 1;
             next < bands->origin_count && bands->origins[next].key < end;
             next++)
            end = bt_size_max(end, bands->origins[next].key_end);
        here = end_of(list);
        if (!status && at->repeats && before.of == at - 1 && next == i + 1 &&
            at->key == at[-1].key_end)
            status =
                repeat(list, &before,
                       (tile_move){ at->key - at[-1].key, at->row - at[-1].row,
                                    (at->step - at[-1].step) * BT_STEP },
                       err);
        else if (!status)
            status = add_keys(list, bands, at->key, end, i, next, err);
        before = here;
        before.of = next == i + 1 ? at : NULL;
    }
    if (!status)
        status = add_keys(list, bands, end, bands->keys, 0, 0, err);
    return status;
}

/* ---- over queries: the ranks ------------------------------------------- */

/* What a tile's steps were visited for before: `before[s]` times, and in this
 * pass by tiles no longer than shortest[s]. Longest first would be best for the
 * balance; but a tile waits for those that add to its steps before it, and must
 * not be begun before them. So it counts as no longer than any of these. */
static void rank_tile(bt_loop_list *list, bt_loop_tile *tile, int32_t *before,
                      int32_t *shortest)
{
    const bt_loop_run *first = list->runs + tile->run;
    const bt_loop_run *end = first + tile->runs;
    int32_t *rank = list->ranks + tile->visit, least = tile->steps;
    bool waits = false;
    for (const bt_loop_run *run = first; run < end; run++)
        for (int32_t k = 0, s = run->padded_row / BT_STEP; k < run->count;
             k++, s++) {
            waits |= before[s] > 0;
            *rank++ = before[s]++;
            if (shortest[s] < least)
                least = shortest[s];
        }
    list->chain_count += !waits;
    tile->order = least;
    for (const bt_loop_run *run = first; run < end; run++)
        for (int32_t k = 0, s = run->padded_row / BT_STEP; k < run->count;
             k++, s++)
            shortest[s] = least;
}

/* Whether a tile is of a dense origin; *origin: one at or before it. */
static bool is_dense(const bt_bands *bands, const bt_loop_tile *tile,
                     size_t *origin)
{
    while (*origin + 1 < bands->origin_count &&
           bands->origins[*origin + 1].key <= (size_t)tile->row)
        ++*origin;
    return tile->steps && bands->origins[*origin].dense;
}

/* Rank the dense tiles of a pass. Tiles lie in the order of their keys yet. */
static void rank_pass(bt_loop_list *list, const bt_bands *bands, int32_t pass,
                      int32_t *before, int32_t *shortest)
{
    size_t origin = 0;
    for (size_t s = 0; s < list->step_count; s++)
        shortest[s] = INT32_MAX;
    for (size_t t = 0; t < list->tile_count; t++) {
        bt_loop_tile *tile = &list->tiles[t];
        if (!is_dense(bands, tile, &origin) || tile->pass != pass)
            continue;
        rank_tile(list, tile, before, shortest);
        list->dense_count++;
        list->dense_visits += (size_t)tile->steps;
    }
}

/* Rank the dense tiles, and let them come first, pass by pass: split ones,
 * which are many short items, after the others. */
static bauta_status rank_tiles(bt_loop_list *list, const bt_bands *bands,
                               bauta_error *err)
{
    size_t origin = 0;
    int32_t most = 0, passes = (int32_t)pass_count(list);
    if (BT_ARRAY_RESERVE(list->ranks, list->rank_capacity, 0,
                         list->visit_count) ||
        BT_ARRAY_RESERVE(list->step_visits, list->step_visit_capacity, 0,
                         2 * list->step_count))
        return no_memory(err, list->visit_count, sizeof(int32_t));
    int32_t *before = list->step_visits, *shortest = before + list->step_count;
    memset(before, 0, list->step_count * sizeof(*before));
    for (size_t t = 0; t < list->tile_count; t++)
        most = list->tiles[t].steps > most ? list->tiles[t].steps : most;
    for (int32_t pass = 0; pass < passes; pass++)
        rank_pass(list, bands, pass, before, shortest);
    for (size_t t = 0; t < list->tile_count; t++) {
        bt_loop_tile *tile = &list->tiles[t];
        if (!is_dense(bands, tile, &origin))
            continue;
        bool split = bands->origins[origin].split;
        tile->order += (passes - tile->pass + (split ? 0 : passes)) * most;
        list->split_count += split;
    }
    return BAUTA_OK;
}

/* The steps of dense origins; none: there is none. */
static bauta_status find_dense_steps(bt_loop_list *list, const bt_bands *bands,
                                     bauta_error *err)
{
    for (size_t i = 0; i < bands->origin_count; i++) {
        const bt_origin_group *origin = &bands->origins[i];
        size_t end =
            i + 1 < bands->origin_count ? origin[1].step : list->step_count;
        if (!origin->dense)
            continue;
        if (BT_ARRAY_RESERVE(list->dense_steps, list->dense_step_capacity,
                             list->dense_step_count, end - origin->step))
            return no_memory(err, end - origin->step, sizeof(int32_t));
        for (size_t s = origin->step; s < end; s++)
            list->dense_steps[list->dense_step_count++] = (int32_t)s;
    }
    return BAUTA_OK;
}

bauta_status bt_loop_list_over_queries(bt_loop_list *list,
                                       const bt_bands *bands, size_t tile_rows,
                                       bt_tile_order order, bauta_error *err)
{
    bauta_status status = begin(list, tile_rows, err);
    if (!status)
        status = add_steps(list, bands, err);
    if (!status)
        status = add_tiles(list, bands, err);
    if (!status)
        status = find_dense_steps(list, bands, err);
    if (!status && list->dense_step_count)
        status = rank_tiles(list, bands, err);
    if (list->dense_count)
        order = (bt_tile_order){ 0 };
    return status ? status : sort_tiles(list, order, err);
}
