/* SPDX-License-Identifier: Apache-2.0 */
/* test_objective.c - inputs and labels of a batch: small ones by hand, random
 * ones by their statistics. */
#include "allocation_faults.h"
#include "data/objective.h"
#include "tiny_training.h"

#include <math.h>

static uint64_t seed;

enum { NONE = 99 }; /* BAUTA_IGNORE, in the lists of a test */

static void row_is(const bt_train_batch *f, const uint32_t *ids,
                   const uint32_t *labels, size_t rows)
{
    size_t counted = 0;
    assert_int_equal(f->rows, rows);
    for (size_t i = 0; i < rows; i++) {
        assert_int_equal(f->ids[i], ids[i]);
        assert_int_equal(f->labels[i],
                         labels[i] == NONE ? BAUTA_IGNORE : labels[i]);
        counted += labels[i] != NONE;
    }
    assert_int_equal(f->label_count, counted);
}

static bauta_corpus *two_texts(void)
{
    bauta_corpus *corpus = NULL;
    const uint32_t a[] = { 10, 11, 12, 13, 14 }, b[] = { 20, 21, 22 };
    assert_int_equal(bauta_corpus_create(&corpus, NULL), 0);
    assert_int_equal(bauta_corpus_add(corpus, a, 5, NULL, 0, NULL), 0);
    assert_int_equal(bauta_corpus_add(corpus, b, 3, NULL, 0, NULL), 0);
    return corpus;
}

/* ---- by hand ------------------------------------------------------------- */

static void causal_labels_are_the_next_tokens(void **state)
{
    (void)state;
    bauta_corpus *corpus = two_texts();
    bt_objective o = { .kind = BAUTA_OBJECTIVE_CAUSAL, .vocab_size = 40 };
    bt_train_batch f = { 0 };
    // The middle of one, the beginning of the other, and a token without a next
    // one.
    const bt_example list[] = { { 0, 1, 2 }, { 1, 0, 2 }, { 1, 1, 2 } };
    assert_int_equal(bt_train_batch_set(&f, &o, corpus, list, 3, NULL), 0);
    row_is(&f, (const uint32_t[]){ 11, 12, 20, 21, 21, 22 },
           (const uint32_t[]){ 12, 13, 21, 22, 22, NONE }, 6);
    const uint64_t numbers[] = { 1, 2, 5, 6, 6, 7 };
    for (size_t i = 0; i < 6; i++)
        assert_true(f.token_keys[i] == (UINT64_C(1) << 63) + numbers[i]);
    assert_int_equal(f.count, 3);
    assert_int_equal(f.lengths[0], 2);
    assert_int_equal(f.prefix_lengths[0], 0);
    assert_int_equal(f.source_rows, 0);
    bt_train_batch_release(&f);
    bauta_corpus_free(corpus);
}

static void seq2seq_labels_are_the_target(void **state)
{
    (void)state;
    bauta_corpus *corpus = NULL;
    const uint32_t a[] = { 10, 11, 2 }, b[] = { 20, 2 };
    bt_objective o = { .kind = BAUTA_OBJECTIVE_SEQ2SEQ,
                       .decoder_start_token = 39,
                       .vocab_size = 40 };
    bt_train_batch f = { 0 };
    const bt_example list[] = { { 1, 0, 3 }, { 0, 0, 2 } };
    assert_int_equal(bauta_corpus_create(&corpus, NULL), 0);
    assert_int_equal(bauta_corpus_add(corpus, b, 2, a, 3, NULL), 0);
    assert_int_equal(bauta_corpus_add(corpus, a, 3, b, 2, NULL), 0);
    assert_int_equal(bt_train_batch_set(&f, &o, corpus, list, 2, NULL), 0);
    row_is(&f, (const uint32_t[]){ 39, 10, 11, 39, 20 },
           (const uint32_t[]){ 10, 11, 2, 20, 2 }, 5);
    assert_int_equal(f.source_rows, 5);
    const uint32_t source[] = { 20, 2, 10, 11, 2 };
    assert_memory_equal(f.source, source, sizeof(source));
    const uint64_t keys[] = { 3, 4, 0, 1, 2 };
    assert_memory_equal(f.source_keys, keys, sizeof(keys));
    assert_int_equal(f.source_lengths[0], 2);
    assert_int_equal(f.source_lengths[1], 3);
    bt_train_batch_release(&f);
    bauta_corpus_free(corpus);
}

/* A prefix has from 1 to all but one tokens, each as likely, and only tokens
 * after it are predicted. */
