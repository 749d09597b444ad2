/* SPDX-License-Identifier: Apache-2.0 */
/* expression.c - the parser of expressions, with Jinja's precedence: "if", or,
 * and, not, comparisons, + and -, ~, then * / // %, then **, signs, and at last
 * attributes, calls, filters and tests. */
#include "text/chat/parser.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/chat/number.h"

#include <stdlib.h>
#include <string.h>

typedef struct binary_operator {
    const char *text;
    bt_chat_operation operation;
} binary_operator;

static const binary_operator comparisons[] = {
    { "==", BT_CHAT_EQUAL },  { "!=", BT_CHAT_NOT_EQUAL },
    { "<", BT_CHAT_LESS },    { "<=", BT_CHAT_LESS_EQUAL },
    { ">", BT_CHAT_GREATER }, { ">=", BT_CHAT_GREATER_EQUAL },
};
static const binary_operator sums[] = { { "+", BT_CHAT_ADD },
                                        { "-", BT_CHAT_SUBTRACT } };
static const binary_operator joins[] = { { "~", BT_CHAT_CONCATENATE } };
static const binary_operator products[] = {
    { "*", BT_CHAT_MULTIPLY },
    { "/", BT_CHAT_DIVIDE },
    { "//", BT_CHAT_FLOOR_DIVIDE },
    { "%", BT_CHAT_MODULO },
};
static const binary_operator powers[] = { { "**", BT_CHAT_POWER } };

static const struct {
    const binary_operator *operators;
    size_t count;
} levels[] = {
    { sums, BT_LEN(sums) },
    { joins, BT_LEN(joins) },
    { products, BT_LEN(products) },
    { powers, BT_LEN(powers) },
};

static bt_chat_operation operator_find(const bt_chat_parser *p,
                                       const binary_operator *list,
                                       size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bt_chat_parser_at(p, list[i].text))
            return list[i].operation;
    return BT_CHAT_NO_OPERATION;
}

/* ---- Literals ------------------------------------------------------------ */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The code of `digits` hexadecimal digits, or -1. */
static int64_t hex_code(const char *from, size_t left, size_t digits)
{
    int64_t code = 0;
    if (left < digits)
        return -1;
    for (size_t i = 0; i < digits; i++) {
        if (hex_digit(from[i]) < 0)
            return -1;
        code = code * 16 + hex_digit(from[i]);
    }
    return code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? -1 : code;
}

/* One escape of a string, as in Python: its first character is from[0], after
 * the backslash. Returns the bytes it takes, or 0 if it is malformed. */
