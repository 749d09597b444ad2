/* SPDX-License-Identifier: Apache-2.0 */
/* charsmap.h - SentencePiece's precompiled map from character sequences to
 * their normal forms.
 *
 *     4 bytes   size of the trie, little endian
 *     trie      a double array of 32-bit units, walked byte by byte
 *     forms     strings, each with a NUL behind it; a leaf of the trie holds
 *               where its string begins
 *
 * Every index is checked when it is used: the map comes from a file. */
#ifndef BT_CHARSMAP_H
#define BT_CHARSMAP_H

#include "bauta.h"

typedef struct bt_charsmap bt_charsmap;

/* The bytes are copied. */
bauta_status bt_charsmap_create(bt_charsmap **out, const void *bytes,
                                size_t size, const char *path,
                                bauta_error *err);
void bt_charsmap_free(bt_charsmap *map);

/* The longest (or shortest) prefix of text that the map has; returns its
 * length, 0 when there is none, and its form. */
size_t bt_charsmap_find(const bt_charsmap *map, const char *text, size_t size,
                        bool longest, const char **form, size_t *form_size);

#endif
