/* SPDX-License-Identifier: Apache-2.0 */
/* transformers.c - fill, embed, generate and translate over trained models give
 * the results of transformers. */
#include "data.h"
#include "temp_folder.h"

#include <jansson.h>
#include <math.h>

/* ---- the program ------------------------------------------------------- */

static char model[768]; /* the folder of the last expectation */

/* The expected results, from the folder of a model; NULL if the data is
 * missing. */
static json_t *expectation(const char *folder)
{
    char path[1024], name[256];
    snprintf(name, sizeof(name), "models/%s", folder);
    if (!test_data_path(model, sizeof(model), name)) {
        print_message("no %s: 1 comparison skipped\n", name);
        return NULL;
    }
    snprintf(path, sizeof(path), "%s/expect.json", model);
    return json_load_file(path, 0, NULL);
}

/* Lines for the program to read, in which a newline is "\n". */
static void line_write(FILE *file, const char *text)
{
    for (; *text; text++)
        if (*text == '\n')
            fputs("\\n", file);
        else
            fputc(*text, file);
    fputc('\n', file);
}

/* Run a verb, and return its lines of JSON as a list. */
static json_t *answers(const char *verb, const char *options)
{
    char command[4096];
    json_t *all = json_array(), *line;
    snprintf(command, sizeof(command), "'%s' %s '%s' --json %s", BAUTA_PROGRAM,
             verb, model, options);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    while ((line = json_loadf(out, JSON_DISABLE_EOF_CHECK, NULL)))
        json_array_append_new(all, line);
    if (pclose(out) != 0)
        fail_msg("this failed: %s", command);
    return all;
}

static json_t *in(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (!value)
        fail_msg("there is no \"%s\"", key);
    return value;
}

/* The texts under `key` of a list, one a line in a file. */
static const char *lines_write(temp_folder *s, const json_t *list,
                               const char *key)
{
    FILE *file = fopen(temp_folder_path(s, "lines"), "wb");
    assert_non_null(file);
    for (size_t i = 0; i < json_array_size(list); i++)
        line_write(file, json_string_value(in(json_array_get(list, i), key)));
    assert_int_equal(fclose(file), 0);
    return s->path;
}

static void assert_near(double want, double got, double apart)
{
    if (!(fabs(want - got) <= apart))
        fail_msg("want %.9g, got %.9g", want, got);
}

/* ---- fill -------------------------------------------------------------- */

static void candidate_same(const json_t *want, const json_t *got)
{
    assert_string_equal(json_string_value(json_array_get(want, 0)),
                        json_string_value(in(got, "text")));
    assert_near(json_real_value(json_array_get(want, 1)),
                json_real_value(in(got, "probability")), 1e-5);
}

static void fill_gives_the_words_of_transformers(void **state)
{
    (void)state;
    json_t *want = expectation("bert-shakespeare");
    char options[1024];
    if (!want)
        return;
    const json_t *fills = in(want, "fill");
    temp_folder s = temp_folder_create();
    snprintf(options, sizeof(options), "--file %s",
             lines_write(&s, fills, "text"));
    json_t *got = answers("fill", options);
    assert_int_equal(json_array_size(got), json_array_size(fills));
    for (size_t i = 0; i < json_array_size(fills); i++) {
        const json_t *gaps = in(json_array_get(fills, i), "fills");
        const json_t *ours = in(json_array_get(got, i), "gaps");
        assert_int_equal(json_array_size(ours), json_array_size(gaps));
        for (size_t g = 0; g < json_array_size(gaps); g++)
            for (size_t c = 0; c < 5; c++)
                candidate_same(json_array_get(json_array_get(gaps, g), c),
                               json_array_get(json_array_get(ours, g), c));
    }
    json_decref(got);
    json_decref(want);
    temp_folder_free(&s);
}

/* ---- embed ------------------------------------------------------------- */

