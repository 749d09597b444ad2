/* SPDX-License-Identifier: Apache-2.0 */
/* test_step_batch.c - training steps on the caller's batches, and weights of
 * labels: the steps of the trainer itself, a policy gradient, and a trainer
 * without a corpus. */
#include "allocation_faults.h"
#include "tiny_training.h"

#include <math.h>

enum { COPIES = 5, TOKENS = 11, STEPS = 6, ROWS = COPIES * TOKENS };

/* ---- a corpus of equal documents, and the same as batches -----------------
 */

/* The order of equal documents does not matter, so the trainer's batch is
 * known. Document tokens are 5 to 15; a source is its target reversed. */
typedef struct known {
    training_run l;
    uint32_t ids[ROWS], labels[ROWS], source[ROWS];
    float weights[ROWS];
    uint64_t keys[ROWS];
    size_t lengths[COPIES], source_lengths[COPIES];
    bauta_batch source_batch, target_batch;
    bauta_train_batch batch;
} known;

static void known_corpus(known *k)
{
    uint32_t tokens[TOKENS], reversed[TOKENS];
    bool pairs = bauta_model_kind_of(k->l.model) == BAUTA_ENCODER_DECODER;
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = TINY_A + i;
        reversed[TOKENS - 1 - i] = tokens[i];
    }
    assert_int_equal(bauta_corpus_create(&k->l.corpus, NULL), 0);
    for (size_t d = 0; d < COPIES; d++)
        assert_int_equal(bauta_corpus_add(k->l.corpus, tokens, TOKENS,
                                          pairs ? reversed : NULL,
                                          pairs ? TOKENS : 0, NULL),
                         0);
}

/* Inputs and labels of the objective of each kind of model. */
static void known_batch(known *k)
{
    bauta_model_kind kind = bauta_model_kind_of(k->l.model);
    size_t length = kind == BAUTA_DECODER_ONLY ? TOKENS - 1 : TOKENS, row = 0;
    for (size_t d = 0; d < COPIES; d++) {
        k->lengths[d] = length;
        k->source_lengths[d] = TOKENS;
        for (uint32_t i = 0; i < length; i++, row++) {
            uint32_t token = TINY_A + i;
            k->keys[row] = (UINT64_C(1) << 63) + d * TOKENS + i;
            k->source[row] = TINY_A + TOKENS - 1 - i;
            k->labels[row] = kind == BAUTA_DECODER_ONLY ? token + 1 : token;
            k->ids[row] = kind == BAUTA_DECODER_ONLY   ? token
                          : kind == BAUTA_ENCODER_ONLY ? TINY_MASK
                          : i                          ? token - 1
                                                       : 39;
        }
    }
    k->source_batch = k->target_batch = (bauta_batch)BAUTA_BATCH_INIT;
    k->source_batch.count = k->target_batch.count = COPIES;
    k->source_batch.lengths = k->source_lengths;
    k->source_batch.ids = kind == BAUTA_ENCODER_ONLY ? k->ids : k->source;
    k->target_batch.lengths = k->lengths;
    k->target_batch.ids = k->ids;
    k->batch = (bauta_train_batch)BAUTA_TRAIN_BATCH_INIT;
    k->batch.source = kind == BAUTA_DECODER_ONLY ? NULL : &k->source_batch;
    k->batch.target = kind == BAUTA_ENCODER_ONLY ? NULL : &k->target_batch;
    k->batch.labels = k->labels;
}

static bauta_train_options known_options(void)
{
    bauta_train_options o = tiny_train_options();
    o.batch_tokens = 4096;
    o.label_smoothing = 0.1f;
    o.ema_decay = 0.9;
    o.mlm_probability = 1.0f; // all tokens are masked
    o.mlm_random = o.mlm_keep = 0.0f;
    return o;
}

