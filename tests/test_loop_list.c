/* SPDX-License-Identifier: Apache-2.0 */
/* test_loop_list.c - the loop lists of the backward kernels match the mask, by
 * queries and by keys. Needs no GPU. */
#include "mask/loop_list.h"

#include "base/error.h"
#include "mask/plan.h"
#include "masks.h"
#include "testing.h"

#include <string.h>

static uint64_t low_bits(size_t count)
{
    return count < 64 ? ((uint64_t)1 << count) - 1 : UINT64_MAX;
}

/* Which operand a list's tiles belong to. */
typedef enum side { QUERIES, KEYS } side;

/* Set the keys that row `row` of a tile sees in (rows, keys), each pair
 * once. */
static void unfold(const bt_loop_list *list, const bt_loop_tile *tile,
                   size_t row, side of, unsigned char *seen, size_t keys)
{
    int32_t steps = 0;
    for (int32_t s = tile->run; steps < tile->steps; s++) {
        const bt_loop_run *run = &list->runs[s];
        for (int32_t k = 0; k < run->count; k++, steps++) {
            size_t first = (size_t)run->row + (size_t)k * BT_STEP;
            int32_t flags = run->flags >> (row / BT_STEP);
            uint64_t word = flags & 1 ? UINT64_MAX : 0;
            if (flags & 1 && flags >> BT_STEP_PARTIAL & 1)
                word =
                    list->bits[(size_t)(run->bits + k) * list->tile_rows + row];
            if (of == KEYS) {
                const bt_loop_step *step =
                    &list->step_list[run->padded_row / BT_STEP + k];
                assert_int_equal(step->row, first);
                assert_int_equal(word & ~low_bits((size_t)step->rows), 0);
            }
            for (; word; word &= word - 1) {
                size_t other = first + (size_t)__builtin_ctzll(word);
                size_t mine = (size_t)tile->row + row;
                unsigned char *at = of == KEYS ? &seen[other * keys + mine]
                                               : &seen[mine * keys + other];
                assert_int_equal(*at, 0);
                *at = 1;
            }
        }
    }
    assert_int_equal(steps, tile->steps);
}

/* The key tiles that visit a step have the ranks 0, 1, 2, ... in the order of
 * their keys, and each comes after those with lower ranks. */
static void check_ranks(const bt_loop_list *list)
{
    int32_t *next = calloc(list->step_count + 1, sizeof(int32_t));
    int32_t *key = calloc(list->step_count + 1, sizeof(int32_t));
    size_t visits = 0;
    for (size_t t = 0; t < list->tile_count; t++) {
        const bt_loop_tile *tile = &list->tiles[t];
        int32_t visit = tile->visit;
        for (int32_t s = tile->run; s < tile->run + tile->runs; s++)
            for (int32_t k = 0; k < list->runs[s].count; k++, visits++) {
                int32_t step = list->runs[s].padded_row / BT_STEP + k;
                assert_int_equal(list->ranks[visit++], next[step]);
                assert_true(next[step]++ == 0 || key[step] < tile->row);
                key[step] = tile->row;
            }
        assert_int_equal(visit - tile->visit, tile->steps);
    }
    assert_int_equal(visits, list->visit_count);
    free(next);
    free(key);
}

/* Every query is in one step or in one gap. */
static void check_gaps(const bt_loop_list *list, size_t rows)
{
    unsigned char *seen = calloc(rows + 1, 1);
    size_t total = 0;
    for (size_t i = 0; i < list->step_count + list->gap_count; i++) {
        const bt_loop_step *step = i < list->step_count
                                       ? &list->step_list[i]
                                       : &list->gaps[i - list->step_count];
        assert_in_range(step->rows, 1, BT_STEP);
        for (int32_t r = 0; r < step->rows; r++, total++)
            assert_int_equal(seen[step->row + r]++, 0);
    }
    assert_int_equal(total, rows);
    free(seen);
}

static void check_list(const bauta_mask *mask, size_t first, size_t rows,
                       const bt_loop_list *list, side of)
{
    size_t keys = bauta_mask_keys(mask), total = 0, empty = 0;
    unsigned char *seen = calloc(rows + BT_STEP, keys + BT_STEP);
    for (size_t t = 0; t < list->tile_count; t++) {
        const bt_loop_tile *tile = &list->tiles[t];
        if (t > 0)
            assert_true(list->tiles[t - 1].order >= tile->order);
        empty += tile->steps == 0;
        for (size_t i = 0; i < (size_t)tile->rows; i++, total++)
            unfold(list, tile, i, of, seen, keys);
    }
    assert_int_equal(total, of == KEYS ? keys : rows);
    assert_int_equal(empty, list->empty_count);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < keys; j++)
            assert_int_equal(seen[i * keys + j],
                             bauta_mask_visible(mask, first + i, j));
    free(seen);
}

