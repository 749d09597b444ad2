/* SPDX-License-Identifier: Apache-2.0 */
/* tiny_training.h - the parts of a tiny training run: models of each family, a
 * tokenizer of single letters, and texts with something to learn in them. */
#ifndef BT_TEST_TINY_TRAINING_H
#define BT_TEST_TINY_TRAINING_H

#include "data/corpus.h"
#include "text/tokenizer.h"
#include "tiny_models.h"
#include "train/trainer.h"

/* 0 to 4 are special; 5 to 39 are "a" to "z" and "0" to "8". */
enum { TINY_VOCAB_SIZE = 40, TINY_END = 2, TINY_MASK = 4, TINY_A = 5 };

static inline void must(bauta_status status, const bauta_error *err)
{
    if (status)
        fail_msg("%s", err->message);
}

static inline size_t tiny_tokenizer_json(char *text, size_t size)
{
    static const char *const special[] = { "[PAD]", "[UNK]", "</s>", "<s>",
                                           "[MASK]" };
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345678";
    size_t n = 0;
    n += (size_t)snprintf(text + n, size - n, "{\"added_tokens\": [");
    for (int i = 0; i < 5; i++)
        n += (size_t)snprintf(
            text + n, size - n,
            "%s{\"id\": %d, \"content\": \"%s\", \"special\": true, "
            "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
            "\"normalized\": false}",
            i ? ", " : "", i, special[i]);
    n += (size_t)snprintf(text + n, size - n,
                          "], \"normalizer\": null, \"pre_tokenizer\": "
                          "{\"type\": \"WhitespaceSplit\"}, "
                          "\"post_processor\": null, \"decoder\": null, "
                          "\"model\": {\"type\": \"WordLevel\", "
                          "\"unk_token\": \"[UNK]\", \"vocab\": {");
    for (int i = 0; i < 5; i++)
        n += (size_t)snprintf(text + n, size - n, "%s\"%s\": %d", i ? ", " : "",
                              special[i], i);
    for (int i = 0; i < 35; i++)
        n += (size_t)snprintf(text + n, size - n, ", \"%c\": %d", letters[i],
                              TINY_A + i);
    n += (size_t)snprintf(text + n, size - n, "}}}");
    assert_true(n < size);
    return n;
}

/* From a file, so that checkpoints have it. */
static inline bauta_tokenizer *tiny_tokenizer(void)
{
    char text[8192];
    bauta_tokenizer *tokenizer = NULL;
    bauta_error err;
    size_t size = tiny_tokenizer_json(text, sizeof(text));
    temp_folder s = temp_folder_create();
    must(bauta_tokenizer_load(
             &tokenizer, temp_folder_write(&s, "tokenizer.json", text, size),
             &err),
         &err);
    temp_folder_free(&s);
    return tokenizer;
}

/* Documents in which every token follows from the one before, or, with a
 * factor of 1, is the same as all others. */
static inline bauta_corpus *tiny_texts(uint64_t seed, size_t documents,
                                       size_t longest, size_t factor)
{
    bauta_corpus *corpus = NULL;
    uint32_t tokens[256];
    test_random r = test_random_from(seed);
    assert_true(longest < BT_LEN(tokens));
    assert_int_equal(bauta_corpus_create(&corpus, NULL), 0);
    for (size_t d = 0; d < documents; d++) {
        size_t count = 2 + test_below(&r, longest - 1), at = test_below(&r, 35);
        for (size_t i = 0; i < count;
             i++, at = (at * factor + (factor > 1)) % 35)
            tokens[i] = (uint32_t)(TINY_A + at);
        tokens[count - 1] = TINY_END;
        assert_int_equal(bauta_corpus_add(corpus, tokens, count, NULL, 0, NULL),
                         0);
    }
    return corpus;
}

/* The target is the source, and an end. */
static inline bauta_corpus *tiny_pairs(uint64_t seed, size_t documents,
                                       size_t longest)
{
    bauta_corpus *corpus = NULL;
    uint32_t tokens[256];
    test_random r = test_random_from(seed);
    assert_true(longest < BT_LEN(tokens));
    assert_int_equal(bauta_corpus_create(&corpus, NULL), 0);
    for (size_t d = 0; d < documents; d++) {
        size_t count = 1 + test_below(&r, longest - 1);
        for (size_t i = 0; i < count; i++)
            tokens[i] = (uint32_t)(TINY_A + test_below(&r, 6));
        tokens[count] = TINY_END;
        assert_int_equal(
            bauta_corpus_add(corpus, tokens, count + 1, tokens, count, NULL),
            0);
    }
    return corpus;
}