static void known_init(known *k, const char *family,
                       const bauta_train_options *o, bool with_corpus)
{
    bauta_options one = BAUTA_OPTIONS_INIT;
    bauta_error err;
    *k = (known){ 0 };
    one.threads = 1;
    must(bauta_context_create(&k->l.context, &one, &err), &err);
    must(bauta_model_create(&k->l.model, tinies[tiny_family(family)].config, 3,
                            &err),
         &err);
    k->l.tokenizer = tiny_tokenizer();
    known_corpus(k);
    known_batch(k);
    must(bauta_trainer_create(&k->l.trainer, k->l.context, k->l.model,
                              with_corpus ? k->l.tokenizer : NULL,
                              with_corpus ? k->l.corpus : NULL, o, &err),
         &err);
}

static bauta_train_report step(known *k)
{
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    bauta_error err;
    must(bauta_trainer_step_batch(k->l.trainer, &k->batch, 1, &report, &err),
         &err);
    return report;
}

/* ---- the trainer's own step -----------------------------------------------
 */

static void weights_of_one(known *k)
{
    for (size_t i = 0; i < ROWS; i++)
        k->weights[i] = 1.0f;
    k->batch.label_weights = k->weights;
}

static void same_steps(const char *family, const bauta_train_options *o)
{
    known own, given;
    bauta_error err;
    known_init(&own, family, o, true);
    known_init(&given, family, o, false);
    for (size_t i = 0; i < STEPS; i++) {
        bauta_train_report a = BAUTA_TRAIN_REPORT_INIT, b;
        must(bauta_trainer_step(own.l.trainer, &a, &err), &err);
        if (i == STEPS / 2)
            weights_of_one(&given);
        b = step(&given);
        a.epoch = b.epoch; // each step of the corpus is an epoch
        // Up to the last field; padding may differ.
        assert_memory_equal(&a, &b, offsetof(bauta_train_report, updated) + 1);
    }
    training_run_same(&own.l, &given.l);
    training_run_release(&own.l);
    training_run_release(&given.l);
}

static void weights_of_one_are_the_trainers_own_step(void **state)
{
    (void)state;
    static const char *const families[] = { "gpt2", "mistral", "bert",
                                            "marian" };
    for (size_t i = 0; i < BT_LEN(families); i++) {
        bauta_train_options o = known_options();
        same_steps(families[i], &o);
    }
}

/* The keys of dropout are the numbers of the tokens in the corpus, counted from
 * 2^63, which only one document gives in a known order. They are also the
 * numbers of the rows. */
