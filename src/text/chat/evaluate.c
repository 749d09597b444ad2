/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.c - expressions. */
#include "text/chat/render.h"

#include <string.h>

/* Work of one node, in the unit of one byte that is copied. */
enum { NODE_WORK = 32 };

typedef bauta_status evaluate_fn(bt_chat_render *r, const bt_chat_node *node,
                                 bt_chat_value *out);

static size_t list_length(const bt_chat_node *node)
{
    size_t count = 0;
    for (; node; node = node->next)
        count++;
    return count;
}

/* ---- Lists and dicts ----------------------------------------------------- */

static bauta_status evaluate_list(bt_chat_render *r, const bt_chat_node *node,
                                  bt_chat_value *out)
{
    bt_chat_value list;
    size_t i = 0;
    bt_chat_list_form form =
        node->kind == BT_CHAT_TUPLE ? BT_CHAT_FORM_TUPLE : BT_CHAT_FORM_LIST;
    bauta_status status =
        bt_chat_list_make(r, &list, form, list_length(node->a));
    for (const bt_chat_node *at = node->a; at && !status; at = at->next)
        status = bt_chat_evaluate(r, at, &list.list->items[i++]);
    if (!status)
        *out = list;
    return status;
}

static bauta_status evaluate_dict(bt_chat_render *r, const bt_chat_node *node,
                                  bt_chat_value *out)
{
    bt_chat_value dict, key, value;
    bauta_status status =
        bt_chat_dict_make(r, &dict, BT_CHAT_KIND_DICT, list_length(node->a));
    for (const bt_chat_node *at = node->a; at && !status; at = at->next) {
        status = bt_chat_evaluate(r, at->a, &key);
        if (!status)
            status = bt_chat_evaluate(r, at->b, &value);
        if (!status)
            status = bt_chat_dict_set(r, dict.dict, &key, &value);
    }
    if (!status)
        *out = dict;
    return status;
}

/* ---- Members and calls --------------------------------------------------- */

static bauta_status evaluate_attribute(bt_chat_render *r,
                                       const bt_chat_node *node,
                                       bt_chat_value *out)
{
    bt_chat_value v;
    bauta_status status = bt_chat_evaluate(r, node->a, &v);
    r->line = node->line;
    return status ? status : bt_chat_attribute(r, out, &v, node->string);
}

static bauta_status evaluate_item(bt_chat_render *r, const bt_chat_node *node,
                                  bt_chat_value *out)
{
    bt_chat_value v, key;
    bauta_status status = bt_chat_evaluate(r, node->a, &v);
    if (!status)
        status = bt_chat_evaluate(r, node->b, &key);
    r->line = node->line;
    return status ? status : bt_chat_item(r, out, &v, &key);
}

static bauta_status evaluate_slice(bt_chat_render *r, const bt_chat_node *node,
                                   bt_chat_value *out)
{
    const bt_chat_node *parts[] = { node->b, node->c, node->d };
    bt_chat_value v, bounds[3] = { 0 };
    bauta_status status = bt_chat_evaluate(r, node->a, &v);
    for (size_t i = 0; i < 3 && !status; i++)
        if (parts[i])
            status = bt_chat_evaluate(r, parts[i], &bounds[i]);
    r->line = node->line;
    return status
               ? status
               : bt_chat_slice(r, out, &v, &bounds[0], &bounds[1], &bounds[2]);
}

/* Arguments while they are collected; *a and **a may be any number of them. */
typedef struct argument_list {
    bt_chat_value values[BT_CHAT_ARGUMENTS_MAX];
    bt_chat_entry named[BT_CHAT_ARGUMENTS_MAX];
    size_t count, named_count;
} argument_list;

static bauta_status add_value(bt_chat_render *r, argument_list *list,
                              const bt_chat_value *v)
{
    if (list->count == BT_CHAT_ARGUMENTS_MAX)
        return bt_chat_fail(r, "a call has more than %d arguments",
                            BT_CHAT_ARGUMENTS_MAX);
    list->values[list->count++] = *v;
    return BAUTA_OK;
}