static size_t escape_read(const char *from, size_t left, char *to,
                          size_t *written)
{
    static const char plain[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    size_t digits = *from == 'x' ? 2 : *from == 'u' ? 4 : *from == 'U' ? 8 : 0;
    *written = 0;
    if (*from == '\n')
        return 1;
    for (size_t i = 0; i + 1 < sizeof(plain); i += 2)
        if (*from == plain[i]) {
            to[(*written)++] = plain[i + 1];
            return 1;
        }
    if (digits) {
        int64_t code = hex_code(from + 1, left - 1, digits);
        *written = code < 0 ? 0 : bt_utf8_encode(to, (uint32_t)code);
        return code < 0 ? 0 : 1 + digits;
    }
    if (*from >= '0' && *from <= '7') {
        size_t n = 0;
        uint32_t code = 0;
        for (; n < 3 && n < left && from[n] >= '0' && from[n] <= '7'; n++)
            code = code * 8 + (uint32_t)(from[n] - '0');
        *written = bt_utf8_encode(to, code);
        return n;
    }
    to[(*written)++] = '\\'; // not an escape: both characters stay
    return *from == 'N' ? 0 : SIZE_MAX;
}

/* A string literal while it is decoded, in the pool. */
typedef struct literal_text {
    char *bytes;
    size_t size, capacity;
} literal_text;

/* Room for the current token: an escape never gets longer. The capacity
 * doubles, so that 'a' 'b' 'c' ... takes no more than four times its size. */
static bauta_status literal_reserve(bt_chat_parser *p, literal_text *literal)
{
    size_t need = literal->size + p->token.size;
    if (literal->bytes && need <= literal->capacity)
        return BAUTA_OK;
    size_t capacity = literal->bytes ? 2 * need : need;
    char *bytes = bt_chat_pool_alloc(p->pool, capacity);
    if (!bytes)
        return bt_fail_memory(p->err, "a chat template", capacity);
    if (literal->size)
        memcpy(bytes, literal->bytes, literal->size);
    literal->bytes = bytes;
    literal->capacity = capacity;
    return BAUTA_OK;
}

/* Append the current token, which is a string. */
static bauta_status literal_add(bt_chat_parser *p, literal_text *literal)
{
    const char *from = p->token.bytes;
    size_t left = p->token.size, written;
    bauta_status status = literal_reserve(p, literal);
    while (left > 0 && !status) {
        char *to = literal->bytes + literal->size;
        if (*from != '\\') {
            *to = *from++;
            literal->size++;
            left--;
            continue;
        }
        size_t taken = escape_read(from + 1, left - 1, to, &written);
        if (!taken)
            return bt_chat_syntax_error(p->err, p->token.line,
                                        "a string has a malformed escape");
        taken = taken == SIZE_MAX ? 0 : taken;
        literal->size += written;
        from += 1 + taken;
        left -= 1 + taken;
    }
    return status;
}

/* 'a' 'b' is one string. */
static bauta_status parse_string(bt_chat_parser *p, bt_chat_node **out)
{
    literal_text literal = { 0 };
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_LITERAL);
    while (!status && p->token.kind == BT_CHAT_TOKEN_STRING) {
        status = literal_add(p, &literal);
        if (!status)
            status = bt_chat_parser_advance(p);
    }
    return status ? status
                  : bt_chat_parser_string(p, &(*out)->string, literal.bytes,
                                          literal.size);
}

static bauta_status parse_number(bt_chat_parser *p, bt_chat_node **out)
{
    bool real = p->token.kind == BT_CHAT_TOKEN_REAL, fine = false;
    bauta_status status =
        bt_chat_parser_node(p, out, real ? BT_CHAT_REAL : BT_CHAT_INTEGER);
    if (status)
        return status;
    if (real)
        fine = bt_chat_read_real(&(*out)->real, p->token.bytes, p->token.size);
    else
        fine = bt_chat_read_integer(&(*out)->integer, p->token.bytes,
                                    p->token.size, 0);
    if (!real && p->token.size > 1 && *p->token.bytes == '0' &&
        (*out)->integer && p->token.bytes[1] <= '9')
        fine = false; // 007
    if (!fine)
        return bt_chat_syntax_error(p->err, p->token.line,
                                    "a number is malformed or too large");
    return bt_chat_parser_advance(p);
}

static bauta_status parse_name(bt_chat_parser *p, bt_chat_node **out)
{
    static const struct {
        const char *name;
        bt_chat_node_kind kind;
    } constants[] = {
        { "true", BT_CHAT_TRUE },   { "True", BT_CHAT_TRUE },
        { "false", BT_CHAT_FALSE }, { "False", BT_CHAT_FALSE },
        { "none", BT_CHAT_NONE },   { "None", BT_CHAT_NONE },
    };
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_NAME);
    if (status)
        return status;
    p->mentions |=
        bt_chat_parser_at_name(p, "varargs")  ? BT_CHAT_MENTIONS_VARARGS
        : bt_chat_parser_at_name(p, "kwargs") ? BT_CHAT_MENTIONS_KWARGS
        : bt_chat_parser_at_name(p, "caller") ? BT_CHAT_MENTIONS_CALLER
                                              : 0;
    for (size_t i = 0; i < BT_LEN(constants); i++)
        if (bt_chat_parser_at_name(p, constants[i].name)) {
            (*out)->kind = (uint8_t)constants[i].kind;
            return bt_chat_parser_advance(p);
        }
    return bt_chat_parser_name(p, &(*out)->string, "a name");
}