static void dropout_with_the_same_keys_drops_the_same(void **state)
{
    (void)state;
    known own, given;
    bauta_error err;
    bauta_train_options o = known_options();
    o.dropout = 0.2f;
    known_init(&own, "gpt2", &o, false);
    bauta_trainer_free(own.l.trainer);
    bauta_corpus_free(own.l.corpus);
    uint32_t tokens[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = TINY_A + i;
    must(bauta_corpus_create(&own.l.corpus, &err), &err);
    must(bauta_corpus_add(own.l.corpus, tokens, TOKENS, NULL, 0, &err), &err);
    must(bauta_trainer_create(&own.l.trainer, own.l.context, own.l.model, NULL,
                              own.l.corpus, &o, &err),
         &err);
    known_init(&given, "gpt2", &o, false);
    given.target_batch.count = 1;
    given.batch.target_keys = given.keys;
    for (size_t i = 0; i < STEPS; i++) {
        must(bauta_trainer_step(own.l.trainer, NULL, &err), &err);
        step(&given);
        given.batch.target_keys = i % 2 ? NULL : given.keys;
    }
    training_run_same(&own.l, &given.l);
    given.batch.target_keys = given.keys + 1; // other keys, other zeros
    must(bauta_trainer_step(own.l.trainer, NULL, &err), &err);
    step(&given);
    assert_memory_not_equal(store_weights(own.l.model->store),
                            store_weights(given.l.model->store),
                            own.l.model->store->floats * sizeof(float));
    training_run_release(&own.l);
    training_run_release(&given.l);
}

/* Without keys rows are counted through all batches: a row has the same zeros
 * in any split. The mean over float32 losses is added in double; the norm sums
 * gradients whose rows are added in another order, some hundred of them. */
static void a_split_into_batches_is_the_same_step(void **state)
{
    (void)state;
    static const char *const families[] = { "gpt2", "bert", "marian" };
    for (size_t f = 0; f < BT_LEN(families); f++) {
        known whole, split;
        bauta_train_options o = known_options();
        bauta_train_batch parts[COPIES];
        bauta_batch sources[COPIES], targets[COPIES];
        bauta_train_report a = BAUTA_TRAIN_REPORT_INIT, b = a;
        bauta_error err;
        o.dropout = 0.2f;
        known_init(&whole, families[f], &o, false);
        known_init(&split, families[f], &o, false);
        for (size_t i = 0, row = 0; i < COPIES; row += split.lengths[i++]) {
            parts[i] = split.batch;
            sources[i] = split.source_batch;
            targets[i] = split.target_batch;
            sources[i].count = targets[i].count = 1;
            sources[i].ids += row;
            targets[i].ids += row;
            parts[i].labels += row;
            if (parts[i].source)
                parts[i].source = &sources[i];
            if (parts[i].target)
                parts[i].target = &targets[i];
        }
        must(bauta_trainer_step_batch(whole.l.trainer, &whole.batch, 1, &a,
                                      &err),
             &err);
        must(bauta_trainer_step_batch(split.l.trainer, parts, COPIES, &b, &err),
             &err);
        assert_int_equal(a.counted, b.counted);
        assert_int_equal(a.tokens, b.tokens);
        assert_true(fabs(a.loss - b.loss) <= 1e-13 * a.loss);
        assert_true(fabs(a.grad_norm - b.grad_norm) <=
                    100 * 0x1p-24 * a.grad_norm);
        training_run_release(&whole.l);
        training_run_release(&split.l);
    }
}

/* ---- a policy gradient ----------------------------------------------------
 */

/* The gradients of the loss with some labels and weights. */
static const float *gradients_of(known *k, const uint32_t *labels,
                                 const float *weights)
{
    bauta_loss_options o = BAUTA_LOSS_OPTIONS_INIT;
    bauta_error err;
    double loss;
    o.label_weights = weights;
    must(bauta_model_zero_gradients(k->l.model, &err), &err);
    must(bauta_model_loss(k->l.context, k->l.model, k->batch.source,
                          k->batch.target, labels, &o, &loss, NULL, &err),
         &err);
    return store_gradients(k->l.model->store);
}

static double norm_of(const float *x, size_t count)
{
    double squares = 0.0;
    for (size_t i = 0; i < count; i++)
        squares += (double)x[i] * (double)x[i];
    return sqrt(squares);
}

/* Add weight times the gradient of one label, and return its norm. */
static double add_label(known *k, size_t row, double weight, double *sum)
{
    uint32_t labels[ROWS];
    size_t floats = k->l.model->store->floats;
    for (size_t i = 0; i < ROWS; i++)
        labels[i] = i == row ? k->labels[i] : BAUTA_IGNORE;
    const float *gradient = gradients_of(k, labels, NULL);
    for (size_t i = 0; i < floats; i++)
        sum[i] += weight * (double)gradient[i];
    return norm_of(gradient, floats);
}

/* The loss of a policy gradient is the mean of -advantage x log-probability, so
 * its gradient is the sum of each token's gradient times advantage / tokens.
 * Weights are applied in double, so the two differ by the roundings of n
 * additions of rows and of the terms, as in test_trainer.c: as often up as
 * down, relative to partial sums that the sum of the terms' norms bounds. */
static void a_policy_gradient_is_a_weighted_sum(void **state)
{
    (void)state;
    static const char *const families[] = { "gpt2", "qwen3", "roberta",
                                            "marian" };
    test_random r = test_random_from(test_seed());
    for (size_t f = 0; f < BT_LEN(families); f++) {
        known k;
        bauta_train_options o = known_options();
        known_init(&k, families[f], &o, false);
        size_t floats = k.l.model->store->floats, counted = 0, rows = 0;
        double *sum = calloc(floats, sizeof(*sum)), size = 0.0, worst = 0.0;
        assert_non_null(sum);
        for (size_t d = 0; d < COPIES; d++)
            rows += k.lengths[d];
        for (size_t i = 0; i < rows; i++) {
            if (i % 4 == 1)
                k.labels[i] = BAUTA_IGNORE; // the prompt
            counted += k.labels[i] != BAUTA_IGNORE;
            k.weights[i] = 3.0f * test_float(&r); // the advantage
        }
        for (size_t i = 0; i < rows; i++) {
            double w = (double)k.weights[i] / (double)counted;
            if (k.labels[i] != BAUTA_IGNORE)
                size += fabs(w) * add_label(&k, i, w, sum);
        }
        const float *got = gradients_of(&k, k.labels, k.weights);
        for (size_t i = 0; i < floats; i++)
            worst = fmax(worst, fabs((double)got[i] - sum[i]));
        double bound = 4.0 * sqrt((double)rows) * 0x1p-24 * size;
        printf("%-8s largest difference %.3g, bound %.3g, norm %.3g\n",
               families[f], worst, bound, norm_of(got, floats));
        assert_true(worst <= bound);
        assert_true(norm_of(got, floats) > 1000 * bound);
        free(sum);
        training_run_release(&k.l);
    }
}

/* A power of two commutes with every rounding. */
static void a_common_weight_of_minus_two_is_exact(void **state)
{
    (void)state;
    known k;
    bauta_train_options o = known_options();
    known_init(&k, "llama", &o, false);
    size_t floats = k.l.model->store->floats;
    float *once = malloc(floats * sizeof(*once));
    assert_non_null(once);
    memcpy(once, gradients_of(&k, k.labels, NULL), floats * sizeof(*once));
    for (size_t i = 0; i < ROWS; i++)
        k.weights[i] = -2.0f;
    const float *got = gradients_of(&k, k.labels, k.weights);
    for (size_t i = 0; i < floats; i++)
        assert_true(got[i] == -2.0f * once[i]);
    free(once);
    training_run_release(&k.l);
}

/* Steps with the advantage as the weight make rewarded tokens likelier, and
 * those with a negative advantage less likely. */
static void rewarded_tokens_become_likelier(void **state)
{
    (void)state;
    known k;
    bauta_error err;
    bauta_train_options o = known_options();
    float before[ROWS], after[ROWS];
    o.label_smoothing = 0.0f;
    known_init(&k, "gpt2", &o, false);
    for (size_t i = 0; i < ROWS; i++)
        k.weights[i] = k.labels[i] % 2 ? 1.0f : -0.25f;
    k.batch.label_weights = k.weights;
    must(bauta_model_logprobs(k.l.context, k.l.model, NULL, &k.target_batch,
                              k.labels, before, &err),
         &err);
    for (size_t i = 0; i < 30; i++)
        assert_true(step(&k).updated);
    must(bauta_model_logprobs(k.l.context, k.l.model, NULL, &k.target_batch,
                              k.labels, after, &err),
         &err);
    double change[2] = { 0.0, 0.0 };
    for (size_t i = 0; i < TOKENS - 1; i++)
        change[k.labels[i] % 2] += (double)after[i] - (double)before[i];
    printf("rewarded %+.3f, others %+.3f\n", change[1], change[0]);
    assert_true(change[1] > 0.5 && change[0] < -0.5);
    training_run_release(&k.l);
}

/* ---- without a corpus -----------------------------------------------------
 */

static void without_a_corpus_its_steps_are_refused(void **state)
{
    (void)state;
    static const char says[] = "the trainer was created without a corpus";
    static const char *const families[] = { "gpt2", "bert", "marian" };
    for (size_t f = 0; f < BT_LEN(families); f++) {
        known k;
        bauta_error err;
        bauta_train_options o = known_options();
        bauta_audit *audit;
        double loss;
        known_init(&k, families[f], &o, false);
        assert_int_equal(bauta_trainer_epoch_steps(k.l.trainer), 0);
        assert_int_equal(bauta_trainer_step(k.l.trainer, NULL, &err),
                         BAUTA_ERR_ARGUMENT);
        assert_string_equal(err.message, says);
        assert_int_equal(bauta_trainer_gradients(
                             k.l.trainer, BAUTA_MODE_PARALLEL, &loss, &err),
                         BAUTA_ERR_ARGUMENT);
        assert_string_equal(err.message, says);
        assert_int_equal(bauta_audit_trainer(&audit, k.l.trainer, NULL, &err),
                         BAUTA_ERR_ARGUMENT);
        assert_string_equal(err.message, says);
        training_run_release(&k.l);
    }
}

/* Evaluation needs what a corpus of its own needs: a tokenizer if masked. */
static void without_a_corpus_it_evaluates_all_the_same(void **state)
{
    (void)state;
    static const char *const families[] = { "gpt2", "bert", "marian" };
    for (size_t f = 0; f < BT_LEN(families); f++) {
        known a, b;
        bauta_error err;
        bauta_train_options o = known_options();
        double x, y;
        known_init(&a, families[f], &o, true);
        known_init(&b, families[f], &o, false);
        must(bauta_trainer_evaluate(a.l.trainer, a.l.corpus, 0, &x, NULL, &err),
             &err);
        bauta_status status =
            bauta_trainer_evaluate(b.l.trainer, b.l.corpus, 0, &y, NULL, &err);
        if (strcmp(families[f], "bert") == 0) {
            assert_int_equal(status, BAUTA_ERR_ARGUMENT);
            assert_non_null(strstr(err.message, "mask token"));
        } else {
            must(status, &err);
            assert_memory_equal(&x, &y, sizeof(x));
        }
        training_run_release(&a.l);
        training_run_release(&b.l);
    }
}

static void without_a_corpus_it_is_saved_and_resumed(void **state)
{
    (void)state;
    static const char *const families[] = { "gpt2", "bert" };
    for (size_t f = 0; f < BT_LEN(families); f++) {
        known whole, again;
        temp_folder s = temp_folder_create();
        char folder[512];
        bauta_error err;
        bauta_train_options o = known_options();
        snprintf(folder, sizeof(folder), "%s", temp_folder_path(&s, "saved"));
        o.dropout = 0.1f;
        known_init(&whole, families[f], &o, false);
        step(&whole);
        step(&whole);
        must(bauta_trainer_save(whole.l.trainer, folder, NULL, &err), &err);
        known_init(&again, families[f], &o, true);
        bauta_trainer_free(again.l.trainer);
        bauta_model_free(again.l.model);
        must(bauta_model_load(&again.l.model, folder, true, &err), &err);
        must(bauta_trainer_create(&again.l.trainer, again.l.context,
                                  again.l.model, again.l.tokenizer,
                                  again.l.corpus, &o, &err),
             &err);
        assert_int_equal(bauta_trainer_resume(again.l.trainer, folder, &err),
                         BAUTA_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, "the corpus is not the same"));
        bauta_trainer_free(again.l.trainer);
        must(bauta_trainer_create(&again.l.trainer, again.l.context,
                                  again.l.model, NULL, NULL, &o, &err),
             &err);
        must(bauta_trainer_resume(again.l.trainer, folder, &err), &err);
        assert_int_equal(bauta_trainer_steps(again.l.trainer), 2);
        step(&whole);
        step(&again);
        training_run_same(&whole.l, &again.l);
        training_run_release(&whole.l);
        training_run_release(&again.l);
        temp_folder_free(&s);
    }
}

