/* SPDX-License-Identifier: Apache-2.0 */
/* look_options.c - bauta look: the command line. */
#include "cli.h"
#include "look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "look"

enum { NUMBER_MAX = 1 << 20, SIZE_DEFAULT = 16 };

int look_help(void)
{
    printf(
        "usage: bauta look MODEL TEXT [options]\n"
        "       bauta look --mask EXPR [--size N] [--out FILE]\n"
        "\n"
        "Show what the model in the folder MODEL looks at while it reads TEXT: "
        "a row\n"
        "for each token that looks, a column for each that is looked at, the "
        "weights\n"
        "in percent; a dot is hidden by the mask. An encoder-decoder "
        "translates TEXT\n"
        "and shows what it looked at; with --source, TEXT is the translation "
        "that it\n"
        "reads instead. A TEXT of '-' is standard input.\n"
        "\n"
        "which attention\n"
        "  --at WHERE     encoder, decoder or cross (default: what the model "
        "has, cross\n"
        "                 if there is a choice)\n"
        "  --layer L      from 0 on (default: the last)\n"
        "  --head H       from 0 on (default: in the terminal the mean of all, "
        "else each)\n"
        "  --all          every layer and head\n"
        "\n"
        "what is read\n"
        "  --source TEXT  of an encoder-decoder: what is translated\n"
        "  --generate N   let the model go on for N tokens first, and show "
        "those, too;\n"
        "                 of an encoder-decoder at most N\n"
        "  --mask EXPR    hide more than the model does; without MODEL, draw "
        "the mask:\n"
        "                 all, none, causal, window(n), prefix(n), sinks(n),\n"
        "                 documents(n, ...), with ! & | and parentheses\n"
        "  --size N       of a mask alone; NxM: N queries over M keys (default "
        "16)\n"
        "\n"
        "where to\n"
        "  --out FILE     .png, .svg or .pdf: a sheet; .html: a page, with all "
        "layers\n"
        "                 and heads unless some were asked for\n"
        "  --json         tokens, masks and weights as a JSON object\n"
        "  --threads N    0: one per core (default)\n"
        "  --             what follows is no option\n"
        "  --help         this text\n"
        "\n"
        "The terminal shows colours unless NO_COLOR is set; a pipe gets plain "
        "text.\n"
        "The exit status is 0, 1 when something failed, 2 when the command "
        "line cannot\n"
        "be understood.\n"
        "\n"
        "examples\n"
        "  bauta look models/gpt2 'The cat sat on the mat'\n"
        "  bauta look models/gpt2 'The cat' --generate 8 --out cat.html\n"
        "  bauta look models/opus-mt-en-de 'I love you' --layer 5 --head 2\n"
        "  bauta look models/bert 'Who is there?' --all --out all.pdf\n"
        "  bauta look --mask 'causal & window(4) | sinks(1)' --size 12\n");
    return cli_finish(VERB);
}

/* ---- values ------------------------------------------------------------ */

static bool digits_read(const char **text, size_t *out)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    *out = strtoul(*text, &end, 10);
    *text = end;
    return *out <= NUMBER_MAX;
}

static int number_read(size_t *out, const char *option, const char *text)
{
    const char *at = text;
    if (digits_read(&at, out) && !*at)
        return CLI_OK;
    return cli_usage(VERB, "%s is '%s', not a number from 0 to %d", option,
                     text, NUMBER_MAX);
}

static int long_read(long *out, const char *option, const char *text)
{
    size_t number = 0;
    int usage = number_read(&number, option, text);
    *out = (long)number;
    return usage;
}

static int size_read(look_options *o, const char *text)
{
    const char *at = text;
    bool fine = digits_read(&at, &o->queries);
    o->keys = o->queries;
    o->sized = true;
    if (fine && (*at == 'x' || *at == 'X')) {
        at++;
        fine = digits_read(&at, &o->keys);
    }
    if (fine && !*at && o->queries && o->keys)
        return CLI_OK;
    return cli_usage(VERB,
                     "--size is '%s', not a number like 16 or two like 4x16, "
                     "from 1 to %d",
                     text, NUMBER_MAX);
}

