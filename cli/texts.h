/* SPDX-License-Identifier: Apache-2.0 */
/* texts.h - the texts that a verb works on: words of the command line, or the
 * lines of a file or of standard input, as they come. */
#ifndef TEXTS_H
#define TEXTS_H

#include "options.h"

typedef struct texts {
    const char *verb, *name; /* NULL: the command line */
    const char *const *given;
    size_t given_count;
    size_t number; /* of the text that was read last, from 1 */
    int file;
    char *buffer;            /* what was read and not yet handed out */
    size_t begin, end, room; /* of it */
    bool ended, failed;
} texts;

/* `given` and what it points to must live as long; without any the file is
 * read, or standard input for a file of NULL or "-". Close in any case. */
int texts_open(texts *t, const char *verb, const char *const *given,
               size_t given_count, const char *file);
/* Whether texts_next() would answer at once. */
bool texts_ready(texts *t);
/* The next one, without its newline; it lives until the next call. False at
 * the end, and after a failure. */
bool texts_next(texts *t, const char **text, size_t *length);
/* All that is left, as one text. */
bool texts_all(texts *t, const char **text, size_t *length);
/* CLI_FAILED where reading failed, which was then told. */
int texts_close(texts *t);
/* "FILE: line N" or "text N", for sentences. */
const char *texts_place(const texts *t, size_t number, char *place,
                        size_t size);

#endif
