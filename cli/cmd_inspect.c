/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_inspect.c - bauta inspect: the config, tensors and masks of a model
 * folder. */
#include "cli.h"
#include "format.h"
#include "json_output.h"
#include "options.h"

#include <bauta.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_DEFAULT = 8, TOKENS_MAX = 512 };

typedef struct options {
    string_list rest;
    const char *folder;
    bool json, help;
    size_t tokens; /* of the masks */
} options;

/* ---- the command line -------------------------------------------------- */

static const char help_text[] =
    "usage: bauta inspect DIR [--json] [--masks N]\n"
    "\n"
    "Read the Hugging Face folder DIR and print the model's config, its "
    "tensors\n"
    "and the mask of every layer: one line per query, one column per key, '#'\n"
    "if the query sees the key.\n"
    "\n"
    "options\n"
    "  -m, --model DIR  DIR, as an option\n"
    "  --json           print one JSON object instead of tables\n"
    "  --masks N        draw the masks for N tokens, 1 to 512; 0 draws none\n"
    "                   (default 8)\n"
    "  --help           print this text\n"
    "\n"
    "examples\n"
    "  bauta inspect models/gpt2\n"
    "  bauta inspect models/mistral --masks 12\n"
    "  bauta inspect models/bert --json | jq .config.parameters\n";

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish("inspect");
}

static int options_read(options *o, int argc, char **argv)
{
    const option table[] = {
        { "--model", OPTION_MODEL, NULL, NULL, 0, 0, NULL },
        { "--json", OPTION_FLAG, &o->json, NULL, 0, 0, NULL },
        { "--masks", OPTION_SIZE, &o->tokens, NULL, 0, TOKENS_MAX, NULL },
        { "--help", OPTION_FLAG, &o->help, NULL, 0, 0, NULL },
    };
    int usage =
        options_parse("inspect", table, sizeof(table) / sizeof(table[0]), argc,
                      argv, &o->rest);
    if (usage || o->help)
        return usage;
    if (o->rest.count == 0)
        return cli_usage("inspect", "the folder is missing");
    if (o->rest.count > 1)
        return cli_usage("inspect", "more than one folder: '%s' and '%s'",
                         o->rest.at[0], o->rest.at[1]);
    o->folder = o->rest.at[0];
    return CLI_OK;
}

/* ---- masks ------------------------------------------------------------- */

/* Consecutive layers with the same mask. */
typedef struct layer_range {
    const char *stack, *attention;
    size_t first, last; /* layers */
    bool causal;
    size_t window;
} layer_range;

static bauta_status range_mask(bauta_mask **out, const layer_range *v,
                               size_t tokens, bauta_error *err)
{
    if (!v->causal)
        return bauta_mask_all(out, tokens, tokens, err);
    if (v->window)
        return bauta_mask_window(out, tokens, tokens, v->window, err);
    return bauta_mask_causal(out, tokens, tokens, err);
}

typedef bauta_status range_fn(void *user, const layer_range *v,
                              bauta_error *err);

static bauta_status decoder_ranges(const bauta_model *model, range_fn *each,
                                   void *user, bauta_error *err)
{
    size_t layers = bauta_model_decoder_layers(model);
    bauta_status status = BAUTA_OK;
    for (size_t first = 0, next; first < layers && !status; first = next) {
        size_t window = bauta_model_sliding_window(model, first);
        for (next = first + 1; next < layers; next++)
            if (bauta_model_sliding_window(model, next) != window)
                break;
        status = each(
            user,
            &(layer_range){ "decoder", "self", first, next - 1, true, window },
            err);
    }
    return status;
}

/* Every distinct mask of the model, once. */
static bauta_status layer_ranges(const bauta_model *model, range_fn *each,
                                 void *user, bauta_error *err)
{
    size_t encoder = bauta_model_encoder_layers(model);
    size_t decoder = bauta_model_decoder_layers(model);
    bauta_status status = BAUTA_OK;
    if (encoder)
        status = each(
            user, &(layer_range){ "encoder", "self", 0, encoder - 1, false, 0 },
            err);
    if (!status && decoder)
        status = decoder_ranges(model, each, user, err);
    if (!status && encoder && decoder)
        status =
            each(user,
                 &(layer_range){ "decoder", "cross", 0, decoder - 1, false, 0 },
                 err);
    return status;
}

/* ---- text -------------------------------------------------------------- */

static void value_print(const json_t *value)
{
    char text[32];
    if (json_is_string(value))
        printf("%s\n", json_string_value(value));
    else if (json_is_integer(value))
        printf("%s\n",
               format_grouped(text, (uint64_t)json_integer_value(value)));
    else if (json_is_real(value))
        printf("%g\n", json_real_value(value));
    else
        printf("%s\n", json_is_true(value) ? "yes" : "no");
}

/* One line per value; nested objects are indented. */
static void object_print(json_t *object, int indent)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        char label[64];
        snprintf(label, sizeof(label), "%s", key);
        for (char *c = label; *c; c++)
            if (*c == '_')
                *c = ' ';
        if (json_is_object(value)) {
            printf("%*s%s\n", indent, "", label);
            object_print(value, indent + 2);
        } else {
            printf("%*s%-*s", indent, "", 26 - indent, label);
            value_print(value);
        }
    }
}

static void shape_text(char text[48], const bauta_tensor *t)
{
    if (t->rank == 1)
        snprintf(text, 48, "%zu", t->shape[0]);
    else
        snprintf(text, 48, "%zu x %zu", t->shape[0], t->shape[1]);
}

