/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - JSON behind questions. */
#include "model/config.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "formats/foreign.h"
#include "formats/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a config that are read: a hundred times what any has. */
enum { CONFIG_MAX = 1 << 20 };

struct bt_config {
    char *path, *text; /* text as it was read */
    size_t size;
    json_t *root, *at;
    bauta_error failure;
};

static bauta_status root_parse(bt_config *config, bauta_error *err)
{
    bauta_status status = bt_json_object(&config->root, config->text,
                                         config->size, 0, config->path, err);
    config->at = config->root;
    return status;
}

bauta_status bt_config_load(bt_config **out, const char *folder,
                            bauta_error *err)
{
    *out = NULL;
    bt_config *config = bt_alloc_zero(1, sizeof(*config));
    if (!config)
        return bt_fail_memory(err, "a config", sizeof(*config));
    config->path = bt_path_join(folder, "config.json");
    bauta_status status = config->path
                              ? bt_file_read(&config->text, &config->size,
                                             config->path, CONFIG_MAX, err)
                              : bt_fail_memory(err, "the name of a file", 0);
    if (!status)
        status = bt_foreign_explain(root_parse(config, err), config->path, err);
    else if (config->path && !bt_file_exists(config->path))
        status = bt_foreign_folder(folder, err);
    if (status)
        bt_config_free(config);
    else
        *out = config;
    return status;
}

bauta_status bt_config_parse(bt_config **out, const char *text, size_t size,
                             bauta_error *err)
{
    static const char name[] = "config.json";
    *out = NULL;
    bt_config *config = bt_alloc_zero(1, sizeof(*config));
    if (!config)
        return bt_fail_memory(err, "a config", sizeof(*config));
    config->path = bt_alloc(sizeof(name));
    config->text = bt_alloc(bt_size_add(size, 1));
    bauta_status status = BAUTA_OK;
    if (!config->path || !config->text) {
        status = bt_fail_memory(err, "a config", size);
    } else {
        memcpy(config->path, name, sizeof(name));
        memcpy(config->text, text, size);
        config->text[size] = '\0';
        config->size = size;
        status = root_parse(config, err);
    }
    if (status)
        bt_config_free(config);
    else
        *out = config;
    return status;
}

void bt_config_free(bt_config *config)
{
    if (!config)
        return;
    json_decref(config->root);
    bt_free(config->text);
    bt_free(config->path);
    bt_free(config);
}

bauta_status bt_config_status(const bt_config *config, bauta_error *err)
{
    if (config->failure.status && err)
        *err = config->failure;
    return config->failure.status;
}

static void complain(bt_config *config, const char *key, const char *what)
{
    if (!config->failure.status)
        bt_fail(&config->failure, BAUTA_ERR_UNSUPPORTED, "%s: %s %s",
                bt_path_tail(config->path), key, what);
}

/* The value of a key, NULL when it is absent or null. */
static json_t *value_of(bt_config *config, const char *key)
{
    json_t *value = json_object_get(config->at, key);
    return json_is_null(value) ? NULL : value;
}

static json_t *need(bt_config *config, const char *key)
{
    json_t *value = value_of(config, key);
    if (!value)
        complain(config, key, "is missing");
    return value;
}

static size_t as_size(bt_config *config, const char *key, const json_t *value)
{
    json_int_t number = json_integer_value(value);
    if (json_is_integer(value) && number >= 0 && number <= INT32_MAX)
        return (size_t)number;
    complain(config, key, "is not a whole number from 0 to 2147483647");
    return 0;
}

size_t bt_config_size(bt_config *config, const char *key)
{
    const json_t *value = need(config, key);
    size_t size = value ? as_size(config, key, value) : 0;
    if (value && size == 0)
        complain(config, key, "is 0");
    return size;
}

size_t bt_config_size_or(bt_config *config, const char *key, size_t otherwise)
{
    const json_t *value = value_of(config, key);
    return value ? as_size(config, key, value) : otherwise;
}

static double as_number(bt_config *config, const char *key, const json_t *value)
{
    if (!json_is_number(value))
        complain(config, key, "is not a number");
    return json_number_value(value);
}

double bt_config_number(bt_config *config, const char *key)
{
    const json_t *value = need(config, key);
    return value ? as_number(config, key, value) : 0;
}

double bt_config_number_or(bt_config *config, const char *key, double otherwise)
{
    const json_t *value = value_of(config, key);
    return value ? as_number(config, key, value) : otherwise;
}

bool bt_config_bool_or(bt_config *config, const char *key, bool otherwise)
{
    const json_t *value = value_of(config, key);
    if (!value)
        return otherwise;
    if (!json_is_boolean(value))
        complain(config, key, "is neither true nor false");
    return json_is_true(value);
}

const char *bt_config_text_or(bt_config *config, const char *key,
                              const char *otherwise)
{
    const json_t *value = value_of(config, key);
    if (!value)
        return otherwise;
    if (!json_is_string(value)) {
        complain(config, key, "is not a text");
        return otherwise;
    }
    return json_string_value(value);
}

bool bt_config_enter(bt_config *config, const char *key)
{
    json_t *value = value_of(config, key);
    if (value && !json_is_object(value))
        complain(config, key, "is not an object");
    if (!json_is_object(value))
        return false;
    config->at = value;
    return true;
}

void bt_config_leave(bt_config *config)
{
    config->at = config->root;
}

size_t bt_config_list(bt_config *config, const char *key)
{
    const json_t *value = value_of(config, key);
    if (value && !json_is_array(value))
        complain(config, key, "is not a list");
    return json_array_size(value);
}

const char *bt_config_list_text(bt_config *config, const char *key, size_t i)
{
    const char *text =
        json_string_value(json_array_get(value_of(config, key), i));
    return text ? text : "";
}

void bt_config_refuse(bt_config *config, const char *key, const char *why)
{
    char *value = bt_json_text(json_object_get(config->at, key),
                               JSON_ENCODE_ANY | JSON_COMPACT);
    char what[160];
    snprintf(what, sizeof(what), "is %s, %s",
             bt_quote(value ? value : "not given").text, why);
    bt_free(value);
    complain(config, key, what);
}

void bt_config_only(bt_config *config, const char *key, bool supported)
{
    if (bt_config_bool_or(config, key, supported) != supported)
        bt_config_refuse(config, key, "which is not supported");
}

const char *bt_config_path(const bt_config *config)
{
    return bt_path_tail(config->path);
}

/* ---- saving ------------------------------------------------------------ */

/* What a saved folder says otherwise; true when that is anything. */
static bool changes_make(json_t *root, const char *architecture, bool *failed)
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

/* With as few digits as give every number back: 1e-05 is not to become
 * 1.0000000000000001e-05. */
static char *dump(const json_t *root)
{
    for (size_t digits = 15; digits < 17; digits++) {
        char *text =
            bt_json_text(root, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
        json_t *again = NULL;
        if (text)
            (void)bt_json_object(&again, text, strlen(text), 0, "", NULL);
        bool same = again && json_equal(root, again), memory = !again;
        json_decref(again);
        if (same)
            return text;
        bt_free(text);
        if (memory)
            return NULL;
    }
    return bt_json_text(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
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

bauta_status bt_config_saved(char **out, const bt_config *config,
                             const char *architecture, bauta_error *err)
{
    bool failed = false;
    json_t *root = json_deep_copy(config->root);
    *out = NULL;
    if (root && !changes_make(root, architecture, &failed))
        *out = copy_of(config->text, config->size);
    else if (root && !failed)
        *out = dump(root);
    json_decref(root);
    return *out ? BAUTA_OK : bt_fail_memory(err, "a config", config->size);
}
