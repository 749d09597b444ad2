/* SPDX-License-Identifier: Apache-2.0 */
/* train_notes.c - bauta train: settings to JSON and back. They are saved as
 * notes in every checkpoint, so that --resume needs no other option. */
#include "cli.h"
#include "train.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The key of an option in JSON: its name without "--". */
static const char *option_key(const train_option *t)
{
    return t->name + 2;
}

/* ---- to JSON ----------------------------------------------------------- */

/* The absolute path. Names that are not UTF-8 become null, and are missing when
 * the run is resumed. */
static json_t *path_json(const char *path)
{
    char *whole = strcmp(path, "-") == 0 ? NULL : realpath(path, NULL);
    json_t *json = json_string(whole ? whole : path);
    free(whole);
    return json ? json : json_null();
}

static json_t *strings_json(const string_list *w, bool paths)
{
    json_t *list = json_array();
    for (size_t i = 0; i < w->count; i++)
        json_array_append_new(list, paths ? path_json(w->at[i])
                                          : json_string(w->at[i]));
    return list;
}

static json_t *option_json(const train_option *t, settings *s)
{
    const void *at = train_option_bind(t, s).value;
    bool path = t->attributes & TRAIN_PATH;
    const char *text = NULL;
    switch (t->kind) {
    case OPTION_FLAG:
        return json_boolean(*(const bool *)at);
    case OPTION_STRING:
        text = *(const char *const *)at;
        return !text ? json_null() : path ? path_json(text) : json_string(text);
    case OPTION_STRINGS:
        return strings_json(at, path);
    case OPTION_SIZE:
        return json_integer((json_int_t) * (const size_t *)at);
    case OPTION_SEED:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case OPTION_DOUBLE:
        return json_real(*(const double *)at);
    case OPTION_FLOAT:
        return json_real((double)*(const float *)at);
    default:
        return json_string(t->choices[*(const int *)at]);
    }
}

json_t *settings_json(const settings *s)
{
    settings copy = *s;
    json_t *all = json_object();
    for (size_t i = 0; i < train_option_count; i++)
        if (!(train_options[i].attributes & TRAIN_TRANSIENT))
            json_object_set_new(all, option_key(&train_options[i]),
                                option_json(&train_options[i], &copy));
    if (!s->device.name)
        json_object_set_new(all, "device", json_string("cpu"));
    if (s->tokenizer && !tokenizer_is_trained(s->tokenizer))
        json_object_set_new(all, "tokenizer", path_json(s->tokenizer));
    json_object_set_new(all, "files", strings_json(&s->files, true));
    return all;
}

char *notes_write(const settings *s)
{
    json_t *all = json_pack("{s:s, s:o}", "program", bauta_version(),
                            "settings", settings_json(s));
    char *text = all ? json_dumps(all, JSON_INDENT(1)) : NULL;
    json_decref(all);
    return text;
}

/* ---- from JSON --------------------------------------------------------- */

static bool strings_from(string_list *w, const json_t *list)
{
    size_t count = json_array_size(list);
    const char **at = calloc(count + 1, sizeof(*at));
    if (!at || !json_is_array(list)) {
        free(at);
        return false;
    }
    free(w->at);
    *w = (string_list){ at, count };
    for (size_t i = 0; i < count; i++) {
        at[i] = json_string_value(json_array_get(list, i));
        if (!at[i])
            return false;
    }
    return true;
}

static bool choice_from(int *out, const train_option *t, const json_t *value)
{
    const char *word = json_string_value(value);
    for (int i = 0; word && t->choices[i]; i++)
        if (strcmp(word, t->choices[i]) == 0) {
            *out = i;
            return true;
        }
    return false;
}

static bool option_from(const train_option *t, settings *s, const json_t *value)
{
    void *at = train_option_bind(t, s).value;
    json_int_t whole = json_integer_value(value);
    switch (t->kind) {
    case OPTION_FLAG:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value);
    case OPTION_STRING:
        *(const char **)at = json_string_value(value);
        return json_is_string(value) || json_is_null(value);
    case OPTION_STRINGS:
        return strings_from(at, value);
    case OPTION_SIZE:
        *(size_t *)at = (size_t)whole;
        return json_is_integer(value) && whole >= 0;
    case OPTION_SEED:
        *(uint64_t *)at = (uint64_t)whole;
        return json_is_integer(value) && whole >= 0;
    case OPTION_DOUBLE:
        *(double *)at = json_number_value(value);
        return json_is_number(value);
    case OPTION_FLOAT:
        *(float *)at = (float)json_number_value(value);
        return json_is_number(value);
    default:
        return choice_from(at, t, value);
    }
}

/* The value of an option in saved settings, which may be older and have it
 * under a former name. */
static const json_t *saved_get(const json_t *saved, const train_option *t)
{
    const json_t *value = json_object_get(saved, option_key(t));
    const char *alias;
    for (size_t i = 0; !value && (alias = option_alias(t->name, i)); i++)
        value = json_object_get(saved, alias + strspn(alias, "-"));
    return value;
}

int settings_from_json(settings *s, const json_t *from, const char *where)
{
    static const char bad[] = "%s: trainer.json: the notes have no valid '%s'";
    for (size_t i = 0; i < train_option_count; i++) {
        const train_option *t = &train_options[i];
        const json_t *value = saved_get(from, t);
        if (t->attributes & TRAIN_TRANSIENT ||
            (t->attributes & TRAIN_NEWER && !value))
            continue;
        if (!(value && option_from(t, s, value)))
            return cli_fail(VERB, bad, where, option_key(t));
    }
    if (!strings_from(&s->files, json_object_get(from, "files")))
        return cli_fail(VERB, bad, where, "files");
    return CLI_OK;
}

int notes_read(settings *s, json_t **owner, const char *checkpoint,
               bool *damaged)
{
    bauta_error err;
    json_error_t why = { 0 };
    char *text = NULL;
    bauta_status status = bauta_checkpoint_notes(&text, checkpoint, &err);
    *damaged = status == BAUTA_ERR_IO || status == BAUTA_ERR_FORMAT;
    if (status)
        return train_failed(&err);
    json_t *notes = text ? json_loads(text, 0, &why) : NULL;
    bool memory =
        text && !notes && json_error_code(&why) == json_error_out_of_memory;
    bauta_text_free(text);
    *owner = notes;
    if (memory)
        return cli_fail(VERB, "out of memory");
    const json_t *from = json_object_get(notes, "settings");
    if (!json_is_object(from))
        return cli_fail(VERB,
                        "%s: not written by 'bauta train', so it cannot be "
                        "resumed",
                        checkpoint);
    return settings_from_json(s, from, checkpoint);
}

/* All training options but the number of steps are fixed when a run begins. */
static bool is_fixed(const train_option *t)
{
    return t->offset >= offsetof(settings, train) &&
           t->offset <
               offsetof(settings, train) + sizeof(bauta_train_options) &&
           t->offset != offsetof(settings, train.max_steps);
}

int notes_compare(const json_t *saved, const train_args *args, settings *s)
{
    int failed = CLI_OK;
    for (size_t i = 0; i < args->count && !failed; i++) {
        const train_option *t = args->at[i].option;
        json_t *now = is_fixed(t) ? option_json(t, s) : NULL;
        const json_t *then = saved_get(saved, t);
        char *was = json_dumps(then, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        if (now && then && !json_equal(now, then))
            failed = cli_fail(VERB,
                              "%s of a run cannot change: it was %s; "
                              "'--config %s/options.json --out NEW' starts a "
                              "new run",
                              t->name, was ? was : "another", s->resume);
        json_decref(now);
        free(was);
    }
    return failed;
}
