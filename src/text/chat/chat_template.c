/* SPDX-License-Identifier: Apache-2.0 */
/* chat_template.c - the calls on chat templates of bauta/text.h. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "formats/run_folder.h"
#include "text/chat/render.h"
#include "text/io/tokenizer_config.h"

#include <stdio.h>
#include <string.h>

struct bauta_chat_template {
    char *text;        /* with newlines as LF */
    bt_chat_pool pool; /* of the syntax tree */
    bt_chat_node *program;
    char *tokens[BAUTA_TOKEN_COUNT]; /* of the folder, or NULL */
};

/* ---- Parsing ------------------------------------------------------------- */

/* Newlines become LF, and one at the end is dropped, as Jinja does. */
static size_t newlines_normalize(char *to, const char *text, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        bool return_first =
            text[i] == '\r' && i + 1 < size && text[i + 1] == '\n';
        if (!return_first)
            to[n++] = (char)(text[i] == '\r' ? '\n' : text[i]);
    }
    return n - (n > 0 && to[n - 1] == '\n');
}

static bauta_status text_check(const char *text, size_t size, bauta_error *err)
{
    if (size > BT_CHAT_TEXT_MAX)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "the chat template has %zu bytes, more than %d", size,
                       BT_CHAT_TEXT_MAX);
    size_t valid = bt_utf8_valid_prefix(text, size);
    if (valid < size)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "the chat template is not UTF-8 at byte %zu", valid);
    return BAUTA_OK;
}

bauta_status bauta_chat_template_create(bauta_chat_template **out,
                                        const char *text, size_t size,
                                        bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(text, err);
    bauta_status status = text_check(text, size, err);
    if (status)
        return status;
    bauta_chat_template *t = bt_alloc_zero(1, sizeof(*t));
    char *copy = t ? bt_alloc(size) : NULL;
    if (!copy) {
        bt_free(t);
        return bt_fail_memory(err, "a chat template", size);
    }
    t->text = copy;
    t->pool.limit = BT_CHAT_TREE_MAX;
    size = newlines_normalize(copy, text, size);
    status = bt_chat_parse(&t->program, &t->pool, copy, size, err);
    if (status) {
        bauta_chat_template_free(t);
        return status;
    }
    *out = t;
    return BAUTA_OK;
}

void bauta_chat_template_free(bauta_chat_template *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < BAUTA_TOKEN_COUNT; i++)
        bt_free(t->tokens[i]);
    bt_chat_pool_release(&t->pool);
    bt_free(t->text);
    bt_free(t);
}

/* ---- Loading ------------------------------------------------------------- */

/* The template of this name in "chat_template": a string, which is the default,
 * or a list of {"name": ..., "template": ...}. NULL if there is none. */
static const json_t *config_template(const json_t *config, const char *name)
{
    const json_t *member = json_object_get(config, "chat_template");
    if (json_is_string(member))
        return strcmp(name, "default") ? NULL : member;
    for (size_t i = 0; i < json_array_size(member); i++) {
        const json_t *one = json_array_get(member, i);
        const char *its = json_string_value(json_object_get(one, "name"));
        const json_t *text = json_object_get(one, "template");
        if (its && !strcmp(its, name) && json_is_string(text))
            return text;
    }
    return NULL;
}

/* The file of a template: chat_template.jinja is the default, and others are
 * in a folder. *text is NULL if there is none. */
static bauta_status file_read(char **text, size_t *size, const char *folder,
                              const char *name, bauta_error *err)
{
    char file[320];
    if (!strcmp(name, "default"))
        snprintf(file, sizeof(file), "chat_template.jinja");
    else
        snprintf(file, sizeof(file), "additional_chat_templates/%s.jinja",
                 name);
    return bt_tokenizer_folder_read(text, size, folder, file, BT_CHAT_TEXT_MAX,
                                    err);
}

static bauta_status tokens_copy(bauta_chat_template *t,
                                const bt_tokenizer_config *config,
                                bauta_error *err)
{
    for (unsigned i = 0; i < BAUTA_TOKEN_COUNT; i++) {
        const char *token =
            bt_tokenizer_config_special_token(config, (bauta_special_token)i);
        if (!token)
            continue;
        t->tokens[i] = bt_path_copy(token, strlen(token));
        if (!t->tokens[i])
            return bt_fail_memory(err, "special tokens", strlen(token));
    }
    return BAUTA_OK;
}

static bauta_status folder_load(bauta_chat_template **out, const char *folder,
                                const char *name, bauta_error *err)
{
    bt_tokenizer_config config = { 0 };
    char *text = NULL;
    const json_t *member = NULL;
    bauta_chat_template *t = NULL;
    size_t size = 0;
    bauta_status status = file_read(&text, &size, folder, name, err);
    if (!status)
        status = bt_tokenizer_config_init(&config, folder, err);
    if (status)
        goto done;
    if (!text)
        member = config_template(config.config, name);
    if (!text && !member) {
        status = bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                         "%s: there is no chat template \"%s\"",
                         bt_path_tail(folder), bt_quote(name).text);
        goto done;
    }
    status = bauta_chat_template_create(
        &t, text ? text : json_string_value(member),
        text ? size : json_string_length(member), err);
    if (!status)
        status = tokens_copy(t, &config, err);
    if (status)
        goto done;
    *out = t;
    t = NULL;
done:
    bauta_chat_template_free(t);
    bt_free(text);
    json_decref(config.config);
    return status;
}

