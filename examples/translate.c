/* SPDX-License-Identifier: Apache-2.0 */
/* translate.c - translate sentences in one batch, with beam search.
 *
 *   translate MODEL SENTENCE... */
#include <bauta.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bauta_error err;

static void check(bauta_status status)
{
    if (status) {
        fprintf(stderr, "translate: %s\n", err.message);
        exit(1);
    }
}

/* Queue a sentence, followed by the end token as in training. */
static void submit(bauta_generator *generator, const bauta_tokenizer *tokenizer,
                   const bauta_generate_options *options, const char *text,
                   int tag)
{
    uint32_t end = bauta_tokenizer_special_token(tokenizer, BAUTA_TOKEN_EOS);
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_tokens tokens;
    check(bauta_tokenizer_encode(tokenizer, text, strlen(text), NULL, &tokens,
                                 &err));
    size_t n = tokens.count;
    uint32_t *source = calloc(n + 1, sizeof(*source));
    check(source ? BAUTA_OK : BAUTA_ERR_NOMEM);
    memcpy(source, tokens.ids, n * sizeof(*source));
    if (end != BAUTA_NO_TOKEN && (n == 0 || source[n - 1] != end))
        source[n++] = end;
    request.source = source;
    request.source_count = n;
    request.options = options;
    request.tag = (uint64_t)tag;
    check(bauta_generator_add(generator, &request, &err));
    free(source);
    bauta_tokens_release(&tokens);
}

int main(int argc, char **argv)
{
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_context *context;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_generator *generator;

    if (argc < 3) {
        fprintf(stderr, "usage: translate MODEL SENTENCE...\n");
        return 2;
    }
    check(bauta_context_create(&context, NULL, &err));
    check(bauta_model_load(&model, argv[1], false, &err));
    check(bauta_tokenizer_load(&tokenizer, argv[1], &err));
    check(bauta_generate_options_load(&options, model, &err));
    options.num_beams = 5;
    check(bauta_generator_create(&generator, context, model, tokenizer, NULL,
                                 &err));
    for (int i = 2; i < argc; i++)
        submit(generator, tokenizer, &options, argv[i], i);
    for (size_t left = 1; left;) {
        check(bauta_generator_step(generator, &left, &err));
        for (bauta_result *r; (r = bauta_generator_take(generator));) {
            if (r->status) // of this request only; the others continue
                printf("%s\n  %s\n", argv[r->tag], r->message);
            else
                printf("%s\n  %s  (%.3f)\n", argv[r->tag],
                       r->hypotheses[0]->text, r->hypotheses[0]->score);
            bauta_result_free(r);
        }
    }
    bauta_generator_free(generator);
    bauta_tokenizer_free(tokenizer);
    bauta_model_free(model);
    bauta_context_free(context);
    return 0;
}
