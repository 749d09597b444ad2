/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer_malformed.c - malformed tokenizer files: each gives an error
 * that names the file, quickly, and leaks nothing. */
#include "allocation_faults.h"
#include "temp_folder.h"
#include "testing.h"

#include "bauta.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SECTIONS = 6 };

/* A valid tokenizer.json, in parts. */
static const char *const keys[SECTIONS] = { "added_tokens",  "normalizer",
                                            "pre_tokenizer", "post_processor",
                                            "decoder",       "model" };
static const char *const right[SECTIONS] = {
    "[{\"id\":4,\"content\":\"<s>\",\"special\":true}]",
    "null",
    "null",
    "null",
    "null",
    ("{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"u\":3},"
     "\"merges\":[\"a b\"]}"),
};

enum { ADDED, NORM, PRE, POST, DEC, MODEL };

#define BPE(rest) "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}," rest
#define WP(rest) "{\"type\":\"WordPiece\"," rest
#define UNI(rest) "{\"type\":\"Unigram\"," rest

/* One part replaced by a malformed one. */
static const struct {
    int section;
    const char *value;
} cases[] = {
    { ADDED, "1" },
    { ADDED, "{}" },
    { ADDED, "[1]" },
    { ADDED, "[{}]" },
    { ADDED, "[{\"id\":9}]" },
    { ADDED, "[{\"content\":\"x\"}]" },
    { ADDED, "[{\"id\":\"9\",\"content\":\"x\"}]" },
    { ADDED, "[{\"id\":-1,\"content\":\"x\"}]" },
    { ADDED, "[{\"id\":1e3,\"content\":\"x\"}]" },
    { ADDED, "[{\"id\":4194304,\"content\":\"x\"}]" },
    { ADDED, "[{\"id\":99999999999,\"content\":\"x\"}]" },
    { ADDED, "[{\"id\":0,\"content\":\"x\"}]" },
    { ADDED, "[{\"id\":9,\"content\":5}]" },
    { ADDED, "[{\"id\":9,\"content\":\"x\",\"special\":1}]" },
    { ADDED, "[{\"id\":9,\"content\":\"x\",\"lstrip\":\"no\"}]" },
    { ADDED, "[{\"id\":9,\"content\":\"x\",\"rstrip\":[]}]" },
    { ADDED, "[{\"id\":9,\"content\":\"x\",\"single_word\":{}}]" },
    { ADDED, "[{\"id\":9,\"content\":\"x\",\"normalized\":0}]" },
    { NORM, "1" },
    { NORM, "[]" },
    { NORM, "{}" },
    { NORM, "{\"type\":1}" },
    { NORM, "{\"type\":\"NFX\"}" },
    { NORM, "{\"type\":\"Sequence\"}" },
    { NORM, "{\"type\":\"Sequence\",\"normalizers\":1}" },
    { NORM, "{\"type\":\"Sequence\",\"normalizers\":[1]}" },
    { NORM, "{\"type\":\"Replace\"}" },
    { NORM, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}" },
    { NORM, "{\"type\":\"Replace\",\"pattern\":\"a\",\"content\":1}" },
    { NORM, "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},"
            "\"content\":\"\"}" },
    { NORM, "{\"type\":\"Replace\",\"pattern\":{\"Regex\":1},"
            "\"content\":\"\"}" },
    { NORM, "{\"type\":\"Prepend\"}" },
    { NORM, "{\"type\":\"Prepend\",\"prepend\":1}" },
    { NORM, "{\"type\":\"Precompiled\"}" },
    { NORM, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"?\"}" },
    { NORM, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}" },
    { NORM, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":"
            "\"/////wAAAAA=\"}" },
    { NORM, "{\"type\":\"BertNormalizer\",\"lowercase\":1}" },
    { NORM, "{\"type\":\"Strip\",\"strip_left\":3}" },
    { PRE, "1" },
    { PRE, "{}" },
    { PRE, "{\"type\":\"Unheard\"}" },
    { PRE, "{\"type\":\"Sequence\"}" },
    { PRE, "{\"type\":\"Sequence\",\"pretokenizers\":{}}" },
    { PRE, "{\"type\":\"Split\"}" },
    { PRE, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[\"},"
           "\"behavior\":\"Isolated\",\"invert\":false}" },
    { PRE, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
           "\"behavior\":\"Sideways\",\"invert\":false}" },
    { PRE, "{\"type\":\"Split\",\"pattern\":{\"Other\":\"a\"},"
           "\"behavior\":\"Isolated\",\"invert\":false}" },
    { PRE, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
           "\"behavior\":\"Isolated\",\"invert\":3}" },
    { PRE, "{\"type\":\"Metaspace\",\"replacement\":\"__\"}" },
    { PRE, "{\"type\":\"Metaspace\",\"replacement\":1}" },
    { PRE, "{\"type\":\"Metaspace\",\"replacement\":\"_\","
           "\"prepend_scheme\":\"sometimes\"}" },
    { PRE, "{\"type\":\"Digits\",\"individual_digits\":\"yes\"}" },
    { PRE, "{\"type\":\"Punctuation\",\"behavior\":\"Nice\"}" },
    { PRE, "{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"ab\"}" },
    { PRE, "{\"type\":\"CharDelimiterSplit\"}" },
    { POST, "1" },
    { POST, "{}" },
    { POST, "{\"type\":\"Unheard\"}" },
    { POST, "{\"type\":\"BertProcessing\"}" },
    { POST, "{\"type\":\"BertProcessing\",\"sep\":[\"a\"],\"cls\":[\"b\",1]}" },
    { POST, "{\"type\":\"BertProcessing\",\"sep\":[\"a\",0],"
            "\"cls\":[\"b\",99]}" },
    { POST, "{\"type\":\"RobertaProcessing\",\"sep\":[\"a\",-1],"
            "\"cls\":[\"b\",1]}" },
    { POST, "{\"type\":\"TemplateProcessing\"}" },
    { POST, "{\"type\":\"TemplateProcessing\",\"single\":1,\"pair\":[],"
            "\"special_tokens\":{}}" },
    { POST, "{\"type\":\"TemplateProcessing\",\"single\":[1],\"pair\":[],"
            "\"special_tokens\":{}}" },
    { POST, "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
            "{\"id\":\"<s>\",\"type_id\":0}}],\"pair\":[],"
            "\"special_tokens\":{}}" },
    { POST, "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
            "{\"id\":\"<s>\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":"
            "{\"<s>\":{\"id\":\"<s>\",\"ids\":[77],\"tokens\":[\"<s>\"]}}}" },
    { POST, "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":"
            "{\"id\":\"C\",\"type_id\":0}}],\"pair\":[],"
            "\"special_tokens\":{}}" },
    { POST, "{\"type\":\"Sequence\",\"processors\":[{}]}" },
    { DEC, "1" },
    { DEC, "{}" },
    { DEC, "{\"type\":\"Unheard\"}" },
    { DEC, "{\"type\":\"CTC\"}" },
    { DEC, "{\"type\":\"Sequence\"}" },
    { DEC, "{\"type\":\"Sequence\",\"decoders\":[3]}" },
    { DEC, "{\"type\":\"Replace\"}" },
    { DEC, "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"*\"},"
           "\"content\":\"\"}" },
    { DEC, "{\"type\":\"Strip\"}" },
    { DEC, "{\"type\":\"Strip\",\"content\":\"ab\",\"start\":1,\"stop\":0}" },
    { DEC, "{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}" },
    { DEC, "{\"type\":\"WordPiece\",\"prefix\":1}" },
    { DEC, "{\"type\":\"Metaspace\",\"replacement\":\"\"}" },
    { MODEL, "null" },
    { MODEL, "1" },
    { MODEL, "[]" },
    { MODEL, "{}" },
    { MODEL, "{\"type\":\"Unheard\"}" },
    { MODEL, "{\"type\":\"BPE\"}" },
    { MODEL, "{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}" },
    { MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}" },
    { MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}" },
    { MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}" },
    { MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":-5},\"merges\":[]}" },
    { MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":1e9},\"merges\":[]}" },
    { MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":2147483647},\"merges\":[]}" },
    { MODEL, BPE("\"merges\":{}}") },
    { MODEL, BPE("\"merges\":[1]}") },
    { MODEL, BPE("\"merges\":[\"ab\"]}") },
    { MODEL, BPE("\"merges\":[\"a b c\"]}") },
    { MODEL, BPE("\"merges\":[\"a x\"]}") },
    { MODEL, BPE("\"merges\":[\"b a\"]}") },
    { MODEL, BPE("\"merges\":[[\"a\"]]}") },
    { MODEL, BPE("\"merges\":[[\"a\",1]]}") },
    { MODEL, BPE("\"merges\":[[\"a\",\"b\",\"c\"]]}") },
    { MODEL, BPE("\"merges\":[],\"unk_token\":5}") },
    { MODEL, BPE("\"merges\":[],\"fuse_unk\":5}") },
    { MODEL, BPE("\"merges\":[],\"byte_fallback\":\"x\"}") },
    { MODEL, BPE("\"merges\":[],\"ignore_merges\":0}") },
    { MODEL, BPE("\"merges\":[],\"continuing_subword_prefix\":1}") },
    { MODEL, BPE("\"merges\":[],\"end_of_word_suffix\":[]}") },
    { MODEL, WP("\"vocab\":{\"a\":0},\"unk_token\":\"[UNK]\"}") },
    { MODEL, WP("\"vocab\":{\"a\":0}}") },
    { MODEL, WP("\"vocab\":1,\"unk_token\":\"a\"}") },
    { MODEL, WP("\"vocab\":{\"a\":0},\"unk_token\":\"a\","
                "\"max_input_chars_per_word\":-1}") },
    { MODEL, WP("\"vocab\":{\"a\":0},\"unk_token\":\"a\","
                "\"max_input_chars_per_word\":\"x\"}") },
    { MODEL, UNI("\"vocab\":{}}") },
    { MODEL, UNI("\"vocab\":[]}") },
    { MODEL, UNI("\"vocab\":[1]}") },
    { MODEL, UNI("\"vocab\":[[\"a\"]]}") },
    { MODEL, UNI("\"vocab\":[[1,0.5]]}") },
    { MODEL, UNI("\"vocab\":[[\"a\",\"x\"]]}") },
    { MODEL, UNI("\"vocab\":[[\"a\",-1,2]]}") },
    { MODEL, UNI("\"vocab\":[[\"a\",-1],[\"a\",-2]]}") },
    { MODEL, UNI("\"vocab\":[[\"a\",-1]],\"unk_id\":7}") },
    { MODEL, UNI("\"vocab\":[[\"a\",-1]],\"unk_id\":\"a\"}") },
    { MODEL, UNI("\"vocab\":[[\"a\",-1]],\"byte_fallback\":2}") },
};

/* Whole files. */
static const struct {
    const char *name, *text;
} files[] = {
    { "tokenizer.json", "" },
    { "tokenizer.json", "{" },
    { "tokenizer.json", "[]" },
    { "tokenizer.json", "null" },
    { "tokenizer.json", "{}" },
    { "tokenizer.json", "{\"model\":{}}" },
    { "tokenizer.json", "{\"version\":\"1.0\"" },
    { "tokenizer.json", "\xff\xfe{}" },
    { "tokenizer.json", "{\"model\":\"\xff\"}" },
    { "tokenizer.json", "{\"model\":{},\"model\":{}}" },
    { "vocab.txt", "a\nb\na\n" },
    { "vocab.txt", "a\nb\n" },
    { "vocab.txt", "[UNK]\n\xff\n" },
    { "vocab.txt", "" },
    { "tokenizer.model", "" },
    { "tokenizer.model", "hello" },
    { "tokenizer.model", "\x0a" },
    { "spiece.model", "\x0a\xff\xff\xff\xff\x0f" },
};

static void refused_as(const char *path, const char *what, bauta_status as)
{
    bauta_tokenizer *tokenizer = NULL;
    bauta_error err = { 0 };
    size_t live = faults_live();
    clock_t begin = clock();
    bauta_status status = bauta_tokenizer_load(&tokenizer, path, &err);
    if (!status)
        fail_msg("taken: %s", what);
    assert_null(tokenizer);
    assert_true(status == as || status == BAUTA_ERR_UNSUPPORTED);
    assert_int_equal(err.status, status);
    assert_true(strlen(err.message) > 10);
    assert_int_equal(faults_live(), live);
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 1.0);
}

