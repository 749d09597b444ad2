/* SPDX-License-Identifier: Apache-2.0 */
/* test_generation_data.c - generation with the models of the data folder equals
 * transformers, token by token. */
#include "base/error.h"
#include "data.h"
#include "generation_fixtures.h"

#include <jansson.h>
#include <math.h>

static size_t missing;

/* A folder of the data; the test is skipped if it is missing. */
static const char *need_folder(char path[600], const char *name)
{
    if (!test_data_path(path, 600, name)) {
        missing++;
        printf("%s is not there and is skipped\n", name);
        skip();
    }
    return path;
}

static size_t row_of(const tensor *t, size_t row, uint32_t *to)
{
    const int64_t *ids = (const int64_t *)t->data + row * t->dims[1];
    for (size_t j = 0; j < t->dims[1]; j++)
        to[j] = (uint32_t)ids[j];
    return t->dims[1];
}

static void tokens_equal(const uint32_t *got, size_t got_count,
                         const uint32_t *want, size_t want_count,
                         const char *what, size_t number)
{
    if (got_count == want_count && !memcmp(got, want, got_count * sizeof(*got)))
        return;
    print_error("%s %zu:\nwant", what, number);
    for (size_t i = 0; i < want_count; i++)
        print_error(" %u", want[i]);
    print_error("\ngot ");
    for (size_t i = 0; i < got_count; i++)
        print_error(" %u", got[i]);
    fail_msg("%s %zu is another text", what, number);
}

/* ---- random weights ---------------------------------------------------- */

enum { ROWS = 3, LONG = 64 };

/* Rows of `generate.<key>` begin with the prompt or with the start. */
static void folder_check(const char *path, const char *folder, const char *key,
                         size_t beams)
{
    char file[700];
    uint32_t prompts[ROWS][LONG], want[LONG];
    bauta_request requests[ROWS];
    bauta_result *results[ROWS];
    tensor input, output, mask;
    bauta_error err;
    snprintf(file, sizeof(file), "%s/golden.safetensors", path);
    tensors *golden = tensors_load(file);
    assert_non_null(golden);
    assert_true(tensor_read(&input, golden, "input_ids"));
    assert_true(tensor_read(&output, golden, key));
    bool padded = tensor_read(&mask, golden, "attention_mask");
    generation_fixture s = generation_fixture_load(path, false, 1);
    bool encoder = bauta_model_kind_of(s.model) == BAUTA_ENCODER_DECODER;
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    MUST(bauta_generate_options_load(&o, s.model, &err), &err);
    o.num_beams = beams;
    o.max_length = output.dims[1];
    size_t rows = output.dims[0];
    assert_in_range(rows, 1, ROWS);
    for (size_t i = 0; i < rows; i++) {
        size_t count = row_of(&input, i, prompts[i]), kept = 0;
        for (size_t j = 0; padded && j < count; j++)
            kept += ((const int64_t *)mask.data)[i * count + j] != 0;
        requests[i] = (bauta_request)BAUTA_REQUEST_INIT;
        requests[i].options = &o;
        if (encoder) {
            requests[i].source = prompts[i];
            requests[i].source_count = padded ? kept : count;
        } else {
            requests[i].tokens = prompts[i];
            requests[i].count = count;
        }
    }
    generate_all(&s, NULL, requests, rows, results);
    for (size_t i = 0; i < rows; i++) {
        size_t lead = encoder ? 1 : input.dims[1];
        size_t count = row_of(&output, i, want);
        const bauta_hypothesis *h = results[i]->hypotheses[0];
        tokens_equal(h->tokens, h->count, want + lead, count - lead, folder, i);
    }
    results_free(results, rows);
    generation_fixture_release(&s);
    tensor_release(&input);
    tensor_release(&output);
    tensor_release(&mask);
    tensors_free(golden);
}

static void tiny_check(const char *folder, const char *key, size_t beams)
{
    char path[600];
    folder_check(need_folder(path, folder), folder, key, beams);
}

/* Greedy and by beam search, of a folder of tests/data. */
static void tree_check(const char *folder)
{
    char path[600];
    assert_non_null(test_tree_path(path, sizeof(path), folder));
    folder_check(path, folder, "generate.greedy", 1);
    folder_check(path, folder, "generate.beam3", 3);
}

