/* SPDX-License-Identifier: Apache-2.0 */
/* decode_list.c - from the rows of masks to what the decoding kernel reads.
 *
 * First a walk over the rows' spans finds the tiles that are visible; it is
 * made twice, to count and to fill. Then the stretches are cut into items. */
#include "kernels/cuda/decode_list.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/bits.h"
#include "mask/mask.h"
#include "mask/plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct unit {
    size_t row, rows;
    size_t stretch, stretches; /* its slice of them */
    size_t tiles;
    size_t parts, entry, entries;
} unit;

typedef struct stretch {
    size_t unit;
    int32_t item[BT_STRETCH]; /* the item that begins at a quad, or -1 */
    bt_decode_tile tiles[BT_STRETCH_TILES];
} stretch;

/* A node of a stretch's tree that may become an item. */
typedef struct node {
    size_t stretch, first;
    size_t tiles; /* that are visible */
} node;

typedef struct draft {
    bt_decode_list *list;
    size_t page_keys, row, stretch_count;
    unit *units;
    stretch *stretches;
} draft;

/* ---- the visible tiles ------------------------------------------------- */

/* The rows of a unit, and how far their spans are behind. */
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

/* The stretch that the unit's next block falls into. */
static stretch *stretch_of(draft *d, unit *u, size_t index, size_t *last)
{
    if (*last != index) {
        *last = index;
        u->stretches++;
        d->stretch_count++;
        if (d->stretches) {
            stretch *s = &d->stretches[d->stretch_count - 1];
            s->unit = d->list->unit_count;
            memset(s->item, -1, sizeof(s->item));
            memset(s->tiles, -1, sizeof(s->tiles));
        }
    }
    return d->stretches ? &d->stretches[d->stretch_count - 1] : NULL;
}

static bt_decode_tile add_tile(draft *d, row_cursor *rows, size_t count,
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
    list->tiles++;
    return tile;
}

static void add_unit(draft *d, const bt_decode_sequence *sequence, size_t first,
                     size_t count)
{
    row_cursor rows[BT_DECODE_ROWS];
    unit u = { .row = d->row, .rows = count, .stretch = d->stretch_count };
    size_t last = SIZE_MAX;

    for (size_t i = 0; i < count; i++)
        rows[i] = (row_cursor){ bt_mask_spans(sequence->mask, first + i), 0 };
    for (size_t block = 0;; block++) {
        size_t next = SIZE_MAX;
        for (size_t i = 0; i < count; i++)
            next = bt_size_min(next, next_block(&rows[i], block));
        if (next == SIZE_MAX)
            break;
        block = next;
        stretch *s = stretch_of(d, &u, block / BT_STRETCH_TILES, &last);
        bt_decode_tile tile = add_tile(d, rows, count, sequence->pages, block);
        if (s)
            s->tiles[block % BT_STRETCH_TILES] = tile;
        u.tiles++;
    }
    if (d->units)
        d->units[d->list->unit_count] = u;
    d->list->unit_count++;
    d->row += count;
}

static void walk(draft *d, const bt_decode_sequence *sequences, size_t count)
{
    bt_decode_list *list = d->list;
    list->unit_count = list->bits_count = list->tiles = list->pages = 0;
    d->row = d->stretch_count = 0;
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < sequences[s].rows; i += list->unit_rows)
            add_unit(d, &sequences[s], sequences[s].first + i,
                     bt_size_min(list->unit_rows, sequences[s].rows - i));
    list->rows = d->row;
}

/* ---- the items --------------------------------------------------------- */

static size_t visible(const stretch *s, size_t first, size_t level)
{
    size_t count = 0, end = (first + ((size_t)1 << level)) * BT_QUAD;
    for (size_t i = first * BT_QUAD; i < end; i++)
        count += s->tiles[i].block >= 0;
    return count;
}

