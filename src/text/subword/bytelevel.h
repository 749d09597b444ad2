/* SPDX-License-Identifier: Apache-2.0 */
/* bytelevel.h - the alphabet in which byte-level vocabularies are written.
 *
 * A vocabulary of bytes cannot be JSON. GPT-2 wrote byte b as a printable
 * character: itself for the printable ones of Latin-1, and for the other 68,
 * in order, U+0100 and on. */
#ifndef BT_BYTELEVEL_H
#define BT_BYTELEVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character for a byte. */
uint32_t bt_bytelevel_char(unsigned char byte);

/* From the alphabet to bytes: at most `size` bytes are written to `out`, which
 * may be `text` itself. False when a character is not of the alphabet. */
bool bt_bytelevel_decode(char *out, size_t *out_size, const char *text,
                         size_t size);
/* And back, NUL-terminated; `out` has room for 2 * size + 1 bytes. Returns how
 * many there are without the NUL. */
size_t bt_bytelevel_encode(char *out, const char *bytes, size_t size);

#endif
