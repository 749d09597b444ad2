/* SPDX-License-Identifier: Apache-2.0 */
/* test_decode_list.c - the work lists of the GPU's decoding kernels match the
 * masks, chunk by chunk. Needs no GPU. */
#include "mask/decode_list.h"

#include "allocation_faults.h"
#include "base/error.h"
#include "base/size.h"
#include "mask/mask.h"
#include "mask/plan.h"
#include "masks.h"
#include "testing.h"

#include <string.h>

enum { SEQUENCES = 3, CHUNK = 2048 };

typedef struct batch {
    bauta_mask *mask[SEQUENCES];
    bt_decode_sequence sequence[SEQUENCES];
    uint32_t pages[SEQUENCES][256];
    size_t page_keys, group, rows;
} batch;

/* Masks without origins, as a cache has none. */
static bauta_mask *random_mask(test_random *r, size_t n, size_t m)
{
    bauta_mask *a = test_mask_random(r, n, m, 2), *b = NULL, *mask = NULL;
    assert_int_equal(bauta_mask_not(&b, a, NULL), 0);
    assert_int_equal(bauta_mask_not(&mask, b, NULL), 0);
    bauta_mask_free(a);
    bauta_mask_free(b);
    return mask;
}

static void batch_init(batch *b, test_random *r)
{
    *b = (batch){ .page_keys = (size_t)64 << test_below(r, 3),
                  .group = 1 + test_below(r, 40) };
    for (size_t s = 0; s < SEQUENCES; s++) {
        size_t n = 1 + test_below(r, 20), m = 1 + test_below(r, 9000);
        size_t first = test_below(r, n);
        b->mask[s] = random_mask(r, n, m);
        for (size_t i = 0; i < 256; i++) // every page its own
            b->pages[s][i] = (uint32_t)(1000 * s + 999 - i);
        b->sequence[s] =
            (bt_decode_sequence){ b->mask[s], first,
                                  1 + test_below(r, n - first), b->pages[s] };
        b->rows += b->sequence[s].rows;
    }
}

static void batch_release(batch *b)
{
    for (size_t s = 0; s < SEQUENCES; s++)
        bauta_mask_free(b->mask[s]);
}

/* Which key of which sequence a block of the pool begins with. */
static size_t key_of(const batch *b, int32_t block, size_t *sequence)
{
    size_t per_page = b->page_keys / 64;
    size_t page = (size_t)block / per_page;
    *sequence = page / 1000;
    return (999 - page % 1000) * b->page_keys + (size_t)block % per_page * 64;
}

static void check_tile(const batch *b, const bt_decode_list *list,
                       const bt_decode_item *item, bt_decode_tile tile,
                       unsigned char *seen, size_t stride)
{
    size_t s, key = key_of(b, tile.block, &s), before = 0;
    for (size_t i = 0; i < s; i++)
        before += b->sequence[i].rows;
    for (size_t i = 0; i < (size_t)item->rows; i++) {
        size_t row = (size_t)item->row + i;
        uint64_t word =
            tile.bits < 0 ? UINT64_MAX
                          : list->bits[(size_t)tile.bits * list->unit_rows + i];
        assert_true(row >= before && row - before < b->sequence[s].rows);
        for (size_t j = 0; j < 64; j++)
            if (word >> j & 1) {
                assert_true(key + j < bauta_mask_keys(b->mask[s]));
                assert_int_equal(seen[row * stride + key + j], 0);
                seen[row * stride + key + j] = 1;
            }
    }
}

/* Whether all keys of a tile precede that of the sequence's first query, and so
 * are not written by the step. */
static bool is_old(const batch *b, size_t s, size_t key)
{
    const bt_decode_sequence *sequence = &b->sequence[s];
    size_t position = sequence->first + bauta_mask_keys(b->mask[s]);
    return key + 64 + bauta_mask_queries(b->mask[s]) <= position;
}

