/* SPDX-License-Identifier: Apache-2.0 */
/* json_members.h - members of the JSON objects of a tokenizer, and lines of its
 * text files. A member that is absent or null is as if it were not given. */
#ifndef BT_JSON_MEMBERS_H
#define BT_JSON_MEMBERS_H

#include "text/subword/vocab.h"

#include <jansson.h>

/* The next line of a text, without its end; false past the last one. */
bool bt_next_line(const char **line, size_t *length, const char **at,
                  const char *end);
/* A member that is not null, or NULL. */
json_t *bt_member_get(const json_t *object, const char *key);
/* "FILE: "key" is not ..." */
bauta_status bt_member_fail(const char *path, const char *key, const char *what,
                            bauta_error *err);
/* A boolean, false by default. */
bauta_status bt_member_bool(bool *out, const json_t *object, const char *key,
                            const char *path, bauta_error *err);
/* A string without NUL; NULL if it is absent or empty. */
bauta_status bt_member_string(const char **out, const json_t *object,
                              const char *key, const char *path,
                              bauta_error *err);
/* A token id; `what` names it in messages. */
bauta_status bt_member_token_id(uint32_t *out, const json_t *value,
                                const char *what, const char *path,
                                bauta_error *err);
/* Add a piece; a message of failure names the file. */
bauta_status bt_vocab_add_from_file(bt_vocab *vocab, const char *piece,
                                    size_t size, uint32_t id, const char *path,
                                    bauta_error *err);

#endif
