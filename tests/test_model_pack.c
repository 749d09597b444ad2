/* SPDX-License-Identifier: Apache-2.0 */
/* test_model_pack.c - models of every family with their matrices as bfloat16 or
 * int8. */
#include "allocation_faults.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/packed_weight.h"
#include "base/error.h"
#include "model/api.h"
#include "tensor/tensor.h"
#include "tiny_models.h"

#include <math.h>

enum { COUNT = 3, ROWS = 28, VOCAB = 40 };

static const size_t lengths[COUNT] = { 15, 1, 12 };

/* A folder of one family, and a model's logits for a batch. */
typedef struct subject {
    temp_folder temp_folder;
    char path[512];
    uint32_t ids[ROWS], labels[ROWS];
} subject;

typedef float logits[ROWS * VOCAB];

static bauta_model *load(const subject *s, bool trainable)
{
    bauta_model *model = NULL;
    bauta_error err;
    if (bauta_model_load(&model, s->path, trainable, &err))
        fail_msg("%s", err.message);
    return model;
}

static bauta_model *load_compressed(const subject *s, bauta_dtype weights)
{
    bauta_model *model = load(s, false);
    bauta_error err;
    if (bauta_model_pack(model, weights, &err))
        fail_msg("%s", err.message);
    return model;
}

static bauta_context *context_create(const char *isa, int threads)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_context *context = NULL;
    options.isa = isa;
    options.threads = threads;
    assert_int_equal(bauta_context_create(&context, &options, NULL), 0);
    return context;
}

/* Sequences from `first` on; rows of logits lie where their tokens do. */
static void forward(bauta_context *context, const subject *s,
                    const bauta_model *model, size_t first, size_t count,
                    float *to)
{
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bauta_error err;
    size_t at = 0;
    for (size_t i = 0; i < first; i++)
        at += lengths[i];
    batch.count = count;
    batch.lengths = lengths + first;
    batch.ids = s->ids + at;
    outputs.logits = to + at * VOCAB;
    bool source = bauta_model_encoder_layers(model) > 0;
    bool target = bauta_model_decoder_layers(model) > 0;
    if (bauta_model_forward(context, model, source ? &batch : NULL,
                            target ? &batch : NULL, &outputs, &err))
        fail_msg("%s", err.message);
}

static void run(const subject *s, const bauta_model *model, const char *isa,
                int threads, float *to)
{
    bauta_context *context = context_create(isa, threads);
    forward(context, s, model, 0, COUNT, to);
    bauta_context_free(context);
}

static void assert_bits(const subject *s, const float *want, const float *got)
{
    for (size_t i = 0; i < ROWS * VOCAB; i++)
        if (memcmp(&want[i], &got[i], sizeof(float)))
            fail_msg("%s: logit %zu: want %a, got %a", s->path, i,
                     (double)want[i], (double)got[i]);
}

static void each_family(void (*test)(subject *s))
{
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        subject s = { .temp_folder = temp_folder_create() };
        test_random r = test_random_from(5);
        tiny_write(&s.temp_folder, &tinies[i], s.path);
        for (size_t j = 0; j < ROWS; j++) {
            s.ids[j] = (uint32_t)test_below(&r, VOCAB);
            s.labels[j] = (uint32_t)test_below(&r, VOCAB);
        }
        test(&s);
        temp_folder_free(&s.temp_folder);
    }
}

/* Whether a tensor is one of those that are packed. */
static bool is_matrix(const bauta_tensor *t)
{
    return t->rank == 2 && !strstr(t->name, "position") &&
           !strstr(t->name, "relative") && !strstr(t->name, "wpe") &&
           !strstr(t->name, "token_type") &&
           !strstr(t->name, "final_logits_bias");
}

static bauta_tensor tensor_at(const bauta_model *model, size_t index)
{
    bauta_tensor t = BAUTA_TENSOR_INIT;
    assert_int_equal(bauta_model_tensor(model, index, &t, NULL), 0);
    return t;
}

/* ---- float32 ----------------------------------------------------------- */

