/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops.c - ops on the tape: against their formulas in double, the formulas
 * against finite differences, and bit for bit across threads, instruction sets
 * and batches. */
#include "allocation_faults.h"
#include "base/error.h"
#include "guard_page.h"
#include "host_tensors.h"
#include "op_cases.h"

static test_random randoms;
static const double u = 0x1p-24;

/* A case with its data: the inputs and the gradient of the output. */
typedef struct problem {
    const op_case *c;
    op_data d;
    float *in[OP_INPUTS], *dy;
} problem;

/* The results. grad[i] starts as the gradient before the call. */
typedef struct result {
    float *y, *grad[OP_INPUTS];
} result;

static void *take(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    assert_non_null(memory);
    return memory;
}

/* How many tensors the case has; `same` counts one. */
static size_t tensors(const op_case *c)
{
    return c->same ? 1 : c->inputs;
}

static size_t in_size(const problem *p, size_t i)
{
    return op_rows(p->c, &p->d, i) * op_columns(p->c, &p->d, i);
}

static size_t y_size(const problem *p)
{
    return p->d.rows * p->d.columns;
}

/* In [-4, 4), but not so close to 0 that a difference spans the corner of
 * ReLU. */
static float number(void)
{
    float x = 4 * test_float(&randoms);
    return fabsf(x) < 0.01f ? 0.5f : x;
}

static problem problem_create(const op_case *c, size_t rows, size_t columns)
{
    problem p = { .c = c, .d = { .rows = rows, .columns = columns } };
    p.d.ids = take(rows, sizeof(*p.d.ids));
    p.d.positions = take(rows, sizeof(*p.d.positions));
    p.d.tokens = take(rows, sizeof(*p.d.tokens));
    p.d.frequencies = take(columns, sizeof(float));
    for (size_t i = 0; i < rows; i++) {
        p.d.ids[i] = (uint32_t)test_below(&randoms, OP_IDS);
        p.d.positions[i] = (uint32_t)test_below(&randoms, 1 << 29);
        p.d.tokens[i] = (uint64_t)test_u32(&randoms) << 32 | i;
    }
    for (size_t j = 0; j < columns; j++)
        p.d.frequencies[j] = (float)pow(10000, -(double)j / (double)columns);
    for (size_t i = 0; i < tensors(c); i++) {
        p.in[i] = take(in_size(&p, i), sizeof(float));
        for (size_t k = 0; k < in_size(&p, i); k++)
            p.in[i][k] = number();
    }
    p.dy = take(y_size(&p), sizeof(float));
    floats_fill(&randoms, p.dy, y_size(&p));
    return p;
}

static void problem_free(problem *p)
{
    free(p->d.ids);
    free(p->d.positions);
    free(p->d.tokens);
    free(p->d.frequencies);
    for (size_t i = 0; i < OP_INPUTS; i++)
        free(p->in[i]);
    free(p->dy);
}

static result result_create(const problem *p)
{
    result r = { .y = take(y_size(p), sizeof(float)) };
    for (size_t i = 0; i < tensors(p->c); i++)
        r.grad[i] = take(in_size(p, i), sizeof(float));
    return r;
}

static void result_free(result *r)
{
    free(r->y);
    for (size_t i = 0; i < OP_INPUTS; i++)
        free(r->grad[i]);
}

/* The inputs as tensors over memory of a problem and of a result. */
typedef struct inputs {
    bt_tensor in[OP_INPUTS], *pointers[OP_INPUTS];
    bt_buffer data[OP_INPUTS], grads[OP_INPUTS];
} inputs;

/* With `add` their gradients are r's, else they have none yet. */
static void inputs_init(inputs *x, const problem *p, const result *r, bool add)
{
    *x = (inputs){ 0 };
    for (size_t i = 0; i < p->c->inputs; i++) {
        size_t k = p->c->same ? 0 : i, bytes = in_size(p, k) * sizeof(float);
        x->data[k] = bt_buffer_of_host(p->in[k], bytes);
        x->in[k] =
            bt_tensor_of(&x->data[k], BAUTA_FLOAT32, op_rows(p->c, &p->d, k),
                         op_columns(p->c, &p->d, k));
        if (add) {
            x->grads[k] = bt_buffer_of_host(r->grad[k], bytes);
            x->in[k].grad = &x->grads[k];
        }
        x->in[k].requires_grad = true;
        x->pointers[i] = &x->in[k];
    }
}

