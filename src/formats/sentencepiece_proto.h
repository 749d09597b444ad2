/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece_proto.h - SentencePiece's model file: one protobuf message.
 *
 *     1 pieces[]        1 piece (text), 2 score (float), 3 type
 *     2 trainer_spec    3 model_type, 24 treat_whitespace_as_suffix,
 *                       26 allow_whitespace_only_pieces, 35 byte_fallback,
 *                       44 unk_surface, 45 to 48 unk, bos, eos, pad pieces
 *     3 normalizer_spec 2 precompiled_charsmap, 3 add_dummy_prefix,
 *                       4 remove_extra_whitespaces, 5 escape_whitespaces
 *     5 denormalizer_spec  like 3
 *
 * Other fields are skipped; these must have the right type. Every length is
 * checked against the enclosing message, and errors give the byte offset. The
 * reader accepts what SentencePiece itself loads: pieces are not empty, there
 * is one unknown piece, and byte pieces are complete or absent. */
#ifndef BT_SENTENCEPIECE_PROTO_H
#define BT_SENTENCEPIECE_PROTO_H

#include "bauta.h"

enum {
    BT_PIECES_MAX = 1 << 21,
    BT_PIECE_BYTES_MAX = 7999 /* SentencePiece's own limit */
};

typedef enum bt_piece_type {
    BT_PIECE_NORMAL = 1,
    BT_PIECE_UNKNOWN = 2,
    BT_PIECE_CONTROL = 3, /* never matched in text: <s> */
    BT_PIECE_USER = 4,    /* user-defined: always one piece */
    BT_PIECE_UNUSED = 5,
    BT_PIECE_BYTE = 6 /* <0x00> to <0xFF> */
} bt_piece_type;

typedef enum bt_piece_model {
    BT_PIECE_MODEL_UNIGRAM = 1,
    BT_PIECE_MODEL_BPE = 2,
    BT_PIECE_MODEL_WORD = 3,
    BT_PIECE_MODEL_CHAR = 4
} bt_piece_model;

/* Bytes of the file; not NUL-terminated. */
typedef struct bt_byte_view {
    const char *bytes; /* NULL if the file does not have the field */
    size_t size;
} bt_byte_view;

typedef struct bt_piece {
    bt_byte_view text; /* well-formed UTF-8 without NUL */
    float score;       /* finite */
    bt_piece_type type;
} bt_piece;

typedef struct bt_sentencepiece {
    bt_piece *pieces; /* by id */
    size_t count, capacity;
    uint32_t unknown; /* the id of the unknown piece */

    bt_piece_model model;
    bool byte_fallback;
    bool whitespace_suffix; /* whitespace ends a word instead of beginning it */
    bool whitespace_only_pieces; /* pieces may consist of whitespace only */
    bt_byte_view unk_surface, unk_piece, bos_piece, eos_piece, pad_piece;

    bt_byte_view charsmap, denormalizer_charsmap;
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
} bt_sentencepiece;

/* Read a file in memory, which must outlive the model. Release the model even
 * after a failure. */
bauta_status bt_sentencepiece_parse(bt_sentencepiece *model, const void *bytes,
                                    size_t size, const char *path,
                                    bauta_error *err);
void bt_sentencepiece_release(bt_sentencepiece *model);

/* The byte of a piece such as "<0x41>", or -1. */
int bt_piece_byte(const char *piece, size_t size);

#endif