static void test_plain(subject *s)
{
    static logits want, got;
    bauta_model *plain = load(s, false);
    bauta_model *model = load_compressed(s, BAUTA_FLOAT32);
    run(s, plain, NULL, 1, want);
    run(s, model, NULL, 1, got);
    assert_bits(s, want, got);
    bauta_model_free(plain);
    bauta_model_free(model);
}

static void float32_equals_the_original_model(void **state)
{
    (void)state;
    each_family(test_plain);
}

/* ---- bfloat16 ---------------------------------------------------------- */

static void round_tensor(const bauta_tensor *t)
{
    unsigned char half[2];
    for (size_t i = 0; i < t->count; i++) {
        assert_true(bt_convert_from_f32(half, BAUTA_BFLOAT16, &t->data[i], 1));
        assert_true(bt_convert_f32(&t->writable[i], half, BAUTA_BFLOAT16, 1));
    }
}

/* The float32 model with its matrices rounded. */
static bauta_model *load_rounded(const subject *s)
{
    bauta_model *model = load(s, true);
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        bauta_tensor t = tensor_at(model, i);
        if (is_matrix(&t))
            round_tensor(&t);
    }
    return model;
}

static double loss_of(const subject *s, bauta_model *model)
{
    bauta_context *context = context_create(NULL, 2);
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_error err;
    double loss = NAN;
    batch.count = COUNT;
    batch.lengths = lengths;
    batch.ids = s->ids;
    bool source = bauta_model_encoder_layers(model) > 0;
    bool target = bauta_model_decoder_layers(model) > 0;
    if (bauta_model_loss(context, model, source ? &batch : NULL,
                         target ? &batch : NULL, s->labels, NULL, &loss, NULL,
                         &err))
        fail_msg("%s", err.message);
    bauta_context_free(context);
    return loss;
}

static void test_rounded(subject *s)
{
    static logits want, got;
    bauta_model *rounded = load_rounded(s);
    bauta_model *model = load_compressed(s, BAUTA_BFLOAT16);
    run(s, rounded, NULL, 1, want);
    run(s, model, NULL, 1, got);
    assert_bits(s, want, got);
    assert_true(loss_of(s, rounded) == loss_of(s, model));
    bauta_model_free(rounded);
    bauta_model_free(model);
}

static void bfloat16_equals_a_float32_model_of_rounded_weights(void **state)
{
    (void)state;
    each_family(test_rounded);
}

/* ---- int8 -------------------------------------------------------------- */

/* Every output of a matrix as int8 times its scale. */
static void quantize_tensor(const bauta_tensor *t, bool turned)
{
    static _Alignas(64) int8_t panels[128 * 128];
    float scales[128], row[128];
    size_t outputs = turned ? t->shape[1] : t->shape[0];
    size_t inputs = turned ? t->shape[0] : t->shape[1];
    bt_packed_weight c = { BAUTA_INT8, outputs, inputs, panels, scales };
    assert_true(outputs <= 128 && inputs <= 128);
    for (size_t p = 0; p < bt_packed_weight_panels(outputs); p++)
        assert_true(bt_packed_weight_pack(&c, p, t->data, t->shape[1], turned));
    for (size_t j = 0; j < outputs; j++) {
        bt_packed_weight_row(row, &c, j, 1.0f);
        for (size_t p = 0; p < inputs; p++)
            t->writable[turned ? p * outputs + j : j * inputs + p] = row[p];
    }
}

/* Scaling once after the chain or every weight before it: float32 rounds in
 * other places, some units of 2^-24 a step, over some ten steps of layers. */
