/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule.c - the learning rate of every step against its formula. */
#include "testing.h"
#include "train/optimizer.h"

#include <math.h>

static bauta_train_options options(bauta_schedule schedule)
{
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    o.lr_scheduler_type = schedule;
    o.max_steps = 1100;
    o.warmup_steps = 100;
    o.learning_rate = 1e-3;
    o.min_learning_rate = 1e-4;
    return o;
}

/* Within two units in the last place of the largest rate: a handful of
 * roundings, each of half a unit of something not larger. */
static void rate_is(const bauta_train_options *o, size_t step, double want)
{
    double got = bt_learning_rate(o, step);
    if (!(fabs(got - want) <= 4 * 0x1p-53 * o->learning_rate))
        fail_msg("step %zu: %.17g, want %.17g", step, got, want);
}

static void warmup_grows_in_equal_parts(void **state)
{
    (void)state;
    for (int s = BAUTA_SCHEDULE_CONSTANT; s <= BAUTA_SCHEDULE_INVERSE_SQRT;
         s++) {
        bauta_train_options o = options((bauta_schedule)s);
        for (size_t step = 1; step <= 100; step++)
            rate_is(&o, step, 1e-3 * (double)step / 100);
        assert_true(bt_learning_rate(&o, 100) == o.learning_rate);
        assert_true(bt_learning_rate(&o, 101) <= o.learning_rate);
    }
}

static void schedules_follow_their_formulas(void **state)
{
    (void)state;
    const double pi = acos(-1.0);
    bauta_train_options constant = options(BAUTA_SCHEDULE_CONSTANT);
    bauta_train_options linear = options(BAUTA_SCHEDULE_LINEAR);
    bauta_train_options cosine = options(BAUTA_SCHEDULE_COSINE);
    bauta_train_options root = options(BAUTA_SCHEDULE_INVERSE_SQRT);
    for (size_t step = 101; step <= 2000; step++) {
        double x = step < 1100 ? (double)(step - 100) / 1000 : 1.0;
        double r = 1e-3 * sqrt(100.0 / (double)step);
        rate_is(&constant, step, 1e-3);
        rate_is(&linear, step, 1e-4 + 9e-4 * (1 - x));
        rate_is(&cosine, step, 1e-4 + 9e-4 * 0.5 * (1 + cos(pi * x)));
        rate_is(&root, step, r > 1e-4 ? r : 1e-4);
    }
    rate_is(&root, 1000000, 1e-4);
}

static void rates_never_rise_after_warmup(void **state)
{
    (void)state;
    for (int s = BAUTA_SCHEDULE_CONSTANT; s <= BAUTA_SCHEDULE_INVERSE_SQRT;
         s++) {
        bauta_train_options o = options((bauta_schedule)s);
        double before = bt_learning_rate(&o, 100);
        for (size_t step = 101; step <= 1300; step++) {
            double rate = bt_learning_rate(&o, step);
            assert_true(rate <= before && rate >= o.min_learning_rate);
            before = rate;
        }
    }
}

static void unusual_options_have_finite_rates(void **state)
{
    (void)state;
    static const struct {
        size_t steps, warmup;
    } odd[] = { { 0, 0 }, { 1, 0 }, { 10, 10 }, { 5, 10 }, { 0, 5 } };
    for (int s = BAUTA_SCHEDULE_CONSTANT; s <= BAUTA_SCHEDULE_INVERSE_SQRT; s++)
        for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
            bauta_train_options o = options((bauta_schedule)s);
            o.max_steps = odd[i].steps;
            o.warmup_steps = odd[i].warmup;
            for (size_t step = 1; step < 30; step++) {
                double rate = bt_learning_rate(&o, step);
                assert_true(rate > 0 && rate <= o.learning_rate);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warmup_grows_in_equal_parts),
        cmocka_unit_test(schedules_follow_their_formulas),
        cmocka_unit_test(rates_never_rise_after_warmup),
        cmocka_unit_test(unusual_options_have_finite_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
