/* SPDX-License-Identifier: Apache-2.0 */
/* test_api_errors.c - models used wrongly, and without memory: every misuse
 * returns a status and a message, and nothing leaks. */
#include "allocation_faults.h"
#include "bauta.h"
#include "tiny_models.h"

#include <math.h>

/* Two models and the arguments of the calls; each case spoils one argument of a
 * fresh set. */
typedef struct call {
    bauta_context *context;
    bauta_model *model;
    bauta_batch source, target;
    const bauta_batch *source_arg, *target_arg;
    bauta_outputs outputs;
    const bauta_outputs *outputs_arg;
    bauta_loss_options options;
    uint32_t ids[2][12], types[12], labels[12];
    const uint32_t *labels_arg;
    size_t lengths[2][3];
    float logits[12 * 40], states[4 * 12 * 16];
    double loss;
    double *loss_arg;
    float label_weights[12], logprobs[12];
    float *logprobs_arg;
} call;

typedef struct fixture {
    temp_folder temp_folder;
    char paths[BT_LEN(tinies)][512];
    bauta_context *context;
    bauta_model *gpt2, *llama, *bert, *marian;
    bauta_mask *right, *wrong; /* (12, 12) and (12, 11) */
} fixture;

static fixture w;

static void call_init(call *c, bauta_model *model)
{
    *c = (call){ .context = w.context,
                 .model = model,
                 .source = BAUTA_BATCH_INIT,
                 .target = BAUTA_BATCH_INIT,
                 .outputs = BAUTA_OUTPUTS_INIT,
                 .options = BAUTA_LOSS_OPTIONS_INIT,
                 .lengths = { { 5, 3, 4 }, { 2, 6, 4 } } };
    bauta_batch *both[] = { &c->source, &c->target };
    for (size_t i = 0; i < 2; i++) {
        both[i]->count = 3;
        both[i]->lengths = c->lengths[i];
        both[i]->ids = c->ids[i];
        for (size_t k = 0; k < 12; k++)
            c->ids[i][k] = (uint32_t)(k + i);
    }
    bauta_model_kind kind = bauta_model_kind_of(model);
    c->source_arg = kind == BAUTA_DECODER_ONLY ? NULL : &c->source;
    c->target_arg = kind == BAUTA_ENCODER_ONLY ? NULL : &c->target;
    c->outputs.logits = c->logits;
    c->outputs_arg = &c->outputs;
    c->labels_arg = c->labels;
    c->loss_arg = &c->loss;
    c->logprobs_arg = c->logprobs;
}

static bauta_status call_forward(call *c, bauta_error *err)
{
    return bauta_model_forward(c->context, c->model, c->source_arg,
                               c->target_arg, c->outputs_arg, err);
}

static bauta_status call_loss(call *c, bauta_error *err)
{
    return bauta_model_loss(c->context, c->model, c->source_arg, c->target_arg,
                            c->labels_arg, &c->options, c->loss_arg, NULL, err);
}

static bauta_status call_logprobs(call *c, bauta_error *err)
{
    return bauta_model_logprobs(c->context, c->model, c->source_arg,
                                c->target_arg, c->labels_arg, c->logprobs_arg,
                                err);
}

/* ---- misuse -------------------------------------------------------------- */

typedef enum which { GPT2, LLAMA, BERT, MARIAN } which;

static bauta_model *model_of(which m)
{
    bauta_model *models[] = { w.gpt2, w.llama, w.bert, w.marian };
    return models[m];
}

#define SPOIL(name, ...)                \
    static void corrupt_##name(call *c) \
    {                                   \
        __VA_ARGS__;                    \
    }

