/* SPDX-License-Identifier: Apache-2.0 */
/* test_lab_rnn.c - the recurrent network of bauta lab rnn: its gradients
 * against PyTorch's and against finite differences. */
#include "../lab/lab_rnn_net.h"
#include "base/error.h"
#include "data.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const rnn_size size = { 5, 3, 4, 6 };

static double weight_of(size_t i)
{
    return 0.5 * sin(0.7 * (double)i + 0.1);
}

/* tools/make-rnn-fixture.py wrote the numbers. Both compute in double. */
static void gradients_are_those_of_pytorch(void **state)
{
    (void)state;
    static const uint32_t source[] = { 1, 4, 2, 0, 3 };
    static const uint32_t target[] = { 3, 0, 2, 4 };
    const rnn_pair pair = { source, target, 5, 4, 1 };
    rnn_net net;
    double want;
    char path[512];
    FILE *file =
        fopen(test_tree_path(path, sizeof(path), "rnn_gradients.txt"), "r");
    assert_non_null(file);
    assert_true(rnn_init(&net, &size));
    for (size_t i = 0; i < net.at.count; i++)
        net.weights[i] = weight_of(i);
    double loss = rnn_loss(&net, &pair, 1.0, NULL, NULL);
    assert_int_equal(fscanf(file, "%lf", &want), 1);
    assert_true(fabs(loss - want) < 1e-12 * fabs(want));
    for (size_t i = 0; i < net.at.count; i++) {
        assert_int_equal(fscanf(file, "%lf", &want), 1);
        if (fabs(net.gradients[i] - want) > 1e-12)
            fail_msg("gradient %zu: want %.17g, got %.17g", i, want,
                     net.gradients[i]);
    }
    assert_int_equal(fscanf(file, "%lf", &want), EOF);
    fclose(file);
    rnn_release(&net);
}

/* A central difference of step d has an error of the order d^2 and rounding of
 * the order 1e-16 / d. */
static void gradients_are_those_of_finite_differences(void **state)
{
    (void)state;
    test_random r = test_random_from(test_seed());
    for (size_t k = 0; k < 20; k++) {
        uint32_t source[6], target[6];
        rnn_pair pair = { source, target, 1 + test_below(&r, 6),
                          1 + test_below(&r, 6), (uint32_t)test_below(&r, 5) };
        const double d = 1e-5, share = 0.25;
        rnn_net net;
        assert_true(rnn_init(&net, &size));
        for (size_t i = 0; i < 6; i++) {
            source[i] = (uint32_t)test_below(&r, 5);
            target[i] = (uint32_t)test_below(&r, 5);
        }
        for (size_t i = 0; i < net.at.count; i++)
            net.weights[i] = (double)test_float(&r);
        rnn_loss(&net, &pair, share, NULL, NULL);
        for (size_t i = 0; i < net.at.count; i++) {
            double weight = net.weights[i];
            net.weights[i] = weight + d;
            double above = rnn_loss(&net, &pair, 0.0, NULL, NULL);
            net.weights[i] = weight - d;
            double below = rnn_loss(&net, &pair, 0.0, NULL, NULL);
            net.weights[i] = weight;
            double want = share * (above - below) / (2.0 * d);
            if (fabs(want - net.gradients[i]) > 1e-7 * (1.0 + fabs(want)))
                fail_msg("pair %zu, gradient %zu: want %g, got %g", k, i, want,
                         net.gradients[i]);
        }
        rnn_release(&net);
    }
}

static void dependent_steps_are_counted(void **state)
{
    (void)state;
    static const uint32_t tokens[6] = { 0 };
    const rnn_pair pair = { tokens, tokens, 6, 4, 0 };
    rnn_net net;
    double attention[4 * 6];
    size_t right = 0;
    assert_true(rnn_init(&net, &size));
    rnn_loss(&net, &pair, 1.0, attention, &right);
    assert_int_equal(net.dependent, 2 * (6 + 4));
    for (size_t t = 0; t < 4; t++) { // zero weights attend evenly
        for (size_t j = 0; j < 6; j++)
            assert_true(fabs(attention[t * 6 + j] - 1.0 / 6.0) < 1e-15);
    }
    assert_int_equal(right, 4); // the first of equal ones
    rnn_release(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_pytorch),
        cmocka_unit_test(gradients_are_those_of_finite_differences),
        cmocka_unit_test(dependent_steps_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