/* ---- Brackets ------------------------------------------------------------ */

/* Items up to a closing bracket, which is skipped. *trailing: a comma came
 * last. */
static bauta_status parse_items(bt_chat_parser *p, bt_chat_node **list,
                                const char *close, bool *trailing)
{
    bool done = false;
    *trailing = false;
    bauta_status status = bt_chat_parser_skip(p, close, &done);
    while (!status && !done) {
        status = bt_chat_parse_expression(p, list);
        if (!status)
            status = bt_chat_parser_skip(p, ",", trailing);
        if (!status && *trailing)
            status = bt_chat_parser_skip(p, close, &done);
        else if (!status) {
            status = bt_chat_parser_expect(p, close);
            done = true;
        }
        if (!status)
            list = &(*list)->next;
    }
    return status;
}

static bauta_status parse_list(bt_chat_parser *p, bt_chat_node **out)
{
    bool trailing;
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_LIST);
    if (!status)
        status = bt_chat_parser_advance(p);
    return status ? status : parse_items(p, &(*out)->a, "]", &trailing);
}

/* "(a)" is a, "(a,)" and "()" are tuples. */
static bauta_status parse_parentheses(bt_chat_parser *p, bt_chat_node **out)
{
    bool trailing;
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_TUPLE);
    if (!status)
        status = bt_chat_parser_advance(p);
    if (!status)
        status = parse_items(p, &(*out)->a, ")", &trailing);
    if (!status && (*out)->a && !(*out)->a->next && !trailing)
        *out = (*out)->a;
    return status;
}

static bauta_status parse_pair(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_PAIR);
    if (!status)
        status = bt_chat_parse_expression(p, &(*out)->a);
    if (!status)
        status = bt_chat_parser_expect(p, ":");
    return status ? status : bt_chat_parse_expression(p, &(*out)->b);
}

static bauta_status parse_dict(bt_chat_parser *p, bt_chat_node **out)
{
    bool done = false, more = false;
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_DICT);
    if (!status)
        status = bt_chat_parser_advance(p);
    if (!status)
        status = bt_chat_parser_skip(p, "}", &done);
    for (bt_chat_node **list = status ? NULL : &(*out)->a; !status && !done;) {
        status = parse_pair(p, list);
        if (!status)
            status = bt_chat_parser_skip(p, ",", &more);
        if (!status && !more)
            status = bt_chat_parser_expect(p, "}");
        done = !more;
        if (!status && more)
            status = bt_chat_parser_skip(p, "}", &done);
        if (!status)
            list = &(*list)->next;
    }
    return status;
}

static bauta_status parse_primary(bt_chat_parser *p, bt_chat_node **out)
{
    switch (p->token.kind) {
    case BT_CHAT_TOKEN_NAME:
        return parse_name(p, out);
    case BT_CHAT_TOKEN_STRING:
        return parse_string(p, out);
    case BT_CHAT_TOKEN_INTEGER:
    case BT_CHAT_TOKEN_REAL:
        return parse_number(p, out);
    default:
        break;
    }
    if (bt_chat_parser_at(p, "("))
        return parse_parentheses(p, out);
    if (bt_chat_parser_at(p, "["))
        return parse_list(p, out);
    if (bt_chat_parser_at(p, "{"))
        return parse_dict(p, out);
    return bt_chat_parser_unexpected(p, "in an expression");
}

/* ---- Attributes, items, calls, filters, tests ---------------------------- */

