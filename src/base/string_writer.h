/* SPDX-License-Identifier: Apache-2.0 */
/* string_writer.h - text into a caller's buffer, the way snprintf does it: as
 * much as fits is written, and everything is counted.
 *
 * Numbers with a fraction go through bt_put_real() and bt_put_fixed(), which
 * write a decimal point in every locale. printf does not: under de_DE it writes
 * "0,5", which is not JSON. */
#ifndef BT_STRING_WRITER_H
#define BT_STRING_WRITER_H

#include <stddef.h>
#include <stdint.h>

typedef struct bt_string_writer {
    char *text;    /* may be NULL where size is 0 */
    size_t size;   /* of text, its NUL included */
    size_t length; /* of everything so far */
} bt_string_writer;

void bt_put_bytes(bt_string_writer *w, const char *bytes, size_t length);
/* One character, `times` times. */
void bt_put_fill(bt_string_writer *w, char c, size_t times);
void bt_put_text(bt_string_writer *w, const char *text);
/* As printf; at most 255 bytes, and no conversion of a floating-point number.
 */
void bt_put(bt_string_writer *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void bt_put_integer(bt_string_writer *w, uint64_t number);
/* "%.<digits>g" and "%.<decimals>f" of the C locale. JSON has no NaN and no
 * infinity: they become null. */
void bt_put_real(bt_string_writer *w, double value, int digits);
void bt_put_fixed(bt_string_writer *w, double value, int decimals);
/* A JSON string. */
void bt_put_string(bt_string_writer *w, const char *text);

/* End the text with a NUL, where there is room for one. Returns its length. */
size_t bt_put_end(bt_string_writer *w);

/* Replace the decimal separator of any locale, which may be several bytes, in a
 * number that printf wrote. */
void bt_decimal_point(char *number);

#endif
