/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c - masks from a line of text: "causal & window(8) | sinks(2)".
 *
 *     mask    = term { "|" term }
 *     term    = factor { "&" factor }
 *     factor  = "!" factor | "(" mask ")" | kind
 *     kind    = name [ "(" arguments ")" ]
 *
 * A recursive descent parser without a syntax tree: each mask is built as soon
 * as its text has been read, so at most two masks per nesting level exist at a
 * time. The depth is limited, since each level is a call on the stack. */
#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/suggestion.h"
#include "base/utf8.h"
#include "mask/mask_builder.h"

#include <string.h>

enum { DEPTH_MAX = 100 };

typedef struct parser {
    const char *text;
    size_t at; /* next byte to read; never past the NUL */
    size_t queries, keys;
    unsigned depth;
    bauta_error *err;
} parser;

/* ---- Characters and words ------------------------------------------------ */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Skip blanks and peek at the next character. */
static char next_char(parser *p)
{
    while (is_blank(p->text[p->at]))
        p->at++;
    return p->text[p->at];
}

/* Consume `c` if it comes next. */
static bool accept(parser *p, char c)
{
    if (next_char(p) != c)
        return false;
    p->at++;
    return true;
}

/* The word, number or character at an offset, for a message. */
static bt_quoted word_at(const parser *p, size_t at)
{
    char word[80];
    const char *from = p->text + at;
    size_t length = 0;
    while (length < sizeof(word) - 1 &&
           (is_letter(from[length]) || is_digit(from[length])))
        length++;
    if (length == 0 && *from) // one character, however many bytes it has
        for (length = 1; bt_utf8_continues(from[length]) && length < 4;)
            length++;
    memcpy(word, from, length);
    word[length] = '\0';
    return bt_quote(word);
}

/* Columns count characters from 1. */
static size_t column_of(const parser *p, size_t at)
{
    size_t count = 1;
    for (size_t i = 0; i < at; i++)
        count += !bt_utf8_continues(p->text[i]);
    return count;
}

/* "column 7: expected a number, found 'x'". */
static bauta_status fail_expected(parser *p, const char *what)
{
    bool end = next_char(p) == '\0';
    return bt_fail(p->err, BAUTA_ERR_ARGUMENT,
                   "column %zu: expected %s, found %s%s%s", column_of(p, p->at),
                   what, end ? "the end" : "'",
                   end ? "" : word_at(p, p->at).text, end ? "" : "'");
}

/* A constructor's error message, with the column that it is about. */
static bauta_status fail_at(parser *p, size_t at, const bauta_error *why)
{
    return bt_fail(p->err, why->status, "column %zu: %.200s", column_of(p, at),
                   why->message);
}

/* Each reads from p->at on. *out is NULL before, and after a failure. */
static bauta_status mask_read(parser *p, bauta_mask **out);

/* ---- Arguments ----------------------------------------------------------- */

static bauta_status number_read(parser *p, size_t *out)
{
    size_t number = 0;
    if (!is_digit(next_char(p)))
        return fail_expected(p, "a number");
    size_t from = p->at;
    for (; is_digit(p->text[p->at]); p->at++) {
        number = number * 10 + (size_t)(p->text[p->at] - '0');
        if (number > BT_AXIS_MAX)
            return bt_fail(p->err, BAUTA_ERR_ARGUMENT,
                           "column %zu: the number is larger than %zu",
                           column_of(p, from), BT_AXIS_MAX);
    }
    *out = number;
    return BAUTA_OK;
}

static bauta_status open_read(parser *p, const char *form)
{
    return accept(p, '(') ? BAUTA_OK : fail_expected(p, form);
}

static bauta_status close_read(parser *p)
{
    return accept(p, ')') ? BAUTA_OK : fail_expected(p, "')'");
}

/* Lengths of documents: "4" for queries and keys, "3:5" for each. */
typedef struct lengths {
    size_t *queries, *keys;
    size_t count, capacity, key_capacity;
    size_t query_sum, key_sum;
} lengths;

static bauta_status length_read(parser *p, lengths *l)
{
    size_t queries = 0, keys = 0;
    if (BT_ARRAY_RESERVE(l->queries, l->capacity, l->count, 1) ||
        BT_ARRAY_RESERVE(l->keys, l->key_capacity, l->count, 1))
        return bt_fail_memory(p->err, "lengths", sizeof(size_t));
    bauta_status status = number_read(p, &queries);
    keys = queries;
    if (!status && accept(p, ':'))
        status = number_read(p, &keys);
    l->queries[l->count] = queries;
    l->keys[l->count++] = keys;
    l->query_sum = bt_size_add(l->query_sum, queries);
    l->key_sum = bt_size_add(l->key_sum, keys);
    return status;
}

