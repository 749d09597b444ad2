/* SPDX-License-Identifier: Apache-2.0 */
/* test_unigram.c - the most likely pieces, against all ways to split a text and
 * against a search that looks every piece up. */
#include "base/utf8.h"
#include "subword_fixtures.h"

#include <float.h>
#include <math.h>
#include <time.h>

static bt_subword_model *unigram_create(const bt_unigram_spec *spec)
{
    bt_subword_model *model;
    bauta_error err;
    if (bt_unigram_create(&model, spec, "test", &err))
        fail_msg("%s", err.message);
    return model;
}

/* ---- By hand ------------------------------------------------------------- */

static void the_most_likely_path_is_taken(void **state)
{
    (void)state;
    bt_vocab *vocab =
        VOCAB("<unk>", "a", "b", "c", "d", "cd", "ab", "abc", "abcd");
    const double scores[] = { 0, 0, 0, 0, 0, 1, 2, 5, 10 };
    bt_subword_model *model =
        unigram_create(&(bt_unigram_spec){ .vocab = vocab, .scores = scores });
    assert_tokens(model, vocab, "", "");
    assert_tokens(model, vocab, "abcd", "abcd@0-4");
    assert_tokens(model, vocab, "abcdacdxx",
                  "abcd@0-4 a@4-5 cd@5-7 "
                  "<unk>@7-9");
    // A run of unknowns is one token, and "<unk>" as text is part of it.
    assert_tokens(model, vocab, "x<unk>\u2603b", "<unk>@0-9 b@9-10");
    bt_subword_free(model);
    bt_vocab_free(vocab);
}

/* Hugging Face's library looks a run of unknowns up once more. */
static void a_run_of_unknowns_may_be_a_piece_after_all(void **state)
{
    (void)state;
    bt_vocab *vocab = VOCAB("<unk>", "xy");
    const double scores[] = { 40, 30 };
    bt_subword_model *model =
        unigram_create(&(bt_unigram_spec){ .vocab = vocab, .scores = scores });
    assert_tokens(model, vocab, "xy", "xy@0-2"); // 20 + 20 > 30
    assert_tokens(model, vocab, "xyz", "<unk>@0-3");
    bt_subword_free(model);
    bt_vocab_free(vocab);
}

static void unknown_characters_become_bytes(void **state)
{
    (void)state;
    bt_vocab *vocab =
        VOCAB("<unk>", "a", "<0xC3>", "<0xA9>", "<0xA8>", "<0x62>");
    const double scores[] = { 0, -1, 0, 0, 0, 0 };
    const unsigned char kinds[] = { 2, 0, 2, 2, 2, 2 };
    bt_unigram_spec spec = { .vocab = vocab,
                             .scores = scores,
                             .byte_fallback = true };
    bt_subword_model *model = unigram_create(&spec);
    // All of a run or nothing, and its tokens cover all of it.
    assert_tokens(model, vocab, "a\u00e9b",
                  "a@0-1 <0xC3>@1-4 <0xA9>@1-4 <0x62>@1-4");
    assert_tokens(model, vocab, "a\u00e9c", "a@0-1 <unk>@1-4");
    bt_subword_free(model);
    spec.kinds = kinds;
    spec.float32_scores = true;
    model = unigram_create(&spec);
    // SentencePiece: each character by itself.
    assert_tokens(model, vocab, "\u00e9ba\u00e8",
                  "<0xC3>@0-2 <0xA9>@0-2 <0x62>@2-3 a@3-4 <0xC3>@4-6 "
                  "<0xA8>@4-6");
    bt_subword_free(model);
    bt_vocab_free(vocab);
}

static void a_user_piece_wins_and_a_hidden_one_is_not_seen(void **state)
{
    (void)state;
    bt_vocab *vocab = VOCAB("<unk>", "a", "b", "ab", "abab", "<s>");
    const double scores[] = { 0, -1, -1, 0, -0.5, 0 };
    unsigned char kinds[] = { 2, 0, 0, 1, 0, 2 };
    bt_unigram_spec spec = {
        .vocab = vocab, .scores = scores, .kinds = kinds, .float32_scores = true
    };
    bt_subword_model *model = unigram_create(&spec);
    assert_tokens(model, vocab, "abab", "ab@0-2 ab@2-4");
    assert_tokens(model, vocab, "a<s>", "a@0-1 <unk>@1-4");
    bt_subword_free(model);
    kinds[3] = BT_UNIGRAM_HIDDEN;
    model = unigram_create(&spec);
    assert_tokens(model, vocab, "aba", "a@0-1 b@1-2 a@2-3");
    assert_tokens(model, vocab, "abab", "abab@0-4");
    bt_subword_free(model);
    bt_vocab_free(vocab);
}