static bauta_status parse_argument(bt_chat_parser *p, bt_chat_node **out)
{
    bool spread = false;
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_ARGUMENT);
    if (!status)
        status = bt_chat_parser_skip(p, "*", &spread);
    if (!status && spread) {
        (*out)->operation = BT_CHAT_SPREAD_LIST;
    } else if (!status) {
        status = bt_chat_parser_skip(p, "**", &spread);
        if (!status && spread)
            (*out)->operation = BT_CHAT_SPREAD_DICT;
    }
    if (!status && !spread && p->token.kind == BT_CHAT_TOKEN_NAME) {
        if (!p->has_ahead)
            status = bt_chat_lexer_next(&p->lexer, &p->ahead);
        p->has_ahead = !status;
        if (!status && p->ahead.kind == BT_CHAT_TOKEN_OPERATOR &&
            p->ahead.size == 1 && *p->ahead.bytes == '=') {
            status = bt_chat_parser_name(p, &(*out)->string, "an argument");
            if (!status)
                status = bt_chat_parser_advance(p);
        }
    }
    return status ? status : bt_chat_parse_expression(p, &(*out)->a);
}

/* Whether an argument without a name follows one that has it; *named: there was
 * one. */
static bool positional_after(bool *named, const bt_chat_node *argument)
{
    bool has_name = argument->string || argument->operation;
    bool wrong = *named && !has_name;
    *named |= has_name;
    return wrong;
}

/* Arguments in parentheses, at the opening one. */
static bauta_status parse_arguments(bt_chat_parser *p, bt_chat_node **list)
{
    bool done = false, more = false, named = false;
    size_t count = 0;
    bauta_status status = bt_chat_parser_advance(p);
    if (!status)
        status = bt_chat_parser_skip(p, ")", &done);
    while (!status && !done) {
        if (++count > BT_CHAT_ARGUMENTS_MAX)
            return bt_chat_syntax_error(p->err, p->token.line,
                                        "a call has more than %d arguments",
                                        BT_CHAT_ARGUMENTS_MAX);
        status = parse_argument(p, list);
        if (!status && positional_after(&named, *list))
            status = bt_chat_syntax_error(p->err, (*list)->line,
                                          "an argument without a name follows "
                                          "one that has it");
        if (!status)
            status = bt_chat_parser_skip(p, ",", &more);
        if (!status && !more)
            status = bt_chat_parser_expect(p, ")");
        done = !more;
        if (!status && more)
            status = bt_chat_parser_skip(p, ")", &done);
        if (!status)
            list = &(*list)->next;
    }
    return status;
}

/* A node around *out, which becomes its first child. */
static bauta_status wrap(bt_chat_parser *p, bt_chat_node **out,
                         bt_chat_node_kind kind)
{
    bt_chat_node *outer;
    bauta_status status = bt_chat_parser_node(p, &outer, kind);
    if (status)
        return status;
    outer->a = *out;
    *out = outer;
    return BAUTA_OK;
}

static bauta_status parse_attribute(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = bt_chat_parser_advance(p);
    if (!status && p->token.kind == BT_CHAT_TOKEN_INTEGER) { // list.0
        status = wrap(p, out, BT_CHAT_ITEM);
        return status ? status : parse_number(p, &(*out)->b);
    }
    if (!status)
        status = wrap(p, out, BT_CHAT_ATTRIBUTE);
    return status ? status
                  : bt_chat_parser_name(p, &(*out)->string, "an attribute");
}

/* One part of [start:stop:step]; it may be absent. */
static bauta_status parse_slice_part(bt_chat_parser *p, bt_chat_node **out)
{
    if (bt_chat_parser_at(p, ":") || bt_chat_parser_at(p, "]"))
        return BAUTA_OK;
    return bt_chat_parse_expression(p, out);
}

static bauta_status parse_subscript(bt_chat_parser *p, bt_chat_node **out)
{
    bool colon = false;
    bauta_status status = wrap(p, out, BT_CHAT_ITEM);
    if (!status)
        status = bt_chat_parser_advance(p);
    if (!status && !bt_chat_parser_at(p, ":"))
        status = bt_chat_parse_tuple(p, &(*out)->b, true);
    if (!status)
        status = bt_chat_parser_skip(p, ":", &colon);
    if (!status && colon) {
        (*out)->kind = BT_CHAT_SLICE;
        status = parse_slice_part(p, &(*out)->c);
        if (!status)
            status = bt_chat_parser_skip(p, ":", &colon);
        if (!status && colon)
            status = parse_slice_part(p, &(*out)->d);
    }
    return status ? status : bt_chat_parser_expect(p, "]");
}

