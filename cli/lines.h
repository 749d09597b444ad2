/* SPDX-License-Identifier: Apache-2.0 */
/* lines.h - a text file, line by line. */
#ifndef LINES_H
#define LINES_H

#include <stddef.h>

typedef struct lines {
    const char *name; /* for sentences: the path, or "stdin" */
    size_t count;
    const char **at; /* (count) without their newlines */
    size_t *lengths; /* (count) bytes */
    char *text;      /* where they lie */
} lines;

/* Read the file, or stdin for NULL, which must be UTF-8. What fails is told on
 * stderr, as of this verb. Returns CLI_OK or CLI_FAILED; release in any case.
 * The path must live as long as the lines. */
int lines_read(lines *out, const char *verb, const char *path);
void lines_release(lines *l);

/* How many bytes the UTF-8 character at `at` has, of which there are `left`; 0
 * when it is not well formed. */
size_t utf8_character(const unsigned char *at, size_t left);

#endif
