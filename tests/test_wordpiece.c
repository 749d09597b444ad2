/* SPDX-License-Identifier: Apache-2.0 */
/* test_wordpiece.c - longest piece first, and whole words. */
#include "subword_fixtures.h"

static bt_subword_model *wordpiece_create(const bt_wordpiece_spec *spec)
{
    bt_subword_model *model;
    bauta_error err;
    if (bt_wordpiece_create(&model, spec, "t", &err))
        fail_msg("%s", err.message);
    return model;
}

static void the_longest_piece_is_taken_each_time(void **state)
{
    (void)state;
    bt_vocab *vocab = VOCAB("[UNK]", "un", "##aff", "##able", "unaffe", "##a",
                            "##affa", "\u00e9", "##\u00e9");
    bt_subword_model *model =
        wordpiece_create(&(bt_wordpiece_spec){ vocab, 0, "##", 8 });
    assert_tokens(model, vocab, "", "");
    assert_tokens(model, vocab, "unaff", "un@0-2 ##aff@2-5");
    // "##affa" is taken and leaves "ble", so the word is unknown.
    assert_tokens(model, vocab, "unaffabl", "[UNK]@0-8");
    assert_tokens(model, vocab, "unable", "un@0-2 ##able@2-6");
    assert_tokens(model, vocab, "##a", "##a@0-3");
    assert_tokens(model, vocab, "\u00e9\u00e9a",
                  "\u00e9@0-2 ##\u00e9@2-4 ##a@4-5");
    bt_subword_free(model);
    bt_vocab_free(vocab);
}

static void a_word_with_too_many_characters_is_unknown(void **state)
{
    (void)state;
    bt_vocab *vocab = VOCAB("?", "\u00e9", "##\u00e9");
    bt_subword_model *model =
        wordpiece_create(&(bt_wordpiece_spec){ vocab, 0, "##", 3 });
    assert_tokens(model, vocab, "\u00e9\u00e9\u00e9",
                  "\u00e9@0-2 ##\u00e9@2-4 ##\u00e9@4-6");
    assert_tokens(model, vocab, "\u00e9\u00e9\u00e9\u00e9", "?@0-8");
    bt_subword_free(model);
    bt_vocab_free(vocab);
}

