/* SPDX-License-Identifier: Apache-2.0 */
/* bands.c - what tiles see of blocks, from the first and last rows of bands.
 *
 * Both ends of a band's span stay or move on by one key from row to row. So for
 * rows [a, b) of a band:
 *
 *     some row sees some of        [lo(a),     hi(b - 1))
 *     every row sees all of        [lo(b - 1), hi(a))
 *
 * (no key of the first range is left out, and no two spans of a band share a
 * block that all rows see all of: between them is a gap, which would have to
 * jump over it); and for keys [a, b) these are the rows that see
 *
 *     some of them                 hi(row) > a  and lo(row) < b
 *     all of them                  hi(row) >= b and lo(row) <= a
 *
 * which is a range of rows each time. */
#include "mask/bands.h"

#include "base/array.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/plan.h"

#include <stdlib.h>
#include <string.h>

enum {
    GROUP = 64,       /* rows or keys */
    SHAPE_MOST = 128, /* numbers of a shape that is looked for */
    TABLE = 256       /* at first */
};

static bauta_status no_memory(bauta_error *err, size_t bytes)
{
    return bt_fail_memory(err, "the bands of a plan", bytes);
}

/* ---- Reading a mask ------------------------------------------------------ */

static bauta_status reserve(bt_bands *bands, size_t bands_more, size_t used,
                            size_t spans, bauta_error *err)
{
    if (BT_ARRAY_RESERVE(bands->at, bands->capacity, bands->count,
                         bands_more) ||
        BT_ARRAY_RESERVE(bands->spans, bands->span_capacity, used, spans))
        return no_memory(err, bt_size_mul(spans, sizeof(bt_band_span)));
    return BAUTA_OK;
}

static bauta_status read_bands(bt_bands *bands, const bauta_mask *mask,
                               size_t first, bauta_error *err)
{
    size_t end = first + bands->rows, used = 0;
    for (size_t b = 0; b < mask->band_count; b++) {
        const bt_band *from = &mask->bands[b];
        size_t lo = bt_size_max(first, from->row);
        size_t hi = bt_size_min(end, from->row + from->rows);
        if (lo >= hi)
            continue;
        bauta_status status = reserve(bands, 1, used, from->spans, err);
        if (status)
            return status;
        bands->at[bands->count++] =
            (bt_band){ lo - first, hi - lo, from->origin, used, from->spans };
        for (size_t k = 0; k < from->spans; k++) {
            const bt_band_span *span = &mask->band_spans[from->span + k];
            bands->spans[used++] =
                (bt_band_span){ bt_band_span_at(span, lo - from->row),
                                span->lo_step, span->hi_step };
        }
    }
    return BAUTA_OK;
}

/* Whether row `row` of the mask goes on with a band that has `rows` rows so
 * far. The second row decides how its ends move. */
static bool goes_on(bt_bands *bands, bt_band *band, const bauta_mask *mask,
                    size_t row)
{
    bt_spans spans = bt_mask_spans(mask, row);
    bt_band_span *of = bands->spans + band->span;
    if (bt_mask_rows(mask)->origin[row] != band->origin ||
        spans.count != band->spans)
        return false;
    for (size_t k = 0; k < spans.count; k++) {
        bauta_span before = bt_band_span_at(&of[k], band->rows - 1);
        size_t lo = spans.at[k].lo - before.lo, hi = spans.at[k].hi - before.hi;
        if (lo > 1 || hi > 1 ||
            (band->rows > 1 && (lo != of[k].lo_step || hi != of[k].hi_step)))
            return false;
    }
    for (size_t k = 0; band->rows == 1 && k < spans.count; k++) {
        of[k].lo_step = spans.at[k].lo - of[k].at.lo;
        of[k].hi_step = spans.at[k].hi - of[k].at.hi;
    }
    return true;
}

