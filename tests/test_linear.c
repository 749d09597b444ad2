/* SPDX-License-Identifier: Apache-2.0 */
/* test_linear.c - the linear layer on the tape: values and gradients against
 * double precision, and the same bits for any threads, ISA and layout. */
#include "allocation_faults.h"
#include "autograd/ops.h"
#include "base/error.h"
#include "parameters.h"

static test_random randoms;

typedef struct shape {
    size_t rows, inputs, outputs;
    bool turned, bias;
} shape;

/* A layer, the gradient of its output, and its results. */
typedef struct layer {
    shape s;
    bt_tensor x, w, bias;
    float *dy;      /* (rows, outputs) */
    const float *y; /* the tape's */
} layer;

static layer layer_create(const shape *s)
{
    layer l = { .s = *s };
    l.x = parameter_create(&randoms, s->rows, s->inputs);
    l.w = parameter_create(&randoms, s->turned ? s->inputs : s->outputs,
                           s->turned ? s->outputs : s->inputs);
    l.bias = parameter_create(&randoms, 1, s->outputs);
    l.dy = malloc(s->rows * s->outputs * sizeof(float) + 1);
    assert_non_null(l.dy);
    floats_fill(&randoms, l.dy, s->rows * s->outputs);
    return l;
}

static layer layer_copy(const layer *from)
{
    layer l = *from;
    l.x = parameter_copy(&from->x);
    l.w = parameter_copy(&from->w);
    l.bias = parameter_copy(&from->bias);
    l.dy = malloc(from->s.rows * from->s.outputs * sizeof(float) + 1);
    assert_non_null(l.dy);
    memcpy(l.dy, from->dy, from->s.rows * from->s.outputs * sizeof(float));
    return l;
}

static void layer_free(layer *l)
{
    parameter_free(&l->x);
    parameter_free(&l->w);
    parameter_free(&l->bias);
    free(l->dy);
}

/* Forward and backward on a rewound tape. */
static bauta_status layer_run(layer *l, bt_tape *tape)
{
    bool add;
    bt_tensor *y = bt_op_linear(tape, &l->x, &l->w, l->s.turned,
                                l->s.bias ? &l->bias : NULL);
    if (!y)
        return bt_tape_status(tape, NULL);
    float *grad = tape_gradient(tape, y, &add);
    if (!grad)
        return bt_tape_status(tape, NULL);
    assert_false(add);
    memcpy(grad, l->dy, tensor_count(y) * sizeof(float));
    l->y = tensor_data(y);
    return bt_tape_backward(tape, NULL);
}

static void same(const char *what, const float *want, const float *got,
                 size_t count)
{
    size_t at = floats_differ(want, got, count);
    if (at != count)
        fail_msg("%s[%zu] is %a, want %a", what, at, (double)got[at],
                 (double)want[at]);
}

static void same_layer(const layer *want, const layer *got)
{
    same("y", want->y, got->y, want->s.rows * want->s.outputs);
    same("dx", tensor_gradient(&want->x), tensor_gradient(&got->x),
         tensor_count(&want->x));
    same("dW", tensor_gradient(&want->w), tensor_gradient(&got->w),
         tensor_count(&want->w));
    same("dbias", tensor_gradient(&want->bias), tensor_gradient(&got->bias),
         tensor_count(&want->bias));
}

/* ---- Against double precision -------------------------------------------- */

/* The layer's numbers in double, and their magnitudes: a sum over these gives
 * the size of the terms, which bounds the rounding errors. */
typedef struct exact {
    shape s;
    double *x, *w, *bias, *dy;
} exact;

static double *widen(const float *from, size_t count, bool without_sign)
{
    double *to = malloc(count * sizeof(double) + 1);
    assert_non_null(to);
    for (size_t i = 0; i < count; i++)
        to[i] = without_sign ? fabs((double)from[i]) : (double)from[i];
    return to;
}

static exact exact_create(const layer *l, bool without_sign)
{
    exact e = { .s = l->s };
    e.x = widen(tensor_data(&l->x), tensor_count(&l->x), without_sign);
    e.w = widen(tensor_data(&l->w), tensor_count(&l->w), without_sign);
    e.bias = widen(tensor_data(&l->bias), tensor_count(&l->bias), without_sign);
    e.dy = widen(l->dy, l->s.rows * l->s.outputs, without_sign);
    return e;
}

static void exact_free(exact *e)
{
    free(e->x);
    free(e->w);
    free(e->bias);
    free(e->dy);
}