SPOIL(context, c->context = NULL)
SPOIL(model, c->model = NULL)
SPOIL(outputs, c->outputs_arg = NULL)
SPOIL(outputs_size, c->outputs.size = 8)
SPOIL(nothing_asked, c->outputs.logits = NULL)
SPOIL(encoder_states, c->outputs.encoder_states = c->states)
SPOIL(decoder_states, c->outputs.decoder_states = c->states)
SPOIL(no_source, c->source_arg = NULL)
SPOIL(no_target, c->target_arg = NULL)
SPOIL(both, c->source_arg = &c->source; c->target_arg = &c->target)
SPOIL(swapped, c->target_arg = c->source_arg; c->source_arg = NULL)
SPOIL(size, c->target.size = 0; c->source.size = 0)
SPOIL(no_lengths, c->target.lengths = NULL; c->source.lengths = NULL)
SPOIL(no_ids, c->target.ids = NULL)
SPOIL(id, c->ids[1][3] = 40)
SPOIL(id_of_source, c->ids[0][8] = 4000000000u)
SPOIL(id_padded, c->target.stride = 6; c->target.count = 2;
      c->lengths[1][0] = 5; c->ids[1][7] = 77)
SPOIL(too_long, c->lengths[1][1] = 97)
SPOIL(too_long_source, c->lengths[0][2] = 97)
SPOIL(over_stride, c->target.stride = 4)
SPOIL(stride_too_long, c->target.stride = 97; c->target.lengths = NULL)
SPOIL(too_many_rows, c->target.stride = (size_t)1 << 31; c->target.count = 1)
SPOIL(rows_overflow, c->target.stride = SIZE_MAX; c->target.count = 2)
SPOIL(count_huge, c->target.stride = 1; c->target.count = (size_t)1 << 63;
      c->target.lengths = NULL)
SPOIL(lengths_overflow, c->lengths[1][0] = SIZE_MAX)
SPOIL(types_unknown, c->target.token_types = c->types)
SPOIL(type, c->source.token_types = c->types; c->types[4] = 2)
SPOIL(mask, c->target.mask = w.wrong)
SPOIL(mask_of_source, c->source.mask = w.wrong)
SPOIL(mask_not_padded, c->target.stride = 6; c->target.mask = w.right)
SPOIL(cross, c->target.cross_mask = w.wrong)
SPOIL(cross_useless, c->target.cross_mask = w.right)
SPOIL(cross_of_source, c->source.cross_mask = w.right)
SPOIL(counts, c->target.count = 2)
SPOIL(no_labels, c->labels_arg = NULL)
SPOIL(label, c->labels[2] = 40)
SPOIL(label_negative, c->labels[11] = UINT32_MAX - 1)
SPOIL(no_loss, c->loss_arg = NULL)
SPOIL(options_size, c->options.size = 1)
SPOIL(smoothing, c->options.label_smoothing = 1.5f)
SPOIL(smoothing_negative, c->options.label_smoothing = -0.1f)
SPOIL(smoothing_nan, c->options.label_smoothing = NAN)
SPOIL(weight, c->options.weight = INFINITY)
SPOIL(label_weight, c->label_weights[2] = NAN;
      c->options.label_weights = c->label_weights)
SPOIL(no_logprobs, c->logprobs_arg = NULL)

typedef bauta_status call_fn(call *c, bauta_error *err);

