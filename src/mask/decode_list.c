/* SPDX-License-Identifier: Apache-2.0 */
/* decode_list.c - from the rows of masks to what the decoding kernel reads: a
 * walk over the rows' spans, made twice, to count and to fill. */
#include "mask/decode_list.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/mask.h"
#include "mask/plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct list_draft {
    bt_decode_list *list;
    size_t page_keys, most, row;
    size_t old_keys; /* of the sequence: those before its first query's own */
    bt_decode_item *items; /* by unit, then chunk; NULL: it is counted */
    bt_decode_tile *tiles;
} list_draft;

/* ---- the visible tiles ------------------------------------------------- */

/* A row of a unit, and the first of its spans that is still needed. */
typedef struct row_cursor {
    bt_spans spans;
    size_t at;
} row_cursor;

/* The first block from `block` on of which the row sees something. */
static size_t next_block(row_cursor *row, size_t block)
{
    while (row->at < row->spans.count &&
           row->spans.at[row->at].hi <= block * BT_BLOCK)
        row->at++;
    if (row->at == row->spans.count)
        return SIZE_MAX;
    return bt_size_max(block, row->spans.at[row->at].lo / BT_BLOCK);
}

static uint64_t word_of(const row_cursor *row, size_t block)
{
    size_t lo = block * BT_BLOCK, hi = lo + BT_BLOCK;
    uint64_t word = 0;
    for (size_t i = row->at; i < row->spans.count && row->spans.at[i].lo < hi;
         i++)
        if (row->spans.at[i].hi > lo)
            bt_bits_set(&word, 1, bt_size_max(row->spans.at[i].lo, lo) - lo,
                        bt_size_min(row->spans.at[i].hi, hi) - lo);
    return word;
}

static bt_decode_tile add_tile(list_draft *d, row_cursor *rows, size_t count,
                               const uint32_t *pages, size_t block)
{
    bt_decode_list *list = d->list;
    size_t per_page = d->page_keys / BT_BLOCK;
    size_t page = pages[block / per_page];
    uint64_t words[BT_DECODE_ROWS], all = UINT64_MAX;
    bt_decode_tile tile = { (int32_t)(page * per_page + block % per_page), -1 };

    for (size_t i = 0; i < count; i++) {
        words[i] = word_of(&rows[i], block);
        all &= words[i];
    }
    if (all != UINT64_MAX) {
        if (list->bits)
            memcpy(list->bits + list->bits_count * list->unit_rows, words,
                   count * sizeof(words[0]));
        tile.bits = (int32_t)list->bits_count++;
    }
    list->pages = bt_size_max(list->pages, page + 1);
    list->tile_count++;
    return tile;
}

/* ---- units and their items ---------------------------------------------- */

/* Keys that are in the cache before the step: its first query is aligned with
 * the first new one. */
static size_t old_keys(const bt_decode_sequence *sequence)
{
    size_t keys = bauta_mask_keys(sequence->mask) + sequence->first;
    size_t queries = bauta_mask_queries(sequence->mask);
    return keys > queries ? keys - queries : 0;
}

/* A new item of the unit, of which nothing is seen yet. */
static void add_item(list_draft *d, size_t row, size_t rows, size_t block)
{
    bt_decode_list *list = d->list;
    size_t at = list->item_count++, tiles = list->chunk_tiles;
    size_t old = d->old_keys / BT_BLOCK;
    if (!d->items)
        return;
    old = old > block ? bt_size_min(old - block, tiles) : 0;
    d->items[at] = (bt_decode_item){ .row = (int32_t)row,
                                     .rows = (int32_t)rows,
                                     .unit = (int32_t)list->unit_count,
                                     .slot = (int32_t)at,
                                     .key = (int32_t)(block * BT_BLOCK),
                                     .old_tiles = (int32_t)old };
    memset(d->tiles + at * tiles, -1, tiles * sizeof(bt_decode_tile));
}

static void add_unit(list_draft *d, const bt_decode_sequence *sequence,
                     size_t first, size_t count)
{
    bt_decode_list *list = d->list;
    row_cursor rows[BT_DECODE_ROWS];
    size_t chunk = SIZE_MAX, tiles = list->chunk_tiles, item = list->item_count;

    for (size_t i = 0; i < count; i++)
        rows[i] = (row_cursor){ bt_mask_spans(sequence->mask, first + i), 0 };
    for (size_t block = 0;; block++) {
        size_t next = SIZE_MAX;
        for (size_t i = 0; i < count; i++)
            next = bt_size_min(next, next_block(&rows[i], block));
        if (next == SIZE_MAX)
            break;
        block = next;
        if (chunk != block / tiles)
            add_item(d, d->row, count, block / tiles * tiles);
        chunk = block / tiles;
        bt_decode_tile tile =
            add_tile(d, rows, count, sequence->block_table, block);
        if (d->items) {
            d->tiles[(list->item_count - 1) * tiles + block % tiles] = tile;
            d->items[list->item_count - 1].tiles++;
        }
    }
    if (item == list->item_count) // it sees nothing
        add_item(d, d->row, count, 0);
    for (size_t i = item; d->items && i < list->item_count; i++) {
        d->items[i].first = (int32_t)item;
        d->items[i].parts = (int32_t)(list->item_count - item);
    }
    list->unit_count++;
    d->row += count;
}