/* ---- misuse and memory ----------------------------------------------------
 */

static void refused(known *k, const bauta_train_batch *batches, size_t count,
                    const char *says)
{
    bauta_error err;
    if (bauta_trainer_step_batch(k->l.trainer, batches, count, NULL, &err) !=
        BAUTA_ERR_ARGUMENT)
        fail_msg("not refused: %s", says);
    assert_string_equal(err.message, says);
    assert_int_equal(
        bauta_trainer_step_batch(k->l.trainer, batches, count, NULL, NULL),
        BAUTA_ERR_ARGUMENT);
}

static void misuse_is_a_sentence_and_changes_nothing(void **state)
{
    (void)state;
    known k, fresh;
    bauta_train_options o = known_options();
    uint32_t labels[ROWS];
    known_init(&k, "gpt2", &o, false);
    known_init(&fresh, "gpt2", &o, false);
    bauta_train_batch two[] = { k.batch, k.batch };
    assert_int_equal(bauta_trainer_step_batch(NULL, two, 1, NULL, NULL),
                     BAUTA_ERR_ARGUMENT);
    refused(&k, NULL, 1, "batches is NULL");
    refused(&k, two, 0, "there are no batches");
    refused(&k, two, SIZE_MAX / 2,
            "batches has 9223372036854775807 elements, more than memory "
            "holds");
    memcpy(labels, k.labels, sizeof(labels));
    labels[12] = 40;
    two[1].labels = labels;
    refused(&k, two, 2,
            "batch 1: labels: sequence 1, position 2: 40 is not in a "
            "vocabulary of 40, nor BAUTA_IGNORE");
    two[1].labels = NULL;
    refused(&k, two, 2, "batch 1: labels is NULL for 50 rows");
    two[1] = k.batch;
    weights_of_one(&k);
    k.weights[3] = INFINITY;
    two[1].label_weights = k.weights;
    refused(&k, two, 2,
            "batch 1: label_weights: sequence 0, position 3: inf is not "
            "finite");
    two[1] = k.batch;
    two[1].target = NULL;
    refused(&k, two, 2,
            "batch 1: target is NULL: a decoder-only model reads target");
    two[1].size = 0;
    refused(&k, two, 2,
            "batch 1: batches[1].size is 0, and that of the first is 56: "
            "start each from BAUTA_TRAIN_BATCH_INIT");
    training_run_same(&fresh.l, &k.l);
    assert_int_equal(bauta_trainer_steps(k.l.trainer), 0);
    training_run_release(&k.l);
    training_run_release(&fresh.l);
}

