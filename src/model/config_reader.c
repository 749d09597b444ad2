/* SPDX-License-Identifier: Apache-2.0 */
/* config_reader.c - see config_reader.h. */
#include "model/config_reader.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "formats/file_kind.h"
#include "formats/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Largest config.json in bytes, a hundred times the size of any known one. */
enum { CONFIG_MAX = 1 << 20 };

struct bt_config_reader {
    char *path, *text; /* the text as it was read */
    size_t size;
    json_t *root, *object; /* the object in which keys are looked up */
    bauta_error failure;
};

static bauta_status root_parse(bt_config_reader *reader, bauta_error *err)
{
    bauta_status status = bt_json_parse_object(
        &reader->root, reader->text, reader->size, 0, reader->path, err);
    reader->object = reader->root;
    return status;
}

bauta_status bt_config_reader_load(bt_config_reader **out, const char *folder,
                                   bauta_error *err)
{
    *out = NULL;
    bt_config_reader *reader = bt_alloc_zero(1, sizeof(*reader));
    if (!reader)
        return bt_fail_memory(err, "a config", sizeof(*reader));
    reader->path = bt_path_join(folder, "config.json");
    bauta_status status = reader->path
                              ? bt_file_read(&reader->text, &reader->size,
                                             reader->path, CONFIG_MAX, err)
                              : bt_fail_memory(err, "the name of a file", 0);
    if (!status)
        status =
            bt_file_kind_explain(root_parse(reader, err), reader->path, err);
    else if (reader->path && !bt_file_exists(reader->path))
        status = bt_file_kind_explain_folder(folder, err);
    if (status)
        bt_config_reader_free(reader);
    else
        *out = reader;
    return status;
}

bauta_status bt_config_reader_parse(bt_config_reader **out, const char *text,
                                    size_t size, bauta_error *err)
{
    static const char name[] = "config.json";
    *out = NULL;
    bt_config_reader *reader = bt_alloc_zero(1, sizeof(*reader));
    if (!reader)
        return bt_fail_memory(err, "a config", sizeof(*reader));
    reader->path = bt_alloc(sizeof(name));
    reader->text = bt_alloc(bt_size_add(size, 1));
    bauta_status status = BAUTA_OK;
    if (!reader->path || !reader->text) {
        status = bt_fail_memory(err, "a config", size);
    } else {
        memcpy(reader->path, name, sizeof(name));
        memcpy(reader->text, text, size);
        reader->text[size] = '\0';
        reader->size = size;
        status = root_parse(reader, err);
    }
    if (status)
        bt_config_reader_free(reader);
    else
        *out = reader;
    return status;
}

void bt_config_reader_free(bt_config_reader *reader)
{
    if (!reader)
        return;
    json_decref(reader->root);
    bt_free(reader->text);
    bt_free(reader->path);
    bt_free(reader);
}

bauta_status bt_config_reader_status(const bt_config_reader *reader,
                                     bauta_error *err)
{
    if (reader->failure.status && err)
        *err = reader->failure;
    return reader->failure.status;
}

static void fail_key(bt_config_reader *reader, const char *key,
                     const char *what)
{
    if (!reader->failure.status)
        bt_fail(&reader->failure, BAUTA_ERR_UNSUPPORTED, "%s: %s %s",
                bt_path_tail(reader->path), key, what);
}

static json_t *need(bt_config_reader *reader, const char *key)
{
    json_t *value = bt_json_get(reader->object, key);
    if (!value)
        fail_key(reader, key, "is missing");
    return value;
}

static size_t as_size(bt_config_reader *reader, const char *key,
                      const json_t *value)
{
    json_int_t number = json_integer_value(value);
    if (json_is_integer(value) && number >= 0 && number <= INT32_MAX)
        return (size_t)number;
    fail_key(reader, key, "is not a whole number from 0 to 2147483647");
    return 0;
}

size_t bt_config_reader_size(bt_config_reader *reader, const char *key)
{
    const json_t *value = need(reader, key);
    size_t size = value ? as_size(reader, key, value) : 0;
    if (value && size == 0)
        fail_key(reader, key, "is 0");
    return size;
}

size_t bt_config_reader_size_or(bt_config_reader *reader, const char *key,
                                size_t fallback)
{
    const json_t *value = bt_json_get(reader->object, key);
    return value ? as_size(reader, key, value) : fallback;
}

static double as_number(bt_config_reader *reader, const char *key,
                        const json_t *value)
{
    if (!json_is_number(value))
        fail_key(reader, key, "is not a number");
    return json_number_value(value);
}

double bt_config_reader_number(bt_config_reader *reader, const char *key)
{
    const json_t *value = need(reader, key);
    return value ? as_number(reader, key, value) : 0;
}

