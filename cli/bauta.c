/* SPDX-License-Identifier: Apache-2.0 */
/* bauta.c - the program: finds the verb and hands over. */
#include "cli.h"
#include "json.h"

#include <bauta.h>

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    cli_verb *run;
    const char *summary;
} verbs[] = {
    { "audit", audit_main, "the promises, tried on a model folder" },
    { "demo", demo_main, "the whole story in about two minutes" },
    { "embed", embed_main, "texts as vectors" },
    { "fill", fill_main, "what a masked model puts into gaps" },
    { "generate", generate_main, "text that goes on from a prompt" },
    { "inspect", inspect_main, "what is in a model folder, and its masks" },
    { "lab", lab_main, "masked attention, told by experiment" },
    { "look", look_main, "what a model looks at, and what a mask hides" },
    { "perplexity", perplexity_main, "how well a model predicts texts" },
    { "score", score_main, "BLEU and chrF of translations; perplexity" },
    { "tokenize", tokenize_main, "texts to ids, and back" },
    { "tokenizer", tokenizer_main, "train one: a vocabulary from texts" },
    { "train", train_main, "a model from texts, or from pairs of them" },
    { "translate", translate_main, "lines from one language to another" },
};

enum { VERBS = sizeof(verbs) / sizeof(verbs[0]) };

const char *const cli_isas[] = { "c", "avx2", "avx512", NULL };

static void say(const char *verb, const char *format, va_list args)
{
    fprintf(stderr, verb ? "bauta %s: " : "bauta: ", verb);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

int cli_usage(const char *verb, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(verb, format, args);
    va_end(args);
    fprintf(stderr, "Try 'bauta %s%s--help'.\n", verb ? verb : "",
            verb ? " " : "");
    return CLI_USAGE;
}

int cli_fail(const char *verb, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(verb, format, args);
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

/* ---- did you mean ------------------------------------------------------ */

enum { WORD_MAX = 32 };

static int least(int a, int b, int c)
{
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Letters to insert, remove or exchange: Levenshtein's distance. */
static int distance(const char *a, const char *b)
{
    int row[WORD_MAX + 1];
    int n = (int)strlen(b);
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int above = row[j];
            row[j] = least(above + 1, row[j - 1] + 1,
                           corner + (a[i - 1] != b[j - 1]));
            corner = above;
        }
    }
    return row[n];
}

const char *cli_nearest(const char *word, const char *const *words, int count)
{
    const char *best = NULL;
    size_t length = strlen(word);
    if (length > WORD_MAX)
        return NULL;
    // Two slips; in a longer word a third of its letters.
    int least_so_far = length < 6 ? 3 : (int)length / 3 + 1;
    for (int i = 0; i < count; i++) {
        int d = strlen(words[i]) > WORD_MAX ? least_so_far
                                            : distance(word, words[i]);
        if (d < least_so_far) {
            least_so_far = d;
            best = words[i];
        }
    }
    return best;
}

/* ---- the program ------------------------------------------------------- */

static int help(void)
{
    printf("usage: bauta VERB [options]\n"
           "\n"
           "Transformers whose heart is the mask.\n"
           "\n"
           "verbs\n");
    for (int i = 0; i < VERBS; i++)
        printf("  %-12s %s\n", verbs[i].name, verbs[i].summary);
    printf("\n"
           "options\n"
           "  --help       this text; 'bauta help VERB' and 'bauta VERB "
           "--help' print\n"
           "               that of a verb\n"
           "  --version    the version of the library\n"
           "\n"
           "spelling\n"
           "  --name X     or --name=X; -n 5 or -n5; --top_p is --top-p; after "
           "-- nothing is\n"
           "               an option\n"
           "  aliases      names that transformers has: --temperature, "
           "--max-new-tokens,\n"
           "               --num-beams, --lr, --warmup-steps, --output-dir\n"
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
    const char *near = cli_nearest(word, names, VERBS);
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
    cli_wait_shortly(argv);
    json_guard();
    // Also where the parent ignores it: output that nobody reads (`| head`)
    // ends the program without a word, as it ends others. A training goes on.
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