static double exact_y(const exact *e, size_t row, size_t output)
{
    const shape *s = &e->s;
    double y = s->bias ? e->bias[output] : 0.0;
    for (size_t i = 0; i < s->inputs; i++)
        y += e->x[row * s->inputs + i] * (s->turned
                                              ? e->w[i * s->outputs + output]
                                              : e->w[output * s->inputs + i]);
    return y;
}

/* The sum of dy * y; its gradients are those that the layer computes. */
static double exact_objective(const exact *e)
{
    double sum = 0.0;
    for (size_t r = 0; r < e->s.rows; r++)
        for (size_t o = 0; o < e->s.outputs; o++)
            sum += e->dy[r * e->s.outputs + o] * exact_y(e, r, o);
    return sum;
}

/* Central difference. The objective is linear in every single number, so a
 * step of 1 is as good as a small one and loses no digits. */
static double exact_slope(const exact *e, double *number)
{
    double kept = *number;
    *number = kept + 1.0;
    double above = exact_objective(e);
    *number = kept - 1.0;
    double below = exact_objective(e);
    *number = kept;
    return (above - below) / 2.0;
}

/* A gradient is a chain of `steps` roundings from its `start` value. The
 * difference quotient itself is off by the rounding of the sum in double, once
 * a term. */
static void check_slopes(const char *what, const exact *e, const exact *size,
                         double *numbers, double *sizes, const float *start,
                         const float *got, size_t count, size_t steps)
{
    double terms = (double)(e->s.rows * e->s.outputs * (e->s.inputs + 3));
    double slack = terms * 0x1p-52 * exact_objective(size);
    for (size_t i = 0; i < count; i++) {
        double want = (double)start[i] + exact_slope(e, numbers + i);
        double bound = gamma_n(steps) *
                       (fabs((double)start[i]) + exact_slope(size, sizes + i));
        if (!(fabs((double)got[i] - want) <= bound + slack))
            fail_msg("%s[%zu] is %.9g, want %.9g within %.3g", what, i,
                     (double)got[i], want, bound);
    }
}

/* y rounds once a step of the chain, and once for the bias. */
static void check_values(const layer *l, const exact *e, const exact *size)
{
    for (size_t r = 0; r < l->s.rows; r++)
        for (size_t o = 0; o < l->s.outputs; o++) {
            double error =
                fabs((double)l->y[r * l->s.outputs + o] - exact_y(e, r, o));
            double bound = gamma_n(l->s.inputs + 1) * exact_y(size, r, o);
            assert_true(error <= bound);
        }
}

static void check_exactly(const shape *s)
{
    layer l = layer_create(s), start = layer_copy(&l);
    exact e = exact_create(&l, false), size = exact_create(&l, true);
    bt_tape *tape = test_tape(NULL, 2, true);
    assert_int_equal(layer_run(&l, tape), 0);
    check_values(&l, &e, &size);
    check_slopes("dx", &e, &size, e.x, size.x, tensor_gradient(&start.x),
                 tensor_gradient(&l.x), tensor_count(&l.x), s->outputs);
    check_slopes("dW", &e, &size, e.w, size.w, tensor_gradient(&start.w),
                 tensor_gradient(&l.w), tensor_count(&l.w), s->rows);
    check_slopes("dbias", &e, &size, e.bias, size.bias,
                 tensor_gradient(&start.bias), tensor_gradient(&l.bias),
                 tensor_count(&l.bias), s->rows);
    test_tape_free(tape);
    exact_free(&e);
    exact_free(&size);
    layer_free(&l);
    layer_free(&start);
}

static void gradients_are_the_slopes_of_the_output(void **state)
{
    (void)state;
    static const struct {
        size_t rows, inputs, outputs;
    } sizes[] = {
        { 1, 1, 1 }, { 1, 9, 5 }, { 7, 1, 3 }, { 6, 5, 1 }, { 19, 8, 7 }
    };
    for (size_t i = 0; i < BT_LEN(sizes); i++)
        for (unsigned bits = 0; bits < 4; bits++) {
            shape s = { sizes[i].rows, sizes[i].inputs, sizes[i].outputs,
                        bits & 1, bits >> 1 & 1 };
            check_exactly(&s);
        }
}

/* ---- The same bits ------------------------------------------------------- */

