/* SPDX-License-Identifier: Apache-2.0 */
/* demo_speak.c - bauta demo: a model of letters says something. */
#include "cli.h"
#include "demo.h"

#include <stdio.h>
#include <string.h>

/* Whether a sentence, which always ends in a mark here, is one of those that
 * were learned from. */
static bool learned(const pair *from, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(from[i].german);
        if (strncmp(text, from[i].german, length) == 0 &&
            (!text[length] || strcmp(text + length, ".") == 0))
            return true;
    }
    return false;
}

/* From the end of a line to the end of the next one. */
static int sentence_make(const translator *t, uint64_t seed, bauta_result **out)
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
    options.sample = true;
    options.temperature = 0.6f;
    options.seed = seed;
    options.stops = ends;
    options.stop_count = 1;
    if (bauta_generate(t->context, t->model, t->tokenizer, &request, out, &err))
        return demo_failed(&err);
    return CLI_OK;
}

int speaker_speak(const char *folder, size_t count, uint64_t seed,
                  const pair *from, size_t from_count)
{
    translator t;
    bauta_result *result = NULL;
    int failed = translator_open(&t, folder);
    for (size_t i = 0; !failed && i < count; i++) {
        failed = sentence_make(&t, seed + i, &result);
        if (failed)
            break;
        const bauta_hypothesis *said = result->hypotheses;
        bool old = learned(from, from_count, said->text);
        bool whole = said->finish == BAUTA_FINISH_STOP;
        printf("  %s%s%s\n", said->text, whole ? "" : " ...",
               old ? "   (as it was read)" : "");
        bauta_result_free(result);
    }
    translator_close(&t);
    return failed;
}