static bauta_status add_named(bt_chat_render *r, argument_list *list,
                              const bt_chat_value *key, const bt_chat_value *v)
{
    if (list->named_count == BT_CHAT_ARGUMENTS_MAX || !bt_chat_is_string(key))
        return bt_chat_fail(r,
                            "a call has more than %d named arguments, or "
                            "one whose name is a %s",
                            BT_CHAT_ARGUMENTS_MAX, bt_chat_type_name(key));
    if (key->string->size > BT_CHAT_NAME_MAX)
        return bt_chat_fail(r, "the name of an argument has more than %d bytes",
                            BT_CHAT_NAME_MAX);
    for (size_t i = 0; i < list->named_count; i++)
        if (bt_chat_string_equal(list->named[i].key.string, key->string))
            return bt_chat_fail(r, "a call has the argument \"%s\" twice",
                                bt_chat_quote(key->string).text);
    list->named[list->named_count++] = (bt_chat_entry){ *key, *v };
    return BAUTA_OK;
}

static bauta_status add_spread(bt_chat_render *r, argument_list *list,
                               const bt_chat_node *node, const bt_chat_value *v)
{
    bt_chat_list *items;
    bauta_status status = BAUTA_OK;
    if (node->operation == BT_CHAT_SPREAD_DICT) {
        if (v->kind != BT_CHAT_KIND_DICT)
            return bt_chat_fail(r, "\"**\" before a %s", bt_chat_type_name(v));
        for (size_t i = 0; i < v->dict->count && !status; i++)
            status = add_named(r, list, &v->dict->entries[i].key,
                               &v->dict->entries[i].value);
        return status;
    }
    status = bt_chat_iterate(r, v, &items);
    for (size_t i = 0; !status && i < items->count; i++)
        status = add_value(r, list, &items->items[i]);
    return status;
}

/* Kept apart from the recursion, since the list is large. */
static __attribute__((noinline)) bauta_status
arguments_store(bt_chat_render *r, const bt_chat_node *node,
                const bt_chat_value *values, bt_chat_arguments *out)
{
    argument_list list;
    void *stored, *named;
    bauta_status status = BAUTA_OK;
    list.count = list.named_count = 0;
    for (; node && !status; node = node->next, values++) {
        if (node->operation) {
            status = add_spread(r, &list, node, values);
        } else if (node->string) {
            bt_chat_value key = bt_chat_text(node->string);
            status = add_named(r, &list, &key, values);
        } else {
            status = add_value(r, &list, values);
        }
    }
    if (!status)
        status = bt_chat_alloc(r, &stored, list.count * sizeof(bt_chat_value));
    if (!status)
        status =
            bt_chat_alloc(r, &named, list.named_count * sizeof(bt_chat_entry));
    if (status)
        return status;
    memcpy(stored, list.values, list.count * sizeof(bt_chat_value));
    memcpy(named, list.named, list.named_count * sizeof(bt_chat_entry));
    *out = (bt_chat_arguments){ stored, list.count, named, list.named_count };
    return BAUTA_OK;
}

bauta_status bt_chat_evaluate_arguments(bt_chat_render *r,
                                        const bt_chat_node *list,
                                        bt_chat_arguments *out)
{
    bt_chat_value values;
    size_t i = 0;
    *out = (bt_chat_arguments){ 0 };
    if (!list)
        return BAUTA_OK;
    bauta_status status =
        bt_chat_list_make(r, &values, BT_CHAT_FORM_LIST, list_length(list));
    for (const bt_chat_node *at = list; at && !status; at = at->next)
        status = bt_chat_evaluate(r, at->a, &values.list->items[i++]);
    return status ? status : arguments_store(r, list, values.list->items, out);
}

bauta_status bt_chat_call_value(bt_chat_render *r, const bt_chat_value *callee,
                                const bt_chat_arguments *arguments,
                                bt_chat_value *out)
{
    switch (callee->kind) {
    case BT_CHAT_KIND_MACRO:
        return bt_chat_macro_call(r, callee->macro, arguments, out);
    case BT_CHAT_KIND_FUNCTION:
        return bt_chat_function_call(r, callee, arguments, out);
    case BT_CHAT_KIND_METHOD:
        return bt_chat_method_call(r, callee->method, arguments, out);
    case BT_CHAT_KIND_UNDEFINED:
        return bt_chat_fail_undefined(r, callee);
    default:
        return bt_chat_fail(r, "a %s cannot be called",
                            bt_chat_type_name(callee));
    }
}