double bt_config_reader_number_or(bt_config_reader *reader, const char *key,
                                  double fallback)
{
    const json_t *value = bt_json_get(reader->object, key);
    return value ? as_number(reader, key, value) : fallback;
}

bool bt_config_reader_is_null(const bt_config_reader *reader, const char *key)
{
    return json_is_null(json_object_get(reader->object, key));
}

bool bt_config_reader_bool_or(bt_config_reader *reader, const char *key,
                              bool fallback)
{
    const json_t *value = bt_json_get(reader->object, key);
    if (!value)
        return fallback;
    if (!json_is_boolean(value))
        fail_key(reader, key, "is neither true nor false");
    return json_is_true(value);
}

const char *bt_config_reader_string_or(bt_config_reader *reader,
                                       const char *key, const char *fallback)
{
    const json_t *value = bt_json_get(reader->object, key);
    if (!value)
        return fallback;
    if (!json_is_string(value)) {
        fail_key(reader, key, "is not a string");
        return fallback;
    }
    return json_string_value(value);
}

bool bt_config_reader_enter(bt_config_reader *reader, const char *key)
{
    json_t *value = bt_json_get(reader->object, key);
    if (value && !json_is_object(value))
        fail_key(reader, key, "is not an object");
    if (!json_is_object(value))
        return false;
    reader->object = value;
    return true;
}

void bt_config_reader_leave(bt_config_reader *reader)
{
    reader->object = reader->root;
}

size_t bt_config_reader_list_size(bt_config_reader *reader, const char *key)
{
    const json_t *value = bt_json_get(reader->object, key);
    if (value && !json_is_array(value))
        fail_key(reader, key, "is not a list");
    return json_array_size(value);
}

const char *bt_config_reader_list_string(bt_config_reader *reader,
                                         const char *key, size_t i)
{
    const char *text =
        json_string_value(json_array_get(bt_json_get(reader->object, key), i));
    return text ? text : "";
}

void bt_config_reader_reject(bt_config_reader *reader, const char *key,
                             const char *why)
{
    char *value = bt_json_dump(json_object_get(reader->object, key),
                               JSON_ENCODE_ANY | JSON_COMPACT);
    char what[160];
    snprintf(what, sizeof(what), "is %s, %s",
             bt_quote(value ? value : "not given").text, why);
    bt_free(value);
    fail_key(reader, key, what);
}

void bt_config_reader_require(bt_config_reader *reader, const char *key,
                              bool supported)
{
    if (bt_config_reader_bool_or(reader, key, supported) != supported)
        bt_config_reader_reject(reader, key, "which is not supported");
}

const char *bt_config_reader_path(const bt_config_reader *reader)
{
    return bt_path_tail(reader->path);
}

/* ---- saving ------------------------------------------------------------ */

/* Apply the changes for saving; true if there are any. */
static bool update_for_saving(json_t *root, const char *architecture,
                              bool *failed)
{
    static const char *const keys[] = { "dtype", "torch_dtype" };
    bool changed = false;
    for (size_t i = 0; i < BT_LEN(keys); i++) {
        const char *type = json_string_value(json_object_get(root, keys[i]));
        if (!type || strcmp(type, "float32") == 0)
            continue;
        changed = true;
        *failed |= json_object_set_new(root, keys[i], json_string("float32"));
    }
    if (json_array_size(json_object_get(root, "architectures")) == 0) {
        changed = true;
        *failed |= json_object_set_new(root, "architectures",
                                       json_pack("[s]", architecture));
    }
    return changed;
}

/* Use the fewest digits that preserve every number, so that 1e-05 does not
 * become 1.0000000000000001e-05. */
static char *dump_shortest(const json_t *root)
{
    for (size_t digits = 15; digits < 17; digits++) {
        char *text =
            bt_json_dump(root, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
        json_t *again = NULL;
        if (text)
            (void)bt_json_parse_object(&again, text, strlen(text), 0, "", NULL);
        bool same = again && json_equal(root, again), memory = !again;
        json_decref(again);
        if (same)
            return text;
        bt_free(text);
        if (memory)
            return NULL;
    }
    return bt_json_dump(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
}

static char *copy_of(const char *text, size_t size)
{
    char *copy = bt_alloc(size + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

bauta_status bt_config_reader_save(char **out, const bt_config_reader *reader,
                                   const char *architecture, bauta_error *err)
{
    bool failed = false;
    json_t *root = json_deep_copy(reader->root);
    *out = NULL;
    if (root && !update_for_saving(root, architecture, &failed))
        *out = copy_of(reader->text, reader->size);
    else if (root && !failed)
        *out = dump_shortest(root);
    json_decref(root);
    return *out ? BAUTA_OK : bt_fail_memory(err, "a config", reader->size);
}
