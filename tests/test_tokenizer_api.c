/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer_api.c - tokenizers through bauta.h, with small files of our
 * own: templates, offsets, streaming, saving, any bytes, any length, and every
 * allocation failing once. */
#include "allocation_faults.h"
#include "temp_folder.h"
#include "testing.h"

#include "bauta.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BPE                                                                 \
    "{\"added_tokens\":[{\"id\":270,\"content\":\"<s>\",\"special\":true}," \
    "{\"id\":271,\"content\":\"</s>\",\"special\":true}],"                  \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false," \
    "\"use_regex\":true},\"decoder\":{\"type\":\"ByteLevel\"},"             \
    "\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\"," \
    "271],\"cls\":[\"<s>\",270]},"                                          \
    "\"model\":{\"type\":\"BPE\",\"vocab\":%s,\"merges\":%s}}"

static const char merges[] = "[\"a b\",\"ab c\",\"\xC4\xA0 ab\"]";

/* The 256 bytes and the merged pieces. */
static void vocab_text(char *text)
{
    char *at = text;
    unsigned next = 0x100;
    *at++ = '{';
    for (unsigned b = 0; b < 256; b++) {
        bool shown = (b > 32 && b < 127) || (b > 160 && b != 173);
        unsigned c = shown ? b : next++;
        char character[8];
        if (c == '"' || c == '\\')
            snprintf(character, sizeof(character), "\\%c", (int)c);
        else if (c < 128)
            snprintf(character, sizeof(character), "%c", (int)c);
        else
            snprintf(character, sizeof(character), "%c%c", (int)(0xC0 | c >> 6),
                     (int)(0x80 | (c & 63)));
        at += sprintf(at, "\"%s\":%u,", character, b);
    }
    sprintf(at, "\"ab\":256,\"abc\":257,\"\xC4\xA0"
                "ab\":258}");
}

static bauta_tokenizer *bpe_at(temp_folder *s)
{
    static char vocab[8192], document[16384];
    bauta_tokenizer *made;
    bauta_error err;
    vocab_text(vocab);
    int size = snprintf(document, sizeof(document), BPE, vocab, merges);
    temp_folder_write(s, "tokenizer.json", document, (size_t)size);
    if (bauta_tokenizer_load(&made, s->folder, &err))
        fail_msg("%s", err.message);
    return made;
}

