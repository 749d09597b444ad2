/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - many texts through one generator, results in the order of the
 * texts.
 *
 * The generator always has a window of texts, those that are read ahead while
 * others run; each result is printed when all before it are. */
#ifndef STREAM_H
#define STREAM_H

#include "loaded.h"
#include "texts.h"

/* One text on its way. */
typedef struct task {
    size_t number; /* from 1 */
    char *text;    /* NUL-terminated */
    size_t length;
    bauta_result *result; /* NULL: nothing was asked, or nothing came */
    char refused[320];    /* the sentence, or "" */
    bool done;
    double begun, seconds;
} task;

/* What the verb does with a text. */
typedef struct stream_verb {
    /* Make a request of it; arrays go to *ids, which is freed behind it. Leave
     * *ids empty where there is nothing to ask. CLI_FAILED after a sentence. */
    int (*ask)(void *user, const task *t, bauta_request *request, ids *ids);
    /* Print the result. CLI_FAILED after a sentence. */
    int (*tell)(void *user, const task *t);
    void *user;
} stream_verb;

/* Sums, for the end. */
typedef struct stream_sums {
    size_t texts, prompt, tokens;
    double seconds;
} stream_sums;

/* How many sequences and bytes at once; 0: what the library takes. */
typedef struct stream_limits {
    size_t sequences, cache_mb;
} stream_limits;

/* A text that is refused, or of which nothing comes, is told, and the others go
 * on; the status is then CLI_FAILED. */
int stream_run(const loaded *l, texts *in, const stream_verb *verb,
               const stream_limits *limits, stream_sums *sums);
/* Seconds since some time. */
double seconds_now(void);

#endif
