/* SPDX-License-Identifier: Apache-2.0 */
/* test_loss.c - cross-entropy on the tape: loss and gradients against double
 * precision within derived bounds, and the same bits for any threads, ISA and
 * layout. */
#include "allocation_faults.h"
#include "autograd/ops.h"
#include "base/error.h"
#include "parameters.h"

static test_random randoms;

typedef struct problem {
    size_t rows, width, vocabulary;
    bool turned, biased;
    float smoothing;
    float softcap; /* of the logits; 0: none */
    double weight;
    size_t ignored; /* one row in so many; 0: none */
    bt_tensor x, w, bias;
    bool weighted; /* each label has a weight of its own */
    uint32_t *labels;
    float *weights; /* (rows), or NULL */
    bt_loss got;
} problem;

static float *draw_weights(size_t rows)
{
    float *weights = malloc(rows * sizeof(float) + 1);
    assert_non_null(weights);
    for (size_t i = 0; i < rows; i++)
        weights[i] = 4.0f * test_float(&randoms);
    return weights;
}

static void draw_labels(problem *p)
{
    p->labels = malloc(p->rows * sizeof(uint32_t) + 1);
    assert_non_null(p->labels);
    for (size_t i = 0; i < p->rows; i++) {
        p->labels[i] = (uint32_t)test_below(&randoms, p->vocabulary);
        if (p->ignored && test_below(&randoms, p->ignored) == 0)
            p->labels[i] = BT_IGNORE_INDEX;
    }
}

static void problem_fill(problem *p)
{
    p->x = parameter_create(&randoms, p->rows, p->width);
    p->w = parameter_create(&randoms, p->turned ? p->width : p->vocabulary,
                            p->turned ? p->vocabulary : p->width);
    p->bias = parameter_create(&randoms, 1, p->vocabulary);
    // So that some labels are likely, some not.
    for (size_t i = 0; i < tensor_count(&p->x); i++)
        tensor_data(&p->x)[i] *= 3.0f;
    draw_labels(p);
    p->weights = p->weighted ? draw_weights(p->rows) : NULL;
}

static problem problem_copy(const problem *from)
{
    problem p = *from;
    p.x = parameter_copy(&from->x);
    p.w = parameter_copy(&from->w);
    p.bias = parameter_copy(&from->bias);
    p.labels = malloc(p.rows * sizeof(uint32_t) + 1);
    assert_non_null(p.labels);
    memcpy(p.labels, from->labels, p.rows * sizeof(uint32_t));
    if (p.weights) {
        p.weights = draw_weights(p.rows);
        memcpy(p.weights, from->weights, p.rows * sizeof(float));
    }
    return p;
}

static void problem_free(problem *p)
{
    parameter_free(&p->x);
    parameter_free(&p->w);
    parameter_free(&p->bias);
    free(p->labels);
    free(p->weights);
}

static void forward(problem *p, bt_tape *tape, size_t chunk)
{
    p->got = bt_op_cross_entropy_chunked(
        tape, &p->x, &p->w, p->turned, p->biased ? &p->bias : NULL, p->softcap,
        p->labels, p->weights, p->smoothing, p->weight, chunk);
}

static void run(problem *p, bt_tape *tape, size_t chunk)
{
    bt_tape_rewind(tape, true);
    forward(p, tape, chunk);
    assert_int_equal(bt_tape_backward(tape, NULL), 0);
    bt_loss_read(tape, &p->got); // the backward pass leaves it as it is
}

static void same(const char *what, const float *want, const float *got,
                 size_t count)
{
    size_t at = floats_differ(want, got, count);
    if (at != count)
        fail_msg("%s[%zu] is %a, want %a", what, at, (double)got[at],
                 (double)want[at]);
}

static void same_gradients(const problem *want, const problem *got)
{
    same("dx", tensor_gradient(&want->x), tensor_gradient(&got->x),
         tensor_count(&want->x));
    same("dW", tensor_gradient(&want->w), tensor_gradient(&got->w),
         tensor_count(&want->w));
    same("dbias", tensor_gradient(&want->bias), tensor_gradient(&got->bias),
         tensor_count(&want->bias));
}

static void same_problem(const problem *want, const problem *got)
{
    assert_int_equal(want->got.counted, got->got.counted);
    assert_memory_equal(&want->got.loss, &got->got.loss, sizeof(double));
    same_gradients(want, got);
}

