/* SPDX-License-Identifier: Apache-2.0 */
/* number.h - numbers as Python reads and writes them, in every locale. */
#ifndef BT_CHAT_NUMBER_H
#define BT_CHAT_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BT_CHAT_NUMBER_BYTES = 400 }; /* room for any number */

/* A number that fills `size` bytes, with "_" between digits. `base` 0 takes the
 * prefixes 0x, 0o and 0b. False if it is malformed or out of range. */
bool bt_chat_read_integer(int64_t *out, const char *bytes, size_t size,
                          int base);
bool bt_chat_read_real(double *out, const char *bytes, size_t size);

/* The shortest digits that read back as the same number: "0.1", "1e+16". */
size_t bt_chat_write_real(char out[BT_CHAT_NUMBER_BYTES], double value);
/* printf's 'f', 'e' or 'g' with this precision (at most 60). */
size_t bt_chat_write_fixed(char out[BT_CHAT_NUMBER_BYTES], double value,
                           char conversion, int precision);

#endif