static bauta_status read_rows(bt_bands *bands, const bauta_mask *mask,
                              size_t first, bauta_error *err)
{
    size_t used = 0;
    for (size_t i = 0; i < bands->rows; i++) {
        bt_band *last = bands->count ? &bands->at[bands->count - 1] : NULL;
        if (last && goes_on(bands, last, mask, first + i)) {
            last->rows++;
            continue;
        }
        bt_spans spans = bt_mask_spans(mask, first + i);
        bauta_status status = reserve(bands, 1, used, spans.count, err);
        if (status)
            return status;
        bands->at[bands->count++] =
            (bt_band){ i, 1, bt_mask_rows(mask)->origin[first + i], used,
                       spans.count };
        for (size_t k = 0; k < spans.count; k++)
            bands->spans[used++] = (bt_band_span){ spans.at[k], 0, 0 };
    }
    return BAUTA_OK;
}

/* Whether a band is another one, moved as far as their origins are apart. */
static bool same_band(const bt_bands *bands, const bt_band *a, const bt_band *b)
{
    const bt_band_span *x = bands->spans + a->span, *y = bands->spans + b->span;
    if (a->rows != b->rows || a->spans != b->spans)
        return false;
    for (size_t k = 0; k < a->spans; k++)
        if (x[k].at.lo - a->origin != y[k].at.lo - b->origin ||
            x[k].at.hi - a->origin != y[k].at.hi - b->origin ||
            x[k].lo_step != y[k].lo_step || x[k].hi_step != y[k].hi_step)
            return false;
    return true;
}

/* Whether an origin's rows repeat those before. No row of either may see
 * nothing, nor the one after them: it may be in a tile of theirs. */
static bool repeats(const bt_bands *bands, const bt_origin_group *o)
{
    const bt_origin_group *before = o - 1;
    size_t count = o->band_end - o->band;
    if (o == bands->origins || before->band_end != o->band ||
        before->band_end - before->band != count ||
        (o->band_end < bands->count && !bands->at[o->band_end].spans))
        return false;
    for (size_t b = 0; b < count; b++) {
        const bt_band *band = &bands->at[o->band + b];
        if (!band->spans || !same_band(bands, band - count, band))
            return false;
    }
    return true;
}

/* The origins of bands that see something. Each one's bands are consecutive but
 * for those that see nothing. */
static bauta_status find_origins(bt_bands *bands, bauta_error *err)
{
    bt_origin_group *last = NULL;
    bands->origin_count = 0;
    for (size_t b = 0; b < bands->count; b++) {
        const bt_band *band = &bands->at[b];
        if (!band->spans)
            continue;
        if (!last || last->key != band->origin) {
            if (BT_ARRAY_RESERVE(bands->origins, bands->origin_capacity,
                                 bands->origin_count, 1))
                return no_memory(err, sizeof(bt_origin_group));
            last = &bands->origins[bands->origin_count++];
            *last = (bt_origin_group){ .band = b,
                                       .key = band->origin,
                                       .row = band->row };
        }
        const bt_band_span *span = &bands->spans[band->span + band->spans - 1];
        size_t end = bt_band_span_at(span, band->rows - 1).hi;
        last->key_end = bt_size_max(last->key_end, end);
        last->row_end = band->row + band->rows;
        last->band_end = b + 1;
    }
    for (size_t i = 0; i < bands->origin_count; i++)
        bands->origins[i].repeats = repeats(bands, &bands->origins[i]);
    return BAUTA_OK;
}

bauta_status bt_bands_read(bt_bands *bands, const bauta_mask *mask,
                           size_t first, size_t rows, bauta_error *err)
{
    bands->count = 0;
    if (first > mask->queries || rows > mask->queries - first)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a plan of %zu rows from row %zu on exceeds a mask of "
                       "%zu queries",
                       rows, first, mask->queries);
    bands->rows = rows;
    bands->keys = mask->keys;
    bauta_status status = mask->bands ? read_bands(bands, mask, first, err)
                                      : read_rows(bands, mask, first, err);
    return status ? status : find_origins(bands, err);
}

static uint64_t pairs_of(const bt_bands *bands, const bt_origin_group *origin)
{
    uint64_t pairs = 0;
    for (size_t b = origin->band; b < origin->band_end; b++) {
        const bt_band *band = &bands->at[b];
        uint64_t rows = band->rows, moved = rows * (rows - 1) / 2;
        for (size_t k = 0; k < band->spans; k++) {
            const bt_band_span *span = &bands->spans[band->span + k];
            pairs += rows * (span->at.hi - span->at.lo) +
                     moved * span->hi_step - moved * span->lo_step;
        }
    }
    return pairs;
}

