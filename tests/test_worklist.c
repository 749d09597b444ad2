/* SPDX-License-Identifier: Apache-2.0 */
/* test_worklist.c - the work lists of the GPU kernels match the mask. Needs no
 * GPU. */
#include "mask/work_list.h"

#include "base/error.h"
#include "mask/plan.h"
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

static bauta_status list_of(bt_worklist *list, const bauta_plan *plan,
                            size_t tile_rows, bauta_error *err)
{
    const size_t row = 0;
    return bt_worklist_init(list, &plan, &row, 1, tile_rows, 2048, err);
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

static void check_list(const bauta_mask *mask, size_t first, size_t rows,
                       size_t tile_rows)
{
    size_t keys = bauta_mask_keys(mask), total = 0, empty = 0;
    bauta_plan *plan = NULL;
    bt_worklist list;
    assert_int_equal(bt_plan_create(&plan, mask, first, rows, tile_rows, NULL),
                     0);
    assert_int_equal(list_of(&list, plan, tile_rows, NULL), 0);
    unsigned char *seen = malloc(keys + 1);
    for (size_t t = 0; t < list.tile_count; t++) {
        const bt_work_tile *tile = &list.tiles[t];
        if (t > 0)
            assert_true(list.tiles[t - 1].pairs >= tile->pairs);
        empty += tile->pairs == 0;
        for (size_t i = 0; i < (size_t)tile->rows; i++, total++) {
            memset(seen, 0, keys + 1);
            unfold(&list, tile, i, seen);
            for (size_t j = 0; j < keys; j++)
                assert_int_equal(
                    seen[j],
                    bauta_mask_visible(mask, first + (size_t)tile->row + i, j));
        }
    }
    assert_int_equal(total, rows);
    assert_int_equal(empty, list.empty_count);
    free(seen);
    bt_worklist_release(&list);
    bauta_plan_free(plan);
}

static void list_equals_the_mask(void **state)
{
    test_random r = test_random_from(test_seed());
    (void)state;
    for (int i = 0; i < 12; i++) {
        size_t n = 1 + test_below(&r, 300), m = 1 + test_below(&r, 500);
        bauta_mask *mask =
            i % 2 ? random_mask(&r, n, m) : causal_documents(&r, n);
        size_t first = test_below(&r, n);
        check_list(mask, 0, n, 128);
        check_list(mask, 0, n, 192);
        check_list(mask, first, 1 + test_below(&r, n - first),
                   1 + test_below(&r, 192));
        bauta_mask_free(mask);
    }
}

static void causal_list_has_one_partial_pair_a_tile(void **state)
{
    bauta_mask *mask = NULL;
    bauta_plan *plan = NULL;
    bt_worklist list;
    (void)state;
    assert_int_equal(bauta_mask_causal(&mask, 1024, 1024, NULL), 0);
    assert_int_equal(bt_plan_create(&plan, mask, 0, 1024, 128, NULL), 0);
    assert_int_equal(list_of(&list, plan, 128, NULL), 0);
    assert_int_equal(list.tile_count, 8);
    assert_int_equal(list.bits_count, 8);
    assert_int_equal(list.run_count, 15); // the first tile has no full run
    assert_int_equal(list.tiles[0].pairs, 8);
    bt_worklist_release(&list);
    bauta_plan_free(plan);
    bauta_mask_free(mask);
}

static void larger_tiles_than_the_kernels_are_refused(void **state)
{
    bauta_mask *mask = NULL;
    bauta_plan *plan = NULL;
    bt_worklist list;
    bauta_error err = { 0 };
    (void)state;
    assert_int_equal(bauta_mask_all(&mask, 200, 10, NULL), 0);
    assert_int_equal(bt_plan_create(&plan, mask, 0, 200, 150, NULL), 0);
    assert_int_equal(list_of(&list, plan, 128, &err), BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "150"));
    bauta_plan_free(plan);
    bauta_mask_free(mask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_equals_the_mask),
        cmocka_unit_test(causal_list_has_one_partial_pair_a_tile),
        cmocka_unit_test(larger_tiles_than_the_kernels_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
