/* SPDX-License-Identifier: Apache-2.0 */
/* parser.h - shared by the parsers of statements (parser.c) and of expressions
 * (expression.c). */
#ifndef BT_CHAT_PARSER_H
#define BT_CHAT_PARSER_H

#include "text/chat/lexer.h"

typedef struct bt_chat_parser {
    bt_chat_lexer lexer;
    bt_chat_token token; /* the current one */
    bt_chat_token ahead; /* the one after it, if has_ahead */
    bool has_ahead;
    bt_chat_pool *pool;
    size_t nodes, depth;
    unsigned loops;   /* around the current statement, in its macro */
    uint8_t mentions; /* of the current macro */
    bauta_error *err;
} bt_chat_parser;

/* Go to the next token. */
bauta_status bt_chat_parser_advance(bt_chat_parser *p);
/* A new node at the current line. */
bauta_status bt_chat_parser_node(bt_chat_parser *p, bt_chat_node **out,
                                 bt_chat_node_kind kind);
/* Bytes of the template as a string that the tree can hold. */
bauta_status bt_chat_parser_string(bt_chat_parser *p,
                                   const bt_chat_string **out,
                                   const char *bytes, size_t size);
/* Count one more level; the caller lowers p->depth again. */
bauta_status bt_chat_parser_enter(bt_chat_parser *p);
/* Whether the current token is this name or this operator. */
bool bt_chat_parser_at_name(const bt_chat_parser *p, const char *name);
bool bt_chat_parser_at(const bt_chat_parser *p, const char *op);
/* The same, and go beyond it if so. */
bauta_status bt_chat_parser_skip(bt_chat_parser *p, const char *op, bool *was);
bauta_status bt_chat_parser_expect(bt_chat_parser *p, const char *op);
/* The current token must be a name: return it and go on. */
bauta_status bt_chat_parser_name(bt_chat_parser *p, const bt_chat_string **out,
                                 const char *what);
/* "unexpected ..." at the current token. */
bauta_status bt_chat_parser_unexpected(bt_chat_parser *p, const char *where);

/* An expression, with "if" and "else". */
bauta_status bt_chat_parse_expression(bt_chat_parser *p, bt_chat_node **out);
/* One or more with commas between them, which make a tuple; `condition`: with
 * "if" and "else". */
bauta_status bt_chat_parse_tuple(bt_chat_parser *p, bt_chat_node **out,
                                 bool condition);
/* The target of an assignment: names, also in tuples, or name.attribute. */
bauta_status bt_chat_parse_target(bt_chat_parser *p, bt_chat_node **out);
/* "upper|trim|..." of a filter block or "|upper|..." of a set block. */
bauta_status bt_chat_parse_filters(bt_chat_parser *p, bt_chat_node **out);

#endif
