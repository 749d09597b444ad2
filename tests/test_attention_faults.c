/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention_faults.c - each allocation fails once. The call returns an
 * error, and the same objects then give the same bits as without the
 * failure. */
#include "allocation_faults.h"
#include "attention_problem.h"
#include "backend/cpu/kernels/kernels.h"

/* All objects of an attention call, the expected and the actual results. */
typedef struct fixture {
    int threads;
    bauta_mask *mask;
    bauta_context *context;
    bauta_plan *plan;
    bauta_kv_cache *cache;
    problem want, got;
} fixture;

typedef bauta_status step_fn(fixture *w, bauta_error *err);

/* ---- Steps --------------------------------------------------------------- */

static bauta_status step_context(fixture *w, bauta_error *err)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    options.threads = w->threads;
    return bauta_context_create(&w->context, &options, err);
}

static bauta_status step_plan(fixture *w, bauta_error *err)
{
    return bauta_plan_create(&w->plan, w->mask, 0, bauta_mask_queries(w->mask),
                             err);
}

static bauta_status step_cache(fixture *w, bauta_error *err)
{
    return bauta_kv_cache_create(&w->cache, &w->want.shape,
                                 bauta_mask_keys(w->mask), err);
}

static bauta_status step_forward(fixture *w, bauta_error *err)
{
    problem *p = &w->got;
    return bauta_attention_forward(w->context, w->plan, &p->shape, p->q, p->k,
                                   p->v, p->out, p->lse, err);
}

static bauta_status step_cached(fixture *w, bauta_error *err)
{
    problem *p = &w->got;
    return bauta_attention_cached(w->context, w->plan, &p->shape, p->q,
                                  w->cache, p->out, p->lse, err);
}

static bauta_status step_backward(fixture *w, bauta_error *err)
{
    problem *p = &w->got;
    return bauta_attention_backward(w->context, w->plan, &p->shape, p->q, p->k,
                                    p->v, w->want.out, w->want.lse, p->dout,
                                    p->dq, p->dk, p->dv, err);
}

/* ---- Fixtures ------------------------------------------------------------ */

/* Inputs and expected results, but no object of the library except the mask. */
static void fixture_init(fixture *w, int threads)
{
    test_random r = test_random_from(1);
    *w = (fixture){ .threads = threads };
    assert_int_equal(bauta_mask_window(&w->mask, 200, 230, 70, NULL), 0);
    w->want = problem_make(&r, w->mask, 4, 2, 16, 24);
    w->got = problem_copy(&w->want);
    bauta_context *context = test_context(NULL, 1);
    problem_run(&w->want, context, BT_TILE_ROWS);
    bauta_context_free(context);
}

static void fixture_fill_cache(fixture *w)
{
    problem *p = &w->want;
    assert_int_equal(bauta_kv_cache_append(w->cache, &p->shape,
                                           bauta_mask_keys(w->mask), p->k, p->v,
                                           NULL),
                     0);
}

static void fixture_poison(fixture *w)
{
    problem fresh = problem_copy(&w->want);
    problem_free(&w->got);
    w->got = fresh;
}

static void fixture_release(fixture *w)
{
    bauta_context_free(w->context);
    bauta_plan_free(w->plan);
    bauta_kv_cache_free(w->cache);
    bauta_mask_free(w->mask);
    problem_free(&w->want);
    problem_free(&w->got);
}

static void assert_nothing_written(const problem *p)
{
    const struct {
        const float *x;
        size_t count;
    } all[] = { { p->out, p->no },
                { p->lse, p->nl },
                { p->dq, p->nq },
                { p->dk, p->nk },
                { p->dv, p->nv } };
    for (size_t i = 0; i < BT_LEN(all); i++)
        for (size_t k = 0; k < all[i].count; k++)
            assert_true(isnan(all[i].x[k]));
}

/* Fail the allocations of a step one after the other until it makes no more;
 * returns how many there were. `made` is what the step creates, or NULL. */
