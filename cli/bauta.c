/* SPDX-License-Identifier: Apache-2.0 */
/* bauta.c - main(): find the verb and call it. */
#include "cli.h"
#include "json_output.h"

#include <bauta.h>

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    cli_verb *run;
    const char *summary;
} verbs[] = {
    { "audit", audit_main, "check the guarantees on a model" },
    { "chat", chat_main, "talk with a model" },
    { "demo", demo_main, "train and use two small models in two minutes" },
    { "embed", embed_main, "embed texts as vectors" },
    { "fill", fill_main, "predict masked tokens" },
    { "forecast", forecast_main, "continue time series" },
    { "generate", generate_main, "continue a prompt" },
    { "inspect", inspect_main, "print a model's config, tensors and masks" },
    { "lab", lab_main, "experiments on masked attention" },
    { "look", look_main, "show attention weights, or a mask" },
    { "perplexity", perplexity_main, "measure the perplexity of texts" },
    { "score", score_main, "score translations: BLEU, chrF; perplexity" },
    { "serve", serve_main, "serve models over HTTP, with the OpenAI API" },
    { "tokenize", tokenize_main, "encode texts to token ids, or decode" },
    { "tokenizer", tokenizer_main, "train a tokenizer on texts" },
    { "train", train_main, "train or fine-tune a model" },
    { "translate", translate_main, "translate lines of text" },
};

enum { VERBS = sizeof(verbs) / sizeof(verbs[0]) };

/* ---- the program ------------------------------------------------------- */

static int help(void)
{
    printf("usage: bauta VERB [options]\n"
           "\n"
           "Train and run Transformers with exact attention masks.\n"
           "\n"
           "verbs\n");
    for (int i = 0; i < VERBS; i++)
        printf("  %-12s %s\n", verbs[i].name, verbs[i].summary);
    printf("\n"
           "options\n"
           "  --help       print this text; 'bauta help VERB' or 'bauta VERB "
           "--help'\n"
           "               print that of a verb\n"
           "  --version    print the version\n"
           "\n"
           "syntax\n"
           "  --name X     or --name=X; -n 5 or -n5; --top_p is --top-p; no "
           "options\n"
           "               follow --\n"
           "  aliases      names of transformers and llama.cpp work, too: "
           "--temperature,\n"
           "               --max-new-tokens, --lr, --max-steps, --output-dir\n"
           "\n"
           "examples\n"
           "  bauta inspect models/gpt2\n"
           "  bauta tokenize models/gpt2 'Hello world'\n");
    return cli_finish(NULL);
}

static int unknown(const char *word)
{
    const char *names[VERBS];
    for (int i = 0; i < VERBS; i++)
        names[i] = verbs[i].name;
    const char *near = bauta_closest_word(word, names, VERBS);
    return cli_usage(NULL, "there is no verb '%s'%s%s%s", word,
                     near ? "; did you mean '" : "", near ? near : "",
                     near ? "'?" : "");
}

static int verb_run(int argc, char **argv)
{
    for (int i = 0; i < VERBS; i++)
        if (strcmp(argv[0], verbs[i].name) == 0) {
            int status = verbs[i].run(argc, argv);
            return status == CLI_DONE ? cli_finish(argv[0]) : status;
        }
    return unknown(argv[0]);
}

/* "bauta help VERB" is "bauta VERB --help". */
static int verb_help(char *verb)
{
    char option[] = "--help";
    char *argv[] = { verb, option, NULL };
    return verb_run(2, argv);
}

static bool is_one_of(const char *word, const char *a, const char *b,
                      const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

int main(int argc, char **argv)
{
    json_exit_on_oom();
    // Even if the parent ignores it: a closed pipe (`| head`) ends the program
    // silently, as it does others. Training goes on.
    if (argc < 2 || strcmp(argv[1], "train") != 0)
        signal(SIGPIPE, SIG_DFL);
    if (argc < 2)
        return cli_usage(NULL, "a verb is missing");
    if (is_one_of(argv[1], "help", "--help", "-h"))
        return argc > 2 ? verb_help(argv[2]) : help();
    if (is_one_of(argv[1], "version", "--version", "-V")) {
        printf("bauta %s\n", bauta_version());
        return cli_finish(NULL);
    }
    return verb_run(argc - 1, argv + 1);
}
