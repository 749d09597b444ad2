/* SPDX-License-Identifier: Apache-2.0 */
/* work_list.c - from bands to what the forward kernels read. */
#include "mask/work_list.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/plan.h"

#include <stddef.h>
#include <string.h>

bauta_status bt_worklist_begin(bt_worklist *list, size_t tile_rows,
                               size_t chunk, bauta_error *err)
{
    list->tile_rows = tile_rows;
    list->chunk = chunk;
    list->rows = list->keys = 0;
    list->tile_count = list->run_count = list->bits_count = 0;
    list->empty_count = 0;
    list->chunked = false;
    return bt_scan_begin(&list->scan, err);
}

static bauta_status no_memory(bauta_error *err, size_t bytes)
{
    return bt_fail_memory(err, "the work list of a plan", bytes);
}

/* Append `count` pairs of blocks of the tile whose first run is `run`: what its
 * groups see of the first and of the second block. */
static bauta_status add_pairs(bt_worklist *list, size_t run, size_t key,
                              size_t count, const uint32_t bits[2],
                              uint32_t groups, bauta_error *err)
{
    bool full = (bits[0] & bits[1]) >> BT_SEES_ALL == groups;
    int32_t halves = full ? -1 : 0;
    for (int32_t i = 0; i < 2 * 8 && !full; i++)
        halves |= (int32_t)(bits[i % 2] >> i / 2 & 1) << i;
    bt_work_run *last =
        list->run_count > run ? &list->runs[list->run_count - 1] : NULL;
    if (last && last->halves == halves &&
        (size_t)last->key + (size_t)last->count * BT_PAIR == key) {
        last->count += (int32_t)count;
        return BAUTA_OK;
    }
    if (BT_ARRAY_RESERVE(list->runs, list->run_capacity, list->run_count, 1))
        return no_memory(err, sizeof(bt_work_run));
    list->runs[list->run_count++] =
        (bt_work_run){ (int32_t)key, (int32_t)count, -1, halves };
    return BAUTA_OK;
}

/* The runs of a tile, from the segments of its blocks; blocks are taken in
 * pairs. */
static bauta_status add_runs(bt_worklist *list, const bt_row_tile *tile,
                             bauta_error *err)
{
    const bt_block_segment *s = list->scan.segments;
    const bt_block_segment *end = s + list->scan.segment_count;
    uint32_t groups = ((uint32_t)1 << (tile->rows + 63) / 64) - 1;
    size_t run = list->run_count, block = 0;
    bauta_status status = BAUTA_OK;
    while (s < end && !status) {
        if (s->hi <= block) {
            s++;
            continue;
        }
        block = bt_size_max(block, s->lo / 2 * 2);
        uint32_t bits[2] = { s->lo <= block ? s->bits : 0, 0 };
        size_t count = bits[0] ? (s->hi - block) / 2 : 0;
        if (s->hi > block + 1)
            bits[1] = s->bits;
        else if (s + 1 < end && s[1].lo == block + 1)
            bits[1] = s[1].bits;
        count = bt_size_max(count, 1);
        status = add_pairs(list, run, tile->origin + block * BT_BLOCK, count,
                           bits, groups, err);
        block += 2 * count;
    }
    return status;
}

/* The bits of a run that is not full. */
static bauta_status add_bits(bt_worklist *list, const bt_bands *bands,
                             const bt_row_tile *tile, bt_work_run *run,
                             bauta_error *err)
{
    size_t words = list->tile_rows * 2, count = (size_t)run->count;
    bauta_status status =
        bt_scan_shape(&list->scan, bands, tile->band, tile->band_end, tile->row,
                      tile->rows, (size_t)run->key, count * BT_PAIR, err);
    if (status)
        return status;
    run->bits = bt_scan_find(&list->scan);
    if (run->bits >= 0)
        return BAUTA_OK;
    size_t used = list->bits_count * words, more = bt_size_mul(count, words);
    if (list->bits_count + count > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu partial blocks: the GPU kernels count in 32 bits",
                       list->bits_count + count);
    if (BT_ARRAY_RESERVE(list->bits, list->bits_capacity, used, more))
        return no_memory(err, bt_size_mul(more, sizeof(uint64_t)));
    memset(list->bits + used, 0, more * sizeof(uint64_t));
    bt_scan_fill_rows(&list->scan, list->bits + used,
                      (bt_bit_layout){ 2, words, true });
    run->bits = (int32_t)list->bits_count;
    list->bits_count += count;
    return bt_scan_remember(&list->scan, run->bits, err);
}

/* bt_work_tile.hidden of a tile whose runs are those from `first` on. */
static int32_t hidden_pairs(const bt_worklist *list, size_t first, size_t pairs)
{
    uint32_t hidden = 0;
    for (uint32_t g = 0; g < 4; g++) {
        size_t count = 0;
        for (size_t r = list->run_count; r > first; r--) {
            const bt_work_run *run = &list->runs[r - 1];
            if (run->halves >> 2 * g & 3) // -1 has all bits
                break;
            count += (size_t)run->count;
        }
        count = bt_size_min(count, pairs - 1);
        hidden |= (uint32_t)bt_size_min(count, 127) << 8 * g;
    }
    return (int32_t)hidden;
}

