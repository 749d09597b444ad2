/* SPDX-License-Identifier: Apache-2.0 */
/* parser.h - what reads a mask from text: parse.c the operators, parse_kinds.c
 * the kinds. */
#ifndef BT_PARSER_H
#define BT_PARSER_H

#include "base/error.h"

typedef struct bt_parser {
    const char *text;
    size_t at; /* what is read next; never behind the NUL */
    size_t queries, keys;
    unsigned depth;
    bauta_error *err;
} bt_parser;

static inline bool bt_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* What comes next, behind blanks; and whether that was `c`, which is then
 * read. */
char bt_parser_next(bt_parser *p);
bool bt_parser_take(bt_parser *p, char c);
/* The word, number or character at a place, for a sentence. */
bt_quoted bt_parser_word(const bt_parser *p, size_t at);
/* Columns count characters from 1. */
size_t bt_parser_column(const bt_parser *p, size_t at);
/* "column 7: expected a number, found 'x'". */
bauta_status bt_parser_expected(bt_parser *p, const char *what);

/* Read a mask, or one of a kind whose name begins here. *out must be NULL, and
 * is so after a failure. */
bauta_status bt_parser_mask(bt_parser *p, bauta_mask **out);
bauta_status bt_parser_kind(bt_parser *p, bauta_mask **out);

#endif
