/* SPDX-License-Identifier: Apache-2.0 */
/* test_boundary.c - texts split where boundary.h allows it give the tokens of
 * the whole text, for all kinds of pipelines. */
#include "base/error.h"
#include "data.h"
#include "temp_folder.h"
#include "testing.h"
#include "text/chunk_boundary.h"

#include <string.h>

static uint64_t seed;

/* Pieces of random texts: everything that some step treats specially. */
static const char *const bits[] = {
    "a",
    "b",
    "ab",
    "xyz",
    "A",
    "'s",
    "'",
    "'LL",
    " ",
    " ",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    "1",
    "23",
    "4567",
    "!",
    "?!",
    ".",
    "\xC3\xA9",
    "e\xCC\x81",
    "\xCC\x80",
    "-",
    "\xC2\xA0",
    "\xE3\x80\x80",
    "\xE2\x96\x81",
    "\xE4\xB8\xAD",
    "\x01",
    "\xC4\xB0",
    "\xE3\x80\x82",
    "\xE2\x80\x8B",
    "<|e|>",
    "[M]",
    "\xEF\xAC\x81",
    "\xD8\x80",
    "\xC2\xA8",
    "_",
};

static size_t text_make(test_random *r, char *text, size_t room)
{
    size_t size = 0;
    for (size_t i = 1 + test_below(r, 30); i > 0; i--) {
        const char *bit = bits[test_below(r, BT_LEN(bits))];
        if (size + strlen(bit) < room)
            size += (size_t)sprintf(text + size, "%s", bit);
    }
    return size;
}

/* Tokenizers: a trained one, with other steps in place of its own. */
enum { BPE, WORDPIECE, UNIGRAM, BYTES, CHARS };

#define BYTELEVEL(prefix, regex)                           \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix \
    ",\"trim_offsets\":true,\"use_regex\":" regex "}"
#define META(scheme, split)                                \
    "{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\"," \
    "\"prepend_scheme\":\"" scheme "\",\"split\":" split "}"
#define BOTH(first, second) \
    "{\"type\":\"Sequence\",\"pretokenizers\":[" first "," second "]}"
#define PATTERN(regex)                                    \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define LLAMA3                                                                 \
    PATTERN("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"      \
            "\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*" \
            "|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+")
#define TYPE(name) "{\"type\":\"" name "\"}"
#define TOKEN(content, flags) \
    "{\"id\":%d,\"content\":\"" content "\",\"special\":false" flags "}"

