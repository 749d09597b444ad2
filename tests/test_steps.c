/* SPDX-License-Identifier: Apache-2.0 */
/* test_steps.c - the plan of a step is the plan of its mask. */
#include "mask/steps.h"

#include "base/error.h"
#include "faults.h"
#include "testing.h"

#include <string.h>

enum { SEQUENCES = 6 };

static uint64_t seed;

typedef struct lengths {
    bt_steps steps;
    size_t rows[SEQUENCES], keys[SEQUENCES], windows[SEQUENCES];
} lengths;

static size_t draw(test_random *r, size_t least, size_t most)
{
    static const size_t edges[] = { 1, 63, 64, 65, 96, 97, 128, 192, 193 };
    size_t edge = edges[test_below(r, BT_LEN(edges))];
    if (test_below(r, 2) && edge >= least && edge <= most)
        return edge;
    return least + test_below(r, most - least + 1);
}

static void lengths_draw(lengths *l, test_random *r)
{
    bt_steps *s = &l->steps;
    *s = (bt_steps){ .count = 1 + test_below(r, SEQUENCES),
                     .rows = l->rows,
                     .keys = l->keys,
                     .causal = test_below(r, 4) > 0 };
    if (s->causal && test_below(r, 2))
        s->window = draw(r, 1, 200);
    if (s->causal && test_below(r, 2))
        s->windows = l->windows;
    bool single = test_below(r, 2);
    for (size_t d = 0; d < s->count; d++) {
        l->rows[d] = single ? 1 : draw(r, 1, 250);
        l->keys[d] = draw(r, s->causal ? l->rows[d] : 1, 400);
        l->windows[d] = test_below(r, 3) ? draw(r, 1, 200) : 0;
    }
}

static bauta_mask *mask_of(const bt_steps *s)
{
    bauta_mask *parts[SEQUENCES], *mask = NULL;
    for (size_t d = 0; d < s->count; d++) {
        size_t n = s->rows[d], m = s->keys[d];
        size_t window = s->windows ? s->windows[d] : s->window;
        bauta_status status =
            !s->causal ? bauta_mask_all(&parts[d], n, m, NULL)
            : window   ? bauta_mask_window(&parts[d], n, m, window, NULL)
                       : bauta_mask_causal(&parts[d], n, m, NULL);
        assert_int_equal(status, 0);
    }
    assert_int_equal(bauta_mask_pack(&mask, s->count,
                                     (const bauta_mask *const *)parts, NULL),
                     0);
    for (size_t d = 0; d < s->count; d++)
        bauta_mask_free(parts[d]);
    return mask;
}

static void same_parts(const bauta_plan *want, const bauta_plan *got)
{
    for (size_t t = 0; t < want->tile_count; t++)
        assert_memory_equal(&want->tiles[t], &got->tiles[t], sizeof(bt_tile));
    for (size_t i = 0; i < want->run_count; i++)
        assert_memory_equal(&want->runs[i], &got->runs[i], sizeof(bt_run));
    for (size_t b = 0; b < want->block_count; b++) {
        assert_int_equal(want->blocks[b].key, got->blocks[b].key);
        assert_int_equal(want->blocks[b].keys, got->blocks[b].keys);
    }
    for (size_t i = 0; i < want->word_count; i++)
        assert_int_equal(want->words[i], got->words[i]);
}

static void same_plan(const bauta_plan *want, const bauta_plan *got)
{
    assert_int_equal(want->rows, got->rows);
    assert_int_equal(want->keys, got->keys);
    assert_int_equal(want->key_end, got->key_end);
    assert_int_equal(want->one_origin, got->one_origin);
    assert_int_equal(want->pairs, got->pairs);
    assert_int_equal(want->tile_count, got->tile_count);
    assert_int_equal(want->run_count, got->run_count);
    assert_int_equal(want->block_count, got->block_count);
    assert_int_equal(want->word_count, got->word_count);
    assert_int_equal(got->visit_count, 0);
    same_parts(want, got);
}

static void the_plan_of_a_step_is_that_of_its_mask(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    bt_step_plan step = { .plan = { .rows = 0 } };
    for (size_t round = 0; round < 3000; round++) {
        lengths l;
        bauta_plan *want = NULL;
        lengths_draw(&l, &r);
        bauta_mask *mask = mask_of(&l.steps);
        size_t rows = bauta_mask_queries(mask);
        assert_int_equal(bauta_plan_create(&want, mask, 0, rows, NULL), 0);
        assert_int_equal(bt_step_plan_make(&step, &l.steps, NULL), 0);
        same_plan(want, &step.plan);
        bauta_plan_free(want);
        bauta_mask_free(mask);
    }
    bt_step_plan_release(&step);
}

static void a_plan_without_memory_is_empty_and_serves_again(void **state)
{
    (void)state;
    size_t rows = 1, keys = 100;
    bt_steps steps = { 1, &rows, &keys, true, 0, NULL };
    bt_step_plan step = { .plan = { .rows = 0 } };
    bauta_error err;
    faults_begin();
    faults_arm(0);
    assert_int_equal(bt_step_plan_make(&step, &steps, &err), BAUTA_ERR_NOMEM);
    assert_true(faults_disarm());
    assert_non_null(strstr(err.message, "plan of a step"));
    assert_int_equal(step.plan.tile_count, 0);
    assert_int_equal(bt_step_plan_make(&step, &steps, &err), 0);
    faults_arm(0); // a step of the same size takes nothing
    keys = 101;
    assert_int_equal(bt_step_plan_make(&step, &steps, &err), 0);
    assert_false(faults_disarm());
    assert_int_equal(step.plan.pairs, 101);
    bt_step_plan_release(&step);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_of_a_step_is_that_of_its_mask),
        cmocka_unit_test(a_plan_without_memory_is_empty_and_serves_again),
    };
    return cmocka_run_group_tests_name("steps", tests, NULL, NULL);
}