/* ---- Double precision and its bounds ------------------------------------- */

/* A number and how far the float32 result may be from it. */
typedef struct bounded {
    double value, bound;
} bounded;

static bounded *bounded_create(const float *start, size_t count)
{
    bounded *b = malloc(count * sizeof(*b) + 1);
    assert_non_null(b);
    for (size_t i = 0; i < count; i++)
        b[i] = (bounded){ (double)start[i], 0.0 };
    return b;
}

/* The expected loss and gradients, the latter added to their initial values;
 * and scratch for one row. */
typedef struct exact {
    const problem *p;
    size_t counted;
    bounded loss, *dx, *dw, *dbias;
    double *z, *p_row; /* (vocabulary) */
    double *slope;     /* (vocabulary) of the softcap */
    double error;      /* bound of any logit of the current row */
} exact;

static exact exact_create(const problem *p)
{
    exact e = { .p = p };
    e.dx = bounded_create(tensor_gradient(&p->x), tensor_count(&p->x));
    e.dw = bounded_create(tensor_gradient(&p->w), tensor_count(&p->w));
    e.dbias = bounded_create(tensor_gradient(&p->bias), tensor_count(&p->bias));
    e.z = malloc(p->vocabulary * sizeof(double));
    e.p_row = malloc(p->vocabulary * sizeof(double));
    e.slope = malloc(p->vocabulary * sizeof(double));
    assert_true(e.z && e.p_row && e.slope);
    for (size_t i = 0; i < p->rows; i++)
        e.counted += p->labels[i] != BT_IGNORE_INDEX;
    return e;
}

static void exact_free(exact *e)
{
    free(e->dx);
    free(e->dw);
    free(e->dbias);
    free(e->z);
    free(e->p_row);
    free(e->slope);
}

static size_t w_at(const problem *p, size_t entry, size_t column)
{
    return p->turned ? column * p->vocabulary + entry
                     : entry * p->width + column;
}

/* Cap the logits: the quotient, tanh within 6 u and the product add 9 u of the
 * softcap at most, and the slope is at most 1. */
static void exact_softcap(exact *e)
{
    double cap = (double)e->p->softcap;
    for (size_t j = 0; j < e->p->vocabulary; j++) {
        double t = cap != 0.0 ? tanh(e->z[j] / cap) : 0.0;
        e->slope[j] = 1 - t * t;
        if (cap != 0.0)
            e->z[j] = cap * t;
    }
    e->error += 9 * 0x1p-24 * cap;
}

/* The logits of a row; the error of a chain is as in gemm. */
static void exact_logits(exact *e, size_t row)
{
    const problem *p = e->p;
    double largest = 0.0;
    for (size_t j = 0; j < p->vocabulary; j++) {
        double z = p->biased ? (double)tensor_data(&p->bias)[j] : 0.0;
        double size = fabs(z);
        for (size_t k = 0; k < p->width; k++) {
            double term = (double)tensor_data(&p->x)[row * p->width + k] *
                          (double)tensor_data(&p->w)[w_at(p, j, k)];
            z += term;
            size += fabs(term);
        }
        e->z[j] = z;
        largest = fmax(largest, size);
    }
    e->error = gamma_n(p->width + 1) * largest;
    exact_softcap(e);
}

/* Probabilities of the row; returns log-sum-exp. */
static double exact_softmax(exact *e, double *range)
{
    size_t n = e->p->vocabulary;
    double max = e->z[0], min = e->z[0], sum = 0.0;
    for (size_t j = 1; j < n; j++) {
        max = fmax(max, e->z[j]);
        min = fmin(min, e->z[j]);
    }
    for (size_t j = 0; j < n; j++)
        sum += exp(e->z[j] - max);
    for (size_t j = 0; j < n; j++)
        e->p_row[j] = exp(e->z[j] - max) / sum;
    *range = max - min;
    return max + log(sum);
}