static size_t survive(fixture *w, step_fn *step, void *made)
{
    for (size_t k = 0;; k++) {
        bauta_error err = { BAUTA_OK, "" };
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status = step(w, &err);
        if (!faults_disarm()) {
            assert_int_equal(status, BAUTA_OK);
            return k;
        }
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_int_equal(err.status, BAUTA_ERR_NOMEM);
        assert_non_null(strstr(err.message, "out of memory"));
        // A workspace that could not grow was freed, so fewer blocks may live.
        assert_true(faults_live() <= live);
        if (made) {
            void *object;
            memcpy(&object, made, sizeof(object));
            assert_null(object);
            assert_int_equal(faults_live(), live);
        }
        assert_nothing_written(&w->got);
    }
}

/* ---- Tests --------------------------------------------------------------- */

static void objects_survive_each_failing_allocation(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        fixture w;
        faults_begin();
        fixture_init(&w, threads);
        // The context, its stream and its tape, and a pool of threads.
        assert_int_equal(survive(&w, step_context, &w.context),
                         threads > 1 ? 4 : 3);
        assert_true(survive(&w, step_plan, &w.plan) > 5);
        assert_int_equal(survive(&w, step_cache, &w.cache), 2);
        fixture_fill_cache(&w);
        assert_int_equal(step_forward(&w, NULL), 0);
        assert_int_equal(step_backward(&w, NULL), 0);
        same_problem(&w.want, &w.got);
        assert_int_equal(step_cached(&w, NULL), 0);
        same_problem(&w.want, &w.got);
        fixture_release(&w);
        assert_int_equal(faults_end(), 0);
    }
}

/* Create all objects, without failures. */
static void fixture_create_objects(fixture *w)
{
    assert_int_equal(step_context(w, NULL), 0);
    assert_int_equal(step_plan(w, NULL), 0);
    assert_int_equal(step_cache(w, NULL), 0);
    fixture_fill_cache(w);
}

static void calls_survive_each_failing_allocation(void **state)
{
    (void)state;
    static step_fn *const calls[] = { step_forward, step_cached,
                                      step_backward };
    for (int threads = 1; threads <= 2; threads++)
        for (size_t i = 0; i < BT_LEN(calls); i++) {
            fixture w;
            faults_begin();
            fixture_init(&w, threads);
            fixture_create_objects(&w);
            assert_int_equal(survive(&w, calls[i], NULL), 1);
            // The context that ran out of memory can still be used by others.
            assert_int_equal(step_forward(&w, NULL), 0);
            assert_int_equal(step_backward(&w, NULL), 0);
            same_problem(&w.want, &w.got);
            fixture_poison(&w);
            assert_int_equal(step_backward(&w, NULL), 0);
            assert_int_equal(step_cached(&w, NULL), 0);
            same_problem(&w.want, &w.got);
            fixture_release(&w);
            assert_int_equal(faults_end(), 0);
        }
}

/* A workspace that is large enough for small calls, and one call too large for
 * it. */
static void a_workspace_that_failed_to_grow_can_be_reused(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        fixture w;
        bauta_mask *mask = NULL;
        test_random r = test_random_from(2);
        faults_begin();
        fixture_init(&w, threads);
        fixture_create_objects(&w);
        assert_int_equal(bauta_mask_causal(&mask, 9, 9, NULL), 0);
        problem small = problem_make(&r, mask, 1, 1, 4, 4);
        problem_run(&small, w.context, BT_TILE_ROWS);
        faults_arm(0);
        assert_int_equal(step_backward(&w, NULL), BAUTA_ERR_NOMEM);
        assert_true(faults_disarm());
        assert_nothing_written(&w.got);
        problem again = problem_copy(&small);
        problem_run(&again, w.context, BT_TILE_ROWS);
        same_problem(&small, &again);
        assert_int_equal(step_forward(&w, NULL), 0);
        assert_int_equal(step_backward(&w, NULL), 0);
        same_problem(&w.want, &w.got);
        problem_free(&small);
        problem_free(&again);
        bauta_mask_free(mask);
        fixture_release(&w);
        assert_int_equal(faults_end(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_survive_each_failing_allocation),
        cmocka_unit_test(calls_survive_each_failing_allocation),
        cmocka_unit_test(a_workspace_that_failed_to_grow_can_be_reused),
    };
    return cmocka_run_group_tests_name("attention_faults", tests, NULL, NULL);
}
