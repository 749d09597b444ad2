/* SPDX-License-Identifier: Apache-2.0 */
/* prefill_list.c - from sequences with many queries to a work list over pages.
 */
#include "mask/prefill_list.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/mask.h"

/* The spans of the sequence's rows lie together in its mask. */
typedef struct span_range {
    const bauta_span *at;
    size_t count;
} span_range;

static span_range spans_of(const bt_decode_sequence *s)
{
    const bt_row_list *rows = bt_mask_rows(s->mask);
    size_t begin = rows->start[s->first];
    size_t end = rows->start[s->first + s->rows];
    return (span_range){ rows->spans + begin, end - begin };
}

/* Pages up to the last one of which something is seen. */
static size_t pages_of(const bt_decode_sequence *s, size_t page_keys)
{
    span_range spans = spans_of(s);
    size_t end = 0;
    for (size_t i = 0; i < spans.count; i++)
        end = bt_size_max(end, spans.at[i].hi);
    return bt_size_round(end, page_keys) / page_keys;
}

/* Only pages of which something is seen are looked up. */
static void fill_pages(bt_prefill *p, const bt_decode_sequence *s,
                       int32_t *table, size_t page_keys)
{
    span_range spans = spans_of(s);
    for (size_t i = 0; i < spans.count; i++)
        for (size_t page = spans.at[i].lo / page_keys;
             page <= (spans.at[i].hi - 1) / page_keys; page++) {
            table[page] = (int32_t)s->block_table[page];
            p->pages = bt_size_max(p->pages, (size_t)s->block_table[page] + 1);
        }
}

static bauta_status fill_table(bt_prefill *p,
                               const bt_decode_sequence *sequences,
                               size_t count, size_t most, size_t page_keys,
                               bauta_error *err)
{
    for (size_t s = 0; s < count; s++)
        if (sequences[s].rows > most)
            p->table_count =
                bt_size_add(p->table_count, pages_of(&sequences[s], page_keys));
    if (p->table_count > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu pages: the GPU kernels count in 32 bits",
                       p->table_count);
    p->table =
        bt_alloc_zero(bt_size_add(p->table_count, p->count), sizeof(int32_t));
    if (!p->table)
        return bt_fail_memory(err, "the pages of a step",
                              bt_size_mul(p->table_count, sizeof(int32_t)));
    p->start = p->table + p->table_count;
    for (size_t s = 0, i = 0, at = 0; s < count; s++)
        if (sequences[s].rows > most) {
            p->start[i++] = (int32_t)at;
            fill_pages(p, &sequences[s], p->table + at, page_keys);
            at += pages_of(&sequences[s], page_keys);
        }
    return BAUTA_OK;
}

bauta_status bt_prefill_init(bt_prefill *prefill,
                             const bt_decode_sequence *sequences, size_t count,
                             size_t most, size_t page_keys, size_t tile_rows,
                             size_t chunk, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    *prefill = (bt_prefill){ 0 };
    for (size_t s = 0; s < count; s++)
        prefill->count += sequences[s].rows > most;
    if (prefill->count == 0)
        return BAUTA_OK;

    bt_bands bands = { 0 };
    status = bt_worklist_begin(&prefill->list, tile_rows, chunk, err);
    for (size_t s = 0, i = 0, row = 0; s < count && !status; s++) {
        if (sequences[s].rows > most) {
            status = bt_bands_read(&bands, sequences[s].mask,
                                   sequences[s].first, sequences[s].rows, err);
            if (!status)
                status = bt_worklist_add(&prefill->list, &bands, tile_rows, row,
                                         i++, err);
        }
        row += sequences[s].rows;
    }
    bt_bands_release(&bands);
    if (!status)
        status = bt_worklist_end(&prefill->list, (bt_tile_order){ 0 }, err);
    if (!status)
        status = fill_table(prefill, sequences, count, most, page_keys, err);
    if (status)
        bt_prefill_release(prefill);
    return status;
}

void bt_prefill_release(bt_prefill *prefill)
{
    bt_worklist_release(&prefill->list);
    bt_free(prefill->table);
    *prefill = (bt_prefill){ 0 };
}