static void exact_flow(exact *e, size_t row, size_t j, bounded d)
{
    const problem *p = e->p;
    size_t n = p->vocabulary;
    for (size_t k = 0; k < p->width; k++) {
        double x = (double)tensor_data(&p->x)[row * p->width + k];
        double w = (double)tensor_data(&p->w)[w_at(p, j, k)];
        bounded *dx = &e->dx[row * p->width + k], *dw = &e->dw[w_at(p, j, k)];
        double size = fabs(d.value) + d.bound;
        dx->value += d.value * w;
        dx->bound += d.bound * fabs(w) + gamma_n(n) * size * fabs(w);
        dw->value += d.value * x;
        dw->bound += d.bound * fabs(x) + gamma_n(p->rows) * size * fabs(x);
    }
    if (p->biased) {
        e->dbias[j].value += d.value;
        e->dbias[j].bound +=
            d.bound + gamma_n(p->rows) * (fabs(d.value) + d.bound);
    }
}

/* One row. With u = 2^-24, E the error of a logit, R the range of the logits:
 *
 * - z[j] - max rounds once: off by u R; with the logits' own errors, of which
 *   base and z have one each, the exponent is off by 2 E + u R.
 * - The exponential is within 5.1 u, the sum of n of them in sixteen lanes and
 *   a tree within another (n / 16 + 5) u, so the sum is within
 *   A = 2 E + u R + 5.1 u + (n / 16 + 5) u, relative.
 * - The loss takes lse and the label's logit, or the mean, and the rest is in
 *   double: max + log(sum) - z[label] is off by what the sum is, beside what
 *   the logits move it: E each for lse and z. Together 2 E + (A - 2 E), and
 *   2^-38 for the logarithm.
 * - A probability takes the error of its exponential and of the sum, and one
 *   rounding each in g / sum and the product: 2 A + 2 u.
 * - dz is made of parts p g, s g / n and (1 - s) g at the label, and rounds at
 *   most three times: 3 u of the parts' sizes. */
static void exact_row(exact *e, size_t row)
{
    const double u = 0x1p-24;
    const problem *p = e->p;
    double n = (double)p->vocabulary, s = (double)p->smoothing, range, mean = 0;
    double g = p->weight / (double)e->counted *
               (p->weights ? (double)p->weights[row] : 1.0);
    uint32_t label = p->labels[row];
    exact_logits(e, row);
    double lse = exact_softmax(e, &range);
    for (size_t j = 0; j < p->vocabulary; j++)
        mean += e->z[j] / n;
    double sum_error = u * range + (5.1 + n / 16 + 5) * u;
    e->loss.value += g * ((1 - s) * (lse - e->z[label]) + s * (lse - mean));
    e->loss.bound += fabs(g) * (2 * e->error + sum_error + 0x1p-38);
    double relative = (2 * (2 * e->error + sum_error) + 2 * u) * 1.001;
    for (size_t j = 0; j < p->vocabulary; j++) {
        double hit = j == label ? 1 - s : 0.0, part = e->p_row[j];
        bounded d = { g * (part - s / n - hit),
                      fabs(g) *
                          (relative * part + 3 * u * (part + s / n + hit)) };
        // An error E of a logit moves t^2 by 2 E / c.
        double slope = p->softcap != 0.0f
                           ? 2 * e->error / (double)p->softcap + 20 * u
                           : 0.0;
        d.bound = d.bound * e->slope[j] + fabs(d.value) * slope;
        d.value *= e->slope[j];
        exact_flow(e, row, j, d);
    }
}

/* Gradients are added to the initial values, which rounds once for each part of
 * the batch. */
static void exact_run(exact *e, size_t parts)
{
    const problem *p = e->p;
    struct {
        bounded *b;
        const float *start;
        size_t count;
    } all[] = { { e->dx, tensor_gradient(&p->x), tensor_count(&p->x) },
                { e->dw, tensor_gradient(&p->w), tensor_count(&p->w) },
                { e->dbias, tensor_gradient(&p->bias),
                  tensor_count(&p->bias) } };
    for (size_t row = 0; row < p->rows; row++)
        if (p->labels[row] != BT_IGNORE_INDEX)
            exact_row(e, row);
    for (size_t a = 0; a < BT_LEN(all); a++)
        for (size_t i = 0; i < all[a].count; i++)
            all[a].b[i].bound +=
                gamma_n(parts) * (2 * fabs((double)all[a].start[i]) +
                                  fabs(all[a].b[i].value) + all[a].b[i].bound);
}

static double worst; /* error as a share of its bound, over all tests */

static void within(const char *what, size_t at, bounded want, double got)
{
    double error = fabs(got - want.value);
    if (want.bound > 0.0 && error / want.bound > worst)
        worst = error / want.bound;
    if (!(error <= want.bound))
        fail_msg("%s[%zu] is %.9g, want %.9g within %.3g", what, at, got,
                 want.value, want.bound);
}

