/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer.c - whole tokenizers against the results of the originals.
 *
 * The ids come from Hugging Face's tokenizers, SentencePiece, llama.cpp's and
 * swift-transformers' tests; the files are those of the data folder. Sets whose
 * vocabulary is missing are named and skipped. */
#include "data.h"
#include "temp_folder.h"
#include "testing.h"

#include "bauta.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- files ------------------------------------------------------------- */

static char *text_of(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *size, file), *size);
    text[*size] = '\0';
    fclose(file);
    return text;
}

static const char *data(const char *name)
{
    static char path[1024];
    return test_data_path(path, sizeof(path), name);
}

/* A folder of links to files of the data folder: pairs of names there and here,
 * NULL-terminated. */
static void linked(temp_folder *s, const char *const *names)
{
    *s = temp_folder_create();
    for (; names[0]; names += 2)
        assert_int_equal(symlink(data(names[0]), temp_folder_path(s, names[1])),
                         0);
}

static bauta_tokenizer *tokenizer_at(const char *path)
{
    bauta_tokenizer *made;
    bauta_error err;
    if (bauta_tokenizer_load(&made, path, &err))
        fail_msg("%s", err.message);
    return made;
}

static bauta_tokenizer *tokenizer_of(const char *name)
{
    return tokenizer_at(data(name));
}

/* ---- one case ---------------------------------------------------------- */

typedef struct tally {
    size_t cases, wrong, undone;
} tally;

static const bauta_encode_options bare = { sizeof(bare), true, false, false };

static bool same_ids(const bauta_tokens *got, const json_t *want)
{
    if (got->count != json_array_size(want))
        return false;
    for (size_t i = 0; i < got->count; i++)
        if (got->ids[i] != json_integer_value(json_array_get(want, i)))
            return false;
    return true;
}

static void ids_show(const char *text, const bauta_tokens *got,
                     const json_t *want)
{
    char *dumped = json_dumps(want, JSON_COMPACT);
    print_message("text: %s\nwant: %s\ngot:  [", text, dumped);
    for (size_t i = 0; i < got->count; i++)
        print_message("%s%u", i ? "," : "", (unsigned)got->ids[i]);
    print_message("]\n");
    free(dumped);
}

/* Offsets lie within the text, and tokens begin in order. */
static void offsets_check(const bauta_tokens *got, size_t size)
{
    size_t last = 0;
    for (size_t i = 0; i < got->count; i++) {
        if (got->starts[i] == got->ends[i])
            continue;
        assert_true(got->starts[i] >= last && got->starts[i] < got->ends[i]);
        assert_true(got->ends[i] <= size);
        last = got->starts[i];
    }
}

static void encode_check(tally *t, const bauta_tokenizer *tokenizer,
                         const char *text, size_t size,
                         const bauta_encode_options *options,
                         const json_t *want)
{
    bauta_tokens got;
    bauta_error err;
    if (bauta_tokenizer_encode(tokenizer, text, size, options, &got, &err))
        fail_msg("%s: %s", text, err.message);
    offsets_check(&got, size);
    t->cases++;
    if (!same_ids(&got, want) && t->wrong++ < 3)
        ids_show(text, &got, want);
    bauta_tokens_release(&got);
}

/* Whether ids decode to the text, at once and streamed. */
static bool decodes(const bauta_tokenizer *tokenizer, const json_t *ids,
                    const bauta_decode_options *options, const char *want,
                    size_t want_size)
{
    size_t count = json_array_size(ids), size, at = 0, n;
    uint32_t *list = malloc((count + 1) * sizeof(*list));
    char *text;
    const char *part;
    bauta_detokenizer *decoder;
    for (size_t i = 0; i < count; i++)
        list[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
    assert_int_equal(bauta_tokenizer_decode(tokenizer, list, count, options,
                                            &text, &size, NULL),
                     0);
    assert_int_equal(
        bauta_detokenizer_create(&decoder, tokenizer, options, NULL), 0);
    for (size_t i = 0; i <= count; i++) {
        if (i < count)
            bauta_detokenizer_push(decoder, list[i], &part, &n, NULL);
        else
            bauta_detokenizer_finish(decoder, &part, &n, NULL);
        assert_true(n <= size - at && !memcmp(part, text + at, n));
        at += n;
    }
    assert_int_equal(at, size);
    bool same = size == want_size && !memcmp(text, want, size);
    if (!same)
        print_message("want: %s\ngot:  %s\n", want, text);
    bauta_detokenizer_free(decoder);
    bauta_text_free(text);
    free(list);
    return same;
}

static void tally_check(const char *what, const tally *t)
{
    print_message("%s: %zu cases, %zu wrong, %zu not decoded\n", what, t->cases,
                  t->wrong, t->undone);
    assert_true(t->cases > 0);
    assert_int_equal(t->wrong, 0);
    assert_int_equal(t->undone, 0);
}

/* ---- lines of JSON ----------------------------------------------------- */

/* Whether ids are the pieces of a line; for unknown pieces the line has the
 * text instead. */
static bool same_pieces(const bauta_tokenizer *tokenizer, const json_t *ids,
                        const json_t *pieces)
{
    uint32_t unknown =
        bauta_tokenizer_special_token(tokenizer, BAUTA_TOKEN_UNK);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        uint32_t id = (uint32_t)json_integer_value(json_array_get(ids, i));
        const char *piece = bauta_tokenizer_piece(tokenizer, id, NULL);
        const char *want = json_string_value(json_array_get(pieces, i));
        if (!piece || !want || (id != unknown && strcmp(piece, want) != 0))
            return false;
    }
    return json_array_size(ids) == json_array_size(pieces);
}

