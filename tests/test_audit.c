/* SPDX-License-Identifier: Apache-2.0 */
/* test_audit.c - audits of correct models, and the arguments that an audit
 * refuses. Random models are in test_audit_random.c; injected faults are in
 * test_audit_faults.c. */
#include "allocation_faults.h"
#include "audit/perturbation.h"
#include "audit_fixtures.h"
#include "model_folders.h"
#include "tiny_models.h"

#include <jansson.h>
#include <math.h>

static uint64_t seed;

/* ---- correct models ------------------------------------------------------ */

/* Weight formats of the models. */
static bauta_dtype compressed = BAUTA_FLOAT32;

static void folder_passes(const char *path, const char *name, size_t longest,
                          size_t probes)
{
    subject s = { .context = context_make(1) };
    bauta_error err;
    test_random r = test_random_from(seed);
    if (bauta_model_load(&s.model, path, false, &err))
        fail_msg("%s", err.message);
    if (compressed != BAUTA_FLOAT32 &&
        bauta_model_pack(s.model, compressed, &err))
        fail_msg("%s", err.message);
    size_t most = bauta_model_max_positions(s.model);
    most = most < longest ? most : longest;
    const size_t targets[] = { most, 1, most / 3 + 1 };
    const size_t sources[] = { most / 2 + 1, most, 2 };
    side_init(&s.source, &r, 3, sources, 0, bauta_model_vocab_size(s.model));
    side_init(&s.target, &r, 3, targets, 0, bauta_model_vocab_size(s.model));
    must_pass(&s, probes, seed, name);
    subject_release(&s);
}

static void every_family_passes(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        temp_folder f = temp_folder_create();
        char path[512];
        tiny_write(&f, &tinies[i], path);
        folder_passes(path, tinies[i].name, 67, 24);
        temp_folder_free(&f);
    }
}

static void every_available_model_passes(void **state)
{
    static const char *const large[] = { "models/gpt2-shakespeare",
                                         "models/bert-shakespeare",
                                         "models/marian-m30k" };
    char path[512];
    size_t skipped = 0;
    (void)state;
    for (size_t i = 0; i < BT_LEN(test_folders); i++) {
        if (test_folder_path(path, sizeof(path), i))
            folder_passes(path, test_folders[i].path, 30, 12);
        else
            skipped++;
    }
    for (size_t i = 0; i < BT_LEN(large); i++) {
        if (test_data_path(path, sizeof(path), large[i]))
            folder_passes(path, large[i], 9, 3);
        else
            skipped++;
    }
    printf("%zu folders are not there and were skipped\n", skipped);
}