static void all_within(const char *what, const bounded *want, const float *got,
                       size_t count)
{
    for (size_t i = 0; i < count; i++)
        within(what, i, want[i], (double)got[i]);
}

static void check_exactly(const exact *want, const problem *got)
{
    assert_int_equal(want->counted, got->got.counted);
    within("loss", 0, want->loss, got->got.loss);
    all_within("dx", want->dx, tensor_gradient(&got->x), tensor_count(&got->x));
    all_within("dW", want->dw, tensor_gradient(&got->w), tensor_count(&got->w));
    all_within("dbias", want->dbias, tensor_gradient(&got->bias),
               tensor_count(&got->bias));
}

static const problem cases[] = {
    { .rows = 1, .width = 1, .vocabulary = 1, .weight = 1 },
    { .rows = 1, .width = 5, .vocabulary = 2, .weight = 1, .biased = true },
    { .rows = 17, .width = 9, .vocabulary = 15, .weight = 1, .turned = true },
    { .rows = 40,
      .width = 16,
      .vocabulary = 101,
      .weight = 0.3,
      .biased = true,
      .smoothing = 0.1f,
      .ignored = 3 },
    { .rows = 40,
      .width = 7,
      .vocabulary = 64,
      .weight = 2.5,
      .turned = true,
      .biased = true,
      .smoothing = 1.0f },
    { .rows = 30, .width = 40, .vocabulary = 333, .weight = 1, .ignored = 2 },
    { .rows = 9, .width = 30, .vocabulary = 5000, .weight = 1 },
    { .rows = 33,
      .width = 12,
      .vocabulary = 70,
      .weight = 0.7,
      .biased = true,
      .weighted = true,
      .ignored = 4 },
    { .rows = 20,
      .width = 6,
      .vocabulary = 31,
      .weight = 1,
      .turned = true,
      .weighted = true,
      .smoothing = 0.2f },
    { .rows = 9,
      .width = 7,
      .vocabulary = 37,
      .weight = 1,
      .softcap = 2,
      .biased = true,
      .ignored = 4 },
};

static void loss_and_gradients_stay_within_their_bounds(void **state)
{
    (void)state;
    bt_tape *tape = test_tape(NULL, 2, true);
    for (int again = 0; again < 5; again++)
        for (size_t i = 0; i < BT_LEN(cases); i++) {
            problem start = cases[i];
            problem_fill(&start);
            problem p = problem_copy(&start);
            exact e = exact_create(&start);
            exact_run(&e, 1);
            run(&p, tape, 7);
            check_exactly(&e, &p);
            exact_free(&e);
            problem_free(&p);
            problem_free(&start);
        }
    printf("largest error: %.3f of its bound\n", worst);
    test_tape_free(tape);
}

/* The loss alone, in double, with one number of the problem moved. */
static double moved_loss(problem *p, float *number, double by)
{
    float kept = *number;
    exact e = exact_create(p);
    *number = (float)((double)kept + by);
    exact_run(&e, 1);
    *number = kept;
    double loss = e.loss.value;
    exact_free(&e);
    return loss;
}

/* The five-point difference at steps h = 2^-6, with numbers that have room for
 * them in float32: the rule is off by h^4 / 30 times the fifth derivative,
 * which for numbers of this size is below 8 here, and by what the losses in
 * double round, over h: 2e-8 in all. */
static double slope(problem *p, float *number)
{
    const double h = 0x1p-6;
    return (8 * (moved_loss(p, number, h) - moved_loss(p, number, -h)) -
            (moved_loss(p, number, 2 * h) - moved_loss(p, number, -2 * h))) /
           (12 * h);
}

static void check_slopes(problem *p, bt_tensor *t, const bounded *want)
{
    for (size_t i = 0; i < tensor_count(t); i++)
        assert_true(fabs(want[i].value - (double)tensor_gradient(t)[i] -
                         slope(p, tensor_data(t) + i)) < 2e-8);
}