static const struct {
    const char *name;
    int base;
    const char *pretokenizer, *normalizer, *added; /* NULL: as it is */
    bool cuts;
} pipelines[] = {
    { "bpe", BPE, NULL, NULL, NULL, true },
    { "wordpiece", WORDPIECE, NULL, NULL, NULL, true },
    { "unigram", UNIGRAM, NULL, NULL, NULL, true },
    { "bytes", BYTES, NULL, NULL, NULL, true },
    { "chars", CHARS, NULL, NULL, NULL, true },
    { "gpt2 with a prefix", BPE, BYTELEVEL("true", "true"), NULL, NULL, true },
    { "llama3", BPE, BOTH(LLAMA3, BYTELEVEL("false", "false")), NULL, NULL,
      true },
    { "digits, then gpt2", BPE,
      BOTH("{\"type\":\"Digits\",\"individual_digits\":true}",
           BYTELEVEL("false", "true")),
      NULL, NULL, true },
    { "punctuation, then gpt2 with a prefix", BPE,
      BOTH("{\"type\":\"Punctuation\",\"behavior\":\"MergedWithPrevious\"}",
           BYTELEVEL("true", "true")),
      NULL, NULL, true },
    { "gpt2 and NFC", BPE, NULL, TYPE("NFC"), NULL, true },
    { "gpt2 and NFKD", BPE, NULL, TYPE("NFKD"), NULL, true },
    { "gpt2, lower case without accents", BPE, NULL,
      "{\"type\":\"Sequence\",\"normalizers\":[" TYPE("NFD") "," TYPE(
          "Lowercase") "," TYPE("StripAccents") "]}",
      NULL, true },
    { "gpt2 and Nmt", BPE, NULL, TYPE("Nmt"), NULL, true },
    { "gpt2 and BERT's normalizer", BPE, NULL,
      "{\"type\":\"BertNormalizer\",\"clean_text\":true,"
      "\"handle_chinese_chars\":true,\"strip_accents\":true,"
      "\"lowercase\":true}",
      NULL, true },
    { "metaspace first", UNIGRAM, META("first", "true"), "null", NULL, true },
    { "metaspace always", UNIGRAM, META("always", "true"), "null", NULL, true },
    { "metaspace never", UNIGRAM, META("never", "true"), "null", NULL, true },
    { "whitespace, then metaspace", UNIGRAM,
      BOTH(TYPE("WhitespaceSplit"), META("always", "true")), "null", NULL,
      true },
    { "words", WORDPIECE, TYPE("Whitespace"), NULL, NULL, true },
    { "a token", BPE, NULL, NULL, TOKEN("<|e|>", ""), true },
    { "a token that takes spaces before it", BPE, NULL, NULL,
      TOKEN("[M]", ",\"lstrip\":true"), true },
    { "a token of spaces", BPE, NULL, NULL, TOKEN("  ", ""), true },
    { "a normalized token", BPE, NULL, TYPE("Lowercase"),
      TOKEN("[M]", ",\"normalized\":true"), true },
    { "characters with a token", CHARS, NULL, NULL, TOKEN("<|e|>", ""), true },
    // Pipelines that cannot be split, or are not known to be splittable.
    { "metaspace first, and Strip", UNIGRAM, META("first", "true"), NULL, NULL,
      false },
    { "a token with a space in it", BPE, NULL, NULL, TOKEN("a b", ""), false },
    { "a token that takes spaces after it", BPE, NULL, NULL,
      TOKEN("[M]", ",\"rstrip\":true"), false },
    { "a token that is a word", BPE, NULL, NULL,
      TOKEN("ab", ",\"single_word\":true"), false },
    { "metaspace that does not cut", UNIGRAM, META("first", "false"), "null",
      NULL, false },
    { "another pattern", BPE,
      BOTH(PATTERN("[a-z ]+"), BYTELEVEL("false", "true")), NULL, NULL, false },
    { "merges over a whole text", BPE, BYTELEVEL("false", "false"), NULL, NULL,
      false },
    { "Strip", BPE, NULL,
      "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", NULL,
      false },
    { "Prepend", BPE, NULL, "{\"type\":\"Prepend\",\"prepend\":\"_\"}", NULL,
      false },
    { "Replace", BPE, NULL,
      "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a b\"},"
      "\"content\":\"c\"}",
      NULL, false },
};

static bauta_tokenizer *learned(int base)
{
    static char text[1 << 16];
    test_random r = test_random_from(7);
    bauta_tokenizer_trainer_options o = BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    bauta_tokenizer *made = NULL;
    bauta_error err = { .message = "" };
    size_t size = 0;
    while (size < 40000)
        size += text_make(&r, text + size, 400);
    const char *at = text;
    o.kind = (bauta_tokenizer_kind)base;
    o.vocab_size = 700;
    if (base == BYTES   ? bauta_tokenizer_bytes(&made, &err)
        : base == CHARS ? bauta_tokenizer_characters(&made, text, size, &err)
                        : bauta_tokenizer_train(&made, &o, &at, &size, 1, &err))
        fail_msg("%s", err.message);
    return made;
}

static void replace(json_t *document, const char *key, const char *text)
{
    if (text)
        assert_int_equal(
            json_object_set_new(document, key,
                                json_loads(text, JSON_DECODE_ANY, NULL)),
            0);
}

/* The tokenizer of a row of the table. */
static bauta_tokenizer *pipeline_make(size_t row)
{
    temp_folder s = temp_folder_create();
    bauta_tokenizer *from = learned(pipelines[row].base), *made = NULL;
    bauta_error err = { .message = "" };
    char token[256];
    assert_int_equal(bauta_tokenizer_save(from, s.folder, &err), BAUTA_OK);
    json_t *document =
        json_load_file(temp_folder_path(&s, "tokenizer.json"), 0, NULL);
    assert_non_null(document);
    replace(document, "pre_tokenizer", pipelines[row].pretokenizer);
    replace(document, "normalizer", pipelines[row].normalizer);
    if (pipelines[row].added) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(token, sizeof(token), pipelines[row].added,
                 (int)bauta_tokenizer_vocab_size(from));
#pragma GCC diagnostic pop
        json_array_append_new(json_object_get(document, "added_tokens"),
                              json_loads(token, 0, NULL));
    }
    char *text = json_dumps(document, 0);
    if (bt_tokenizer_parse_json(&made, text, strlen(text), "table", &err))
        fail_msg("%s: %s", pipelines[row].name, err.message);
    free(text);
    json_decref(document);
    bauta_tokenizer_free(from);
    temp_folder_free(&s);
    return made;
}

