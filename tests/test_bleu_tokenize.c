/* SPDX-License-Identifier: Apache-2.0 */
/* test_bleu_tokenize.c - the words and the lower case that scores are counted
 * over. Expected values come from sacrebleu 2.6 and Python. */
#include "testing.h"

#include "base/error.h"
#include "base/utf8.h"
#include "data.h"
#include "score/score.h"

#include <jansson.h>
#include <string.h>

enum { TEXT_MAX = 4096 };

/* The characters from `at` on, up to a limit. */
static size_t text_put(char *text, size_t size, const uint32_t *at,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(size + 4 < TEXT_MAX);
        size += bt_utf8_encode(text + size, at[i]);
    }
    return size;
}

/* The words of a line, one space between them. */
static void tokenized(char text[TEXT_MAX], const char *line,
                      bauta_bleu_tokenizer tokenizer)
{
    bt_codepoints codes = { 0 }, spare = { 0 };
    bt_word_range word = { 0, 0 };
    size_t size = 0;
    assert_int_equal(
        bt_codepoints_decode(&codes, line, strlen(line), false, NULL), 0);
    assert_int_equal(bt_bleu_tokenize(tokenizer, &codes, &spare, NULL), 0);
    while (bt_codepoints_next_word(&codes, &word)) {
        if (size)
            text[size++] = ' ';
        size = text_put(text, size, codes.at + word.start, word.length);
    }
    text[size] = '\0';
    bt_codepoints_release(&codes);
    bt_codepoints_release(&spare);
}

static const struct {
    const char *name;
    bauta_bleu_tokenizer tokenizer;
    const char *line, *want;
} lines[] = {
    { "a_stop_behind_a_digit", BAUTA_TOKENIZE_13A, "in 1999.", "in 1999 ." },
    { "a_stop_behind_a_digit", BAUTA_TOKENIZE_INTL, "in 1999.", "in 1999." },
    { "stops_in_a_row", BAUTA_TOKENIZE_13A, "so... 1,2,,3",
      "so . . . 1,2 , , 3" },
    { "entities", BAUTA_TOKENIZE_13A, "&amp;lt; &amp;quot; &quot;x&gt;",
      "< & quot ; \" x >" },
    { "a_line_inside", BAUTA_TOKENIZE_13A, "hy-\nphen a\nb <skip<skipped>ped>",
      "hyphen a b < skipped >" },
    { "dashes", BAUTA_TOKENIZE_13A, "2016-2017 -5 x-y", "2016 - 2017 -5 x-y" },
    { "apostrophes", BAUTA_TOKENIZE_13A, "it's 'so'", "it's 'so'" },
    { "ascii_symbols", BAUTA_TOKENIZE_13A, "a{b}[c]d_e/f",
      "a { b } [ c ] d _ e / f" },
    { "unicode_is_left_alone", BAUTA_TOKENIZE_13A, "«so»…", "«so»…" },
    { "unicode_is_not", BAUTA_TOKENIZE_INTL, "«so»… 3·4 ٣٫٤",
      "« so » … 3·4 ٣٫٤" },
    { "symbols", BAUTA_TOKENIZE_INTL, "5€+½=©", "5 € + ½ = ©" },
    { "marks_in_a_row", BAUTA_TOKENIZE_INTL, "...1...a", ". . .1 . . . a" },
    { "odd_spaces", BAUTA_TOKENIZE_NONE,
      "a\xc2\xa0"
      "b\xe3\x80\x80"
      "c\x1c"
      "d\xc2\x85"
      "e\xe2\x80\x8b"
      "f ",
      "a b c d e\xe2\x80\x8b"
      "f" },
    { "characters", BAUTA_TOKENIZE_CHAR, "日本 \te", "日 本 e" },
    { "nothing", BAUTA_TOKENIZE_13A, " \t ", "" },
    { "nothing", BAUTA_TOKENIZE_CHAR, "", "" },
};

static void a_line_is_split_as_sacrebleu_splits_it(void **state)
{
    (void)state;
    char got[TEXT_MAX];
    for (size_t i = 0; i < BT_LEN(lines); i++) {
        tokenized(got, lines[i].line, lines[i].tokenizer);
        if (strcmp(got, lines[i].want) != 0)
            fail_msg("%s: \"%s\", not \"%s\"", lines[i].name, got,
                     lines[i].want);
    }
}

static void sentences_of_the_vectors_are_split_the_same_way(void **state)
{
    (void)state;
    char path[512], got[TEXT_MAX];
    size_t index;
    json_t *item;
    if (!test_data_path(path, sizeof(path), "bleu-vectors/scores.json")) {
        printf("skipped: 9 sentences, for there is no bleu-vectors\n");
        skip();
    }
    json_t *all = json_load_file(path, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(all, "sentence")), 9);
    json_array_foreach(json_object_get(all, "sentence"), index, item)
    {
        const char *hyp, *ref, *hyp_want, *ref_want;
        assert_int_equal(json_unpack(item, "{s:s, s:s, s:s, s:s}", "hyp", &hyp,
                                     "ref", &ref, "hyp_tok_13a", &hyp_want,
                                     "ref_tok_13a", &ref_want),
                         0);
        tokenized(got, hyp, BAUTA_TOKENIZE_13A);
        assert_string_equal(got, hyp_want);
        tokenized(got, ref, BAUTA_TOKENIZE_13A);
        assert_string_equal(got, ref_want);
    }
    json_decref(all);
}

static void lower_case_equals_python(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        { "ABC Äß", "abc äß" },     { "İ", "i̇" },
        { "ΟΔΟΣ", "οδος" },         { "ΣΑΣ Σ ΣΣ", "σας σ σς" },
        { "ΑΣ.Σ ΑΣ'", "ασ.ς ας'" }, { "Σς ςΣ", "σς ςς" },
        { "1Σ ⅧΣ ʰΣ", "1σ ⅷς ʰσ" }, { "", "" },
    };
    for (size_t i = 0; i < BT_LEN(pairs); i++) {
        char got[TEXT_MAX];
        bt_codepoints codes = { 0 };
        assert_int_equal(bt_codepoints_decode(&codes, pairs[i][0],
                                              strlen(pairs[i][0]), true, NULL),
                         0);
        got[text_put(got, 0, codes.at, codes.count)] = '\0';
        assert_string_equal(got, pairs[i][1]);
        bt_codepoints_release(&codes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_split_as_sacrebleu_splits_it),
        cmocka_unit_test(sentences_of_the_vectors_are_split_the_same_way),
        cmocka_unit_test(lower_case_equals_python),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