/* One step on a tape that is rewound. */
static bauta_status step(bt_tape *tape, const problem *p, result *r, bool add,
                         bauta_error *err)
{
    inputs x;
    bool fresh;
    inputs_init(&x, p, r, add);
    bt_tensor *y = p->c->call(tape, p->c, &p->d, x.pointers);
    float *dy = y ? tape_gradient(tape, y, &fresh) : NULL;
    if (!dy)
        return bt_tape_status(tape, err);
    memcpy(dy, p->dy, y_size(p) * sizeof(float));
    memcpy(r->y, tensor_data(y), y_size(p) * sizeof(float));
    bauta_status status = bt_tape_backward(tape, err);
    for (size_t i = 0; i < tensors(p->c) && !status && !add; i++)
        memcpy(r->grad[i], tensor_gradient(&x.in[i]),
               in_size(p, i) * sizeof(float));
    return status;
}

static bt_tape *tape_create(const char *isa, int threads)
{
    return test_tape(isa, threads, true);
}

static void run(const problem *p, result *r, bool add, const char *isa,
                int threads)
{
    bauta_error err;
    bt_tape *tape = tape_create(isa, threads);
    if (step(tape, p, r, add, &err))
        fail_msg("%s: %s", p->c->name, err.message);
    test_tape_free(tape);
}

/* ---- against double ---------------------------------------------------- */

typedef struct doubles {
    double *in[OP_INPUTS], *dy, *y, *y_size;
    double *grad[OP_INPUTS], *size[OP_INPUTS];
} doubles;

static double *widen(const float *x, size_t count)
{
    double *wide = take(count, sizeof(double));
    for (size_t i = 0; i < count; i++)
        wide[i] = (double)x[i];
    return wide;
}

static doubles doubles_create(const problem *p)
{
    doubles w = { .dy = widen(p->dy, y_size(p)),
                  .y = take(y_size(p), sizeof(double)),
                  .y_size = take(y_size(p), sizeof(double)) };
    for (size_t i = 0; i < tensors(p->c); i++) {
        w.in[i] = widen(p->in[i], in_size(p, i));
        w.grad[i] = take(in_size(p, i), sizeof(double));
        w.size[i] = take(in_size(p, i), sizeof(double));
    }
    p->c->forward(p->c, &p->d, w.in, w.y, w.y_size);
    p->c->backward(p->c, &p->d, w.in, w.dy, w.grad, w.size);
    return w;
}

static void doubles_free(doubles *w)
{
    free(w->dy);
    free(w->y);
    free(w->y_size);
    for (size_t i = 0; i < OP_INPUTS; i++) {
        free(w->in[i]);
        free(w->grad[i]);
        free(w->size[i]);
    }
}

/* The worst error as a share of its bound; more than 1 fails. */
static double share(const op_case *c, const char *what, const float *got,
                    const double *want, const double *size, size_t count)
{
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)got[i] - want[i]);
        // 1.01 for terms of higher order.
        double bound = 1.01 * size[i] * u + 0x1p-110;
        if (!(error <= bound))
            fail_msg("%s: %s[%zu] is %a, want %a within %g u", c->name, what, i,
                     (double)got[i], want[i], size[i]);
        worst = fmax(worst, error / bound);
    }
    return worst;
}