void bt_bands_mark_dense(bt_bands *bands, const bt_bands *whole, size_t queries,
                         size_t split_rows)
{
    size_t end = 0, w = 0; // of the keys of origins before w
    for (size_t i = 0; i < bands->origin_count; i++) {
        bt_origin_group *origin = &bands->origins[i];
        for (; whole->origins[w].key != origin->key; w++)
            end = bt_size_max(end, whole->origins[w].key_end);
        const bt_origin_group *same = &whole->origins[w];
        bool alone = same->key >= end && (w + 1 == whole->origin_count ||
                                          same->key_end <= same[1].key);
        size_t keys = same->key_end - same->key;
        size_t rows = same->row_end - same->row;
        uint64_t pairs = pairs_of(whole, same);
        origin->dense = alone && pairs >= bt_size_mul(queries, keys);
        origin->split =
            origin->dense && rows >= split_rows && pairs < rows * keys;
    }
}

void bt_bands_release(bt_bands *bands)
{
    bt_free(bands->at);
    bt_free(bands->spans);
    bt_free(bands->origins);
    *bands = (bt_bands){ 0 };
}

/* ---- Tiles of rows ------------------------------------------------------- */

/* How many keys row `row` of a band sees. */
static size_t keys_seen(const bt_bands *bands, const bt_band *band, size_t row)
{
    size_t keys = 0;
    for (size_t k = 0; k < band->spans; k++) {
        bauta_span span = bt_band_span_at(&bands->spans[band->span + k], row);
        keys += span.hi - span.lo;
    }
    return keys;
}

/* Where the tile that begins at `row` ends at the latest. Some tile of an
 * origin has fewer rows than the others, and takes as long as if it had as
 * many. So it is the first one, if the last row sees more than the first one
 * does, as under a causal mask. Tiles then end at multiples of 64 rows. */
static size_t tile_end(const bt_row_tile *tile, const bt_bands *bands,
                       size_t row, size_t most)
{
    size_t at = tile->next_origin - (tile->next_origin > 0);
    while (at < bands->origin_count && bands->origins[at].row_end <= row)
        at++;
    if (at == bands->origin_count)
        return row + most;
    const bt_origin_group *origin = &bands->origins[at];
    const bt_band *first = &bands->at[origin->band];
    const bt_band *last = &bands->at[origin->band_end - 1];
    if (keys_seen(bands, first, 0) >= keys_seen(bands, last, last->rows - 1))
        return row + most;
    size_t rows = (origin->row_end - origin->row + 63) / 64 * 64;
    size_t end = origin->row + rows;
    return end - (end - row - 1) / most * most;
}

bool bt_row_tile_next(bt_row_tile *tile, const bt_bands *bands, size_t most)
{
    size_t row = tile->row + tile->rows, band = tile->band;
    size_t end = bt_size_min(bands->rows, tile_end(tile, bands, row, most));
    if (row == end)
        return false;
    while (bands->at[band].row + bands->at[band].rows <= row)
        band++;
    *tile = (bt_row_tile){ .row = row,
                           .band = band,
                           .next_origin = tile->next_origin };
    for (; band < bands->count && bands->at[band].row < end; band++) {
        const bt_band *at = &bands->at[band];
        if (at->spans && tile->sees && at->origin != tile->origin)
            end = at->row; // the loop is over
        else if (at->spans) {
            tile->sees = true;
            tile->origin = at->origin;
        }
    }
    while (bands->at[band - 1].row >= end)
        band--;
    tile->band_end = band;
    tile->rows = end - row;
    return true;
}

const bt_origin_group *bt_row_tile_origin(bt_row_tile *tile,
                                          const bt_bands *bands)
{
    size_t *at = &tile->next_origin;
    while (*at < bands->origin_count && bands->origins[*at].row < tile->row)
        ++*at;
    return *at < bands->origin_count && bands->origins[*at].row == tile->row
               ? &bands->origins[*at]
               : NULL;
}