static void ids_are(const bauta_tokens *tokens, size_t count,
                    const uint32_t *ids)
{
    assert_int_equal(tokens->count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(tokens->ids[i], ids[i]);
}

static void encoded(const bauta_tokenizer *t, const char *text,
                    const bauta_encode_options *options, bauta_tokens *out)
{
    bauta_error err;
    if (bauta_tokenizer_encode(t, text, strlen(text), options, out, &err))
        fail_msg("%s", err.message);
}

/* ---- templates, literal text, pairs ------------------------------------ */

static void options_select_the_special_tokens(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_tokenizer *t = bpe_at(&s);
    bauta_encode_options o = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens;
    encoded(t, "abc ab</s>", NULL, &tokens);
    ids_are(&tokens, 5, (uint32_t[]){ 270, 257, 258, 271, 271 });
    assert_int_equal(tokens.starts[1], 0);
    assert_int_equal(tokens.ends[1], 3);
    assert_int_equal(tokens.starts[2], 3);
    assert_int_equal(tokens.ends[2], 6);
    assert_int_equal(tokens.starts[3], 6);
    assert_int_equal(tokens.ends[3], 10);
    assert_int_equal(tokens.starts[4], 0);
    assert_int_equal(tokens.ends[4], 0);
    bauta_tokens_release(&tokens);
    o.no_special_tokens = true;
    encoded(t, "abc", &o, &tokens);
    ids_are(&tokens, 1, (uint32_t[]){ 257 });
    bauta_tokens_release(&tokens);
    o.split_special_tokens = true;
    encoded(t, "</s>", &o, &tokens);
    ids_are(&tokens, 4, (uint32_t[]){ '<', '/', 's', '>' });
    bauta_tokens_release(&tokens);
    bauta_tokenizer_free(t);
    temp_folder_free(&s);
}

static void pairs_follow_the_template(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_tokenizer *t = bpe_at(&s);
    bauta_encode_options o = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens;
    assert_int_equal(
        bauta_tokenizer_encode_pair(t, "a", 1, "bc", 2, NULL, &tokens, NULL),
        0);
    ids_are(&tokens, 7, (uint32_t[]){ 270, 'a', 271, 271, 'b', 'c', 271 });
    assert_int_equal(tokens.starts[4], 0);
    bauta_tokens_release(&tokens);
    o.no_special_tokens = true;
    assert_int_equal(
        bauta_tokenizer_encode_pair(t, "a", 1, "", 0, &o, &tokens, NULL), 0);
    ids_are(&tokens, 1, (uint32_t[]){ 'a' });
    bauta_tokens_release(&tokens);
    bauta_tokenizer_free(t);
    temp_folder_free(&s);
}

static void names_and_pieces_are_looked_up(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_tokenizer *t = bpe_at(&s);
    size_t length;
    assert_int_equal(bauta_tokenizer_vocab_size(t), 272);
    assert_int_equal(bauta_tokenizer_special_token(t, BAUTA_TOKEN_BOS), 270);
    assert_int_equal(bauta_tokenizer_special_token(t, BAUTA_TOKEN_EOS), 271);
    assert_int_equal(bauta_tokenizer_special_token(t, BAUTA_TOKEN_MASK),
                     BAUTA_NO_TOKEN);
    assert_int_equal(bauta_tokenizer_special_token(t, (bauta_special_token)99),
                     BAUTA_NO_TOKEN);
    assert_string_equal(bauta_tokenizer_piece(t, 257, &length), "abc");
    assert_int_equal(length, 3);
    assert_null(bauta_tokenizer_piece(t, 265, NULL)); // a gap
    assert_null(bauta_tokenizer_piece(t, 999, NULL));
    assert_int_equal(bauta_tokenizer_find(t, "abc", 3), 257);
    assert_int_equal(bauta_tokenizer_find(t, "abd", 3), BAUTA_NO_TOKEN);
    assert_true(bauta_tokenizer_is_special(t, 270));
    assert_false(bauta_tokenizer_is_special(t, 257));
    assert_false(bauta_tokenizer_is_special(t, 99999));
    bauta_tokenizer_free(t);
    temp_folder_free(&s);
}

/* ---- decoding ---------------------------------------------------------- */

static void an_incomplete_character_is_held_back(void **state)
{
    (void)state;
    // Three bytes of U+1F469, then the fourth; then a byte that begins nothing,
    // and one that is never completed.
    static const uint32_t ids[] = { 0xF0, 0x9F, 0x91, 0xA9, 'x', 0xFF, 0xC3 };
    static const char *const parts[] = {
        "", "", "", "\xF0\x9F\x91\xA9", "x", "\xEF\xBF\xBD", ""
    };
    bauta_tokenizer *t;
    bauta_detokenizer *decoder;
    const char *text;
    size_t length;
    assert_int_equal(bauta_tokenizer_bytes(&t, NULL), 0);
    assert_int_equal(bauta_detokenizer_create(&decoder, t, NULL, NULL), 0);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < 7; i++) {
            assert_int_equal(
                bauta_detokenizer_push(decoder, ids[i], &text, &length, NULL),
                0);
            assert_string_equal(text, parts[i]);
            assert_int_equal(length, strlen(parts[i]));
        }
        assert_int_equal(
            bauta_detokenizer_finish(decoder, &text, &length, NULL), 0);
        assert_string_equal(text, "\xEF\xBF\xBD");
    }
    bauta_detokenizer_free(decoder);
    bauta_tokenizer_free(t);
}

