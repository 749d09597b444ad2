/* SPDX-License-Identifier: Apache-2.0 */
/* test_epoch.c - one epoch over a corpus: every token once, in batches. */
#include "allocation_faults.h"
#include "base/error.h"
#include "base/size.h"
#include "data/epoch.h"
#include "testing.h"

#include <string.h>

static uint64_t seed;

/* ---- corpora ------------------------------------------------------------- */

/* Documents of 0 to `longest` tokens. */
static bauta_corpus *random_corpus(test_random *r, size_t documents,
                                   size_t longest, bool pairs)
{
    bauta_corpus *corpus = NULL;
    uint32_t tokens[512] = { 0 };
    assert_true(longest < BT_LEN(tokens));
    assert_int_equal(bauta_corpus_create(&corpus, NULL), 0);
    for (size_t d = 0; d < documents; d++)
        assert_int_equal(
            bauta_corpus_add(corpus, tokens, test_below(r, longest + 1),
                             pairs ? tokens : NULL,
                             pairs ? test_below(r, longest + 1) : 0, NULL),
            0);
    return corpus;
}

static bt_epoch epoch_of(const bauta_corpus *corpus, const bt_packing *how,
                         uint64_t of, size_t number)
{
    bt_epoch epoch;
    assert_int_equal(bt_epoch_init(&epoch, corpus, how, of, number, NULL), 0);
    return epoch;
}

/* ---- invariants of every epoch ------------------------------------------- */

/* Count how often each token of the corpus is read. */
static void tokens_count(unsigned *times, const bt_epoch *e,
                         const bauta_corpus *corpus, size_t context)
{
    for (size_t i = 0; i < e->count; i++) {
        const bt_example *s = &e->examples[i];
        size_t length = bt_corpus_side_length(&corpus->text, s->document);
        assert_true(s->count > 0 && s->count <= context);
        assert_true(s->first + s->count <= length);
        for (size_t j = 0; j < s->count; j++)
            times[corpus->text.offsets[s->document] + s->first + j]++;
    }
}

static void texts_are_read_once(const bt_epoch *e, const bauta_corpus *corpus,
                                const bt_packing *how)
{
    unsigned *times = calloc(corpus->text.count + 1, sizeof(*times));
    size_t skipped = 0;
    assert_non_null(times);
    tokens_count(times, e, corpus, how->context);
    for (size_t d = 0; d < corpus->documents; d++) {
        size_t length = bt_corpus_side_length(&corpus->text, d);
        size_t readable = how->next_token && length ? length - 1 : length;
        for (size_t i = 0; i < length; i++)
            assert_int_equal(times[corpus->text.offsets[d] + i], i < readable);
        skipped += readable == 0;
    }
    assert_int_equal(e->skipped, skipped);
    free(times);
}

static void pairs_are_read_once(const bt_epoch *e, const bauta_corpus *corpus,
                                const bt_packing *how)
{
    unsigned *times = calloc(corpus->documents + 1, sizeof(*times));
    size_t skipped = 0;
    assert_non_null(times);
    for (size_t i = 0; i < e->count; i++) {
        const bt_example *s = &e->examples[i];
        assert_int_equal(s->first, 0);
        assert_int_equal(s->count,
                         bt_corpus_side_length(&corpus->text, s->document));
        times[s->document]++;
    }
    for (size_t d = 0; d < corpus->documents; d++) {
        size_t target = bt_corpus_side_length(&corpus->text, d);
        size_t source = bt_corpus_side_length(&corpus->source, d);
        bool fits = target && source && target <= how->context &&
                    source <= how->context;
        assert_int_equal(times[d], fits);
        skipped += !fits;
    }
    assert_int_equal(e->skipped, skipped);
    free(times);
}

static size_t tokens_of(const bauta_corpus *corpus, const bt_example *s)
{
    return corpus->pairs
               ? bt_size_max(s->count, bt_corpus_side_length(&corpus->source,
                                                             s->document))
               : s->count;
}

/* Within their budget, and not smaller than necessary. */
static void batches_are_full(const bt_epoch *e, const bauta_corpus *corpus,
                             const bt_packing *how)
{
    assert_int_equal(e->batch_offsets[0], 0);
    assert_int_equal(e->batch_offsets[e->batch_count], e->count);
    for (size_t b = 0; b < e->batch_count; b++) {
        size_t first = e->batch_offsets[b], end = e->batch_offsets[b + 1],
               tokens = 0;
        assert_true(first < end);
        for (size_t i = first; i < end; i++)
            tokens += tokens_of(corpus, &e->examples[i]);
        if (how->sequences) {
            assert_true(
                end - first == how->sequences ||
                (b + 1 == e->batch_count && end - first < how->sequences));
            continue;
        }
        assert_true(end - first == 1 || tokens <= how->tokens);
        if (b + 1 < e->batch_count)
            assert_true(tokens + tokens_of(corpus, &e->examples[end]) >
                        how->tokens);
    }
}

static void epochs_of_random_corpora_hold_every_token_once(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    for (size_t i = 0; i < 300; i++) {
        bool pairs = i % 3 == 2;
        bauta_corpus *corpus = random_corpus(&r, test_below(&r, 30),
                                             1 + test_below(&r, 300), pairs);
        bt_packing how = { .context = 1 + test_below(&r, 64),
                           .sequences = i % 4 ? 0 : 1 + test_below(&r, 5),
                           .tokens = 1 + test_below(&r, 200),
                           .next_token = i % 2,
                           .in_order = i % 5 == 0 };
        bt_epoch e = epoch_of(corpus, &how, r.counter[0], i % 7);
        if (pairs)
            pairs_are_read_once(&e, corpus, &how);
        else
            texts_are_read_once(&e, corpus, &how);
        batches_are_full(&e, corpus, &how);
        bt_epoch_release(&e);
        bauta_corpus_free(corpus);
    }
}