/* Tokens that were never trained have nearly equal embeddings. */
static void a_different_token_has_a_far_embedding(void **state)
{
    enum { VOCAB = 200, WIDTH = 8, FAR = 11 };
    bauta_model *model;
    bauta_error err;
    float table[VOCAB * WIDTH], scratch[2 * WIDTH];
    test_random r = test_random_from(seed);
    (void)state;
    if (bauta_model_create(&model,
                           "{\"model_type\": \"gpt2\", \"n_embd\": 8, "
                           "\"n_head\": 1, \"n_layer\": 1, "
                           "\"vocab_size\": 200, \"n_positions\": 16}",
                           1, &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < BT_LEN(table); i++)
        table[i] = 1.0f + 1e-4f * (float)test_below(&r, 8);
    for (size_t i = 0; i < WIDTH; i++)
        for (size_t t = 0; t < VOCAB; t += FAR)
            table[t * WIDTH + i] = -1.0f;
    assert_int_equal(
        bauta_model_write_tensor(model, "transformer.wte.weight", table, &err),
        BAUTA_OK);
    bt_audit_state a = { .model = model, .seed = seed, .scratch = scratch };
    for (size_t i = 0; i < 100; i++) {
        uint32_t id = (uint32_t)test_below(&r, VOCAB);
        uint32_t other = bt_different_token(&a, id, i);
        assert_int_equal(other % FAR == 0, id % FAR != 0);
    }
    for (size_t i = 0; i < BT_LEN(table); i++)
        table[i] = 1.0f;
    assert_int_equal(
        bauta_model_write_tensor(model, "transformer.wte.weight", table, &err),
        BAUTA_OK);
    assert_int_equal(bt_different_token(&a, 3, 0), 3);
    bauta_model_free(model);
}

/* This check learns nothing; all others pass. */
static void packed_models_pass(void **state)
{
    static const size_t which[] = { 0, 2, 5, 7 };
    (void)state;
    for (size_t i = 0; i < 2 * BT_LEN(which); i++) {
        temp_folder f = temp_folder_create();
        char path[512];
        tiny_write(&f, &tinies[which[i / 2]], path);
        compressed = i % 2 ? BAUTA_INT8 : BAUTA_BFLOAT16;
        folder_passes(path, tinies[which[i / 2]].name, 20, 8);
        temp_folder_free(&f);
    }
    compressed = BAUTA_FLOAT32;
}

/* ---- a small subject ------------------------------------------------------
 */

static void small_subject(subject *s, const char *config)
{
    static const size_t lengths[] = { 5, 2 };
    test_random r = test_random_from(seed);
    bauta_error err;
    *s = (subject){ .context = context_make(1) };
    if (bauta_model_create(&s->model, config, 1, &err))
        fail_msg("%s", err.message);
    side_init(&s->source, &r, 2, lengths, 0, 39);
    side_init(&s->target, &r, 2, lengths, 0, 39);
}

static void findings_can_be_read_as_json(void **state)
{
    subject s;
    bauta_audit *audit = NULL;
    bauta_audit_options how = BAUTA_AUDIT_OPTIONS_INIT;
    char text[4096], part[20];
    (void)state;
    small_subject(&s, tinies[0].config);
    how.checks = 1u << BAUTA_CHECK_REACH | 1u << BAUTA_CHECK_INCREMENTAL;
    assert_int_equal(bauta_audit_create(&audit, s.context, s.model, NULL,
                                        &s.target.batch, &how, NULL),
                     0);
    size_t length = bauta_audit_json(audit, text, sizeof(text));
    assert_int_equal(length, strlen(text));
    assert_int_equal(bauta_audit_json(audit, NULL, 0), length);
    assert_int_equal(bauta_audit_json(audit, part, sizeof(part)), length);
    assert_memory_equal(part, text, sizeof(part) - 1);
    json_t *all = json_loads(text, 0, NULL);
    assert_non_null(all);
    assert_true(json_is_true(json_object_get(all, "passed")));
    const json_t *list = json_object_get(all, "findings");
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(list, 1), "check")),
        "incremental");
    json_decref(all);
    assert_null(bauta_audit_finding(audit, 2));
    bauta_audit_free(audit);
    subject_release(&s);
}