static void t5_equals_transformers(void **state)
{
    (void)state;
    tree_check("models/t5");
    tree_check("models/t5-v1.1");
}

static void gemma_equals_transformers(void **state)
{
    (void)state;
    tree_check("models/gemma2");
    tree_check("models/gemma3");
}

static void mpt_equals_transformers(void **state)
{
    (void)state;
    tree_check("models/mpt");
}

static void gpt2_greedy_equals_transformers(void **state)
{
    (void)state;
    tiny_check("hf-tiny-random/gpt2-nopad", "generate.greedy", 1);
}

static void llama_greedy_equals_transformers(void **state)
{
    (void)state;
    tiny_check("hf-tiny-random/llama-gqa", "generate.greedy", 1);
}

static void marian_greedy_equals_transformers(void **state)
{
    (void)state;
    tiny_check("hf-tiny-random/marian", "generate.greedy", 1);
}

static void marian_beams_equal_transformers(void **state)
{
    (void)state;
    tiny_check("hf-tiny-random/marian", "generate.beam4", 4);
}

/* ---- trained weights --------------------------------------------------- */

static void stories_equal_transformers_for_200_tokens(void **state)
{
    (void)state;
    char path[600], file[700];
    tensor want;
    uint32_t ids[201];
    bauta_result *result;
    bauta_error err;
    need_folder(path, "stories260K-hf");
    snprintf(file, sizeof(file), "%s/golden.safetensors", path);
    tensors *golden = tensors_load(file);
    assert_non_null(golden);
    assert_true(tensor_read(&want, golden, "greedy_ids"));
    assert_int_equal(want.count, 201);
    for (size_t i = 0; i < 201; i++)
        ids[i] = (uint32_t)((const int64_t *)want.data)[i];
    generation_fixture s = generation_fixture_load(path, true, 1);
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    MUST(bauta_generate_options_load(&o, s.model, &err), &err);
    o.max_new_tokens = 200;
    bauta_request r = BAUTA_REQUEST_INIT;
    r.tokens = ids;
    r.count = 1;
    r.options = &o;
    MUST(bauta_generate(s.context, s.model, s.tokenizer, &r, &result, &err),
         &err);
    tokens_equal(result->hypotheses[0]->tokens, result->hypotheses[0]->count,
                 ids + 1, 200, "stories", 0);
    assert_int_equal(result->hypotheses[0]->finish, BAUTA_FINISH_LENGTH);
    bauta_result_free(result);
    generation_fixture_release(&s);
    tensor_release(&want);
    tensors_free(golden);
}

/* Six digits in, the same six in order out; the table has 11 positions, and the
 * twelfth token is never read. */
static void sorting_model_sorts(void **state)
{
    (void)state;
    enum { DIGITS = 6, ALL = 729 };
    static uint32_t digits[ALL][DIGITS];
    static bauta_request requests[ALL];
    static bauta_result *results[ALL];
    char path[600];
    bauta_error err;
    size_t right = 0;
    generation_fixture s = generation_fixture_load(
        need_folder(path, "gpt-nano-sort-hf"), false, 1);
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    MUST(bauta_generate_options_load(&o, s.model, &err), &err);
    o.max_new_tokens = DIGITS;
    for (size_t i = 0; i < ALL; i++) {
        size_t n = i;
        for (size_t j = 0; j < DIGITS; j++, n /= 3)
            digits[i][j] = (uint32_t)(n % 3);
        requests[i] = (bauta_request)BAUTA_REQUEST_INIT;
        requests[i].tokens = digits[i];
        requests[i].count = DIGITS;
        requests[i].options = &o;
    }
    generate_all(&s, NULL, requests, ALL, results);
    for (size_t i = 0; i < ALL; i++) {
        const bauta_hypothesis *h = results[i]->hypotheses[0];
        size_t counts[3] = { 0 }, at = 0;
        bool sorted = h->count == DIGITS;
        for (size_t j = 0; j < DIGITS; j++)
            counts[digits[i][j]]++;
        for (uint32_t d = 0; d < 3; d++)
            for (size_t j = 0; j < counts[d] && sorted; j++)
                sorted = h->tokens[at++] == d;
        right += sorted;
    }
    printf("%zu of %d sorted\n", right, ALL);
    assert_true(right >= ALL - 10);
    results_free(results, ALL);
    generation_fixture_release(&s);
}