static void ops_are_within_their_bounds(void **state)
{
    (void)state;
    static const size_t columns[] = { 12, 60, 516 };
    for (size_t k = 0; k < op_case_count; k++)
        for (size_t s = 0; s < BT_LEN(columns); s++) {
            problem p = problem_create(&op_cases[k], 37, columns[s]);
            result r = result_create(&p);
            doubles w = doubles_create(&p);
            run(&p, &r, false, NULL, 2);
            double y = share(p.c, "y", r.y, w.y, w.y_size, y_size(&p)), g = 0;
            for (size_t i = 0; i < tensors(p.c); i++)
                g = fmax(g, share(p.c, "gradient", r.grad[i], w.grad[i],
                                  w.size[i], in_size(&p, i)));
            printf("%-24s x %-4zu of the bound: y %.2f, gradients %.2f\n",
                   p.c->name, columns[s], y, g);
            doubles_free(&w);
            result_free(&r);
            problem_free(&p);
        }
}

/* The sum of y dy, whose gradient is what backward computes. */
static double objective(const problem *p, doubles *w)
{
    double sum = 0;
    p->c->forward(p->c, &p->d, w->in, w->y, w->y_size);
    for (size_t i = 0; i < y_size(p); i++)
        sum += w->y[i] * w->dy[i];
    return sum;
}

/* The derivative by one number, from four values: it is off by h^4 / 30 of the
 * fifth derivative and by 2^-53 / h of the objective, which is below 1000. */
static double derivative(const problem *p, doubles *w, double *x)
{
    const double h = 1e-4, at = *x;
    double f[4];
    for (int i = 0; i < 4; i++) {
        static const double steps[4] = { -2, -1, 1, 2 };
        *x = at + steps[i] * h;
        f[i] = objective(p, w);
    }
    *x = at;
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
}

static void gradient_formulas_equal_numeric_derivatives(void **state)
{
    (void)state;
    for (size_t k = 0; k < op_case_count; k++) {
        problem p = problem_create(&op_cases[k], 5, 12);
        doubles w = doubles_create(&p);
        for (size_t i = 0; i < tensors(p.c); i++)
            for (size_t e = 0; e < in_size(&p, i); e++) {
                double want = derivative(&p, &w, &w.in[i][e]);
                if (!(fabs(want - w.grad[i][e]) < 1e-6))
                    fail_msg("%s: derivative by input %zu, element %zu is %.9g,"
                             " the formula says %.9g",
                             p.c->name, i, e, want, w.grad[i][e]);
            }
        doubles_free(&w);
        problem_free(&p);
    }
}

/* ---- bits -------------------------------------------------------------- */

static void same_bits(const problem *p, const result *want, const result *got,
                      const char *how)
{
    if (floats_differ(want->y, got->y, y_size(p)) < y_size(p))
        fail_msg("%s, %s: y differs", p->c->name, how);
    for (size_t i = 0; i < tensors(p->c); i++) {
        size_t n = in_size(p, i);
        size_t at = floats_differ(want->grad[i], got->grad[i], n);
        if (at < n)
            fail_msg("%s, %s: gradient %zu differs at %zu: want %a, got %a",
                     p->c->name, how, i, at, (double)want->grad[i][at],
                     (double)got->grad[i][at]);
    }
}

static void threads_and_instruction_sets_change_no_bit(void **state)
{
    (void)state;
    static const int threads[] = { 1, 2, 4 };
    const char *names[8];
    size_t isas = bt_kernels_names(names, BT_LEN(names));
    for (size_t k = 0; k < op_case_count; k++) {
        problem p = problem_create(&op_cases[k], 403, 132);
        result want = result_create(&p);
        run(&p, &want, false, "c", 1);
        for (size_t isa = 0; isa < isas; isa++)
            for (size_t t = 0; t < BT_LEN(threads); t++) {
                result got = result_create(&p);
                run(&p, &got, false, names[isa], threads[t]);
                same_bits(&p, &want, &got, names[isa]);
                result_free(&got);
            }
        result_free(&want);
        problem_free(&p);
    }
}

/* Row `at` of a problem as a problem of its own; it borrows all its memory. */
static problem row_of(const problem *p, size_t at)
{
    problem one = *p;
    one.d.rows = 1;
    one.d.ids += at;
    one.d.positions += at;
    one.d.tokens += at;
    one.dy += at * p->d.columns;
    for (size_t i = 0; i < tensors(p->c); i++)
        if (p->c->wide[i] && !p->c->table)
            one.in[i] += at * p->d.columns;
    return one;
}