static void walk(list_draft *d, const bt_decode_sequence *sequences,
                 size_t count)
{
    bt_decode_list *list = d->list;
    list->unit_count = list->item_count = list->bits_count = 0;
    list->tile_count = list->pages = 0;
    d->row = 0;
    for (size_t s = 0; s < count; s++) {
        size_t rows = sequences[s].rows;
        d->old_keys = old_keys(&sequences[s]);
        for (size_t i = 0; rows <= d->most && i < rows; i += list->unit_rows)
            add_unit(d, &sequences[s], sequences[s].first + i,
                     bt_size_min(list->unit_rows, rows - i));
        d->row += rows > d->most ? rows : 0;
    }
    list->rows = d->row;
}

/* Long ones first, so that the last to be finished are short. */
static int item_order(const void *a, const void *b)
{
    const bt_decode_item *x = a, *y = b;
    if (x->tiles != y->tiles)
        return x->tiles > y->tiles ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static void order(const list_draft *d)
{
    bt_decode_list *list = d->list;
    size_t tiles = list->chunk_tiles;
    memcpy(list->items, d->items, list->item_count * sizeof(*list->items));
    qsort(list->items, list->item_count, sizeof(*list->items), item_order);
    for (size_t i = 0; i < list->item_count; i++)
        memcpy(list->tiles + i * tiles,
               d->tiles + (size_t)list->items[i].slot * tiles,
               tiles * sizeof(bt_decode_tile));
}

/* ---- all of it --------------------------------------------------------- */

bauta_status bt_decode_check_rows(const bt_decode_sequence *sequence,
                                  size_t index, bauta_error *err)
{
    const bauta_mask *mask = sequence->mask;
    if (sequence->first > mask->queries ||
        sequence->rows > mask->queries - sequence->first)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "sequence %zu: rows %zu to %zu of a mask of %zu queries",
                       index, sequence->first, sequence->first + sequence->rows,
                       mask->queries);
    for (size_t i = 0; i < sequence->rows; i++)
        if (bt_mask_rows(mask)->origin[sequence->first + i] &&
            bt_mask_spans(mask, sequence->first + i).count)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "sequence %zu: row %zu has an origin that is not 0, "
                           "and a cache holds one sequence",
                           index, sequence->first + i);
    return BAUTA_OK;
}

static bauta_status check(bt_decode_list *list,
                          const bt_decode_sequence *sequences, size_t count,
                          size_t most, size_t group, size_t page_keys,
                          bauta_error *err)
{
    size_t rows = 0, longest = 1;
    if (page_keys < BT_BLOCK || (page_keys & (page_keys - 1)))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "pages of %zu keys: 64 or a larger power of two",
                       page_keys);
    for (size_t s = 0; s < count; s++) {
        bauta_status status = bt_decode_check_rows(&sequences[s], s, err);
        if (status)
            return status;
        rows = bt_size_add(rows, sequences[s].rows);
        if (sequences[s].rows <= most)
            longest = bt_size_max(longest, sequences[s].rows);
    }
    if (rows > INT32_MAX / 256)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu queries: the GPU kernels count in 32 bits", rows);
    size_t fit = bt_size_max(BT_DECODE_ROWS / group, 1);
    list->unit_rows = bt_size_min(fit, longest);
    return BAUTA_OK;
}

bauta_status bt_decode_list_init(bt_decode_list *list,
                                 const bt_decode_sequence *sequences,
                                 size_t count, size_t most, size_t group,
                                 size_t page_keys, size_t chunk,
                                 bauta_error *err)
{
    list_draft d = { .list = list, .page_keys = page_keys, .most = most };
    *list = (bt_decode_list){ .chunk_tiles = chunk / BT_BLOCK };
    bauta_status status =
        check(list, sequences, count, most, group, page_keys, err);
    if (status)
        return status;

    walk(&d, sequences, count);
    size_t items = list->item_count, tiles = items * list->chunk_tiles;
    if (bt_size_mul(items, list->chunk_tiles) > INT32_MAX ||
        bt_size_mul(list->pages, page_keys / BT_BLOCK) > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu items of work in %zu pages: the GPU kernels count "
                       "in 32 bits",
                       items, list->pages);
    d.items = bt_alloc_zero(items, sizeof(bt_decode_item));
    d.tiles = bt_alloc_zero(tiles, sizeof(bt_decode_tile));
    list->items = bt_alloc_zero(items, sizeof(bt_decode_item));
    list->tiles = bt_alloc_zero(tiles, sizeof(bt_decode_tile));
    list->bits = bt_alloc_zero(bt_size_mul(list->bits_count, list->unit_rows),
                               sizeof(uint64_t));
    if (!d.items || !d.tiles || !list->items || !list->tiles || !list->bits) {
        bt_decode_list_release(list);
        status = bt_fail_memory(err, "the work list of a step",
                                bt_size_mul(tiles, sizeof(bt_decode_tile)));
    } else {
        walk(&d, sequences, count);
        order(&d);
    }
    bt_free(d.items);
    bt_free(d.tiles);
    return status;
}

void bt_decode_list_release(bt_decode_list *list)
{
    bt_free(list->items);
    bt_free(list->tiles);
    bt_free(list->bits);
    *list = (bt_decode_list){ 0 };
}
