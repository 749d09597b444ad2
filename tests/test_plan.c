/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c - plans, decoded back to the matrix they were compiled from. */
#include "allocation_faults.h"
#include "base/error.h"
#include "mask/plan.h"
#include "mask_model.h"

#include <string.h>

/* ---- Decoding ------------------------------------------------------------ */

/* One plan under test: its mask's model, and which rows of it. */
typedef struct subject {
    const bauta_plan *plan;
    const model *model;
    size_t first;
    unsigned char *seen; /* (plan rows, keys) the pairs that the plan shows */
} subject;

static size_t block_row_keys(const subject *s, const bt_key_block *block,
                             size_t row)
{
    size_t count = 0;
    for (size_t j = 0; j < block->keys; j++)
        count += *model_at(s->model, s->first + row, block->key + j);
    return count;
}

/* Whether the rows of a tile see every key of a whole block. */
static bool block_is_full(const subject *s, const bt_tile *tile,
                          const bt_key_block *block)
{
    for (size_t r = 0; r < tile->rows; r++)
        if (block_row_keys(s, block, tile->row + r) < BT_BLOCK)
            return false;
    return true;
}

/* A tile visits a block, with words or without: record what it sees there. */
static void decode_block(const subject *s, const bt_tile *tile,
                         const bt_key_block *block, const uint64_t *words)
{
    uint64_t any = 0;
    for (size_t r = 0; r < tile->rows; r++) {
        uint64_t word = words ? words[r] : UINT64_MAX;
        any |= word;
        for (size_t j = 0; j < BT_BLOCK; j++) {
            if (!(word >> j & 1))
                continue;
            assert_true(j < block->keys); // nothing after the grid's end
            unsigned char *seen =
                &s->seen[(tile->row + r) * s->plan->keys + block->key + j];
            assert_int_equal(*seen, 0); // no pair is in two blocks of a tile
            *seen = 1;
        }
    }
    assert_true(any != 0); // hidden blocks are not in the plan
    assert_int_equal(words == NULL, block_is_full(s, tile, block));
}

static void decode_tile(const subject *s, const bt_tile *tile)
{
    const bauta_plan *plan = s->plan;
    size_t after = 0, visits = 0;
    for (size_t i = 0; i < tile->runs; i++) {
        const bt_block_run *run = &plan->runs[tile->run + i];
        assert_true(run->count > 0);
        assert_true(run->first >= after); // sorted and disjoint
        after = run->first + run->count;
        visits += run->count;
        for (size_t k = 0; k < run->count; k++)
            decode_block(s, tile, &plan->blocks[tile->grid + run->first + k],
                         run->words == BT_FULL
                             ? NULL
                             : plan->words + run->words + k * tile->rows);
    }
    assert_int_equal(tile->visits, visits);
}

/* Compare the decoded matrix to the model, and clear it. */
static void check_seen(const subject *s)
{
    size_t keys = s->plan->keys, bytes = s->plan->rows * keys;
    if (bytes)
        assert_memory_equal(s->seen, model_at(s->model, s->first, 0), bytes);
    memset(s->seen, 0, bytes);
}

/* Tiles cover each row once, in order; a tile has one origin, and its grid
 * starts there. */
static void check_tiles(const subject *s, size_t tile_rows)
{
    const bauta_plan *plan = s->plan;
    size_t row = 0, run = 0;
    for (size_t t = 0; t < plan->tile_count; t++) {
        const bt_tile *tile = &plan->tiles[t];
        assert_int_equal(tile->row, row);
        assert_int_equal(tile->run, run);
        assert_in_range(tile->rows, 1, tile_rows);
        for (size_t r = 0; r < tile->rows; r++) {
            const unsigned char *bits =
                model_at(s->model, s->first + row + r, 0);
            if (memchr(bits, 1, plan->keys))
                assert_int_equal(s->model->origin[s->first + row + r],
                                 plan->blocks[tile->grid].key);
        }
        row += tile->rows;
        run += tile->runs;
    }
    assert_int_equal(row, plan->rows);
    assert_int_equal(run, plan->run_count);
}

/* Blocks lie 64 keys apart in a grid, and no origin has two grids. */
static void check_blocks(const subject *s)
{
    const bauta_plan *plan = s->plan;
    size_t visit = 0;
    for (size_t b = 0; b < plan->block_count; b++) {
        const bt_key_block *block = &plan->blocks[b];
        assert_in_range(block->keys, 1, BT_BLOCK);
        assert_true(block->key + block->keys <= plan->key_end);
        assert_int_equal(block->visit, visit);
        visit += block->visits;
    }
    assert_int_equal(visit, plan->visit_count);
    for (size_t t = 0; t < plan->tile_count; t++)
        for (size_t u = 0; u < t; u++) {
            const bt_tile *a = &plan->tiles[t], *b = &plan->tiles[u];
            if (a->runs && b->runs && a->grid != b->grid)
                assert_true(plan->blocks[a->grid].key !=
                            plan->blocks[b->grid].key);
        }
}