static void a_step_without_labels_updates_nothing(void **state)
{
    (void)state;
    known k;
    bauta_train_options o = known_options();
    known_init(&k, "gpt2", &o, false);
    float *before = malloc(k.l.model->store->floats * sizeof(float));
    assert_non_null(before);
    memcpy(before, store_weights(k.l.model->store),
           k.l.model->store->floats * sizeof(float));
    for (size_t i = 0; i < ROWS; i++)
        k.labels[i] = BAUTA_IGNORE;
    bauta_train_report report = step(&k);
    assert_true(!report.updated && report.counted == 0 && report.loss == 0.0);
    assert_int_equal(report.step, 1);
    assert_memory_equal(before, store_weights(k.l.model->store),
                        k.l.model->store->floats * sizeof(float));
    free(before);
    training_run_release(&k.l);
}

static void each_allocation_may_fail_and_the_step_be_repeated(void **state)
{
    (void)state;
    known want, got;
    bauta_train_options o = known_options();
    o.dropout = 0.1f;
    faults_begin();
    known_init(&want, "marian", &o, false);
    known_init(&got, "marian", &o, false);
    for (size_t i = 0; i < 3; i++) {
        bauta_status status;
        size_t k = 0;
        do {
            faults_arm(k++);
            status = bauta_trainer_step_batch(got.l.trainer, &got.batch, 1,
                                              NULL, NULL);
            bool failed = faults_disarm();
            assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        } while (status);
        assert_true(i ? k == 1 : k > 5); // the second step makes none
        step(&want);
    }
    training_run_same(&want.l, &got.l);
    training_run_release(&want.l);
    training_run_release(&got.l);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_of_one_are_the_trainers_own_step),
        cmocka_unit_test(dropout_with_the_same_keys_drops_the_same),
        cmocka_unit_test(a_split_into_batches_is_the_same_step),
        cmocka_unit_test(a_policy_gradient_is_a_weighted_sum),
        cmocka_unit_test(a_common_weight_of_minus_two_is_exact),
        cmocka_unit_test(rewarded_tokens_become_likelier),
        cmocka_unit_test(without_a_corpus_its_steps_are_refused),
        cmocka_unit_test(without_a_corpus_it_evaluates_all_the_same),
        cmocka_unit_test(without_a_corpus_it_is_saved_and_resumed),
        cmocka_unit_test(misuse_is_a_sentence_and_changes_nothing),
        cmocka_unit_test(a_step_without_labels_updates_nothing),
        cmocka_unit_test(each_allocation_may_fail_and_the_step_be_repeated),
    };
    return cmocka_run_group_tests_name("step_batch", tests, NULL, NULL);
}