/* ---- a run --------------------------------------------------------------- */

typedef struct training_run {
    bauta_context *context;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_corpus *corpus;
    bauta_trainer *trainer;
} training_run;

static inline size_t tiny_family(const char *name)
{
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        if (strcmp(tinies[i].name, name) == 0)
            return i;
    fail_msg("no family %s", name);
    return 0;
}

static inline bauta_train_options tiny_train_options(void)
{
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    o.batch_tokens = 64;
    o.microbatch_tokens = 4096;
    o.context_length = 16;
    o.max_steps = 40;
    o.warmup_steps = 4;
    o.learning_rate = 1e-2;
    o.min_learning_rate = 1e-3;
    o.weight_decay = 0.01;
    return o;
}

/* A trainer of a new model of a family, or of the one in `folder`. */
static inline void training_run_init(training_run *l, const char *family,
                                     const char *folder,
                                     const bauta_train_options *options,
                                     int threads, const char *isa)
{
    bauta_options how = BAUTA_OPTIONS_INIT;
    bauta_error err = { 0 };
    how.threads = threads;
    how.isa = isa;
    *l = (training_run){ 0 };
    must(bauta_context_create(&l->context, &how, &err), &err);
    if (folder)
        must(bauta_model_load(&l->model, folder, true, &err), &err);
    else
        must(bauta_model_create(&l->model, tinies[tiny_family(family)].config,
                                3, &err),
             &err);
    l->tokenizer = tiny_tokenizer();
    bauta_model_kind kind = bauta_model_kind_of(l->model);
    l->corpus = kind == BAUTA_ENCODER_DECODER
                    ? tiny_pairs(5, 40, 12)
                    : tiny_texts(5, 40, 30, kind == BAUTA_ENCODER_ONLY ? 1 : 3);
    must(bauta_trainer_create(&l->trainer, l->context, l->model, l->tokenizer,
                              l->corpus, options, &err),
         &err);
}

static inline void training_run_release(training_run *l)
{
    bauta_trainer_free(l->trainer);
    bauta_corpus_free(l->corpus);
    bauta_tokenizer_free(l->tokenizer);
    bauta_model_free(l->model);
    bauta_context_free(l->context);
}

/* Take some steps; returns the loss of the last one. */
static inline double training_run_steps(training_run *l, size_t steps)
{
    bauta_error err;
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    for (size_t i = 0; i < steps; i++) {
        must(bauta_trainer_step(l->trainer, &report, &err), &err);
        assert_true(report.updated);
    }
    return report.loss;
}

/* The floats of a buffer, NULL if it is empty. */
static inline float *buffer_floats(const bt_buffer *buffer)
{
    return buffer->memory;
}

static inline float *store_weights(const bt_model_store *store)
{
    return buffer_floats(&store->weights);
}

static inline float *store_gradients(const bt_model_store *store)
{
    return buffer_floats(&store->grads);
}

/* The moments of a trained tensor. */
static inline const float *first_moment(const bauta_trainer *trainer, size_t i)
{
    return buffer_floats(bt_optimizer_moments(trainer->optimizer)) +
           bt_optimizer_first_moment(trainer->optimizer, i);
}

static inline const float *second_moment(const bauta_trainer *trainer, size_t i)
{
    return buffer_floats(bt_optimizer_moments(trainer->optimizer)) +
           bt_optimizer_second_moment(trainer->optimizer, i);
}

/* The moving average of the weights, NULL if there is none. */
static inline float *trainer_ema(const bauta_trainer *trainer)
{
    return buffer_floats(&trainer->ema);
}

/* Weights, moments and average to the bit. */
static inline void training_run_same(const training_run *a,
                                     const training_run *b)
{
    const bt_model_store *x = a->model->store, *y = b->model->store;
    assert_int_equal(x->floats, y->floats);
    assert_memory_equal(store_weights(x), store_weights(y),
                        x->floats * sizeof(float));
    assert_int_equal(a->trainer->trained_count, b->trainer->trained_count);
    for (size_t i = 0; i < a->trainer->trained_count; i++) {
        const bt_tensor *t = a->trainer->trained[i]->tensor;
        size_t bytes = t->rows * t->columns * sizeof(float);
        assert_memory_equal(first_moment(a->trainer, i),
                            first_moment(b->trainer, i), bytes);
        assert_memory_equal(second_moment(a->trainer, i),
                            second_moment(b->trainer, i), bytes);
    }
    const float *ema = trainer_ema(a->trainer),
                *other = trainer_ema(b->trainer);
    assert_int_equal(!ema, !other);
    if (ema)
        assert_memory_equal(ema, other, x->floats * sizeof(float));
}

#endif
