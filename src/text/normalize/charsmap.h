/* SPDX-License-Identifier: Apache-2.0 */
/* charsmap.h - SentencePiece's precompiled_charsmap: character sequences and
 * their replacements.
 *
 *     4 bytes   size of the trie, little endian
 *     trie      a double array of 32-bit units, walked byte by byte
 *     forms     NUL-terminated replacements; a leaf of the trie holds the
 *               offset of one
 *
 * Every index is checked when it is used, since the map comes from a file. */
#ifndef BT_CHARSMAP_H
#define BT_CHARSMAP_H

#include "bauta.h"

typedef struct bt_charsmap bt_charsmap;

/* The bytes are copied. */
bauta_status bt_charsmap_create(bt_charsmap **out, const void *bytes,
                                size_t size, const char *path,
                                bauta_error *err);
void bt_charsmap_free(bt_charsmap *map);

/* Find the longest (or shortest) prefix of the text in the map; returns its
 * length, or 0, and its replacement. */
size_t bt_charsmap_find(const bt_charsmap *map, const char *text, size_t size,
                        bool longest, const char **form, size_t *form_size);

#endif