static void refused(const subject *s, const bauta_batch *target,
                    const bauta_audit_options *how, const char *message)
{
    bauta_error err = { .message = "" };
    bauta_audit *audit = NULL;
    assert_int_equal(bauta_audit_create(&audit, s->context, s->model, NULL,
                                        target, how, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_null(audit);
    if (!strstr(err.message, message))
        fail_msg("want '%s', got '%s'", message, err.message);
}

static void bad_audit_arguments_are_errors(void **state)
{
    subject s;
    bauta_audit_options how = BAUTA_AUDIT_OPTIONS_INIT;
    size_t lengths[] = { 5000 };
    (void)state;
    small_subject(&s, tinies[0].config);
    bauta_batch batch = s.target.batch;
    refused(&s, NULL, NULL, "top is NULL");
    batch.count = 0;
    refused(&s, &batch, NULL, "a batch of 0 rows; an audit takes 1 to 4096");
    batch.count = 1;
    batch.lengths = lengths;
    refused(&s, &batch, NULL, "a batch of 5000 rows");
    lengths[0] = 100;
    refused(&s, &batch, NULL, "96");
    how.checks = 1u << 30;
    refused(&s, &s.target.batch, &how, "there are 13 checks");
    how.size = 3;
    refused(&s, &s.target.batch, &how, "BAUTA_AUDIT_OPTIONS_INIT");
    bauta_tensor weights = BAUTA_TENSOR_INIT;
    assert_int_equal(bauta_model_tensor(s.model, 0, &weights, NULL), 0);
    for (size_t i = 0; i < weights.count; i++)
        weights.writable[i] = NAN;
    refused(&s, &s.target.batch, NULL, "the model gives NaN");
    subject_release(&s);
}

/* ---- without memory -------------------------------------------------------
 */

/* For each check, every allocation fails once, or every eighth. */
static void check_survives(const subject *s, unsigned check)
{
    bauta_audit_options how = BAUTA_AUDIT_OPTIONS_INIT;
    how.checks = 1u << check;
    how.probes = 2;
    for (size_t k = 0;; k += TEST_STRIDE) {
        bauta_audit *audit = NULL;
        bauta_error err = { .status = BAUTA_OK };
        faults_arm(k);
        bauta_status status =
            bauta_audit_create(&audit, s->context, s->model, source_of(s),
                               target_of(s), &how, &err);
        if (!faults_disarm()) {
            assert_int_equal(status, BAUTA_OK);
            assert_true(bauta_audit_passed(audit));
            bauta_audit_free(audit);
            return;
        }
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_int_equal(err.status, BAUTA_ERR_NOMEM);
        assert_null(audit);
    }
}

static void allocation_failure_leaks_nothing(void **state)
{
    static const size_t which[] = { 1, 7 }; // llama, marian
    (void)state;
    for (size_t i = 0; i < BT_LEN(which); i++) {
        subject s;
        faults_begin();
        small_subject(&s, tinies[which[i]].config);
        bauta_mask_window(&s.target.mask, s.target.rows, s.target.rows, 3,
                          NULL);
        s.target.batch.mask = s.target.mask;
        for (unsigned c = 0; c < BAUTA_CHECKS; c++)
            check_survives(&s, c);
        subject_release(&s);
        assert_int_equal(faults_end(), 0);
    }
}

/* ---- a trainer ------------------------------------------------------------
 */

static void trainer_audit(bauta_trainer *trainer)
{
    bauta_audit *audit = NULL;
    bauta_error err;
    if (bauta_audit_trainer(&audit, trainer, NULL, &err))
        fail_msg("%s", err.message);
    assert_int_equal(bauta_audit_findings(audit), 4);
    assert_true(bauta_audit_passed(audit));
    bauta_audit_free(audit);
}

/* Two epochs and a step, audited before each step: also at the end of an epoch,
 * where the trainer's position is past the last batch. */
static double trainer_steps(const char *config, bauta_objective objective,
                            bool audited)
{
    bauta_train_options how = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    bauta_context *context = context_make(1);
    bauta_model *model = NULL;
    bauta_corpus *corpus = NULL;
    bauta_trainer *trainer = NULL;
    bauta_error err;
    uint32_t ids[60];
    for (uint32_t i = 0; i < 60; i++)
        ids[i] = i * 7 % 39;
    assert_int_equal(bauta_model_create(&model, config, 1, NULL), 0);
    bool pairs = bauta_model_kind_of(model) == BAUTA_ENCODER_DECODER;
    assert_int_equal(bauta_corpus_create(&corpus, NULL), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(bauta_corpus_add(corpus, ids + i, 40,
                                          pairs ? ids + 2 * i : NULL,
                                          pairs ? 30 : 0, NULL),
                         0);
    how.objective = objective;
    how.dropout = 0.1f;
    how.batch_sequences = 4;
    if (bauta_trainer_create(&trainer, context, model, NULL, corpus, &how,
                             &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < 2 * bauta_trainer_epoch_steps(trainer) + 1; i++) {
        if (audited)
            trainer_audit(trainer);
        assert_int_equal(bauta_trainer_step(trainer, &report, NULL), 0);
    }
    bauta_trainer_free(trainer);
    bauta_corpus_free(corpus);
    bauta_model_free(model);
    bauta_context_free(context);
    return report.loss;
}

static void auditing_does_not_change_training(void **state)
{
    static const struct {
        size_t tiny;
        bauta_objective objective;
    } cases[] = { { 0, BAUTA_OBJECTIVE_AUTO },
                  { 2, BAUTA_OBJECTIVE_PREFIX },
                  { 7, BAUTA_OBJECTIVE_AUTO } };
    (void)state;
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        const char *config = tinies[cases[i].tiny].config;
        double want = trainer_steps(config, cases[i].objective, false);
        double got = trainer_steps(config, cases[i].objective, true);
        assert_memory_equal(&want, &got, sizeof(want));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_passes),
        cmocka_unit_test(every_available_model_passes),
        cmocka_unit_test(a_different_token_has_a_far_embedding),
        cmocka_unit_test(packed_models_pass),
        cmocka_unit_test(findings_can_be_read_as_json),
        cmocka_unit_test(bad_audit_arguments_are_errors),
        cmocka_unit_test(allocation_failure_leaks_nothing),
        cmocka_unit_test(auditing_does_not_change_training),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
