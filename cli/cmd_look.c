/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_look.c - bauta look: attention weights of a model, and masks. */
#include "look.h"

#include "cli.h"
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "look"

enum { NUMBER_MAX = 1 << 20, SIZE_DEFAULT = 16 };

static int help(void)
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
        "the model\n"
        "  -m, --model D  MODEL, as an option\n"
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

/* The model and the text, of the words that are no options. */
static int words_take(look_options *o, const string_list *rest)
{
    if (rest->count > 2)
        return cli_usage(VERB, "more than one text: '%s' and '%s'", rest->at[1],
                         rest->at[2]);
    o->model = rest->count > 0 ? rest->at[0] : NULL;
    o->text = rest->count > 1 ? rest->at[1] : NULL;
    return CLI_OK;
}

static int options_read(look_options *o, int argc, char **argv)
{
    static const char *const places[] = { "encoder", "decoder", "cross", NULL };
    const char *size = NULL;
    size_t layer = 0, head = 0;
    bool has_layer = false, has_head = false;
    string_list rest = { 0 };
    *o = (look_options){ .layer = LOOK_NONE,
                         .head = LOOK_NONE,
                         .at = LOOK_NONE,
                         .queries = SIZE_DEFAULT,
                         .keys = SIZE_DEFAULT };
    const option table[] = {
        { "--model", OPTION_MODEL, NULL, NULL, 0, 0, NULL },
        { "--at", OPTION_CHOICE, &o->at, NULL, 0, 0, places },
        { "--layer", OPTION_SIZE, &layer, &has_layer, 0, NUMBER_MAX, NULL },
        { "--head", OPTION_SIZE, &head, &has_head, 0, NUMBER_MAX, NULL },
        { "--all", OPTION_FLAG, &o->all, NULL, 0, 0, NULL },
        { "--source", OPTION_STRING, &o->source, NULL, 0, 0, NULL },
        { "--generate", OPTION_SIZE, &o->generate, NULL, 0, NUMBER_MAX, NULL },
        { "--mask", OPTION_STRING, &o->mask, NULL, 0, 0, NULL },
        { "--size", OPTION_STRING, &size, NULL, 0, 0, NULL },
        { "--out", OPTION_STRING, &o->out, NULL, 0, 0, NULL },
        { "--json", OPTION_FLAG, &o->json, NULL, 0, 0, NULL },
        { "--threads", OPTION_SIZE, &o->threads, NULL, 0, NUMBER_MAX, NULL },
        { "--help", OPTION_FLAG, &o->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &rest);
    if (!usage)
        usage = words_take(o, &rest);
    string_list_release(&rest);
    if (!usage && size)
        usage = size_read(o, size);
    if (has_layer)
        o->layer = (long)layer;
    if (has_head)
        o->head = (long)head;
    return usage ? usage : options_check(o);
}

/* ---- the verb ---------------------------------------------------------- */

static int look_mask(const look_options *o)
{
    bauta_error err;
    bauta_mask *mask;
    if (bauta_mask_parse(&mask, o->mask, o->queries, o->keys, &err))
        return cli_usage(VERB, "--mask '%s': %s", o->mask, err.message);
    int failed = look_output_mask(mask, o);
    bauta_mask_free(mask);
    return failed;
}

static int look_model(const look_options *o)
{
    look_input scene;
    look_weights views = { .count = 0 };
    int failed = look_input_open(&scene, o);
    if (!failed)
        failed = look_weights_compute(&views, &scene, o);
    if (!failed)
        failed = look_output(&scene, &views, o);
    look_weights_release(&views);
    look_input_close(&scene);
    return failed;
}

int look_main(int argc, char **argv)
{
    look_options o;
    int usage = options_read(&o, argc, argv);
    if (usage)
        return usage;
    if (o.help)
        return help();
    return o.model ? look_model(&o) : look_mask(&o);
}