static bauta_status evaluate_call(bt_chat_render *r, const bt_chat_node *node,
                                  bt_chat_value *out)
{
    bt_chat_value callee;
    bt_chat_arguments arguments;
    bauta_status status = bt_chat_evaluate(r, node->a, &callee);
    if (!status)
        status = bt_chat_evaluate_arguments(r, node->b, &arguments);
    r->line = node->line;
    return status ? status : bt_chat_call_value(r, &callee, &arguments, out);
}

static bauta_status evaluate_filter(bt_chat_render *r, const bt_chat_node *node,
                                    bt_chat_value *out)
{
    bt_chat_value v = r->block;
    bt_chat_arguments arguments;
    bauta_status status = node->a ? bt_chat_evaluate(r, node->a, &v) : BAUTA_OK;
    if (!status)
        status = bt_chat_evaluate_arguments(r, node->b, &arguments);
    r->line = node->line;
    return status ? status
                  : bt_chat_filter(r, node->string, &v, &arguments, out);
}

static bauta_status evaluate_test(bt_chat_render *r, const bt_chat_node *node,
                                  bt_chat_value *out)
{
    bt_chat_value v;
    bt_chat_arguments arguments;
    bool is = false;
    bauta_status status = bt_chat_evaluate(r, node->a, &v);
    if (!status)
        status = bt_chat_evaluate_arguments(r, node->b, &arguments);
    r->line = node->line;
    if (!status)
        status = bt_chat_test(r, node->string, &v, &arguments, &is);
    *out = bt_chat_boolean(is);
    return status;
}

/* ---- Operators ----------------------------------------------------------- */

static bauta_status evaluate_not(bt_chat_render *r, const bt_chat_node *node,
                                 bt_chat_value *out)
{
    bt_chat_value v;
    bauta_status status = bt_chat_evaluate(r, node->a, &v);
    if (!status)
        *out = bt_chat_boolean(!bt_chat_truth(&v));
    return status;
}

/* "and" and "or" give the operand that decides. */
static bauta_status evaluate_logic(bt_chat_render *r, const bt_chat_node *node,
                                   bt_chat_value *out)
{
    bauta_status status = bt_chat_evaluate(r, node->a, out);
    if (!status && bt_chat_truth(out) == (node->kind == BT_CHAT_AND))
        status = bt_chat_evaluate(r, node->b, out);
    return status;
}

static bauta_status evaluate_condition(bt_chat_render *r,
                                       const bt_chat_node *node,
                                       bt_chat_value *out)
{
    static const bt_chat_string name = { "else", 4, NULL };
    bt_chat_value condition;
    bauta_status status = bt_chat_evaluate(r, node->b, &condition);
    if (status)
        return status;
    if (bt_chat_truth(&condition))
        return bt_chat_evaluate(r, node->a, out);
    if (node->c)
        return bt_chat_evaluate(r, node->c, out);
    *out = bt_chat_undefined(BT_CHAT_FORM_NAME, 0, &name);
    return BAUTA_OK;
}

static bauta_status evaluate_unary(bt_chat_render *r, const bt_chat_node *node,
                                   bt_chat_value *out)
{
    bt_chat_value v;
    bauta_status status = bt_chat_evaluate(r, node->a, &v);
    r->line = node->line;
    return status
               ? status
               : bt_chat_negate(r, (bt_chat_operation)node->operation, &v, out);
}

static bauta_status evaluate_binary(bt_chat_render *r, const bt_chat_node *node,
                                    bt_chat_value *out)
{
    bt_chat_value a, b;
    bauta_status status = bt_chat_evaluate(r, node->a, &a);
    if (!status)
        status = bt_chat_evaluate(r, node->b, &b);
    r->line = node->line;
    return status ? status
                  : bt_chat_binary(r, (bt_chat_operation)node->operation, &a,
                                   &b, out);
}

