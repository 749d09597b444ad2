/* SPDX-License-Identifier: Apache-2.0 */
/* test_optimizer.c - AdamW against its formula in double within derived bounds,
 * against PyTorch, and the same bits for any threads and ISA. */
#include "allocation_faults.h"
#include "base/error.h"
#include "data/adamw.h"
#include "parameters.h"
#include "train/optimizer.h"

static test_random randoms;

/* ---- The formula in double ----------------------------------------------- */

typedef struct bounded {
    double value, bound;
} bounded;

/* One element before a step and after it. */
typedef struct element {
    double p, m, v, g;
    bounded new_p, new_m, new_v;
} element;

/* The step as pointwise.h writes it. With u = 2^-24, and every constant rounded
 * once, which is part of what is counted:
 *
 * - g: the scale and the product: 2 u |g|.
 * - m: w (g - m) has the error of g, of w and of the difference; the fused sum
 *   rounds once more.
 * - v: its terms are positive, so errors are relative: 2 u for v beta2; for
 *   w g g twice that of g, one each for w and w g, which makes 6 u; the fused
 *   sum one more: 7 u.
 * - The denominator: half of that, one each for the square root, the constant
 *   and the division; the constant epsilon and the sum: 8.5 u.
 * - p: the error of m, carried through; that of the denominator, and one each
 *   for step, product and quotient; p keep has two, the difference one.
 *
 * The factor 1.01 covers products of errors. */
static void exact_step(element *e, const bt_optimizer_options *o, double rate,
                       double decay, size_t t, double scale)
{
    const double u = 0x1p-24;
    double g = e->g * scale, w1 = 1 - o->beta1, w2 = 1 - o->beta2;
    double m = e->m + w1 * (g - e->m), v = o->beta2 * e->v + w2 * g * g;
    double size = sqrt(v) / sqrt(1 - pow(o->beta2, (double)t)) + o->epsilon;
    double step = rate / (1 - pow(o->beta1, (double)t));
    double p = e->p * (1 - rate * decay) - step * m / size;
    double g_error = 2 * u * fabs(g);
    double m_error =
        w1 * (g_error + 2 * u * (fabs(g) + fabs(e->m))) + u * fabs(m);
    double v_relative = 7 * u;
    double size_relative = v_relative / 2 + 5 * u;
    double p_error = step * m_error / size +
                     (size_relative + 3 * u) * fabs(step * m / size) +
                     u * (2 * fabs(e->p) + fabs(p));
    e->new_m = (bounded){ m, 1.01 * m_error };
    e->new_v = (bounded){ v, 1.01 * v_relative * v };
    e->new_p = (bounded){ p, 1.01 * p_error };
}

static double worst; /* error as a share of its bound, over all tests */

static void within(const char *what, size_t at, bounded want, float got)
{
    double error = fabs((double)got - want.value);
    if (want.bound > 0.0 && error / want.bound > worst)
        worst = error / want.bound;
    if (!(error <= want.bound))
        fail_msg("%s[%zu] is %.9g, want %.9g within %.3g", what, at,
                 (double)got, want.value, want.bound);
}

/* ---- A small model ------------------------------------------------------- */

enum { PARAMETERS = 4 };

typedef struct model {
    bt_tensor tensors[PARAMETERS];
    bt_parameter list[PARAMETERS];
    bt_stream *stream;
    bt_optimizer *optimizer;
} model;

/* The moments of a parameter. */
static float *first_moment(const bt_optimizer *optimizer, size_t parameter)
{
    return (float *)bt_optimizer_moments(optimizer)->memory +
           bt_optimizer_first_moment(optimizer, parameter);
}

static float *second_moment(const bt_optimizer *optimizer, size_t parameter)
{
    return (float *)bt_optimizer_moments(optimizer)->memory +
           bt_optimizer_second_moment(optimizer, parameter);
}

/* Take a step that must succeed; returns the norm. */
static double optimizer_step(bt_optimizer *optimizer, double rate)
{
    double norm = -1.0;
    assert_int_equal(bt_optimizer_step(optimizer, rate, &norm, NULL), 0);
    return norm;
}