static void check_list(const batch *b, const bt_decode_list *list)
{
    const size_t stride = 9100;
    size_t row = 0;
    unsigned char *seen = calloc(b->rows * stride, 1);
    assert_non_null(seen);
    assert_int_equal(list->chunk_tiles, CHUNK / 64);
    for (size_t i = 0; i < list->item_count; i++)
        for (size_t t = 0; t < CHUNK / 64; t++) {
            bt_decode_tile tile = list->tiles[i * (CHUNK / 64) + t];
            if (tile.block < 0)
                continue;
            size_t s, key = key_of(b, tile.block, &s);
            assert_int_equal(key / 64 % (CHUNK / 64), t);
            assert_int_equal((int)t < list->items[i].old_tiles,
                             is_old(b, s, key));
            check_tile(b, list, &list->items[i], tile, seen, stride);
        }
    for (size_t s = 0; s < SEQUENCES; s++)
        for (size_t i = 0; i < b->sequence[s].rows; i++, row++)
            for (size_t j = 0; j < bauta_mask_keys(b->mask[s]); j++)
                assert_int_equal(seen[row * stride + j],
                                 bauta_mask_visible(
                                     b->mask[s], b->sequence[s].first + i, j));
    assert_int_equal(row, list->rows);
    free(seen);
}

/* The slots of a unit are consecutive in the order of the chunks. A unit whose
 * rows see nothing has one item, too. */
static void check_units(const batch *b, const bt_decode_list *list)
{
    bt_decode_item **by_slot = calloc(list->item_count, sizeof(*by_slot));
    size_t units = 0;
    assert_non_null(by_slot);
    for (size_t i = 0; i < list->item_count; i++) {
        bt_decode_item *item = &list->items[i];
        assert_true((size_t)item->slot < list->item_count);
        assert_null(by_slot[item->slot]);
        by_slot[item->slot] = item;
        assert_true(i == 0 || list->items[i - 1].tiles >= item->tiles);
    }
    for (size_t i = 0; i < list->item_count; units++) {
        size_t parts = (size_t)by_slot[i]->parts, last = 0;
        assert_true(parts > 0);
        for (size_t j = 0; j < parts; j++) {
            const bt_decode_item *item = by_slot[i + j];
            const bt_decode_tile *tile =
                list->tiles + (size_t)(item - list->items) * (CHUNK / 64);
            size_t s, t = 0;
            assert_int_equal(item->first, i);
            assert_int_equal(item->unit, units);
            assert_int_equal(item->parts, parts);
            while (item->tiles && tile[t].block < 0)
                t++;
            size_t chunk =
                item->tiles ? key_of(b, tile[t].block, &s) / CHUNK + 1 : 1;
            assert_true(chunk > last);
            last = chunk;
        }
        i += parts;
    }
    assert_int_equal(units, list->unit_count);
    free(by_slot);
}

static void list_reads_the_visible_keys(void **state)
{
    test_random r = test_random_from(test_seed());
    (void)state;
    for (int i = 0; i < 20; i++) {
        batch b;
        bt_decode_list list;
        batch_init(&b, &r);
        assert_int_equal(bt_decode_list_init(&list, b.sequence, SEQUENCES,
                                             SIZE_MAX, b.group, b.page_keys,
                                             CHUNK, NULL),
                         0);
        check_list(&b, &list);
        check_units(&b, &list);
        bt_decode_list_release(&list);
        batch_release(&b);
    }
}

