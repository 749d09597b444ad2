/* SPDX-License-Identifier: Apache-2.0 */
/* number.c - see number.h. */
#include "text/chat/number.h"

#include "base/string_writer.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int digit_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'z' ? c - 'a' + 10
           : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                  : 99;
}

/* Skip "0x" and the like, and return the base. */
static int base_of(const char **bytes, size_t *size, int base)
{
    char mark = (char)(*size > 2 && **bytes == '0' ? (*bytes)[1] | 0x20 : 0);
    int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (!marked || (base != 0 && base != marked))
        return base ? base : 10;
    *bytes += 2;
    *size -= 2;
    return marked;
}

bool bt_chat_read_integer(int64_t *out, const char *bytes, size_t size,
                          int base)
{
    int64_t value = 0;
    bool minus = size && *bytes == '-';
    if (size && (*bytes == '-' || *bytes == '+')) {
        bytes++;
        size--;
    }
    base = base_of(&bytes, &size, base);
    if (!size || *bytes == '_' || bytes[size - 1] == '_')
        return false;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] == '_' && bytes[i - 1] != '_')
            continue;
        int digit = digit_value(bytes[i]);
        if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
            __builtin_sub_overflow(value, digit, &value))
            return false;
    }
    // Negative numbers reach one further, so the sum is kept negative.
    if (!minus && value == INT64_MIN)
        return false;
    *out = minus ? value : -value;
    return true;
}

bool bt_chat_read_real(double *out, const char *bytes, size_t size)
{
    char number[BT_CHAT_NUMBER_BYTES];
    size_t n = 0;
    if (size >= sizeof(number) || !size)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!strchr("0123456789+-.eE_", bytes[i]) || !bytes[i])
            return false;
        if (bytes[i] == '.')
            number[n++] = *localeconv()->decimal_point;
        else if (bytes[i] != '_')
            number[n++] = bytes[i];
    }
    number[n] = '\0';
    char *end;
    *out = strtod(number, &end);
    return n > 0 && !*end && isfinite(*out);
}

/* NaN and infinity as Python prints them. */
static size_t not_finite(char *out, double value)
{
    strcpy(out, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    return strlen(out);
}

size_t bt_chat_write_real(char out[BT_CHAT_NUMBER_BYTES], double value)
{
    char e[64], digits[20];
    int precision = 0, exponent, count = 0;
    size_t n = 0;
    if (!isfinite(value))
        return not_finite(out, value);
    do // the shortest that reads back
        snprintf(e, sizeof(e), "%.*e", precision, value);
    while (strtod(e, NULL) != value && ++precision < 17);
    const char *power = strchr(e, 'e');
    for (const char *c = e; c < power; c++)
        if (*c >= '0' && *c <= '9' && count < 18)
            digits[count++] = *c;
    exponent = atoi(power + 1);
    if (signbit(value))
        out[n++] = '-';
    if (exponent < -4 || exponent >= 16) {
        for (int i = 0; i < count; i++) {
            if (i == 1)
                out[n++] = '.';
            out[n++] = digits[i];
        }
        n += (size_t)snprintf(out + n, 16, "e%s%02d", exponent < 0 ? "-" : "+",
                              abs(exponent));
    } else {
        // One digit before the point and one after it at least.
        int first = exponent < 0 ? exponent : 0;
        int last = count - 1 > exponent + 1 ? count - 1 : exponent + 1;
        for (int i = first; i <= last; i++) {
            if (exponent >= 0 && i == exponent + 1)
                out[n++] = '.';
            out[n++] = (char)(i >= 0 && i < count ? digits[i] : '0');
            if (i == first && exponent < 0)
                out[n++] = '.';
        }
    }
    out[n] = '\0';
    return n;
}

size_t bt_chat_write_fixed(char out[BT_CHAT_NUMBER_BYTES], double value,
                           char conversion, int precision)
{
    char format[] = { '%', '.', '*', conversion, '\0' };
    if (!isfinite(value))
        return not_finite(out, value);
        // The format is one of three that are built here.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(out, BT_CHAT_NUMBER_BYTES, format, precision, value);
#pragma GCC diagnostic pop
    bt_decimal_point(out);
    return strlen(out);
}
