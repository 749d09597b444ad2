/* SPDX-License-Identifier: Apache-2.0 */
/* train_config.c - bauta train --config FILE, and the options.json of a run.
 *
 * The file is a JSON object whose keys are the options without "--", and
 * "files", the texts to train on. Each run writes one with the final value of
 * every option and absolute paths, so that
 *
 *     bauta train --config old/options.json --out new --steps 500
 *
 * repeats a run with one thing changed. */
#include "cli.h"
#include "train.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Options that exclude each other: one on the command line also replaces those
 * of the file in the same group with another way. "files" are the positional
 * arguments. */
static const struct {
    const char *name;
    int group, way;
} exclusive[] = {
    { "--preset", 0, 0 },       { "--set", 0, 0 },
    { "--from", 0, 1 },         { "files", 1, 0 },
    { "--source", 1, 1 },       { "--target", 1, 1 },
    { "--pairs", 1, 2 },        { "--series", 1, 3 },
    { "--valid", 2, 0 },        { "--valid-source", 2, 1 },
    { "--valid-target", 2, 1 }, { "--valid-pairs", 2, 2 },
    { "--valid-share", 2, 3 },  { "--batch-size", 3, 0 },
    { "--batch-tokens", 3, 1 }, { "--steps", 4, 0 },
    { "--epochs", 4, 1 },       { "--minutes", 4, 2 },
};
enum { EXCLUSIVE = sizeof(exclusive) / sizeof(exclusive[0]) };