static void threads_and_instruction_sets_change_no_bit(void **state)
{
    (void)state;
    const char *names[8];
    size_t count = bt_kernels_names(names, BT_LEN(names));
    for (unsigned bits = 0; bits < 4; bits++) {
        shape s = { 301, 70, 530, bits & 1, bits >> 1 & 1 };
        layer start = layer_create(&s), want = layer_copy(&start);
        bt_tape *reference = test_tape("c", 1, true);
        assert_int_equal(layer_run(&want, reference), 0);
        for (size_t i = 0; i < count; i++)
            for (int threads = 1; threads <= 4; threads *= 2) {
                layer got = layer_copy(&start);
                bt_tape *tape = test_tape(names[i], threads, true);
                assert_int_equal(layer_run(&got, tape), 0);
                same_layer(&want, &got);
                test_tape_free(tape);
                layer_free(&got);
            }
        test_tape_free(reference);
        layer_free(&want);
        layer_free(&start);
    }
}

/* Rows first to first + count - 1 of a layer, with its parameters. */
static layer layer_part(const layer *l, size_t first, size_t count)
{
    layer part = *l;
    part.s.rows = count;
    part.x = rows_part(&l->x, first, count);
    part.dy += first * l->s.outputs;
    return part;
}

static void a_batch_in_parts_gives_the_same_bits(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        shape s = { 90, 33, 47, turned, true };
        layer whole = layer_create(&s), parts = layer_copy(&whole);
        float *y = malloc(90 * 47 * sizeof(float));
        bt_tape *tape = test_tape(NULL, 2, true);
        bt_tape *other = test_tape(NULL, 2, true);
        assert_non_null(y);
        assert_int_equal(layer_run(&whole, tape), 0);
        for (size_t row = 0; row < 90; row += 30) {
            layer part = layer_part(&parts, row, 30);
            bt_tape_rewind(other, true);
            assert_int_equal(layer_run(&part, other), 0);
            memcpy(y + row * 47, part.y, 30 * 47 * sizeof(float));
        }
        parts.y = y;
        same_layer(&whole, &parts);
        free(y);
        test_tape_free(tape);
        test_tape_free(other);
        layer_free(&whole);
        layer_free(&parts);
    }
}

/* Columns of a larger W, as when one matrix holds those for q, k and v. */
static void a_part_of_a_larger_matrix_gives_the_same_bits(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        shape s = { 20, 11, 13, turned, true };
        layer want = layer_create(&s), got = layer_copy(&want);
        bt_tape *tape = test_tape(NULL, 2, true);
        bt_tape *other = test_tape(NULL, 2, true);
        bt_tensor large = parameter_create(&randoms, want.w.rows, 40);
        bt_tensor before = parameter_copy(&large);
        matrix_put(&large, 9, &want.w);
        matrix_put(&before, 9, &want.w);
        assert_int_equal(layer_run(&want, tape), 0);
        matrix_put(&before, 9, &want.w); // with the gradient that must come
        parameter_free(&got.w);
        got.w = matrix_part(&large, 9, want.w.columns);
        assert_int_equal(layer_run(&got, other), 0);
        same("y", want.y, got.y, s.rows * s.outputs);
        same("dx", tensor_gradient(&want.x), tensor_gradient(&got.x),
             tensor_count(&want.x));
        same("dW", tensor_gradient(&before), tensor_gradient(&large),
             tensor_count(&large));
        got.w = (bt_tensor){ 0 };
        test_tape_free(tape);
        test_tape_free(other);
        parameter_free(&large);
        parameter_free(&before);
        layer_free(&want);
        layer_free(&got);
    }
}

/* ---- Tensors without gradients ------------------------------------------- */

/* y = x W^T + x and z = y W^T: x and W get the gradients of both uses. */
static void a_tensor_that_is_used_twice_gets_both_gradients(void **state)
{
    (void)state;
    enum { ROWS = 3, WIDTH = 4 };
    bt_tensor x = input_create(&randoms, ROWS, WIDTH);
    bt_tensor w = parameter_create(&randoms, WIDTH, WIDTH);
    bt_tensor before = parameter_copy(&w);
    bt_tape *tape = test_tape(NULL, 1, true);
    bt_tensor *y = bt_op_add(tape, bt_op_linear(tape, &x, &w, false, NULL), &x);
    bt_tensor *z = bt_op_linear(tape, y, &w, false, NULL);
    bool add;
    float *dz = tape_gradient(tape, z, &add);
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        dz[i] = 1.0f;
    assert_int_equal(bt_tape_backward(tape, NULL), 0);
    assert_null(y->grad); // that of an output is discarded
    // dW = dz^T y + dy^T x and dx = dy + dy W, where dy = dz W: each row of dy
    // is the sum of the rows of W.
    double dy[WIDTH] = { 0 };
    for (size_t o = 0; o < WIDTH; o++)
        for (size_t i = 0; i < WIDTH; i++)
            dy[i] += (double)tensor_data(&w)[o * WIDTH + i];
    for (size_t o = 0; o < WIDTH; o++)
        for (size_t i = 0; i < WIDTH; i++) {
            double dw = (double)tensor_gradient(&before)[o * WIDTH + i];
            for (size_t r = 0; r < ROWS; r++)
                dw += (double)tensor_data(y)[r * WIDTH + i] +
                      dy[o] * (double)tensor_data(&x)[r * WIDTH + i];
            assert_true(fabs((double)tensor_gradient(&w)[o * WIDTH + i] - dw) <
                        1e-5);
        }
    for (size_t r = 0; r < ROWS; r++)
        for (size_t i = 0; i < WIDTH; i++) {
            double dx = dy[i];
            for (size_t o = 0; o < WIDTH; o++)
                dx += dy[o] * (double)tensor_data(&w)[o * WIDTH + i];
            assert_true(fabs((double)tensor_gradient(&x)[r * WIDTH + i] - dx) <
                        1e-5);
        }
    test_tape_free(tape);
    input_free(&x);
    parameter_free(&w);
    parameter_free(&before);
}