/* Decode by keys: the visits of a block are sorted and disjoint. */
static void decode_visits(const subject *s)
{
    const bauta_plan *plan = s->plan;
    for (size_t b = 0; b < plan->block_count; b++) {
        const bt_key_block *block = &plan->blocks[b];
        size_t after = 0;
        for (size_t i = 0; i < block->visits; i++) {
            const bt_tile_run *visit = &plan->visits[block->visit + i];
            bool full = visit->words == BT_FULL;
            assert_true(visit->first >= after);
            assert_true(full ? visit->count >= 1 : visit->count == 1);
            after = visit->first + visit->count;
            for (size_t t = visit->first; t < after; t++)
                decode_block(s, &plan->tiles[t], block,
                             full ? NULL : plan->words + visit->words);
        }
    }
}

static void check_totals(const subject *s)
{
    const bauta_plan *plan = s->plan;
    uint64_t pairs = 0;
    size_t end = 0;
    bool one_origin = true;
    for (size_t i = 0; i < plan->rows; i++)
        for (size_t j = 0; j < plan->keys; j++) {
            if (!*model_at(s->model, s->first + i, j))
                continue;
            pairs++;
            end = j + 1 > end ? j + 1 : end;
            one_origin &= s->model->origin[s->first + i] == 0;
        }
    assert_int_equal(plan->pairs, pairs);
    assert_int_equal(plan->key_end, end);
    assert_int_equal(plan->one_origin, one_origin);
}

static void check_plan(const bauta_mask *mask, const model *m, size_t first,
                       size_t rows, size_t tile_rows)
{
    bauta_plan *plan;
    bauta_error err = { 0, "" };
    assert_int_equal(bt_plan_create(&plan, mask, first, rows, tile_rows, &err),
                     0);
    assert_int_equal(plan->rows, rows);
    assert_int_equal(plan->keys, m->keys);
    subject s = { plan, m, first, calloc(rows * m->keys + 1, 1) };
    assert_non_null(s.seen);
    check_tiles(&s, tile_rows);
    check_blocks(&s);
    for (size_t t = 0; t < plan->tile_count; t++)
        decode_tile(&s, &plan->tiles[t]);
    check_seen(&s);
    decode_visits(&s);
    check_seen(&s);
    check_totals(&s);
    free(s.seen);
    bauta_plan_free(plan);
}

/* ---- By hand ------------------------------------------------------------- */

static bauta_plan *plan_of(bauta_mask *mask, size_t first, size_t rows,
                           size_t tile_rows)
{
    bauta_plan *plan;
    assert_int_equal(bt_plan_create(&plan, mask, first, rows, tile_rows, NULL),
                     0);
    bauta_mask_free(mask); // a plan does not reference it
    return plan;
}

static void assert_run(const bauta_plan *plan, size_t run, size_t first,
                       size_t count, bool full)
{
    assert_in_range(run, 0, plan->run_count - 1);
    assert_int_equal(plan->runs[run].first, first);
    assert_int_equal(plan->runs[run].count, count);
    assert_int_equal(plan->runs[run].words == BT_FULL, full);
}

static void causal_tiles_have_one_partial_block(void **state)
{
    (void)state;
    bauta_mask *mask;
    assert_int_equal(bauta_mask_causal(&mask, 256, 256, NULL), 0);
    bauta_plan *plan = plan_of(mask, 0, 256, 64);
    assert_int_equal(plan->tile_count, 4);
    assert_int_equal(plan->block_count, 4);
    assert_int_equal(plan->run_count, 7);
    assert_int_equal(plan->word_count, 4 * 64);
    assert_run(plan, plan->tiles[3].run, 0, 3, true);
    assert_run(plan, plan->tiles[3].run + 1, 3, 1, false);
    assert_int_equal(plan->words[plan->runs[plan->tiles[3].run + 1].words + 4],
                     0x1f);
    // Block 1 is seen by tile 1 in part, by tiles 2 and 3 whole.
    const bt_key_block *block = &plan->blocks[1];
    assert_int_equal(block->visits, 2);
    assert_int_equal(plan->visits[block->visit].first, 1);
    assert_int_equal(plan->visits[block->visit + 1].first, 2);
    assert_int_equal(plan->visits[block->visit + 1].count, 2);
    assert_true(plan->visits[block->visit + 1].words == BT_FULL);
    assert_true(plan->one_origin);
    bauta_plan_free(plan);
}

