/* SPDX-License-Identifier: Apache-2.0 */
/* test_decode_plan.c - the mask of a batch shows the right keys, and the plan
 * of a decoding step is the plan of that mask. */
#include "mask/plan.h"

#include "allocation_faults.h"
#include "base/error.h"
#include "runtime/plan_cache.h"
#include "testing.h"

#include <string.h>

enum { SEQUENCES = 6 };

static uint64_t seed;

typedef struct lengths {
    bt_batch_mask mask;
    size_t rows[SEQUENCES], keys[SEQUENCES];
    size_t prefixes[SEQUENCES], windows[SEQUENCES];
    size_t sequence; /* that oracle_row() is asked about */
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
    bt_batch_mask *m = &l->mask;
    size_t count = 1 + test_below(r, SEQUENCES);
    *m = (bt_batch_mask){ .queries = { count, l->rows, 0 },
                          .keys = { count, l->keys, 0 },
                          .causal = test_below(r, 4) > 0 };
    if (m->causal && test_below(r, 2))
        m->window = draw(r, 1, 200);
    if (m->causal && test_below(r, 2))
        m->windows = l->windows;
    if (m->causal && test_below(r, 4) == 0)
        m->prefixes = l->prefixes;
    bool single = test_below(r, 2);
    for (size_t d = 0; d < count; d++) {
        l->rows[d] = single ? 1 : draw(r, 1, 250);
        l->keys[d] = draw(r, m->causal ? l->rows[d] : 1, 400);
        l->windows[d] = test_below(r, 3) ? draw(r, 1, 200) : 0;
        l->prefixes[d] = test_below(r, l->keys[d] + 1);
    }
}

/* Whether a query sees a key, by the definition in bauta.h. */
static bool oracle(const lengths *l, size_t d, size_t row, size_t key)
{
    const bt_batch_mask *m = &l->mask;
    size_t position = l->keys[d] - l->rows[d] + row;
    size_t own = m->windows ? m->windows[d] : 0;
    if (!m->causal)
        return true;
    if (m->prefixes && position < m->prefixes[d] && key < m->prefixes[d])
        return true;
    return key <= position && (!m->window || position - key < m->window) &&
           (!own || position - key < own);
}

static size_t oracle_row(void *user, size_t row, bauta_span *spans,
                         size_t capacity)
{
    const lengths *l = user;
    size_t count = 0, keys = l->keys[l->sequence];
    for (size_t lo = 0, hi; lo < keys; lo = hi + 1) {
        for (hi = lo; hi < keys && oracle(l, l->sequence, row, hi);)
            hi++;
        if (lo < hi && count++ < capacity)
            spans[count - 1] = (bauta_span){ lo, hi };
    }
    return count;
}

static bauta_mask *mask_of(lengths *l)
{
    bauta_mask *parts[SEQUENCES], *mask = NULL;
    size_t count = l->mask.queries.count;
    for (size_t d = 0; d < count; d++) {
        l->sequence = d;
        assert_int_equal(bauta_mask_rows(&parts[d], l->rows[d], l->keys[d],
                                         oracle_row, l, NULL),
                         0);
    }
    assert_int_equal(
        bauta_mask_pack(&mask, count, (const bauta_mask *const *)parts, NULL),
        0);
    for (size_t d = 0; d < count; d++)
        bauta_mask_free(parts[d]);
    return mask;
}

static void same_mask(const bauta_mask *want, const bt_batch_mask *how)
{
    bauta_mask *got = NULL;
    assert_int_equal(bt_batch_mask_create(&got, how, NULL), 0);
    assert_int_equal(want->queries, got->queries);
    assert_int_equal(want->keys, got->keys);
    assert_int_equal(want->pairs, got->pairs);
    const bt_row_list *x = bt_mask_rows(want), *y = bt_mask_rows(got);
    size_t n = want->queries, bytes = n * sizeof(size_t);
    assert_memory_equal(x->start, y->start, bytes + sizeof(size_t));
    assert_memory_equal(x->origin, y->origin, bytes);
    assert_memory_equal(x->spans, y->spans, x->start[n] * sizeof(bauta_span));
    bauta_mask_free(got);
}

static void same_parts(const bauta_plan *want, const bauta_plan *got)
{
    for (size_t t = 0; t < want->tile_count; t++)
        assert_memory_equal(&want->tiles[t], &got->tiles[t], sizeof(bt_tile));
    for (size_t i = 0; i < want->run_count; i++)
        assert_memory_equal(&want->runs[i], &got->runs[i],
                            sizeof(bt_block_run));
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

static void the_plan_of_a_step_equals_the_plan_of_its_mask(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    bt_decode_plan step = { .plan = { .rows = 0 } };
    for (size_t round = 0; round < 1500; round++) {
        lengths l;
        bauta_plan *want = NULL;
        lengths_draw(&l, &r);
        bauta_mask *mask = mask_of(&l);
        same_mask(mask, &l.mask);
        size_t rows = bauta_mask_queries(mask);
        assert_int_equal(bauta_plan_create(&want, mask, 0, rows, NULL), 0);
        assert_int_equal(bt_decode_plan_build(&step, &l.mask, NULL), 0);
        same_plan(want, &step.plan);
        bauta_plan_free(want);
        bauta_mask_free(mask);
    }
    bt_decode_plan_release(&step);
}

static void a_plan_that_ran_out_of_memory_can_be_reused(void **state)
{
    (void)state;
    size_t rows = 1, keys = 100;
    bt_batch_mask mask = { .queries = { 1, &rows, 0 },
                           .keys = { 1, &keys, 0 },
                           .causal = true };
    bt_decode_plan step = { .plan = { .rows = 0 } };
    bauta_error err;
    faults_begin();
    faults_arm(0);
    assert_int_equal(bt_decode_plan_build(&step, &mask, &err), BAUTA_ERR_NOMEM);
    assert_true(faults_disarm());
    assert_non_null(strstr(err.message, "plan of a decoding step"));
    assert_int_equal(step.plan.tile_count, 0);
    assert_int_equal(bt_decode_plan_build(&step, &mask, &err), 0);
    faults_arm(0); // a step of the same size allocates nothing
    keys = 101;
    assert_int_equal(bt_decode_plan_build(&step, &mask, &err), 0);
    assert_false(faults_disarm());
    assert_int_equal(step.plan.pairs, 101);
    bt_decode_plan_release(&step);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_of_a_step_equals_the_plan_of_its_mask),
        cmocka_unit_test(a_plan_that_ran_out_of_memory_can_be_reused),
    };
    return cmocka_run_group_tests_name("decode_plan", tests, NULL, NULL);
}