static const bt_optimizer_options defaults = BT_OPTIMIZER_OPTIONS_INIT;

static void model_link(model *m, const bt_optimizer_options *options,
                       const char *isa, int threads)
{
    m->stream = test_stream(isa, threads);
    for (size_t i = 0; i < PARAMETERS; i++)
        m->list[i] =
            (bt_parameter){ .tensor = &m->tensors[i], .decay = i % 2 == 0 };
    assert_int_equal(bt_optimizer_create(&m->optimizer, m->stream, m->list,
                                         PARAMETERS, options, NULL),
                     0);
}

/* Filled in place, since the list holds pointers into the model. */
static void model_init(model *m, const bt_optimizer_options *options,
                       const char *isa, int threads)
{
    static const size_t shapes[PARAMETERS][2] = {
        { 300, 257 }, { 1, 17 }, { 0, 5 }, { 1, 32768 }
    };
    for (size_t i = 0; i < PARAMETERS; i++)
        m->tensors[i] = parameter_create(&randoms, shapes[i][0], shapes[i][1]);
    model_link(m, options, isa, threads);
}

static void model_init_copy(model *m, const model *from,
                            const bt_optimizer_options *options,
                            const char *isa, int threads)
{
    for (size_t i = 0; i < PARAMETERS; i++)
        m->tensors[i] = parameter_copy(&from->tensors[i]);
    model_link(m, options, isa, threads);
}

static void model_release(model *m)
{
    for (size_t i = 0; i < PARAMETERS; i++)
        parameter_free(&m->tensors[i]);
    bt_optimizer_free(m->optimizer);
    test_stream_free(m->stream);
}

static void same_model(const model *want, const model *got)
{
    for (size_t i = 0; i < PARAMETERS; i++) {
        size_t n = tensor_count(&want->tensors[i]);
        assert_int_equal(floats_differ(tensor_data(&want->tensors[i]),
                                       tensor_data(&got->tensors[i]), n),
                         n);
        assert_int_equal(floats_differ(first_moment(want->optimizer, i),
                                       first_moment(got->optimizer, i), n),
                         n);
        assert_int_equal(floats_differ(second_moment(want->optimizer, i),
                                       second_moment(got->optimizer, i), n),
                         n);
    }
    assert_int_equal(bt_optimizer_steps(want->optimizer),
                     bt_optimizer_steps(got->optimizer));
}

/* A gradient like that of step t of a training, the same for all models. */
static void model_gradients(model *m, uint64_t t)
{
    test_random r = test_random_from(t);
    for (size_t i = 0; i < PARAMETERS; i++)
        floats_fill(&r, tensor_gradient(&m->tensors[i]),
                    tensor_count(&m->tensors[i]));
}

/* ---- Against the formula ------------------------------------------------- */

static double exact_norm(const model *m)
{
    double sum = 0.0;
    for (size_t i = 0; i < PARAMETERS; i++)
        for (size_t j = 0; j < tensor_count(&m->tensors[i]); j++)
            sum += (double)tensor_gradient(&m->tensors[i])[j] *
                   (double)tensor_gradient(&m->tensors[i])[j];
    return sqrt(sum);
}

static element *elements_before(const model *m, size_t parameter)
{
    const bt_tensor *t = &m->tensors[parameter];
    element *e = calloc(tensor_count(t) + 1, sizeof(*e));
    assert_non_null(e);
    for (size_t j = 0; j < tensor_count(t); j++) {
        e[j].p = (double)tensor_data(t)[j];
        e[j].m = (double)first_moment(m->optimizer, parameter)[j];
        e[j].v = (double)second_moment(m->optimizer, parameter)[j];
        e[j].g = (double)tensor_gradient(t)[j];
    }
    return e;
}

