/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize.h - bauta tokenize: its options, and how it prints. */
#ifndef TOKENIZE_H
#define TOKENIZE_H

#include "options.h"

#include <bauta.h>

typedef enum form {
    FORM_IDS,
    FORM_PIECES,
    FORM_OFFSETS,
    FORM_COUNT,
    FORM_TEXT /* the other way round: ids in, text out */
} form;

typedef enum extent { EXTENT_UNSAID, EXTENT_LINES, EXTENT_WHOLE } extent;

typedef struct options {
    string_list rest;
    const char *tokenizer; /* a folder or a file */
    const char *text, *second;
    string_list files;
    int form;   /* of form */
    int extent; /* of extent: what of a file is one text */
    bool json, bare, literal, target, specials, help;
} options;

/* What was counted in a file. */
typedef struct tally {
    const char *name;
    uint64_t tokens, bytes;
} tally;

void tokens_print(const bauta_tokenizer *tokenizer, const bauta_tokens *tokens,
                  const options *o);
void text_print(const char *text, size_t length, const options *o);
void tally_print(const tally *t, const options *o);

#endif