static bauta_status tensors_print(const bauta_model *model, bauta_error *err)
{
    char shape[48], count[32];
    size_t tensors = bauta_model_tensor_count(model);
    int width = 5;
    bauta_tensor t = BAUTA_TENSOR_INIT;
    for (size_t i = 0; i < tensors; i++) {
        bauta_status status = bauta_model_tensor(model, i, &t, err);
        if (status)
            return status;
        width = (int)strlen(t.name) > width ? (int)strlen(t.name) : width;
    }
    printf("\ntensors\n");
    for (size_t i = 0; i < tensors; i++) {
        bauta_status status = bauta_model_tensor(model, i, &t, err);
        if (status)
            return status;
        shape_text(shape, &t);
        printf("  %-*s  %16s  %15s\n", width, t.name, shape,
               format_grouped(count, t.count));
    }
    snprintf(shape, sizeof(shape), "%zu tensors", tensors);
    printf("  %-*s  %16s  %15s\n", width, "total", shape,
           format_grouped(count, bauta_model_parameter_count(model)));
    return BAUTA_OK;
}

static void range_title(const layer_range *v)
{
    printf("\nmask of %s-attention, %s layer", v->attention, v->stack);
    if (v->last > v->first)
        printf("s %zu to %zu", v->first, v->last);
    else
        printf(" %zu", v->first);
    if (v->window)
        printf(": causal, window of %zu\n", v->window);
    else
        printf(": %s\n", v->causal ? "causal" : "all");
}

static bauta_status range_print(void *user, const layer_range *v,
                                bauta_error *err)
{
    size_t tokens = *(const size_t *)user;
    bauta_mask *mask = NULL;
    bauta_status status = range_mask(&mask, v, tokens, err);
    if (status)
        return status;
    size_t length = bauta_mask_text(mask, NULL, 0);
    char *text = malloc(length + 1);
    if (text) {
        bauta_mask_text(mask, text, length + 1);
        range_title(v);
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
            printf("  %s\n", line);
    }
    free(text);
    bauta_mask_free(mask);
    return text ? BAUTA_OK : BAUTA_ERR_NOMEM;
}

static bauta_status text_print(const bauta_model *model, json_t *config,
                               const options *o, bauta_error *err)
{
    size_t tokens = o->tokens;
    printf("%s\n", o->folder);
    object_print(config, 2);
    bauta_status status = tensors_print(model, err);
    if (!status && tokens)
        status = layer_ranges(model, range_print, &tokens, err);
    return status;
}

/* ---- JSON -------------------------------------------------------------- */

static json_t *tensors_json(const bauta_model *model)
{
    json_t *list = json_array();
    bauta_tensor t = BAUTA_TENSOR_INIT;
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        if (bauta_model_tensor(model, i, &t, NULL))
            break;
        json_t *shape = json_pack("[I]", (json_int_t)t.shape[0]);
        if (t.rank == 2)
            json_array_append_new(shape, json_integer((json_int_t)t.shape[1]));
        json_array_append_new(list, json_pack("{s:s, s:o, s:I}", "name", t.name,
                                              "shape", shape, "count",
                                              (json_int_t)t.count));
    }
    return list;
}

typedef struct mask_list {
    json_t *list;
    size_t tokens;
} mask_list;

static bauta_status range_json(void *user, const layer_range *v,
                               bauta_error *err)
{
    mask_list *m = user;
    bauta_mask *mask = NULL;
    bauta_status status = range_mask(&mask, v, m->tokens, err);
    if (status)
        return status;
    json_t *parsed = json_mask(mask);
    bauta_mask_free(mask);
    json_t *entry = json_pack(
        "{s:s, s:s, s:[I,I], s:b, s:I, s:o}", "stack", v->stack, "attention",
        v->attention, "layers", (json_int_t)v->first, (json_int_t)v->last,
        "causal", v->causal, "window", (json_int_t)v->window, "mask", parsed);
    return json_array_append_new(m->list, entry) ? BAUTA_ERR_NOMEM : BAUTA_OK;
}

static bauta_status json_print(const bauta_model *model, json_t *config,
                               const options *o, bauta_error *err)
{
    mask_list m = { json_array(), o->tokens };
    bauta_status status =
        o->tokens ? layer_ranges(model, range_json, &m, err) : BAUTA_OK;
    // A folder name need not be UTF-8.
    json_t *folder = json_string(o->folder);
    json_t *all = json_pack("{s:o, s:O, s:o, s:o}", "folder",
                            folder ? folder : json_null(), "config", config,
                            "tensors", tensors_json(model), "masks", m.list);
    if (!all)
        return BAUTA_ERR_NOMEM;
    if (!status) {
        json_dumpf(all, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(all);
    return status;
}

/* ---- the verb ---------------------------------------------------------- */

static int inspect(const options *o)
{
    bauta_error err = { .message = "out of memory" };
    bauta_model *model = NULL;
    if (bauta_model_load(&model, o->folder, false, &err))
        return cli_fail("inspect", "%s", err.message);
    cli_warn("inspect", bauta_model_warnings(model));
    json_t *config = json_model(model);
    bauta_status status = !config   ? BAUTA_ERR_NOMEM
                          : o->json ? json_print(model, config, o, &err)
                                    : text_print(model, config, o, &err);
    json_decref(config);
    bauta_model_free(model);
    return status ? cli_fail("inspect", "%s", err.message)
                  : cli_finish("inspect");
}

int inspect_main(int argc, char **argv)
{
    options o = { .tokens = TOKENS_DEFAULT };
    int failed = options_read(&o, argc, argv);
    if (!failed)
        failed = o.help ? help() : inspect(&o);
    string_list_release(&o.rest);
    return failed;
}
