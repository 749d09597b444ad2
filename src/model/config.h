/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - a config.json, asked for its values.
 *
 * Errors stick: the first missing, mistyped or unsupported value is kept as a
 * sentence that names file and key, and a family asks for everything it needs
 * without a check behind each. null counts as absent. */
#ifndef BT_CONFIG_H
#define BT_CONFIG_H

#include "bauta.h"

typedef struct bt_config bt_config;

/* config.json of a folder. */
bauta_status bt_config_load(bt_config **out, const char *folder,
                            bauta_error *err);
/* The text of a config.json that is at hand; it is copied. */
bauta_status bt_config_parse(bt_config **out, const char *text, size_t size,
                             bauta_error *err);
void bt_config_free(bt_config *config);
/* The first thing that went wrong, or BAUTA_OK. */
bauta_status bt_config_status(const bt_config *config, bauta_error *err);

/* A value that must be there, from 1 (or 0) to 2^31 - 1. */
size_t bt_config_size(bt_config *config, const char *key);
size_t bt_config_size_or(bt_config *config, const char *key, size_t otherwise);
double bt_config_number(bt_config *config, const char *key);
double bt_config_number_or(bt_config *config, const char *key,
                           double otherwise);
bool bt_config_bool_or(bt_config *config, const char *key, bool otherwise);
/* Lives as long as the config. */
const char *bt_config_text_or(bt_config *config, const char *key,
                              const char *otherwise);
/* Values of an object inside: until it is left, keys are looked up there.
 * Returns whether there is such an object. */
bool bt_config_enter(bt_config *config, const char *key);
void bt_config_leave(bt_config *config);
/* How many elements a list has, 0 where there is none, and text number i of it.
 */
size_t bt_config_list(bt_config *config, const char *key);
const char *bt_config_list_text(bt_config *config, const char *key, size_t i);

/* Complain that a value is not supported: "config.json: key is text, ..." */
void bt_config_refuse(bt_config *config, const char *key, const char *why);
/* Refuse unless a switch, where it is given, has the one supported value. */
void bt_config_only(bt_config *config, const char *key, bool supported);

/* What sentences call the file. */
const char *bt_config_path(const bt_config *config);

/* The text of a saved folder's config, for bt_free(): what was read, but of
 * the dtype float32, and with the architecture where none was given. Where
 * nothing changes it is the very bytes. */
bauta_status bt_config_saved(char **out, const bt_config *config,
                             const char *architecture, bauta_error *err);

#endif