static const struct {
    which model;
    call_fn *run;
    void (*corrupt)(call *c);
    const char *message;
} misuses[] = {
    { GPT2, call_forward, corrupt_context, "context is NULL" },
    { GPT2, call_forward, corrupt_model, "model is NULL" },
    { GPT2, call_forward, corrupt_outputs, "outputs is NULL" },
    { GPT2, call_forward, corrupt_outputs_size,
      "outputs.size is 8, which no version of the struct has: start from "
      "BAUTA_OUTPUTS_INIT" },
    { GPT2, call_forward, corrupt_nothing_asked, "outputs asks for nothing" },
    { GPT2, call_forward, corrupt_encoder_states,
      "outputs asks for encoder_states of a model without an encoder" },
    { BERT, call_forward, corrupt_decoder_states,
      "outputs asks for decoder_states of a model without a decoder" },
    { GPT2, call_forward, corrupt_no_target,
      "target is NULL: a decoder-only model reads target" },
    { GPT2, call_forward, corrupt_both,
      "source is not NULL: a decoder-only model reads target" },
    { BERT, call_forward, corrupt_no_source,
      "source is NULL: an encoder-only model reads source" },
    { BERT, call_forward, corrupt_both,
      "target is not NULL: an encoder-only model reads source" },
    { BERT, call_forward, corrupt_swapped,
      "source is NULL: an encoder-only model reads source" },
    { MARIAN, call_forward, corrupt_no_source,
      "source is NULL: an encoder-decoder reads source and target" },
    { MARIAN, call_forward, corrupt_no_target,
      "target is NULL: an encoder-decoder reads source and target" },
    { GPT2, call_forward, corrupt_size,
      "target.size is 0, which no version of the struct has: start from "
      "BAUTA_BATCH_INIT" },
    { MARIAN, call_forward, corrupt_size,
      "source.size is 0, which no version of the struct has: start from "
      "BAUTA_BATCH_INIT" },
    { GPT2, call_forward, corrupt_no_lengths,
      "target: lengths is NULL for 3 packed sequences" },
    { BERT, call_forward, corrupt_no_lengths,
      "source: lengths is NULL for 3 packed sequences" },
    { GPT2, call_forward, corrupt_no_ids, "target: ids is NULL for 12 rows" },
    { GPT2, call_forward, corrupt_id,
      "target: sequence 1, position 1: id 40 is not in a vocabulary of 40" },
    { LLAMA, call_loss, corrupt_id,
      "target: sequence 1, position 1: id 40 is not in a vocabulary of 40" },
    { BERT, call_forward, corrupt_id_of_source,
      "source: sequence 2, position 0: id 4000000000 is not in a vocabulary "
      "of 40" },
    { MARIAN, call_forward, corrupt_id_of_source,
      "source: sequence 2, position 0: id 4000000000 is not in a vocabulary "
      "of 40" },
    { GPT2, call_forward, corrupt_id_padded,
      "target: sequence 1, position 1: id 77 is not in a vocabulary of 40" },
    { GPT2, call_forward, corrupt_too_long,
      "target: sequence 1 has 97 tokens, the model has 96 positions" },
    { MARIAN, call_forward, corrupt_too_long_source,
      "source: sequence 2 has 97 tokens, the model has 96 positions" },
    { MARIAN, call_loss, corrupt_too_long,
      "target: sequence 1 has 97 tokens, the model has 96 positions" },
    { GPT2, call_forward, corrupt_over_stride,
      "target: sequence 1 has 6 tokens, the stride is 4" },
    { GPT2, call_forward, corrupt_stride_too_long,
      "target: sequence 0 has 97 tokens, the model has 96 positions" },
    { GPT2, call_forward, corrupt_too_many_rows,
      "target: has more than 2147483647 rows in 1 sequences" },
    { GPT2, call_forward, corrupt_rows_overflow,
      "target: has more than 2147483647 rows in 2 sequences" },
    { GPT2, call_forward, corrupt_count_huge,
      "target: has more than 2147483647 rows in 9223372036854775808 "
      "sequences" },
    { LLAMA, call_forward, corrupt_lengths_overflow,
      "target: has more than 2147483647 rows in 3 sequences" },
    { GPT2, call_forward, corrupt_types_unknown,
      "target: token_types are given, and the model has none" },
    { MARIAN, call_forward, corrupt_types_unknown,
      "target: token_types are given, and the model has none" },
    { BERT, call_forward, corrupt_type,
      "source: sequence 0, position 4: token type 2 of a model with 2" },
    { GPT2, call_forward, corrupt_mask,
      "target: the mask is 12 over 11, the batch has 12 rows" },
    { BERT, call_loss, corrupt_mask_of_source,
      "source: the mask is 12 over 11, the batch has 12 rows" },
    { GPT2, call_forward, corrupt_mask_not_padded,
      "target: the mask is 12 over 12, the batch has 18 rows" },
    { MARIAN, call_forward, corrupt_cross,
      "target: the cross mask is 12 over 11, the batches have 12 rows over "
      "12" },
    { GPT2, call_forward, corrupt_cross_useless,
      "target: a cross mask, where there is no cross-attention" },
    { BERT, call_forward, corrupt_cross_of_source,
      "source: a cross mask, where there is no cross-attention" },
    { MARIAN, call_forward, corrupt_cross_of_source,
      "source: a cross mask, where there is no cross-attention" },
    { MARIAN, call_forward, corrupt_counts,
      "source has 3 sequences, target 2" },
    { GPT2, call_loss, corrupt_no_labels, "labels is NULL for 12 rows" },
    { GPT2, call_loss, corrupt_label,
      "labels: sequence 1, position 0: 40 is not in a vocabulary of 40, nor "
      "BAUTA_IGNORE" },
    { BERT, call_loss, corrupt_label_negative,
      "labels: sequence 2, position 3: 4294967294 is not in a vocabulary of "
      "40, nor BAUTA_IGNORE" },
    { GPT2, call_loss, corrupt_no_loss, "loss is NULL" },
    { GPT2, call_loss, corrupt_context, "context is NULL" },
    { GPT2, call_loss, corrupt_model, "model is NULL" },
    { GPT2, call_loss, corrupt_options_size,
      "options.size is 1, which no version of the struct has: start from "
      "BAUTA_LOSS_OPTIONS_INIT" },
    { GPT2, call_loss, corrupt_smoothing,
      "label_smoothing is 1.5, not from 0 to 1" },
    { GPT2, call_loss, corrupt_smoothing_negative,
      "label_smoothing is -0.1, not from 0 to 1" },
    { GPT2, call_loss, corrupt_smoothing_nan,
      "label_smoothing is nan, not from 0 to 1" },
    { GPT2, call_loss, corrupt_weight, "weight is inf" },
    { GPT2, call_loss, corrupt_label_weight,
      "label_weights: sequence 1, position 0: nan is not finite" },
    { GPT2, call_logprobs, corrupt_context, "context is NULL" },
    { GPT2, call_logprobs, corrupt_model, "model is NULL" },
    { GPT2, call_logprobs, corrupt_no_logprobs, "logprobs is NULL" },
    { GPT2, call_logprobs, corrupt_no_labels, "labels is NULL for 12 rows" },
    { BERT, call_logprobs, corrupt_label_negative,
      "labels: sequence 2, position 3: 4294967294 is not in a vocabulary of "
      "40, nor BAUTA_IGNORE" },
    { LLAMA, call_logprobs, corrupt_id,
      "target: sequence 1, position 1: id 40 is not in a vocabulary of 40" },
    { MARIAN, call_logprobs, corrupt_no_source,
      "source is NULL: an encoder-decoder reads source and target" },
};