/* Options of one call, which a file cannot hold. */
static bool is_of_the_call(const char *name)
{
    static const char *const names[] = { "--config", "--resume", "--from-step",
                                         "--help" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* ---- reading ----------------------------------------------------------- */

typedef struct reader {
    train_args *args;
    const char *path;
    size_t typed; /* how many of them are from the command line */
} reader;

static bool on_command_line(const reader *r, const char *name)
{
    if (strcmp(name, "files") == 0)
        return r->args->files.count > 0;
    for (size_t i = 0; i < r->typed; i++)
        if (strcmp(r->args->at[i].option->name, name) == 0)
            return true;
    return false;
}

/* Whether the command line chooses the CPU, which has one type. */
static bool cpu_on_command_line(const reader *r)
{
    bool cpu = false;
    for (size_t i = 0; i < r->typed; i++)
        if (strcmp(r->args->at[i].option->name, "--device") == 0)
            cpu = strcmp(r->args->at[i].value, "cpu") == 0;
    return cpu;
}

/* Whether the command line replaces an option of the file. */
static bool replaced(const reader *r, const char *name)
{
    size_t me = 0;
    while (me < EXCLUSIVE && strcmp(exclusive[me].name, name) != 0)
        me++;
    for (size_t i = 0; me < EXCLUSIVE && i < EXCLUSIVE; i++)
        if (exclusive[i].group == exclusive[me].group &&
            exclusive[i].way != exclusive[me].way &&
            on_command_line(r, exclusive[i].name))
            return true;
    // --set of another preset need not fit this one.
    if (strcmp(name, "--set") == 0 && on_command_line(r, "--preset"))
        return true;
    // --from has its own tokenizer.
    if (strcmp(name, "--tokenizer") == 0 && on_command_line(r, "--from"))
        return true;
    if (strcmp(name, "--dtype") == 0 && cpu_on_command_line(r))
        return true;
    return on_command_line(r, name);
}

static int key_unknown(const reader *r, const char *key)
{
    const char **names = calloc(train_option_count + 1, sizeof(*names));
    const char *near = NULL;
    for (size_t i = 0; names && i < train_option_count; i++)
        names[i] = train_options[i].name + 2;
    if (names) {
        names[train_option_count] = "files";
        near = bauta_closest_word(key, names, train_option_count + 1);
    }
    free(names);
    return cli_fail(VERB, "%s: there is no option \"%s\"%s%s%s", r->path, key,
                    near ? "; did you mean \"" : "", near ? near : "",
                    near ? "\"?" : "");
}

static int number_add(const reader *r, const train_option *t,
                      const json_t *value)
{
    train_args *args = r->args;
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    char **more =
        realloc(args->numbers, (args->number_count + 1) * sizeof(*more));
    if (more)
        args->numbers = more;
    if (!text || !more) {
        free(text);
        return cli_fail(VERB, "out of memory");
    }
    args->numbers[args->number_count++] = text;
    return train_args_add(args, t, text);
}

static int wrong(const reader *r, const char *key, const char *what)
{
    return cli_fail(VERB, "%s: \"%s\" is not %s", r->path, key, what);
}

/* The strings of a list, for an option, or with NULL for the files. */
static int list_add(const reader *r, const train_option *t, const char *key,
                    const json_t *list)
{
    int failed = CLI_OK;
    if (!json_is_array(list))
        return wrong(r, key, "a list of texts");
    for (size_t i = 0; !failed && i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        failed = !text ? wrong(r, key, "a list of texts")
                 : t   ? train_args_add(r->args, t, text)
                       : string_list_add(VERB, &r->args->files, text);
    }
    return failed;
}

static int option_add(const reader *r, const train_option *t, const char *key,
                      const json_t *value)
{
    switch (t->kind) {
    case OPTION_FLAG:
        if (!json_is_boolean(value))
            return wrong(r, key, "true or false");
        return train_args_add(r->args, t, json_is_true(value) ? NULL : "false");
    case OPTION_STRING:
    case OPTION_CHOICE:
        if (!json_is_string(value))
            return wrong(r, key, "a text");
        return train_args_add(r->args, t, json_string_value(value));
    case OPTION_STRINGS:
        return list_add(r, t, key, value);
    default:
        if (!json_is_number(value))
            return wrong(r, key, "a number");
        return number_add(r, t, value);
    }
}

static int keys_read(const reader *r)
{
    const char *key;
    json_t *value;
    int failed = CLI_OK;
    bool typed_files = r->args->files.count > 0;
    json_object_foreach(r->args->config, key, value)
    {
        bool files = strcmp(key, "files") == 0;
        const train_option *t = files ? NULL : train_option_find(key);
        if (failed)
            break;
        if (!files && (!t || is_of_the_call(t->name)))
            failed = key_unknown(r, key);
        else if (json_is_null(value) ||
                 replaced(r, files ? "files" : t->name) ||
                 (files && typed_files))
            continue;
        else
            failed = files ? list_add(r, NULL, key, value)
                           : option_add(r, t, key, value);
    }
    return failed;
}

int config_read(train_args *args, const char *path)
{
    json_error_t why;
    reader r = { args, path, args->count };
    FILE *file;
    if (args->config)
        return cli_usage(VERB, "--config is given twice");
    file = fopen(path, "rb");
    if (!file)
        return cli_fail(VERB, "%s: cannot open it: %s", path, strerror(errno));
    args->config = json_loadf(file, JSON_REJECT_DUPLICATES, &why);
    fclose(file);
    if (!args->config)
        return cli_fail(VERB, "%s: line %d: %s", path, why.line, why.text);
    if (!json_is_object(args->config))
        return cli_fail(VERB, "%s: is not a JSON object", path);
    return keys_read(&r);
}

/* ---- writing ----------------------------------------------------------- */

/* A number with as few digits as read back the same. */
static void real_write(FILE *to, const char *key, double value)
{
    const train_option *t = train_option_find(key);
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (t && t->kind == OPTION_FLOAT ? (float)back == (float)value
                                         : back == value)
            break;
    }
    fputs(text, to);
}

/* The settings as JSON, one option per line; NULL if out of memory. */
static char *settings_text(const settings *s)
{
    char *text = NULL;
    size_t size = 0;
    const char *key, *between = "{\n";
    json_t *all = settings_json(s), *value;
    FILE *to = all ? open_memstream(&text, &size) : NULL;
    json_object_foreach(all, key, value)
    {
        if (!to)
            break;
        fprintf(to, "%s  \"%s\": ", between, key);
        if (json_is_real(value))
            real_write(to, key, json_real_value(value));
        else
            json_dumpf(value, to, JSON_ENCODE_ANY);
        between = ",\n";
    }
    json_decref(all);
    bool good = to && fputs("\n}\n", to) >= 0;
    if (to && fclose(to))
        good = false;
    if (!good)
        free(text);
    return good ? text : NULL;
}

int options_write(const settings *s, const run_folder *f)
{
    bauta_error err;
    char *text = settings_text(s);
    if (!text)
        return cli_fail(VERB, "out of memory");
    int failed =
        bauta_run_write(f->run, "options.json", text, strlen(text), &err)
            ? train_failed(&err)
            : CLI_OK;
    free(text);
    return failed;
}
