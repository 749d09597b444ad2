/* SPDX-License-Identifier: Apache-2.0 */
/* test_marian.c - Marian's tokenizers: two SentencePiece models and a
 * vocabulary. */
#include "testing.h"

#include "allocation_faults.h"
#include "base/error.h"
#include "sentencepiece_fixtures.h"
#include "text/tokenizer.h"

/* The files of the tree: unigram is the source, BPE the target. */
typedef struct fixture {
    spm_file source, target, vocab;
    bt_marian_files files;
} fixture;

static bt_marian_files files_of(const fixture *f)
{
    return (bt_marian_files){ .source = f->source.bytes,
                              .source_size = f->source.size,
                              .target = f->target.bytes,
                              .target_size = f->target.size,
                              .vocab = f->vocab.bytes,
                              .vocab_size = f->vocab.size };
}

static fixture fixture_init(void)
{
    fixture f = { .source = spm_tree("unigram.model"),
                  .target = spm_tree("bpe.model"),
                  .vocab = spm_tree("vocab.json") };
    f.files = files_of(&f);
    return f;
}

static void fixture_release(fixture *f)
{
    bt_free(f->source.bytes);
    bt_free(f->target.bytes);
    bt_free(f->vocab.bytes);
}

static bauta_tokenizer *tokenizer_over(const bt_marian_files *files)
{
    bauta_tokenizer *t;
    bauta_error err;
    if (bt_tokenizer_parse_marian(&t, files, "vocab.json", &err))
        fail_msg("%s", err.message);
    return t;
}

static bauta_tokens encode(const bauta_tokenizer *t, const char *text,
                           size_t size, bool target)
{
    bauta_encode_options options = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens;
    bauta_error err;
    options.target = target;
    if (bauta_tokenizer_encode(t, text, size, &options, &tokens, &err))
        fail_msg("%s", err.message);
    return tokens;
}

static void texts_encode_as_in_transformers(void **state)
{
    (void)state;
    fixture f = fixture_init();
    bauta_tokenizer *t = tokenizer_over(&f.files);
    fixture_release(&f); // the tokenizer must not need them
    json_t *rows = spm_expected("marian");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        spm_file text = spm_hex(row, "text");
        for (int target = 0; target < 2; target++) {
            const char *side = target ? "target" : "source";
            bauta_tokens tokens = encode(t, text.bytes, text.size, target);
            spm_assert_ids(side, row, tokens.ids, tokens.count,
                           json_object_get(row, side));
            bauta_tokens_release(&tokens);
        }
        free(text.bytes);
    }
    json_decref(rows);
    bauta_tokenizer_free(t);
}

static void decoded_is(const bauta_tokenizer *t, const char *text,
                       const bauta_decode_options *options, const char *want)
{
    bauta_tokens tokens = encode(t, text, strlen(text), false);
    char *back;
    assert_int_equal(bauta_tokenizer_decode(t, tokens.ids, tokens.count,
                                            options, &back, NULL, NULL),
                     BAUTA_OK);
    assert_string_equal(back, want);
    bauta_text_free(back);
    bauta_tokens_release(&tokens);
}

static void special_tokens_are_left_out_of_decoded_text(void **state)
{
    (void)state;
    fixture f = fixture_init();
    bauta_tokenizer *t = tokenizer_over(&f.files);
    fixture_release(&f);
    decoded_is(t, "the cat", NULL, "the cat");
    decoded_is(t, ">>de<< the</s>cat<pad>", NULL, ">>de<< the cat");
    decoded_is(t, "<unk> the", NULL, "the");
    // No space is left where the unknown token was.
    decoded_is(t, "the \xF0\x9F\x8E\xAD </s> \xF0\x9F\x8E\xAD", NULL, "the");
    bauta_decode_options options = BAUTA_DECODE_OPTIONS_INIT;
    options.source = true;
    decoded_is(t, "the cat", &options, "the cat");
    assert_int_equal(bauta_tokenizer_special_token(t, BAUTA_TOKEN_EOS),
                     bauta_tokenizer_find(t, "</s>", 4));
    assert_int_equal(bauta_tokenizer_special_token(t, BAUTA_TOKEN_BOS),
                     BAUTA_NO_TOKEN);
    assert_true(
        bauta_tokenizer_is_special(t, bauta_tokenizer_find(t, "<pad>", 5)));
    assert_false(
        bauta_tokenizer_is_special(t, bauta_tokenizer_find(t, ">>de<<", 6)));
    bauta_tokenizer_free(t);
}

