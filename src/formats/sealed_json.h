/* SPDX-License-Identifier: Apache-2.0 */
/* sealed_json.h - JSON files with a checksum.
 *
 * The member "seal" is a digest of all other members, so that a changed file is
 * rejected, and not only a truncated one. Whitespace and the order of members
 * do not matter. */
#ifndef BT_SEALED_JSON_H
#define BT_SEALED_JSON_H

#include "bauta.h"

#include <jansson.h>

/* Largest file in bytes, which bounds the memory of its values. */
enum { BT_SEALED_JSON_MAX = 256 << 10 };

/* Set the seal of an object and return its text, for bt_free(). */
bauta_status bt_sealed_json_text(char **out, json_t *object, const char *path,
                                 bauta_error *err);
/* Parse and check a text, for json_decref(). `path` is its name in errors. */
bauta_status bt_sealed_json_parse(json_t **out, const char *text, size_t size,
                                  const char *path, bauta_error *err);
/* Read and check a file, for json_decref(). */
bauta_status bt_sealed_json_read(json_t **out, const char *path,
                                 bauta_error *err);

#endif
