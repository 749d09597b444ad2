/* SPDX-License-Identifier: Apache-2.0 */
/* step_json.c - see step_json.h. */
#include "text/step_json.h"

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

#include <string.h>

const char *bt_step_type(const json_t *json)
{
    return json_string_value(json_object_get(json, "type"));
}

static bauta_status parse_nested(const bt_step_reader *r, const json_t *json,
                                 unsigned depth)
{
    const char *type = bt_step_type(json);
    bauta_status status = BAUTA_OK;
    if (!type)
        return bt_fail(r->err, BAUTA_ERR_FORMAT, "%s: a %s has no \"type\"",
                       bt_path_tail(r->path), r->what);
    if (strcmp(type, "Sequence") != 0)
        return r->parse(r->user, type, json);
    const json_t *list = json_object_get(json, r->list);
    if (!json_is_array(list))
        return bt_fail(r->err, BAUTA_ERR_FORMAT,
                       "%s: a Sequence has no list of %s",
                       bt_path_tail(r->path), r->list);
    if (depth == BT_SEQUENCE_DEPTH_MAX)
        return bt_fail(r->err, BAUTA_ERR_FORMAT,
                       "%s: Sequences are nested more than %d deep",
                       bt_path_tail(r->path), BT_SEQUENCE_DEPTH_MAX);
    for (size_t i = 0; !status && i < json_array_size(list); i++)
        status = parse_nested(r, json_array_get(list, i), depth + 1);
    return status;
}

bauta_status bt_steps_parse(const bt_step_reader *reader, const json_t *json)
{
    return parse_nested(reader, json, 0);
}

static bauta_status fail_field(const json_t *json, const char *key,
                               const char *what, const char *path,
                               bauta_error *err)
{
    const char *type = bt_step_type(json);
    return bt_fail(err, BAUTA_ERR_FORMAT, "%s: \"%s\" of %s is not %s",
                   bt_path_tail(path), key, bt_quote(type ? type : "?").text,
                   what);
}

bauta_status bt_step_bool(bool *out, const json_t *json, const char *key,
                          const char *path, bauta_error *err)
{
    const json_t *value = json_object_get(json, key);
    if (!value || json_is_null(value))
        return BAUTA_OK;
    if (!json_is_boolean(value))
        return fail_field(json, key, "true or false", path, err);
    *out = json_is_true(value);
    return BAUTA_OK;
}

bauta_status bt_step_string(const char **out, const json_t *json,
                            const char *key, const char *path, bauta_error *err)
{
    const json_t *value = json_object_get(json, key);
    if (!value || json_is_null(value))
        return BAUTA_OK;
    if (!json_is_string(value))
        return fail_field(json, key, "a string", path, err);
    *out = json_string_value(value);
    return BAUTA_OK;
}

bauta_status bt_step_char(uint32_t *out, const json_t *json, const char *key,
                          const char *path, bauta_error *err)
{
    const char *text = NULL;
    size_t length = 0;
    bauta_status status = bt_step_string(&text, json, key, path, err);
    if (status || !text)
        return status;
    uint32_t code = *text ? bt_utf8_decode(text, strlen(text), &length) : 0;
    if (length == 0 || text[length])
        return fail_field(json, key, "one character", path, err);
    *out = code;
    return BAUTA_OK;
}

bauta_status bt_step_regex(bt_regex **out, const json_t *json, const char *path,
                           bauta_error *err)
{
    const json_t *value = json_object_get(json, "pattern");
    const json_t *string = json_object_get(value, "String");
    const json_t *regex = json_object_get(value, "Regex");
    *out = NULL;
    if (json_is_string(string))
        return bt_regex_create_literal(out, json_string_value(string),
                                       json_string_length(string), err);
    if (json_is_string(regex))
        return bt_regex_create(out, json_string_value(regex),
                               json_string_length(regex), path, err);
    return fail_field(json, "pattern", "a String or a Regex", path, err);
}