static void the_formula_is_the_slope_of_the_loss(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        problem p = { .rows = 6,
                      .width = 4,
                      .vocabulary = 7,
                      .weight = 0.5,
                      .turned = turned,
                      .biased = true,
                      .smoothing = turned ? 0.2f : 0.0f,
                      .ignored = 4 };
        problem_fill(&p);
        bt_tensor *all[] = { &p.x, &p.w, &p.bias };
        for (size_t a = 0; a < BT_LEN(all); a++)
            for (size_t i = 0; i < tensor_count(all[a]); i++)
                tensor_data(all[a])[i] =
                    roundf(tensor_data(all[a])[i] * 512) / 512;
        exact e = exact_create(&p);
        exact_run(&e, 1);
        check_slopes(&p, &p.x, e.dx);
        check_slopes(&p, &p.w, e.dw);
        check_slopes(&p, &p.bias, e.dbias);
        exact_free(&e);
        problem_free(&p);
    }
}

/* ---- The same bits ------------------------------------------------------- */

static void chunks_change_no_bit(void **state)
{
    (void)state;
    static const size_t chunks[] = { 1, 2, 7, 13, 64, 1000 };
    bt_tape *tape = test_tape(NULL, 2, true);
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        problem start = cases[i];
        problem_fill(&start);
        problem want = problem_copy(&start);
        run(&want, tape, start.rows);
        for (size_t k = 0; k < BT_LEN(chunks); k++) {
            problem got = problem_copy(&start);
            run(&got, tape, chunks[k]);
            same_problem(&want, &got);
            problem_free(&got);
        }
        problem_free(&want);
        problem_free(&start);
    }
    test_tape_free(tape);
}

static void a_weight_of_one_changes_no_bit(void **state)
{
    (void)state;
    bt_tape *tape = test_tape(NULL, 2, true);
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        problem want = cases[i];
        want.weighted = false;
        problem_fill(&want);
        problem got = problem_copy(&want);
        got.weights = draw_weights(got.rows);
        for (size_t row = 0; row < got.rows; row++)
            got.weights[row] = got.labels[row] == BT_IGNORE_INDEX ? NAN : 1.0f;
        run(&want, tape, 5);
        run(&got, tape, 5);
        same_problem(&want, &got);
        problem_free(&want);
        problem_free(&got);
    }
    test_tape_free(tape);
}

static void threads_and_instruction_sets_change_no_bit(void **state)
{
    (void)state;
    const char *names[8];
    size_t count = bt_kernels_names(names, BT_LEN(names));
    problem start = { .rows = 130,
                      .width = 48,
                      .vocabulary = 701,
                      .weight = 1,
                      .biased = true,
                      .smoothing = 0.1f,
                      .ignored = 5 };
    problem_fill(&start);
    problem want = problem_copy(&start);
    bt_tape *reference = test_tape("c", 1, true);
    run(&want, reference, 64);
    for (size_t i = 0; i < count; i++)
        for (int threads = 1; threads <= 4; threads *= 2) {
            problem got = problem_copy(&start);
            bt_tape *tape = test_tape(names[i], threads, true);
            run(&got, tape, 64);
            same_problem(&want, &got);
            test_tape_free(tape);
            problem_free(&got);
        }
    test_tape_free(reference);
    problem_free(&want);
    problem_free(&start);
}

static void a_part_of_a_larger_matrix_gives_the_same_bits(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        problem want = cases[3];
        want.turned = turned;
        problem_fill(&want);
        problem got = problem_copy(&want);
        bt_tensor large =
            parameter_create(&randoms, want.w.rows, want.w.columns + 5);
        bt_tensor before = parameter_copy(&large);
        bt_tape *tape = test_tape(NULL, 2, true);
        matrix_put(&large, 3, &want.w);
        matrix_put(&before, 3, &want.w);
        run(&want, tape, 16);
        matrix_put(&before, 3, &want.w); // with the gradient that must come
        parameter_free(&got.w);
        got.w = matrix_part(&large, 3, want.w.columns);
        run(&got, tape, 16);
        assert_memory_equal(&want.got.loss, &got.got.loss, sizeof(double));
        same("dx", tensor_gradient(&want.x), tensor_gradient(&got.x),
             tensor_count(&want.x));
        same("dW", tensor_gradient(&before), tensor_gradient(&large),
             tensor_count(&large));
        got.w = (bt_tensor){ 0 };
        test_tape_free(tape);
        parameter_free(&large);
        parameter_free(&before);
        problem_free(&want);
        problem_free(&got);
    }
}

