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

static const char help_text[] =
    "usage: bauta look MODEL TEXT [options]\n"
    "       bauta look --mask EXPR [--size N] [--out FILE]\n"
    "\n"
    "Show the attention weights of the model in the folder MODEL for TEXT: "
    "one\n"
    "row per query, one column per key, in percent; a dot is hidden by the\n"
    "mask. An encoder-decoder translates TEXT and shows its attention; with\n"
    "--source, TEXT is the translation that it reads instead. If TEXT is '-',\n"
    "standard input is read.\n"
    "\n"
    "model\n"
    "  -m, --model D  MODEL, as an option\n"
    "\n"
    "attention\n"
    "  --at WHERE     encoder, decoder or cross (default: what the model has;\n"
    "                 cross for an encoder-decoder)\n"
    "  --layer L      from 0 (default: the last)\n"
    "  --head H       from 0 (default: the mean of all in the terminal, else\n"
    "                 every head)\n"
    "  --all          every layer and head\n"
    "\n"
    "input\n"
    "  --source TEXT  encoder-decoder: the source\n"
    "  --generate N   generate N tokens first and show these, too; at most N\n"
    "                 for an encoder-decoder\n"
    "  --mask EXPR    combine with the model's mask; without MODEL, draw "
    "EXPR:\n"
    "                 all, none, causal, window(n), prefix(n), sinks(n),\n"
    "                 documents(n, ...), with ! & | and parentheses\n"
    "  --size N       size of a mask without MODEL; NxM is N queries over M\n"
    "                 keys (default 16)\n"
    "\n"
    "output\n"
    "  --out FILE     .png or .svg: one sheet; .pdf: a page for each layer; "
    ".html:\n"
    "                 a page that opens on what the terminal shows, with all "
    "layers\n"
    "                 and heads, unless some are selected\n"
    "  --json         print tokens, masks and weights as a JSON object\n"
    "\n"
    "execution\n"
    "  --device D     cpu (default), cuda or cuda:N: the GPU with this number\n"
    "  --dtype T      compute in float32 (default), or on a GPU in bfloat16\n"
    "  --threads N    0: one per core (default)\n"
    "  --             no options follow\n"
    "  --help         print this text\n"
    "\n"
    "Colours are used on a terminal unless NO_COLOR is set. The exit status "
    "is\n"
    "0 for success, 1 for a failure, 2 for an invalid command line.\n"
    "\n"
    "examples\n"
    "  bauta look models/gpt2 'The cat sat on the mat'\n"
    "  bauta look models/gpt2 'The cat' --generate 8 --out cat.html\n"
    "  bauta look models/opus-mt-en-de 'I love you' --layer 5 --head 2\n"
    "  bauta look models/bert 'Who is there?' --all --out all.pdf\n"
    "  bauta look models/gpt2 'The cat' --device cpu # or cuda\n"
    "  bauta look --mask 'causal & window(4) | sinks(1)' --size 12\n";

static int help(void)
{
    fputs(help_text, stdout);
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
        return cli_usage(VERB, "--json and --out exclude each other");
    if (o->all && (o->layer >= 0 || o->head >= 0))
        return cli_usage(VERB,
                         "--all and --layer or --head exclude each other");
    if (!o->model)
        return o->mask ? CLI_OK
                       : cli_usage(VERB, "the model's folder is missing (or "
                                         "--mask)");
    if (o->sized)
        return cli_usage(VERB, "--size is for a mask without MODEL");
    return o->text || o->source ? CLI_OK
                                : cli_usage(VERB, "the text is missing");
}

/* The positional arguments are the model and the text. */
static int positionals_take(look_options *o, const string_list *rest)
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
        DEVICE_OPTIONS(&o->device),
        { "--help", OPTION_FLAG, &o->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &rest);
    if (!usage)
        usage = positionals_take(o, &rest);
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
