/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.h - a vocabulary: pieces and their ids.
 *
 * Pieces are any bytes. Ids may have gaps and come in any order, but no piece
 * and no id may occur twice. Ids are below BT_VOCAB_MAX, and all pieces
 * together have at most BT_VOCAB_BYTES_MAX bytes, which bounds the memory that
 * a file can request. The largest vocabulary we know has 901629 pieces of 10
 * MB. */
#ifndef BT_VOCAB_H
#define BT_VOCAB_H

#include "bauta.h"

enum { BT_VOCAB_MAX = 1 << 21, BT_VOCAB_BYTES_MAX = 16 << 20 };

typedef struct bt_vocab bt_vocab;

bauta_status bt_vocab_create(bt_vocab **out, bauta_error *err);
void bt_vocab_free(bt_vocab *vocab);

/* The bytes are copied. A duplicate piece or id and an id beyond the limit are
 * errors; the message does not name the file. */
bauta_status bt_vocab_add(bt_vocab *vocab, const char *piece, size_t size,
                          uint32_t id, bauta_error *err);

/* 1 + the largest id. */
size_t bt_vocab_size(const bt_vocab *vocab);
/* The id of a piece, or UINT32_MAX. */
uint32_t bt_vocab_find(const bt_vocab *vocab, const char *piece, size_t size);
/* The piece of an id, NUL-terminated; NULL if there is none. Valid until the
 * next bt_vocab_add(). */
const char *bt_vocab_piece(const bt_vocab *vocab, uint32_t id, size_t *size);

#endif