static bauta_tokens encode(const bauta_tokenizer *t, const char *text,
                           size_t size)
{
    bauta_encode_options o = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens;
    bauta_error err = { .message = "" };
    o.no_special_tokens = true;
    if (bauta_tokenizer_encode(t, text, size, &o, &tokens, &err))
        fail_msg("%s", err.message);
    return tokens;
}

/* Whether two parts give the tokens of the whole. */
static bool parts_agree(const bauta_tokenizer *t, const char *text, size_t size,
                        size_t cut)
{
    bauta_tokens all = encode(t, text, size);
    bauta_tokens one = encode(t, text, cut);
    bauta_tokens two = encode(t, text + cut, size - cut);
    bool same =
        all.count == one.count + two.count &&
        (!one.count || !memcmp(all.ids, one.ids, 4 * one.count)) &&
        (!two.count || !memcmp(all.ids + one.count, two.ids, 4 * two.count));
    bauta_tokens_release(&all);
    bauta_tokens_release(&one);
    bauta_tokens_release(&two);
    return same;
}

static size_t cuts_check(const bauta_tokenizer *t, const char *name,
                         test_random *r, size_t texts)
{
    bt_chunk_boundary b = bt_chunk_boundary_of(t);
    char text[512];
    size_t count = 0;
    for (size_t i = 0; i < texts; i++) {
        size_t size = text_make(r, text, sizeof(text)), end = size, cut;
        for (; (cut = bt_chunk_boundary_last(b, text, 0, end));
             end = cut, count++)
            if (!parts_agree(t, text, size, cut))
                fail_msg("%s: '%.*s' | '%.*s'", name, (int)cut, text,
                         (int)(size - cut), text + cut);
    }
    return count;
}

static void splitting_at_a_boundary_keeps_the_tokens(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    for (size_t i = 0; i < BT_LEN(pipelines); i++) {
        bauta_tokenizer *t = pipeline_make(i);
        size_t cuts = cuts_check(t, pipelines[i].name, &r, 600);
        if (pipelines[i].cuts ? cuts < 100 : cuts != 0)
            fail_msg("%s: %zu cuts", pipelines[i].name, cuts);
        bauta_tokenizer_free(t);
    }
}

/* The check can fail: split elsewhere, the tokens differ. */
static void splitting_elsewhere_changes_tokens(void **state)
{
    (void)state;
    static const char text[] = "ab  ab !\n\n ab";
    bauta_tokenizer *t = pipeline_make(6); // Llama 3's
    bt_chunk_boundary b = bt_chunk_boundary_of(t);
    size_t differ = 0;
    for (size_t cut = 1; cut < sizeof(text) - 1; cut++)
        differ += !parts_agree(t, text, sizeof(text) - 1, cut);
    assert_true(differ > 0);
    assert_int_equal(bt_chunk_boundary_last(b, text, 0, sizeof(text) - 1), 6);
    assert_int_equal(bt_chunk_boundary_last(b, text, 0, 6), 2);
    assert_int_equal(bt_chunk_boundary_last(b, text, 2, 6), 0);
    bauta_tokenizer_free(t);
}

static void tokenizers_of_models_agree(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        bool cuts;
    } known[] = {
        { "gpt2-bpe", true },          { "bert-uncased", true },
        { "stories260K-hf", false },   { "llama2-tokenizer", false },
        { "marian-spm/fr-en", false },
    };
    test_random r = test_random_from(seed + 1);
    for (size_t i = 0; i < BT_LEN(known); i++) {
        char path[1024];
        bauta_tokenizer *t = NULL;
        bauta_error err = { .message = "" };
        if (!test_data_path(path, sizeof(path), known[i].path))
            continue;
        if (bauta_tokenizer_load(&t, path, &err))
            fail_msg("%s: %s", path, err.message);
        assert_int_equal(cuts_check(t, path, &r, 500) > 0, known[i].cuts);
        bauta_tokenizer_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splitting_at_a_boundary_keeps_the_tokens),
        cmocka_unit_test(splitting_elsewhere_changes_tokens),
        cmocka_unit_test(tokenizers_of_models_agree),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
