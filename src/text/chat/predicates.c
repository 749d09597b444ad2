/* SPDX-License-Identifier: Apache-2.0 */
/* predicates.c - the tests of Jinja: x is defined, x is string, ... */
#include "text/chat/render.h"

#include <string.h>

#define TEST(name)                                                     \
    static bauta_status name(bt_chat_render *r, const bt_chat_call *c, \
                             bt_chat_value *out)

/* Tests that look at the kind of a value only. */
static bool is_kind(const bt_chat_value *v, const char *name, bool *known)
{
    static const struct {
        const char *name;
        unsigned kinds; /* one bit for each bt_chat_kind */
    } tests[] = {
        { "none", 1u << BT_CHAT_KIND_NONE },
        { "boolean", 1u << BT_CHAT_KIND_BOOLEAN },
        { "integer", 1u << BT_CHAT_KIND_INTEGER },
        { "float", 1u << BT_CHAT_KIND_REAL },
        { "number", 1u << BT_CHAT_KIND_BOOLEAN | 1u << BT_CHAT_KIND_INTEGER |
                        1u << BT_CHAT_KIND_REAL },
        { "string", 1u << BT_CHAT_KIND_STRING },
        { "mapping", 1u << BT_CHAT_KIND_DICT },
        { "undefined", 1u << BT_CHAT_KIND_UNDEFINED },
        { "defined", ~(1u << BT_CHAT_KIND_UNDEFINED) },
        { "iterable", 1u << BT_CHAT_KIND_STRING | 1u << BT_CHAT_KIND_LIST |
                          1u << BT_CHAT_KIND_DICT |
                          1u << BT_CHAT_KIND_UNDEFINED |
                          1u << BT_CHAT_KIND_LOOP },
        { "callable", 1u << BT_CHAT_KIND_MACRO | 1u << BT_CHAT_KIND_FUNCTION |
                          1u << BT_CHAT_KIND_METHOD |
                          1u << BT_CHAT_KIND_UNDEFINED },
    };
    *known = true;
    for (size_t i = 0; i < BT_LEN(tests); i++)
        if (!strcmp(name, tests[i].name))
            return tests[i].kinds >> v->kind & 1;
    *known = false;
    return false;
}

/* With a length and items by number; a dict counts for Jinja. */
TEST(is_sequence)
{
    const bt_chat_value *v = &c->self;
    bool list = v->kind == BT_CHAT_KIND_LIST && v->form <= BT_CHAT_FORM_RANGE;
    *out = bt_chat_boolean(list || v->kind == BT_CHAT_KIND_STRING ||
                           v->kind == BT_CHAT_KIND_DICT ||
                           v->kind == BT_CHAT_KIND_UNDEFINED);
    return bt_chat_work(r, 1);
}

TEST(is_true)
{
    *out = bt_chat_boolean(c->self.kind == BT_CHAT_KIND_BOOLEAN &&
                           c->self.boolean);
    return bt_chat_work(r, 1);
}

TEST(is_false)
{
    *out = bt_chat_boolean(c->self.kind == BT_CHAT_KIND_BOOLEAN &&
                           !c->self.boolean);
    return bt_chat_work(r, 1);
}

TEST(is_escaped)
{
    *out = bt_chat_boolean(bt_chat_is_string(&c->self) && c->self.markup);
    return bt_chat_work(r, 1);
}

/* The rest of a division, which is compared with 0 or 1. */
static bauta_status rest_is(bt_chat_render *r, const bt_chat_value *v,
                            const bt_chat_value *by, int64_t is,
                            bt_chat_value *out)
{
    bt_chat_value rest, wanted = bt_chat_integer(is);
    bool equal = false;
    bauta_status status = bt_chat_binary(r, BT_CHAT_MODULO, v, by, &rest);
    if (!status)
        status = bt_chat_equal(r, &rest, &wanted, &equal);
    *out = bt_chat_boolean(equal);
    return status;
}

TEST(is_even)
{
    bt_chat_value two = bt_chat_integer(2);
    return rest_is(r, &c->self, &two, 0, out);
}

TEST(is_odd)
{
    bt_chat_value two = bt_chat_integer(2);
    return rest_is(r, &c->self, &two, 1, out);
}

TEST(is_divisible)
{
    return rest_is(r, &c->self, &c->bound[0], 0, out);
}

static bauta_status is_in_case(bt_chat_render *r, const bt_chat_call *c,
                               bt_chat_value *out, bt_chat_case to)
{
    bt_chat_value text, same, other;
    bauta_status status = bt_chat_stringify(r, &text, &c->self);
    if (!status)
        status = bt_chat_change_case(r, &same, &text, to);
    if (!status)
        status = bt_chat_change_case(r, &other, &text,
                                     to == BT_CHAT_UPPER ? BT_CHAT_LOWER
                                                         : BT_CHAT_UPPER);
    if (!status)
        *out =
            bt_chat_boolean(bt_chat_string_equal(same.string, text.string) &&
                            !bt_chat_string_equal(other.string, text.string));
    return status;
}