static void test_near(subject *s)
{
    static logits want, got;
    bauta_model *near = load(s, true);
    bauta_model *model = load_compressed(s, BAUTA_INT8);
    bool gpt2 = strstr(s->path, "gpt2");
    for (size_t i = 0; i < bauta_model_tensor_count(near); i++) {
        bauta_tensor t = tensor_at(near, i);
        if (is_matrix(&t))
            quantize_tensor(&t, gpt2 && !strstr(t.name, "wte"));
    }
    run(s, near, NULL, 1, want);
    run(s, model, NULL, 1, got);
    for (size_t i = 0; i < ROWS * VOCAB; i++)
        if (fabsf(want[i] - got[i]) > 2e-5f * (1.0f + fabsf(want[i])))
            fail_msg("%s: logit %zu: want about %g, got %g", s->path, i,
                     (double)want[i], (double)got[i]);
    assert_true(fabs(loss_of(s, near) - loss_of(s, model)) < 1e-4);
    bauta_model_free(near);
    bauta_model_free(model);
}

static void int8_is_near_a_float32_model_of_its_weights(void **state)
{
    (void)state;
    each_family(test_near);
}

/* ---- threads, ISA and layout ------------------------------------------- */

static void test_circumstances(subject *s)
{
    static logits want, got;
    for (bauta_dtype w = BAUTA_FLOAT32; w <= BAUTA_INT8; w++) {
        const char *names[8];
        size_t count = bt_kernels_names(names, BT_LEN(names));
        bauta_model *model = load_compressed(s, w);
        run(s, model, "c", 1, want);
        for (size_t i = 0; i < count; i++)
            for (int threads = 1; threads <= 4; threads += 3) {
                run(s, model, names[i], threads, got);
                assert_bits(s, want, got);
            }
        memset(got, 0, sizeof(got));
        bauta_context *context = context_create(NULL, 2);
        for (size_t i = 0; i < COUNT; i++)
            forward(context, s, model, i, 1, got);
        bauta_context_free(context);
        assert_bits(s, want, got);
        bauta_model_free(model);
    }
}

static void threads_isa_and_layout_change_no_bit(void **state)
{
    (void)state;
    each_family(test_circumstances);
}

static void test_tensors(subject *s)
{
    for (bauta_dtype w = BAUTA_FLOAT32; w <= BAUTA_INT8; w++) {
        bauta_model *plain = load(s, false), *model = load_compressed(s, w);
        assert_int_equal(bauta_model_dtype(plain), BAUTA_FLOAT32);
        assert_int_equal(bauta_model_dtype(model), w);
        assert_int_equal(bauta_model_parameter_count(plain),
                         bauta_model_parameter_count(model));
        for (size_t i = 0; i < bauta_model_tensor_count(plain); i++) {
            bauta_tensor a = tensor_at(plain, i), b = tensor_at(model, i);
            assert_string_equal(a.name, b.name);
            assert_int_equal(a.count, b.count);
            assert_null(b.writable);
            if (is_matrix(&a))
                assert_null(b.data);
            else
                assert_memory_equal(a.data, b.data, a.count * sizeof(float));
        }
        assert_null(model->store->files); // the mapping is gone
        bauta_model_free(plain);
        bauta_model_free(model);
    }
}

static void only_float32_tensors_have_data(void **state)
{
    (void)state;
    each_family(test_tensors);
}

/* ---- refusals ---------------------------------------------------------- */

static void expect_refusal(bauta_model *model, bauta_dtype weights,
                           const char *text)
{
    bauta_error err;
    bauta_dtype before = bauta_model_dtype(model);
    assert_true(bauta_model_pack(model, weights, &err));
    if (!strstr(err.message, text))
        fail_msg("'%s' does not say '%s'", err.message, text);
    assert_int_equal(bauta_model_dtype(model), before);
}

static void test_refusals(subject *s)
{
    bauta_model *trained = load(s, true);
    expect_refusal(trained, BAUTA_INT8, "read-only");
    expect_refusal(trained, BAUTA_FLOAT32, "read-only");
    bauta_model *model = load(s, false);
    expect_refusal(model, (bauta_dtype)3, "dtype is 3");
    expect_refusal(model, (bauta_dtype)-1, "not a known type");
    assert_int_equal(bauta_model_pack(model, BAUTA_INT8, NULL), 0);
    assert_int_equal(bauta_model_pack(model, BAUTA_INT8, NULL), 0);
    expect_refusal(model, BAUTA_FLOAT32, "already packed as int8");
    expect_refusal(model, BAUTA_BFLOAT16, "as bfloat16");
    assert_int_equal(bauta_model_pack(NULL, BAUTA_INT8, NULL),
                     BAUTA_ERR_ARGUMENT);
    bauta_model_free(trained);
    bauta_model_free(model);
}

