/* SPDX-License-Identifier: Apache-2.0 */
/* boundary.h - where a text may be cut in two without changing its tokens.
 *
 * The tokens of both parts, encoded bare and put together, are those of the
 * whole. This is what lets a document be larger than memory. Whether there is
 * such a place depends on the tokenizer's steps alone:
 *
 *   - no added token reaches across it: none has a character and then white
 *     space in it, takes the white space after it along, or looks at its
 *     neighbours;
 *   - every step of the normalizer maps characters, or is a normal form; or
 *     white space at the ends goes, and Metaspace puts a space back;
 *   - every pre-tokenizer decides by the two characters on both sides of a
 *     place, or is GPT-2's or Llama 3's pattern, and one of them cuts before
 *     white space.
 *
 * Then a cut may be made before a space or a line break that follows a
 * character which no step removes or turns into white space. Tokenizers of
 * single bytes or characters may be cut anywhere. Others, such as
 * SentencePiece's, whose model sees the whole text, nowhere. */
#ifndef BT_BOUNDARY_H
#define BT_BOUNDARY_H

#include "text/tokenizer.h"

typedef struct bt_boundary {
    bool anywhere;
    bool spaces;      /* before a space */
    bool line_breaks; /* before a line break */
    bool ascii;       /* only after ASCII: others may be normalised away */
    bool words;       /* a line break only after a letter or a number */
    bool single;      /* only before a single space: ASCII follows, too */
} bt_boundary;

bt_boundary bt_boundary_of(const bauta_tokenizer *tokenizer);

/* The last such place in (from, size), or 0. */
size_t bt_boundary_last(bt_boundary boundary, const char *text, size_t from,
                        size_t size);

#endif