static size_t ids_of(const json_t *list, uint32_t **out)
{
    size_t count = json_array_size(list);
    *out = malloc((count + 1) * sizeof(**out));
    assert_non_null(*out);
    for (size_t i = 0; i < count; i++)
        (*out)[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return count;
}

static void shakespeare_check(const generation_fixture *s, const json_t *text,
                              const char *key, size_t beams, size_t tokens)
{
    const char *prompt = json_string_value(json_object_get(text, "prompt"));
    bauta_tokens ids;
    bauta_result *result;
    bauta_error err;
    uint32_t *want;
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    size_t count = ids_of(json_object_get(text, key), &want);
    MUST(bauta_generate_options_load(&o, s->model, &err), &err);
    o.max_new_tokens = tokens;
    o.num_beams = beams;
    MUST(bauta_tokenizer_encode(s->tokenizer, prompt, strlen(prompt), NULL,
                                &ids, &err),
         &err);
    bauta_request r = BAUTA_REQUEST_INIT;
    r.tokens = ids.ids;
    r.count = ids.count;
    r.options = &o;
    MUST(bauta_generate(s->context, s->model, s->tokenizer, &r, &result, &err),
         &err);
    const bauta_hypothesis *h = result->hypotheses[0];
    assert_true(count > ids.count);
    tokens_equal(h->tokens, h->count, want + ids.count, count - ids.count,
                 prompt, beams);
    bauta_result_free(result);
    bauta_tokens_release(&ids);
    free(want);
}

static void shakespeare_equals_transformers(void **state)
{
    (void)state;
    char path[600], file[700];
    generation_fixture s = generation_fixture_load(
        need_folder(path, "models/gpt2-shakespeare"), true, 1);
    snprintf(file, sizeof(file), "%s/expect.json", path);
    json_t *root = json_load_file(file, 0, NULL);
    json_t *texts = json_object_get(root, "generation");
    assert_int_equal(json_array_size(texts), 8);
    for (size_t i = 0; i < 8; i++) {
        const json_t *text = json_array_get(texts, i);
        shakespeare_check(&s, text, "greedy_ids", 1, 100);
        shakespeare_check(&s, text, "beam4_ids", 4, 40);
    }
    json_decref(root);
    generation_fixture_release(&s);
}

/* ---- translation ------------------------------------------------------- */

enum { SENTENCES = 1000 };

/* The English lines, from the unpacked file beside the model if present, or
 * else from the corpus through zcat. */
static size_t lines_read(char *lines[SENTENCES])
{
    char path[600], command[700], line[4096];
    size_t count = 0;
    if (!test_data_path(path, sizeof(path), "multi30k/test_2016_flickr.en.gz"))
        return 0;
    snprintf(command, sizeof(command), "zcat '%s'", path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    while (count < SENTENCES && fgets(line, sizeof(line), pipe)) {
        line[strcspn(line, "\n")] = '\0';
        lines[count++] = strdup(line);
    }
    pclose(pipe);
    return count;
}

/* How much worse, by our own scores, the other translation is: a sum of the
 * log-probabilities of its tokens, in the order of the search. */
static double score_of(const generation_fixture *s, const bauta_tokens *source,
                       const uint32_t *tokens, size_t count)
{
    size_t vocab = bauta_model_vocab_size(s->model), length = count + 1;
    uint32_t *ids = malloc((length + 1) * sizeof(*ids));
    float *logits = malloc(length * vocab * sizeof(float));
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_error err;
    double score = 0;
    assert_non_null(ids);
    assert_non_null(logits);
    MUST(bauta_generate_options_load(&o, s->model, &err), &err);
    ids[0] = o.decoder_start_token_id;
    memcpy(ids + 1, tokens, count * sizeof(*ids));
    ids[length] = o.eos_token_ids[0];
    bauta_batch target = BAUTA_BATCH_INIT, from = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    target.count = from.count = 1;
    target.lengths = &length;
    target.ids = ids;
    from.lengths = &source->count;
    from.ids = source->ids;
    outputs.logits = logits;
    MUST(bauta_model_forward(s->context, s->model, &from, &target, &outputs,
                             &err),
         &err);
    for (size_t i = 0; i < length; i++) {
        const float *row = logits + i * vocab;
        double sum = 0, max = -INFINITY;
        for (size_t j = 0; j < vocab; j++)
            max = fmax(max, (double)row[j]);
        for (size_t j = 0; j < vocab; j++)
            sum += exp((double)row[j] - max);
        score += (double)row[ids[i + 1]] - max - log(sum);
    }
    free(ids);
    free(logits);
    return score / (double)length;
}

/* Number of sentences; BAUTA_SENTENCES overrides it. */
static size_t sentences(void)
{
    const char *text = getenv("BAUTA_SENTENCES");
    size_t count = text ? strtoul(text, NULL, 10) : 100;
    return count < SENTENCES ? count : SENTENCES;
}

static void translate(const char *ids, size_t beams)
{
    static char *lines[SENTENCES];
    static bauta_tokens sources[SENTENCES];
    static bauta_request requests[SENTENCES];
    static bauta_result *results[SENTENCES];
    char path[600], file[700];
    size_t count = sentences(), same = 0;
    bauta_error err;
    need_folder(path, "models/marian-m30k");
    if (lines_read(lines) < SENTENCES)
        skip();
    generation_fixture s = generation_fixture_load(path, true, 1);
    snprintf(file, sizeof(file), "%s/%s", path, ids);
    json_t *root = json_load_file(file, 0, NULL);
    assert_int_equal(json_array_size(root), SENTENCES);
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    MUST(bauta_generate_options_load(&o, s.model, &err), &err);
    o.num_beams = beams;
    o.max_new_tokens = 80;
    o.early_stopping = BAUTA_EARLY_STOPPING_YES; // as the goldens were made
    for (size_t i = 0; i < count; i++) {
        MUST(bauta_tokenizer_encode(s.tokenizer, lines[i], strlen(lines[i]),
                                    NULL, &sources[i], &err),
             &err);
        requests[i] = (bauta_request)BAUTA_REQUEST_INIT;
        requests[i].source = sources[i].ids;
        requests[i].source_count = sources[i].count;
        requests[i].options = &o;
    }
    bauta_generator_options wide = BAUTA_GENERATOR_OPTIONS_INIT;
    wide.max_sequences = 64 * beams;
    generate_all(&s, &wide, requests, count, results);
    for (size_t i = 0; i < count; i++) {
        uint32_t *want;
        size_t n = ids_of(json_array_get(root, i), &want);
        const bauta_hypothesis *h = results[i]->hypotheses[0];
        size_t got = h->count - (h->finish == BAUTA_FINISH_END);
        if (got == n && !memcmp(h->tokens, want, n * sizeof(*want)))
            same++;
        else
            printf("sentence %zu differs: its score is %.7f, the other's "
                   "%.7f\n",
                   i, score_of(&s, &sources[i], h->tokens, got),
                   score_of(&s, &sources[i], want, n));
        free(want);
    }
    printf("%zu of %zu translations are the same\n", same, count);
    assert_true(same * 1000 >= count * 995);
    results_free(results, count);
    for (size_t i = 0; i < count; i++)
        bauta_tokens_release(&sources[i]);
    for (size_t i = 0; i < SENTENCES; i++)
        free(lines[i]);
    json_decref(root);
    generation_fixture_release(&s);
}

static void greedy_translations_equal_transformers(void **state)
{
    (void)state;
    translate("test_2016.beam1.ids.json", 1);
}

static void beam_translations_equal_transformers(void **state)
{
    (void)state;
    translate("test_2016.beam5.ids.json", 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t5_equals_transformers),
        cmocka_unit_test(gemma_equals_transformers),
        cmocka_unit_test(mpt_equals_transformers),
        cmocka_unit_test(gpt2_greedy_equals_transformers),
        cmocka_unit_test(llama_greedy_equals_transformers),
        cmocka_unit_test(marian_greedy_equals_transformers),
        cmocka_unit_test(marian_beams_equal_transformers),
        cmocka_unit_test(stories_equal_transformers_for_200_tokens),
        cmocka_unit_test(sorting_model_sorts),
        cmocka_unit_test(shakespeare_equals_transformers),
        cmocka_unit_test(greedy_translations_equal_transformers),
        cmocka_unit_test(beam_translations_equal_transformers),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (missing)
        printf("%zu folders are not there and were skipped\n", missing);
    return failed;
}
