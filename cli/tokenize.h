/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize.h - bauta tokenize: options and output. */
#ifndef TOKENIZE_H
#define TOKENIZE_H

#include "options.h"

#include <bauta.h>

typedef enum form {
    FORM_IDS,
    FORM_PIECES,
    FORM_OFFSETS,
    FORM_COUNT,
    FORM_TEXT /* decode: ids in, text out */
} form;

typedef enum text_unit { UNIT_DEFAULT, UNIT_LINE, UNIT_FILE } text_unit;

typedef struct options {
    string_list rest;
    const char *tokenizer; /* a folder or a file */
    const char *text, *second;
    string_list files;
    int form; /* of form */
    int unit; /* of text_unit: what is one text */
    bool json, bare, literal, target, specials, help;
} options;

/* Counts of a file. */
typedef struct token_count {
    const char *name;
    uint64_t tokens, bytes;
} token_count;

void tokens_print(const bauta_tokenizer *tokenizer, const bauta_tokens *tokens,
                  const options *o);
void text_print(const char *text, size_t length, const options *o);
void count_print(const token_count *t, const options *o);

#endif
