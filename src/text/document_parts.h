/* SPDX-License-Identifier: Apache-2.0 */
/* document_parts.h - what the readers of a tokenizer.json's parts share. */
#ifndef BT_DOCUMENT_PARTS_H
#define BT_DOCUMENT_PARTS_H

#include "text/document.h"

/* A tokenizer being read. */
typedef struct bt_reading {
    bauta_tokenizer *tokenizer;
    const json_t *model; /* the value of "model" */
    const char *path;
    const bt_document *document;
} bt_reading;

/* Fill in vocabulary and model; the pre-tokenizer is there already. */
bauta_status bt_reading_model(const bt_reading *reading, bauta_error *err);

/* The next line of a text, without its end; false past the last one. */
bool bt_part_line(const char **line, size_t *length, const char **at,
                  const char *end);
/* A value that is there and is not null. */
json_t *bt_part_given(const json_t *object, const char *key);
/* "FILE: "key" is not ..." */
bauta_status bt_part_wrong(const char *path, const char *key, const char *what,
                           bauta_error *err);
/* A switch, false where it is not given. */
bauta_status bt_part_flag(bool *out, const json_t *object, const char *key,
                          const char *path, bauta_error *err);
/* A string without NUL, NULL where it is not given or empty. */
bauta_status bt_part_string(const char **out, const json_t *object,
                            const char *key, const char *path,
                            bauta_error *err);
/* The id of a piece `what`. */
bauta_status bt_part_id(uint32_t *out, const json_t *value, const char *what,
                        const char *path, bauta_error *err);
/* Add a piece; the vocabulary does not know the file, whose name its sentence
 * gets here. */
bauta_status bt_part_piece(bt_vocab *vocab, const char *piece, size_t size,
                           uint32_t id, const char *path, bauta_error *err);

#endif