static bauta_status lengths_read(parser *p, lengths *l)
{
    bauta_status status = length_read(p, l);
    while (!status && accept(p, ','))
        status = length_read(p, l);
    if (!status && !accept(p, ')'))
        status = fail_expected(p, "',' or ')'");
    return status;
}

static void lengths_release(lengths *l)
{
    bt_free(l->queries);
    bt_free(l->keys);
}

/* ---- Kinds --------------------------------------------------------------- */

static bauta_status none(bauta_mask **out, size_t queries, size_t keys,
                         bauta_error *err)
{
    return bauta_mask_sinks(out, queries, keys, 0, err);
}

static bauta_status documents(bauta_mask **out, const parser *p,
                              const lengths *l, bauta_error *err)
{
    if (l->query_sum != p->queries || l->key_sum != p->keys)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the documents have %zu queries and %zu keys, the mask "
                       "has %zu and %zu",
                       l->query_sum, l->key_sum, p->queries, p->keys);
    return bauta_mask_documents(out, l->count, l->queries, l->keys, err);
}

static bauta_status padded(bauta_mask **out, const parser *p, const lengths *l,
                           bauta_error *err)
{
    if (p->queries % l->count || p->keys % l->count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu sequences of one time do not make %zu queries "
                       "over %zu keys",
                       l->count, p->queries, p->keys);
    return bauta_mask_lengths(out, l->count, p->queries / l->count,
                              p->keys / l->count, l->queries, l->keys, err);
}

typedef bauta_status plain_fn(bauta_mask **, size_t, size_t, bauta_error *);
typedef bauta_status sized_fn(bauta_mask **, size_t, size_t, size_t,
                              bauta_error *);
typedef bauta_status listed_fn(bauta_mask **, const parser *, const lengths *,
                               bauta_error *);

/* Exactly one of the functions or flags is set; it determines the arguments. */
typedef struct mask_kind {
    const char *name;
    const char *form; /* expected after the name */
    plain_fn *plain;
    sized_fn *sized;
    listed_fn *listed;
    bool reach, compose;
} mask_kind;

static const mask_kind kinds[] = {
    { .name = "all", .plain = bauta_mask_all },
    { .name = "none", .plain = none },
    { .name = "causal", .plain = bauta_mask_causal },
    { .name = "window", .form = "(n)", .sized = bauta_mask_window },
    { .name = "prefix", .form = "(n)", .sized = bauta_mask_prefix },
    { .name = "sinks", .form = "(n)", .sized = bauta_mask_sinks },
    { .name = "documents", .form = "(n, n, ...)", .listed = documents },
    { .name = "lengths", .form = "(n, n, ...)", .listed = padded },
    { .name = "reach", .form = "(mask, layers)", .reach = true },
    { .name = "compose", .form = "(upper, lower)", .compose = true },
};

static bauta_status sized_read(parser *p, const mask_kind *k, bauta_mask **out,
                               size_t from)
{
    size_t number = 0;
    bauta_error why;
    bauta_status status = number_read(p, &number);
    if (!status)
        status = close_read(p);
    if (!status && k->sized(out, p->queries, p->keys, number, &why))
        status = fail_at(p, from, &why);
    return status;
}

static bauta_status listed_read(parser *p, const mask_kind *k, bauta_mask **out,
                                size_t from)
{
    lengths l = { .queries = NULL };
    bauta_error why;
    bauta_status status = lengths_read(p, &l);
    if (!status && k->listed(out, p, &l, &why))
        status = fail_at(p, from, &why);
    lengths_release(&l);
    return status;
}

static bauta_status reach_read(parser *p, bauta_mask **out, size_t from)
{
    bauta_mask *mask = NULL;
    size_t layers = 0;
    bauta_error why;
    bauta_status status = mask_read(p, &mask);
    if (!status && !accept(p, ','))
        status = fail_expected(p, "',' and how many layers");
    if (!status)
        status = number_read(p, &layers);
    if (!status)
        status = close_read(p);
    if (!status && bauta_mask_reach(out, mask, layers, &why))
        status = fail_at(p, from, &why);
    bauta_mask_free(mask);
    return status;
}

