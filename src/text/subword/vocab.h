/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.h - a vocabulary: pieces and their ids, both ways.
 *
 * Pieces are any bytes. Ids may have gaps and come in any order, but neither a
 * piece nor an id may come twice. An id is below BT_VOCAB_MAX, and the pieces
 * have BT_VOCAB_BYTES_MAX bytes together, so that what a file can make us
 * allocate is bounded. The largest vocabulary we know has 901629 pieces of
 * 10 MB. */
#ifndef BT_VOCAB_H
#define BT_VOCAB_H

#include "bauta.h"

enum { BT_VOCAB_MAX = 1 << 21, BT_VOCAB_BYTES_MAX = 16 << 20 };

typedef struct bt_vocab bt_vocab;

bauta_status bt_vocab_create(bt_vocab **out, bauta_error *err);
void bt_vocab_free(bt_vocab *vocab);

/* The bytes are copied. A piece or id that is there already, and an id beyond
 * the limit, are errors that name it (and not the file: the caller does). */
bauta_status bt_vocab_add(bt_vocab *vocab, const char *piece, size_t size,
                          uint32_t id, bauta_error *err);

/* 1 + the largest id. */
size_t bt_vocab_size(const bt_vocab *vocab);
/* The id of a piece, or UINT32_MAX. */
uint32_t bt_vocab_find(const bt_vocab *vocab, const char *piece, size_t size);
/* The piece of an id, with a NUL behind it; NULL when there is none. Lives
 * until the next bt_vocab_add(). */
const char *bt_vocab_piece(const bt_vocab *vocab, uint32_t id, size_t *size);

#endif