static void a_prefix_is_given_and_not_predicted(void **state)
{
    (void)state;
    enum { EPOCHS = 4000, COUNT = 4 };
    bauta_corpus *corpus = two_texts();
    bt_objective o = { .kind = BAUTA_OBJECTIVE_PREFIX,
                       .seed = seed,
                       .vocab_size = 40 };
    bt_train_batch f = { 0 };
    const bt_example list[] = { { 0, 0, COUNT }, { 1, 2, 1 } };
    size_t times[COUNT] = { 0 };
    for (o.epoch = 0; o.epoch < EPOCHS; o.epoch++) {
        assert_int_equal(bt_train_batch_set(&f, &o, corpus, list, 2, NULL), 0);
        size_t prefix = f.prefix_lengths[0];
        assert_true(prefix >= 1 && prefix < COUNT);
        times[prefix]++;
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(f.ids[i], 10 + i);
            assert_int_equal(f.labels[i],
                             i + 1 < prefix ? BAUTA_IGNORE : 11 + i);
        }
        assert_int_equal(f.label_count, COUNT - prefix + 1);
        assert_int_equal(f.prefix_lengths[1], 1);
    }
    // 1333 of 4000 with a deviation of 30; six of them.
    for (size_t p = 1; p < COUNT; p++)
        assert_true(fabs((double)times[p] - EPOCHS / 3.0) < 6 * 30);
    bt_train_batch_release(&f);
    bauta_corpus_free(corpus);
}

/* ---- masked -------------------------------------------------------------- */

typedef struct counts {
    size_t plain, hidden, masked, random, kept;
    size_t by_token[TINY_VOCAB_SIZE]; /* what random ones became */
} counts;

static void count_row(counts *c, const bauta_tokenizer *t, uint32_t token,
                      uint32_t id, uint32_t label)
{
    if (bauta_tokenizer_is_special(t, token)) {
        assert_int_equal(id, token);
        assert_int_equal(label, BAUTA_IGNORE);
        return;
    }
    c->plain++;
    if (label == BAUTA_IGNORE) {
        assert_int_equal(id, token);
        return;
    }
    assert_int_equal(label, token);
    c->hidden++;
    if (id == TINY_MASK)
        c->masked++;
    else if (id == token)
        c->kept++;
    else
        c->random++;
    c->by_token[id]++;
}

/* Six deviations of a binomial distribution: once in 10^9. */
static void share_is(const char *what, size_t got, size_t of, double share)
{
    double want = share * (double)of;
    double deviation = sqrt((double)of * share * (1 - share));
    if (!(fabs((double)got - want) <= 6 * deviation))
        fail_msg("%s: %zu of %zu, want %.1f within %.1f", what, got, of, want,
                 6 * deviation);
}

static bt_objective masked(const bauta_tokenizer *tokenizer)
{
    return (bt_objective){ .kind = BAUTA_OBJECTIVE_MASKED,
                           .seed = seed,
                           .mask_token = TINY_MASK,
                           .vocab_size = TINY_VOCAB_SIZE,
                           .tokenizer = tokenizer,
                           .mlm_probability = 0.15f,
                           .mlm_random = 0.1f,
                           .mlm_keep = 0.1f };
}

static void masked_tokens_have_the_requested_rates(void **state)
{
    (void)state;
    bauta_tokenizer *tokenizer = tiny_tokenizer();
    bauta_corpus *corpus = NULL;
    bt_objective o = masked(tokenizer);
    bt_train_batch f = { 0 };
    counts c = { 0 };
    enum { COUNT = 20000 };
    uint32_t *tokens = malloc(COUNT * sizeof(*tokens));
    assert_non_null(tokens);
    test_random r = test_random_from(seed);
    for (size_t i = 0; i < COUNT; i++)
        tokens[i] = (uint32_t)test_below(&r, TINY_VOCAB_SIZE);
    assert_int_equal(bauta_corpus_create(&corpus, NULL), 0);
    assert_int_equal(bauta_corpus_add(corpus, tokens, COUNT, NULL, 0, NULL), 0);
    for (o.epoch = 0; o.epoch < 20; o.epoch++) {
        bt_example all = { 0, 0, COUNT };
        assert_int_equal(bt_train_batch_set(&f, &o, corpus, &all, 1, NULL), 0);
        size_t before = c.hidden;
        for (size_t i = 0; i < COUNT; i++)
            count_row(&c, tokenizer, tokens[i], f.ids[i], f.labels[i]);
        assert_int_equal(f.label_count, c.hidden - before);
    }
    // A random token is the mask, or what it was, once in 40 each.
    share_is("hidden", c.hidden, c.plain, (double)0.15f);
    share_is("masked", c.masked, c.hidden, 0.8 + 0.1 / 40);
    share_is("kept", c.kept, c.hidden, 0.1 + 0.1 / 40);
    share_is("random", c.random, c.hidden, 0.1 * 38 / 40);
    for (size_t i = 0; i < TINY_A; i++)
        if (i != TINY_MASK)
            share_is("a special", c.by_token[i], c.hidden, 0.1 / 40);
    bt_train_batch_release(&f);
    free(tokens);
    bauta_corpus_free(corpus);
    bauta_tokenizer_free(tokenizer);
}