static void a_row_alone_has_the_bits_it_has_in_a_batch(void **state)
{
    (void)state;
    for (size_t k = 0; k < op_case_count; k++) {
        problem p = problem_create(&op_cases[k], 23, 132);
        result all = result_create(&p);
        run(&p, &all, false, NULL, 2);
        for (size_t at = 0; at < p.d.rows; at++) {
            problem one = row_of(&p, at);
            result r = result_create(&one);
            size_t n = p.d.columns;
            run(&one, &r, false, NULL, 1);
            assert_int_equal(floats_differ(r.y, all.y + at * n, n), n);
            if (p.c->wide[0] && !p.c->table)
                assert_int_equal(
                    floats_differ(r.grad[0], all.grad[0] + at * n, n), n);
            result_free(&r);
        }
        result_free(&all);
        problem_free(&p);
    }
}

/* ---- shared tensors ---------------------------------------------------- */

static void gradients_accumulate(void **state)
{
    (void)state;
    for (size_t k = 0; k < op_case_count; k++) {
        if (op_cases[k].chained)
            continue;
        problem p = problem_create(&op_cases[k], 37, 132);
        result fresh = result_create(&p), added = result_create(&p);
        run(&p, &fresh, false, NULL, 2);
        for (size_t i = 0; i < tensors(p.c); i++)
            for (size_t e = 0; e < in_size(&p, i); e++) {
                added.grad[i][e] = test_float(&randoms);
                fresh.grad[i][e] = added.grad[i][e] + fresh.grad[i][e];
            }
        run(&p, &added, true, NULL, 2);
        same_bits(&p, &fresh, &added, "added");
        result_free(&fresh);
        result_free(&added);
        problem_free(&p);
    }
}

static void a_tensor_that_is_used_twice_gets_both_gradients(void **state)
{
    (void)state;
    problem p = problem_create(&op_cases[6], 9, 36);
    result once = result_create(&p);
    inputs x;
    bool add;
    run(&p, &once, false, NULL, 1);
    bt_tape *tape = tape_create(NULL, 2);
    inputs_init(&x, &p, &once, false);
    bt_tensor *y = bt_op_add(tape, p.c->call(tape, p.c, &p.d, x.pointers),
                             p.c->call(tape, p.c, &p.d, x.pointers));
    // An unused output gets no gradient and gives none.
    assert_non_null(bt_op_act(tape, x.in, BT_ACT_RELU));
    memcpy(tape_gradient(tape, y, &add), p.dy, y_size(&p) * sizeof(float));
    assert_int_equal(bt_tape_backward(tape, NULL), BAUTA_OK);
    for (size_t i = 0; i < y_size(&p); i++) {
        assert_true(tensor_data(y)[i] == 2 * once.y[i]);
        assert_true(tensor_gradient(&x.in[0])[i] == 2 * once.grad[0][i]);
    }
    test_tape_free(tape);
    result_free(&once);
    problem_free(&p);
}

/* x + relu(x) and others: the operands of a sum have one gradient until
 * something is added to it. */
static void operands_of_a_sum_share_a_gradient(void **state)
{
    (void)state;
    enum { ROWS = 3, COLUMNS = 20, COUNT = ROWS * COLUMNS };
    static const float factors[][2] = {
        { 1, 1 }, { 1, 1 }, { 1, 2 }, { 2, 1 }
    };
    for (size_t k = 0; k < BT_LEN(factors); k++) {
        float data[COUNT], dy[COUNT];
        bool add;
        bt_tape *tape = tape_create(NULL, 1);
        for (size_t i = 0; i < COUNT; i++) {
            data[i] = test_float(&randoms);
            dy[i] = test_float(&randoms);
        }
        bt_buffer buffer = bt_buffer_of_host(data, sizeof(data));
        bt_tensor x = bt_tensor_of(&buffer, BAUTA_FLOAT32, ROWS, COLUMNS);
        x.requires_grad = true;
        bt_tensor *a = bt_op_scale(tape, &x, 1.0f);
        bt_tensor *b = bt_op_act(tape, a, BT_ACT_RELU);
        bt_tensor *y = bt_op_add(tape, k == 1 ? b : a, k == 1 ? a : b);
        if (k > 1)
            y = bt_op_add(tape, y, k == 2 ? b : a);
        memcpy(tape_gradient(tape, y, &add), dy, sizeof(dy));
        assert_int_equal(bt_tape_backward(tape, NULL), BAUTA_OK);
        for (size_t i = 0; i < COUNT; i++)
            assert_true(tensor_gradient(&x)[i] ==
                        dy[i] * factors[k][0] +
                            (data[i] > 0 ? dy[i] * factors[k][1] : 0));
        test_tape_free(tape);
    }
}