static void the_last_row_equals_a_decoding_step(void **state)
{
    (void)state;
    bauta_mask *mask;
    assert_int_equal(bauta_mask_causal(&mask, 200, 200, NULL), 0);
    bauta_plan *plan = plan_of(mask, 199, 1, BT_TILE_ROWS);
    assert_int_equal(plan->tile_count, 1);
    assert_int_equal(plan->run_count, 2);
    assert_run(plan, 0, 0, 3, true);
    assert_run(plan, 1, 3, 1, false);
    assert_int_equal(plan->word_count, 1);
    assert_int_equal(plan->words[0], 0xff);
    assert_int_equal(plan->blocks[3].keys, 8);
    bauta_plan_free(plan);
}

static void a_short_block_at_the_end_is_never_full(void **state)
{
    (void)state;
    bauta_mask *mask;
    assert_int_equal(bauta_mask_all(&mask, 10, 127, NULL), 0);
    bauta_plan *plan = plan_of(mask, 0, 10, BT_TILE_ROWS);
    assert_int_equal(plan->run_count, 2);
    assert_run(plan, 0, 0, 1, true);
    assert_run(plan, 1, 1, 1, false);
    assert_int_equal(plan->words[0], UINT64_MAX >> 1);
    bauta_plan_free(plan);
}

static void hidden_blocks_are_not_visited(void **state)
{
    (void)state;
    bauta_mask *mask;
    assert_int_equal(bauta_mask_window(&mask, 64, 1024, 65, NULL), 0);
    bauta_plan *plan = plan_of(mask, 0, 64, 64);
    assert_int_equal(plan->run_count, 1);
    assert_run(plan, 0, 14, 2, false);
    assert_int_equal(plan->blocks[0].visits, 0);
    assert_int_equal(plan->blocks[15].visits, 1);
    bauta_plan_free(plan);
}

static void
tiles_do_not_straddle_documents_and_blocks_start_with_them(void **state)
{
    (void)state;
    size_t lengths[] = { 70, 0, 130 };
    bauta_mask *mask;
    assert_int_equal(bauta_mask_documents(&mask, 3, lengths, NULL, NULL), 0);
    bauta_plan *plan = plan_of(mask, 0, 200, BT_TILE_ROWS);
    assert_int_equal(plan->tile_count, 3); // 70, 96 and 34 rows
    assert_int_equal(plan->tiles[1].row, 70);
    assert_int_equal(plan->block_count, 2 + 3);
    assert_int_equal(plan->blocks[1].keys, 6); // the document's, no neighbour's
    assert_int_equal(plan->blocks[2].key, 70);
    assert_int_equal(plan->tiles[2].grid, 2);
    assert_false(plan->one_origin);
    bauta_plan_free(plan);
}

static void empty_rows_stay_in_their_tile(void **state)
{
    (void)state;
    size_t lengths[] = { 3, 2 };
    bauta_mask *mask;
    assert_int_equal(bauta_mask_lengths(&mask, 2, 5, 5, NULL, lengths, NULL),
                     0);
    bauta_plan *plan = plan_of(mask, 0, 10, BT_TILE_ROWS);
    assert_int_equal(plan->tile_count, 2);
    assert_int_equal(plan->tiles[0].rows, 5);
    assert_int_equal(plan->tiles[1].rows, 5);
    bauta_plan_free(plan);

    assert_int_equal(bauta_mask_causal(&mask, 300, 2, NULL), 0);
    plan = plan_of(mask, 0, 300, 100); // only rows 298 and 299 see something
    assert_int_equal(plan->tile_count, 3);
    assert_int_equal(plan->tiles[0].runs, 0);
    assert_int_equal(plan->tiles[0].visits, 0);
    assert_int_equal(plan->tiles[2].runs, 1);
    bauta_plan_free(plan);
}

static void an_empty_plan_works(void **state)
{
    (void)state;
    static const size_t sizes[][2] = { { 0, 0 }, { 0, 9 }, { 9, 0 } };
    for (size_t i = 0; i < BT_LEN(sizes); i++) {
        bauta_mask *mask;
        assert_int_equal(bauta_mask_all(&mask, sizes[i][0], sizes[i][1], NULL),
                         0);
        bauta_plan *plan = plan_of(mask, 0, sizes[i][0], BT_TILE_ROWS);
        assert_int_equal(plan->tile_count, sizes[i][0] != 0);
        assert_int_equal(plan->run_count + plan->block_count +
                             plan->visit_count + plan->word_count,
                         0);
        assert_true(plan->one_origin);
        bauta_plan_free(plan);
    }
    bauta_plan_free(NULL);
}