static bauta_status compose_read(parser *p, bauta_mask **out, size_t from)
{
    bauta_mask *upper = NULL, *lower = NULL;
    bauta_error why;
    bauta_status status = mask_read(p, &upper);
    if (!status && !accept(p, ','))
        status = fail_expected(p, "',' and the lower mask");
    if (!status)
        status = mask_read(p, &lower);
    if (!status)
        status = close_read(p);
    if (!status && bauta_mask_compose(out, upper, lower, &why))
        status = fail_at(p, from, &why);
    bauta_mask_free(upper);
    bauta_mask_free(lower);
    return status;
}

static bauta_status name_unknown(parser *p, size_t from, const char *name)
{
    bt_suggestion guess = bt_suggestion_for(name);
    for (size_t i = 0; i < BT_LEN(kinds); i++)
        bt_suggestion_try(&guess, kinds[i].name);
    return bt_fail(p->err, BAUTA_ERR_ARGUMENT,
                   "column %zu: there is no mask '%s'%s%s%s",
                   column_of(p, from), name, BT_DID_YOU_MEAN(guess, "'"));
}

static bauta_status kind_read(parser *p, bauta_mask **out)
{
    size_t from = p->at, i = 0;
    bt_quoted name = word_at(p, from);
    bauta_error why;
    while (i < BT_LEN(kinds) && strcmp(kinds[i].name, name.text) != 0)
        i++;
    if (i == BT_LEN(kinds))
        return name_unknown(p, from, name.text);
    const mask_kind *k = &kinds[i];
    p->at += strlen(k->name);
    if (k->plain)
        return k->plain(out, p->queries, p->keys, &why) ? fail_at(p, from, &why)
                                                        : BAUTA_OK;
    bauta_status status = open_read(p, k->form);
    if (status)
        return status;
    return k->sized    ? sized_read(p, k, out, from)
           : k->listed ? listed_read(p, k, out, from)
           : k->reach  ? reach_read(p, out, from)
                       : compose_read(p, out, from);
}

/* ---- Operators ----------------------------------------------------------- */

/* For the message when something else stands where a mask is expected. */
static const char a_mask[] = "a mask (all, none, causal, window(n), prefix(n), "
                             "sinks(n), documents(n, ...), '!' or '(')";

static bauta_status not_read(parser *p, bauta_mask **out);

static bauta_status factor_read(parser *p, bauta_mask **out)
{
    bauta_status status;
    char c = next_char(p);
    if (p->depth == DEPTH_MAX)
        return bt_fail(p->err, BAUTA_ERR_ARGUMENT,
                       "column %zu: nested deeper than %d levels",
                       column_of(p, p->at), DEPTH_MAX);
    p->depth++;
    if (accept(p, '!')) {
        status = not_read(p, out);
    } else if (accept(p, '(')) {
        status = mask_read(p, out);
        if (!status && !accept(p, ')'))
            status = fail_expected(p, "'|', '&' or ')'");
    } else {
        status = is_letter(c) ? kind_read(p, out) : fail_expected(p, a_mask);
    }
    p->depth--;
    if (status) { // built before the error was found
        bauta_mask_free(*out);
        *out = NULL;
    }
    return status;
}

static bauta_status not_read(parser *p, bauta_mask **out)
{
    bauta_mask *mask = NULL;
    bauta_status status = factor_read(p, &mask);
    if (!status)
        status = bauta_mask_not(out, mask, p->err);
    bauta_mask_free(mask);
    return status;
}

typedef bauta_status read_fn(parser *p, bauta_mask **out);
typedef bauta_status combine_fn(bauta_mask **, const bauta_mask *,
                                const bauta_mask *, bauta_error *);

/* Operands joined by one operator, combined from left to right. */
static bauta_status chain_read(parser *p, bauta_mask **out, read_fn *operand,
                               char sign, combine_fn *combine)
{
    bauta_mask *left = NULL;
    bauta_status status = operand(p, &left);
    while (!status && accept(p, sign)) {
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

static bauta_status term_read(parser *p, bauta_mask **out)
{
    return chain_read(p, out, factor_read, '&', bauta_mask_and);
}

static bauta_status mask_read(parser *p, bauta_mask **out)
{
    return chain_read(p, out, term_read, '|', bauta_mask_or);
}

bauta_status bauta_mask_parse(bauta_mask **out, const char *text,
                              size_t queries, size_t keys, bauta_error *err)
{
    bauta_mask *mask = NULL;
    parser p = { text, 0, queries, keys, 0, err };
    bauta_status status = bt_mask_clear(out, err);
    if (status)
        return status;
    BT_NEED(text, err);
    status = mask_read(&p, &mask);
    if (!status && next_char(&p) != '\0')
        status = fail_expected(&p, "'|', '&' or the end");
    if (status)
        bauta_mask_free(mask);
    else
        *out = mask;
    return status;
}