/* Adds an item; without a stretch, that of a unit that sees nothing. */
static void add_item(draft *d, size_t unit_index, const node *n, size_t level)
{
    unit *u = &d->units[unit_index];
    bt_decode_item *item = &d->list->items[d->list->item_count];
    *item = (bt_decode_item){ .row = (int32_t)u->row,
                              .rows = (int32_t)u->rows,
                              .level = (int32_t)level,
                              .unit = (int32_t)unit_index };
    memset(item->tiles, -1, sizeof(item->tiles));
    if (n) {
        stretch *s = &d->stretches[n->stretch];
        memcpy(item->tiles, s->tiles + n->first * BT_QUAD,
               (sizeof(item->tiles[0]) * BT_QUAD) << level);
        s->item[n->first] = (int32_t)d->list->item_count;
    }
    u->parts++;
    d->list->item_count++;
}

static int node_order(const void *a, const void *b)
{
    const node *x = a, *y = b;
    if (x->tiles != y->tiles)
        return x->tiles > y->tiles ? -1 : 1;
    if (x->stretch != y->stretch)
        return x->stretch < y->stretch ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* How many of `count` nodes are items as they are: whole waves, in which each
 * worker has one, and all if the last wave is nearly whole. */
static size_t whole_waves(size_t count, size_t kv_heads, size_t workers)
{
    size_t rest = count * kv_heads % workers;
    if (rest * 8 >= workers * 7)
        return count;
    return (count * kv_heads - rest) / kv_heads;
}

/* The halves of a node of which something is visible. */
static size_t halve(const draft *d, const node *n, size_t level, node *to)
{
    size_t count = 0;
    for (size_t half = 0; half < 2; half++) {
        node child = { n->stretch, n->first + (half << (level - 1)), 0 };
        child.tiles =
            visible(&d->stretches[n->stretch], child.first, level - 1);
        if (child.tiles)
            to[count++] = child;
    }
    return count;
}

/* Waves of stretches, of what remains waves of halves, and so on.
 * `nodes` has twice the room that all quads need. */
static void cut(draft *d, node *nodes, size_t kv_heads, size_t workers)
{
    size_t count = d->stretch_count;
    node *next = nodes + d->stretch_count * BT_STRETCH;
    for (size_t s = 0; s < count; s++)
        nodes[s] = (node){ s, 0, visible(&d->stretches[s], 0, BT_LEVELS) };
    for (size_t level = BT_LEVELS; count; level--) {
        size_t keep = level ? whole_waves(count, kv_heads, workers) : count;
        size_t halves = 0;
        qsort(nodes, count, sizeof(node), node_order);
        for (size_t i = 0; i < count; i++) {
            size_t u = d->stretches[nodes[i].stretch].unit;
            // Two quads that are all of a unit are not worth a sum.
            bool small = level == 1 && nodes[i].tiles == d->units[u].tiles;
            if (i < keep || small)
                add_item(d, u, &nodes[i], level);
            else
                halves += halve(d, &nodes[i], level, next + halves);
        }
        node *swap = nodes;
        nodes = next;
        next = swap;
        count = halves;
    }
    for (size_t u = 0; u < d->list->unit_count; u++)
        if (!d->units[u].parts)
            add_item(d, u, NULL, 0);
}

/* ---- the entries ------------------------------------------------------- */

/* The largest node without items that begins at a quad. */
static size_t empty_level(const stretch *s, size_t first)
{
    size_t level = 0;
    while (level < BT_LEVELS && first % ((size_t)2 << level) == 0 &&
           visible(s, first, level + 1) == 0)
        level++;
    return level;
}

static void add_entries(draft *d, const stretch *s)
{
    bt_decode_list *list = d->list;
    for (size_t first = 0; first < BT_STRETCH;) {
        int32_t item = s->item[first];
        size_t level =
            item < 0 ? empty_level(s, first) : (size_t)list->items[item].level;
        list->entries[list->entry_count++] =
            (bt_decode_entry){ item < 0 ? -1 : list->items[item].slot,
                               (int16_t)first, (int16_t)level };
        first += (size_t)1 << level;
    }
}

/* Slots for the results of units that have several items, and their trees. */
static void describe(draft *d)
{
    bt_decode_list *list = d->list;
    for (size_t i = 0; i < list->item_count; i++)
        list->items[i].slot = d->units[list->items[i].unit].parts == 1
                                  ? -1
                                  : (int32_t)list->slot_count++;
    for (size_t i = 0; i < list->unit_count; i++) {
        unit *u = &d->units[i];
        u->entry = list->entry_count;
        for (size_t s = 0; s < u->stretches && u->parts > 1; s++)
            add_entries(d, &d->stretches[u->stretch + s]);
        u->entries = list->entry_count - u->entry;
    }
    for (size_t i = 0; i < list->item_count; i++) {
        const unit *u = &d->units[list->items[i].unit];
        list->items[i].parts = (int32_t)u->parts;
        list->items[i].entry = (int32_t)u->entry;
        list->items[i].entries = (int32_t)u->entries;
    }
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
        if (mask->origin[sequence->first + i] &&
            bt_mask_spans(mask, sequence->first + i).count)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "sequence %zu: row %zu has an origin that is not 0, "
                           "and a cache holds one sequence",
                           index, sequence->first + i);
    return BAUTA_OK;
}

