/* SPDX-License-Identifier: Apache-2.0 */
/* test_worklist.c - the work lists of the GPU kernels match the mask. Needs no
 * GPU. */
#include "mask/work_list.h"

#include "base/error.h"
#include "mask/mask.h"
#include "masks.h"
#include "testing.h"

#include <string.h>

static bauta_mask *random_mask(test_random *r, size_t n, size_t m)
{
    unsigned char *visible = malloc(n * m);
    bauta_mask *mask = NULL;
    for (size_t i = 0; i < n; i++) {
        // Rows that see nothing, everything, or a share.
        size_t share = test_below(r, 5) * 25;
        for (size_t j = 0; j < m; j++)
            visible[i * m + j] = test_below(r, 100) < share;
    }
    assert_int_equal(bauta_mask_dense(&mask, n, m, visible, NULL), 0);
    free(visible);
    return mask;
}

/* The list of rows [first, first + rows), in tiles of at most `most` rows;
 * longest first, or, if `most` is odd, by row but for a tail. */
static void list_of(bt_worklist *list, const bauta_mask *mask, size_t first,
                    size_t rows, size_t most, size_t tile_rows)
{
    bt_bands bands = { 0 };
    bt_tile_order order = { most % 2 ? SIZE_MAX : 0, 1, false };
    assert_int_equal(bt_bands_read(&bands, mask, first, rows, NULL), 0);
    assert_int_equal(bt_worklist_begin(list, tile_rows, 2048, NULL), 0);
    assert_int_equal(bt_worklist_add(list, &bands, most, 0, 0, NULL), 0);
    assert_int_equal(bt_worklist_end(list, order, NULL), 0);
    bt_bands_release(&bands);
}

static bauta_mask *causal_documents(test_random *r, size_t n)
{
    size_t lengths[8], left = n;
    bauta_mask *a = NULL, *b = NULL, *mask = NULL;
    for (size_t i = 0; i < 8; i++) {
        lengths[i] = i == 7 ? left : test_below(r, left / 2 + 1);
        left -= lengths[i];
    }
    assert_int_equal(bauta_mask_documents(&a, 8, lengths, NULL, NULL), 0);
    assert_int_equal(bauta_mask_causal(&b, n, n, NULL), 0);
    assert_int_equal(bauta_mask_and(&mask, a, b, NULL), 0);
    bauta_mask_free(a);
    bauta_mask_free(b);
    return mask;
}

/* One mask of about n / 3 rows, three times, and another one between. */
static bauta_mask *equal_documents(test_random *r, size_t n)
{
    bauta_mask *a = test_mask_random(r, n / 3 + 1, n / 3 + 1, 2);
    bauta_mask *b = test_mask_random(r, 1 + test_below(r, 9), 70, 1);
    const bauta_mask *part[] = { a, a, b, a, a, b, b };
    bauta_mask *mask = NULL;
    assert_int_equal(bauta_mask_pack(&mask, 7, part, NULL), 0);
    bauta_mask_free(a);
    bauta_mask_free(b);
    return mask;
}

/* Unfold the list of one tile into the keys that a row sees. */
static void unfold(const bt_worklist *list, const bt_work_tile *tile,
                   size_t row, unsigned char *seen)
{
    int32_t pairs = 0;
    for (int32_t r = tile->run; pairs < tile->pairs; r++) {
        const bt_work_run *run = &list->runs[r];
        for (int32_t k = 0; k < run->count; k++, pairs++) {
            size_t first = (size_t)run->key + (size_t)k * BT_PAIR;
            const uint64_t *bits =
                run->bits < 0
                    ? NULL
                    : list->bits +
                          ((size_t)(run->bits + k) * list->tile_rows + row) * 2;
            for (size_t j = 0; j < BT_PAIR; j++)
                if (!bits || bits[j / 64] >> (j % 64) & 1) {
                    assert_true(first + j < list->keys);
                    assert_int_equal(seen[first + j], 0);
                    seen[first + j] = 1;
                }
        }
    }
    assert_int_equal(pairs, tile->pairs);
}

/* A run's halves say of which half of each pair which rows see something, and
 * nothing else is visited. */