static void special_tokens_are_skipped_or_kept(void **state)
{
    (void)state;
    static const uint32_t ids[] = { 270, 257, 271 };
    temp_folder s = temp_folder_create();
    bauta_tokenizer *t = bpe_at(&s);
    bauta_decode_options o = BAUTA_DECODE_OPTIONS_INIT;
    char *text;
    bauta_error err;
    assert_int_equal(bauta_tokenizer_decode(t, ids, 3, NULL, &text, NULL, NULL),
                     0);
    assert_string_equal(text, "abc");
    bauta_text_free(text);
    o.keep_special_tokens = true;
    assert_int_equal(bauta_tokenizer_decode(t, ids, 3, &o, &text, NULL, NULL),
                     0);
    assert_string_equal(text, "<s>abc</s>");
    bauta_text_free(text);
    assert_int_equal(bauta_tokenizer_decode(t, (uint32_t[]){ 265 }, 1, NULL,
                                            &text, NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_null(text);
    assert_non_null(strstr(err.message, "265"));
    bauta_tokenizer_free(t);
    temp_folder_free(&s);
}

/* ---- created without files --------------------------------------------- */

static void bytes_are_lossless(void **state)
{
    (void)state;
    test_random random = test_random_from(test_seed());
    bauta_tokenizer *t;
    assert_int_equal(bauta_tokenizer_bytes(&t, NULL), 0);
    assert_int_equal(bauta_tokenizer_vocab_size(t), 257);
    assert_int_equal(bauta_tokenizer_special_token(t, BAUTA_TOKEN_EOS), 256);
    assert_true(bauta_tokenizer_is_special(t, 256));
    for (int round = 0; round < 200; round++) {
        char text[64];
        bauta_tokens tokens;
        size_t n = test_below(&random, sizeof(text));
        for (size_t i = 0; i < n; i++)
            text[i] = (char)test_u32(&random);
        assert_int_equal(
            bauta_tokenizer_encode(t, text, n, NULL, &tokens, NULL), 0);
        assert_int_equal(tokens.count, n);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(tokens.ids[i], (unsigned char)text[i]);
            assert_int_equal(tokens.starts[i], i);
            assert_int_equal(tokens.ends[i], i + 1);
        }
        bauta_tokens_release(&tokens);
    }
    bauta_tokenizer_free(t);
}

static void characters_are_sorted_and_saved(void **state)
{
    (void)state;
    static const char text[] = "hello, w\xC3\xB6rld\n\"\\\xF0\x9F\x91\xA9";
    temp_folder s = temp_folder_create();
    bauta_tokenizer *t, *again;
    bauta_tokens tokens, same;
    char *back;
    assert_int_equal(bauta_tokenizer_characters(&t, text, strlen(text), NULL),
                     0);
    assert_int_equal(bauta_tokenizer_vocab_size(t), 16);
    assert_string_equal(bauta_tokenizer_piece(t, 0, NULL), "\n");
    assert_string_equal(bauta_tokenizer_piece(t, 13, NULL), "\xF0\x9F\x91\xA9");
    encoded(t, text, NULL, &tokens);
    assert_int_equal(tokens.count, 16);
    assert_int_equal(bauta_tokenizer_save(t, s.folder, NULL), 0);
    assert_int_equal(bauta_tokenizer_load(&again, s.folder, NULL), 0);
    encoded(again, text, NULL, &same);
    ids_are(&same, tokens.count, tokens.ids);
    assert_int_equal(bauta_tokenizer_decode(again, same.ids, same.count, NULL,
                                            &back, NULL, NULL),
                     0);
    assert_string_equal(back, text);
    bauta_text_free(back);
    bauta_tokens_release(&same);
    assert_string_equal(bauta_tokenizer_piece(t, 14, NULL), "<unk>");
    assert_int_equal(bauta_tokenizer_special_token(again, BAUTA_TOKEN_UNK), 14);
    assert_int_equal(bauta_tokenizer_special_token(again, BAUTA_TOKEN_EOS), 15);
    bauta_tokens_release(&tokens);
    bauta_tokenizer_free(t);
    bauta_tokenizer_free(again);
    assert_int_equal(bauta_tokenizer_characters(&again, "a\0b", 3, NULL),
                     BAUTA_ERR_ARGUMENT);
    assert_null(again);
    temp_folder_free(&s);
}

static void unknown_are(const bauta_tokenizer *t, const char *text,
                        size_t tokens_count, bauta_unknown want)
{
    bauta_tokens tokens;
    encoded(t, text, NULL, &tokens);
    bauta_unknown u = bauta_tokens_unknown(t, &tokens, text, strlen(text));
    if (tokens.count != tokens_count || u.count != want.count ||
        u.start != want.start || u.end != want.end)
        fail_msg("\"%s\": %zu tokens, %zu unknown, the first %zu to %zu", text,
                 tokens.count, u.count, u.start, u.end);
    bauta_tokens_release(&tokens);
}

/* Character tokenizers have an unknown token. Those of older versions had none
 * and dropped unknown characters; they still load, and drops are still
 * counted. */
static void unknown_characters_are_counted(void **state)
{
    (void)state;
    static const char old[] =
        "{\"version\":\"1.0\",\"added_tokens\":[],\"decoder\":{\"type\":"
        "\"Fuse\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":"
        "1},\"merges\":[]}}";
    temp_folder s = temp_folder_create();
    bauta_tokenizer *t;
    assert_int_equal(bauta_tokenizer_characters(&t, "ba", 2, NULL), 0);
    unknown_are(t, "abba", 4, (bauta_unknown){ 0, 0, 0 });
    unknown_are(t, "ab\xC3\xA9xa", 5, (bauta_unknown){ 2, 2, 4 });
    unknown_are(t, "", 0, (bauta_unknown){ 0, 0, 0 });
    unknown_are(t, "a<unk>", 2, (bauta_unknown){ 0, 0, 0 }); // asked for
    bauta_tokenizer_free(t);
    temp_folder_write(&s, "tokenizer.json", old, sizeof(old) - 1);
    assert_int_equal(bauta_tokenizer_load(&t, s.folder, NULL), 0);
    unknown_are(t, "abba", 4, (bauta_unknown){ 0, 0, 0 });
    unknown_are(t, "ab\xC3\xA9xa", 3, (bauta_unknown){ 2, 2, 4 });
    unknown_are(t, "xabx", 2, (bauta_unknown){ 2, 0, 1 });
    unknown_are(t, "x", 0, (bauta_unknown){ 1, 0, 1 });
    bauta_tokenizer_free(t);
    assert_int_equal(bauta_tokenizer_bytes(&t, NULL), 0);
    unknown_are(t, "ab\xFF", 3, (bauta_unknown){ 0, 0, 0 });
    bauta_tokenizer_free(t);
    temp_folder_free(&s);
}

/* ---- any length -------------------------------------------------------- */

/* A megabyte of the same few bytes takes linear time. */
static void long_texts_take_linear_time(void **state)
{
    (void)state;
    static const char *const units[] = { "a",        " ",   "\xF0\x9F\x91\xA9",
                                         "\xFF",     "ab ", "e\xCC\x81",
                                         "\xCC\x81", "\n",  "1",
                                         "</s" };
    enum { SIZE = 1 << 20 };
    temp_folder s = temp_folder_create();
    bauta_tokenizer *made[2] = { bpe_at(&s) };
    char *text = malloc(SIZE);
    assert_int_equal(bauta_tokenizer_characters(&made[1], "ab e", 4, NULL), 0);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t n = strlen(units[i]);
        for (size_t at = 0; at < SIZE; at++)
            text[at] = units[i][at % n];
        for (size_t k = 0; k < 2; k++) {
            bauta_tokens tokens;
            clock_t begin = clock();
            assert_int_equal(bauta_tokenizer_encode(made[k], text, SIZE, NULL,
                                                    &tokens, NULL),
                             0);
            double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
            if (seconds > 10)
                fail_msg("a megabyte of unit %zu took %g s", i, seconds);
            bauta_tokens_release(&tokens);
        }
    }
    free(text);
    bauta_tokenizer_free(made[0]);
    bauta_tokenizer_free(made[1]);
    temp_folder_free(&s);
}