void bt_row_tile_skip(bt_row_tile *tile, const bt_origin_group *origin)
{
    tile->row = origin->row_end;
    tile->rows = 0;
}

/* ---- Segments ------------------------------------------------------------ */

/* From a block on, a bit is the other way round: the block, then the bit, in
 * one number, so that edges are sorted as such. */
enum { EDGE_BITS = 2 * BT_SEES_ALL };

static uint64_t edge_of(size_t block, uint32_t bit)
{
    return (uint64_t)block << EDGE_BITS | bit;
}

static size_t block_of(uint64_t edge)
{
    return (size_t)(edge >> EDGE_BITS);
}

static bauta_status reserve_lists(bt_band_scan *scan, size_t spans,
                                  bauta_error *err)
{
    for (size_t i = 0; i < BT_LEN(scan->list); i++)
        if (BT_ARRAY_RESERVE(scan->list[i], scan->list_capacity[i], 0,
                             bt_size_mul(2, spans)))
            return no_memory(err, bt_size_mul(spans, sizeof(bauta_span)));
    return BAUTA_OK;
}

static bauta_status add_edges(bt_band_scan *scan, bt_spans blocks, uint32_t bit,
                              bauta_error *err)
{
    if (BT_ARRAY_RESERVE(scan->edges, scan->edge_capacity, scan->edge_count,
                         2 * blocks.count))
        return no_memory(err, bt_size_mul(blocks.count, sizeof(*scan->edges)));
    for (size_t k = 0; k < blocks.count; k++) {
        scan->edges[scan->edge_count++] = edge_of(blocks.at[k].lo, bit);
        scan->edges[scan->edge_count++] = edge_of(blocks.at[k].hi, bit);
    }
    return BAUTA_OK;
}

static int edge_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void sort_edges(uint64_t *edges, size_t count)
{
    if (count > 64) {
        qsort(edges, count, sizeof(*edges), edge_order);
        return;
    }
    for (size_t i = 1; i < count; i++) {
        uint64_t edge = edges[i];
        size_t k = i;
        for (; k > 0 && edges[k - 1] > edge; k--)
            edges[k] = edges[k - 1];
        edges[k] = edge;
    }
}

/* From edges to segments, none of which sees nothing. */
static bauta_status make_segments(bt_band_scan *scan, bauta_error *err)
{
    const uint64_t *edges = scan->edges;
    uint32_t bits = 0;
    scan->segment_count = 0;
    if (BT_ARRAY_RESERVE(scan->segments, scan->segment_capacity, 0,
                         scan->edge_count))
        return no_memory(
            err, bt_size_mul(scan->edge_count, sizeof(bt_block_segment)));
    sort_edges(scan->edges, scan->edge_count);
    for (size_t i = 0; i < scan->edge_count; i++) {
        bits ^= edges[i] & (((uint32_t)1 << EDGE_BITS) - 1);
        if (bits && block_of(edges[i + 1]) > block_of(edges[i]))
            scan->segments[scan->segment_count++] =
                (bt_block_segment){ block_of(edges[i]), block_of(edges[i + 1]),
                                    bits };
    }
    return BAUTA_OK;
}

/* ---- What rows see ------------------------------------------------------- */

/* Blocks of which some row, and of which every row of [row, end) of a band sees
 * something, and everything. */
static size_t blocks_touched(bauta_span *to, const bt_bands *bands,
                             const bt_band *band, size_t row, size_t end,
                             size_t origin)
{
    size_t count = 0;
    for (size_t k = 0; k < band->spans; k++) {
        const bt_band_span *span = &bands->spans[band->span + k];
        size_t lo = bt_band_span_at(span, row - band->row).lo - origin;
        size_t hi = bt_band_span_at(span, end - 1 - band->row).hi - origin;
        count = bt_spans_append(to, count, lo / BT_BLOCK,
                                (hi + BT_BLOCK - 1) / BT_BLOCK);
    }
    return count;
}

