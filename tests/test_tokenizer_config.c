/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer_config.c - the keys of tokenizer_config.json. */
#include "base/error.h"
#include "sentencepiece_fixtures.h"
#include "temp_folder.h"

#include <bauta.h>

#include <string.h>

static bauta_status load_with(const char *config, bauta_error *err)
{
    temp_folder s = temp_folder_create();
    bauta_tokenizer *made, *loaded = NULL;
    assert_int_equal(bauta_tokenizer_bytes(&made, err), BAUTA_OK);
    assert_int_equal(bauta_tokenizer_save(made, s.folder, err), BAUTA_OK);
    temp_folder_write(&s, "tokenizer_config.json", config, strlen(config));
    bauta_status status = bauta_tokenizer_load(&loaded, s.folder, err);
    bauta_tokenizer_free(loaded);
    bauta_tokenizer_free(made);
    temp_folder_free(&s);
    return status;
}

/* As transformers writes it if a tokenizer has no maximum length. */
static void a_length_of_1e30_is_read(void **state)
{
    (void)state;
    bauta_error err;
    bauta_status status = load_with(
        "{\"model_max_length\": 1000000000000000019884624838656}", &err);
    if (status)
        fail_msg("%s", err.message);
}

static void a_malformed_config_is_an_error(void **state)
{
    (void)state;
    bauta_error err;
    assert_int_equal(load_with("{\"model_max_length\": 1e", &err),
                     BAUTA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "tokenizer_config.json"));
}

/* ---- beside a SentencePiece model ---------------------------------------- */

/* A folder with one of the tree's models as spiece.model. */
static bauta_status load_spiece(bauta_tokenizer **out, const char *model,
                                const char *config, bauta_error *err)
{
    temp_folder s = temp_folder_create();
    spm_file file = spm_tree(model);
    temp_folder_write(&s, "spiece.model", file.bytes, file.size);
    temp_folder_write(&s, "tokenizer_config.json", config, strlen(config));
    bauta_status status = bauta_tokenizer_load(out, s.folder, err);
    bt_free(file.bytes);
    temp_folder_free(&s);
    return status;
}

static void encodes(const bauta_tokenizer *t, const char *text,
                    const uint32_t *want, size_t count)
{
    bauta_tokens got;
    assert_int_equal(
        bauta_tokenizer_encode(t, text, strlen(text), NULL, &got, NULL), 0);
    assert_int_equal(got.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(got.ids[i], want[i]);
    bauta_tokens_release(&got);
}

/* T5's sentinels are in no file: their number is, or the class has 100. Ids
 * count down to the end of the vocabulary. */
static void t5_has_sentinels_after_its_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint32_t count;
    } rows[] = {
        { "{\"tokenizer_class\": \"T5Tokenizer\"}", 100 },
        { "{\"tokenizer_class\": \"T5Tokenizer\", \"extra_ids\": 3}", 3 },
        { "{\"tokenizer_class\": \"T5Tokenizer\", \"extra_ids\": 0}", 0 },
        { "{\"eos_token\": \"</s>\", \"extra_ids\": 3}", 3 },
        { "{\"eos_token\": \"</s>\"}", 0 },
    };
    bauta_tokenizer *plain;
    bauta_error err;
    assert_int_equal(load_spiece(&plain, "unigram.model", "{}", &err), 0);
    uint32_t pieces = (uint32_t)bauta_tokenizer_vocab_size(plain);
    uint32_t eos = bauta_tokenizer_special_token(plain, BAUTA_TOKEN_EOS);
    bauta_tokens cat;
    assert_int_equal(bauta_tokenizer_encode(plain, "the", 3, NULL, &cat, NULL),
                     0);
    assert_int_equal(cat.count, 1);
    for (size_t i = 0; i < BT_LEN(rows); i++) {
        bauta_tokenizer *t;
        uint32_t n = rows[i].count;
        if (load_spiece(&t, "unigram.model", rows[i].config, &err))
            fail_msg("%s: %s", rows[i].config, err.message);
        assert_int_equal(bauta_tokenizer_vocab_size(t), pieces + n);
        const uint32_t want[] = { cat.ids[0], pieces + n - 1, cat.ids[0],
                                  pieces + n - 2, eos };
        if (n)
            encodes(t, "the <extra_id_0> the<extra_id_1>", want,
                    strstr(rows[i].config, "T5") ? 5 : 4);
        for (uint32_t id = pieces; id < pieces + n; id++)
            assert_true(bauta_tokenizer_is_special(t, id));
        assert_true(bauta_tokenizer_is_special(t, eos));
        assert_false(bauta_tokenizer_is_special(t, cat.ids[0]));
        bauta_tokenizer_free(t);
    }
    bauta_tokens_release(&cat);
    bauta_tokenizer_free(plain);
}

/* As Gemma's <start_of_turn>: a piece that the folder calls special; and a
 * token that the model lacks. */
static void added_tokens_decoder_completes_the_pieces(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"added_tokens_decoder\": {\"500\": {\"content\": \"<new>\", "
        "\"special\": true}}, \"additional_special_tokens\": [\"[MASK]\", "
        "\"<nowhere>\"]}",
        "{\"added_tokens_decoder\": {\"7\": {\"content\": \"[MASK]\", "
        "\"special\": true}, \"500\": {\"content\": \"<new>\", "
        "\"special\": true}}}",
    };
    for (size_t i = 0; i < BT_LEN(configs); i++) {
        bauta_tokenizer *t;
        bauta_error err;
        if (load_spiece(&t, "bpe.model", configs[i], &err))
            fail_msg("%s", err.message);
        assert_int_equal(bauta_tokenizer_vocab_size(t), 501);
        assert_true(bauta_tokenizer_is_special(t, 500));
        bauta_tokens got;
        assert_int_equal(
            bauta_tokenizer_encode(t, "[MASK]<new>", 11, NULL, &got, NULL), 0);
        assert_int_equal(got.count, 2); // the piece keeps its id
        assert_string_equal(bauta_tokenizer_piece(t, got.ids[0], NULL),
                            "[MASK]");
        assert_true(bauta_tokenizer_is_special(t, got.ids[0]));
        assert_int_equal(got.ids[1], 500);
        bauta_tokens_release(&got);
        bauta_tokenizer_free(t);
    }
}

static void tokens_that_cannot_be_added_are_errors(void **state)
{
    (void)state;
    static const struct {
        const char *config, *because;
    } rows[] = {
        { "{\"extra_ids\": -1}", "extra_ids" },
        { "{\"extra_ids\": 10001}", "extra_ids" },
        { "{\"added_tokens_decoder\": {\"3\": {\"content\": \"<x>\"}}}",
          "spiece.model" }, // that id is taken
        { "{\"added_tokens_decoder\": {\"-3\": {\"content\": \"<x>\"}}}",
          "<x>" },
    };
    for (size_t i = 0; i < BT_LEN(rows); i++) {
        bauta_tokenizer *t;
        bauta_error err;
        assert_int_equal(load_spiece(&t, "bpe.model", rows[i].config, &err),
                         BAUTA_ERR_FORMAT);
        assert_null(t);
        if (!strstr(err.message, rows[i].because))
            fail_msg("%s: %s", rows[i].config, err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_length_of_1e30_is_read),
        cmocka_unit_test(a_malformed_config_is_an_error),
        cmocka_unit_test(t5_has_sentinels_after_its_pieces),
        cmocka_unit_test(added_tokens_decoder_completes_the_pieces),
        cmocka_unit_test(tokens_that_cannot_be_added_are_errors),
    };
    return cmocka_run_group_tests_name("tokenizer_config", tests, NULL, NULL);
}
