/* SPDX-License-Identifier: Apache-2.0 */
/* config_reader.h - typed access to a config.json, with sticky errors.
 *
 * The first missing, mistyped or unsupported value is kept as an error that
 * names the file and the key. A family reads everything it needs and checks
 * once at the end. null counts as absent. */
#ifndef BT_CONFIG_READER_H
#define BT_CONFIG_READER_H

#include "bauta.h"

typedef struct bt_config_reader bt_config_reader;

/* Read config.json from a folder. */
bauta_status bt_config_reader_load(bt_config_reader **out, const char *folder,
                                   bauta_error *err);
/* Read the text of a config.json. The text is copied. */
bauta_status bt_config_reader_parse(bt_config_reader **out, const char *text,
                                    size_t size, bauta_error *err);
void bt_config_reader_free(bt_config_reader *reader);
/* The first error, or BAUTA_OK. */
bauta_status bt_config_reader_status(const bt_config_reader *reader,
                                     bauta_error *err);

/* Integers up to 2^31 - 1. Without a default the key must be there, and 0 is an
 * error; with a default 0 is allowed. */
size_t bt_config_reader_size(bt_config_reader *reader, const char *key);
size_t bt_config_reader_size_or(bt_config_reader *reader, const char *key,
                                size_t fallback);
double bt_config_reader_number(bt_config_reader *reader, const char *key);
double bt_config_reader_number_or(bt_config_reader *reader, const char *key,
                                  double fallback);
/* Whether a key is there and null, which is not the same as a default. */
bool bt_config_reader_is_null(const bt_config_reader *reader, const char *key);
bool bt_config_reader_bool_or(bt_config_reader *reader, const char *key,
                              bool fallback);
/* Lives as long as the reader. */
const char *bt_config_reader_string_or(bt_config_reader *reader,
                                       const char *key, const char *fallback);
/* Look up keys in a nested object until bt_config_reader_leave(). Returns false
 * when there is no such object. */
bool bt_config_reader_enter(bt_config_reader *reader, const char *key);
void bt_config_reader_leave(bt_config_reader *reader);
/* The length of a list (0 when it is absent), and string i of it. */
size_t bt_config_reader_list_size(bt_config_reader *reader, const char *key);
const char *bt_config_reader_list_string(bt_config_reader *reader,
                                         const char *key, size_t i);

/* Report an unsupported value: "config.json: key is value, why". */
void bt_config_reader_reject(bt_config_reader *reader, const char *key,
                             const char *why);
/* Report a boolean that is given and does not have the one supported value. */
void bt_config_reader_require(bt_config_reader *reader, const char *key,
                              bool supported);

/* The file name for error messages. */
const char *bt_config_reader_path(const bt_config_reader *reader);

/* The text of the config.json to save, for bt_free(): the one that was read,
 * with dtype float32, and with the architecture if it had none. The bytes are
 * unchanged where neither applies. */
bauta_status bt_config_reader_save(char **out, const bt_config_reader *reader,
                                   const char *architecture, bauta_error *err);

#endif