static bauta_status compare(bt_chat_render *r, bt_chat_operation operation,
                            const bt_chat_value *a, const bt_chat_value *b,
                            bool *holds)
{
    int order = 0;
    bauta_status status = BAUTA_OK;
    switch (operation) {
    case BT_CHAT_EQUAL:
    case BT_CHAT_NOT_EQUAL:
        status = bt_chat_equal(r, a, b, holds);
        *holds = *holds == (operation == BT_CHAT_EQUAL);
        return status;
    case BT_CHAT_IN:
    case BT_CHAT_NOT_IN:
        status = bt_chat_contains(r, a, b, holds);
        *holds = *holds == (operation == BT_CHAT_IN);
        return status;
    default:
        break;
    }
    status = bt_chat_order(r, a, b, &order);
    *holds = operation == BT_CHAT_LESS            ? order == -1
             : operation == BT_CHAT_LESS_EQUAL    ? order <= 0
             : operation == BT_CHAT_GREATER_EQUAL ? order == 0 || order == 1
                                                  : order == 1;
    return status;
}

/* a < b < c: every pair must hold, and each is evaluated once. */
static bauta_status evaluate_compare(bt_chat_render *r,
                                     const bt_chat_node *node,
                                     bt_chat_value *out)
{
    bt_chat_value left, right;
    bool holds = true;
    bauta_status status = bt_chat_evaluate(r, node->a, &left);
    for (const bt_chat_node *at = node->b; at && !status && holds;
         at = at->next) {
        status = bt_chat_evaluate(r, at->a, &right);
        r->line = node->line;
        if (!status)
            status = compare(r, (bt_chat_operation)at->operation, &left, &right,
                             &holds);
        left = right;
    }
    *out = bt_chat_boolean(holds);
    return status;
}

static bauta_status evaluate_constant(bt_chat_render *r,
                                      const bt_chat_node *node,
                                      bt_chat_value *out)
{
    (void)r;
    switch (node->kind) {
    case BT_CHAT_LITERAL:
        *out = bt_chat_text(node->string);
        break;
    case BT_CHAT_INTEGER:
        *out = bt_chat_integer(node->integer);
        break;
    case BT_CHAT_REAL:
        *out = bt_chat_real(node->real);
        break;
    case BT_CHAT_NONE:
        *out = bt_chat_none();
        break;
    default:
        *out = bt_chat_boolean(node->kind == BT_CHAT_TRUE);
        break;
    }
    return BAUTA_OK;
}

static bauta_status evaluate_name(bt_chat_render *r, const bt_chat_node *node,
                                  bt_chat_value *out)
{
    return bt_chat_lookup(r, node->string, out);
}

static evaluate_fn *const evaluators[] = {
    [BT_CHAT_NAME] = evaluate_name,
    [BT_CHAT_LITERAL] = evaluate_constant,
    [BT_CHAT_INTEGER] = evaluate_constant,
    [BT_CHAT_REAL] = evaluate_constant,
    [BT_CHAT_TRUE] = evaluate_constant,
    [BT_CHAT_FALSE] = evaluate_constant,
    [BT_CHAT_NONE] = evaluate_constant,
    [BT_CHAT_LIST] = evaluate_list,
    [BT_CHAT_TUPLE] = evaluate_list,
    [BT_CHAT_DICT] = evaluate_dict,
    [BT_CHAT_ATTRIBUTE] = evaluate_attribute,
    [BT_CHAT_ITEM] = evaluate_item,
    [BT_CHAT_SLICE] = evaluate_slice,
    [BT_CHAT_CALL] = evaluate_call,
    [BT_CHAT_FILTER] = evaluate_filter,
    [BT_CHAT_TEST] = evaluate_test,
    [BT_CHAT_NOT] = evaluate_not,
    [BT_CHAT_AND] = evaluate_logic,
    [BT_CHAT_OR] = evaluate_logic,
    [BT_CHAT_CONDITION] = evaluate_condition,
    [BT_CHAT_UNARY] = evaluate_unary,
    [BT_CHAT_BINARY] = evaluate_binary,
    [BT_CHAT_COMPARE] = evaluate_compare,
};

bauta_status bt_chat_evaluate(bt_chat_render *r, const bt_chat_node *node,
                              bt_chat_value *out)
{
    bauta_status status = bt_chat_enter(r);
    r->line = node->line;
    if (!status)
        status = bt_chat_work(r, NODE_WORK);
    if (!status)
        status = evaluators[node->kind](r, node, out);
    r->depth--;
    return status;
}
