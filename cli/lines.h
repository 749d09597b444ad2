/* SPDX-License-Identifier: Apache-2.0 */
/* lines.h - a text file, some lines at a time; UTF-8 validation. */
#ifndef LINES_H
#define LINES_H

#include <bauta.h>

#include <stddef.h>

enum { LINES_MAX = 256 }; /* held at a time */

typedef struct lines {
    const char *verb, *name; /* for messages: the path, or "standard input" */
    bauta_text_file *file;
    size_t count;
    const char *at[LINES_MAX]; /* (count) without their line breaks */
    size_t lengths[LINES_MAX]; /* (count) bytes */
    char *text;                /* holds the lines */
    size_t room;
} lines;

/* Open a file, or standard input for "-". Functions return CLI_OK, or
 * CLI_FAILED after a message. Close in any case. The path must outlive the
 * lines. */
int lines_open(lines *l, const char *verb, const char *path);
/* Replace the lines by the next ones; count is 0 at the end. */
int lines_next(lines *l);
void lines_close(lines *l);

/* Check that a text of the command line is UTF-8. `what` names it in the
 * message: "--prefix". */
int text_check(const char *verb, const char *what, const char *text);

/* The length of the UTF-8 character at `at`, with `left` bytes available; 0 if
 * it is malformed. */
size_t utf8_character(const unsigned char *at, size_t left);
/* The length of the longest prefix that is UTF-8. */
size_t utf8_prefix(const char *text, size_t size);

#endif
