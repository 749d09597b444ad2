/* SPDX-License-Identifier: Apache-2.0 */
/* bytelevel.h - the alphabet of byte-level vocabularies.
 *
 * A vocabulary of arbitrary bytes cannot be stored as JSON. GPT-2 represents a
 * byte by a printable character: itself if it is printable in Latin-1, and for
 * the other 68, in order, U+0100 and up. */
#ifndef BT_BYTELEVEL_H
#define BT_BYTELEVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character for a byte. */
uint32_t bt_bytelevel_char(unsigned char byte);

/* Decode to bytes: at most `size` bytes are written to `out`, which may be
 * `text` itself. False if a character is not in the alphabet. */
bool bt_bytelevel_decode(char *out, size_t *out_size, const char *text,
                         size_t size);
/* Encode, NUL-terminated; `out` has room for 2 * size + 1 bytes. Returns the
 * length without the NUL. */
size_t bt_bytelevel_encode(char *out, const char *bytes, size_t size);

#endif
