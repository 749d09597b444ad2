/* SPDX-License-Identifier: Apache-2.0 */
/* fields.h - the members of a JSON object that describes a step.
 *
 * A member that is absent or null leaves *out as it was. One of the wrong type
 * is a sentence that names the file, the step and the member. */
#ifndef BT_FIELDS_H
#define BT_FIELDS_H

#include "text/pattern.h"

#include <jansson.h>

/* How deep a Sequence may stand within others, and how many steps they may
 * have together: far more than any tokenizer has. */
enum { BT_SEQUENCE_DEPTH = 8, BT_STEPS_MAX = 32 };

/* The value of "type", or NULL. */
const char *bt_field_type(const json_t *json);

bauta_status bt_field_bool(bool *out, const json_t *json, const char *key,
                           const char *path, bauta_error *err);
/* The string lives as long as the object. */
bauta_status bt_field_string(const char **out, const json_t *json,
                             const char *key, const char *path,
                             bauta_error *err);
/* A string of exactly one character. */
bauta_status bt_field_char(uint32_t *out, const json_t *json, const char *key,
                           const char *path, bauta_error *err);
/* "pattern": {"String": ...} or {"Regex": ...}; it must be there. */
bauta_status bt_field_pattern(bt_pattern **out, const json_t *json,
                              const char *path, bauta_error *err);

#endif
