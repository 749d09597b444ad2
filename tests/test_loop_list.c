/* SPDX-License-Identifier: Apache-2.0 */
/* test_loop_list.c - the loop lists of the backward kernels match the mask, by
 * queries and by keys. Needs no GPU. */
#include "mask/loop_list.h"

#include "base/error.h"
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

/* The dense key tiles, which are the first ones, visit a step with the ranks 0,
 * 1, 2, ... pass by pass and in a pass in the order of their keys, each comes
 * after those with lower ranks, and the visits of a step are counted. */
static void check_ranks(const bt_loop_list *list)
{
    int32_t *next = calloc(list->step_count + 1, sizeof(int32_t));
    const bt_loop_tile **last = calloc(list->step_count + 1, sizeof(*last));
    size_t visits = 0;
    for (size_t t = 0; t < list->dense_count; t++) {
        const bt_loop_tile *tile = &list->tiles[t];
        int32_t visit = tile->visit;
        for (int32_t s = tile->run; s < tile->run + tile->runs; s++)
            for (int32_t k = 0; k < list->runs[s].count; k++, visits++) {
                int32_t step = list->runs[s].padded_row / BT_STEP + k;
                assert_int_equal(list->ranks[visit++], next[step]++);
                assert_true(!last[step] || last[step]->pass < tile->pass ||
                            (last[step]->pass == tile->pass &&
                             last[step]->row < tile->row));
                last[step] = tile;
            }
        assert_int_equal(visit - tile->visit, tile->steps);
    }
    assert_int_equal(visits, list->dense_visits);
    for (size_t s = 0; list->dense_count && s < list->step_count; s++)
        assert_int_equal(list->step_visits[s], next[s]);
    // The other tiles visit none of their steps.
    for (size_t t = list->dense_count; t < list->tile_count; t++)
        for (int32_t r = 0; r < list->tiles[t].runs; r++) {
            const bt_loop_run *run = &list->runs[list->tiles[t].run + r];
            for (int32_t k = 0; k < run->count; k++)
                assert_int_equal(next[run->padded_row / BT_STEP + k], 0);
        }
    for (size_t i = 0; i < list->dense_step_count; i++)
        next[list->dense_steps[i]] = 0;
    for (size_t i = 0; i < list->step_count; i++)
        assert_int_equal(next[i], 0); // they are the dense steps
    free(next);
    free(last);
}

/* Of the dense tiles, those of split origins come last. */
static void check_split_tiles(const bt_loop_list *list, const bt_bands *bands)
{
    size_t whole = list->dense_count - list->split_count;
    for (size_t t = 0; t < list->dense_count; t++) {
        const bt_loop_run *run = &list->runs[list->tiles[t].run];
        size_t origin = bands->origin_count - 1;
        while (bands->origins[origin].step * BT_STEP > (size_t)run->padded_row)
            origin--;
        assert_int_equal(bands->origins[origin].split, t >= whole);
    }
}

/* With an even number of `queries`, dense origins of twice as many are split,
 * unless all of their rows see all of their keys. */