/* Rows of equal ids are added one after the other, in the order of rows. */
static void embed_adds_rows_in_order(void **state)
{
    (void)state;
    size_t k = 0;
    while (!op_cases[k].table)
        k++;
    problem p = problem_create(&op_cases[k], 101, 40);
    result want = result_create(&p), got = result_create(&p);
    for (size_t e = 0; e < in_size(&p, 0); e++)
        got.grad[0][e] = want.grad[0][e] = test_float(&randoms);
    for (size_t i = 0; i < p.d.rows; i++)
        for (size_t j = 0; j < p.d.columns; j++) {
            float *to = &want.grad[0][p.d.ids[i] * p.d.columns + j];
            *to = fmaf(p.dy[i * p.d.columns + j], OP_SCALE, *to);
        }
    run(&p, &got, true, NULL, 4);
    memcpy(want.y, got.y, y_size(&p) * sizeof(float));
    same_bits(&p, &want, &got, "added");
    result_free(&want);
    result_free(&got);
    problem_free(&p);
}

static void inputs_without_gradients_get_none(void **state)
{
    (void)state;
    for (size_t k = 0; k < op_case_count; k++)
        for (int recording = 0; recording < 2; recording++) {
            problem p = problem_create(&op_cases[k], 5, 12);
            result r = result_create(&p);
            bt_buffer dy = bt_buffer_of_host(p.dy, y_size(&p) * sizeof(float));
            inputs x;
            bt_tape *tape = tape_create(NULL, 1);
            bt_tape_rewind(tape, recording);
            inputs_init(&x, &p, &r, false);
            // Recording: only the first input wants none. Else: all would.
            x.in[0].requires_grad = !recording;
            bt_tensor *y = p.c->call(tape, p.c, &p.d, x.pointers);
            bool others = recording && tensors(p.c) > 1, add;
            assert_int_equal(y->requires_grad, others);
            assert_int_equal(bt_tape_grad(tape, y, &add), others);
            if (!others)
                y->grad = &dy; // a record would now be seen at work
            else
                memcpy(tensor_gradient(y), p.dy, y_size(&p) * sizeof(float));
            assert_int_equal(bt_tape_backward(tape, NULL), BAUTA_OK);
            assert_null(x.in[0].grad);
            for (size_t i = 1; i < tensors(p.c); i++)
                assert_int_equal(x.in[i].grad != NULL, recording);
            test_tape_free(tape);
            result_free(&r);
            problem_free(&p);
        }
}

/* ---- memory ------------------------------------------------------------ */

static void a_second_step_allocates_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < op_case_count; k++) {
        problem p = problem_create(&op_cases[k], 50, 132);
        result first = result_create(&p), second = result_create(&p);
        faults_begin();
        bt_tape *tape = tape_create(NULL, 2);
        assert_int_equal(step(tape, &p, &first, false, NULL), BAUTA_OK);
        bt_tape_rewind(tape, true);
        faults_arm(0);
        assert_int_equal(step(tape, &p, &second, false, NULL), BAUTA_OK);
        assert_false(faults_disarm());
        same_bits(&p, &first, &second, "second step");
        test_tape_free(tape);
        assert_int_equal(faults_end(), 0);
        result_free(&first);
        result_free(&second);
        problem_free(&p);
    }
}

