/* SPDX-License-Identifier: Apache-2.0 */
/* test_tile_sort.c - the order in which tiles are taken. Needs no GPU. */
#include "mask/tile_sort.h"

#include "testing.h"

#include <stddef.h>

typedef struct test_tile {
    int32_t row, unused, length;
} test_tile;

enum { TILES_MOST = 60 };

/* The list before and after sorting; the rows of `before` are 0, 1, 2, ... */
typedef struct sorted_tiles {
    size_t count, longest;
    test_tile before[TILES_MOST], after[TILES_MOST];
} sorted_tiles;

static void sort_random(test_random *r, bt_tile_sort *sort, bt_tile_order order,
                        sorted_tiles *tiles)
{
    size_t lengths = 1 + test_below(r, 9);
    tiles->count = test_below(r, TILES_MOST + 1);
    tiles->longest = 0;
    for (size_t t = 0; t < tiles->count; t++) {
        size_t length = test_below(r, lengths);
        tiles->before[t] = tiles->after[t] =
            (test_tile){ (int32_t)t, 0, (int32_t)length };
        if (length > tiles->longest)
            tiles->longest = length;
    }
    assert_int_equal(bt_sort_tiles(sort, tiles->after, tiles->count,
                                   sizeof(test_tile),
                                   offsetof(test_tile, length), order, NULL),
                     0);
}

static void check_every_tile_once(const sorted_tiles *tiles)
{
    bool met[TILES_MOST] = { false };
    for (size_t t = 0; t < tiles->count; t++) {
        const test_tile *tile = &tiles->after[t];
        assert_false(met[tile->row]);
        met[tile->row] = true;
        assert_int_equal(tile->length, tiles->before[tile->row].length);
    }
}

static bool row_follows(const test_tile *tile, bool descending)
{
    return descending ? tile[-1].row > tile->row : tile[-1].row < tile->row;
}

/* Tiles [from, count) stand longest first, equal ones in the order of rows. */
static void check_longest_first(const sorted_tiles *tiles, size_t from,
                                bool descending)
{
    for (size_t t = from + 1; t < tiles->count; t++) {
        const test_tile *tile = &tiles->after[t];
        assert_true(
            tile[-1].length > tile->length ||
            (tile[-1].length == tile->length && row_follows(tile, descending)));
    }
}

/* How many tiles that see something come before the tail: by row, all tiles
 * after them have enough length, and without the first of these they had not.
 */
static size_t count_front(const sorted_tiles *tiles, bt_tile_order order)
{
    size_t need = order.tail * tiles->longest, front = 0, t;
    for (t = tiles->count; t > 0 && need > 0; t--) {
        size_t row = order.descending ? tiles->count - t : t - 1;
        size_t length = (size_t)tiles->before[row].length;
        need -= length < need ? length : need;
    }
    while (t > 0) {
        t--;
        size_t row = order.descending ? tiles->count - 1 - t : t;
        front += tiles->before[row].length > 0;
    }
    return front;
}

static void tiles_are_longest_first(void **state)
{
    test_random r = test_random_from(test_seed());
    bt_tile_sort sort = { 0 };
    sorted_tiles tiles;
    (void)state;
    for (int i = 0; i < 200; i++) {
        sort_random(&r, &sort, (bt_tile_order){ 0 }, &tiles);
        check_every_tile_once(&tiles);
        check_longest_first(&tiles, 0, false);
    }
    bt_tile_sort_release(&sort);
}

/* In memory that other lists have used. */
static void short_tiles_are_by_row_but_for_the_tail(void **state)
{
    test_random r = test_random_from(test_seed());
    bt_tile_sort sort = { 0 };
    sorted_tiles tiles;
    (void)state;
    for (int i = 0; i < 400; i++) {
        bt_tile_order order = { test_below(&r, 9), test_below(&r, 5),
                                test_below(&r, 2) };
        sort_random(&r, &sort, order, &tiles);
        check_every_tile_once(&tiles);
        if (!tiles.count)
            continue;
        assert_int_equal(sort.by_row, tiles.longest <= order.short_length);
        if (!sort.by_row) {
            check_longest_first(&tiles, 0, false);
            continue;
        }
        size_t front = count_front(&tiles, order);
        for (size_t t = 0; t < front; t++) {
            assert_true(tiles.after[t].length > 0);
            if (t > 0)
                assert_true(row_follows(&tiles.after[t], order.descending));
        }
        check_longest_first(&tiles, front, order.descending);
    }
    bt_tile_sort_release(&sort);
}

/* Three documents of four tiles, as a causal mask sees them, and the rest of
 * the batch, which sees nothing. */
static void the_last_documents_are_the_tail(void **state)
{
    static const int32_t want[] = { 0, 1, 2, 3, 7, 11, 6, 10, 5, 9, 4, 8 };
    bt_tile_sort sort = { 0 };
    test_tile tiles[16] = { { 0 } };
    (void)state;
    for (int32_t t = 0; t < 16; t++)
        tiles[t] = (test_tile){ t, 0, t < 12 ? t % 4 + 1 : 0 };
    assert_int_equal(bt_sort_tiles(&sort, tiles, 16, sizeof(test_tile),
                                   offsetof(test_tile, length),
                                   (bt_tile_order){ 4, 5, false }, NULL),
                     0);
    for (int32_t t = 0; t < 16; t++)
        assert_int_equal(tiles[t].row, t < 12 ? want[t] : t);
    bt_tile_sort_release(&sort);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_are_longest_first),
        cmocka_unit_test(short_tiles_are_by_row_but_for_the_tail),
        cmocka_unit_test(the_last_documents_are_the_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