static size_t blocks_covered(bauta_span *to, const bt_bands *bands,
                             const bt_band *band, size_t row, size_t end,
                             size_t origin)
{
    size_t count = 0;
    for (size_t k = 0; k < band->spans; k++) {
        const bt_band_span *span = &bands->spans[band->span + k];
        size_t lo = bt_band_span_at(span, end - 1 - band->row).lo - origin;
        size_t hi = bt_band_span_at(span, row - band->row).hi - origin;
        count = bt_spans_append(to, count, (lo + BT_BLOCK - 1) / BT_BLOCK,
                                hi / BT_BLOCK);
    }
    return count;
}

/* Combine what the bands see of which rows [row, end) are. */
static bt_spans fold_bands(const bt_band_scan *scan, const bt_bands *bands,
                           const bt_row_tile *tile, size_t row, size_t end,
                           bool covered)
{
    bauta_span *at = scan->list[0], *next = scan->list[1];
    size_t count = 0;
    bool first = true;
    for (size_t b = tile->band; b < tile->band_end; b++) {
        const bt_band *band = &bands->at[b];
        size_t lo = bt_size_max(row, band->row);
        size_t hi = bt_size_min(end, band->row + band->rows);
        if (lo >= hi)
            continue;
        bauta_span *to = first ? at : scan->list[2];
        size_t blocks =
            covered ? blocks_covered(to, bands, band, lo, hi, tile->origin)
                    : blocks_touched(to, bands, band, lo, hi, tile->origin);
        if (first) {
            count = blocks;
            first = false;
            continue;
        }
        count = (covered ? bt_spans_intersect : bt_spans_union)(
            next, (bt_spans){ at, count }, (bt_spans){ to, blocks });
        bauta_span *swap = at;
        at = next;
        next = swap;
    }
    return (bt_spans){ at, count };
}

bauta_status bt_scan_rows(bt_band_scan *scan, const bt_bands *bands,
                          const bt_row_tile *tile, size_t row, size_t rows,
                          bauta_error *err)
{
    size_t spans = 0, end = row + rows;
    scan->edge_count = scan->segment_count = 0;
    if (!tile->sees)
        return BAUTA_OK;
    for (size_t b = tile->band; b < tile->band_end; b++)
        spans += bands->at[b].spans;
    bauta_status status = reserve_lists(scan, spans, err);
    for (size_t g = 0; row < end && !status; g++, row += GROUP) {
        size_t to = bt_size_min(row + GROUP, end);
        uint32_t bit = (uint32_t)1 << g;
        status = add_edges(scan, fold_bands(scan, bands, tile, row, to, false),
                           bit, err);
        if (!status)
            status =
                add_edges(scan, fold_bands(scan, bands, tile, row, to, true),
                          bit << BT_SEES_ALL, err);
    }
    return status ? status : make_segments(scan, err);
}

/* ---- What keys see ------------------------------------------------------- */

/* The rows of a band in which a span ends at `end` or after it, and begins
 * before `begin`: counted from the band's first row. */
static bauta_span rows_around(const bt_band_span *span, size_t rows, size_t end,
                              size_t begin)
{
    size_t lo = span->at.hi >= end ? 0
                : span->hi_step    ? end - span->at.hi
                                   : rows;
    size_t hi = span->at.lo >= begin ? 0
                : span->lo_step      ? begin - span->at.lo
                                     : rows;
    return (bauta_span){ bt_size_min(lo, rows), bt_size_min(hi, rows) };
}

/* Append to a list that need not be in order. */
static size_t insert_span(bauta_span *list, size_t count, size_t lo, size_t hi)
{
    size_t k = count;
    if (lo >= hi)
        return count;
    for (; k > 0 && list[k - 1].lo > lo; k--)
        list[k] = list[k - 1];
    list[k] = (bauta_span){ lo, hi };
    return count + 1;
}

/* Rows of an origin's bands that see some (all) of keys [key, end). */
static bt_spans rows_of_keys(const bt_band_scan *scan, const bt_bands *bands,
                             const bt_origin_group *origin, size_t key,
                             size_t end, bool all)
{
    bauta_span *found = scan->list[0], *joined = scan->list[1];
    size_t count = 0, spans = 0;
    for (size_t b = origin->band; b < origin->band_end; b++) {
        const bt_band *band = &bands->at[b];
        for (size_t k = 0; k < band->spans; k++) {
            bauta_span rows =
                rows_around(&bands->spans[band->span + k], band->rows,
                            all ? end : key + 1, all ? key + 1 : end);
            count = insert_span(found, count, band->row + rows.lo,
                                band->row + rows.hi);
        }
    }
    for (size_t k = 0; k < count; k++)
        spans = bt_spans_append(joined, spans, found[k].lo, found[k].hi);
    return (bt_spans){ joined, spans };
}

