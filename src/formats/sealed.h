/* SPDX-License-Identifier: Apache-2.0 */
/* sealed.h - a JSON object that knows whether it is whole.
 *
 * Its member "seal" is a digest of all the others, so that a file of which a
 * digit has changed is refused, and not only one that ends too early. Spaces
 * and the order of members do not matter. */
#ifndef BT_SEALED_H
#define BT_SEALED_H

#include "bauta.h"

#include <jansson.h>

/* Bytes of such a file; what jansson makes of them in memory stays small. */
enum { BT_SEALED_MAX = 256 << 10 };

/* The text of an object, which gets its seal, for bt_free(). */
bauta_status bt_sealed_text(char **out, json_t *object, const char *path,
                            bauta_error *err);
/* A text that `path` is the name of, for json_decref(). */
bauta_status bt_sealed_parse(json_t **out, const char *text, size_t size,
                             const char *path, bauta_error *err);
/* A file, likewise. */
bauta_status bt_sealed_read(json_t **out, const char *path, bauta_error *err);

#endif