static void check_step(model *m, const bt_optimizer_options *o, size_t t)
{
    element *e[PARAMETERS];
    double norm = exact_norm(m), rate = 0.003 * (double)t;
    double scale =
        o->max_grad_norm > 0 ? fmin(1, o->max_grad_norm / (norm + 1e-6)) : 1.0;
    for (size_t i = 0; i < PARAMETERS; i++) {
        e[i] = elements_before(m, i);
        for (size_t j = 0; j < tensor_count(&m->tensors[i]); j++)
            exact_step(&e[i][j], o, rate, i % 2 == 0 ? o->weight_decay : 0.0, t,
                       scale);
    }
    double got = optimizer_step(m->optimizer, rate);
    assert_true(fabs(got - norm) <= 1e-10 * norm); // a sum in double
    for (size_t i = 0; i < PARAMETERS; i++) {
        for (size_t j = 0; j < tensor_count(&m->tensors[i]); j++) {
            within("p", j, e[i][j].new_p, tensor_data(&m->tensors[i])[j]);
            within("m", j, e[i][j].new_m, first_moment(m->optimizer, i)[j]);
            within("v", j, e[i][j].new_v, second_moment(m->optimizer, i)[j]);
        }
        free(e[i]);
    }
}

static void steps_stay_within_their_bounds(void **state)
{
    (void)state;
    static const bt_optimizer_options options[] = {
        BT_OPTIMIZER_OPTIONS_INIT,
        { 0.9, 0.95, 1e-8, 0.1, 1.0 },
        { 0.3, 0.5, 1e-3, 0.0, 1e9 },
        { 0.0, 0.0, 1e-8, 0.0, 0.0 },
    };
    worst = 0.0;
    for (size_t i = 0; i < BT_LEN(options); i++) {
        model m;
        model_init(&m, &options[i], NULL, 2);
        for (size_t t = 1; t <= 4; t++) {
            model_gradients(&m, t);
            check_step(&m, &options[i], t);
        }
        model_release(&m);
    }
    printf("largest error: %.3f of its bound\n", worst);
}

/* ---- Against PyTorch ----------------------------------------------------- */

/* From the state before a step to the state after it, bit for bit. The order of
 * operations happens to be PyTorch's, except for the norm, which PyTorch
 * computes in float32: 19 squares and their sum, the root, and the norm of the
 * list of norms are fewer than 32 roundings. */
static void check_torch_step(bt_tensor *t, bt_optimizer *optimizer, size_t step)
{
    float *m = first_moment(optimizer, 0);
    float *v = second_moment(optimizer, 0);
    memcpy(tensor_data(t), adamw_p[step], sizeof(adamw_p[0]));
    memcpy(tensor_gradient(t), adamw_gradient[step], sizeof(adamw_p[0]));
    memcpy(m, adamw_m[step], sizeof(adamw_p[0]));
    memcpy(v, adamw_v[step], sizeof(adamw_p[0]));
    bt_optimizer_set_steps(optimizer, step);
    double norm = optimizer_step(optimizer, adamw_rate);
    assert_true(fabs(norm - adamw_norm[step]) <= 32 * 0x1p-24 * norm);
    step++;
    assert_int_equal(floats_differ(adamw_p[step], tensor_data(t), ADAMW_COUNT),
                     ADAMW_COUNT);
    assert_int_equal(floats_differ(adamw_m[step], m, ADAMW_COUNT), ADAMW_COUNT);
    assert_int_equal(floats_differ(adamw_v[step], v, ADAMW_COUNT), ADAMW_COUNT);
}

static void steps_equal_pytorch(void **state)
{
    (void)state;
    bt_optimizer_options options = { adamw_beta1, adamw_beta2, adamw_epsilon,
                                     adamw_decay, adamw_clip };
    bt_tensor t = parameter_create(&randoms, 1, ADAMW_COUNT);
    bt_parameter list = { .tensor = &t, .decay = true };
    bt_stream *stream = test_stream(NULL, 1);
    bt_optimizer *optimizer;
    assert_int_equal(
        bt_optimizer_create(&optimizer, stream, &list, 1, &options, NULL), 0);
    for (size_t step = 0; step < ADAMW_STEPS; step++)
        check_torch_step(&t, optimizer, step);
    bt_optimizer_free(optimizer);
    test_stream_free(stream);
    parameter_free(&t);
}