/* Outputs of 1 MiB each, and gradients of twice that for the residuals. */
static void gradients_of_outputs_share_memory(void **state)
{
    (void)state;
    enum { ROWS = 4096, WIDTH = 64, LAYERS = 40, BYTES = ROWS * WIDTH * 4 };
    bt_tensor x = input_create(&randoms, ROWS, WIDTH);
    bt_tensor w = parameter_create(&randoms, WIDTH, WIDTH);
    bt_tape *tape = test_tape(NULL, 1, true);
    bt_tensor *y = &x;
    for (int i = 0; i < LAYERS; i++)
        y = bt_op_add(tape, y, bt_op_linear(tape, y, &w, false, NULL));
    size_t outputs = bt_tape_bytes(tape);
    assert_true(outputs >= 2 * LAYERS * (size_t)BYTES);
    bool add;
    float *dy = tape_gradient(tape, y, &add);
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        dy[i] = 1.0f;
    assert_int_equal(bt_tape_backward(tape, NULL), 0);
    assert_true(bt_tape_bytes(tape) - outputs <= 16 * (size_t)BYTES);
    test_tape_free(tape);
    input_free(&x);
    parameter_free(&w);
}

/* A large tensor after any number of small ones, as in batches of any size. */
static void batches_of_all_sizes_share_the_memory_of_the_largest(void **state)
{
    (void)state;
    enum { SMALL = 15 << 20, LARGE = 60 << 20, MOST = 12 };
    bt_tape *tape = test_tape(NULL, 1, false);
    for (size_t round = 0; round < 4 * MOST; round++) {
        bt_tape_rewind(tape, false);
        for (size_t i = 0; i < round * 5 % MOST; i++)
            assert_non_null(bt_tape_scratch(tape, BAUTA_UINT8, SMALL, 1));
        assert_non_null(bt_tape_scratch(tape, BAUTA_UINT8, LARGE, 1));
    }
    assert_true(bt_tape_bytes(tape) <= (MOST + 5) * (size_t)(16 << 20));
    test_tape_free(tape);
}

static void inputs_without_gradients_get_none(void **state)
{
    (void)state;
    shape s = { 5, 4, 3, false, true };
    layer l = layer_create(&s), start = layer_copy(&l);
    bt_tensor *all[] = { &l.x, &l.w, &l.bias };
    bt_tape *tape = test_tape(NULL, 1, true);
    for (size_t i = 0; i < BT_LEN(all); i++)
        all[i]->requires_grad = i == 1;
    assert_int_equal(layer_run(&l, tape), 0);
    same("dx", tensor_gradient(&start.x), tensor_gradient(&l.x),
         tensor_count(&l.x));
    same("dbias", tensor_gradient(&start.bias), tensor_gradient(&l.bias),
         tensor_count(&l.bias));
    assert_int_not_equal(floats_differ(tensor_gradient(&start.w),
                                       tensor_gradient(&l.w),
                                       tensor_count(&l.w)),
                         tensor_count(&l.w));
    l.w.requires_grad = false;
    bt_tape_rewind(tape, true);
    assert_false(bt_op_linear(tape, &l.x, &l.w, false, NULL)->requires_grad);
    l.w.requires_grad = true;
    bt_tape_rewind(tape, false);
    assert_false(bt_op_linear(tape, &l.x, &l.w, false, NULL)->requires_grad);
    test_tape_free(tape);
    layer_free(&l);
    layer_free(&start);
}

