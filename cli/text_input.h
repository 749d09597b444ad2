/* SPDX-License-Identifier: Apache-2.0 */
/* text_input.h - the texts that a verb works on: arguments of the command line,
 * or the lines of a file or of standard input, as they arrive. */
#ifndef TEXT_INPUT_H
#define TEXT_INPUT_H

#include "options.h"

#include <bauta.h>

typedef struct text_input {
    const char *verb, *name; /* name NULL: the command line */
    const char *const *args;
    size_t arg_count;
    size_t number;     /* of the text that was read last, from 1 */
    size_t first, end; /* lines before and up to the end of the part */
    bauta_text_file *file;
    char *all; /* of text_input_read_all() */
    size_t size, room;
    bool failed;
    char error[320]; /* why the text that was read last is invalid, or "" */
} text_input;

/* Read the texts `args`, which must outlive the input. Without any, or if "-"
 * is the only one, read the file, or standard input if `file` is NULL or "-".
 * Section 12 of bauta.h says what a text may contain; arguments must be UTF-8,
 * too. Close in any case. */
int text_input_open(text_input *t, const char *verb, const char *const *args,
                    size_t arg_count, const char *file);
/* Whether text_input_next() would return without waiting. */
bool text_input_ready(const text_input *t);
/* The next text, without its newline, valid until the next call. False at the
 * end, and after a failure. An invalid line or argument is empty, and t->error
 * is the message, for the caller to report. */
bool text_input_next(text_input *t, const char **text, size_t *length);
/* The whole file as one text, or the next argument. */
bool text_input_read_all(text_input *t, const char **text, size_t *length);
/* CLI_FAILED if reading failed, which has been reported. */
int text_input_close(text_input *t);
/* "FILE: line N" or "text N", for messages. */
const char *text_input_place(const text_input *t, size_t number, char *place,
                             size_t size);

#endif