static void every_misuse_is_an_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(misuses); i++) {
        call c;
        bauta_error err = { .message = "" };
        call_init(&c, model_of(misuses[i].model));
        assert_int_equal(misuses[i].run(&c, &err), 0);
        misuses[i].corrupt(&c);
        c.logits[0] = 42;
        if (misuses[i].run(&c, &err) != BAUTA_ERR_ARGUMENT)
            fail_msg("case %zu was not refused: %s", i, misuses[i].message);
        assert_int_equal(err.status, BAUTA_ERR_ARGUMENT);
        assert_string_equal(err.message, misuses[i].message);
        assert_int_equal(misuses[i].run(&c, NULL), BAUTA_ERR_ARGUMENT);
        assert_true(c.logits[0] == 42);
    }
    printf("%zu misuses\n", BT_LEN(misuses));
}

/* Rotary positions have no end. */
static void rotary_sequences_may_be_longer(void **state)
{
    (void)state;
    enum { LONG = 130 };
    call c;
    static uint32_t ids[LONG];
    static float logits[LONG * 40];
    size_t length = LONG;
    call_init(&c, w.llama);
    c.target.count = 1;
    c.target.lengths = &length;
    c.target.ids = ids;
    c.outputs.logits = logits;
    assert_int_equal(call_forward(&c, NULL), 0);
    assert_true(isfinite(logits[LONG * 40 - 1]));
}

