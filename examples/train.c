/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - train a small byte-level model on a text, then generate from it.
 *
 *   train TEXT OUT [STEPS]
 *
 * OUT becomes a model folder that generate.c, bauta and transformers load. */
#include <bauta.h>

#include <stdio.h>
#include <stdlib.h>

static bauta_error err;

static void check(bauta_status status)
{
    if (status) {
        fprintf(stderr, "train: %s\n", err.message);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static const char small[] =
        "{\"n_layer\": 2, \"n_embd\": 64, \"n_head\": 4, \"n_positions\": 64}";
    bauta_train_options options = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    bauta_generate_options greedy = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_context *context;
    bauta_tokenizer *bytes;
    bauta_corpus *corpus;
    bauta_model *model;
    bauta_trainer *trainer;
    bauta_result *result;
    char *config;

    if (argc < 3) {
        fprintf(stderr, "usage: train TEXT OUT [STEPS]\n");
        return 2;
    }
    check(bauta_context_create(&context, NULL, &err));
    check(bauta_tokenizer_bytes(&bytes, &err));
    check(bauta_corpus_load(&corpus, bytes, (const char *const *)&argv[1], 1,
                            NULL, &err));
    check(bauta_preset(&config, &options, "gpt2-tiny", bytes, small, &err));
    options.max_steps = argc > 3 ? strtoul(argv[3], NULL, 10) : 200;
    options.batch_sequences = 16;
    options.learning_rate = 3e-3;
    check(bauta_model_create(&model, config, options.seed, &err));
    check(bauta_trainer_create(&trainer, context, model, bytes, corpus,
                               &options, &err));
    while (report.step < options.max_steps) {
        check(bauta_trainer_step(trainer, &report, &err));
        if (report.step % 50 == 0 || report.step == options.max_steps)
            printf("step %4zu  loss %.3f\n", report.step, report.loss);
    }
    check(bauta_trainer_export(trainer, argv[2], &err));

    // Continue the first bytes of the text, greedily.
    request.tokens =
        bauta_corpus_document(corpus, 0, &request.count, NULL, NULL);
    request.count = request.count < 16 ? request.count : 16;
    greedy.max_new_tokens = 48;
    request.options = &greedy;
    check(bauta_generate(context, model, bytes, &request, &result, &err));
    printf("%s: continuation \"%s\"\n", argv[2], result->hypotheses[0]->text);

    bauta_result_free(result);
    bauta_trainer_free(trainer);
    bauta_model_free(model);
    bauta_text_free(config);
    bauta_corpus_free(corpus);
    bauta_tokenizer_free(bytes);
    bauta_context_free(context);
    return 0;
}