static bauta_status parse_call(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = wrap(p, out, BT_CHAT_CALL);
    return status ? status : parse_arguments(p, &(*out)->b);
}

static bauta_status parse_postfix(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = BAUTA_OK;
    while (!status) {
        if (bt_chat_parser_at(p, "."))
            status = parse_attribute(p, out);
        else if (bt_chat_parser_at(p, "["))
            status = parse_subscript(p, out);
        else if (bt_chat_parser_at(p, "("))
            status = parse_call(p, out);
        else
            break;
    }
    return status;
}

/* A filter's name and arguments, after the "|". */
static bauta_status parse_filter(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = wrap(p, out, BT_CHAT_FILTER);
    if (!status)
        status = bt_chat_parser_name(p, &(*out)->string, "a filter");
    if (!status && bt_chat_parser_at(p, "("))
        status = parse_arguments(p, &(*out)->b);
    return status;
}

/* Whether a test's argument without parentheses can start here. */
static bool argument_starts(const bt_chat_parser *p)
{
    switch (p->token.kind) {
    case BT_CHAT_TOKEN_STRING:
    case BT_CHAT_TOKEN_INTEGER:
    case BT_CHAT_TOKEN_REAL:
        return true;
    case BT_CHAT_TOKEN_NAME:
        return !bt_chat_parser_at_name(p, "else") &&
               !bt_chat_parser_at_name(p, "or") &&
               !bt_chat_parser_at_name(p, "and");
    default:
        return bt_chat_parser_at(p, "[") || bt_chat_parser_at(p, "{");
    }
}

/* "is [not] name [argument]", at "is". */
static bauta_status parse_test(bt_chat_parser *p, bt_chat_node **out)
{
    bt_chat_node *argument = NULL;
    bauta_status status = bt_chat_parser_advance(p);
    bool negated = !status && bt_chat_parser_at_name(p, "not");
    if (negated)
        status = bt_chat_parser_advance(p);
    if (!status)
        status = wrap(p, out, BT_CHAT_TEST);
    bt_chat_node *test = *out;
    if (!status)
        status = bt_chat_parser_name(p, &test->string, "a test");
    if (!status && bt_chat_parser_at(p, "("))
        status = parse_arguments(p, &test->b);
    else if (!status && argument_starts(p)) {
        if (bt_chat_parser_at_name(p, "is"))
            return bt_chat_parser_unexpected(p, "after a test");
        status = bt_chat_parser_node(p, &argument, BT_CHAT_ARGUMENT);
        if (!status)
            status = parse_primary(p, &argument->a);
        if (!status)
            status = parse_postfix(p, &argument->a);
        test->b = argument;
    }
    return !status && negated ? wrap(p, out, BT_CHAT_NOT) : status;
}

static bauta_status parse_filters_and_tests(bt_chat_parser *p,
                                            bt_chat_node **out)
{
    bool filter = false;
    bauta_status status = BAUTA_OK;
    while (!status) {
        status = bt_chat_parser_skip(p, "|", &filter);
        if (status)
            break;
        if (filter)
            status = parse_filter(p, out);
        else if (bt_chat_parser_at_name(p, "is"))
            status = parse_test(p, out);
        else if (bt_chat_parser_at(p, "("))
            status = parse_call(p, out);
        else
            break;
    }
    return status;
}

bauta_status bt_chat_parse_filters(bt_chat_parser *p, bt_chat_node **out)
{
    bool more = true;
    bauta_status status = BAUTA_OK;
    *out = NULL;
    while (!status && more) {
        status = parse_filter(p, out);
        if (!status)
            status = bt_chat_parser_skip(p, "|", &more);
    }
    return status;
}

