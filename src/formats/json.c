/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - the walk: braces, colons and commas here, the rest by jansson. */
#include "formats/json.h"

#include "base/error.h"
#include "base/file.h"
#include "base/size.h"

#include <string.h>

bt_json bt_json_over(const char *path, const char *text, size_t size)
{
    return (bt_json){ .path = path, .text = text, .size = size };
}

static bauta_status fail_at(const bt_json *json, size_t at, const char *what,
                            bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_IO, "%s: byte %zu of the JSON text: %s",
                   bt_path_tail(json->path), at, bt_quote(what).text);
}

/* The next character that is not white space, left in place; 0 at the end. */
static char peek(bt_json *json)
{
    while (json->at < json->size && json->text[json->at] &&
           strchr(" \t\n\r", json->text[json->at]))
        json->at++;
    return json->at < json->size ? json->text[json->at] : '\0';
}

static bauta_status expect(bt_json *json, char c, const char *what,
                           bauta_error *err)
{
    if (peek(json) != c)
        return fail_at(json, json->at, what, err);
    json->at++;
    return BAUTA_OK;
}

bauta_status bt_json_enter(bt_json *json, bauta_error *err)
{
    bauta_status status = expect(json, '{', "an object is expected", err);
    json->first = true;
    return status;
}

bauta_status bt_json_value(bt_json *json, json_t **value, bauta_error *err)
{
    size_t left = json->size - json->at;
    size_t given = bt_size_min(left, BT_JSON_MEMBER_MAX);
    json_error_t error;
    *value = json_loadb(json->text + json->at, given,
                        JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK |
                            JSON_DECODE_ANY,
                        &error);
    json->first = false;
    size_t read = error.position > 0 ? (size_t)error.position : 0;
    if (*value) {
        json->at += read;
        return BAUTA_OK;
    }
    if (json_error_code(&error) == json_error_out_of_memory || !*error.text)
        return bt_fail_memory(err, "a JSON value", given);
    // The cut may fall into a character, which jansson then does not finish.
    if (given < left && read + 8 >= given)
        return fail_at(json, json->at, "a value is too long", err);
    return fail_at(json, json->at + read, error.text, err);
}

bauta_status bt_json_key(bt_json *json, json_t **key, bauta_error *err)
{
    *key = NULL;
    bauta_status status = BAUTA_OK;
    if (peek(json) == '}') {
        json->at++;
        json->first = false; // of the object around it
        return BAUTA_OK;
    }
    if (!json->first)
        status = expect(json, ',', "'}' or ',' is expected", err);
    if (!status && peek(json) != '"')
        status = fail_at(json, json->at, "a key is expected", err);
    if (!status)
        status = bt_json_value(json, key, err);
    if (!status)
        status = expect(json, ':', "':' is expected", err);
    if (status) {
        json_decref(*key);
        *key = NULL;
    }
    return status;
}

bauta_status bt_json_end(bt_json *json, bauta_error *err)
{
    peek(json);
    if (json->at < json->size)
        return fail_at(json, json->at, "something follows the object", err);
    return BAUTA_OK;
}