static void without_recording_the_loss_is_the_same(void **state)
{
    (void)state;
    problem p = cases[3];
    problem_fill(&p);
    problem start = problem_copy(&p);
    bt_tape *tape = test_tape(NULL, 2, false);
    forward(&p, tape, 64);
    assert_int_equal(bt_tape_backward(tape, NULL), 0);
    same_gradients(&start, &p);
    double want = bt_loss_read(tape, &p.got);
    run(&p, tape, 64);
    assert_memory_equal(&want, &p.got.loss, sizeof(double));
    test_tape_free(tape);
    problem_free(&p);
    problem_free(&start);
}

/* ---- Ignored rows -------------------------------------------------------- */

/* The rows that count, alone. */
static problem problem_counted(const problem *from)
{
    problem p = problem_copy(from);
    size_t width = p.width, kept = 0;
    for (size_t i = 0; i < p.rows; i++) {
        if (p.labels[i] == BT_IGNORE_INDEX)
            continue;
        p.labels[kept] = p.labels[i];
        memcpy(tensor_data(&p.x) + kept * width, tensor_data(&p.x) + i * width,
               width * sizeof(float));
        memcpy(tensor_gradient(&p.x) + kept * width,
               tensor_gradient(&p.x) + i * width, width * sizeof(float));
        kept++;
    }
    p.rows = p.x.rows = kept;
    return p;
}

static void ignored_rows_change_no_bit(void **state)
{
    (void)state;
    static const float odd[] = { NAN, INFINITY, -INFINITY, 0x1p127f };
    problem start = cases[3];
    problem_fill(&start);
    start.labels[0] = start.labels[start.rows - 1] = BT_IGNORE_INDEX;
    for (size_t i = 0; i < start.rows; i++)
        for (size_t k = 0; k < start.width; k++)
            if (start.labels[i] == BT_IGNORE_INDEX)
                tensor_data(&start.x)[i * start.width + k] =
                    odd[(i + k) % BT_LEN(odd)];
    problem got = problem_copy(&start), want = problem_counted(&start);
    bt_tape *tape = test_tape(NULL, 2, true);
    run(&got, tape, 16);
    run(&want, tape, 16);
    problem kept = problem_counted(&got);
    kept.got = got.got;
    same_problem(&want, &kept);
    for (size_t i = 0; i < start.rows; i++)
        if (start.labels[i] == BT_IGNORE_INDEX)
            same("dx", tensor_gradient(&start.x) + i * start.width,
                 tensor_gradient(&got.x) + i * start.width, start.width);
    test_tape_free(tape);
    problem_free(&start);
    problem_free(&got);
    problem_free(&want);
    problem_free(&kept);
}

static void an_ignored_row_of_a_new_gradient_is_zero(void **state)
{
    (void)state;
    problem p = { .rows = 3, .width = 2, .vocabulary = 4, .weight = 1 };
    problem_fill(&p);
    parameter_drop_gradient(&p.x); // the tape's from here
    p.labels[1] = BT_IGNORE_INDEX;
    tensor_data(&p.x)[2] = NAN;
    bt_tape *tape = test_tape(NULL, 1, true);
    run(&p, tape, 256);
    assert_int_equal(p.got.counted, 2);
    for (size_t i = 0; i < 6; i++)
        assert_true((tensor_gradient(&p.x)[i] == 0.0f) == (i == 2 || i == 3));
    p.x.grad = NULL;
    test_tape_free(tape);
    problem_free(&p);
}

static void without_labels_the_loss_is_zero(void **state)
{
    (void)state;
    for (size_t rows = 0; rows < 5; rows += 4) {
        problem p = cases[3];
        p.rows = rows;
        p.ignored = 1;
        problem_fill(&p);
        for (size_t i = 0; i < tensor_count(&p.x); i++)
            tensor_data(&p.x)[i] = NAN;
        problem start = problem_copy(&p);
        bt_tape *tape = test_tape(NULL, 1, true);
        run(&p, tape, 256);
        same_problem(&start, &p); // 0 and 0, nothing touched
        test_tape_free(tape);
        problem_free(&p);
        problem_free(&start);
    }
}

/* ---- Several losses ------------------------------------------------------ */