/* ---- Operators ----------------------------------------------------------- */

static bauta_status parse_sign(bt_chat_parser *p, bt_chat_node **out,
                               bool filters)
{
    bool minus = bt_chat_parser_at(p, "-");
    bauta_status status = BAUTA_OK;
    if (minus || bt_chat_parser_at(p, "+")) {
        status = bt_chat_parser_enter(p);
        if (!status)
            status = bt_chat_parser_node(p, out, BT_CHAT_UNARY);
        if (!status) {
            (*out)->operation = minus ? BT_CHAT_SUBTRACT : BT_CHAT_ADD;
            status = bt_chat_parser_advance(p);
        }
        if (!status)
            status = parse_sign(p, &(*out)->a, false);
        p->depth--;
    } else {
        status = parse_primary(p, out);
    }
    if (!status)
        status = parse_postfix(p, out);
    return !status && filters ? parse_filters_and_tests(p, out) : status;
}

static bauta_status parse_level(bt_chat_parser *p, bt_chat_node **out,
                                size_t level)
{
    if (level == BT_LEN(levels))
        return parse_sign(p, out, true);
    bauta_status status = parse_level(p, out, level + 1);
    while (!status) {
        bt_chat_operation operation =
            operator_find(p, levels[level].operators, levels[level].count);
        if (!operation)
            break;
        status = wrap(p, out, BT_CHAT_BINARY);
        if (status)
            break;
        (*out)->operation = (uint8_t)operation;
        status = bt_chat_parser_advance(p);
        if (!status)
            status = parse_level(p, &(*out)->b, level + 1);
    }
    return status;
}

/* The comparison at the current token, which is skipped, or none. */
static bauta_status parse_comparison(bt_chat_parser *p, bt_chat_operation *op)
{
    *op = operator_find(p, comparisons, BT_LEN(comparisons));
    if (*op)
        return bt_chat_parser_advance(p);
    if (bt_chat_parser_at_name(p, "in")) {
        *op = BT_CHAT_IN;
        return bt_chat_parser_advance(p);
    }
    if (!bt_chat_parser_at_name(p, "not"))
        return BAUTA_OK;
    bauta_status status = bt_chat_parser_advance(p);
    if (status)
        return status;
    if (!bt_chat_parser_at_name(p, "in"))
        return bt_chat_parser_unexpected(p, "after \"not\"");
    *op = BT_CHAT_NOT_IN;
    return bt_chat_parser_advance(p);
}

static bauta_status parse_compare(bt_chat_parser *p, bt_chat_node **out)
{
    bt_chat_node **list = NULL;
    bt_chat_operation operation;
    bauta_status status = parse_level(p, out, 0);
    while (!status) {
        status = parse_comparison(p, &operation);
        if (status || !operation)
            break;
        if (!list) {
            status = wrap(p, out, BT_CHAT_COMPARE);
            list = &(*out)->b;
        }
        if (!status)
            status = bt_chat_parser_node(p, list, BT_CHAT_COMPARED);
        if (!status) {
            (*list)->operation = (uint8_t)operation;
            status = parse_level(p, &(*list)->a, 0);
        }
        if (!status)
            list = &(*list)->next;
    }
    return status;
}

static bauta_status parse_not(bt_chat_parser *p, bt_chat_node **out)
{
    if (!bt_chat_parser_at_name(p, "not"))
        return parse_compare(p, out);
    bauta_status status = bt_chat_parser_enter(p);
    if (!status)
        status = bt_chat_parser_node(p, out, BT_CHAT_NOT);
    if (!status)
        status = bt_chat_parser_advance(p);
    if (!status)
        status = parse_not(p, &(*out)->a);
    p->depth--;
    return status;
}

static bauta_status parse_and(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = parse_not(p, out);
    while (!status && bt_chat_parser_at_name(p, "and")) {
        status = wrap(p, out, BT_CHAT_AND);
        if (!status)
            status = bt_chat_parser_advance(p);
        if (!status)
            status = parse_not(p, &(*out)->b);
    }
    return status;
}