static int at_read(int *out, const char *text)
{
    static const char *const names[] = { "encoder", "decoder", "cross" };
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return CLI_OK;
        }
    const char *near = cli_nearest(text, names, 3);
    return cli_usage(VERB, "--at is '%s', not encoder, decoder or cross%s%s%s",
                     text, near ? "; did you mean '" : "", near ? near : "",
                     near ? "'?" : "");
}

/* ---- options ----------------------------------------------------------- */

typedef struct option {
    const char *name;
    bool *flag;
    const char **text;
    size_t *number;
    long *index;
} option;

static int option_unknown(const char *word, const char *const *names, int count)
{
    const char *near = cli_nearest(word, names, count);
    return cli_usage(VERB, "there is no option '%s'%s%s%s", word,
                     near ? "; did you mean '" : "", near ? near : "",
                     near ? "'?" : "");
}

/* The value of an option; those without a place of their own are special. */
static int value_read(look_options *o, const option *known, const char *text)
{
    if (!text)
        return cli_usage(VERB, "%s needs a value", known->name);
    if (known->text) {
        *known->text = text;
        return CLI_OK;
    }
    if (known->number)
        return number_read(known->number, known->name, text);
    if (known->index)
        return long_read(known->index, known->name, text);
    return strcmp(known->name, "--at") == 0 ? at_read(&o->at, text)
                                            : size_read(o, text);
}

static int option_read(look_options *o, char **argv, int *used)
{
    const option known[] = {
        { .name = "--source", .text = &o->source },
        { .name = "--mask", .text = &o->mask },
        { .name = "--out", .text = &o->out },
        { .name = "--generate", .number = &o->generate },
        { .name = "--threads", .number = &o->threads },
        { .name = "--layer", .index = &o->layer },
        { .name = "--head", .index = &o->head },
        { .name = "--at" },
        { .name = "--size" },
        { .name = "--all", .flag = &o->all },
        { .name = "--json", .flag = &o->json },
        { .name = "--help", .flag = &o->help },
        { .name = "-h", .flag = &o->help },
    };
    enum { KNOWN = sizeof(known) / sizeof(known[0]) };
    const char *names[KNOWN];
    for (int i = 0; i < KNOWN; i++) {
        names[i] = known[i].name;
        if (strcmp(argv[0], names[i]) != 0)
            continue;
        if (known[i].flag) {
            *known[i].flag = true;
            return CLI_OK;
        }
        *used = 2;
        return value_read(o, &known[i], argv[1]);
    }
    return option_unknown(argv[0], names, KNOWN);
}

static int word_read(look_options *o, const char *word)
{
    if (!o->model)
        o->model = word;
    else if (!o->text)
        o->text = word;
    else
        return cli_usage(VERB, "more than one text: '%s' and '%s'", o->text,
                         word);
    return CLI_OK;
}

static int options_check(const look_options *o)
{
    if (o->help)
        return CLI_OK;
    if (o->json && o->out)
        return cli_usage(VERB, "--json and --out are two places to show it");
    if (o->all && (o->layer >= 0 || o->head >= 0))
        return cli_usage(VERB, "--all is every layer and head; --layer and "
                               "--head choose one");
    if (!o->model)
        return o->mask ? CLI_OK
                       : cli_usage(VERB, "the model's folder is missing (or "
                                         "--mask)");
    if (o->sized)
        return cli_usage(VERB, "--size is of a mask alone; a text has the size "
                               "that it has");
    return o->text || o->source ? CLI_OK
                                : cli_usage(VERB, "the text is missing");
}

int look_options_read(look_options *o, int argc, char **argv)
{
    bool words = false; // behind "--" nothing is an option
    *o = (look_options){ .layer = LOOK_NONE,
                         .head = LOOK_NONE,
                         .at = LOOK_NONE,
                         .queries = SIZE_DEFAULT,
                         .keys = SIZE_DEFAULT };
    for (int i = 1, used; i < argc; i += used) {
        int usage = CLI_OK;
        used = 1;
        if (words || argv[i][0] != '-' || !argv[i][1])
            usage = word_read(o, argv[i]);
        else if (strcmp(argv[i], "--") == 0)
            words = true;
        else
            usage = option_read(o, argv + i, &used);
        if (usage)
            return usage;
    }
    return options_check(o);
}