static void embed_gives_the_mean_of_transformers(void **state)
{
    (void)state;
    json_t *want = expectation("bert-shakespeare");
    char options[1024];
    double square = 0.0;
    if (!want)
        return;
    const json_t *mean = in(want, "mean_pooled_first");
    temp_folder s = temp_folder_create();
    const char *file = lines_write(&s, in(want, "fill"), "text");
    snprintf(options, sizeof(options), "--no-normalize --file %s", file);
    json_t *plain = answers("embed", options);
    snprintf(options, sizeof(options), "--file %s", file);
    json_t *unit = answers("embed", options);
    const json_t *first = in(json_array_get(plain, 0), "embedding");
    assert_int_equal(json_array_size(first), json_array_size(mean));
    for (size_t d = 0; d < json_array_size(mean); d++)
        square += pow(json_real_value(json_array_get(mean, d)), 2.0);
    for (size_t d = 0; d < json_array_size(mean); d++) {
        double x = json_real_value(json_array_get(mean, d));
        assert_near(json_real_value(json_array_get(first, d)), x, 1e-5);
        assert_near(json_real_value(json_array_get(
                        in(json_array_get(unit, 0), "embedding"), d)),
                    x / sqrt(square), 1e-5);
    }
    json_decref(plain);
    json_decref(unit);
    json_decref(want);
    temp_folder_free(&s);
}

/* ---- generate ---------------------------------------------------------- */

/* The new tokens of the answer, as many as there are. */
static void tokens_same(const json_t *want, const json_t *answer)
{
    size_t prompt = (size_t)json_integer_value(in(answer, "prompt_tokens"));
    const json_t *got = in(answer, "tokens");
    assert_int_equal(json_array_size(got), json_array_size(want) - prompt);
    for (size_t i = 0; i < json_array_size(got); i++)
        assert_int_equal(json_integer_value(json_array_get(got, i)),
                         json_integer_value(json_array_get(want, prompt + i)));
}

static void generation_same(const char *ids, const char *how)
{
    json_t *want = expectation("gpt2-shakespeare");
    char options[1024];
    if (!want)
        return;
    const json_t *texts = in(want, "generation");
    temp_folder s = temp_folder_create();
    snprintf(options, sizeof(options), "--quiet %s --prompts %s", how,
             lines_write(&s, texts, "prompt"));
    json_t *got = answers("generate", options);
    assert_int_equal(json_array_size(got), json_array_size(texts));
    for (size_t i = 0; i < json_array_size(texts); i++)
        tokens_same(in(json_array_get(texts, i), ids), json_array_get(got, i));
    json_decref(got);
    json_decref(want);
    temp_folder_free(&s);
}

static void generate_equals_transformers(void **state)
{
    (void)state;
    generation_same("greedy_ids", "--greedy -n 100");
}

static void beams_equal_transformers(void **state)
{
    (void)state;
    generation_same("beam4_ids", "--beams 4 -n 40");
}

/* ---- translate --------------------------------------------------------- */

enum { SENTENCES = 40 };

/* The first lines of the two files, whose paths are relative to the data. */
static void translation_same(const char *beams, const char *expected)
{
    char source[1024], want_path[1024], command[4096], want[4096], got[4096];
    size_t same = 0;
    if (!test_data_path(model, sizeof(model), "models/marian-m30k") ||
        !test_data_path(want_path, sizeof(want_path), expected) ||
        !test_data_path(source, sizeof(source),
                        "multi30k/test_2016_flickr.en.gz")) {
        print_message("no marian-m30k: 1 comparison skipped\n");
        return;
    }
    snprintf(command, sizeof(command),
             "gzip -cd '%s' | head -n %d | '%s' translate '%s' --quiet "
             "--beams %s",
             source, SENTENCES, BAUTA_PROGRAM, model, beams);
    FILE *out = popen(command, "r"), *file = fopen(want_path, "rb");
    assert_non_null(out);
    assert_non_null(file);
    for (int i = 0; i < SENTENCES; i++) {
        assert_non_null(fgets(want, sizeof(want), file));
        assert_non_null(fgets(got, sizeof(got), out));
        if (strcmp(want, got) == 0)
            same++;
        else
            print_message("want %sgot  %s", want, got);
    }
    assert_null(fgets(got, sizeof(got), out));
    assert_int_equal(pclose(out), 0);
    fclose(file);
    assert_int_equal(same, SENTENCES);
}

static void translate_equals_transformers(void **state)
{
    (void)state;
    translation_same("1", "models/marian-m30k/test_2016.beam1.de");
}

static void five_beams_equal_transformers(void **state)
{
    (void)state;
    translation_same("5 --early-stopping yes",
                     "models/marian-m30k/test_2016.beam5.de");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fill_gives_the_words_of_transformers),
        cmocka_unit_test(embed_gives_the_mean_of_transformers),
        cmocka_unit_test(generate_equals_transformers),
        cmocka_unit_test(beams_equal_transformers),
        cmocka_unit_test(translate_equals_transformers),
        cmocka_unit_test(five_beams_equal_transformers),
    };
    return cmocka_run_group_tests_name("transformers", tests, NULL, NULL);
}