static void a_long_causal_plan_is_small(void **state)
{
    (void)state;
    size_t n = 131072;
    bauta_mask *mask;
    assert_int_equal(bauta_mask_causal(&mask, n, n, NULL), 0);
    bauta_plan *plan = plan_of(mask, 0, n, BT_TILE_ROWS);
    size_t tiles = (n + BT_TILE_ROWS - 1) / BT_TILE_ROWS;
    assert_int_equal(plan->tile_count, tiles);
    assert_int_equal(plan->block_count, n / BT_BLOCK);
    assert_true(plan->run_count <= 2 * tiles);
    assert_true(plan->word_count <= 3 * BT_TILE_ROWS * tiles);
    assert_true(plan->visit_count <= 3 * tiles + n / BT_BLOCK);
    assert_true(plan->pairs == (uint64_t)n * (n + 1) / 2);
    bauta_plan_free(plan);
}

/* ---- Random cases -------------------------------------------------------- */

static void every_plan_decodes_to_its_mask(void **state)
{
    (void)state;
    static const size_t tiles[] = { 1, 2, 7, 32, 64, 96, 192 };
    test_random r = test_random_from(test_seed());
    for (int round = 0; round < 10000; round++) {
        size_t queries = random_size(&r);
        size_t keys = test_below(&r, 3) ? random_size(&r) : queries;
        model m;
        bauta_mask *mask = random_mask(&r, queries, keys, 2, &m);
        size_t tile = tiles[test_below(&r, BT_LEN(tiles))];
        if (test_below(&r, 2)) {
            check_plan(mask, &m, 0, queries, tile);
        } else {
            size_t first = test_below(&r, queries + 1);
            check_plan(mask, &m, first, test_below(&r, queries - first + 1),
                       tile);
        }
        bauta_mask_free(mask);
        model_free(&m);
    }
}

/* ---- Errors -------------------------------------------------------------- */

static void an_impossible_plan_is_an_error(void **state)
{
    (void)state;
    bauta_mask *mask;
    assert_int_equal(bauta_mask_causal(&mask, 10, 10, NULL), 0);
    static const struct {
        size_t first, rows, tile_rows;
    } bad[] = {
        { 0, 11, 96 },
        { 11, 0, 96 },
        { 5, 6, 96 },
        { 10, 1, 96 },
        { SIZE_MAX, 1, 96 },
        { 1, SIZE_MAX, 96 },
        { SIZE_MAX, SIZE_MAX, 96 },
        { 0, 10, 0 },
        { 0, 10, 193 },
        { 0, 10, SIZE_MAX },
    };
    for (size_t i = 0; i < BT_LEN(bad); i++) {
        bauta_error err = { 0, "" };
        bauta_plan *plan = (bauta_plan *)&err;
        assert_int_equal(bt_plan_create(&plan, mask, bad[i].first, bad[i].rows,
                                        bad[i].tile_rows, &err),
                         BAUTA_ERR_ARGUMENT);
        assert_null(plan);
        assert_true(err.message[0]);
    }
    bauta_error err = { 0, "" };
    bauta_plan *plan = (bauta_plan *)&err;
    assert_int_equal(bauta_plan_create(&plan, NULL, 0, 0, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_null(plan);
    assert_string_equal(err.message, "the mask to plan is NULL");
    assert_int_equal(bauta_plan_create(NULL, mask, 0, 10, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_plan_create(&plan, mask, 9, 5, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_string_equal(err.message, "a plan of 5 rows from row 9 on exceeds a "
                                     "mask of 10 queries");
    bauta_mask_free(mask);
}

static void a_plan_survives_each_failing_allocation(void **state)
{
    (void)state;
    faults_begin();
    size_t lengths[] = { 70, 130 };
    bauta_mask *mask;
    assert_int_equal(bauta_mask_documents(&mask, 2, lengths, NULL, NULL), 0);
    size_t live = faults_live(), k = 0;
    for (;; k++) {
        bauta_error err = { 0, "" };
        bauta_plan *plan = (bauta_plan *)&err;
        faults_arm(k);
        bauta_status status = bauta_plan_create(&plan, mask, 0, 200, &err);
        if (!faults_disarm()) {
            assert_int_equal(status, BAUTA_OK);
            bauta_plan_free(plan);
            assert_int_equal(faults_live(), live);
            break;
        }
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_null(plan);
        assert_true(err.message[0]);
        assert_int_equal(faults_live(), live);
    }
    assert_true(k > 5);
    bauta_mask_free(mask);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal_tiles_have_one_partial_block),
        cmocka_unit_test(the_last_row_equals_a_decoding_step),
        cmocka_unit_test(a_short_block_at_the_end_is_never_full),
        cmocka_unit_test(hidden_blocks_are_not_visited),
        cmocka_unit_test(
            tiles_do_not_straddle_documents_and_blocks_start_with_them),
        cmocka_unit_test(empty_rows_stay_in_their_tile),
        cmocka_unit_test(an_empty_plan_works),
        cmocka_unit_test(a_long_causal_plan_is_small),
        cmocka_unit_test(every_plan_decodes_to_its_mask),
        cmocka_unit_test(an_impossible_plan_is_an_error),
        cmocka_unit_test(a_plan_survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
