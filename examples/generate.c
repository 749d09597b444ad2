/* SPDX-License-Identifier: Apache-2.0 */
/* generate.c - continue a prompt and print the text as it is generated.
 *
 *   generate MODEL [PROMPT] [TOKENS] */
#include <bauta.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bauta_error err;

static void check(bauta_status status)
{
    if (status) {
        fprintf(stderr, "generate: %s\n", err.message);
        exit(1);
    }
}

/* Called for every token, with the text that became final with it. */
static bool on_token(void *user, uint32_t token, float logprob,
                     const char *text, size_t length)
{
    double *sum = user;
    if (token != BAUTA_NO_TOKEN)
        *sum += (double)logprob;
    fwrite(text, 1, length, stdout);
    return fflush(stdout) == 0;
}

int main(int argc, char **argv)
{
    const char *prompt = argc > 2 ? argv[2] : "The mask";
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_context *context;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_tokens tokens;
    bauta_result *result;
    double sum = 0.0;

    if (argc < 2) {
        fprintf(stderr, "usage: generate MODEL [PROMPT] [TOKENS]\n");
        return 2;
    }
    check(bauta_context_create(&context, NULL, &err));
    check(bauta_model_load(&model, argv[1], false, &err));
    check(bauta_tokenizer_load(&tokenizer, argv[1], &err));
    check(bauta_tokenizer_encode(tokenizer, prompt, strlen(prompt), NULL,
                                 &tokens, &err));

    // The model's generation_config.json, with these sampling settings.
    check(bauta_generate_options_load(&options, model, &err));
    options.max_new_tokens = argc > 3 ? strtoul(argv[3], NULL, 10) : 60;
    options.do_sample = true;
    options.temperature = 0.8f;
    options.top_p = 0.95f;
    options.seed = 7;
    request.tokens = tokens.ids;
    request.count = tokens.count;
    request.options = &options;
    request.on_token = on_token;
    request.user = &sum;
    printf("%s", prompt);
    check(bauta_generate(context, model, tokenizer, &request, &result, &err));
    printf("\n\n%zu tokens, log-probability %.3f, finish reason: %s\n",
           result->hypotheses[0]->count, sum,
           bauta_finish_text(result->hypotheses[0]->finish));

    bauta_result_free(result);
    bauta_tokens_release(&tokens);
    bauta_tokenizer_free(tokenizer);
    bauta_model_free(model);
    bauta_context_free(context);
    return 0;
}