static void long_sequences_are_whole_chunks(void **state)
{
    bauta_mask *mask = NULL;
    uint32_t pages[512];
    bt_decode_sequence one = { .first = 0, .rows = 1, .block_table = pages };
    bt_decode_list list;
    (void)state;
    for (uint32_t i = 0; i < 512; i++)
        pages[i] = i;
    assert_int_equal(bauta_mask_causal(&mask, 1, 32768, NULL), 0);
    one.mask = mask;
    assert_int_equal(
        bt_decode_list_init(&list, &one, 1, SIZE_MAX, 4, 64, CHUNK, NULL), 0);
    assert_int_equal(list.item_count, 16);
    assert_int_equal(list.tile_count, 512);
    assert_int_equal(list.bits_count, 0);
    bt_decode_list_release(&list);
    assert_int_equal(
        bt_decode_list_init(&list, &one, 1, SIZE_MAX, 64, 64, 4096, NULL), 0);
    assert_int_equal(list.item_count, 8);
    assert_int_equal(list.unit_rows, 1);
    bt_decode_list_release(&list);
    bauta_mask_free(mask);
}

static void a_sink_and_a_window_read_three_tiles(void **state)
{
    bauta_mask *sinks = NULL, *window = NULL, *mask = NULL;
    uint32_t pages[157] = { 0 };
    bt_decode_list list;
    (void)state;
    // Keys 0 to 3 and 9937 to 9999: only the first page and the last two are
    // read.
    assert_int_equal(bauta_mask_sinks(&sinks, 1, 10000, 4, NULL), 0);
    assert_int_equal(bauta_mask_window(&window, 1, 10000, 63, NULL), 0);
    assert_int_equal(bauta_mask_or(&mask, sinks, window, NULL), 0);
    pages[0] = 7;
    pages[155] = 9;
    pages[156] = 3;
    bt_decode_sequence one = { mask, 0, 1, pages };
    assert_int_equal(
        bt_decode_list_init(&list, &one, 1, SIZE_MAX, 1, 64, CHUNK, NULL), 0);
    assert_int_equal(list.tile_count, 3);
    assert_int_equal(list.item_count, 2);
    assert_int_equal(list.bits_count, 3);
    assert_int_equal(list.pages, 10);
    assert_true(list.bits[0] == 0xf);
    bt_decode_list_release(&list);
    bauta_mask_free(sinks);
    bauta_mask_free(window);
    bauta_mask_free(mask);
}

static void unsupported_problems_are_refused(void **state)
{
    bauta_error err = { 0 };
    bt_decode_list list;
    uint32_t pages[2] = { 0, 1 };
    size_t lengths[2] = { 1, 99 };
    bauta_mask *mask = NULL;
    (void)state;
    assert_int_equal(
        bt_decode_list_init(&list, NULL, 0, SIZE_MAX, 1, 96, CHUNK, &err),
        BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "96"));
    assert_int_equal(bauta_mask_documents(&mask, 2, lengths, NULL, NULL), 0);
    bt_decode_sequence one = { mask, 99, 2, pages };
    assert_int_equal(
        bt_decode_list_init(&list, &one, 1, SIZE_MAX, 1, 64, CHUNK, &err),
        BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "101"));
    one.rows = 1;
    assert_int_equal(
        bt_decode_list_init(&list, &one, 1, SIZE_MAX, 1, 64, CHUNK, &err),
        BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "origin"));
    bauta_mask_free(mask);
}

static void allocation_failure_gives_no_list(void **state)
{
    bauta_error err = { 0 };
    bauta_mask *mask = NULL;
    uint32_t pages[3] = { 0, 1, 2 };
    bt_decode_list list;
    (void)state;
    faults_begin();
    assert_int_equal(bauta_mask_causal(&mask, 2, 130, NULL), 0);
    bt_decode_sequence one = { mask, 0, 2, pages };
    for (size_t k = 0;; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status =
            bt_decode_list_init(&list, &one, 1, SIZE_MAX, 2, 64, CHUNK, &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_int_equal(faults_live(), live);
    }
    bt_decode_list_release(&list);
    bauta_mask_free(mask);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_reads_the_visible_keys),
        cmocka_unit_test(long_sequences_are_whole_chunks),
        cmocka_unit_test(a_sink_and_a_window_read_three_tiles),
        cmocka_unit_test(unsupported_problems_are_refused),
        cmocka_unit_test(allocation_failure_gives_no_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