static void without_an_unknown_piece_unknown_text_is_an_error(void **state)
{
    (void)state;
    bauta_error err;
    bt_subword_workspace work = { 0 };
    bt_vocab *vocab = VOCAB("a");
    const double scores[] = { -1 };
    bt_unigram_spec spec = { .vocab = vocab,
                             .scores = scores,
                             .unknown = BT_NO_ID };
    bt_subword_model *model = unigram_create(&spec);
    assert_tokens(model, vocab, "aa", "a@0-1 a@1-2");
    assert_int_equal(bt_subword_encode(model, "ab", 2, &work, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_string_equal(err.message, "\"b\" is not in the vocabulary, which "
                                     "has no unknown token");
    assert_int_equal(work.count, 0);
    bt_subword_workspace_release(&work);
    bt_subword_free(model);
    spec.unknown = 1;
    assert_int_equal(bt_unigram_create(&model, &spec, "f", &err),
                     BAUTA_ERR_FORMAT);
    assert_string_equal(err.message, "f: the unknown piece is 1 of 1 pieces");
    bt_vocab_free(vocab);
}

/* Where floats are far from 0 a small difference is lost; SentencePiece starts
 * from 0 again when a path is beyond 100000. */
static void path_scores_are_rebased_in_long_texts(void **state)
{
    (void)state;
    static const struct {
        size_t before;
        uint32_t down, up; /* "b" where "a" and "b" are seen to be better */
    } rows[] = { { 1, 3, 3 },     { 9999, 4, 4 },  { 10000, 3, 4 },
                 { 10001, 3, 3 }, { 10009, 4, 4 }, { 20000, 4, 4 },
                 { 20001, 3, 4 }, { 20002, 3, 3 } };
    static char text[20100];
    bt_vocab *vocab = VOCAB("<unk>", "x", "a", "b", "ab");
    double scores[] = { 0, -10, -4, -4 + 0x1p-18, -8 };
    const unsigned char kinds[] = { 2, 0, 0, 0, 0 };
    for (int sign = 0; sign < 2; sign++, scores[1] = 10) {
        bt_subword_model *made =
            unigram_create(&(bt_unigram_spec){ .vocab = vocab,
                                               .scores = scores,
                                               .kinds = kinds,
                                               .float32_scores = true });
        for (size_t i = 0; i < BT_LEN(rows); i++) {
            bt_subword_workspace work = { 0 };
            memset(text, 'x', rows[i].before);
            memcpy(text + rows[i].before, "ab", 2);
            assert_int_equal(
                bt_subword_encode(made, text, rows[i].before + 2, &work, NULL),
                0);
            assert_int_equal(work.tokens[work.count - 1].id,
                             sign ? rows[i].up : rows[i].down);
            bt_subword_workspace_release(&work);
        }
        bt_subword_free(made);
    }
    bt_vocab_free(vocab);
}

/* ---- Random models ------------------------------------------------------- */

enum { PIECES = 42, TEXT = 1024 };

typedef struct model {
    bt_vocab *vocab;
    double scores[PIECES];
    unsigned char kinds[PIECES];
    bt_unigram_spec spec;
    bt_subword_model *made;
} model;

/* Scores: tenths, of which many sums are equal but for rounding, or any. */
static void model_init(model *m, test_random *r)
{
    bool tenths = test_below(r, 2), spm = test_below(r, 2);
    m->vocab = VOCAB("<unk>", "a"); // one that is normal
    m->scores[1] = -1;
    m->kinds[0] = BT_UNIGRAM_HIDDEN;
    for (size_t n = test_below(r, PIECES); n > 0; n--) {
        char piece[32];
        size_t size = text_random(r, piece, 4, 6);
        uint32_t id = (uint32_t)bt_vocab_size(m->vocab);
        if (size == 0 || bt_vocab_find(m->vocab, piece, size) != UINT32_MAX)
            continue;
        assert_int_equal(bt_vocab_add(m->vocab, piece, size, id, NULL), 0);
        double score = tenths ? -0.1 * (double)test_below(r, 30)
                              : 5.0 * ((double)test_float(r) - 1);
        m->scores[id] = spm ? (double)(float)score : score;
        m->kinds[id] = (unsigned char)(test_below(r, 5) ? 0 : test_below(r, 3));
    }
    m->scores[0] = spm ? 0 : -3;
    m->spec = (bt_unigram_spec){ .vocab = m->vocab,
                                 .scores = m->scores,
                                 .kinds = spm ? m->kinds : NULL,
                                 .float32_scores = spm };
    m->made = unigram_create(&m->spec);
}

static void model_release(model *m)
{
    bt_subword_free(m->made);
    bt_vocab_free(m->vocab);
}

static double unknown_score(const model *m)
{
    double worst = m->spec.float32_scores ? (double)FLT_MAX : (double)INFINITY;
    for (size_t i = 0; i < bt_vocab_size(m->vocab); i++)
        if (!m->spec.kinds || m->kinds[i] == BT_UNIGRAM_NORMAL)
            worst = fmin(worst, m->scores[i]);
    return m->spec.float32_scores ? (double)((float)worst - 10) : worst - 10;
}

/* The score of a piece, or false when it is not found in text. */
static bool piece_score(const model *m, const char *text, size_t size,
                        uint32_t *id, double *score)
{
    *id = bt_vocab_find(m->vocab, text, size);
    if (*id == UINT32_MAX ||
        (m->spec.kinds && m->kinds[*id] == BT_UNIGRAM_HIDDEN))
        return false;
    *score = m->scores[*id];
    if (m->spec.kinds && m->kinds[*id] == BT_UNIGRAM_USER_DEFINED) {
        volatile float product = 0.1f * (float)size; // no fused multiply-add
        *score = (double)(product - 0.1f);
    }
    return true;
}

/* Every piece at every place, from left to right; the first of equals. */
static size_t encode_slow(const model *m, const char *text, size_t size,
                          bt_token *out)
{
    static double best[TEXT];
    static size_t from[TEXT];
    static uint32_t ids[TEXT];
    double unknown = unknown_score(m);
    for (size_t i = 0; i <= size; i++)
        from[i] = SIZE_MAX;
    best[0] = 0;
    for (size_t at = 0, length; at < size; at += length) {
        bool alone = false;
        length = bt_utf8_length((unsigned char)text[at]);
        for (size_t end = at + 1; end <= size + 1; end++) {
            uint32_t id = 0;
            double score = unknown;
            size_t to = end > size ? at + length : end;
            if (end > size && alone)
                break;
            if (end <= size &&
                !piece_score(m, text + at, end - at, &id, &score))
                continue;
            alone |= end - at == length;
            score += best[at];
            if (m->spec.float32_scores)
                score = (double)(float)score;
            if (from[to] != SIZE_MAX && !(score > best[to]))
                continue;
            best[to] = score;
            from[to] = at;
            ids[to] = id;
        }
    }
    size_t count = 0;
    for (size_t end = size; end > 0; end = from[end]) {
        bt_token t = { ids[end], (uint32_t)from[end], (uint32_t)end };
        if (t.id == 0 && count > 0 && out[count - 1].id == 0)
            out[count - 1].lo = t.lo;
        else
            out[count++] = t;
    }
    for (size_t i = 0; i < count / 2; i++) {
        bt_token t = out[i];
        out[i] = out[count - 1 - i];
        out[count - 1 - i] = t;
    }
    return count;
}

static void random_models_equal_the_slow_reference(void **state)
{
    (void)state;
    static bt_token want[TEXT];
    static char text[TEXT];
    test_random r = test_random_from(test_seed());
    bt_subword_workspace work = { 0 };
    for (int turn = 0; turn < 3000; turn++) {
        model m = { 0 };
        model_init(&m, &r);
        for (int k = 0; k < 10; k++) {
            bauta_error err;
            size_t size =
                text_random(&r, text, k < 8 ? 12 : 100, 1 + test_below(&r, 8));
            size_t count = encode_slow(&m, text, size, want);
            work.count = 0;
            if (bt_subword_encode(m.made, text, size, &work, &err))
                fail_msg("%s", err.message);
            if (work.count != count ||
                memcmp(work.tokens, want, count * sizeof(*want)) != 0)
                fail_msg("turn %d: \"%s\" has %zu tokens, not %zu, or others",
                         turn, text, work.count, count);
        }
        model_release(&m);
    }
    bt_subword_workspace_release(&work);
}

/* The best score of all ways to split a text. */
static double best_of_all(const model *m, const char *text, size_t size)
{
    double best = size ? -(double)INFINITY : 0, score;
    uint32_t id;
    size_t length = size ? bt_utf8_length((unsigned char)*text) : 0;
    for (size_t end = 1; end <= size; end++)
        if (piece_score(m, text, end, &id, &score))
            best = fmax(best, score + best_of_all(m, text + end, size - end));
    if (size && !piece_score(m, text, length, &id, &score))
        best = fmax(best, unknown_score(m) +
                              best_of_all(m, text + length, size - length));
    return best;
}

static void no_segmentation_is_better(void **state)
{
    (void)state;
    char text[TEXT];
    test_random r = test_random_from(test_seed() + 1);
    bt_subword_workspace work = { 0 };
    for (int turn = 0; turn < 1000; turn++) {
        model m = { 0 };
        model_init(&m, &r);
        size_t size = text_random(&r, text, 9, 4);
        double got = 0, score = 0;
        work.count = 0;
        assert_int_equal(bt_subword_encode(m.made, text, size, &work, NULL), 0);
        for (size_t i = 0; i < work.count; i++) {
            bt_token t = work.tokens[i];
            uint32_t id;
            size_t characters = 0;
            for (size_t k = t.lo; k < t.hi; k++)
                characters += ((unsigned char)text[k] & 0xC0) != 0x80;
            if (piece_score(&m, text + t.lo, t.hi - t.lo, &id, &score))
                got += score;
            else
                got += (double)characters * unknown_score(&m);
        }
        // Some ten float32 sums of up to 150 each lose no more.
        double loss = m.spec.float32_scores ? 1e-3 : 1e-9;
        assert_true(fabs(got - best_of_all(&m, text, size)) < loss);
        model_release(&m);
    }
    bt_subword_workspace_release(&work);
}

/* ---- Time and memory ----------------------------------------------------- */

static void a_megabyte_takes_linear_time(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    bauta_error err;
    bt_vocab *vocab = VOCAB("<unk>", "a", "aa", "aaaa", "aaaaaaaa");
    const double scores[] = { 0, -4, -4, -4, -4 };
    bt_subword_model *made =
        unigram_create(&(bt_unigram_spec){ .vocab = vocab, .scores = scores });
    bt_subword_workspace work = { 0 };
    char *text = malloc(SIZE);
    assert_non_null(text);
    memset(text, 'a', SIZE / 2);
    memset(text + SIZE / 2, 'x', SIZE / 2); // all of it one unknown
    clock_t begin = clock();
    if (bt_subword_encode(made, text, SIZE, &work, &err))
        fail_msg("%s", err.message);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    print_message("%.0f ms\n", seconds * 1e3);
    assert_true(seconds < 10); // quadratic would be hours
    assert_int_equal(work.count, SIZE / 2 / 8 + 1);
    free(text);
    bt_subword_workspace_release(&work);
    bt_subword_free(made);
    bt_vocab_free(vocab);
}

static void allocation_failure_leaks_nothing(void **state)
{
    (void)state;
    bauta_error err;
    bt_subword_model *made;
    faults_begin();
    bt_vocab *vocab = VOCAB("<unk>", "a", "<0x78>");
    const double scores[] = { 0, -1, -2 };
    const bt_unigram_spec spec = { .vocab = vocab,
                                   .scores = scores,
                                   .byte_fallback = true };
    for (size_t k = 0;; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status = bt_unigram_create(&made, &spec, "f", &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_null(made);
        assert_int_equal(faults_live(), live);
    }
    assert_encode_survives(made, "aaaaaaaaaaaaaaaaaaaxxxxxxxxxxxxxxxxxay", 38);
    bt_subword_free(made);
    bt_vocab_free(vocab);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_likely_path_is_taken),
        cmocka_unit_test(a_run_of_unknowns_may_be_a_piece_after_all),
        cmocka_unit_test(unknown_characters_become_bytes),
        cmocka_unit_test(a_user_piece_wins_and_a_hidden_one_is_not_seen),
        cmocka_unit_test(without_an_unknown_piece_unknown_text_is_an_error),
        cmocka_unit_test(path_scores_are_rebased_in_long_texts),
        cmocka_unit_test(random_models_equal_the_slow_reference),
        cmocka_unit_test(no_segmentation_is_better),
        cmocka_unit_test(a_megabyte_takes_linear_time),
        cmocka_unit_test(allocation_failure_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