/* {"text": ..., "ids": [...]} a line. */
static void golden_check(const char *golden, const bauta_tokenizer *tokenizer,
                         const char *key, const bauta_encode_options *options,
                         bool lossless)
{
    size_t size;
    tally t = { 0 };
    char *all = text_of(data(golden), &size);
    for (char *line = strtok(all, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *entry = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *text = json_object_get(entry, "text");
        const json_t *ids = json_object_get(entry, key);
        assert_true(json_is_string(text) && json_is_array(ids));
        encode_check(&t, tokenizer, json_string_value(text),
                     json_string_length(text), options, ids);
        const json_t *pieces = json_object_get(entry, "pieces");
        if (pieces && !strcmp(key, "ids"))
            t.wrong += !same_pieces(tokenizer, ids, pieces);
        t.undone +=
            lossless && !decodes(tokenizer, ids, NULL, json_string_value(text),
                                 json_string_length(text));
        json_decref(entry);
    }
    free(all);
    tally_check(golden, &t);
}

static const struct {
    const char *golden, *tokenizer, *key;
    bool bare, lossless;
} goldens[] = {
    { "tokenizer-golden/gpt2.jsonl", "gpt2-bpe", "ids", false, true },
    { "tokenizer-golden/bert-uncased.jsonl", "bert-uncased", "ids", false,
      false },
    { "tokenizer-golden/llama2-spm.jsonl", "llama2-tokenizer/tokenizer.model",
      "ids", false, true },
    { "tokenizer-golden/marian-fr-en-source.jsonl",
      "marian-spm/fr-en/source.spm", "ids", false, false },
    { "tokenizer-golden/marian-fr-en-target.jsonl",
      "marian-spm/fr-en/target.spm", "ids", false, false },
    { "tokenizer-golden/marian-fr-en-source.jsonl", "marian-spm/fr-en",
      "marian_ids", false, false },
    { "tokenizer-golden/sp-bpe-test.jsonl",
      "sentencepiece-test/hf_test_sentencepiece_bpe.model", "ids", false,
      false },
    { "tokenizer-golden/sp-bytefallback.jsonl",
      "sentencepiece-test/hf_test_sentencepiece_with_bytefallback.model", "ids",
      false, false },
    { "tokenizer-golden/sp-unigram-test.jsonl",
      "sentencepiece-test/test_model.model", "ids", false, false },
    { "tokenizer-golden/tok512.jsonl", "stories260K-hf", "ids", false, true },
};

static void every_golden_file_matches(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(goldens) / sizeof(goldens[0]); i++) {
        if (!data(goldens[i].golden))
            skip();
        bauta_tokenizer *tokenizer = tokenizer_of(goldens[i].tokenizer);
        golden_check(goldens[i].golden, tokenizer, goldens[i].key,
                     goldens[i].bare ? &bare : NULL, goldens[i].lossless);
        bauta_tokenizer_free(tokenizer);
    }
}

