/* SPDX-License-Identifier: Apache-2.0 */
/* demo_generate.c - bauta demo: translate held-out sentences and count the
 * exact matches; sample sentences from the character model. */
#include "../cli/cli.h"
#include "demo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 128, WRONG_SHOWN = 5 };

int demo_failed(const bauta_error *err)
{
    return cli_fail("demo", "%s", err->message);
}

int demo_model_open(demo_model *t, const char *folder)
{
    bauta_error err;
    *t = (demo_model){ 0 };
    if (bauta_context_create(&t->context, NULL, &err) ||
        bauta_model_load(&t->model, folder, false, &err) ||
        bauta_tokenizer_load(&t->tokenizer, folder, &err))
        return demo_failed(&err);
    return CLI_OK;
}

void demo_model_close(demo_model *t)
{
    bauta_tokenizer_free(t->tokenizer);
    bauta_model_free(t->model);
    bauta_context_free(t->context);
}

int demo_model_read(const demo_model *t, const char *text, bool target,
                    uint32_t *ids, size_t room, size_t *count)
{
    bauta_error err;
    bauta_tokens tokens;
    bauta_encode_options options = BAUTA_ENCODE_OPTIONS_INIT;
    uint32_t end = bauta_tokenizer_special_token(t->tokenizer, BAUTA_TOKEN_EOS);
    options.target = target;
    if (bauta_tokenizer_encode(t->tokenizer, text, strlen(text), &options,
                               &tokens, &err))
        return demo_failed(&err);
    bool fits = tokens.count + 1 <= room;
    *count = fits ? tokens.count : 0;
    if (*count)
        memcpy(ids, tokens.ids, *count * sizeof(*ids));
    bauta_tokens_release(&tokens);
    if (!fits)
        return cli_fail("demo", "'%s' has too many tokens", text);
    if (end != BAUTA_NO_TOKEN && (!*count || ids[*count - 1] != end))
        ids[(*count)++] = end;
    return CLI_OK;
}

/* ---- translations ------------------------------------------------------ */

static int requests_add(const demo_model *t, bauta_generator *generator,
                        const pair *from, size_t count)
{
    bauta_error err;
    for (size_t i = 0; i < count; i++) {
        uint32_t ids[TOKENS_MAX];
        bauta_request request = BAUTA_REQUEST_INIT;
        request.source = ids;
        request.tag = i;
        int failed = demo_model_read(t, from[i].english, false, ids, TOKENS_MAX,
                                     &request.source_count);
        if (failed)
            return failed;
        if (bauta_generator_add(generator, &request, &err))
            return demo_failed(&err);
    }
    return CLI_OK;
}

/* Counts so far. */
typedef struct tally {
    const pair *from;
    size_t shown, right, wrong;
    char *errors[WRONG_SHOWN]; /* the first wrong ones, as lines */
} tally;

/* Source, output and reference. */
static char *error_line(const pair *p, const char *text)
{
    size_t size = strlen(p->english) + strlen(text) + strlen(p->german) + 64;
    char *line = malloc(size);
    if (line)
        snprintf(line, size, "  %-44s %s   (should be: %s)", p->english, text,
                 p->german);
    return line;
}

static void result_count(tally *y, const bauta_result *result)
{
    const pair *p = &y->from[result->tag];
    const char *text = result->count ? result->hypotheses[0]->text : "";
    bool right = strcmp(text, p->german) == 0;
    if (result->tag < y->shown)
        printf("  %-44s %s%s\n", p->english, text, right ? "" : "   (wrong)");
    if (!right && y->wrong < WRONG_SHOWN)
        y->errors[y->wrong] = error_line(p, text);
    y->right += right;
    y->wrong += !right;
}

static void results_take(bauta_generator *generator, tally *y)
{
    bauta_result *result;
    while ((result = bauta_generator_take(generator))) {
        result_count(y, result);
        bauta_result_free(result);
    }
}

static void errors_show(tally *y)
{
    if (y->wrong)
        printf("\nWrong translations%s:\n\n",
               y->wrong > WRONG_SHOWN ? ", the first ones" : "");
    for (size_t i = 0; i < WRONG_SHOWN; i++) {
        if (y->errors[i])
            printf("%s\n", y->errors[i]);
        free(y->errors[i]);
    }
}

int translations_check(const demo_model *t, const pair *from, size_t count,
                       size_t shown, size_t *right)
{
    bauta_error err;
    bauta_generator *generator = NULL;
    tally y = { .from = from, .shown = shown };
    size_t left = count;
    if (bauta_generator_create(&generator, t->context, t->model, t->tokenizer,
                               NULL, &err))
        return demo_failed(&err);
    int failed = requests_add(t, generator, from, count);
    while (!failed && left) {
        if (bauta_generator_step(generator, &left, &err))
            failed = demo_failed(&err);
        results_take(generator, &y);
    }
    bauta_generator_free(generator);
    errors_show(&y);
    *right = y.right;
    return failed;
}

/* ---- the character model ----------------------------------------------- */

/* Whether a sentence, with its final mark, is in the training text. */
static bool in_training(const pair *from, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(from[i].german);
        if (strncmp(text, from[i].german, length) == 0 &&
            (!text[length] || strcmp(text + length, ".") == 0))
            return true;
    }
    return false;
}

/* Generate from one newline to the next. */
static int sentence_make(const demo_model *t, uint64_t seed, bauta_result **out)
{
    static const char *const ends[] = { "\n" };
    bauta_error err;
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT;
    uint32_t line = bauta_tokenizer_find(t->tokenizer, "\n", 1);
    request.tokens = &line;
    request.count = 1;
    request.options = &options;
    if (bauta_generate_options_load(&options, t->model, &err))
        return demo_failed(&err);
    options.do_sample = true;
    options.temperature = 0.6f;
    options.seed = seed;
    options.stop_strings = ends;
    options.stop_string_count = 1;
    if (bauta_generate(t->context, t->model, t->tokenizer, &request, out, &err))
        return demo_failed(&err);
    return CLI_OK;
}

int char_model_sample(const char *folder, size_t count, uint64_t seed,
                      const pair *from, size_t from_count)
{
    demo_model t;
    bauta_result *result = NULL;
    int failed = demo_model_open(&t, folder);
    for (size_t i = 0; !failed && i < count; i++) {
        failed = sentence_make(&t, seed + i, &result);
        if (failed)
            break;
        const bauta_hypothesis *text = result->hypotheses[0];
        bool old = in_training(from, from_count, text->text);
        bool whole = text->finish == BAUTA_FINISH_STOP;
        printf("  %s%s%s\n", text->text, whole ? "" : " ...",
               old ? "   (in the training text)" : "");
        bauta_result_free(result);
    }
    demo_model_close(&t);
    return failed;
}
