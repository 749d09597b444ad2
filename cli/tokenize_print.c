/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize_print.c - bauta tokenize: output. */
#include "tokenize.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Files have millions of ids; printf() would take most of the time. */
static void number_print(uint64_t number)
{
    char text[24], *at = text + sizeof(text);
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    fwrite(at, 1, (size_t)(text + sizeof(text) - at), stdout);
}

/* A piece as one word: blanks and control characters are escaped. */
static void piece_print(const char *piece, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)piece[i];
        if (c <= ' ' || c == 0x7F)
            printf("\\x%02X", c);
        else if (c == '\\')
            fputs("\\\\", stdout);
        else
            putchar(c);
    }
}

static void token_piece_print(const bauta_tokenizer *tokenizer, uint32_t id)
{
    size_t length = 0;
    const char *piece = bauta_tokenizer_piece(tokenizer, id, &length);
    piece_print(piece, length);
}

/* One token per line, and an empty line after each text. */
static void offsets_print(const bauta_tokenizer *tokenizer,
                          const bauta_tokens *tokens)
{
    for (size_t i = 0; i < tokens->count; i++) {
        number_print(tokens->ids[i]);
        putchar('\t');
        number_print(tokens->starts[i]);
        putchar('\t');
        number_print(tokens->ends[i]);
        putchar('\t');
        token_piece_print(tokenizer, tokens->ids[i]);
        putchar('\n');
    }
    putchar('\n');
}

/* ---- JSON -------------------------------------------------------------- */

static void json_print(json_t *object)
{
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(object);
}

/* Null if it is not UTF-8. */
static json_t *string_json(const char *text, size_t length)
{
    json_t *string = json_stringn(text, length);
    return string ? string : json_null();
}

static void tokens_json(const bauta_tokenizer *tokenizer,
                        const bauta_tokens *tokens)
{
    json_t *ids = json_array(), *types = json_array();
    json_t *pieces = json_array(), *offsets = json_array();
    for (size_t i = 0; i < tokens->count; i++) {
        size_t length = 0;
        const char *piece =
            bauta_tokenizer_piece(tokenizer, tokens->ids[i], &length);
        json_array_append_new(ids, json_integer(tokens->ids[i]));
        json_array_append_new(types, json_integer(tokens->types[i]));
        json_array_append_new(pieces, string_json(piece, length));
        json_array_append_new(offsets,
                              json_pack("[I,I]", (json_int_t)tokens->starts[i],
                                        (json_int_t)tokens->ends[i]));
    }
    json_print(json_pack("{s:o, s:o, s:o, s:o}", "ids", ids, "types", types,
                         "pieces", pieces, "offsets", offsets));
}

/* ---- all formats ------------------------------------------------------- */

void tokens_print(const bauta_tokenizer *tokenizer, const bauta_tokens *tokens,
                  const options *o)
{
    if (o->json) {
        tokens_json(tokenizer, tokens);
        return;
    }
    if (o->form == FORM_OFFSETS) {
        offsets_print(tokenizer, tokens);
        return;
    }
    for (size_t i = 0; i < tokens->count; i++) {
        if (i)
            putchar(' ');
        if (o->form == FORM_PIECES)
            token_piece_print(tokenizer, tokens->ids[i]);
        else
            number_print(tokens->ids[i]);
    }
    putchar('\n');
}

void text_print(const char *text, size_t length, const options *o)
{
    if (o->json) {
        json_print(json_pack("{s:o}", "text", string_json(text, length)));
        return;
    }
    fwrite(text, 1, length, stdout);
    putchar('\n');
}

void count_print(const token_count *t, const options *o)
{
    double rate = t->bytes ? (double)t->tokens / (double)t->bytes : 0;
    const char *name = t->name ? t->name : "";
    if (o->json)
        json_print(json_pack("{s:o, s:I, s:I, s:f}", "name",
                             string_json(name, strlen(name)), "tokens",
                             (json_int_t)t->tokens, "bytes",
                             (json_int_t)t->bytes, "tokens_per_byte", rate));
    else
        printf("%10" PRIu64 " tokens  %12" PRIu64
               " bytes  %.4f tokens per byte%s%s\n",
               t->tokens, t->bytes, rate, *name ? "  " : "", name);
}