static void find_is_checked(void)
{
    static const char name[] = "transformer.wte.weight";
    bauta_error err;
    bauta_tensor t = BAUTA_TENSOR_INIT;
    assert_int_equal(bauta_model_find_tensor(NULL, name, &t, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_find_tensor(w.gpt2, NULL, &t, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_find_tensor(w.gpt2, name, NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_find_tensor(w.gpt2, "wte\n", &t, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_string_equal(err.message, "the model has no tensor \"wte?\"");
    assert_null(t.name);
    assert_int_equal(bauta_model_find_tensor(w.gpt2, name, &t, &err), 0);
    assert_string_equal(t.name, name);
    t.size = 3;
    assert_int_equal(bauta_model_find_tensor(w.gpt2, name, &t, &err),
                     BAUTA_ERR_ARGUMENT);
}

static void objects_are_checked(void **state)
{
    (void)state;
    bauta_error err;
    bauta_model *model = w.gpt2;
    bauta_tensor t = BAUTA_TENSOR_INIT;
    assert_int_equal(bauta_model_load(NULL, "x", false, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_load(&model, NULL, false, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_null(model);
    assert_int_equal(bauta_model_save(NULL, "x", &err), BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_save(w.gpt2, NULL, &err), BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_tensor(NULL, 0, &t, &err), BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_tensor(w.gpt2, 0, NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    size_t count = bauta_model_tensor_count(w.gpt2);
    assert_int_equal(bauta_model_tensor(w.gpt2, count, &t, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_string_equal(err.message, "tensor 28 of a model that has 28");
    find_is_checked();
    t.size = 3;
    assert_int_equal(bauta_model_tensor(w.gpt2, 0, &t, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_zero_gradients(NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_zero_gradients(w.gpt2, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_string_equal(err.message,
                        "the model was loaded read-only and has no gradients");
}

/* ---- memory -------------------------------------------------------------- */

/* Load, run, train and save, each with every allocation failing once. */
typedef struct attempt {
    const char *path;
    char saved[512];
    bool trainable;
    bauta_model *model;
    bauta_context *context;
} attempt;

typedef bauta_status attempt_fn(attempt *a, bauta_error *err);

static bauta_status attempt_load(attempt *a, bauta_error *err)
{
    return bauta_model_load(&a->model, a->path, a->trainable, err);
}

static bauta_status attempt_save(attempt *a, bauta_error *err)
{
    return bauta_model_save(a->model, a->saved, err);
}

static bauta_status attempt_forward(attempt *a, bauta_error *err)
{
    call c;
    call_init(&c, a->model);
    c.context = a->context;
    return call_forward(&c, err);
}

/* A batch with a mask creates its plan anew each time. */
static bauta_status attempt_masked(attempt *a, bauta_error *err)
{
    call c;
    bauta_mask *mask = NULL;
    call_init(&c, a->model);
    c.context = a->context;
    bauta_status status = bauta_mask_window(&mask, 12, 12, 2, err);
    c.source.mask = c.target.mask = mask;
    if (!status)
        status = call_forward(&c, err);
    bauta_mask_free(mask);
    return status;
}

static bauta_status attempt_loss(attempt *a, bauta_error *err)
{
    call c;
    call_init(&c, a->model);
    c.context = a->context;
    c.options.label_weights = c.label_weights;
    return call_loss(&c, err);
}

static bauta_status attempt_logprobs(attempt *a, bauta_error *err)
{
    call c;
    call_init(&c, a->model);
    c.context = a->context;
    return call_logprobs(&c, err);
}

/* A context keeps its workspace even after a failed call, so each attempt uses
 * a new one. */
static void context_renew(attempt *a)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    options.threads = 1;
    bauta_context_free(a->context);
    assert_int_equal(bauta_context_create(&a->context, &options, NULL), 0);
}

/* How many allocations there are, after each has failed once. */
static size_t every_failure(attempt_fn *run, attempt *a)
{
    for (size_t k = 0;; k++) {
        bauta_error err = { .message = "" };
        context_renew(a);
        faults_arm(k);
        bauta_status status = run(a, &err);
        if (!faults_disarm()) {
            if (status)
                fail_msg("%s", err.message);
            return k;
        }
        if (status != BAUTA_ERR_NOMEM)
            fail_msg("allocation %zu: status %d, %s", k, (int)status,
                     err.message);
        assert_non_null(strstr(err.message, "memory"));
        assert_true(k < 100000);
    }
}

static void attempts(const char *path, bool trainable)
{
    attempt a = { .path = path, .trainable = trainable };
    snprintf(a.saved, sizeof(a.saved), "%s",
             temp_folder_path(&w.temp_folder, "attempt"));
    size_t before = faults_live(), things = temp_folder_count(&w.temp_folder);
    assert_true(every_failure(attempt_load, &a) > 5);
    size_t live = faults_live(); // with a context that has not been used
    assert_true(every_failure(attempt_forward, &a) > 5);
    assert_true(every_failure(attempt_masked, &a) > 5);
    assert_true(every_failure(attempt_loss, &a) > 5);
    assert_true(every_failure(attempt_logprobs, &a) > 5);
    assert_true(every_failure(attempt_save, &a) > 5);
    assert_int_equal(faults_live(), live);
    bauta_model_free(a.model);
    bauta_context_free(a.context);
    assert_int_equal(faults_live(), before);
    temp_folder_remove(a.saved);
    assert_int_equal(temp_folder_count(&w.temp_folder), things);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    faults_begin();
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        attempts(w.paths[i], i % 2);
    assert_int_equal(faults_end(), 0);
}

/* ---- the groups ---------------------------------------------------------- */

static bauta_model *load(size_t tiny_index)
{
    bauta_model *model = NULL;
    assert_int_equal(bauta_model_load(&model, w.paths[tiny_index], false, NULL),
                     0);
    return model;
}

static int folders_init(void **state)
{
    (void)state;
    w.temp_folder = temp_folder_create();
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        tiny_write(&w.temp_folder, &tinies[i], w.paths[i]);
    return 0;
}

static int folders_release(void **state)
{
    (void)state;
    temp_folder_free(&w.temp_folder);
    return 0;
}

static int objects_init(void **state)
{
    folders_init(state);
    w.gpt2 = load(0);
    w.llama = load(1);
    w.bert = load(5);
    w.marian = load(7);
    assert_int_equal(bauta_context_create(&w.context, NULL, NULL), 0);
    assert_int_equal(bauta_mask_all(&w.right, 12, 12, NULL), 0);
    assert_int_equal(bauta_mask_all(&w.wrong, 12, 11, NULL), 0);
    return 0;
}

static int objects_release(void **state)
{
    bauta_model_free(w.gpt2);
    bauta_model_free(w.llama);
    bauta_model_free(w.bert);
    bauta_model_free(w.marian);
    bauta_context_free(w.context);
    bauta_mask_free(w.right);
    bauta_mask_free(w.wrong);
    return folders_release(state);
}

int main(void)
{
    const struct CMUnitTest misuse[] = {
        cmocka_unit_test(every_misuse_is_an_error),
        cmocka_unit_test(rotary_sequences_may_be_longer),
        cmocka_unit_test(objects_are_checked),
    };
    // The allocator is only replaced while no object exists.
    const struct CMUnitTest memory[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    int failed = cmocka_run_group_tests_name("api_errors", misuse, objects_init,
                                             objects_release);
    return failed + cmocka_run_group_tests_name("api_errors", memory,
                                                folders_init, folders_release);
}