static bt_spans steps_of_rows(const bt_band_scan *scan, bt_spans rows,
                              size_t first, bool all)
{
    bauta_span *to = scan->list[2];
    size_t count = 0;
    for (size_t k = 0; k < rows.count; k++) {
        size_t lo = rows.at[k].lo - first, hi = rows.at[k].hi - first;
        count = all ? bt_spans_append(to, count, (lo + GROUP - 1) / GROUP,
                                      hi / GROUP)
                    : bt_spans_append(to, count, lo / GROUP,
                                      (hi + GROUP - 1) / GROUP);
    }
    return (bt_spans){ to, count };
}

bauta_status bt_scan_keys(bt_band_scan *scan, const bt_bands *bands,
                          const bt_origin_group *origin, size_t key,
                          size_t keys, bauta_error *err)
{
    size_t spans = 0, end = key + keys;
    scan->edge_count = 0;
    for (size_t b = origin->band; b < origin->band_end; b++)
        spans += bands->at[b].spans;
    bauta_status status = reserve_lists(scan, spans, err);
    for (size_t g = 0; key < end && !status; g++, key += GROUP) {
        size_t to = bt_size_min(key + GROUP, end);
        bt_spans rows = rows_of_keys(scan, bands, origin, key, to, false);
        bt_spans steps = steps_of_rows(scan, rows, origin->row, false);
        status = add_edges(scan, steps, (uint32_t)1 << g, err);
        if (status || to - key < GROUP)
            continue; // keys after the last one are hidden: they would be
                      // summed
        rows = rows_of_keys(scan, bands, origin, key, to, true);
        steps = steps_of_rows(scan, rows, origin->row, true);
        status = add_edges(scan, steps, (uint32_t)1 << (BT_SEES_ALL + g), err);
    }
    return status ? status : make_segments(scan, err);
}

/* ---- Shapes -------------------------------------------------------------- */

/* The numbers of a shape: rows and keys; then for each band the first and the
 * last row and how many spans, and for each of these the two ends in the first
 * row, and how they move. Ends that lie outside in all rows lie at the border
 * and do not move. */
enum { SHAPE_HEAD = 2, BAND_HEAD = 3, SPAN_SIZE = 4 };

static void add_span(bt_bit_shape *shape, const bt_band_span *span,
                     size_t first, size_t rows, size_t key, size_t keys)
{
    bauta_span begin = bt_band_span_at(span, first);
    bauta_span end = bt_band_span_at(span, first + rows - 1);
    int32_t *to = shape->at + shape->count;
    if (end.hi <= key || begin.lo >= key + keys)
        return;
    bool left = end.lo <= key, right = begin.hi >= key + keys;
    to[0] = left ? 0 : (int32_t)begin.lo - (int32_t)key;
    to[1] = left ? 0 : (int32_t)span->lo_step;
    to[2] = right ? (int32_t)keys : (int32_t)begin.hi - (int32_t)key;
    to[3] = right ? 0 : (int32_t)span->hi_step;
    shape->count += SPAN_SIZE;
}