bauta_status bauta_chat_template_load(bauta_chat_template **out,
                                      const char *folder, const char *name,
                                      bauta_error *err)
{
    char *resolved;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(folder, err);
    if (!name)
        name = "default";
    if (!*name || strlen(name) > 255 || strchr(name, '/'))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "\"%s\" cannot be the name of a chat template",
                       bt_quote(name).text);
    bauta_status status = bt_run_resolve(&resolved, folder, err);
    if (!status)
        status = folder_load(out, resolved, name, err);
    bt_free(resolved);
    return status;
}

/* ---- Rendering ----------------------------------------------------------- */

/* The weekday and the day of the year, which a date leaves open. */
static void date_complete(struct tm *t)
{
    static const int before[] = { 0,   31,  59,  90,  120, 151,
                                  181, 212, 243, 273, 304, 334 };
    int year = t->tm_year + 1900;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    int past =
        year - 1; // whole years since the year 1, which began on a Monday
    t->tm_yday = before[t->tm_mon] + t->tm_mday - 1 + (leap && t->tm_mon > 1);
    t->tm_wday =
        (1 + past + past / 4 - past / 100 + past / 400 + t->tm_yday) % 7;
}

/* "2026-11-16T12:34:56" */
static bool time_read(struct tm *t, const char *text)
{
    int end = 0;
    *t = (struct tm){ 0 };
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &t->tm_year, &t->tm_mon,
               &t->tm_mday, &t->tm_hour, &t->tm_min, &t->tm_sec, &end) != 6 ||
        text[end])
        return false;
    t->tm_year -= 1900;
    t->tm_mon -= 1;
    if (t->tm_year < -1899 || t->tm_mon < 0 || t->tm_mon > 11 ||
        t->tm_mday < 1 || t->tm_mday > 31 || t->tm_hour < 0 ||
        t->tm_hour > 23 || t->tm_min < 0 || t->tm_min > 59 || t->tm_sec < 0 ||
        t->tm_sec > 60)
        return false;
    date_complete(t);
    return true;
}

static bauta_status time_init(struct tm *now, const json_t *variables,
                              bauta_error *err)
{
    const json_t *given = json_object_get(variables, "strftime_now");
    time_t seconds = time(NULL);
    if (!given && !localtime_r(&seconds, now))
        *now = (struct tm){ .tm_mday = 1 };
    if (given &&
        (!json_is_string(given) || !time_read(now, json_string_value(given))))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "strftime_now must be a time such as "
                       "\"2026-11-16T12:34:56\"");
    return BAUTA_OK;
}

/* Variables that transformers always gives. */
static bauta_status variables_default(bt_chat_render *r, bt_chat_dict *dict)
{
    static const bt_chat_string names[] = {
        { "tools", 5, NULL },
        { "documents", 9, NULL },
        { "add_generation_prompt", 21, NULL },
    };
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < BT_LEN(names) && !status; i++) {
        bt_chat_value key = bt_chat_text(&names[i]);
        bt_chat_value value = i < 2 ? bt_chat_none() : bt_chat_boolean(false);
        if (!bt_chat_dict_get(dict, &names[i]))
            status = bt_chat_dict_set(r, dict, &key, &value);
    }
    return status;
}

/* The variables of the call, and the special tokens that it does not give. */
static bauta_status variables_init(bt_chat_render *r,
                                   const bauta_chat_template *t,
                                   const json_t *json)
{
    bt_chat_value dict, key, value;
    bauta_status status = bt_chat_from_json(r, &dict, json);
    for (size_t i = 0; i < BAUTA_TOKEN_COUNT && !status; i++) {
        const char *name = bt_special_token_keys[i];
        if (!t->tokens[i] || json_object_get(json, name))
            continue;
        status = bt_chat_string_refer(r, &key, name, strlen(name));
        if (!status)
            status = bt_chat_string_refer(r, &value, t->tokens[i],
                                          strlen(t->tokens[i]));
        if (!status)
            status = bt_chat_dict_set(r, dict.dict, &key, &value);
    }
    if (!status)
        status = variables_default(r, dict.dict);
    if (!status)
        r->variables = dict.dict;
    return status;
}

static bauta_status render(const bauta_chat_template *t, const json_t *json,
                           char **text, size_t *length, bauta_error *err)
{
    bt_chat_render r = { .pool = { .limit = BT_CHAT_MEMORY_MAX }, .err = err };
    bauta_status status = time_init(&r.now, json, err);
    if (!status)
        status = variables_init(&r, t, json);
    if (!status)
        status = bt_chat_run(&r, t->program);
    if (!status)
        status = bt_chat_put(&r, "", 0); // there is text even if it is empty
    if (!status) {
        r.text[r.size] = '\0';
        *text = r.text;
        *length = r.size;
        r.text = NULL;
    }
    bt_free(r.text);
    bt_chat_pool_release(&r.pool);
    return status;
}

bauta_status bauta_chat_template_render(const bauta_chat_template *t,
                                        const char *variables, size_t size,
                                        char **text, size_t *length,
                                        bauta_error *err)
{
    json_t *json = NULL;
    size_t unused;
    BT_NEED(text, err);
    *text = NULL;
    length = length ? length : &unused;
    *length = 0;
    BT_NEED(t, err);
    BT_NEED(variables, err);
    if (size > BT_CHAT_VARIABLES_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the variables have %zu bytes, more than %d", size,
                       BT_CHAT_VARIABLES_MAX);
    bauta_status status = bt_json_parse_object(&json, variables, size,
                                               BT_JSON_NUL, "variables", err);
    if (!status)
        status = render(t, json, text, length, err);
    json_decref(json);
    return status;
}
