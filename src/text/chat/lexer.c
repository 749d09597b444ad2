/* SPDX-License-Identifier: Apache-2.0 */
/* lexer.c - see lexer.h. */
#include "text/chat/lexer.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/unicode.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool bt_chat_is_space(uint32_t code)
{
    return (code >= 0x1C && code <= 0x1F) || bt_is_space(code);
}

size_t bt_chat_space_prefix(const char *bytes, size_t size)
{
    size_t at = 0, length;
    while (at < size &&
           bt_chat_is_space(bt_utf8_decode(bytes + at, size - at, &length)))
        at += length;
    return at;
}

size_t bt_chat_space_suffix(const char *bytes, size_t size)
{
    size_t end = size, length;
    while (end > 0) {
        size_t at = bt_utf8_char_start(bytes, 0, end);
        if (!bt_chat_is_space(bt_utf8_decode(bytes + at, end - at, &length)))
            break;
        end = at;
    }
    return size - end;
}

bauta_status bt_chat_syntax_error(bauta_error *err, uint32_t line,
                                  const char *format, ...)
{
    char what[200];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    return bt_fail(err, BAUTA_ERR_FORMAT, "chat template, line %u: %s",
                   (unsigned)line, what);
}

bt_chat_lexer bt_chat_lexer_init(const char *text, size_t size,
                                 bauta_error *err)
{
    return (bt_chat_lexer){ .text = text, .size = size, .line = 1, .err = err };
}

static char char_at(const bt_chat_lexer *x, size_t at)
{
    return at < x->size ? x->text[at] : '\0';
}

static bool starts(const bt_chat_lexer *x, size_t at, const char *with)
{
    size_t n = strlen(with);
    return n <= x->size - at && !memcmp(x->text + at, with, n);
}

static void move_to(bt_chat_lexer *x, size_t to)
{
    for (; x->at < to; x->at++)
        x->line += x->text[x->at] == '\n';
}

static void skip_space(bt_chat_lexer *x)
{
    move_to(x, x->at + bt_chat_space_prefix(x->text + x->at, x->size - x->at));
}

static void skip_newline(bt_chat_lexer *x)
{
    if (char_at(x, x->at) == '\n')
        move_to(x, x->at + 1);
}

/* The first "{{", "{%" or "{#" from `at` on, or the end. */
static size_t tag_find(const bt_chat_lexer *x, size_t at)
{
    for (; at + 1 < x->size; at++) {
        const char *brace = memchr(x->text + at, '{', x->size - 1 - at);
        if (!brace)
            break;
        at = (size_t)(brace - x->text);
        if (brace[1] == '{' || brace[1] == '%' || brace[1] == '#')
            return at;
    }
    return x->size;
}

/* The text from `at` up to a tag, less the blank space that the tag removes. */
static bt_chat_token data_before(const bt_chat_lexer *x, size_t tag)
{
    bt_chat_token data = { BT_CHAT_TOKEN_DATA, x->line, x->text + x->at,
                           tag - x->at };
    char sign = tag < x->size ? char_at(x, tag + 2) : '+';
    if (sign == '-') {
        data.size -= bt_chat_space_suffix(data.bytes, data.size);
    } else if (sign != '+' && x->text[tag + 1] != '{') {
        size_t from = tag;
        while (from > x->at &&
               (x->text[from - 1] == ' ' || x->text[from - 1] == '\t'))
            from--;
        if (from == 0 || x->text[from - 1] == '\n')
            data.size = from - x->at;
    }
    return data;
}

/* Go beyond a tag's end, which is at x->at, and what follows it: blank space
 * after "-", else, where `trim`, one newline. */
static void end_skip(bt_chat_lexer *x, bool trim)
{
    char sign = x->text[x->at];
    bool signed_end = sign == '-' || sign == '+';
    move_to(x, x->at + (signed_end ? 3 : 2));
    if (sign == '-')
        skip_space(x);
    else if (!signed_end && trim)
        skip_newline(x);
}

/* Skip a comment, at whose "{#" the lexer is. */
static bauta_status comment_skip(bt_chat_lexer *x)
{
    size_t at = x->at + 2;
    at += char_at(x, at) == '-' || char_at(x, at) == '+';
    size_t body = at;
    while (at < x->size && !starts(x, at, "#}"))
        at++;
    if (at == x->size)
        return bt_chat_syntax_error(x->err, x->line, "a comment has no end");
    if (at > body && (x->text[at - 1] == '-' || x->text[at - 1] == '+'))
        at--;
    move_to(x, at);
    end_skip(x, true);
    return BAUTA_OK;
}

