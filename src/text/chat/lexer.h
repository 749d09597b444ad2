/* SPDX-License-Identifier: Apache-2.0 */
/* lexer.h - the tokens of a chat template.
 *
 * Whitespace is what transformers' settings of Jinja make of it: the newline
 * after a block or comment is dropped (trim_blocks), so is blank space before
 * one on its line (lstrip_blocks), and "-" and "+" at a tag override both. */
#ifndef BT_CHAT_LEXER_H
#define BT_CHAT_LEXER_H

#include "text/chat/template.h"

typedef enum bt_chat_token_kind {
    BT_CHAT_TOKEN_END,
    BT_CHAT_TOKEN_DATA, /* text between tags */
    BT_CHAT_TOKEN_VARIABLE_BEGIN,
    BT_CHAT_TOKEN_VARIABLE_END,
    BT_CHAT_TOKEN_BLOCK_BEGIN,
    BT_CHAT_TOKEN_BLOCK_END,
    BT_CHAT_TOKEN_NAME,
    BT_CHAT_TOKEN_STRING, /* without its quotes, escapes as written */
    BT_CHAT_TOKEN_INTEGER,
    BT_CHAT_TOKEN_REAL,
    BT_CHAT_TOKEN_OPERATOR,
} bt_chat_token_kind;

typedef struct bt_chat_token {
    bt_chat_token_kind kind;
    uint32_t line;
    const char *bytes;
    size_t size;
} bt_chat_token;

typedef struct bt_chat_lexer {
    const char *text;
    size_t size, at;
    uint32_t line;                  /* of `at`, from 1 */
    char close[2];                  /* "%}" or "}}" inside a tag, else empty */
    char open[BT_CHAT_NESTING_MAX]; /* brackets that were opened */
    size_t depth;
    bauta_error *err;
} bt_chat_lexer;

/* `text` is UTF-8 with newlines as LF, and outlives the tokens. */
bt_chat_lexer bt_chat_lexer_init(const char *text, size_t size,
                                 bauta_error *err);
bauta_status bt_chat_lexer_next(bt_chat_lexer *lexer, bt_chat_token *token);

/* "line 3: ...", with BAUTA_ERR_FORMAT. */
bauta_status bt_chat_syntax_error(bauta_error *err, uint32_t line,
                                  const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A character that Python's strip() removes and its \s matches. */
bool bt_chat_is_space(uint32_t code);
/* Bytes of white space at the start and at the end of a text. */
size_t bt_chat_space_prefix(const char *bytes, size_t size);
size_t bt_chat_space_suffix(const char *bytes, size_t size);

#endif