static void check_split_origins(const bauta_mask *mask, const bt_bands *bands,
                                const bt_bands *whole, size_t queries)
{
    for (size_t i = 0, w = 0; i < bands->origin_count; i++) {
        while (whole->origins[w].key != bands->origins[i].key)
            w++;
        const bt_origin_group *of = &whole->origins[w];
        bool hidden = false;
        for (size_t row = of->row; row < of->row_end; row++)
            for (size_t key = of->key; key < of->key_end; key++)
                hidden |= !bauta_mask_visible(mask, row, key);
        bool split = bands->origins[i].dense && queries % 2 == 0 &&
                     (of->row_end - of->row) / 2 >= queries && hidden;
        assert_int_equal(bands->origins[i].split, split);
    }
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

/* Whether row `row` of the plan sees something from an origin that is not
 * dense. */
static bool is_sparse(const bauta_mask *mask, const bt_bands *bands,
                      size_t first, size_t row)
{
    size_t count;
    (void)bauta_mask_row(mask, first + row, &count);
    for (size_t i = 0; i < bands->origin_count; i++)
        if (bands->origins[i].key == bauta_mask_origin(mask, first + row))
            return count && !bands->origins[i].dense;
    return false;
}

static void check_list(const bauta_mask *mask, const bt_bands *bands,
                       size_t first, size_t rows, const bt_loop_list *list,
                       side of)
{
    size_t keys = bauta_mask_keys(mask), total = 0, empty = 0;
    unsigned char *seen = calloc(rows + BT_STEP, keys + BT_STEP);
    for (size_t t = 0; t < list->tile_count; t++) {
        const bt_loop_tile *tile = &list->tiles[t];
        if (t > 0 && !list->sort.by_row)
            assert_true(list->tiles[t - 1].order >= tile->order);
        empty += tile->steps == 0;
        assert_false(tile->steps && empty); // they are the last ones
        for (size_t i = 0; i < (size_t)tile->rows; i++, total++)
            unfold(list, tile, i, of, seen, keys);
    }
    if (of == KEYS || !bands->origin_count)
        assert_int_equal(total, of == KEYS ? keys : rows);
    assert_int_equal(empty, list->empty_count);
    for (size_t i = 0; i < rows; i++) {
        bool left_out = of == QUERIES && !is_sparse(mask, bands, first, i);
        for (size_t j = 0; j < keys; j++)
            assert_int_equal(seen[i * keys + j],
                             !left_out &&
                                 bauta_mask_visible(mask, first + i, j));
    }
    free(seen);
}

/* The flags of a step say which groups see something and which see all of it.
 */
static void check_flags(const bauta_mask *mask, size_t first,
                        const bt_loop_list *list, const bt_loop_tile *tile,
                        const bt_loop_run *run, side of)
{
    for (int32_t k = 0; k < run->count; k++) {
        size_t other = (size_t)run->row + (size_t)k * BT_STEP;
        size_t end = other + BT_STEP;
        size_t limit = bauta_mask_keys(mask);
        int32_t want = 0;
        if (of == KEYS)
            limit = other +
                    (size_t)list->step_list[run->padded_row / BT_STEP + k].rows;
        for (size_t g = 0; g * BT_STEP < (size_t)tile->rows; g++) {
            size_t lo = g * BT_STEP, seen = 0, rows;
            rows = (size_t)tile->rows - lo < BT_STEP ? (size_t)tile->rows - lo
                                                     : BT_STEP;
            for (size_t i = (size_t)tile->row + lo;
                 i < (size_t)tile->row + lo + rows; i++)
                for (size_t j = other; j < end && j < limit; j++)
                    seen += bauta_mask_visible(
                        mask, first + (of == KEYS ? j : i), of == KEYS ? i : j);
            // Keys after a tile's last one must be hidden, queries need not.
            size_t all = (of == KEYS ? BT_STEP : rows) * BT_STEP;
            if (seen)
                want |= (1 << g) | (seen < all) << (BT_STEP_PARTIAL + g);
        }
        assert_int_equal(run->flags, want);
        assert_int_equal(run->bits < 0, want >> BT_STEP_PARTIAL == 0);
        assert_int_not_equal(want, 0);
    }
}

static void check_runs(const bauta_mask *mask, size_t first,
                       const bt_loop_list *list, side of)
{
    for (size_t t = 0; t < list->tile_count; t++)
        for (int32_t r = 0; r < list->tiles[t].runs; r++)
            check_flags(mask, first, list, &list->tiles[t],
                        &list->runs[list->tiles[t].run + r], of);
}

/* A plan may have tiles of two sizes, whose kernels share what belongs to
 * steps. */
static void check_same_steps(const bt_loop_list *list, const bt_bands *bands,
                             size_t key_tile)
{
    bt_loop_list other = { 0 };
    assert_int_equal(bt_loop_list_over_queries(&other, bands, key_tile,
                                               (bt_tile_order){ 0 }, NULL),
                     0);
    assert_int_equal(list->step_count, other.step_count);
    assert_int_equal(list->dense_step_count, other.dense_step_count);
    for (size_t i = 0; i < other.step_count; i++) {
        assert_int_equal(list->step_list[i].row, other.step_list[i].row);
        assert_int_equal(list->step_list[i].rows, other.step_list[i].rows);
    }
    for (size_t i = 0; i < other.dense_step_count; i++)
        assert_int_equal(list->dense_steps[i], other.dense_steps[i]);
    bt_loop_list_release(&other);
}

/* Lists are made in memory that others have used. `queries`: from how many on
 * an origin is dense. */
static void check_lists(const bauta_mask *mask, size_t first, size_t rows,
                        size_t most, size_t key_tile, size_t queries)
{
    bt_loop_list list = { 0 };
    bt_bands bands = { 0 }, whole = { 0 };
    assert_int_equal(bt_bands_read(&bands, mask, first, rows, NULL), 0);
    assert_int_equal(
        bt_bands_read(&whole, mask, 0, bauta_mask_queries(mask), NULL), 0);
    bt_bands_mark_dense(&bands, &whole, queries,
                        queries % 2 ? SIZE_MAX : bt_size_mul(queries, 2));
    check_split_origins(mask, &bands, &whole, queries);
    // Tiles of the plan, and pieces of them.
    for (size_t tile = 64; tile <= 192; tile += 64) {
        assert_int_equal(bt_loop_list_over_keys(&list, &bands, most, tile,
                                                (bt_tile_order){ 4, 1, false },
                                                NULL),
                         0);
        check_list(mask, &bands, first, rows, &list, QUERIES);
        check_runs(mask, first, &list, QUERIES);
    }
    assert_int_equal(bt_loop_list_over_queries(&list, &bands, key_tile,
                                               (bt_tile_order){ 4, 1, true },
                                               NULL),
                     0);
    assert_false(list.dense_count && list.sort.by_row);
    check_ranks(&list);
    check_split_tiles(&list, &bands);
    check_gaps(&list, rows);
    check_list(mask, &bands, first, rows, &list, KEYS);
    check_runs(mask, first, &list, KEYS);
    check_same_steps(&list, &bands, key_tile == 64 ? 128 : 64);
    bt_bands_release(&bands);
    bt_bands_release(&whole);
    bt_loop_list_release(&list);
}

/* Documents of a few kinds, packed: some are like the one before, some begin or
 * end with rows that see nothing, some have keys that nobody sees. */
static bauta_mask *packed_documents(test_random *r)
{
    const bauta_mask *part[8];
    bauta_mask *kind[3], *mask = NULL;
    for (size_t i = 0; i < 3; i++) {
        size_t n = 1 + test_below(r, 150), m = 1 + test_below(r, 150);
        kind[i] =
            i < 2 ? test_mask_random(r, n, n, 1) : test_mask_random(r, n, m, 2);
    }
    for (size_t i = 0; i < 8; i++)
        part[i] =
            i > 0 && test_below(r, 3) ? part[i - 1] : kind[test_below(r, 3)];
    assert_int_equal(bauta_mask_pack(&mask, 8, part, NULL), 0);
    for (size_t i = 0; i < 3; i++)
        bauta_mask_free(kind[i]);
    return mask;
}

static void repeated_documents_equal_the_mask(void **state)
{
    test_random r = test_random_from(test_seed());
    (void)state;
    for (int i = 0; i < 12; i++) {
        bauta_mask *mask = packed_documents(&r);
        size_t n = bauta_mask_queries(mask), first = test_below(&r, n);
        check_lists(mask, 0, n, 128, 128, i % 2 ? SIZE_MAX : 0);
        check_lists(mask, first, n - first, 1 + test_below(&r, 192), 192,
                    test_below(&r, 100));
        bauta_mask_free(mask);
    }
}

static void queries_list(bt_loop_list *list, const bauta_mask *mask)
{
    bt_bands bands = { 0 };
    assert_int_equal(
        bt_bands_read(&bands, mask, 0, bauta_mask_queries(mask), NULL), 0);
    assert_int_equal(bt_loop_list_over_queries(list, &bands, 128,
                                               (bt_tile_order){ 0 }, NULL),
                     0);
    bt_bands_release(&bands);
}

static void lists_equal_the_mask(void **state)
{
    test_random r = test_random_from(test_seed());
    (void)state;
    for (int i = 0; i < 40; i++) {
        size_t n = 1 + test_below(&r, 300), m = 1 + test_below(&r, 500);
        bauta_mask *mask = test_mask_random(&r, n, m, 3);
        size_t first = test_below(&r, n);
        check_lists(mask, 0, n, 128, 128, i % 2 ? SIZE_MAX : 0);
        check_lists(mask, 0, n, 192, 192, test_below(&r, 100));
        check_lists(mask, first, 1 + test_below(&r, n - first),
                    1 + test_below(&r, 192), 128, test_below(&r, 100));
        bauta_mask_free(mask);
    }
}

static void causal_lists_have_few_partial_steps(void **state)
{
    bauta_mask *mask = NULL;
    bt_loop_list list = { 0 };
    (void)state;
    assert_int_equal(bauta_mask_causal(&mask, 1024, 1024, NULL), 0);
    queries_list(&list, mask);
    assert_int_equal(list.tile_count, 8);
    assert_int_equal(list.step_count, 16);
    assert_int_equal(list.bits_count, 2); // the diagonal, of all tiles
    assert_int_equal(list.tiles[0].steps, 16);
    assert_int_equal(list.tiles[7].steps, 2);
    bt_loop_list_release(&list);
    bauta_mask_free(mask);
}

/* What tiles of a document add one after the other is a matter of the document
 * alone; passes of all documents come one after the other, longest tiles first,
 * and tiles of a pass are apart. */
static void dense_tiles_add_in_passes(void **state)
{
    static const size_t first_of[] = { 0, 700, 1340 };
    bauta_mask *part[3] = { NULL }, *mask = NULL;
    bt_loop_list list = { 0 };
    bt_bands bands = { 0 };
    (void)state;
    assert_int_equal(bauta_mask_causal(&part[0], 700, 700, NULL), 0);
    assert_int_equal(bauta_mask_causal(&part[1], 640, 640, NULL), 0);
    assert_int_equal(bauta_mask_causal(&part[2], 640, 640, NULL), 0);
    assert_int_equal(
        bauta_mask_pack(&mask, 3, (const bauta_mask *const *)part, NULL), 0);
    assert_int_equal(bt_bands_read(&bands, mask, 0, 1980, NULL), 0);
    bt_bands_mark_dense(&bands, &bands, 64, SIZE_MAX);
    for (size_t rows = 64; rows <= 192; rows += 64) {
        int32_t passes = (int32_t)((BT_PASS_KEYS + rows - 1) / rows);
        assert_int_equal(bt_loop_list_over_queries(
                             &list, &bands, rows,
                             (bt_tile_order){ SIZE_MAX, 1, true }, NULL),
                         0);
        check_ranks(&list);
        assert_int_equal(list.dense_count, list.tile_count);
        assert_int_equal(list.chain_count, 3);
        for (size_t t = 0; t < list.tile_count; t++) {
            const bt_loop_tile *tile = &list.tiles[t];
            size_t document = 2;
            while (first_of[document] > (size_t)tile->row)
                document--;
            size_t i = ((size_t)tile->row - first_of[document]) / rows;
            assert_int_equal(tile->pass, i % (size_t)passes);
            assert_true(
                t == 0 || tile[-1].pass < tile->pass ||
                (tile[-1].pass == tile->pass && tile[-1].steps >= tile->steps));
        }
    }
    bt_loop_list_release(&list);
    bt_bands_release(&bands);
    bauta_mask_free(mask);
    for (size_t i = 0; i < 3; i++)
        bauta_mask_free(part[i]);
}

/* A document's steps start at its first row that sees something, however many
 * rows before it see nothing and whatever document they belong to. */
static void steps_begin_with_the_first_row_that_sees(void **state)
{
    unsigned char visible[70 * 70] = { 0 };
    bauta_mask *part[2] = { NULL, NULL }, *mask = NULL;
    bt_loop_list list = { 0 };
    (void)state;
    for (size_t i = 3; i < 69; i++) // rows 0 to 2 and 69 see nothing
        visible[i * 70 + i] = 1;
    assert_int_equal(bauta_mask_causal(&part[0], 100, 100, NULL), 0);
    assert_int_equal(bauta_mask_dense(&part[1], 70, 70, visible, NULL), 0);
    assert_int_equal(
        bauta_mask_pack(&mask, 2, (const bauta_mask *const *)part, NULL), 0);
    queries_list(&list, mask);
    assert_int_equal(list.step_count, 4);
    assert_int_equal(list.step_list[2].row, 103);
    assert_int_equal(list.step_list[2].rows, 64);
    assert_int_equal(list.step_list[3].row, 167);
    assert_int_equal(list.step_list[3].rows, 2);
    bt_loop_list_release(&list);
    bauta_mask_free(mask);
    bauta_mask_free(part[0]);
    bauta_mask_free(part[1]);
}

/* What is dense is a matter of the document, not of the rows of a plan or of
 * what lies beside it. */
static void dense_documents_are_the_same_in_every_plan(void **state)
{
    static const size_t lengths[] = { 100, 400, 30 };
    bauta_mask *causal = NULL, *documents = NULL, *mask = NULL;
    bt_bands bands = { 0 }, whole = { 0 };
    (void)state;
    assert_int_equal(bauta_mask_causal(&causal, 530, 530, NULL), 0);
    assert_int_equal(bauta_mask_documents(&documents, 3, lengths, NULL, NULL),
                     0);
    assert_int_equal(bauta_mask_and(&mask, causal, documents, NULL), 0);
    assert_int_equal(bt_bands_read(&whole, mask, 0, 530, NULL), 0);
    for (size_t first = 0; first < 530; first += 97) {
        size_t rows = 530 - first < 150 ? 530 - first : 150;
        assert_int_equal(bt_bands_read(&bands, mask, first, rows, NULL), 0);
        bt_bands_mark_dense(&bands, &whole, 150, 300);
        for (size_t i = 0; i < bands.origin_count; i++)
            assert_int_equal(bands.origins[i].dense && bands.origins[i].split,
                             bands.origins[i].key == 100);
    }
    bt_bands_release(&bands);
    bt_bands_release(&whole);
    bauta_mask_free(causal);
    bauta_mask_free(documents);
    bauta_mask_free(mask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_equal_the_mask),
        cmocka_unit_test(repeated_documents_equal_the_mask),
        cmocka_unit_test(dense_documents_are_the_same_in_every_plan),
        cmocka_unit_test(dense_tiles_add_in_passes),
        cmocka_unit_test(causal_lists_have_few_partial_steps),
        cmocka_unit_test(steps_begin_with_the_first_row_that_sees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