static void a_loss_without_backward_moves_no_gradient(void **state)
{
    (void)state;
    problem p = cases[3];
    problem_fill(&p);
    problem start = problem_copy(&p);
    bt_tape *tape = test_tape(NULL, 2, true);
    forward(&p, tape, 256);
    same_gradients(&start, &p);
    bt_tape_rewind(tape, true);
    assert_int_equal(bt_tape_backward(tape, NULL), 0);
    same_gradients(&start, &p);
    test_tape_free(tape);
    problem_free(&p);
    problem_free(&start);
}

/* Rows first to first + rows - 1 as a loss of their own, with a weight that is
 * their share in the counted labels of all. */
static void add_part(problem *sum, bt_tape *tape, size_t first, size_t rows,
                     size_t counted)
{
    bt_tensor *x = bt_tape_alloc(tape, 1, sizeof(*x)); // outlives the record
    const uint32_t *labels = sum->labels + first;
    size_t count = 0;
    *x = rows_part(&sum->x, first, rows);
    for (size_t i = 0; i < rows; i++)
        count += labels[i] != BT_IGNORE_INDEX;
    bt_loss part = bt_op_cross_entropy(
        tape, x, &sum->w, sum->turned, &sum->bias, sum->softcap, labels, NULL,
        sum->smoothing, (double)count / (double)counted);
    sum->got.loss += bt_loss_read(tape, &part);
    sum->got.counted += part.counted;
}

/* Within the bound of the whole with one more addition; with a backward pass
 * for each part, and with a common one. */
static void parts_weighted_by_their_share_are_the_whole(void **state)
{
    (void)state;
    bt_tape *tape = test_tape(NULL, 2, true);
    for (int common = 0; common < 2; common++) {
        problem start = cases[3];
        start.weight = 1;
        problem_fill(&start);
        problem sum = problem_copy(&start);
        exact e = exact_create(&start);
        exact_run(&e, 2);
        for (size_t first = 0; first < start.rows; first += start.rows / 2) {
            add_part(&sum, tape, first, start.rows / 2, e.counted);
            if (!common) {
                assert_int_equal(bt_tape_backward(tape, NULL), 0);
                bt_tape_rewind(tape, true);
            }
        }
        assert_int_equal(bt_tape_backward(tape, NULL), 0);
        check_exactly(&e, &sum);
        bt_tape_rewind(tape, true);
        exact_free(&e);
        problem_free(&sum);
        problem_free(&start);
    }
    test_tape_free(tape);
}

/* ---- Non-finite numbers -------------------------------------------------- */

static void nan_in_a_row_that_counts_is_not_hidden(void **state)
{
    (void)state;
    problem p = { .rows = 3, .width = 2, .vocabulary = 4, .weight = 1 };
    problem_fill(&p);
    bt_tape *tape = test_tape(NULL, 1, true);
    tensor_data(&p.x)[3] = NAN;
    run(&p, tape, 256);
    assert_true(isnan(p.got.loss));
    assert_true(!isnan(tensor_gradient(&p.x)[0]));
    assert_true(isnan(tensor_gradient(&p.x)[2]));
    tensor_data(&p.x)[3] = INFINITY;
    run(&p, tape, 256);
    assert_true(isnan(p.got.loss));
    test_tape_free(tape);
    problem_free(&p);
}

static void an_entry_at_minus_infinity_takes_no_part(void **state)
{
    (void)state;
    problem p = {
        .rows = 3, .width = 2, .vocabulary = 4, .weight = 1, .biased = true
    };
    problem_fill(&p);
    problem start = problem_copy(&p);
    bt_tape *tape = test_tape(NULL, 1, true);
    tensor_data(&p.bias)[3] = -INFINITY;
    for (uint32_t i = 0; i < 3; i++)
        p.labels[i] = i;
    run(&p, tape, 256);
    assert_true(isfinite(p.got.loss));
    same("dW", tensor_gradient(&start.w) + 6, tensor_gradient(&p.w) + 6, 2);
    same("dbias", tensor_gradient(&start.bias) + 3,
         tensor_gradient(&p.bias) + 3, 1);
    p.labels[0] = 3;
    run(&p, tape, 256);
    assert_true(isinf(p.got.loss) && p.got.loss > 0);
    test_tape_free(tape);
    problem_free(&p);
    problem_free(&start);
}

/* ---- Errors and memory --------------------------------------------------- */