static void rates_of_0_and_1_are_exact(void **state)
{
    (void)state;
    bauta_tokenizer *tokenizer = tiny_tokenizer();
    bauta_corpus *corpus = two_texts();
    bt_objective o = masked(tokenizer);
    bt_train_batch f = { 0 };
    const bt_example all = { 0, 0, 5 };
    o.mlm_probability = 0.0f;
    assert_int_equal(bt_train_batch_set(&f, &o, corpus, &all, 1, NULL), 0);
    assert_int_equal(f.label_count, 0);
    o.mlm_probability = 1.0f;
    o.mlm_random = o.mlm_keep = 0.0f;
    assert_int_equal(bt_train_batch_set(&f, &o, corpus, &all, 1, NULL), 0);
    row_is(&f, (const uint32_t[]){ 4, 4, 4, 4, 4 },
           (const uint32_t[]){ 10, 11, 12, 13, 14 }, 5);
    o.mlm_keep = 1.0f;
    assert_int_equal(bt_train_batch_set(&f, &o, corpus, &all, 1, NULL), 0);
    row_is(&f, (const uint32_t[]){ 10, 11, 12, 13, 14 },
           (const uint32_t[]){ 10, 11, 12, 13, 14 }, 5);
    bt_train_batch_release(&f);
    bauta_corpus_free(corpus);
    bauta_tokenizer_free(tokenizer);
}

/* ---- batching ------------------------------------------------------------ */

/* The inputs of a sequence do not depend on the rest of the batch. */
static void draws_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    bauta_tokenizer *tokenizer = tiny_tokenizer();
    bauta_corpus *corpus = tiny_texts(seed, 30, 60, 3);
    bt_packing how = { .context = 16, .tokens = 100000 };
    bt_epoch e;
    assert_int_equal(bt_epoch_init(&e, corpus, &how, seed, 1, NULL), 0);
    for (int kind = BAUTA_OBJECTIVE_MASKED; kind <= BAUTA_OBJECTIVE_PREFIX;
         kind++) {
        bt_objective o = masked(tokenizer);
        bt_train_batch all = { 0 }, one = { 0 };
        size_t row = 0;
        o.kind = (bauta_objective)kind;
        o.epoch = 1;
        o.mlm_probability = 0.5f;
        assert_int_equal(
            bt_train_batch_set(&all, &o, corpus, e.examples, e.count, NULL), 0);
        for (size_t i = 0; i < e.count; i++) {
            assert_int_equal(
                bt_train_batch_set(&one, &o, corpus, &e.examples[i], 1, NULL),
                0);
            size_t n = one.rows;
            assert_int_equal(n, all.lengths[i]);
            assert_memory_equal(one.ids, all.ids + row, n * sizeof(*one.ids));
            assert_memory_equal(one.labels, all.labels + row,
                                n * sizeof(*one.labels));
            assert_memory_equal(one.token_keys, all.token_keys + row,
                                n * sizeof(*one.token_keys));
            assert_int_equal(one.prefix_lengths[0], all.prefix_lengths[i]);
            row += n;
        }
        assert_int_equal(row, all.rows);
        bt_train_batch_release(&all);
        bt_train_batch_release(&one);
    }
    bt_epoch_release(&e);
    bauta_corpus_free(corpus);
    bauta_tokenizer_free(tokenizer);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    faults_begin();
    bauta_corpus *corpus = tiny_pairs(1, 4, 8);
    bt_objective o = { .kind = BAUTA_OBJECTIVE_SEQ2SEQ, .vocab_size = 40 };
    bt_train_batch f = { 0 };
    bt_example list[4];
    for (size_t i = 0; i < 4; i++)
        list[i] = (bt_example){ i, 0, bt_corpus_side_length(&corpus->text, i) };
    for (size_t k = 0;; k++) {
        bauta_error err;
        bt_train_batch_release(&f);
        // Buffers that grow must not leak either.
        assert_int_equal(bt_train_batch_set(&f, &o, corpus, list, 1, NULL), 0);
        faults_arm(k);
        bauta_status status = bt_train_batch_set(&f, &o, corpus, list, 4, &err);
        bool failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        if (!failed)
            break;
        assert_int_equal(bt_train_batch_set(&f, &o, corpus, list, 4, NULL), 0);
    }
    bt_train_batch_release(&f);
    bauta_corpus_free(corpus);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal_labels_are_the_next_tokens),
        cmocka_unit_test(seq2seq_labels_are_the_target),
        cmocka_unit_test(a_prefix_is_given_and_not_predicted),
        cmocka_unit_test(masked_tokens_have_the_requested_rates),
        cmocka_unit_test(rates_of_0_and_1_are_exact),
        cmocka_unit_test(draws_do_not_depend_on_the_batch),
        cmocka_unit_test(every_allocation_may_fail),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