static void check_halves(const bauta_mask *mask, size_t first,
                         const bt_work_tile *tile, const bt_work_run *run)
{
    size_t rows = (size_t)tile->rows, keys = bauta_mask_keys(mask);
    for (int32_t k = 0; k < run->count; k++) {
        size_t key = (size_t)run->key + (size_t)k * BT_PAIR, seen = 0;
        int32_t halves = 0;
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < BT_PAIR && key + j < keys; j++)
                if (bauta_mask_visible(mask, first + (size_t)tile->row + i,
                                       key + j)) {
                    halves |= 1 << (i / 64 * 2 + j / 64);
                    seen++;
                }
        if (seen == rows * BT_PAIR)
            halves = -1;
        assert_int_equal(run->halves, halves);
        assert_int_equal(run->bits < 0, halves < 0);
        assert_int_not_equal(halves, 0);
    }
}

/* Whether rows 64 g to 64 g + 63 of a tile see something of a pair. */
static bool group_sees(const bauta_mask *mask, size_t first,
                       const bt_work_tile *tile, size_t g, size_t key)
{
    for (size_t i = 64 * g; i < 64 * g + 64 && i < (size_t)tile->rows; i++)
        for (size_t j = key; j < key + BT_PAIR; j++)
            if (j < bauta_mask_keys(mask) &&
                bauta_mask_visible(mask, first + (size_t)tile->row + i, j))
                return true;
    return false;
}

/* Groups are told which last pairs they see nothing of: as many as there are,
 * but never all pairs of the tile. */
static void check_hidden(const bauta_mask *mask, size_t first,
                         const bt_worklist *list, const bt_work_tile *tile)
{
    for (size_t g = 0; 64 * g < (size_t)tile->rows; g++) {
        int32_t hidden = tile->hidden >> 8 * g & 0xff, before = 0, seen = 0;
        for (int32_t r = tile->run; before < tile->pairs; r++)
            for (int32_t k = 0; k < list->runs[r].count; k++) {
                size_t key = (size_t)list->runs[r].key + (size_t)k * BT_PAIR;
                before++;
                if (group_sees(mask, first, tile, g, key))
                    seen = before;
            }
        seen = seen ? seen : tile->pairs > 0;
        assert_int_equal(tile->pairs - hidden, seen);
    }
}

/* A tile has rows of one origin, and no more than `most`. */
static void check_tile(const bauta_mask *mask, size_t first, size_t most,
                       const bt_work_tile *tile)
{
    assert_in_range(tile->rows, 1, most);
    for (size_t i = 0; i < (size_t)tile->rows; i++) {
        size_t row = first + (size_t)tile->row + i;
        if (bt_mask_spans(mask, row).count)
            assert_int_equal(bt_mask_rows(mask)->origin[row], tile->key);
    }
}

static void check_list(const bauta_mask *mask, size_t first, size_t rows,
                       size_t most, bt_worklist *list)
{
    size_t keys = bauta_mask_keys(mask), total = 0, empty = 0;
    list_of(list, mask, first, rows, most, most <= 128 ? 128 : 192);
    unsigned char *seen = malloc(keys + 1);
    for (size_t t = 0; t < list->tile_count; t++) {
        const bt_work_tile *tile = &list->tiles[t];
        int32_t pairs = 0;
        if (t > 0 && !list->sort.by_row)
            assert_true(list->tiles[t - 1].pairs >= tile->pairs);
        empty += tile->pairs == 0;
        assert_false(tile->pairs && empty); // they are the last ones
        for (size_t i = 0; i < (size_t)tile->rows; i++, total++) {
            memset(seen, 0, keys + 1);
            unfold(list, tile, i, seen);
            for (size_t j = 0; j < keys; j++)
                assert_int_equal(
                    seen[j],
                    bauta_mask_visible(mask, first + (size_t)tile->row + i, j));
        }
        check_tile(mask, first, most, tile);
        check_hidden(mask, first, list, tile);
        for (int32_t r = tile->run; pairs < tile->pairs; r++) {
            check_halves(mask, first, tile, &list->runs[r]);
            pairs += list->runs[r].count;
        }
    }
    assert_int_equal(total, rows);
    assert_int_equal(empty, list->empty_count);
    free(seen);
}