/* Where the end of a tag is that starts at `at` and contains this one word, or
 * 0. */
static size_t word_tag(const bt_chat_lexer *x, size_t at, const char *word,
                       bool plus)
{
    at += 2;
    at += char_at(x, at) == '-' || char_at(x, at) == '+';
    at = at > x->size ? x->size : at;
    at += bt_chat_space_prefix(x->text + at, x->size - at);
    if (!starts(x, at, word))
        return 0;
    at += strlen(word);
    at += bt_chat_space_prefix(x->text + at, x->size - at);
    bool end = starts(x, at, "%}") || starts(x, at, "-%}") ||
               (plus && starts(x, at, "+%}"));
    return end ? at : 0;
}

/* The text of a raw block, whose first tag ends at `begin`. */
static bauta_status raw_read(bt_chat_lexer *x, size_t begin,
                             bt_chat_token *token)
{
    uint32_t line = x->line;
    move_to(x, begin);
    end_skip(x, false);
    for (size_t at = x->at; at + 1 < x->size; at++) {
        size_t end = starts(x, at, "{%") ? word_tag(x, at, "endraw", true) : 0;
        if (end) {
            *token = data_before(x, at);
            move_to(x, end);
            end_skip(x, true);
            return BAUTA_OK;
        }
    }
    return bt_chat_syntax_error(x->err, line, "a raw block has no end");
}

/* The tag at which the lexer is; *again: it was a comment. */
static bauta_status tag_read(bt_chat_lexer *x, bt_chat_token *token,
                             bool *again)
{
    char kind = x->text[x->at + 1];
    size_t raw = kind == '%' ? word_tag(x, x->at, "raw", false) : 0;
    *again = kind == '#';
    if (kind == '#')
        return comment_skip(x);
    if (raw)
        return raw_read(x, raw, token);
    *token = (bt_chat_token){ kind == '%' ? BT_CHAT_TOKEN_BLOCK_BEGIN
                                          : BT_CHAT_TOKEN_VARIABLE_BEGIN,
                              x->line, x->text + x->at, 2 };
    x->close[0] = kind == '%' ? '%' : '}';
    x->close[1] = '}';
    x->at += 2;
    x->at += char_at(x, x->at) == '-' || char_at(x, x->at) == '+';
    return BAUTA_OK;
}

static bauta_status data_read(bt_chat_lexer *x, bt_chat_token *token)
{
    bauta_status status = BAUTA_OK;
    for (bool again = true; again && !status;) {
        size_t tag = tag_find(x, x->at);
        if (x->at == x->size) {
            *token = (bt_chat_token){ BT_CHAT_TOKEN_END, x->line, "", 0 };
            return BAUTA_OK;
        }
        *token = data_before(x, tag);
        move_to(x, tag);
        if (token->size)
            return BAUTA_OK;
        if (tag < x->size)
            status = tag_read(x, token, &again);
    }
    return status;
}

