/* SPDX-License-Identifier: Apache-2.0 */
/* string_writer.h - text written to a caller's buffer with snprintf's contract:
 * as much as fits is written, and the full length is counted.
 *
 * bt_put_real() and bt_put_fixed() write a decimal point in every locale,
 * unlike printf, which under de_DE writes "0,5": not JSON. */
#ifndef BT_STRING_WRITER_H
#define BT_STRING_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bt_string_writer {
    char *text;    /* may be NULL where size is 0 */
    size_t size;   /* of text, including the NUL */
    size_t length; /* of everything written so far, even if it did not fit */
} bt_string_writer;

void bt_put_bytes(bt_string_writer *w, const char *bytes, size_t length);
/* A character repeated. */
void bt_put_fill(bt_string_writer *w, char c, size_t times);
void bt_put_text(bt_string_writer *w, const char *text);
/* Like printf, for at most 255 bytes and no floating-point conversions. */
void bt_put(bt_string_writer *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void bt_put_integer(bt_string_writer *w, uint64_t number);
/* "%.<digits>g" and "%.<decimals>f" in the C locale. NaN and infinity, which
 * JSON lacks, become null. */
void bt_put_real(bt_string_writer *w, double value, int digits);
void bt_put_fixed(bt_string_writer *w, double value, int decimals);
/* A quoted and escaped JSON string. Invalid UTF-8 becomes U+FFFD. */
void bt_put_string(bt_string_writer *w, const char *text);
/* The form of a character in a JSON string: itself, or escaped. `script`: also
 * escape what a script inside an HTML page must not contain, '<' and the line
 * separators of JavaScript. */
void bt_json_escape(char out[8], uint32_t code, bool script);

/* Write the NUL if the buffer has any room. Returns the full length. */
size_t bt_put_end(bt_string_writer *w);

/* Replace the locale's decimal separator, which may be several bytes, by a
 * point in a number that printf wrote. */
void bt_decimal_point(char *number);

#endif