/* One list after the other is made in the same memory. */
static void list_equals_the_mask(void **state)
{
    test_random r = test_random_from(test_seed());
    bt_worklist list = { 0 };
    (void)state;
    for (int i = 0; i < 40; i++) {
        size_t n = 1 + test_below(&r, 300), m = 1 + test_below(&r, 500);
        bauta_mask *mask = i % 4 == 0   ? random_mask(&r, n, m)
                           : i % 4 == 1 ? causal_documents(&r, n)
                           : i % 4 == 2 ? equal_documents(&r, n)
                                        : test_mask_random(&r, n, m, 3);
        n = bauta_mask_queries(mask);
        size_t first = test_below(&r, n);
        check_list(mask, 0, n, 128, &list);
        check_list(mask, 0, n, 192, &list);
        check_list(mask, 0, n, 127, &list);
        check_list(mask, first, 1 + test_below(&r, n - first),
                   1 + test_below(&r, 192), &list);
        bauta_mask_free(mask);
    }
    bt_worklist_release(&list);
}

static void causal_tiles_share_the_bits_of_the_diagonal(void **state)
{
    bauta_mask *mask = NULL;
    bt_worklist list = { 0 };
    (void)state;
    assert_int_equal(bauta_mask_causal(&mask, 1024, 1024, NULL), 0);
    list_of(&list, mask, 0, 1024, 128, 128);
    assert_int_equal(list.tile_count, 8);
    assert_int_equal(list.bits_count, 1);
    assert_int_equal(list.run_count, 15); // the first tile has no full run
    assert_int_equal(list.tiles[0].pairs, 8);
    bt_worklist_release(&list);
    bauta_mask_free(mask);
}

/* 1,024 rows in tiles of 192: the one of 64 rows sees one pair, not eight. */
static void the_shortest_tile_of_a_causal_mask_comes_first(void **state)
{
    bauta_mask *mask = NULL;
    bt_worklist list = { 0 };
    int32_t pairs = 0;
    (void)state;
    assert_int_equal(bauta_mask_causal(&mask, 1024, 1024, NULL), 0);
    list_of(&list, mask, 0, 1024, 192, 192);
    assert_int_equal(list.tile_count, 6);
    for (size_t t = 0; t < list.tile_count; t++)
        pairs += list.tiles[t].pairs;
    assert_int_equal(pairs, 1 + 2 + 4 + 5 + 7 + 8);
    assert_int_equal(list.tiles[5].row, 0);
    assert_int_equal(list.tiles[5].rows, 64);
    bt_worklist_release(&list);
    bauta_mask_free(mask);
}

static size_t diagonal_row(void *user, size_t row, bauta_span *spans,
                           size_t capacity)
{
    (void)user;
    if (capacity)
        spans[0] = (bauta_span){ 0, row + 1 };
    return 1;
}

/* Rows that come one by one from a callback are joined to bands. */
static void rows_that_follow_a_rule_share_bits_too(void **state)
{
    bauta_mask *mask = NULL;
    bt_worklist list = { 0 };
    (void)state;
    assert_int_equal(
        bauta_mask_rows(&mask, 1024, 1024, diagonal_row, NULL, NULL), 0);
    list_of(&list, mask, 0, 1024, 128, 128);
    assert_int_equal(list.bits_count, 1);
    bt_worklist_release(&list);
    bauta_mask_free(mask);
}

static void more_rows_than_the_mask_has_are_refused(void **state)
{
    bauta_mask *mask = NULL;
    bt_bands bands = { 0 };
    bauta_error err = { 0 };
    (void)state;
    assert_int_equal(bauta_mask_all(&mask, 200, 10, NULL), 0);
    assert_int_equal(bt_bands_read(&bands, mask, 100, 101, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "101"));
    bt_bands_release(&bands);
    bauta_mask_free(mask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_equals_the_mask),
        cmocka_unit_test(causal_tiles_share_the_bits_of_the_diagonal),
        cmocka_unit_test(the_shortest_tile_of_a_causal_mask_comes_first),
        cmocka_unit_test(rows_that_follow_a_rule_share_bits_too),
        cmocka_unit_test(more_rows_than_the_mask_has_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
