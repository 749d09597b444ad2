/* SPDX-License-Identifier: Apache-2.0 */
/* bauta.c - main(): find the verb and call it. */
#include "cli.h"
#include "json_output.h"

#include <bauta.h>

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
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

const char *const cli_isas[] = { "c", "avx2", "avx512", NULL };

struct cli_speaker cli_speaker;

static void message_print(const char *verb, const char *format, va_list args)
{
    FILE *to = cli_speaker.errors ? cli_speaker.errors : stderr;
    va_list again;
    va_copy(again, args);
    int used = snprintf(cli_speaker.last, sizeof(cli_speaker.last), "%s",
                        cli_speaker.name);
    vsnprintf(cli_speaker.last + used, sizeof(cli_speaker.last) - (size_t)used,
              format, again);
    va_end(again);
    fprintf(to, verb ? "bauta %s: %s" : "bauta: %s%s", verb ? verb : "",
            cli_speaker.name);
    vfprintf(to, format, args);
    fputc('\n', to);
}

int cli_usage(const char *verb, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    message_print(verb, format, args);
    va_end(args);
    fprintf(cli_speaker.errors ? cli_speaker.errors : stderr,
            "Try 'bauta %s%s--help'.\n", verb ? verb : "", verb ? " " : "");
    return CLI_USAGE;
}

int cli_fail(const char *verb, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    message_print(verb, format, args);
    va_end(args);
    return CLI_FAILED;
}

void cli_warn(const char *verb, const char *lines)
{
    while (*lines) {
        int length = (int)strcspn(lines, "\n");
        fprintf(stderr, "bauta %s: warning: %.*s\n", verb, length, lines);
        lines += length + (lines[length] == '\n');
    }
}

int cli_finish(const char *verb)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CLI_OK;
    return cli_fail(verb, "cannot write the result: %s", strerror(errno));
}

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
