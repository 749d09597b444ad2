/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - JSON behind questions. */
#include "model/config.h"

#include "base/error.h"
#include "base/memory.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bt_config {
    char *path;
    json_t *root, *at;
    bauta_error failure;
};

bauta_status bt_config_load(bt_config **out, const char *path, bauta_error *err)
{
    json_error_t where;
    size_t length = strlen(path) + 1;
    *out = NULL;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return bt_fail(err, BAUTA_ERR_IO, "%s: line %d: %s", path, where.line,
                       where.text);
    bt_config *config = bt_alloc_zero(1, sizeof(*config));
    char *copy = bt_alloc(length);
    if (!config || !copy || !json_is_object(root)) {
        bauta_status status =
            json_is_object(root)
                ? bt_fail_memory(err, "a config", sizeof(*config))
                : bt_fail(err, BAUTA_ERR_IO, "%s is not a JSON object", path);
        json_decref(root);
        bt_free(config);
        bt_free(copy);
        return status;
    }
    config->path = memcpy(copy, path, length);
    config->root = config->at = root;
    *out = config;
    return BAUTA_OK;
}

void bt_config_free(bt_config *config)
{
    if (!config)
        return;
    json_decref(config->root);
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
                config->path, key, what);
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
    return json_array_size(value_of(config, key));
}

const char *bt_config_list_text(bt_config *config, const char *key, size_t i)
{
    const char *text =
        json_string_value(json_array_get(value_of(config, key), i));
    return text ? text : "";
}

void bt_config_refuse(bt_config *config, const char *key, const char *why)
{
    char *value = json_dumps(json_object_get(config->at, key),
                             JSON_ENCODE_ANY | JSON_COMPACT);
    char what[160];
    snprintf(what, sizeof(what), "is %.80s, %s", value ? value : "not given",
             why);
    free(value);
    complain(config, key, what);
}

void bt_config_only(bt_config *config, const char *key, bool supported)
{
    if (bt_config_bool_or(config, key, supported) != supported)
        bt_config_refuse(config, key, "which is not supported");
}