static void unknown_text_without_an_unknown_token_is_an_error(void **state)
{
    (void)state;
    bauta_error err;
    bt_subword_workspace work = { 0 };
    bt_vocab *vocab = VOCAB("a");
    bt_subword_model *model =
        wordpiece_create(&(bt_wordpiece_spec){ vocab, BT_NO_ID, "##", 100 });
    assert_tokens(model, vocab, "a", "a@0-1");
    assert_int_equal(bt_subword_encode(model, "ab", 2, &work, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_string_equal(err.message, "\"ab\" is not in the vocabulary, which "
                                     "has no unknown token");
    assert_int_equal(work.count, 0);
    bt_subword_free(model);
    assert_int_equal(bt_wordlevel_create(&model, vocab, BT_NO_ID, &err), 0);
    assert_int_equal(bt_subword_encode(model, "ab", 2, &work, &err),
                     BAUTA_ERR_ARGUMENT);
    bt_subword_free(model);
    bt_subword_workspace_release(&work);
    bt_vocab_free(vocab);
}

static void a_word_is_a_piece_or_unknown(void **state)
{
    (void)state;
    bauta_error err;
    bt_subword_model *model;
    bt_vocab *vocab = VOCAB("word", "[UNK]");
    assert_int_equal(bt_wordlevel_create(&model, vocab, 1, &err), 0);
    assert_tokens(model, vocab, "word", "word@0-4");
    assert_tokens(model, vocab, "words", "[UNK]@0-5");
    assert_tokens(model, vocab, "", "");
    bt_subword_free(model);
    bt_vocab_free(vocab);
}

/* ---- Random models ------------------------------------------------------- */

enum { TEXT = 256 };

/* Longest first by trying every end, and looking up the written piece. */
static size_t encode_slow(const bt_wordpiece_spec *spec, const char *text,
                          size_t size, bt_token *out)
{
    size_t count = 0, characters = 0, start = 0;
    for (size_t i = 0; i < size; i++)
        characters += ((unsigned char)text[i] & 0xC0) != 0x80;
    while (start < size && characters <= spec->max_word_chars) {
        size_t end = size;
        char piece[TEXT + 8];
        for (; end > start; end--) {
            int length = snprintf(piece, sizeof(piece), "%s%.*s",
                                  start ? spec->prefix : "", (int)(end - start),
                                  text + start);
            uint32_t id = bt_vocab_find(spec->vocab, piece, (size_t)length);
            if (id == UINT32_MAX)
                continue;
            out[count++] = (bt_token){ id, (uint32_t)start, (uint32_t)end };
            break;
        }
        if (end == start)
            break;
        start = end;
    }
    if (start == size)
        return count;
    out[0] = (bt_token){ spec->unknown, 0, (uint32_t)size };
    return 1;
}

static bt_vocab *vocab_random(test_random *r, const char *prefix)
{
    bt_vocab *vocab = VOCAB("[UNK]");
    for (size_t n = test_below(r, 60); n > 0; n--) {
        char piece[32];
        size_t size = 0;
        if (test_below(r, 2))
            size = (size_t)snprintf(piece, sizeof(piece), "%s", prefix);
        size += text_random(r, piece + size, 4, 6);
        if (bt_vocab_find(vocab, piece, size) == UINT32_MAX)
            assert_int_equal(bt_vocab_add(vocab, piece, size,
                                          (uint32_t)bt_vocab_size(vocab), NULL),
                             0);
    }
    return vocab;
}

static void random_models_equal_the_slow_reference(void **state)
{
    (void)state;
    static const char *const prefixes[] = { "##", "", "\u2603", "a" };
    static const size_t longest[] = { 4, 100, SIZE_MAX };
    bt_token want[TEXT];
    char text[TEXT];
    test_random r = test_random_from(test_seed());
    bt_subword_workspace work = { 0 };
    for (int turn = 0; turn < 3000; turn++) {
        bt_wordpiece_spec spec = { .prefix = prefixes[test_below(&r, 4)],
                                   .max_word_chars =
                                       longest[test_below(&r, 3)] };
        bt_vocab *vocab = vocab_random(&r, spec.prefix);
        spec.vocab = vocab;
        bt_subword_model *model = wordpiece_create(&spec);
        for (int k = 0; k < 10; k++) {
            bauta_error err;
            size_t size = text_random(&r, text, k < 8 ? 6 : 30, 6);
            size_t count = encode_slow(&spec, text, size, want);
            work.count = 0;
            if (bt_subword_encode(model, text, size, &work, &err))
                fail_msg("%s", err.message);
            if (work.count != count ||
                memcmp(work.tokens, want, count * sizeof(*want)) != 0)
                fail_msg("turn %d: \"%s\" has %zu tokens, not %zu, or others",
                         turn, text, work.count, count);
        }
        bt_subword_free(model);
        bt_vocab_free(vocab);
    }
    bt_subword_workspace_release(&work);
}

static void allocation_failure_leaks_nothing(void **state)
{
    (void)state;
    bauta_error err;
    bt_subword_model *model;
    faults_begin();
    bt_vocab *vocab = VOCAB("[UNK]", "a", "##b");
    const bt_wordpiece_spec spec = { vocab, 0, "##", 100 };
    for (size_t k = 0;; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status = bt_wordpiece_create(&model, &spec, "t", &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_int_equal(faults_live(), live);
    }
    assert_encode_survives(model, "abbbbbbbbbbbbbbbbbbbbbbbbbbbb", 29);
    assert_encode_survives(model, "x", 1);
    bt_subword_free(model);
    faults_arm(0);
    assert_int_equal(bt_wordlevel_create(&model, vocab, 0, &err),
                     BAUTA_ERR_NOMEM);
    assert_null(model);
    bt_vocab_free(vocab);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_piece_is_taken_each_time),
        cmocka_unit_test(a_word_with_too_many_characters_is_unknown),
        cmocka_unit_test(unknown_text_without_an_unknown_token_is_an_error),
        cmocka_unit_test(a_word_is_a_piece_or_unknown),
        cmocka_unit_test(random_models_equal_the_slow_reference),
        cmocka_unit_test(allocation_failure_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