static void wrong_arguments_are_an_error(void **state)
{
    (void)state;
    problem p = { .rows = 3, .width = 2, .vocabulary = 4, .weight = 1 };
    problem_fill(&p);
    bt_tape *tape = test_tape(NULL, 1, true);
    p.labels[1] = 4;
    forward(&p, tape, 256);
    assert_tape_fails(tape, "loss: the label of row 1 is 4, the vocabulary has "
                            "4 entries");
    assert_int_equal(p.got.counted, 0);
    p.labels[1] = BT_IGNORE_INDEX - 1;
    bt_tape_rewind(tape, true);
    forward(&p, tape, 256);
    assert_tape_fails(tape, "loss: the label of row 1 is 4294967294, the "
                            "vocabulary has 4 entries");
    p.labels[1] = 0;
    p.smoothing = 1.5f;
    bt_tape_rewind(tape, true);
    forward(&p, tape, 256);
    assert_tape_fails(tape, "loss: smoothing is 1.5, not from 0 to 1");
    p.smoothing = 0;
    p.turned = true;
    bt_tape_rewind(tape, true);
    forward(&p, tape, 256);
    assert_tape_fails(tape, "loss: x has 2 columns, W takes 4");
    forward(&p, tape, 256); // it sticks, and asks for nothing
    test_tape_free(tape);
    problem_free(&p);
}

static void
each_allocation_fails_once_and_a_second_step_makes_none(void **state)
{
    (void)state;
    problem start = cases[3];
    problem_fill(&start);
    problem want = problem_copy(&start);
    bt_tape *reference = test_tape(NULL, 1, true);
    run(&want, reference, 16);
    faults_begin();
    bool failed = true;
    bt_tape *tape = NULL;
    for (size_t k = 0; failed; k++) {
        problem got = problem_copy(&start);
        test_tape_free(tape);
        tape = test_tape(NULL, 2, true);
        faults_arm(k);
        forward(&got, tape, 16);
        bauta_status status = bt_tape_backward(tape, NULL);
        bt_loss_read(tape, &got.got);
        failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        same_problem(failed ? &start : &want, &got);
        problem_free(&got);
    }
    problem again = problem_copy(&start);
    faults_arm(0);
    run(&again, tape, 16);
    assert_false(faults_disarm());
    same_problem(&want, &again);
    problem_free(&again);
    test_tape_free(tape);
    assert_int_equal(faults_end(), 0);
    test_tape_free(reference);
    problem_free(&want);
    problem_free(&start);
}

static void memory_does_not_hold_all_logits(void **state)
{
    (void)state;
    problem p = { .rows = 6000, .width = 4, .vocabulary = 5000, .weight = 1 };
    problem_fill(&p);
    bt_tape *tape = test_tape(NULL, 2, false);
    p.got = bt_op_cross_entropy(tape, &p.x, &p.w, false, NULL, 0, p.labels,
                                NULL, 0, 1);
    assert_int_equal(p.got.counted, 6000);
    assert_true(bt_tape_bytes(tape) < p.rows * p.vocabulary); // and not x 4
    test_tape_free(tape);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_and_gradients_stay_within_their_bounds),
        cmocka_unit_test(the_formula_is_the_slope_of_the_loss),
        cmocka_unit_test(chunks_change_no_bit),
        cmocka_unit_test(a_weight_of_one_changes_no_bit),
        cmocka_unit_test(threads_and_instruction_sets_change_no_bit),
        cmocka_unit_test(a_part_of_a_larger_matrix_gives_the_same_bits),
        cmocka_unit_test(without_recording_the_loss_is_the_same),
        cmocka_unit_test(ignored_rows_change_no_bit),
        cmocka_unit_test(an_ignored_row_of_a_new_gradient_is_zero),
        cmocka_unit_test(without_labels_the_loss_is_zero),
        cmocka_unit_test(a_loss_without_backward_moves_no_gradient),
        cmocka_unit_test(parts_weighted_by_their_share_are_the_whole),
        cmocka_unit_test(nan_in_a_row_that_counts_is_not_hidden),
        cmocka_unit_test(an_entry_at_minus_infinity_takes_no_part),
        cmocka_unit_test(wrong_arguments_are_an_error),
        cmocka_unit_test(
            each_allocation_fails_once_and_a_second_step_makes_none),
        cmocka_unit_test(memory_does_not_hold_all_logits),
    };
    randoms = test_random_from(test_seed());
    return cmocka_run_group_tests_name("loss", tests, NULL, NULL);
}