/* ---- failures ---------------------------------------------------------- */

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    bauta_tokenizer *t;
    bauta_tokens tokens;
    bauta_detokenizer *decoder;
    char *text;
    assert_int_equal(bauta_tokenizer_load(NULL, "x", NULL), BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_tokenizer_load(&t, NULL, NULL), BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_tokenizer_encode(NULL, "", 0, NULL, &tokens, NULL),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_detokenizer_create(&decoder, NULL, NULL, NULL),
                     BAUTA_ERR_ARGUMENT);
    assert_null(decoder);
    assert_int_equal(
        bauta_tokenizer_decode(NULL, NULL, 0, NULL, &text, NULL, NULL),
        BAUTA_ERR_ARGUMENT);
    bauta_encode_options encode = { 0 };
    bauta_decode_options decode = { 0 };
    assert_int_equal(bauta_tokenizer_bytes(&t, NULL), 0);
    assert_int_equal(bauta_tokenizer_encode(t, "", 0, &encode, &tokens, NULL),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(
        bauta_tokenizer_decode(t, NULL, 0, &decode, &text, NULL, NULL),
        BAUTA_ERR_ARGUMENT);
    bauta_tokenizer_free(t);
    bauta_tokens_release(NULL);
    bauta_tokenizer_free(NULL);
    bauta_detokenizer_free(NULL);
    bauta_text_free(NULL);
}