static bauta_status add_tile(bt_worklist *list, const bt_bands *bands,
                             const bt_row_tile *tile, size_t row, size_t plan,
                             bauta_error *err)
{
    size_t first = list->run_count, pairs = 0;
    bauta_status status =
        bt_scan_rows(&list->scan, bands, tile, tile->row, tile->rows, err);
    if (!status)
        status = add_runs(list, tile, err);
    for (size_t r = first; r < list->run_count && !status; r++) {
        pairs += (size_t)list->runs[r].count;
        if (list->runs[r].halves >= 0)
            status = add_bits(list, bands, tile, &list->runs[r], err);
    }
    if (!status &&
        BT_ARRAY_RESERVE(list->tiles, list->tile_capacity, list->tile_count, 1))
        status = no_memory(err, sizeof(bt_work_tile));
    if (status)
        return status;
    if (pairs) {
        const bt_work_run *begin = &list->runs[first];
        const bt_work_run *end = &list->runs[list->run_count - 1];
        size_t lo = (size_t)begin->key - tile->origin;
        size_t hi = (size_t)end->key + (size_t)(end->count - 1) * BT_PAIR -
                    tile->origin;
        list->chunked |= lo / list->chunk < hi / list->chunk;
    }
    list->tiles[list->tile_count++] =
        (bt_work_tile){ (int32_t)(row + tile->row),
                        (int32_t)tile->rows,
                        (int32_t)first,
                        (int32_t)pairs,
                        pairs ? (int32_t)tile->origin : 0,
                        (int32_t)plan,
                        pairs ? hidden_pairs(list, first, pairs) : 0 };
    list->empty_count += pairs == 0;
    return BAUTA_OK;
}

/* Append the tiles from `tile` on and their runs, from `run` on, once more for
 * the rows of an origin that repeats them. */
static bauta_status repeat(bt_worklist *list, size_t tile, size_t run,
                           const bt_origin_group *origin, bauta_error *err)
{
    size_t tiles = list->tile_count - tile, runs = list->run_count - run;
    int32_t rows = (int32_t)(origin->row - origin[-1].row);
    int32_t keys = (int32_t)(origin->key - origin[-1].key);
    if (BT_ARRAY_RESERVE(list->tiles, list->tile_capacity, list->tile_count,
                         tiles) ||
        BT_ARRAY_RESERVE(list->runs, list->run_capacity, list->run_count, runs))
        return no_memory(err, bt_size_mul(runs, sizeof(bt_work_run)));
    for (size_t i = 0; i < tiles; i++) {
        bt_work_tile *to = &list->tiles[list->tile_count++];
        *to = list->tiles[tile + i];
        to->row += rows;
        to->key += keys;
        to->run += (int32_t)runs;
    }
    for (size_t i = 0; i < runs; i++) {
        bt_work_run *to = &list->runs[list->run_count++];
        *to = list->runs[run + i];
        to->key += keys;
    }
    return BAUTA_OK;
}

bauta_status bt_worklist_add(bt_worklist *list, const bt_bands *bands,
                             size_t most, size_t row, size_t plan,
                             bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bt_row_tile tile = { 0 };
    // A pair may end up to 127 keys after the last one.
    if (row + bands->rows > INT32_MAX - BT_PAIR ||
        bands->keys > INT32_MAX - BT_PAIR)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu queries over %zu keys: the GPU kernels count in "
                       "32 bits",
                       row + bands->rows, bands->keys);
    list->rows = bt_size_max(list->rows, row + bands->rows);
    list->keys = bt_size_max(list->keys, bands->keys);
    most = bt_size_min(most, list->tile_rows);
    const bt_origin_group *before = NULL; // its first tile and run:
    size_t first_tile = 0, first_run = 0;
    while (!status && bt_row_tile_next(&tile, bands, most)) {
        const bt_origin_group *origin = bt_row_tile_origin(&tile, bands);
        size_t tiles = list->tile_count, runs = list->run_count;
        if (origin && origin->repeats && before == origin - 1) {
            status = repeat(list, first_tile, first_run, origin, err);
            bt_row_tile_skip(&tile, origin);
        } else {
            status = add_tile(list, bands, &tile, row, plan, err);
        }
        if (origin) {
            before = origin;
            first_tile = tiles;
            first_run = runs;
        }
    }
    if (!status && list->run_count > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu runs: the GPU kernels count in 32 bits",
                       list->run_count);
    return status;
}

bauta_status bt_worklist_end(bt_worklist *list, bt_tile_order order,
                             bauta_error *err)
{
    return bt_sort_tiles(&list->sort, list->tiles, list->tile_count,
                         sizeof(bt_work_tile), offsetof(bt_work_tile, pairs),
                         order, err);
}

void bt_worklist_release(bt_worklist *list)
{
    bt_free(list->tiles);
    bt_free(list->runs);
    bt_free(list->bits);
    bt_band_scan_release(&list->scan);
    bt_tile_sort_release(&list->sort);
    *list = (bt_worklist){ 0 };
}