static bauta_status parse_or(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = parse_and(p, out);
    while (!status && bt_chat_parser_at_name(p, "or")) {
        status = wrap(p, out, BT_CHAT_OR);
        if (!status)
            status = bt_chat_parser_advance(p);
        if (!status)
            status = parse_and(p, &(*out)->b);
    }
    return status;
}

static bauta_status parse_condition(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = parse_or(p, out);
    while (!status && bt_chat_parser_at_name(p, "if")) {
        status = wrap(p, out, BT_CHAT_CONDITION);
        if (!status)
            status = bt_chat_parser_advance(p);
        if (!status)
            status = parse_or(p, &(*out)->b);
        if (!status && bt_chat_parser_at_name(p, "else")) {
            status = bt_chat_parser_advance(p);
            if (!status)
                status = bt_chat_parse_expression(p, &(*out)->c);
        }
    }
    return status;
}

bauta_status bt_chat_parse_expression(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = bt_chat_parser_enter(p);
    if (!status)
        status = parse_condition(p, out);
    p->depth--;
    return status;
}

static bool tuple_ends(const bt_chat_parser *p)
{
    return p->token.kind == BT_CHAT_TOKEN_VARIABLE_END ||
           p->token.kind == BT_CHAT_TOKEN_BLOCK_END ||
           bt_chat_parser_at(p, ")") || bt_chat_parser_at(p, "]");
}

bauta_status bt_chat_parse_tuple(bt_chat_parser *p, bt_chat_node **out,
                                 bool condition)
{
    bool more = false;
    bauta_status status = bt_chat_parser_enter(p);
    if (!status)
        status = condition ? parse_condition(p, out) : parse_or(p, out);
    if (!status)
        status = bt_chat_parser_skip(p, ",", &more);
    if (!status && more)
        status = wrap(p, out, BT_CHAT_TUPLE);
    for (bt_chat_node **list = status ? NULL : &(*out)->a;
         !status && more && !tuple_ends(p);) {
        list = &(*list)->next;
        status = condition ? parse_condition(p, list) : parse_or(p, list);
        if (!status)
            status = bt_chat_parser_skip(p, ",", &more);
    }
    p->depth--;
    return status;
}

/* ---- Targets of assignments ---------------------------------------------- */

static bauta_status parse_target_item(bt_chat_parser *p, bt_chat_node **out)
{
    bool skipped = false;
    bauta_status status = bt_chat_parser_enter(p);
    if (!status)
        status = bt_chat_parser_skip(p, "(", &skipped);
    if (!status && skipped) {
        status = bt_chat_parse_target(p, out);
        if (!status)
            status = bt_chat_parser_expect(p, ")");
    } else if (!status) {
        status = parse_name(p, out);
        if (!status && (*out)->kind != BT_CHAT_NAME)
            status = bt_chat_syntax_error(p->err, (*out)->line,
                                          "a constant cannot be assigned");
    }
    if (!status && !skipped && bt_chat_parser_at(p, "."))
        status = parse_attribute(p, out);
    p->depth--;
    return status;
}

bauta_status bt_chat_parse_target(bt_chat_parser *p, bt_chat_node **out)
{
    bool more = false;
    bauta_status status = parse_target_item(p, out);
    if (!status)
        status = bt_chat_parser_skip(p, ",", &more);
    if (!status && more)
        status = wrap(p, out, BT_CHAT_TUPLE);
    for (bt_chat_node **list = status ? NULL : &(*out)->a; !status && more;) {
        list = &(*list)->next;
        if (p->token.kind != BT_CHAT_TOKEN_NAME && !bt_chat_parser_at(p, "("))
            break; // "a, = x"
        if (bt_chat_parser_at_name(p, "in"))
            break; // "for a, in x"
        status = parse_target_item(p, list);
        if (!status)
            status = bt_chat_parser_skip(p, ",", &more);
    }
    return status;
}