/* Tensors are larger than a block of the tape, so that pieces lie in many. */
static void each_allocation_may_fail(void **state)
{
    (void)state;
    for (size_t k = 0; k < op_case_count; k++) {
        if (k && op_cases[k].call == op_cases[k - 1].call)
            continue;
        problem p = problem_create(&op_cases[k], 2, 12 * 175000);
        result r = result_create(&p);
        faults_begin();
        for (size_t fail = 0;; fail++) {
            bt_tape *tape = tape_create(NULL, 2);
            bauta_error err = { BAUTA_OK, "" };
            faults_arm(fail);
            bauta_status status = step(tape, &p, &r, false, &err);
            bool failed = faults_disarm();
            assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
            if (failed)
                assert_non_null(strstr(err.message, "out of memory"));
            bt_tape_rewind(tape, true); // and the results are as before
            if (fail == 0)
                assert_int_equal(step(tape, &p, &r, false, NULL), BAUTA_OK);
            test_tape_free(tape);
            if (!failed)
                break;
        }
        assert_int_equal(faults_end(), 0);
        result_free(&r);
        problem_free(&p);
    }
}

/* ---- bad input --------------------------------------------------------- */

/* The tape has failed with this message. */
static void assert_failed(bt_tape *tape, const bt_tensor *y,
                          const char *message)
{
    bauta_error err = { BAUTA_OK, "" };
    assert_null(y);
    assert_int_equal(bt_tape_status(tape, &err), BAUTA_ERR_ARGUMENT);
    assert_string_equal(err.message, message);
    bt_tape_rewind(tape, true);
}

static void bad_shapes_are_an_error(void **state)
{
    (void)state;
    float data[64] = { 0 };
    const uint32_t ids[] = { 1, 7, 2 }, positions[] = { 0, 0 };
    const uint64_t tokens[] = { 0, 0 };
    bt_buffer buffer = bt_buffer_of_host(data, sizeof(data));
    bt_tensor x = bt_tensor_of(&buffer, BAUTA_FLOAT32, 2, 6);
    bt_tensor other = bt_tensor_of(&buffer, BAUTA_FLOAT32, 2, 5);
    bt_tensor row = bt_tensor_of(&buffer, BAUTA_FLOAT32, 1, 6);
    bt_tape *t = tape_create(NULL, 1);
    assert_failed(t, bt_op_add(t, &x, &other),
                  "add: 2 x 6 and 2 x 5 differ in shape");
    assert_failed(t, bt_op_gated(t, &x, &other, BT_ACT_SILU),
                  "gated: gate is 2 x 6, up is 2 x 5");
    assert_failed(t, bt_op_norm(t, &x, &row, NULL, BT_NORM_RMS, 1e-5f, 4),
                  "norm: 6 columns are not 4 heads");
    assert_failed(t, bt_op_norm(t, &x, &row, NULL, BT_NORM_RMS, 1e-5f, 0),
                  "norm: 6 columns are not 0 heads");
    assert_failed(t, bt_op_norm(t, &x, &row, NULL, BT_NORM_RMS, 1e-5f, 2),
                  "norm: gain is 1 x 6, not 1 x 3");
    assert_failed(t, bt_op_norm(t, &x, &row, &x, BT_NORM_LAYER, 1e-5f, 1),
                  "norm: bias is 2 x 6, not 1 x 6");
    assert_failed(t, bt_op_rotary(t, &x, 2, positions, data),
                  "rotary: 6 columns are not 2 heads of pairs");
    assert_failed(t, bt_op_embedding(t, &x, ids, 3, 1, BT_IGNORE_INDEX),
                  "embed: id 7 of row 1 is not in a table of 2 rows");
    assert_failed(t, bt_op_dropout(t, &x, 1, 0, 0, tokens),
                  "dropout: the rate 1 is not in [0, 1)");
    assert_failed(t, bt_op_dropout(t, &x, -0.5f, 0, 0, tokens),
                  "dropout: the rate -0.5 is not in [0, 1)");
    assert_failed(t, bt_op_dropout(t, &x, NAN, 0, 0, tokens),
                  "dropout: the rate nan is not in [0, 1)");
    test_tape_free(t);
}