/* A text that exercises every step. */
static bauta_status whole_way(const char *folder)
{
    static const char text[] = "abc <s>\xFF ab abcabcabcabcabcabcabcabcabcabc";
    bauta_tokenizer *t = NULL;
    bauta_tokens tokens = { 0 };
    char *back = NULL;
    bauta_status status = bauta_tokenizer_load(&t, folder, NULL);
    if (!status)
        status = bauta_tokenizer_encode_pair(t, text, strlen(text), "ab", 2,
                                             NULL, &tokens, NULL);
    if (!status)
        status = bauta_tokenizer_decode(t, tokens.ids, tokens.count, NULL,
                                        &back, NULL, NULL);
    bauta_text_free(back);
    bauta_tokens_release(&tokens);
    bauta_tokenizer_free(t);
    return status;
}

static bauta_status trained_kind(const char *folder)
{
    bauta_tokenizer *t = NULL;
    bauta_status status = bauta_tokenizer_characters(&t, "abc", 3, NULL);
    if (!status)
        status = bauta_tokenizer_save(t, folder, NULL);
    bauta_tokenizer_free(t);
    return status;
}

static void failing_allocations_leak_nothing(void **state)
{
    (void)state;
    bauta_status (*const ways[])(const char *) = { whole_way, trained_kind };
    for (size_t w = 0; w < 2; w++) {
        temp_folder s = temp_folder_create();
        bauta_tokenizer_free(bpe_at(&s));
        faults_begin();
        size_t k = 0;
        for (;; k++) {
            faults_arm(k);
            bauta_status status = ways[w](s.folder);
            if (!faults_disarm()) {
                assert_int_equal(status, BAUTA_OK);
                break;
            }
            assert_int_equal(status, BAUTA_ERR_NOMEM);
            assert_int_equal(faults_live(), 0);
        }
        print_message("%zu allocations failed\n", k);
        assert_int_equal(faults_end(), 0);
        temp_folder_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_select_the_special_tokens),
        cmocka_unit_test(pairs_follow_the_template),
        cmocka_unit_test(names_and_pieces_are_looked_up),
        cmocka_unit_test(an_incomplete_character_is_held_back),
        cmocka_unit_test(special_tokens_are_skipped_or_kept),
        cmocka_unit_test(bytes_are_lossless),
        cmocka_unit_test(characters_are_sorted_and_saved),
        cmocka_unit_test(unknown_characters_are_counted),
        cmocka_unit_test(long_texts_take_linear_time),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(failing_allocations_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