/* The older file formats give the same tokenizer. */
static void older_formats_give_the_same_ids(void **state)
{
    (void)state;
    static const char *const files[][5] = {
        { "gpt2-bpe/encoder.json", "encoder.json", "gpt2-bpe/vocab.bpe",
          "vocab.bpe", NULL },
        { "gpt2-bpe/encoder.json", "vocab.json", "gpt2-bpe/vocab.bpe",
          "merges.txt", NULL },
        { "bert-uncased/vocab.txt", "vocab.txt", NULL },
    };
    if (!data("gpt2-bpe"))
        skip();
    for (size_t i = 0; i < 3; i++) {
        temp_folder s;
        linked(&s, files[i]);
        bauta_tokenizer *tokenizer = tokenizer_at(s.folder);
        golden_check(i < 2 ? "tokenizer-golden/gpt2.jsonl"
                           : "tokenizer-golden/bert-uncased.jsonl",
                     tokenizer, "ids", NULL, i < 2);
        bauta_tokenizer_free(tokenizer);
        temp_folder_free(&s);
    }
}

/* ---- llama.cpp --------------------------------------------------------- */

/* "1 2 3" as a list. */
static json_t *numbers(const char *line)
{
    json_t *list = json_array();
    char *end;
    for (long id = strtol(line, &end, 10); end != line;
         id = strtol(line, &end, 10)) {
        json_array_append_new(list, json_integer(id));
        line = end;
    }
    return list;
}

static void llama_cpp_check(const char *name, const bauta_tokenizer *tokenizer)
{
    static const char border[] = "\n__ggml_vocab_test__\n";
    char path[256];
    size_t size;
    tally t = { 0 };
    snprintf(path, sizeof(path), "tokenizer-vectors/llama.cpp/%s.inp", name);
    char *inputs = text_of(data(path), &size), *text = inputs;
    snprintf(path, sizeof(path), "tokenizer-vectors/llama.cpp/%s.out", name);
    char *outputs = text_of(data(path), &size), *line = outputs;
    for (;;) {
        char *end = strstr(text, border), *stop = strchr(line, '\n');
        if (stop)
            *stop = '\0';
        json_t *want = numbers(line);
        size_t length = end ? (size_t)(end - text) : strlen(text);
        // The last text has the line end of the file.
        if (!end && length && text[length - 1] == '\n')
            length--;
        char *copy = strndup(text, length);
        encode_check(&t, tokenizer, copy, length, &bare, want);
        free(copy);
        json_decref(want);
        if (!end)
            break;
        text = end + strlen(border);
        assert_non_null(stop);
        line = stop + 1;
    }
    free(inputs);
    free(outputs);
    tally_check(name, &t);
    assert_int_equal(t.cases, 47);
}

static void llama_cpp_cases_match(void **state)
{
    (void)state;
    static const struct {
        const char *name, *tokenizer;
    } sets[] = {
        { "ggml-vocab-gpt-2.gguf", "gpt2-bpe" },
        { "ggml-vocab-bert-bge.gguf", "bert-uncased" },
        { "ggml-vocab-llama-spm.gguf", "llama2-tokenizer/tokenizer.model" },
        { "ggml-vocab-phi-3.gguf", "llama2-tokenizer/tokenizer.model" },
    };
    if (!data("tokenizer-vectors/llama.cpp"))
        skip();
    for (size_t i = 0; i < 4; i++) {
        bauta_tokenizer *tokenizer = tokenizer_of(sets[i].tokenizer);
        llama_cpp_check(sets[i].name, tokenizer);
        bauta_tokenizer_free(tokenizer);
    }
    print_message("skipped for want of a vocabulary: llama-bpe, qwen2, falcon, "
                  "mpt\n");
}

/* ---- GPT-2's test plans, BERT's questions ------------------------------ */

static void gpt2_test_plans_match(void **state)
{
    (void)state;
    static const char start[] = "EncodingName: r50k_base\nSample: ";
    static const char middle[] = "\nEncoded: ";
    size_t size;
    tally t = { 0 };
    if (!data("gpt2-bpe/TestPlans.txt"))
        skip();
    char *all = text_of(data("gpt2-bpe/TestPlans.txt"), &size);
    bauta_tokenizer *tokenizer = tokenizer_of("gpt2-bpe");
    for (char *at = strstr(all, start); at; at = strstr(at, start)) {
        char *text = at + strlen(start), *end = strstr(text, middle);
        assert_non_null(end);
        json_t *want =
            json_loads(end + strlen(middle), JSON_DISABLE_EOF_CHECK, NULL);
        *end = '\0';
        encode_check(&t, tokenizer, text, strlen(text), NULL, want);
        t.undone += !decodes(tokenizer, want, NULL, text, strlen(text));
        json_decref(want);
        at = end + 1;
    }
    bauta_tokenizer_free(tokenizer);
    free(all);
    tally_check("r50k test plans", &t);
    assert_int_equal(t.cases, 64);
}