/* ---- order --------------------------------------------------------------- */

static bool same_order(const bt_epoch *a, const bt_epoch *b)
{
    return a->count == b->count && memcmp(a->examples, b->examples,
                                          a->count * sizeof(*a->examples)) == 0;
}

static void order_follows_from_seed_and_epoch(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 1);
    bauta_corpus *corpus = random_corpus(&r, 60, 50, false);
    bt_packing how = { .context = 16, .tokens = 64 };
    bt_packing other = { .context = 16, .sequences = 3, .tokens = 1 };
    bt_epoch e = epoch_of(corpus, &how, 9, 4);
    const struct {
        const bt_packing *how;
        uint64_t seed;
        size_t number;
        bool same;
    } cases[] = { { &how, 9, 4, true },
                  { &other, 9, 4, true },
                  { &how, 9, 5, false },
                  { &how, 10, 4, false } };
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        bt_epoch f =
            epoch_of(corpus, cases[i].how, cases[i].seed, cases[i].number);
        assert_int_equal(same_order(&e, &f), cases[i].same);
        bt_epoch_release(&f);
    }
    bt_epoch_release(&e);
    bauta_corpus_free(corpus);
}

/* Each of 40 documents has the same chance to come first: over 4000 epochs
 * that is 100 times, and the deviation of a binomial distribution is 9.9; six
 * of them are one in 10^8. */
static void every_document_may_come_first(void **state)
{
    (void)state;
    enum { DOCUMENTS = 40, EPOCHS = 4000 };
    bauta_corpus *corpus = NULL;
    const uint32_t token = 7;
    size_t times[DOCUMENTS] = { 0 };
    bt_packing how = { .context = 8, .tokens = 8 };
    assert_int_equal(bauta_corpus_create(&corpus, NULL), 0);
    for (size_t d = 0; d < DOCUMENTS; d++)
        assert_int_equal(bauta_corpus_add(corpus, &token, 1, NULL, 0, NULL), 0);
    for (size_t i = 0; i < EPOCHS; i++) {
        bt_epoch e = epoch_of(corpus, &how, seed, i);
        times[e.examples[0].document]++;
        bt_epoch_release(&e);
    }
    for (size_t d = 0; d < DOCUMENTS; d++)
        assert_true(times[d] > 40 && times[d] < 160);
    bauta_corpus_free(corpus);
}

static void chunk_boundaries_move_from_epoch_to_epoch(void **state)
{
    (void)state;
    enum { EPOCHS = 400 };
    bauta_corpus *corpus = NULL;
    uint32_t tokens[100] = { 0 };
    bool seen[17] = { false };
    bt_packing how = { .context = 16, .tokens = 16, .in_order = false };
    assert_int_equal(bauta_corpus_create(&corpus, NULL), 0);
    assert_int_equal(bauta_corpus_add(corpus, tokens, 100, NULL, 0, NULL), 0);
    for (size_t i = 0; i < EPOCHS; i++) {
        bt_epoch e = epoch_of(corpus, &how, seed, i);
        for (size_t j = 0; j < e.count; j++)
            if (e.examples[j].first == 0)
                seen[e.examples[j].count] = true;
        bt_epoch_release(&e);
    }
    // (15 / 16)^400 x 16 is one in 10^10.
    for (size_t i = 1; i <= 16; i++)
        assert_true(seen[i]);
    bauta_corpus_free(corpus);
}

static void validation_is_in_order(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 2);
    bauta_corpus *corpus = random_corpus(&r, 20, 50, false);
    bt_packing how = { .context = 16, .tokens = 64, .in_order = true };
    bt_epoch e = epoch_of(corpus, &how, 1, 0), f = epoch_of(corpus, &how, 2, 3);
    assert_true(same_order(&e, &f));
    for (size_t i = 1; i < e.count; i++) {
        const bt_example *a = &e.examples[i - 1], *b = &e.examples[i];
        assert_true(a->document < b->document ||
                    (a->document == b->document &&
                     a->first + a->count == b->first && a->count == 16));
    }
    bt_epoch_release(&e);
    bt_epoch_release(&f);
    bauta_corpus_free(corpus);
}

/* ---- faults -------------------------------------------------------------- */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 3);
    faults_begin();
    bauta_corpus *corpus = random_corpus(&r, 60, 50, false);
    bt_packing how = { .context = 4, .tokens = 8 };
    for (size_t k = 0;; k++) {
        bt_epoch e;
        bauta_error err;
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status = bt_epoch_init(&e, corpus, &how, 1, 0, &err);
        bool failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        if (!failed)
            bt_epoch_release(&e);
        assert_int_equal(faults_live(), live);
        if (!failed)
            break;
    }
    bauta_corpus_free(corpus);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_of_random_corpora_hold_every_token_once),
        cmocka_unit_test(order_follows_from_seed_and_epoch),
        cmocka_unit_test(every_document_may_come_first),
        cmocka_unit_test(chunk_boundaries_move_from_epoch_to_epoch),
        cmocka_unit_test(validation_is_in_order),
        cmocka_unit_test(every_allocation_may_fail),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
