/* SPDX-License-Identifier: Apache-2.0 */
/* string_writer.c - see string_writer.h. */
#include "base/string_writer.h"

#include "base/size.h"
#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void bt_put_bytes(bt_string_writer *w, const char *bytes, size_t length)
{
    if (w->length < w->size) // the last byte is for the NUL
        memcpy(w->text + w->length, bytes,
               bt_size_min(length, w->size - 1 - w->length));
    w->length += length;
}

void bt_put_fill(bt_string_writer *w, char c, size_t times)
{
    if (w->length < w->size)
        memset(w->text + w->length, c,
               bt_size_min(times, w->size - 1 - w->length));
    w->length += times;
}

void bt_put_text(bt_string_writer *w, const char *text)
{
    bt_put_bytes(w, text, strlen(text));
}

void bt_put(bt_string_writer *w, const char *format, ...)
{
    char piece[256];
    va_list args;
    va_start(args, format);
    vsnprintf(piece, sizeof(piece), format, args);
    va_end(args);
    bt_put_text(w, piece);
}

void bt_put_integer(bt_string_writer *w, uint64_t number)
{
    char digits[21];
    size_t at = sizeof(digits);
    digits[--at] = '\0';
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    bt_put_text(w, digits + at);
}

/* Any bytes that cannot be part of a number are the separator. */
void bt_decimal_point(char *number)
{
    char *to = number;
    bool in_separator = false;
    for (const char *from = number; *from; from++) {
        bool own = strchr("0123456789+-eE", *from);
        if (own || !in_separator)
            *to++ = own ? *from : '.';
        in_separator = !own;
    }
    *to = '\0';
}

static void put_number(bt_string_writer *w, const char *format, int precision,
                       double value)
{
    char number[400]; // "%f" of the largest double has 309 digits
    if (!isfinite(value)) {
        bt_put_text(w, "null");
        return;
    }
    snprintf(number, sizeof(number), format, precision, value);
    bt_decimal_point(number);
    bt_put_text(w, number);
}

void bt_put_real(bt_string_writer *w, double value, int digits)
{
    put_number(w, "%.*g", digits, value);
}

void bt_put_fixed(bt_string_writer *w, double value, int decimals)
{
    put_number(w, "%.*f", decimals, value);
}

void bt_json_escape(char out[8], uint32_t code, bool script)
{
    bool separator = code == 0x2028 || code == 0x2029;
    if (code == '"' || code == '\\')
        snprintf(out, 8, "\\%c", (char)code);
    else if (code < 0x20 || code == 0x7F ||
             (script && (code == '<' || separator)))
        snprintf(out, 8, "\\u%04x", (unsigned)code & 0xFFFFu);
    else
        out[bt_utf8_encode(out, code)] = '\0';
}

void bt_put_string(bt_string_writer *w, const char *text)
{
    size_t left = strlen(text), length;
    char escaped[8];
    bt_put_text(w, "\"");
    for (; left > 0; text += length, left -= length) {
        bt_json_escape(escaped, bt_utf8_decode(text, left, &length), false);
        bt_put_text(w, escaped);
    }
    bt_put_text(w, "\"");
}

size_t bt_put_end(bt_string_writer *w)
{
    if (w->size)
        w->text[bt_size_min(w->length, w->size - 1)] = '\0';
    return w->length;
}