static void tokens_have_byte_offsets(void **state)
{
    (void)state;
    static const size_t want[][2] = {
        { 0, 6 }, { 7, 10 }, { 10, 14 }, { 15, 18 }, { 0, 0 }
    };
    fixture f = fixture_init();
    bauta_tokenizer *t = tokenizer_over(&f.files);
    fixture_release(&f);
    bauta_tokens tokens = encode(t, ">>de<< the</s> cat", 18, false);
    assert_int_equal(tokens.count, BT_LEN(want));
    for (size_t i = 0; i < tokens.count; i++) {
        assert_int_equal(tokens.starts[i], want[i][0]);
        assert_int_equal(tokens.ends[i], want[i][1]);
    }
    bauta_tokens_release(&tokens);
    bauta_tokenizer_free(t);
}

static void each_side_may_have_ids_of_its_own(void **state)
{
    (void)state;
    static const char other[] =
        "{\"<unk>\": 7, \"</s>\": 9, \"\xE2\x96\x81the\": 3}";
    static const uint32_t want[] = { 3, 7, 9 };
    fixture f = fixture_init();
    f.files.target_vocab = other;
    f.files.target_vocab_size = sizeof(other) - 1;
    bauta_tokenizer *t = tokenizer_over(&f.files);
    fixture_release(&f);
    bauta_tokens tokens = encode(t, "the cat", 7, true);
    assert_int_equal(tokens.count, BT_LEN(want));
    assert_memory_equal(tokens.ids, want, sizeof(want));
    bauta_tokens_release(&tokens);
    assert_int_equal(bauta_tokenizer_special_token(t, BAUTA_TOKEN_EOS), 0);
    bauta_tokenizer_free(t);
}

static void refused(const bt_marian_files *files, const char *because)
{
    bauta_tokenizer *t;
    bauta_error err = { BAUTA_OK, "" };
    assert_int_equal(bt_tokenizer_parse_marian(&t, files, "f/vocab.json", &err),
                     BAUTA_ERR_FORMAT);
    assert_null(t);
    if (!strstr(err.message, because))
        fail_msg("\"%s\" lacks \"%s\"", err.message, because);
}

static void malformed_input_is_an_error(void **state)
{
    (void)state;
    static const struct {
        const char *vocab, *because;
    } rows[] = {
        { "", "vocab.json" },
        { "[]", "vocab.json" },
        { "{\"</s>\": 0", "vocab.json" },
        { "{\"</s>\": 0}", "vocab.json: has no \"<unk>\"" },
        { "{\"<unk>\": 0}", "vocab.json: has no \"</s>\"" },
        { "{\"</s>\": 0, \"<unk>\": -1}", "the id of \"<unk>\"" },
        { "{\"</s>\": 0, \"<unk>\": 1.0}", "the id of \"<unk>\"" },
        { "{\"</s>\": 0, \"<unk>\": 4194304}", "the id of \"<unk>\"" },
        { "{\"</s>\": 0, \"<unk>\": 0}", "have id 0" },
        { "{\"</s>\": 0, \"</s>\": 1}", "has the ids 0 and 1" },
        { "{\"</s>\": 0, \"<unk>\": 1} x", "vocab.json" },
    };
    fixture f = fixture_init();
    for (size_t i = 0; i < BT_LEN(rows); i++) {
        bt_marian_files files = f.files;
        files.vocab = rows[i].vocab;
        files.vocab_size = strlen(rows[i].vocab);
        refused(&files, rows[i].because);
        files = f.files;
        files.target_vocab = rows[i].vocab;
        files.target_vocab_size = strlen(rows[i].vocab);
        refused(&files, "target_vocab.json");
    }
    bt_marian_files files = f.files;
    files.source_size = 40;
    refused(&files, "source.spm");
    files = f.files;
    files.target_size = 40;
    refused(&files, "target.spm");
    fixture_release(&f);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    fixture f = fixture_init();
    faults_begin();
    for (size_t k = 0;; k++) {
        bauta_tokenizer *t;
        bauta_tokens tokens = { 0 };
        faults_arm(k);
        bauta_status status =
            bt_tokenizer_parse_marian(&t, &f.files, "x", NULL);
        if (!status)
            status = bauta_tokenizer_encode(t, ">>de<< the kk", 13, NULL,
                                            &tokens, NULL);
        bool failed = faults_disarm();
        bauta_tokens_release(&tokens);
        bauta_tokenizer_free(t);
        assert_int_equal(faults_live(), 0);
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        if (!failed)
            break;
    }
    faults_end();
    fixture_release(&f);
}