static void after_a_failure_every_op_returns_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < op_case_count; k++) {
        problem p = problem_create(&op_cases[k], 2, 12);
        result r = result_create(&p);
        inputs x;
        bt_tensor *const none[OP_INPUTS] = { NULL };
        bt_tape *tape = tape_create(NULL, 1);
        inputs_init(&x, &p, &r, false);
        bt_tape_fail(tape, BAUTA_ERR_ARGUMENT, "the first failure");
        assert_null(p.c->call(tape, p.c, &p.d, x.pointers));
        assert_null(p.c->call(tape, p.c, &p.d, none));
        assert_null(bt_op_dropout(tape, x.in, 0, 0, 0, p.d.tokens));
        bauta_error err;
        assert_int_equal(bt_tape_backward(tape, &err), BAUTA_ERR_ARGUMENT);
        assert_string_equal(err.message, "the first failure");
        test_tape_free(tape);
        result_free(&r);
        problem_free(&p);
    }
}

static void zero_rows_do_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < op_case_count; k++) {
        problem p = problem_create(&op_cases[k], 0, 12);
        result r = result_create(&p);
        run(&p, &r, false, NULL, 2);
        for (size_t i = 0; i < tensors(p.c); i++)
            for (size_t e = 0; e < in_size(&p, i); e++)
                assert_true(r.grad[i][e] == 0);
        result_free(&r);
        problem_free(&p);
    }
}

/* ---- dropout ----------------------------------------------------------- */

static void dropout_keeps_its_rate_and_zeroes_the_rest(void **state)
{
    (void)state;
    enum { ROWS = 64, COLUMNS = 1000 };
    problem p = problem_create(&op_cases[op_case_count - 1], ROWS, COLUMNS);
    result r = result_create(&p);
    for (size_t i = 0; i < y_size(&p); i++)
        if (!op_keeps(p.d.tokens[i / COLUMNS], i % COLUMNS))
            p.in[0][i] = NAN;
    run(&p, &r, false, NULL, 2);
    size_t kept = 0;
    for (size_t i = 0; i < y_size(&p); i++) {
        assert_true(!isnan(r.y[i]));
        if (r.y[i] != 0)
            kept++;
    }
    // Six standard deviations.
    double n = (double)y_size(&p), rate = (double)OP_RATE;
    assert_true(fabs((double)kept - (1 - rate) * n) <
                6 * sqrt(n * rate * (1 - rate)));
    bt_tape *tape = tape_create(NULL, 1);
    bt_buffer buffer = bt_buffer_of_host(p.in[0], y_size(&p) * sizeof(float));
    bt_tensor x = bt_tensor_of(&buffer, BAUTA_FLOAT32, ROWS, COLUMNS);
    assert_ptr_equal(bt_op_dropout(tape, &x, 0, 1, 1, p.d.tokens), &x);
    test_tape_free(tape);
    result_free(&r);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_are_within_their_bounds),
        cmocka_unit_test(gradient_formulas_equal_numeric_derivatives),
        cmocka_unit_test(threads_and_instruction_sets_change_no_bit),
        cmocka_unit_test(a_row_alone_has_the_bits_it_has_in_a_batch),
        cmocka_unit_test(gradients_accumulate),
        cmocka_unit_test(a_tensor_that_is_used_twice_gets_both_gradients),
        cmocka_unit_test(operands_of_a_sum_share_a_gradient),
        cmocka_unit_test(embed_adds_rows_in_order),
        cmocka_unit_test(inputs_without_gradients_get_none),
        cmocka_unit_test(a_second_step_allocates_nothing),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(bad_shapes_are_an_error),
        cmocka_unit_test(after_a_failure_every_op_returns_nothing),
        cmocka_unit_test(zero_rows_do_nothing),
        cmocka_unit_test(dropout_keeps_its_rate_and_zeroes_the_rest),
    };
    randoms = test_random_from(test_seed());
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
