/* SPDX-License-Identifier: Apache-2.0 */
/* train_notes.c - bauta train: settings to JSON and back. A checkpoint keeps
 * them, so that a run goes on without being told anything again. */
#include "cli.h"
#include "train.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- to JSON ----------------------------------------------------------- */

/* A path as it is from anywhere. Names that are not UTF-8 become null, and
 * are missed when the run is resumed. */
static json_t *path_json(const char *path)
{
    char *whole = strcmp(path, "-") == 0 ? NULL : realpath(path, NULL);
    json_t *json = json_string(whole ? whole : path);
    free(whole);
    return json ? json : json_null();
}

static json_t *words_json(const words *w, bool paths)
{
    json_t *list = json_array();
    for (size_t i = 0; i < w->count; i++)
        json_array_append_new(list, paths ? path_json(w->at[i])
                                          : json_string(w->at[i]));
    return list;
}

static json_t *field_json(const field *f, settings *s)
{
    const void *at = field_at(f, s);
    const char *text = NULL;
    switch (f->kind) {
    case FIELD_FLAG:
        return json_boolean(*(const bool *)at);
    case FIELD_TEXT:
    case FIELD_PATH:
        text = *(const char *const *)at;
        return !text                   ? json_null()
               : f->kind == FIELD_PATH ? path_json(text)
                                       : json_string(text);
    case FIELD_WORDS:
    case FIELD_PATHS:
        return words_json(at, f->kind == FIELD_PATHS);
    case FIELD_SIZE:
        return json_integer((json_int_t) * (const size_t *)at);
    case FIELD_SEED:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case FIELD_REAL:
        return json_real(*(const double *)at);
    case FIELD_FLOAT:
        return json_real((double)*(const float *)at);
    default:
        return json_string(f->choices[*(const int *)at]);
    }
}

json_t *settings_json(const settings *s)
{
    settings copy = *s;
    json_t *all = json_object();
    for (size_t i = 0; i < train_field_count; i++)
        if (!train_fields[i].passing)
            json_object_set_new(all, train_fields[i].name,
                                field_json(&train_fields[i], &copy));
    if (s->tokenizer && !tokenizer_is_made(s->tokenizer))
        json_object_set_new(all, "tokenizer", path_json(s->tokenizer));
    json_object_set_new(all, "files", words_json(&s->files, true));
    return all;
}

char *notes_write(const settings *s, const progress *p)
{
    json_t *best = p->best_step ? json_real(p->best) : json_null();
    json_t *all =
        json_pack("{s:s, s:o, s:o, s:I, s:I}", "program", bauta_version(),
                  "settings", settings_json(s), "best", best, "best_step",
                  (json_int_t)p->best_step, "stale", (json_int_t)p->stale);
    char *text = all ? json_dumps(all, JSON_INDENT(1)) : NULL;
    json_decref(all);
    return text;
}

/* ---- and back ---------------------------------------------------------- */

static bool words_from(words *w, const json_t *list)
{
    size_t count = json_array_size(list);
    const char **at = calloc(count + 1, sizeof(*at));
    if (!at || !json_is_array(list)) {
        free(at);
        return false;
    }
    free(w->at);
    *w = (words){ at, count };
    for (size_t i = 0; i < count; i++) {
        at[i] = json_string_value(json_array_get(list, i));
        if (!at[i])
            return false;
    }
    return true;
}

static bool choice_from(int *out, const field *f, const json_t *value)
{
    const char *word = json_string_value(value);
    for (int i = 0; word && f->choices[i]; i++)
        if (strcmp(word, f->choices[i]) == 0) {
            *out = i;
            return true;
        }
    return false;
}

static bool field_from(const field *f, settings *s, const json_t *value)
{
    void *at = field_at(f, s);
    json_int_t whole = json_integer_value(value);
    switch (f->kind) {
    case FIELD_FLAG:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value);
    case FIELD_TEXT:
    case FIELD_PATH:
        *(const char **)at = json_string_value(value);
        return json_is_string(value) || json_is_null(value);
    case FIELD_WORDS:
    case FIELD_PATHS:
        return words_from(at, value);
    case FIELD_SIZE:
        *(size_t *)at = (size_t)whole;
        return json_is_integer(value) && whole >= 0;
    case FIELD_SEED:
        *(uint64_t *)at = (uint64_t)whole;
        return json_is_integer(value) && whole >= 0;
    case FIELD_REAL:
        *(double *)at = json_number_value(value);
        return json_is_number(value);
    case FIELD_FLOAT:
        *(float *)at = (float)json_number_value(value);
        return json_is_number(value);
    default:
        return choice_from(at, f, value);
    }
}

int settings_from_json(settings *s, const json_t *from, const char *where)
{
    for (size_t i = 0; i < train_field_count; i++) {
        const field *f = &train_fields[i];
        const json_t *value = json_object_get(from, f->name);
        if (!f->passing && !(value && field_from(f, s, value)))
            return cli_fail(VERB,
                            "%s: trainer.json: the notes have no good "
                            "'%s'",
                            where, f->name);
    }
    if (!words_from(&s->files, json_object_get(from, "files")))
        return cli_fail(VERB,
                        "%s: trainer.json: the notes have no good "
                        "'files'",
                        where);
    return CLI_OK;
}

int notes_read(settings *s, progress *p, json_t **owner, const char *checkpoint,
               bool *damaged)
{
    bauta_error err;
    json_error_t why = { 0 };
    char *text = NULL;
    bauta_status status = bauta_checkpoint_notes(&text, checkpoint, &err);
    *damaged = status == BAUTA_ERR_IO;
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
                        "%s: it was not written by bauta train, and "
                        "does not say how to go on",
                        checkpoint);
    const json_t *best = json_object_get(notes, "best");
    p->best = json_is_number(best) ? json_number_value(best) : INFINITY;
    p->best_step =
        (size_t)json_integer_value(json_object_get(notes, "best_step"));
    p->stale = (size_t)json_integer_value(json_object_get(notes, "stale"));
    return settings_from_json(s, from, checkpoint);
}

/* Of what shapes a run only the number of steps may become another. */
static bool is_fixed(const field *f)
{
    return f->offset >= offsetof(settings, train) &&
           f->offset <
               offsetof(settings, train) + sizeof(bauta_train_options) &&
           f->offset != offsetof(settings, train.steps);
}

int notes_compare(const json_t *saved, const given *g, settings *s)
{
    int failed = CLI_OK;
    for (size_t i = 0; i < g->count && !failed; i++) {
        const field *f = g->fields[i];
        json_t *now = is_fixed(f) ? field_json(f, s) : NULL;
        const json_t *then = json_object_get(saved, f->name);
        char *was = json_dumps(then, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        if (now && then && !json_equal(now, then))
            failed = cli_fail(VERB,
                              "--%s of a run cannot change: it was %s; "
                              "'--config %s/options.json --out ANOTHER' begins "
                              "another run",
                              f->name, was ? was : "another", s->resume);
        json_decref(now);
        free(was);
    }
    return failed;
}