/* ---- The same bits ------------------------------------------------------- */

static void train(model *m, size_t from, size_t to)
{
    for (size_t t = from; t < to; t++) {
        model_gradients(m, t);
        optimizer_step(m->optimizer, 0.01);
    }
}

static void threads_and_instruction_sets_change_no_bit(void **state)
{
    (void)state;
    const char *names[8];
    size_t count = bt_kernels_names(names, BT_LEN(names));
    bt_optimizer_options clipped = defaults;
    clipped.max_grad_norm = 1.0;
    model want, start;
    model_init(&start, &clipped, "c", 1);
    model_init_copy(&want, &start, &clipped, "c", 1);
    train(&want, 0, 3);
    for (size_t i = 0; i < count; i++)
        for (int threads = 1; threads <= 4; threads *= 2) {
            model got;
            model_init_copy(&got, &start, &clipped, names[i], threads);
            train(&got, 0, 3);
            same_model(&want, &got);
            model_release(&got);
        }
    model_release(&want);
    model_release(&start);
}

static void a_resumed_run_gives_the_same_bits(void **state)
{
    (void)state;
    model whole, first, second;
    model_init(&whole, &defaults, NULL, 2);
    model_init_copy(&first, &whole, &defaults, NULL, 2);
    train(&whole, 0, 5);
    train(&first, 0, 2);
    model_init_copy(&second, &first, &defaults, NULL, 2);
    bt_optimizer_set_steps(second.optimizer,
                           bt_optimizer_steps(first.optimizer));
    for (size_t i = 0; i < PARAMETERS; i++) {
        size_t bytes = tensor_count(&first.tensors[i]) * sizeof(float);
        memcpy(first_moment(second.optimizer, i),
               first_moment(first.optimizer, i), bytes);
        memcpy(second_moment(second.optimizer, i),
               second_moment(first.optimizer, i), bytes);
    }
    train(&second, 2, 5);
    same_model(&whole, &second);
    model_release(&whole);
    model_release(&first);
    model_release(&second);
}

/* ---- Edges --------------------------------------------------------------- */

static void a_gradient_that_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    static const float odd[] = { NAN, INFINITY, -INFINITY };
    model m, start;
    model_init(&start, &defaults, NULL, 2);
    model_init_copy(&m, &start, &defaults, NULL, 2);
    for (size_t i = 0; i < BT_LEN(odd); i++) {
        model_gradients(&m, 1);
        tensor_gradient(&m.tensors[0])[40000] = odd[i];
        double norm = optimizer_step(m.optimizer, 0.01);
        assert_true(!isfinite(norm));
        same_model(&start, &m);
    }
    model_release(&m);
    model_release(&start);
}

static void zero_clears_every_gradient(void **state)
{
    (void)state;
    model m, before;
    model_init(&m, &defaults, NULL, 2);
    assert_int_equal(bt_optimizer_zero(m.optimizer, NULL), 0);
    for (size_t i = 0; i < PARAMETERS; i++)
        for (size_t j = 0; j < tensor_count(&m.tensors[i]); j++)
            assert_int_equal(float_bits(tensor_gradient(&m.tensors[i])[j]), 0);
    // A step with them moves what decays, and divides nothing by 0.
    model_init_copy(&before, &m, &defaults, NULL, 2);
    assert_true(optimizer_step(m.optimizer, 0.5) == 0.0);
    assert_int_equal(floats_differ(tensor_data(&before.tensors[1]),
                                   tensor_data(&m.tensors[1]), 17),
                     17);
    assert_true(tensor_data(&m.tensors[0])[0] ==
                tensor_data(&before.tensors[0])[0] * 0.995f);
    model_release(&m);
    model_release(&before);
}