static void models_that_cannot_be_packed_are_refused(void **state)
{
    (void)state;
    each_family(test_refusals);
}

static void test_saving(subject *s)
{
    char path[600];
    bauta_error err;
    bauta_model *model = load_compressed(s, BAUTA_BFLOAT16);
    snprintf(path, sizeof(path), "%s/saved", s->temp_folder.folder);
    assert_int_equal(bauta_model_save(model, path, &err), BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "bfloat16"));
    assert_int_equal(temp_folder_count(&s->temp_folder), 1); // its own folder
    bauta_model_free(model);
}

static void a_packed_model_cannot_be_saved(void **state)
{
    (void)state;
    each_family(test_saving);
}

/* A weight of the last matrix that is not finite: int8 fails, names the tensor
 * and leaves the model unchanged; bfloat16 accepts it. */
static void test_infinity(subject *s)
{
    char path[600];
    bauta_error err;
    bauta_model *trained = load(s, true);
    bauta_tensor t = BAUTA_TENSOR_INIT, last = BAUTA_TENSOR_INIT;
    for (size_t i = 0; i < bauta_model_tensor_count(trained); i++) {
        t = tensor_at(trained, i);
        if (is_matrix(&t))
            last = t;
    }
    last.writable[last.count - 1] = INFINITY;
    snprintf(path, sizeof(path), "%s/odd", s->temp_folder.folder);
    assert_int_equal(bauta_model_save(trained, path, NULL), 0);
    bauta_model *model = NULL;
    assert_int_equal(bauta_model_load(&model, path, false, NULL), 0);
    assert_int_equal(bauta_model_pack(model, BAUTA_INT8, &err),
                     BAUTA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, last.name));
    assert_non_null(tensor_at(model, 0).data);
    assert_int_equal(bauta_model_pack(model, BAUTA_BFLOAT16, &err), 0);
    bauta_model_free(model);
    bauta_model_free(trained);
}

static void int8_refuses_weights_that_are_not_finite(void **state)
{
    (void)state;
    each_family(test_infinity);
}

static void test_faults(subject *s)
{
    static logits want, got;
    for (bauta_dtype w = BAUTA_FLOAT32; w <= BAUTA_INT8; w++) {
        faults_begin();
        bauta_model *model = load(s, false);
        run(s, model, NULL, 1, want);
        for (size_t k = 0;; k++) {
            size_t live = faults_live();
            faults_arm(k);
            bauta_status status = bauta_model_pack(model, w, NULL);
            if (!faults_disarm())
                break;
            assert_int_equal(status, BAUTA_ERR_NOMEM);
            assert_int_equal(faults_live(), live);
            run(s, model, NULL, 1, got);
            assert_bits(s, want, got); // the model is unchanged
        }
        assert_int_equal(bauta_model_dtype(model), w);
        bauta_model_free(model);
        assert_int_equal(faults_end(), 0);
    }
}

static void every_failed_allocation_leaves_the_model_unchanged(void **state)
{
    (void)state;
    each_family(test_faults);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float32_equals_the_original_model),
        cmocka_unit_test(bfloat16_equals_a_float32_model_of_rounded_weights),
        cmocka_unit_test(int8_is_near_a_float32_model_of_its_weights),
        cmocka_unit_test(threads_isa_and_layout_change_no_bit),
        cmocka_unit_test(only_float32_tensors_have_data),
        cmocka_unit_test(models_that_cannot_be_packed_are_refused),
        cmocka_unit_test(a_packed_model_cannot_be_saved),
        cmocka_unit_test(int8_refuses_weights_that_are_not_finite),
        cmocka_unit_test(every_failed_allocation_leaves_the_model_unchanged),
    };
    test_seed();
    return cmocka_run_group_tests_name("model_pack", tests, NULL, NULL);
}
