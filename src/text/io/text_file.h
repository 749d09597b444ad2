/* SPDX-License-Identifier: Apache-2.0 */
/* text_file.h - reading text files, for the library and the program. The rules
 * are in bauta.h, section 12. */
#ifndef BT_TEXT_FILE_H
#define BT_TEXT_FILE_H

#include "bauta.h"

/* The longest line, and the longest part of a document that is tokenized at
 * once, in bytes. */
enum { BT_TEXT_LINE_MAX = 64 << 20 };

typedef struct bt_text_line {
    const char *text;       /* until the next call; NULL after the last line */
    size_t size;            /* without the line break */
    size_t size_with_break; /* with it */
    size_t number;          /* from 1 */
    const char *error;      /* "is not UTF-8" or "holds NUL", or NULL */
    size_t error_at;        /* the byte, from 0 */
} bt_text_line;

/* The next line, valid or not; fails if the file cannot be read or the line is
 * too long. */
bauta_status bt_text_file_next_line(bauta_text_file *file, bt_text_line *line,
                                    bauta_error *err);
/* The error for a line: file, number and `what` is wrong. */
bauta_status bt_text_file_fail(const bauta_text_file *file, size_t number,
                               const char *what, bauta_error *err);
/* The error for an invalid line. */
bauta_status bt_text_file_fail_invalid(const bauta_text_file *file,
                                       const bt_text_line *line,
                                       bauta_error *err);
/* For messages: the end of the path, or "standard input". */
const char *bt_text_file_name(const bauta_text_file *file);
/* Bytes of text that were returned so far. */
uint64_t bt_text_file_bytes(const bauta_text_file *file);

#endif
