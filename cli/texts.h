/* SPDX-License-Identifier: Apache-2.0 */
/* texts.h - the texts that a verb works on: words of the command line, or the
 * lines of a file or of standard input, as they come. */
#ifndef TEXTS_H
#define TEXTS_H

#include "options.h"

#include <bauta.h>

typedef struct texts {
    const char *verb, *name; /* NULL: the command line */
    const char *const *given;
    size_t given_count;
    size_t number; /* of the text that was read last, from 1 */
    bauta_text_file *file;
    char *all; /* of texts_all() */
    size_t size, room;
    bool failed;
    char wrong[320]; /* why the text that was read last is none, or "" */
} texts;

/* `given` and what it points to must live as long; without any, or where "-"
 * is the only one, the file is read, or standard input for a file of NULL or
 * "-". What a text may be is said in bauta.h, section 12; texts of the command
 * line must be UTF-8, too. Close in any case. */
int texts_open(texts *t, const char *verb, const char *const *given,
               size_t given_count, const char *file);
/* Whether texts_next() would answer at once. */
bool texts_ready(const texts *t);
/* The next one, without its newline; it lives until the next call. False at
 * the end, and after a failure. A bad line, or word, is empty, and t->wrong is
 * the sentence about it, for the caller to report. */
bool texts_next(texts *t, const char **text, size_t *length);
/* The file as one text, or the next word. */
bool texts_all(texts *t, const char **text, size_t *length);
/* CLI_FAILED where reading failed, which was then told. */
int texts_close(texts *t);
/* "FILE: line N" or "text N", for sentences. */
const char *texts_place(const texts *t, size_t number, char *place,
                        size_t size);

#endif
