/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - streaming objects and arrays; json_value.c parses values. */
#include "formats/json.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#include <string.h>

bt_json_reader bt_json_reader_init(const char *path, const char *text,
                                   size_t size)
{
    return (bt_json_reader){ .path = path,
                             .text = text,
                             .size = size,
                             .max_value_bytes = BT_JSON_VALUE_BYTES_MAX };
}

bauta_status bt_json_fail(const bt_json_reader *json, size_t at,
                          const char *what, bauta_error *err)
{
    bool lines = json->flags & BT_JSON_LINES;
    size_t place = at;
    if (lines) {
        place = 1;
        for (size_t i = 0; i < at; i++)
            place += json->text[i] == '\n';
    }
    return bt_fail(err, BAUTA_ERR_FORMAT, "%s: %s %zu of the JSON text: %s",
                   bt_path_tail(json->path), lines ? "line" : "byte", place,
                   bt_quote(what).text);
}

char bt_json_peek(bt_json_reader *json)
{
    while (json->offset < json->size && json->text[json->offset] &&
           strchr(" \t\n\r", json->text[json->offset]))
        json->offset++;
    return json->offset < json->size ? json->text[json->offset] : '\0';
}

static bauta_status expect(bt_json_reader *json, char c, const char *what,
                           bauta_error *err)
{
    if (bt_json_peek(json) != c)
        return bt_json_fail(json, json->offset, what, err);
    json->offset++;
    return BAUTA_OK;
}

bauta_status bt_json_enter_object(bt_json_reader *json, bauta_error *err)
{
    bauta_status status = expect(json, '{', "an object is expected", err);
    json->first = true;
    return status;
}

bauta_status bt_json_enter_array(bt_json_reader *json, bauta_error *err)
{
    bauta_status status = expect(json, '[', "an array is expected", err);
    json->first = true;
    return status;
}

/* Whether there is another member, and the comma before it. */
static bauta_status more(bt_json_reader *json, char end, const char *what,
                         bool *is, bauta_error *err)
{
    *is = bt_json_peek(json) != end;
    bauta_status status = BAUTA_OK;
    if (!*is)
        json->offset++;
    else if (!json->first)
        status = expect(json, ',', what, err);
    json->first = false; // at the end: of the enclosing object or array
    return status;
}

bauta_status bt_json_next_item(bt_json_reader *json, bool *is, bauta_error *err)
{
    return more(json, ']', "']' or ',' is expected", is, err);
}

bauta_status bt_json_next_key(bt_json_reader *json, json_t **key,
                              bauta_error *err)
{
    bool is;
    *key = NULL;
    bauta_status status = more(json, '}', "'}' or ',' is expected", &is, err);
    if (status || !is)
        return status;
    if (bt_json_peek(json) != '"')
        return bt_json_fail(json, json->offset, "a key is expected", err);
    status = bt_json_read_value(json, key, err);
    if (!status && strlen(json_string_value(*key)) != json_string_length(*key))
        status = bt_json_fail(json, json->offset, "a key contains NUL", err);
    if (!status)
        status = expect(json, ':', "':' is expected", err);
    if (status) {
        json_decref(*key);
        *key = NULL;
    }
    return status;
}

bauta_status bt_json_expect_end(bt_json_reader *json, bauta_error *err)
{
    bt_json_peek(json);
    if (json->offset < json->size)
        return bt_json_fail(json, json->offset, "something follows the object",
                            err);
    return BAUTA_OK;
}

bauta_status bt_json_parse_object(json_t **out, const char *text, size_t size,
                                  unsigned flags, const char *path,
                                  bauta_error *err)
{
    bt_json_reader json = bt_json_reader_init(path, text, size);
    json.flags = flags | BT_JSON_LINES;
    json.max_value_bytes = SIZE_MAX;
    bauta_status status = bt_json_read_value(&json, out, err);
    if (!status && !json_is_object(*out))
        status = bt_fail(err, BAUTA_ERR_FORMAT, "%s is not a JSON object",
                         bt_path_tail(path));
    if (!status)
        status = bt_json_expect_end(&json, err);
    if (status) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

json_t *bt_json_get(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

char *bt_json_dump(const json_t *value, size_t flags)
{
    size_t size = value ? json_dumpb(value, NULL, 0, flags) : 0;
    char *text = size ? bt_alloc(size + 1) : NULL;
    if (text && json_dumpb(value, text, size, flags) != size) {
        bt_free(text);
        return NULL;
    }
    if (text)
        text[size] = '\0';
    return text;
}

bauta_status bt_json_fail_member(const char *file, const char *key,
                                 const json_t *value, const char *why,
                                 bauta_error *err)
{
    char *text = bt_json_dump(value, JSON_ENCODE_ANY | JSON_COMPACT);
    bauta_status status =
        bt_fail(err, BAUTA_ERR_UNSUPPORTED, "%s: %s is %s, %s", file, key,
                bt_quote(text ? text : "?").text, why);
    bt_free(text);
    return status;
}
