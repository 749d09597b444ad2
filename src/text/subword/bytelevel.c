/* SPDX-License-Identifier: Apache-2.0 */
/* bytelevel.c - see bytelevel.h.
 *
 *     byte        0-32      33-126  127-160   161-172  173    174-255
 *     character   256-288   same    289-322   same     323    same */
#include "text/subword/bytelevel.h"

#include "base/utf8.h"

uint32_t bt_bytelevel_char(unsigned char byte)
{
    if (byte <= 32)
        return 256u + byte;
    if (byte >= 127 && byte <= 160)
        return 289u + (byte - 127u);
    return byte == 173 ? 323 : byte;
}

/* The byte of a character, or -1. */
static int byte_of(uint32_t code)
{
    if (code < 256)
        return bt_bytelevel_char((unsigned char)code) == code ? (int)code : -1;
    if (code <= 288)
        return (int)code - 256;
    if (code <= 322)
        return (int)code - 289 + 127;
    return code == 323 ? 173 : -1;
}

bool bt_bytelevel_decode(char *out, size_t *out_size, const char *text,
                         size_t size)
{
    size_t count = 0;
    for (size_t i = 0, length; i < size; i += length) {
        int byte = (unsigned char)text[i];
        if (byte > 32 && byte < 127) // most bytes represent themselves
            length = 1;
        else
            byte = byte_of(bt_utf8_decode(text + i, size - i, &length));
        if (byte < 0)
            return false;
        out[count++] = (char)byte;
    }
    *out_size = count;
    return true;
}

size_t bt_bytelevel_encode(char *out, const char *bytes, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += bt_utf8_encode(out + count,
                                bt_bytelevel_char((unsigned char)bytes[i]));
    out[count] = '\0';
    return count;
}
