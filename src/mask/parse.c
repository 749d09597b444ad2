/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c - masks from a line of text: "causal & window(8) | sinks(2)".
 *
 *     mask  = both { "|" both }
 *     both  = one { "&" one }
 *     one   = "!" one | "(" mask ")" | kind
 *     kind  = name [ "(" arguments ")" ]
 *
 * There is no tree: a mask is built as soon as its text has been read, so at
 * most two for each level of nesting exist at a time. Levels are bounded, since
 * each is a call on the stack. */
#include "mask/parser.h"

#include "base/error.h"
#include "mask/builder.h"

#include <string.h>

enum { DEPTH_MAX = 100 };

/* ---- Characters and words ------------------------------------------------ */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

char bt_parser_next(bt_parser *p)
{
    while (is_blank(p->text[p->at]))
        p->at++;
    return p->text[p->at];
}

bool bt_parser_take(bt_parser *p, char c)
{
    if (bt_parser_next(p) != c)
        return false;
    p->at++;
    return true;
}

bt_quoted bt_parser_word(const bt_parser *p, size_t at)
{
    char word[80];
    const char *from = p->text + at;
    size_t length = 0;
    while (length < sizeof(word) - 1 &&
           (is_letter(from[length]) || bt_is_digit(from[length])))
        length++;
    if (length == 0 && *from) // one character, however many bytes it has
        for (length = 1;
             ((unsigned char)from[length] & 0xC0) == 0x80 && length < 4;)
            length++;
    memcpy(word, from, length);
    word[length] = '\0';
    return bt_quote(word);
}

size_t bt_parser_column(const bt_parser *p, size_t at)
{
    size_t count = 1;
    for (size_t i = 0; i < at; i++)
        count += ((unsigned char)p->text[i] & 0xC0) != 0x80;
    return count;
}

bauta_status bt_parser_expected(bt_parser *p, const char *what)
{
    bool end = bt_parser_next(p) == '\0';
    return bt_fail(p->err, BAUTA_ERR_ARGUMENT,
                   "column %zu: expected %s, found %s%s%s",
                   bt_parser_column(p, p->at), what, end ? "the end" : "'",
                   end ? "" : bt_parser_word(p, p->at).text, end ? "" : "'");
}

/* ---- Operators ----------------------------------------------------------- */

/* What can stand where a mask is to be. */
static const char a_mask[] = "a mask (all, none, causal, window(n), prefix(n), "
                             "sinks(n), documents(n, ...), '!' or '(')";

static bauta_status not_read(bt_parser *p, bauta_mask **out);

/* "!", "(" or a kind, one level deeper. */
static bauta_status one_read(bt_parser *p, bauta_mask **out)
{
    bauta_status status;
    char c = bt_parser_next(p);
    if (p->depth == DEPTH_MAX)
        return bt_fail(p->err, BAUTA_ERR_ARGUMENT,
                       "column %zu: nested deeper than %d levels",
                       bt_parser_column(p, p->at), DEPTH_MAX);
    p->depth++;
    if (bt_parser_take(p, '!')) {
        status = not_read(p, out);
    } else if (bt_parser_take(p, '(')) {
        status = bt_parser_mask(p, out);
        if (!status && !bt_parser_take(p, ')'))
            status = bt_parser_expected(p, "'|', '&' or ')'");
    } else {
        status = is_letter(c) ? bt_parser_kind(p, out)
                              : bt_parser_expected(p, a_mask);
    }
    p->depth--;
    if (status) { // what was made before the text went wrong
        bauta_mask_free(*out);
        *out = NULL;
    }
    return status;
}

static bauta_status not_read(bt_parser *p, bauta_mask **out)
{
    bauta_mask *mask = NULL;
    bauta_status status = one_read(p, &mask);
    if (!status)
        status = bauta_mask_not(out, mask, p->err);
    bauta_mask_free(mask);
    return status;
}

typedef bauta_status read_fn(bt_parser *p, bauta_mask **out);
typedef bauta_status combine_fn(bauta_mask **, const bauta_mask *,
                                const bauta_mask *, bauta_error *);

/* Operands with one operator between them, combined from the left. */
static bauta_status chain_read(bt_parser *p, bauta_mask **out, read_fn *operand,
                               char sign, combine_fn *combine)
{
    bauta_mask *left = NULL;
    bauta_status status = operand(p, &left);
    while (!status && bt_parser_take(p, sign)) {
        bauta_mask *right = NULL, *both = NULL;
        status = operand(p, &right);
        if (!status)
            status = combine(&both, left, right, p->err);
        bauta_mask_free(right);
        bauta_mask_free(left);
        left = both;
    }
    *out = left;
    return status;
}

static bauta_status both_read(bt_parser *p, bauta_mask **out)
{
    return chain_read(p, out, one_read, '&', bauta_mask_and);
}

bauta_status bt_parser_mask(bt_parser *p, bauta_mask **out)
{
    return chain_read(p, out, both_read, '|', bauta_mask_or);
}

bauta_status bauta_mask_parse(bauta_mask **out, const char *text,
                              size_t queries, size_t keys, bauta_error *err)
{
    bauta_mask *mask = NULL;
    bt_parser p = { text, 0, queries, keys, 0, err };
    bauta_status status = bt_mask_clear(out, err);
    if (status)
        return status;
    BT_NEED(text, err);
    status = bt_parser_mask(&p, &mask);
    if (!status && bt_parser_next(&p) != '\0')
        status = bt_parser_expected(&p, "'|', '&' or the end");
    if (status)
        bauta_mask_free(mask);
    else
        *out = mask;
    return status;
}