/* ---- Trained models ------------------------------------------------------ */

/* False where the data are not here. */
static bool trained(bauta_tokenizer **out, const char *folder)
{
    static const char *const names[] = { "source.spm", "target.spm",
                                         "vocab.json" };
    char path[512], relative[128];
    fixture f;
    spm_file *parts[] = { &f.source, &f.target, &f.vocab };
    for (size_t i = 0; i < BT_LEN(names); i++) {
        snprintf(relative, sizeof(relative), "%s/%s", folder, names[i]);
        if (!test_data_path(path, sizeof(path), relative))
            return false;
        *parts[i] = spm_read(path);
    }
    f.files = files_of(&f);
    *out = tokenizer_over(&f.files);
    fixture_release(&f);
    return true;
}

static void a_trained_model_gives_the_ids_of_transformers(void **state)
{
    (void)state;
    char path[512], line[1 << 16];
    bauta_tokenizer *t;
    size_t lines = 0;
    if (!trained(&t, "marian-spm/fr-en")) {
        printf("skipped 1 model that is not here\n");
        skip();
    }
    assert_non_null(test_data_path(
        path, sizeof(path), "tokenizer-golden/marian-fr-en-source.jsonl"));
    FILE *rows = fopen(path, "r");
    assert_non_null(rows);
    for (; fgets(line, sizeof(line), rows); lines++) {
        json_t *row = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *text = json_object_get(row, "text");
        bauta_tokens tokens =
            encode(t, json_string_value(text), json_string_length(text), false);
        spm_assert_ids("fr-en", row, tokens.ids, tokens.count,
                       json_object_get(row, "marian_ids"));
        bauta_tokens_release(&tokens);
        json_decref(row);
    }
    printf("%zu texts\n", lines);
    fclose(rows);
    bauta_tokenizer_free(t);
}

/* The ids of a translation, and its text. */
static void translations_decode_to_their_texts(void **state)
{
    (void)state;
    static const char folder[] = "models/marian-m30k";
    char path[512], relative[128], line[1 << 12];
    bauta_tokenizer *t;
    if (!trained(&t, folder)) {
        printf("skipped 1 model that is not here\n");
        skip();
    }
    snprintf(relative, sizeof(relative), "%s/test_2016.beam5.ids.json", folder);
    assert_non_null(test_data_path(path, sizeof(path), relative));
    json_t *all = json_load_file(path, 0, NULL);
    assert_non_null(all);
    snprintf(relative, sizeof(relative), "%s/test_2016.beam5.de", folder);
    FILE *texts = fopen(test_data_path(path, sizeof(path), relative), "r");
    assert_non_null(texts);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *row = json_array_get(all, i);
        uint32_t ids[512];
        size_t count = json_array_size(row);
        char *text;
        assert_true(count <= BT_LEN(ids));
        for (size_t j = 0; j < count; j++)
            ids[j] = (uint32_t)json_integer_value(json_array_get(row, j));
        assert_int_equal(
            bauta_tokenizer_decode(t, ids, count, NULL, &text, NULL, NULL),
            BAUTA_OK);
        assert_non_null(fgets(line, sizeof(line), texts));
        line[strcspn(line, "\n")] = 0;
        assert_string_equal(text, line);
        bauta_text_free(text);
    }
    printf("%zu translations\n", json_array_size(all));
    fclose(texts);
    json_decref(all);
    bauta_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_encode_as_in_transformers),
        cmocka_unit_test(special_tokens_are_left_out_of_decoded_text),
        cmocka_unit_test(tokens_have_byte_offsets),
        cmocka_unit_test(each_side_may_have_ids_of_its_own),
        cmocka_unit_test(malformed_input_is_an_error),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(a_trained_model_gives_the_ids_of_transformers),
        cmocka_unit_test(translations_decode_to_their_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
