/* SPDX-License-Identifier: Apache-2.0 */
/* label.c - labels with visible white space. */
#include "draw/label.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

static uint32_t visible(uint32_t code)
{
    switch (code) {
    case ' ':
        return 0x2423; // open box
    case '\n':
        return 0x21B5; // the arrow of the return key
    case '\t':
        return 0x21E5;
    case 0x00A0: // no break
    case 0x3000: // ideographic
        return 0x2423;
    default:
        return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 ||
                       code == 0x2029
                   ? BT_UTF8_REPLACEMENT
                   : code;
    }
}

/* At most `most` characters of a text, each mapped by `map`. */
static void copy(char out[BT_LABEL_MAX], const char *text, size_t most,
                 uint32_t (*map)(uint32_t))
{
    size_t used = 0, count = 0, left = strlen(text), length;
    for (; left > 0; text += length, left -= length, count++) {
        uint32_t code = bt_utf8_decode(text, left, &length);
        bool last = left == length;
        // Room for this character, the ellipsis and the NUL.
        if ((!last && count + 1 >= most) || used + 8 > BT_LABEL_MAX) {
            used += bt_utf8_encode(out + used, 0x2026);
            break;
        }
        used += bt_utf8_encode(out + used, map(code));
    }
    out[used] = '\0';
}

void bt_label(char out[BT_LABEL_MAX], const char *text, size_t number,
              size_t most)
{
    if (!text)
        snprintf(out, BT_LABEL_MAX, "%zu", number);
    else
        copy(out, *text ? text : "\u2205", most, visible);
}

static uint32_t visible_in_title(uint32_t code)
{
    return code == ' ' || code == '\n' || code == '\t' ? ' ' : visible(code);
}

void bt_title(char out[BT_LABEL_MAX], const char *text, size_t most)
{
    copy(out, text, most, visible_in_title);
}