static void refused(const char *path, const char *what)
{
    refused_as(path, what, BAUTA_ERR_FORMAT);
}

static void document_write(temp_folder *s, int section, const char *value)
{
    char text[4096];
    size_t n = (size_t)snprintf(text, sizeof(text), "{\"version\":\"1.0\"");
    for (int i = 0; i < SECTIONS; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, ",\"%s\":%s", keys[i],
                              i == section ? value : right[i]);
    n += (size_t)snprintf(text + n, sizeof(text) - n, "}");
    assert_true(n < sizeof(text));
    temp_folder_write(s, "tokenizer.json", text, n);
}

static void a_wrong_part_is_refused(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_tokenizer *tokenizer;
    faults_begin();
    document_write(&s, -1, NULL);
    assert_int_equal(bauta_tokenizer_load(&tokenizer, s.folder, NULL), 0);
    bauta_tokenizer_free(tokenizer);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        document_write(&s, cases[i].section, cases[i].value);
        refused(s.folder, cases[i].value);
    }
    print_message("%zu parts refused\n", sizeof(cases) / sizeof(cases[0]));
    assert_int_equal(faults_end(), 0);
    temp_folder_free(&s);
}

static void a_wrong_file_is_refused(void **state)
{
    (void)state;
    faults_begin();
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        temp_folder s = temp_folder_create();
        temp_folder_write(&s, files[i].name, files[i].text,
                          strlen(files[i].text));
        refused(s.folder, files[i].text);
        temp_folder_free(&s);
    }
    temp_folder none = temp_folder_create();
    temp_folder_write(&none, "unrelated.bin", "x", 1);
    refused_as(none.folder, "a folder without a tokenizer", BAUTA_ERR_IO);
    temp_folder_free(&none);
    refused_as("/nowhere/at/all", "a folder that is not there", BAUTA_ERR_IO);
    print_message("%zu files refused\n", sizeof(files) / sizeof(files[0]) + 2);
    assert_int_equal(faults_end(), 0);
}

/* Nested deeper than any real file. */
static void deep_nesting_is_refused(void **state)
{
    (void)state;
    static const struct {
        int section;
        const char *open, *close;
    } nests[] = {
        { NORM, "{\"type\":\"Sequence\",\"normalizers\":[", "]}" },
        { PRE, "{\"type\":\"Sequence\",\"pretokenizers\":[", "]}" },
        { POST, "{\"type\":\"Sequence\",\"processors\":[", "]}" },
        { DEC, "{\"type\":\"Sequence\",\"decoders\":[", "]}" },
    };
    enum { DEPTH = 40 };
    faults_begin();
    for (size_t i = 0; i < 4; i++) {
        temp_folder s = temp_folder_create();
        char value[3600] = "";
        for (int d = 0; d < DEPTH; d++)
            strcat(value, nests[i].open);
        for (int d = 0; d < DEPTH; d++)
            strcat(value, nests[i].close);
        document_write(&s, nests[i].section, value);
        refused(s.folder, nests[i].open);
        temp_folder_free(&s);
    }
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_part_is_refused),
        cmocka_unit_test(a_wrong_file_is_refused),
        cmocka_unit_test(deep_nesting_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