TEST(is_lower)
{
    return is_in_case(r, c, out, BT_CHAT_LOWER);
}

TEST(is_upper)
{
    return is_in_case(r, c, out, BT_CHAT_UPPER);
}

/* The same object: equal for values that have no identity of their own. */
TEST(is_same)
{
    const bt_chat_value *a = &c->self, *b = &c->bound[0];
    bool same = a->kind == b->kind;
    bauta_status status = BAUTA_OK;
    if (same && a->kind >= BT_CHAT_KIND_LIST)
        same = a->list == b->list;
    else if (same)
        status = bt_chat_equal(r, a, b, &same);
    *out = bt_chat_boolean(same);
    return status;
}

TEST(is_in)
{
    bool in;
    bauta_status status = bt_chat_contains(r, &c->self, &c->bound[0], &in);
    *out = bt_chat_boolean(in);
    return status;
}

TEST(is_filter)
{
    *out = bt_chat_boolean(bt_chat_is_string(&c->self) &&
                           bt_chat_has_filter(c->self.string));
    return bt_chat_work(r, 1);
}

TEST(is_test)
{
    *out = bt_chat_boolean(bt_chat_is_string(&c->self) &&
                           bt_chat_has_test(c->self.string));
    return bt_chat_work(r, 1);
}

/* ---- Comparisons --------------------------------------------------------- */

TEST(is_equal)
{
    bool equal;
    bauta_status status = bt_chat_equal(r, &c->self, &c->bound[0], &equal);
    *out = bt_chat_boolean(equal);
    return status;
}

TEST(is_unequal)
{
    bauta_status status = is_equal(r, c, out);
    out->boolean = !out->boolean;
    return status;
}

/* Whether the order is `a` or `b`. */
static bauta_status ordered(bt_chat_render *r, const bt_chat_call *c,
                            bt_chat_value *out, int a, int b)
{
    int order;
    bauta_status status = bt_chat_order(r, &c->self, &c->bound[0], &order);
    *out = bt_chat_boolean(order == a || order == b);
    return status;
}

TEST(is_less)
{
    return ordered(r, c, out, -1, -1);
}

TEST(is_less_equal)
{
    return ordered(r, c, out, -1, 0);
}

TEST(is_greater)
{
    return ordered(r, c, out, 1, 1);
}

TEST(is_greater_equal)
{
    return ordered(r, c, out, 1, 0);
}

/* Without a function: a test of the kind alone. */
static const bt_chat_builtin tests[] = {
    { "boolean", "", NULL },
    { "callable", "", NULL },
    { "defined", "", NULL },
    { "divisibleby", "num", is_divisible },
    { "eq", "other", is_equal },
    { "equalto", "other", is_equal },
    { "==", "other", is_equal },
    { "escaped", "", is_escaped },
    { "even", "", is_even },
    { "false", "", is_false },
    { "filter", "", is_filter },
    { "float", "", NULL },
    { "ge", "other", is_greater_equal },
    { ">=", "other", is_greater_equal },
    { "greaterthan", "other", is_greater },
    { "gt", "other", is_greater },
    { ">", "other", is_greater },
    { "in", "seq", is_in },
    { "integer", "", NULL },
    { "iterable", "", NULL },
    { "le", "other", is_less_equal },
    { "<=", "other", is_less_equal },
    { "lessthan", "other", is_less },
    { "lt", "other", is_less },
    { "<", "other", is_less },
    { "lower", "", is_lower },
    { "mapping", "", NULL },
    { "ne", "other", is_unequal },
    { "!=", "other", is_unequal },
    { "none", "", NULL },
    { "number", "", NULL },
    { "odd", "", is_odd },
    { "sameas", "other", is_same },
    { "sequence", "", is_sequence },
    { "string", "", NULL },
    { "test", "", is_test },
    { "true", "", is_true },
    { "undefined", "", NULL },
    { "upper", "", is_upper },
};

static const bt_chat_builtin *test_find(const bt_chat_string *name)
{
    for (size_t i = 0; i < BT_LEN(tests); i++)
        if (bt_chat_string_is(name, tests[i].name))
            return &tests[i];
    return NULL;
}

bool bt_chat_has_test(const bt_chat_string *name)
{
    return test_find(name) != NULL;
}

bauta_status bt_chat_test(bt_chat_render *r, const bt_chat_string *name,
                          const bt_chat_value *v,
                          const bt_chat_arguments *arguments, bool *is)
{
    const bt_chat_builtin *test = test_find(name);
    bt_chat_value result = bt_chat_boolean(false);
    bool known;
    *is = false;
    if (!test)
        return bt_chat_fail(r, "there is no test \"%s\"",
                            bt_chat_quote(name).text);
    if (!test->call) {
        *is = is_kind(v, test->name, &known);
        return arguments->count || arguments->named_count
                   ? bt_chat_fail(r, "the test \"%s\" takes no arguments",
                                  test->name)
                   : bt_chat_work(r, 1);
    }
    bauta_status status = bt_chat_builtin_call(r, test, v, arguments, &result);
    *is = !status && result.boolean;
    return status;
}