bauta_status bt_scan_shape(bt_band_scan *scan, const bt_bands *bands,
                           size_t band, size_t band_end, size_t row,
                           size_t rows, size_t key, size_t keys,
                           bauta_error *err)
{
    bt_bit_shape *shape = &scan->shape;
    if (BT_ARRAY_RESERVE(shape->at, shape->capacity, 0, SHAPE_HEAD))
        return no_memory(err, SHAPE_HEAD * sizeof(int32_t));
    shape->at[0] = (int32_t)rows;
    shape->at[1] = (int32_t)keys;
    shape->count = SHAPE_HEAD;
    for (; band < band_end && bands->at[band].row < row + rows; band++) {
        const bt_band *at = &bands->at[band];
        size_t lo = bt_size_max(row, at->row);
        size_t hi = bt_size_min(row + rows, at->row + at->rows);
        size_t need = BAND_HEAD + at->spans * SPAN_SIZE;
        if (lo >= hi || !at->spans)
            continue;
        if (BT_ARRAY_RESERVE(shape->at, shape->capacity, shape->count, need))
            return no_memory(err, bt_size_mul(need, sizeof(int32_t)));
        size_t head = shape->count;
        shape->count += BAND_HEAD;
        for (size_t k = 0; k < at->spans; k++)
            add_span(shape, &bands->spans[at->span + k], lo - at->row, hi - lo,
                     key, keys);
        shape->at[head] = (int32_t)(lo - row);
        shape->at[head + 1] = (int32_t)(hi - row);
        shape->at[head + 2] =
            (int32_t)((shape->count - head - BAND_HEAD) / SPAN_SIZE);
    }
    return BAUTA_OK;
}

static uint64_t hash_of(const bt_bit_shape *shape)
{
    uint64_t hash = shape->count;
    for (size_t i = 0; i < shape->count; i++)
        hash = (hash ^ (uint32_t)shape->at[i]) * BT_HASH_ODD;
    return bt_hash_mix(hash, BT_HASH_ODD);
}

bauta_status bt_scan_begin(bt_band_scan *scan, bauta_error *err)
{
    if (!scan->table) {
        scan->table = bt_alloc(TABLE * sizeof(*scan->table));
        if (!scan->table)
            return no_memory(err, TABLE * sizeof(*scan->table));
        scan->table_size = TABLE;
    }
    memset(scan->table, -1, scan->table_size * sizeof(*scan->table));
    scan->entry_count = scan->known.count = 0;
    return BAUTA_OK;
}

int32_t bt_scan_find(const bt_band_scan *scan)
{
    const bt_bit_shape *shape = &scan->shape;
    if (shape->count > SHAPE_MOST)
        return -1;
    uint64_t hash = hash_of(shape);
    for (size_t i = hash;; i++) {
        int32_t at = scan->table[i & (scan->table_size - 1)];
        if (at < 0)
            return -1;
        const bt_known_bits *known = &scan->entries[at];
        if (known->hash == hash && known->count == shape->count &&
            !memcmp(scan->known.at + known->shape, shape->at,
                    shape->count * sizeof(*shape->at)))
            return known->bits;
    }
}

static void enter(bt_band_scan *scan, size_t entry)
{
    size_t i = scan->entries[entry].hash;
    while (scan->table[i & (scan->table_size - 1)] >= 0)
        i++;
    scan->table[i & (scan->table_size - 1)] = (int32_t)entry;
}

static bauta_status double_table(bt_band_scan *scan, bauta_error *err)
{
    size_t bytes = 2 * scan->table_size * sizeof(*scan->table);
    int32_t *larger = bt_alloc(bytes);
    if (!larger)
        return no_memory(err, bytes);
    bt_free(scan->table);
    scan->table = larger;
    scan->table_size *= 2;
    memset(larger, -1, bytes);
    for (size_t i = 0; i < scan->entry_count; i++)
        enter(scan, i);
    return BAUTA_OK;
}

bauta_status bt_scan_remember(bt_band_scan *scan, int32_t bits,
                              bauta_error *err)
{
    const bt_bit_shape *shape = &scan->shape;
    bt_bit_shape *known = &scan->known;
    bauta_status status = BAUTA_OK;
    if (shape->count > SHAPE_MOST)
        return BAUTA_OK;
    if (BT_ARRAY_RESERVE(scan->entries, scan->entry_capacity, scan->entry_count,
                         1) ||
        BT_ARRAY_RESERVE(known->at, known->capacity, known->count,
                         shape->count))
        return no_memory(err, bt_size_mul(shape->count, sizeof(int32_t)));
    if (2 * scan->entry_count >= scan->table_size)
        status = double_table(scan, err);
    if (status)
        return status;
    scan->entries[scan->entry_count] =
        (bt_known_bits){ hash_of(shape), known->count, shape->count, bits };
    memcpy(known->at + known->count, shape->at,
           shape->count * sizeof(*shape->at));
    known->count += shape->count;
    enter(scan, scan->entry_count++);
    return BAUTA_OK;
}