static void wrong_arguments_are_an_error(void **state)
{
    (void)state;
    bt_tensor t = parameter_create(&randoms, 1, 2);
    bt_tensor bare = input_create(&randoms, 1, 2);
    bt_parameter list[] = { { .tensor = &t, .decay = true },
                            { .tensor = &bare, .decay = true } };
    bt_optimizer_options wrong = defaults;
    bt_stream *stream = test_stream(NULL, 2);
    bt_optimizer *optimizer = NULL;
    bauta_error err;
    assert_int_equal(
        bt_optimizer_create(&optimizer, stream, list, 2, &defaults, &err),
        BAUTA_ERR_ARGUMENT);
    assert_null(optimizer);
    assert_string_equal(err.message, "optimizer: parameter 1 has no gradient");
    t.stride = 7;
    assert_int_equal(
        bt_optimizer_create(&optimizer, stream, list, 1, &defaults, &err),
        BAUTA_ERR_ARGUMENT);
    assert_string_equal(err.message,
                        "optimizer: parameter 0 is a view of a larger "
                        "tensor, with a row stride of 7");
    t.stride = 2;
    wrong.beta2 = 1.0;
    assert_int_equal(
        bt_optimizer_create(&optimizer, stream, list, 1, &wrong, &err),
        BAUTA_ERR_ARGUMENT);
    assert_string_equal(err.message, "beta2 is 1, not from 0 to below 1");
    wrong = defaults;
    wrong.max_grad_norm = NAN;
    assert_int_equal(
        bt_optimizer_create(&optimizer, stream, list, 1, &wrong, &err),
        BAUTA_ERR_ARGUMENT);
    assert_int_equal(
        bt_optimizer_create(&optimizer, stream, NULL, 0, &defaults, &err), 0);
    assert_true(optimizer_step(optimizer, 1) == 0);
    bt_optimizer_free(optimizer);
    bt_optimizer_free(NULL);
    test_stream_free(stream);
    parameter_free(&t);
    input_free(&bare);
}

/* The first step also allocates the workspace of the stream. */
static void
each_allocation_fails_once_and_a_second_step_makes_none(void **state)
{
    (void)state;
    model m;
    double norm;
    faults_begin();
    model_init(&m, &defaults, NULL, 2);
    bt_optimizer_free(m.optimizer);
    size_t live = faults_live();
    bool failed = true;
    for (size_t k = 0; failed; k++) {
        faults_arm(k);
        bauta_status status = bt_optimizer_create(
            &m.optimizer, m.stream, m.list, PARAMETERS, &defaults, NULL);
        failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        if (failed) {
            assert_null(m.optimizer);
            assert_int_equal(faults_live(), live);
        }
    }
    faults_arm(0);
    assert_int_equal(bt_optimizer_step(m.optimizer, 0.01, &norm, NULL),
                     BAUTA_ERR_NOMEM);
    assert_true(faults_disarm());
    assert_int_equal(bt_optimizer_steps(m.optimizer), 0);
    optimizer_step(m.optimizer, 0.01);
    faults_arm(0);
    optimizer_step(m.optimizer, 0.01);
    assert_int_equal(bt_optimizer_zero(m.optimizer, NULL), 0);
    assert_false(faults_disarm());
    assert_int_equal(bt_optimizer_steps(m.optimizer), 2);
    model_release(&m);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_stay_within_their_bounds),
        cmocka_unit_test(steps_equal_pytorch),
        cmocka_unit_test(threads_and_instruction_sets_change_no_bit),
        cmocka_unit_test(a_resumed_run_gives_the_same_bits),
        cmocka_unit_test(a_gradient_that_is_not_finite_changes_nothing),
        cmocka_unit_test(zero_clears_every_gradient),
        cmocka_unit_test(wrong_arguments_are_an_error),
        cmocka_unit_test(
            each_allocation_fails_once_and_a_second_step_makes_none),
    };
    randoms = test_random_from(test_seed());
    return cmocka_run_group_tests_name("optimizer", tests, NULL, NULL);
}
