/* SPDX-License-Identifier: Apache-2.0 */
/* text_file.h - texts from files, inside: the one reader of the library and of
 * the program. The rule is in bauta.h, section 12. */
#ifndef BT_TEXT_FILE_H
#define BT_TEXT_FILE_H

#include "bauta.h"

/* The longest line, and the longest part of a document that a tokenizer has to
 * see at once. */
enum { BT_TEXT_LONGEST = 64 << 20 };

typedef struct bt_line {
    const char *text;  /* until the next call; NULL behind the last line */
    size_t size;       /* without the line break */
    size_t whole;      /* with it */
    size_t number;     /* from 1 */
    const char *wrong; /* "is not UTF-8" or "holds NUL", or NULL */
    size_t wrong_at;   /* which byte, from 0 */
} bt_line;

/* The next line, good or bad; fails where the file cannot be read, or the line
 * is too long. */
bauta_status bt_text_file_next(bauta_text_file *file, bt_line *line,
                               bauta_error *err);
/* The sentence for a line: file, number, and `what` is wrong. */
bauta_status bt_text_file_fail(const bauta_text_file *file, size_t number,
                               const char *what, bauta_error *err);
/* And for a bad one. */
bauta_status bt_text_file_bad(const bauta_text_file *file, const bt_line *line,
                              bauta_error *err);
/* For sentences: the end of the path, or "standard input". */
const char *bt_text_file_name(const bauta_text_file *file);
/* Bytes of text that were handed out so far. */
uint64_t bt_text_file_bytes(const bauta_text_file *file);

#endif
