/* SPDX-License-Identifier: Apache-2.0 */
/* chunk_boundary.h - where a text can be split into chunks that are tokenized
 * independently.
 *
 * The tokens of both chunks, encoded without special tokens and concatenated,
 * equal those of the whole text. So a document may be larger than memory.
 * Whether there are such positions depends on the tokenizer's steps only:
 *
 *   - no added token reaches across: none contains white space after another
 *     character, includes the white space after it (rstrip), or depends on its
 *     neighbours (single_word);
 *   - every normalizer maps single characters or is a Unicode normal form; or
 *     it strips white space at the ends and Metaspace puts a space back;
 *   - every pre-tokenizer decides by the two characters on both sides of a
 *     position, or is GPT-2's or Llama 3's pattern, and one of them splits
 *     before white space.
 *
 * Then a chunk may end before a space or a line break that follows a character
 * which no step removes or turns into white space. Tokenizers of single bytes
 * or characters can be split anywhere; others, such as SentencePiece's, whose
 * model sees the whole text, nowhere. */
#ifndef BT_CHUNK_BOUNDARY_H
#define BT_CHUNK_BOUNDARY_H

#include "text/tokenizer.h"

typedef struct bt_chunk_boundary {
    bool anywhere;
    bool spaces;       /* before a space */
    bool line_breaks;  /* before a line break */
    bool after_ascii;  /* only after ASCII: other characters may vanish */
    bool after_word;   /* a line break only after a letter or a number */
    bool single_space; /* only before a single space that ASCII follows */
} bt_chunk_boundary;

bt_chunk_boundary bt_chunk_boundary_of(const bauta_tokenizer *tokenizer);

/* The last such position in (from, size), or 0. */
size_t bt_chunk_boundary_last(bt_chunk_boundary boundary, const char *text,
                              size_t from, size_t size);

#endif