static void an_unused_output_moves_no_gradient(void **state)
{
    (void)state;
    shape s = { 5, 4, 3, false, true };
    layer l = layer_create(&s), start = layer_copy(&l);
    bt_tape *tape = test_tape(NULL, 1, true);
    l.y = start.y = tensor_data(bt_op_linear(tape, &l.x, &l.w, false, &l.bias));
    assert_int_equal(bt_tape_backward(tape, NULL), 0);
    same_layer(&start, &l);
    test_tape_free(tape);
    layer_free(&l);
    layer_free(&start);
}

static void no_rows_give_no_gradient(void **state)
{
    (void)state;
    shape s = { 0, 4, 3, false, true };
    layer l = layer_create(&s), start = layer_copy(&l);
    bt_tape *tape = test_tape(NULL, 2, true);
    assert_int_equal(layer_run(&l, tape), 0);
    start.y = l.y;
    same_layer(&start, &l);
    test_tape_free(tape);
    layer_free(&l);
    layer_free(&start);
}

/* ---- Errors -------------------------------------------------------------- */

static void mismatched_shapes_are_an_error(void **state)
{
    (void)state;
    bt_tensor x = input_create(&randoms, 2, 3);
    bt_tensor w = input_create(&randoms, 4, 3);
    bt_tape *tape = test_tape(NULL, 1, true);
    assert_null(bt_op_linear(tape, &x, &w, true, NULL));
    assert_tape_fails(tape, "linear: x has 3 columns, W takes 4");
    assert_null(bt_op_linear(tape, &x, &w, false, NULL)); // it sticks
    assert_null(bt_op_linear(tape, NULL, &w, false, NULL));
    bt_tape_rewind(tape, true);
    assert_null(bt_op_linear(tape, &x, &w, false, &w));
    assert_tape_fails(tape, "linear: the bias is (4, 3), W has 4 outputs");
    bt_tape_rewind(tape, true);
    x.rows = 1;
    x.stride = 6;
    assert_null(bt_op_linear(tape, &x, &w, false, NULL));
    assert_tape_fails(tape, "linear: x is a part of a larger matrix, with rows "
                            "6 apart");
    test_tape_free(tape);
    input_free(&x);
    input_free(&w);
}

static void
each_allocation_fails_once_and_a_second_step_makes_none(void **state)
{
    (void)state;
    shape s = { 40, 30, 50, false, true };
    layer start = layer_create(&s), want = layer_copy(&start);
    bt_tape *reference = test_tape(NULL, 1, true), *tape;
    assert_int_equal(layer_run(&want, reference), 0);
    faults_begin();
    tape = test_tape(NULL, 2, true);
    bool failed = true;
    for (size_t k = 0; failed; k++) {
        layer got = layer_copy(&start);
        bt_tape_rewind(tape, true);
        faults_arm(k);
        bauta_status status = layer_run(&got, tape);
        failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        if (!failed)
            same_layer(&want, &got);
        layer_free(&got);
        if (failed) { // and with a tape that holds nothing
            test_tape_free(tape);
            tape = test_tape(NULL, 2, true);
        }
    }
    layer again = layer_copy(&start);
    bt_tape_rewind(tape, true);
    faults_arm(0);
    assert_int_equal(layer_run(&again, tape), 0);
    assert_false(faults_disarm());
    same_layer(&want, &again);
    layer_free(&again);
    test_tape_free(tape);
    assert_int_equal(faults_end(), 0);
    test_tape_free(reference);
    layer_free(&want);
    layer_free(&start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_the_slopes_of_the_output),
        cmocka_unit_test(threads_and_instruction_sets_change_no_bit),
        cmocka_unit_test(a_batch_in_parts_gives_the_same_bits),
        cmocka_unit_test(a_part_of_a_larger_matrix_gives_the_same_bits),
        cmocka_unit_test(a_tensor_that_is_used_twice_gets_both_gradients),
        cmocka_unit_test(gradients_of_outputs_share_memory),
        cmocka_unit_test(batches_of_all_sizes_share_the_memory_of_the_largest),
        cmocka_unit_test(inputs_without_gradients_get_none),
        cmocka_unit_test(an_unused_output_moves_no_gradient),
        cmocka_unit_test(no_rows_give_no_gradient),
        cmocka_unit_test(mismatched_shapes_are_an_error),
        cmocka_unit_test(
            each_allocation_fails_once_and_a_second_step_makes_none),
    };
    randoms = test_random_from(test_seed());
    return cmocka_run_group_tests_name("linear", tests, NULL, NULL);
}