/* Whether the tag ends here, and then go beyond it. */
static bool close_read(bt_chat_lexer *x, bt_chat_token *token)
{
    bool block = x->close[0] == '%';
    char sign = char_at(x, x->at);
    size_t at = x->at + (sign == '-' || (block && sign == '+'));
    if (x->depth || char_at(x, at) != x->close[0] || char_at(x, at + 1) != '}')
        return false;
    *token = (bt_chat_token){ block ? BT_CHAT_TOKEN_BLOCK_END
                                    : BT_CHAT_TOKEN_VARIABLE_END,
                              x->line, x->text + x->at, 2 };
    x->close[0] = x->close[1] = '\0';
    end_skip(x, block);
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits, also in groups with "_" between them. */
static size_t digits_end(const bt_chat_lexer *x, size_t at)
{
    while (is_digit(char_at(x, at)) ||
           (char_at(x, at) == '_' && is_digit(char_at(x, at + 1))))
        at++;
    return at;
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static void number_read(bt_chat_lexer *x, bt_chat_token *token)
{
    size_t begin = x->at, at = digits_end(x, begin);
    char base = (char)(char_at(x, begin + 1) | 0x20);
    bool after_dot = begin > 0 && x->text[begin - 1] == '.';
    token->kind = BT_CHAT_TOKEN_INTEGER;
    if (x->text[begin] == '0' && at == begin + 1 &&
        (base == 'x' || base == 'o' || base == 'b') &&
        is_hex(char_at(x, begin + 2))) {
        for (at = begin + 2; is_hex(char_at(x, at));)
            at++;
    } else if (!after_dot) {
        size_t end = at;
        if (char_at(x, end) == '.' && is_digit(char_at(x, end + 1)))
            end = digits_end(x, end + 1);
        if ((char_at(x, end) | 0x20) == 'e') {
            size_t digits = end + 1;
            digits += char_at(x, digits) == '+' || char_at(x, digits) == '-';
            if (is_digit(char_at(x, digits)))
                end = digits_end(x, digits);
        }
        if (end > at)
            token->kind = BT_CHAT_TOKEN_REAL;
        at = end;
    }
    token->size = at - begin;
    move_to(x, at);
}

static bauta_status string_read(bt_chat_lexer *x, bt_chat_token *token)
{
    char quote = x->text[x->at];
    size_t at = x->at + 1;
    while (at < x->size && x->text[at] != quote)
        at += x->text[at] == '\\' ? 2 : 1;
    if (at >= x->size)
        return bt_chat_syntax_error(x->err, x->line, "a string has no end");
    token->kind = BT_CHAT_TOKEN_STRING;
    token->bytes = x->text + x->at + 1;
    token->size = at - x->at - 1;
    move_to(x, at + 1);
    return BAUTA_OK;
}

static size_t name_size(const bt_chat_lexer *x)
{
    size_t at = x->at, length;
    while (at < x->size && bt_is_word_character(bt_utf8_decode(
                               x->text + at, x->size - at, &length)))
        at += length;
    return at - x->at;
}

static bauta_status bracket_note(bt_chat_lexer *x, char c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (x->depth == BT_CHAT_NESTING_MAX)
            return bt_chat_syntax_error(x->err, x->line,
                                        "nested more than %d deep",
                                        BT_CHAT_NESTING_MAX);
        x->open[x->depth++] = (char)(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
        if (!x->depth || x->open[x->depth - 1] != c)
            return bt_chat_syntax_error(x->err, x->line, "unexpected '%c'", c);
        x->depth--;
    }
    return BAUTA_OK;
}

static bauta_status operator_read(bt_chat_lexer *x, bt_chat_token *token)
{
    static const char *const pairs[] = { "==", "!=", "<=", ">=", "//", "**" };
    char c = x->text[x->at];
    token->kind = BT_CHAT_TOKEN_OPERATOR;
    token->size = 1;
    for (size_t i = 0; i < BT_LEN(pairs); i++)
        if (starts(x, x->at, pairs[i]))
            token->size = 2;
    if (token->size == 1 && (!c || !strchr("+-*/%~()[]{}<>=.,:|;", c))) {
        char shown[8] = { 0 };
        size_t length;
        bt_utf8_decode(x->text + x->at, x->size - x->at, &length);
        memcpy(shown, x->text + x->at, length);
        return bt_chat_syntax_error(x->err, x->line,
                                    "unexpected character \"%s\"",
                                    bt_quote(shown).text);
    }
    x->at += token->size;
    return bracket_note(x, c);
}

bauta_status bt_chat_lexer_next(bt_chat_lexer *x, bt_chat_token *token)
{
    if (!x->close[0])
        return data_read(x, token);
    skip_space(x);
    *token = (bt_chat_token){ BT_CHAT_TOKEN_END, x->line, x->text + x->at, 0 };
    if (x->at == x->size)
        return bt_chat_syntax_error(x->err, x->line, "a tag has no end");
    if (close_read(x, token))
        return BAUTA_OK;
    char c = x->text[x->at];
    if (is_digit(c)) {
        number_read(x, token);
        return BAUTA_OK;
    }
    if (c == '"' || c == '\'')
        return string_read(x, token);
    token->size = name_size(x);
    if (!token->size)
        return operator_read(x, token);
    if (token->size > BT_CHAT_NAME_MAX)
        return bt_chat_syntax_error(
            x->err, x->line, "a name has more than %d bytes", BT_CHAT_NAME_MAX);
    token->kind = BT_CHAT_TOKEN_NAME;
    x->at += token->size;
    return BAUTA_OK;
}
