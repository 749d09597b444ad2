/* SPDX-License-Identifier: Apache-2.0 */
/* step_json.h - the steps of a component of tokenizer.json (normalizer,
 * pre_tokenizer, post_processor, decoder) and their members.
 *
 * A component is one step or a Sequence of steps. A member of a step that is
 * absent or null leaves *out unchanged. One of the wrong type is an error that
 * names the file, the step and the member. */
#ifndef BT_STEP_JSON_H
#define BT_STEP_JSON_H

#include "text/regex.h"

#include <jansson.h>

/* How deep Sequences may be nested, and how many steps a normalizer or a
 * pre-tokenizer may have: far more than any tokenizer has. */
enum { BT_SEQUENCE_DEPTH_MAX = 16, BT_STEPS_MAX = 32 };

/* How to read the steps of a component. */
typedef struct bt_step_reader {
    const char *what; /* names a step in messages: "normalizer" */
    const char *list; /* the list of a Sequence: "normalizers" */
    const char *path; /* of the file, for messages */
    bauta_status (*parse)(void *user, const char *type, const json_t *json);
    void *user;
    bauta_error *err;
} bt_step_reader;

/* Call parse() with each step in order. */
bauta_status bt_steps_parse(const bt_step_reader *reader, const json_t *json);

/* The value of "type", or NULL. */
const char *bt_step_type(const json_t *json);

bauta_status bt_step_bool(bool *out, const json_t *json, const char *key,
                          const char *path, bauta_error *err);
/* The string belongs to the object. */
bauta_status bt_step_string(const char **out, const json_t *json,
                            const char *key, const char *path,
                            bauta_error *err);
/* A string of exactly one character. */
bauta_status bt_step_char(uint32_t *out, const json_t *json, const char *key,
                          const char *path, bauta_error *err);
/* "pattern": {"String": ...} or {"Regex": ...}; it is required. */
bauta_status bt_step_regex(bt_regex **out, const json_t *json, const char *path,
                           bauta_error *err);

#endif