static void bert_questions_match(void **state)
{
    (void)state;
    if (!data("bert-uncased/question_tokens.json"))
        skip();
    tally t = { 0 };
    json_t *texts =
        json_load_file(data("bert-uncased/question_tokens.json"), 0, NULL);
    json_t *ids =
        json_load_file(data("bert-uncased/tokenized_questions.json"), 0, NULL);
    bauta_tokenizer *tokenizer = tokenizer_of("bert-uncased");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *text =
            json_object_get(json_array_get(texts, i), "original");
        encode_check(&t, tokenizer, json_string_value(text),
                     json_string_length(text), &bare, json_array_get(ids, i));
    }
    bauta_tokenizer_free(tokenizer);
    json_decref(texts);
    json_decref(ids);
    tally_check("BERT questions", &t);
    assert_int_equal(t.cases, 10570);
}

/* ---- swift-transformers ------------------------------------------------ */

/* Llama 2 as a folder: with <s> in front. */
static bauta_tokenizer *llama2_folder(void)
{
    static const char *const files[] = { "llama2-tokenizer/tokenizer.model",
                                         "tokenizer.model", NULL };
    static const char config[] = "{\"tokenizer_class\": \"LlamaTokenizer\", "
                                 "\"bos_token\": \"<s>\", "
                                 "\"eos_token\": {\"content\": \"</s>\"}}";
    temp_folder s;
    linked(&s, files);
    temp_folder_write(&s, "tokenizer_config.json", config, strlen(config));
    bauta_tokenizer *tokenizer = tokenizer_at(s.folder);
    temp_folder_free(&s);
    return tokenizer;
}

static void swift_text_check(const char *file, const bauta_tokenizer *tokenizer)
{
    char path[256];
    tally t = { 0 };
    snprintf(path, sizeof(path), "tokenizer-vectors/swift-transformers/%s",
             file);
    json_t *entry = json_load_file(data(path), 0, NULL);
    const json_t *text = json_object_get(entry, "text");
    encode_check(&t, tokenizer, json_string_value(text),
                 json_string_length(text), NULL,
                 json_object_get(entry, "token_ids"));
    json_decref(entry);
    tally_check(file, &t);
}

/* Their decoded texts include transformers' clean-up of spaces, which is not
 * part of a tokenizer's files; only ids are compared. */
static void swift_set_check(const json_t *sets, const char *name,
                            const bauta_tokenizer *tokenizer)
{
    const json_t *set = json_object_get(sets, name);
    tally t = { 0 };
    for (size_t i = 0; i < json_array_size(set); i++) {
        const json_t *entry = json_array_get(set, i);
        const json_t *text = json_object_get(entry, "input");
        encode_check(
            &t, tokenizer, json_string_value(text), json_string_length(text),
            NULL,
            json_object_get(json_object_get(entry, "encoded"), "input_ids"));
    }
    tally_check(name, &t);
}

static void swift_cases_match(void **state)
{
    (void)state;
    if (!data("tokenizer-vectors/swift-transformers"))
        skip();
    json_t *sets = json_load_file(
        data("tokenizer-vectors/swift-transformers/tokenizer_tests.json"), 0,
        NULL);
    bauta_tokenizer *gpt2 = tokenizer_of("gpt2-bpe");
    bauta_tokenizer *bert = tokenizer_of("bert-uncased");
    bauta_tokenizer *llama = llama2_folder();
    swift_text_check("gpt2_encoded_tokens.json", gpt2);
    swift_text_check("bert_uncased_encoded.json", bert);
    swift_text_check("llama_encoded.json", llama);
    swift_set_check(sets, "distilgpt2", gpt2);
    swift_set_check(sets, "bert-base-uncased", bert);
    swift_set_check(sets, "google-bert/bert-base-uncased", bert);
    swift_set_check(sets, "coreml-projects/Llama-2-7b-chat-coreml", llama);
    print_message("skipped for want of a vocabulary: falcon, gemma, whisper, "
                  "t5, llama-3.2, distilbert\n");
    bauta_tokenizer_free(gpt2);
    bauta_tokenizer_free(bert);
    bauta_tokenizer_free(llama);
    json_decref(sets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_file_matches),
        cmocka_unit_test(older_formats_give_the_same_ids),
        cmocka_unit_test(llama_cpp_cases_match),
        cmocka_unit_test(gpt2_test_plans_match),
        cmocka_unit_test(bert_questions_match),
        cmocka_unit_test(swift_cases_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