static bauta_status check(bt_decode_list *list,
                          const bt_decode_sequence *sequences, size_t count,
                          size_t group, size_t page_keys, bauta_error *err)
{
    size_t rows = 0, most = 1;
    if (group < 1 || group > BT_DECODE_ROWS)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu heads to a key head: the GPU kernel takes 1 to %d",
                       group, BT_DECODE_ROWS);
    if (page_keys < BT_BLOCK || (page_keys & (page_keys - 1)))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "pages of %zu keys: 64 or a larger power of two",
                       page_keys);
    for (size_t s = 0; s < count; s++) {
        bauta_status status = bt_decode_check_rows(&sequences[s], s, err);
        if (status)
            return status;
        rows = bt_size_add(rows, sequences[s].rows);
        most = bt_size_max(most, sequences[s].rows);
    }
    if (rows > INT32_MAX / 256)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu queries: the GPU kernels count in 32 bits", rows);
    list->unit_rows = bt_size_min(BT_DECODE_ROWS / group, most);
    return BAUTA_OK;
}

bauta_status bt_decode_list_init(bt_decode_list *list,
                                 const bt_decode_sequence *sequences,
                                 size_t count, size_t group, size_t kv_heads,
                                 size_t page_keys, size_t workers,
                                 bauta_error *err)
{
    draft d = { .list = list, .page_keys = page_keys };
    node *nodes = NULL;
    *list = (bt_decode_list){ 0 };
    bauta_status status = check(list, sequences, count, group, page_keys, err);
    if (status)
        return status;

    walk(&d, sequences, count);
    size_t quads = bt_size_mul(d.stretch_count, BT_STRETCH);
    size_t items = bt_size_add(quads, list->unit_count);
    if (bt_size_mul(items, kv_heads) > INT32_MAX ||
        bt_size_mul(list->pages, page_keys / BT_BLOCK) > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu items of work for %zu heads in %zu pages: the GPU "
                       "kernels count in 32 bits",
                       items, kv_heads, list->pages);
    d.units = bt_alloc_zero(list->unit_count, sizeof(unit));
    d.stretches = bt_alloc_zero(d.stretch_count, sizeof(stretch));
    nodes = bt_alloc_zero(quads, 2 * sizeof(node));
    list->items = bt_alloc(bt_size_mul(items, sizeof(bt_decode_item)));
    list->entries = bt_alloc_zero(quads, sizeof(bt_decode_entry));
    list->bits = bt_alloc_zero(bt_size_mul(list->bits_count, list->unit_rows),
                               sizeof(uint64_t));
    if (!d.units || !d.stretches || !nodes || !list->items || !list->entries ||
        !list->bits) {
        bt_decode_list_release(list);
        status = bt_fail_memory(err, "the work list of a step",
                                bt_size_mul(items, sizeof(bt_decode_item)));
    } else {
        walk(&d, sequences, count);
        cut(&d, nodes, kv_heads, bt_size_max(workers, 1));
        describe(&d);
    }
    bt_free(d.units);
    bt_free(d.stretches);
    bt_free(nodes);
    return status;
}

void bt_decode_list_release(bt_decode_list *list)
{
    bt_free(list->items);
    bt_free(list->entries);
    bt_free(list->bits);
    *list = (bt_decode_list){ 0 };
}