void bt_band_scan_release(bt_band_scan *scan)
{
    for (size_t i = 0; i < BT_LEN(scan->list); i++)
        bt_free(scan->list[i]);
    bt_free(scan->edges);
    bt_free(scan->segments);
    bt_free(scan->shape.at);
    bt_free(scan->known.at);
    bt_free(scan->entries);
    bt_free(scan->table);
    *scan = (bt_band_scan){ 0 };
}

/* ---- Bits ---------------------------------------------------------------- */

/* Where a range of bits begins or ends in the first of some rows, and how far
 * it moves from row to row: 0 or 1. */
typedef struct bit_end {
    int32_t at, step;
} bit_end;

/* The lowest `count` bits, 0 to 64. */
static uint64_t low_bits(int32_t count)
{
    return count < 64 ? ((uint64_t)1 << count) - 1 : UINT64_MAX;
}

static int32_t clip(int32_t at, int32_t begin, int32_t end)
{
    return at < begin ? begin : at > end ? end : at;
}

/* Set the bits from lo to hi, within [begin, end), of `rows` rows. */
static void set_bits(uint64_t *words, const bt_bit_layout *layout, int32_t rows,
                     bit_end lo, bit_end hi, int32_t begin, int32_t end)
{
    int32_t first = clip(lo.at, begin, end);
    int32_t last = clip(hi.at + hi.step * (rows - 1), begin, end);
    for (int32_t block = first / 64; block * 64 < last; block++) {
        int32_t from = clip(begin - block * 64, 0, 64);
        int32_t to = clip(end - block * 64, 0, 64);
        int32_t low = lo.at - block * 64, high = hi.at - block * 64;
        size_t b = (size_t)block;
        uint64_t *word = words + (layout->pairs ? b / 2 * layout->block + b % 2
                                                : b * layout->block);
        for (int32_t row = 0; row < rows; row++, word += layout->row) {
            *word |=
                low_bits(clip(high, from, to)) & ~low_bits(clip(low, from, to));
            low += lo.step;
            high += hi.step;
        }
    }
}

void bt_scan_fill_rows(const bt_band_scan *scan, uint64_t *words,
                       bt_bit_layout layout)
{
    const int32_t *at = scan->shape.at + SHAPE_HEAD;
    const int32_t *end = scan->shape.at + scan->shape.count;
    int32_t keys = scan->shape.at[1];
    while (at < end) {
        const int32_t *band = at;
        at += BAND_HEAD;
        for (int32_t k = 0; k < band[2]; k++, at += SPAN_SIZE)
            set_bits(words + (size_t)band[0] * layout.row, &layout,
                     band[1] - band[0], (bit_end){ at[0], at[1] },
                     (bit_end){ at[2], at[3] }, 0, keys);
    }
}

/* The rows that see a key are those that end after it and begin at it or
 * before. */
void bt_scan_fill_keys(const bt_band_scan *scan, uint64_t *words,
                       bt_bit_layout layout)
{
    const int32_t *at = scan->shape.at + SHAPE_HEAD;
    const int32_t *end = scan->shape.at + scan->shape.count;
    int32_t keys = scan->shape.at[1];
    while (at < end) {
        const int32_t *band = at;
        int32_t rows = band[1] - band[0];
        at += BAND_HEAD;
        for (int32_t k = 0; k < band[2]; k++, at += SPAN_SIZE) {
            int32_t first = clip(at[0], 0, keys);
            int32_t last = clip(at[2] + at[3] * (rows - 1), 0, keys);
            bit_end lo = { band[0], 0 }, hi = { band[1], 0 };
            if (at[3])
                lo = (bit_end){ band[0] + first + 1 - at[2], 1 };
            if (at[1])
                hi = (bit_end){ band[0] + first + 1 - at[0], 1 };
            set_bits(words + (size_t)first * layout.row, &layout, last - first,
                     lo, hi, band[0], band[1]);
        }
    }
}