static void check_lists(const bauta_mask *mask, size_t first, size_t rows,
                        size_t tile_rows, size_t key_tile)
{
    bauta_plan *plan = NULL;
    bt_loop_list list;
    assert_int_equal(bt_plan_create(&plan, mask, first, rows, tile_rows, NULL),
                     0);
    // Tiles of the plan, and pieces of them.
    for (size_t most = 64; most <= 192; most += 64) {
        assert_int_equal(bt_loop_list_over_keys(&list, plan, most, NULL), 0);
        check_list(mask, first, rows, &list, QUERIES);
        bt_loop_list_release(&list);
    }
    assert_int_equal(bt_loop_list_over_queries(&list, plan, key_tile, NULL), 0);
    check_ranks(&list);
    check_gaps(&list, rows);
    check_list(mask, first, rows, &list, KEYS);
    bt_loop_list_release(&list);
    bauta_plan_free(plan);
}

static void lists_equal_the_mask(void **state)
{
    test_random r = test_random_from(test_seed());
    (void)state;
    for (int i = 0; i < 40; i++) {
        size_t n = 1 + test_below(&r, 300), m = 1 + test_below(&r, 500);
        bauta_mask *mask = test_mask_random(&r, n, m, 3);
        size_t first = test_below(&r, n);
        check_lists(mask, 0, n, 128, 128);
        check_lists(mask, 0, n, 192, 192);
        check_lists(mask, first, 1 + test_below(&r, n - first),
                    1 + test_below(&r, 192), 128);
        bauta_mask_free(mask);
    }
}

static void causal_lists_have_few_partial_steps(void **state)
{
    bauta_mask *mask = NULL;
    bauta_plan *plan = NULL;
    bt_loop_list list;
    (void)state;
    assert_int_equal(bauta_mask_causal(&mask, 1024, 1024, NULL), 0);
    assert_int_equal(bt_plan_create(&plan, mask, 0, 1024, 128, NULL), 0);
    assert_int_equal(bt_loop_list_over_queries(&list, plan, 128, NULL), 0);
    assert_int_equal(list.tile_count, 8);
    assert_int_equal(list.step_count, 16);
    assert_int_equal(list.bits_count, 16); // two a tile, on the diagonal
    assert_int_equal(list.tiles[0].steps, 16);
    assert_int_equal(list.tiles[7].steps, 2);
    bt_loop_list_release(&list);
    bauta_plan_free(plan);
    bauta_mask_free(mask);
}

/* A document's steps start at its first row that sees something, however many
 * rows before it see nothing and whatever document they belong to. */
static void steps_begin_with_the_first_row_that_sees(void **state)
{
    unsigned char visible[70 * 70] = { 0 };
    bauta_mask *part[2] = { NULL, NULL }, *mask = NULL;
    bauta_plan *plan = NULL;
    bt_loop_list list;
    (void)state;
    for (size_t i = 3; i < 69; i++) // rows 0 to 2 and 69 see nothing
        visible[i * 70 + i] = 1;
    assert_int_equal(bauta_mask_causal(&part[0], 100, 100, NULL), 0);
    assert_int_equal(bauta_mask_dense(&part[1], 70, 70, visible, NULL), 0);
    assert_int_equal(
        bauta_mask_pack(&mask, 2, (const bauta_mask *const *)part, NULL), 0);
    assert_int_equal(bt_plan_create(&plan, mask, 0, 170, 128, NULL), 0);
    assert_int_equal(bt_loop_list_over_queries(&list, plan, 128, NULL), 0);
    assert_int_equal(list.step_count, 4);
    assert_int_equal(list.step_list[2].row, 103);
    assert_int_equal(list.step_list[2].rows, 64);
    assert_int_equal(list.step_list[3].row, 167);
    assert_int_equal(list.step_list[3].rows, 2);
    bt_loop_list_release(&list);
    bauta_plan_free(plan);
    bauta_mask_free(mask);
    bauta_mask_free(part[0]);
    bauta_mask_free(part[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_equal_the_mask),
        cmocka_unit_test(causal_lists_have_few_partial_steps),
        cmocka_unit_test(steps_begin_with_the_first_row_that_sees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
