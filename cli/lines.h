/* SPDX-License-Identifier: Apache-2.0 */
/* lines.h - a text file, some lines at a time; and what UTF-8 is. */
#ifndef LINES_H
#define LINES_H

#include <bauta.h>

#include <stddef.h>

enum { LINES_MOST = 256 }; /* that are held at a time */

typedef struct lines {
    const char *verb, *name; /* for sentences: the path, or "standard input" */
    bauta_text_file *file;
    size_t count;
    const char *at[LINES_MOST]; /* (count) without their line breaks */
    size_t lengths[LINES_MOST]; /* (count) bytes */
    char *text;                 /* where they are */
    size_t room;
} lines;

/* Open a file, or standard input for "-". Failures are reported on stderr, as
 * of this verb; functions return CLI_OK or CLI_FAILED. Close in any case. The
 * path must live as long as the lines. */
int lines_open(lines *l, const char *verb, const char *path);
/* The next lines take the place of those before; there are none at the end. */
int lines_next(lines *l);
void lines_close(lines *l);

/* A text of the command line must be UTF-8, too. `what` is for the sentence:
 * "--prefix". */
int text_check(const char *verb, const char *what, const char *text);

/* How many bytes the UTF-8 character at `at` has, of which there are `left`; 0
 * when it is not well formed. */
size_t utf8_character(const unsigned char *at, size_t left);
/* How many bytes from the start are well formed. */
size_t utf8_prefix(const char *text, size_t size);

#endif
