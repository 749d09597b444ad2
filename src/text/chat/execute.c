/* SPDX-License-Identifier: Apache-2.0 */
/* execute.c - statements, scopes, macros and loops. */
#include "base/size.h"
#include "text/chat/render.h"

#include <string.h>

enum { STATEMENT_WORK = 16 };

typedef struct chat_variable {
    const bt_chat_string *name;
    bt_chat_value value;
} chat_variable;

/* Variables that were set in a block, and the block around it. An inner scope
 * sees the outer ones as they are at that time, as Python's closures do. */
struct bt_chat_scope {
    bt_chat_scope *outer;
    chat_variable *variables;
    size_t count, capacity;
    bool captured; /* a macro refers to it, so that it cannot be reused */
};

typedef struct bt_chat_loop {
    bt_chat_list *items;
    size_t next; /* the item to visit after the current one and `after` */
    size_t index;
    bt_chat_value before, current, after; /* ABSENT if there is none */
    const bt_chat_node *node;
    const bt_chat_node *condition; /* which items are visited, or NULL */
    bt_chat_scope *outer;
    bt_chat_value changed; /* the arguments of changed() */
} bt_chat_loop;

/* Why a body ended. */
typedef enum chat_leave {
    CHAT_LEAVE_NOT,
    CHAT_BREAK,
    CHAT_CONTINUE
} chat_leave;

static bauta_status execute_body(bt_chat_render *r, const bt_chat_node *list,
                                 chat_leave *leave);

/* ---- Scopes -------------------------------------------------------------- */

static bauta_status scope_push(bt_chat_render *r, bt_chat_scope *outer)
{
    void *scope;
    bauta_status status = bt_chat_alloc(r, &scope, sizeof(bt_chat_scope));
    if (status)
        return status;
    r->scope = scope;
    *r->scope = (bt_chat_scope){ .outer = outer };
    return BAUTA_OK;
}

static chat_variable *variable_find(const bt_chat_scope *scope,
                                    const bt_chat_string *name)
{
    for (size_t i = 0; i < scope->count; i++)
        if (bt_chat_string_equal(scope->variables[i].name, name))
            return &scope->variables[i];
    return NULL;
}

static bauta_status variable_set(bt_chat_render *r, const bt_chat_string *name,
                                 const bt_chat_value *value)
{
    bt_chat_scope *scope = r->scope;
    chat_variable *found = variable_find(scope, name);
    void *grown;
    bauta_status status = bt_chat_work(r, scope->count);
    if (!status && !found && scope->count == scope->capacity) {
        size_t capacity = scope->capacity ? 2 * scope->capacity : 4;
        status = bt_chat_alloc(r, &grown, capacity * sizeof(chat_variable));
        if (status)
            return status;
        if (scope->count)
            memcpy(grown, scope->variables,
                   scope->count * sizeof(chat_variable));
        scope->variables = grown;
        scope->capacity = capacity;
    }
    if (status)
        return status;
    if (!found)
        found = &scope->variables[scope->count++];
    *found = (chat_variable){ name, *value };
    return BAUTA_OK;
}

bauta_status bt_chat_lookup(bt_chat_render *r, const bt_chat_string *name,
                            bt_chat_value *out)
{
    size_t work = r->variables->count;
    for (const bt_chat_scope *s = r->scope; s; s = s->outer) {
        const chat_variable *found = variable_find(s, name);
        work += s->count + 1;
        if (found) {
            *out = found->value;
            return bt_chat_work(r, work);
        }
    }
    const bt_chat_value *given = bt_chat_dict_get(r->variables, name);
    // A variable of a function's name replaces it, except for the time.
    if (given && !bt_chat_string_is(name, "strftime_now"))
        *out = *given;
    else
        *out = bt_chat_function_find(name);
    if (!out->kind)
        *out = bt_chat_undefined(BT_CHAT_FORM_NAME, 0, name);
    return bt_chat_work(r, work);
}

/* ---- Assignments --------------------------------------------------------- */

static bauta_status assign(bt_chat_render *r, const bt_chat_node *target,
                           const bt_chat_value *value);

static bauta_status assign_tuple(bt_chat_render *r, const bt_chat_node *target,
                                 const bt_chat_value *value)
{
    bt_chat_list *items;
    size_t count = 0, i = 0;
    bauta_status status = bt_chat_iterate(r, value, &items);
    for (const bt_chat_node *at = target->a; at; at = at->next)
        count++;
    if (!status && items->count != count)
        return bt_chat_fail(r, "%zu values for %zu variables", items->count,
                            count);
    for (const bt_chat_node *at = target->a; at && !status; at = at->next)
        status = assign(r, at, &items->items[i++]);
    return status;
}

static bauta_status assign_attribute(bt_chat_render *r,
                                     const bt_chat_node *target,
                                     const bt_chat_value *value)
{
    bt_chat_value object, key = bt_chat_text(target->string);
    bauta_status status = bt_chat_evaluate(r, target->a, &object);
    if (!status && object.kind != BT_CHAT_KIND_NAMESPACE)
        return bt_chat_fail(r,
                            "attributes of a %s cannot be set, only of a "
                            "namespace()",
                            bt_chat_type_name(&object));
    return status ? status : bt_chat_dict_set(r, object.dict, &key, value);
}

static bauta_status assign(bt_chat_render *r, const bt_chat_node *target,
                           const bt_chat_value *value)
{
    bauta_status status = bt_chat_enter(r);
    if (status)
        ;
    else if (target->kind == BT_CHAT_TUPLE)
        status = assign_tuple(r, target, value);
    else if (target->kind == BT_CHAT_NAME)
        status = variable_set(r, target->string, value);
    else if (target->kind == BT_CHAT_ATTRIBUTE)
        status = assign_attribute(r, target, value);
    else
        status = bt_chat_fail(r, "this cannot be assigned to");
    r->depth--;
    return status;
}

/* ---- Loops --------------------------------------------------------------- */

/* Whether the condition of a loop holds for an item; it sees the item and the
 * scope around the loop. */
static bauta_status item_selected(bt_chat_render *r, const bt_chat_loop *loop,
                                  const bt_chat_value *item, bool *selected)
{
    bt_chat_scope *inner = r->scope;
    bt_chat_value holds = { 0 };
    *selected = true;
    if (!loop->condition)
        return BAUTA_OK;
    bauta_status status = scope_push(r, loop->outer);
    if (!status)
        status = assign(r, loop->node->a, item);
    if (!status)
        status = bt_chat_evaluate(r, loop->condition, &holds);
    *selected = bt_chat_truth(&holds);
    r->scope = inner;
    return status;
}

/* Make loop->after the next item, if there is one. */
static bauta_status loop_peek(bt_chat_render *r, bt_chat_loop *loop)
{
    bool selected = false;
    bauta_status status = BAUTA_OK;
    while (!loop->after.kind && loop->next < loop->items->count && !status) {
        const bt_chat_value *item = &loop->items->items[loop->next++];
        status = item_selected(r, loop, item, &selected);
        if (!status && selected)
            loop->after = *item;
    }
    return status;
}

/* How many items a loop visits: those left are selected now. */
static bauta_status loop_length(bt_chat_render *r, bt_chat_loop *loop,
                                size_t *length)
{
    bt_chat_value rest;
    bool selected;
    bauta_status status = loop_peek(r, loop);
    if (!status && loop->condition && loop->next < loop->items->count) {
        size_t count = 0;
        status = bt_chat_list_make(r, &rest, BT_CHAT_FORM_LIST,
                                   loop->items->count - loop->next);
        for (size_t i = loop->next; i < loop->items->count && !status; i++) {
            status = item_selected(r, loop, &loop->items->items[i], &selected);
            if (!status && selected)
                rest.list->items[count++] = loop->items->items[i];
        }
        if (status)
            return status;
        rest.list->count = count;
        loop->items = rest.list;
        loop->next = 0;
        loop->condition = NULL;
    }
    *length = loop->index + 1 + (loop->after.kind != 0) + loop->items->count -
              loop->next;
    return status;
}

static bauta_status loop_neighbour(const bt_chat_value *item,
                                   const bt_chat_string *name,
                                   bt_chat_value *out)
{
    *out = item->kind ? *item
                      : bt_chat_undefined(BT_CHAT_FORM_ATTRIBUTE,
                                          BT_CHAT_KIND_LOOP, name);
    return BAUTA_OK;
}

bauta_status bt_chat_loop_attribute(bt_chat_render *r, bt_chat_value *out,
                                    bt_chat_loop *loop,
                                    const bt_chat_string *name)
{
    size_t length = 0;
    bauta_status status = BAUTA_OK;
    int64_t index = (int64_t)loop->index;
    if (bt_chat_string_is(name, "index0")) {
        *out = bt_chat_integer(index);
    } else if (bt_chat_string_is(name, "index")) {
        *out = bt_chat_integer(index + 1);
    } else if (bt_chat_string_is(name, "first")) {
        *out = bt_chat_boolean(index == 0);
    } else if (bt_chat_string_is(name, "depth")) {
        *out = bt_chat_integer(1); // loops are not recursive
    } else if (bt_chat_string_is(name, "depth0")) {
        *out = bt_chat_integer(0);
    } else if (bt_chat_string_is(name, "previtem")) {
        return loop_neighbour(&loop->before, name, out);
    } else if (bt_chat_string_is(name, "nextitem")) {
        status = loop_peek(r, loop);
        return status ? status : loop_neighbour(&loop->after, name, out);
    } else if (bt_chat_string_is(name, "last")) {
        status = loop_peek(r, loop);
        *out = bt_chat_boolean(!loop->after.kind);
    } else if (bt_chat_string_is(name, "length")) {
        status = loop_length(r, loop, &length);
        *out = bt_chat_integer((int64_t)length);
    } else if (bt_chat_string_is(name, "revindex")) {
        status = loop_length(r, loop, &length);
        *out = bt_chat_integer((int64_t)length - index);
    } else if (bt_chat_string_is(name, "revindex0")) {
        status = loop_length(r, loop, &length);
        *out = bt_chat_integer((int64_t)length - index - 1);
    }
    return status;
}

size_t bt_chat_loop_index(const bt_chat_loop *loop)
{
    return loop->index;
}

bt_chat_value *bt_chat_loop_changed(bt_chat_loop *loop)
{
    return &loop->changed;
}

/* One step: the scope of the body, its variables, and the body. */
static bauta_status loop_step(bt_chat_render *r, bt_chat_loop *loop,
                              chat_leave *leave)
{
    static const bt_chat_string loop_name = { "loop", 4, NULL };
    bt_chat_value self = { .kind = BT_CHAT_KIND_LOOP, .loop = loop };
    bauta_status status = BAUTA_OK;
    if (!r->scope || r->scope == loop->outer || r->scope->captured)
        status = scope_push(r, loop->outer);
    else
        r->scope->count = 0; // a new scope in the memory of the last one
    if (!status)
        status = variable_set(r, &loop_name, &self);
    if (!status)
        status = assign(r, loop->node->a, &loop->current);
    return status ? status : execute_body(r, loop->node->c, leave);
}

static bauta_status loop_run(bt_chat_render *r, bt_chat_loop *loop,
                             bool *visited)
{
    bt_chat_scope *outer = r->scope;
    chat_leave leave = CHAT_LEAVE_NOT;
    bauta_status status = loop_peek(r, loop);
    *visited = loop->after.kind != 0;
    while (!status && loop->after.kind && leave != CHAT_BREAK) {
        loop->before = loop->current;
        loop->current = loop->after;
        loop->after = (bt_chat_value){ 0 };
        leave = CHAT_LEAVE_NOT;
        status = bt_chat_work(r, STATEMENT_WORK);
        if (!status)
            status = loop_step(r, loop, &leave);
        bt_chat_scope *inner = r->scope;
        r->scope = outer;
        if (!status && leave != CHAT_BREAK)
            status = loop_peek(r, loop);
        r->scope = inner;
        loop->index++;
    }
    r->scope = outer;
    return status;
}

static bauta_status execute_for(bt_chat_render *r, const bt_chat_node *node,
                                chat_leave *leave)
{
    bool selected = node->b->kind == BT_CHAT_SELECTED, visited = false;
    bt_chat_scope *outer = r->scope;
    bt_chat_value items;
    bt_chat_list *list;
    void *loop;
    bauta_status status =
        bt_chat_evaluate(r, selected ? node->b->a : node->b, &items);
    if (!status)
        status = bt_chat_iterate(r, &items, &list);
    if (!status)
        status = bt_chat_alloc(r, &loop, sizeof(bt_chat_loop));
    if (status)
        return status;
    *(bt_chat_loop *)loop =
        (bt_chat_loop){ .items = list,
                        .node = node,
                        .condition = selected ? node->b->b : NULL,
                        .outer = outer };
    status = loop_run(r, loop, &visited);
    if (status || visited || !node->d)
        return status;
    status = scope_push(r, outer);
    if (!status)
        status = execute_body(r, node->d, leave);
    r->scope = outer;
    return status;
}

/* ---- Macros -------------------------------------------------------------- */

static const bt_chat_value *named_find(const bt_chat_arguments *arguments,
                                       const bt_chat_string *name)
{
    for (size_t i = 0; i < arguments->named_count; i++)
        if (bt_chat_string_equal(arguments->named[i].key.string, name))
            return &arguments->named[i].value;
    return NULL;
}

/* Parameters, in the macro's scope: a default may use those before it. */
static bauta_status bind_parameters(bt_chat_render *r, const bt_chat_node *list,
                                    const bt_chat_arguments *arguments,
                                    size_t *used_named)
{
    size_t index = 0;
    bauta_status status = BAUTA_OK;
    *used_named = 0;
    for (; list && !status; list = list->next, index++) {
        const bt_chat_value *given = named_find(arguments, list->string);
        bt_chat_value value =
            bt_chat_undefined(BT_CHAT_FORM_PARAMETER, 0, list->string);
        *used_named += given != NULL;
        if (given && index < arguments->count)
            return bt_chat_fail(r, "the parameter \"%s\" is given twice",
                                bt_chat_quote(list->string).text);
        if (index < arguments->count)
            value = arguments->values[index];
        else if (given)
            value = *given;
        else if (list->a)
            status = bt_chat_evaluate(r, list->a, &value);
        if (!status)
            status = variable_set(r, list->string, &value);
    }
    return status;
}

/* Whether a macro's parameters include a name. */
static bool has_parameter(const bt_chat_node *list, const bt_chat_string *name)
{
    for (; list; list = list->next)
        if (bt_chat_string_equal(list->string, name))
            return true;
    return false;
}

/* The rest of the arguments, as `varargs` and `kwargs`. */
static bauta_status bind_rest(bt_chat_render *r, const bt_chat_node *list,
                              const bt_chat_arguments *arguments)
{
    static const bt_chat_string varargs = { "varargs", 7, NULL };
    static const bt_chat_string kwargs = { "kwargs", 6, NULL };
    static const bt_chat_string caller = { "caller", 6, NULL };
    size_t parameters = 0;
    bt_chat_value rest, named;
    for (const bt_chat_node *at = list; at; at = at->next)
        parameters++;
    size_t used = bt_size_min(parameters, arguments->count);
    bauta_status status = bt_chat_list_make(r, &rest, BT_CHAT_FORM_TUPLE,
                                            arguments->count - used);
    if (!status)
        status = bt_chat_dict_make(r, &named, BT_CHAT_KIND_DICT,
                                   arguments->named_count);
    if (status)
        return status;
    for (size_t i = used; i < arguments->count; i++)
        rest.list->items[i - used] = arguments->values[i];
    for (size_t i = 0; i < arguments->named_count && !status; i++) {
        const bt_chat_entry *entry = &arguments->named[i];
        if (has_parameter(list, entry->key.string))
            continue;
        status =
            bt_chat_string_equal(entry->key.string, &caller)
                ? variable_set(r, &caller, &entry->value)
                : bt_chat_dict_set(r, named.dict, &entry->key, &entry->value);
    }
    if (!status && !has_parameter(list, &varargs))
        status = variable_set(r, &varargs, &rest);
    if (!status && !has_parameter(list, &kwargs))
        status = variable_set(r, &kwargs, &named);
    return status;
}

/* A macro takes more arguments than it names only if its body mentions
 * `varargs`, `kwargs` or `caller`. */
static bauta_status refuse_rest(bt_chat_render *r, const bt_chat_node *node,
                                const bt_chat_arguments *arguments,
                                size_t used_named)
{
    static const bt_chat_string caller = { "caller", 6, NULL };
    size_t parameters = 0;
    for (const bt_chat_node *at = node->a; at; at = at->next)
        parameters++;
    if (node->operation & BT_CHAT_MENTIONS_CALLER &&
        !has_parameter(node->a, &caller))
        used_named += named_find(arguments, &caller) != NULL;
    if (arguments->count > parameters &&
        !(node->operation & BT_CHAT_MENTIONS_VARARGS))
        return bt_chat_fail(r, "a macro gets %zu arguments, and has %zu",
                            arguments->count, parameters);
    if (arguments->named_count > used_named &&
        !(node->operation & BT_CHAT_MENTIONS_KWARGS))
        return bt_chat_fail(r, "a macro gets a named argument that it lacks");
    return BAUTA_OK;
}

static bauta_status macro_run(bt_chat_render *r, const bt_chat_macro *macro,
                              const bt_chat_arguments *arguments,
                              bt_chat_value *out)
{
    size_t begin = r->size, used_named;
    chat_leave leave = CHAT_LEAVE_NOT;
    bauta_status status = scope_push(r, macro->scope);
    if (!status)
        status = bind_parameters(r, macro->node->a, arguments, &used_named);
    if (!status)
        status = refuse_rest(r, macro->node, arguments, used_named);
    if (!status)
        status = bind_rest(r, macro->node->a, arguments);
    if (!status)
        status = execute_body(r, macro->node->c, &leave);
    return status ? status : bt_chat_take(r, begin, out);
}

bauta_status bt_chat_macro_call(bt_chat_render *r, const bt_chat_macro *macro,
                                const bt_chat_arguments *arguments,
                                bt_chat_value *out)
{
    bt_chat_scope *scope = r->scope;
    bauta_status status = bt_chat_enter(r);
    if (!status)
        status = macro_run(r, macro, arguments, out);
    r->scope = scope;
    r->depth--;
    return status;
}

static bauta_status macro_make(bt_chat_render *r, const bt_chat_node *node,
                               bt_chat_value *out)
{
    void *macro;
    bauta_status status = bt_chat_alloc(r, &macro, sizeof(bt_chat_macro));
    if (status)
        return status;
    *(bt_chat_macro *)macro = (bt_chat_macro){ node, r->scope };
    for (bt_chat_scope *s = r->scope; s && !s->captured; s = s->outer)
        s->captured = true;
    *out = (bt_chat_value){ .kind = BT_CHAT_KIND_MACRO, .macro = macro };
    return BAUTA_OK;
}

static bauta_status execute_call_block(bt_chat_render *r,
                                       const bt_chat_node *node)
{
    static const bt_chat_string name = { "caller", 6, NULL };
    bt_chat_value callee, caller, result;
    bt_chat_arguments arguments;
    void *named;
    bauta_status status = bt_chat_evaluate(r, node->b->a, &callee);
    if (!status)
        status = bt_chat_evaluate_arguments(r, node->b->b, &arguments);
    if (!status)
        status = macro_make(r, node, &caller);
    if (!status)
        status = bt_chat_alloc(
            r, &named, (arguments.named_count + 1) * sizeof(bt_chat_entry));
    if (status)
        return status;
    if (arguments.named_count)
        memcpy(named, arguments.named,
               arguments.named_count * sizeof(bt_chat_entry));
    ((bt_chat_entry *)named)[arguments.named_count++] =
        (bt_chat_entry){ bt_chat_text(&name), caller };
    arguments.named = named;
    status = bt_chat_call_value(r, &callee, &arguments, &result);
    return status ? status : bt_chat_put_value(r, &result);
}

/* ---- Statements ---------------------------------------------------------- */

/* A body in a scope of its own. */
static bauta_status execute_scoped(bt_chat_render *r, const bt_chat_node *list,
                                   chat_leave *leave)
{
    bt_chat_scope *scope = r->scope;
    bauta_status status = scope_push(r, scope);
    if (!status)
        status = execute_body(r, list, leave);
    r->scope = scope;
    return status;
}

/* The text of a body, through filters if there are some. */
static bauta_status execute_text(bt_chat_render *r, const bt_chat_node *node,
                                 chat_leave *leave, bt_chat_value *out)
{
    size_t begin = r->size;
    bt_chat_value outer = r->block;
    bauta_status status = execute_scoped(r, node->c, leave);
    if (!status)
        status = bt_chat_take(r, begin, out);
    if (status || !node->b)
        return status;
    r->block = *out;
    status = bt_chat_evaluate(r, node->b, out);
    r->block = outer;
    return status;
}

static bauta_status execute_with(bt_chat_render *r, const bt_chat_node *node,
                                 chat_leave *leave)
{
    bt_chat_scope *outer = r->scope, *inner;
    bt_chat_value value;
    bauta_status status = scope_push(r, outer);
    inner = r->scope;
    for (const bt_chat_node *at = node->a; at && !status; at = at->next) {
        r->scope = outer; // values do not see each other
        status = bt_chat_evaluate(r, at->b, &value);
        r->scope = inner;
        if (!status)
            status = assign(r, at->a, &value);
    }
    if (!status)
        status = execute_body(r, node->c, leave);
    r->scope = outer;
    return status;
}

static bauta_status execute_if(bt_chat_render *r, const bt_chat_node *node,
                               chat_leave *leave)
{
    bt_chat_value condition;
    // "elif" is an IF alone in c: a loop, so that long chains do not nest.
    for (;;) {
        bauta_status status = bt_chat_evaluate(r, node->a, &condition);
        if (status)
            return status;
        if (bt_chat_truth(&condition))
            return execute_body(r, node->b, leave);
        if (!node->c || node->c->kind != BT_CHAT_IF || node->c->next)
            return execute_body(r, node->c, leave);
        node = node->c;
    }
}

static bauta_status execute_value(bt_chat_render *r, const bt_chat_node *node,
                                  chat_leave *leave)
{
    bt_chat_value value;
    bauta_status status;
    switch (node->kind) {
    case BT_CHAT_OUTPUT:
        status = bt_chat_evaluate(r, node->a, &value);
        return status ? status : bt_chat_put_value(r, &value);
    case BT_CHAT_SET:
        status = bt_chat_evaluate(r, node->b, &value);
        return status ? status : assign(r, node->a, &value);
    case BT_CHAT_SET_BLOCK:
        status = execute_text(r, node, leave, &value);
        return status ? status : assign(r, node->a, &value);
    case BT_CHAT_FILTER_BLOCK:
        status = execute_text(r, node, leave, &value);
        return status ? status : bt_chat_put_value(r, &value);
    default: // MACRO
        status = macro_make(r, node, &value);
        return status ? status : variable_set(r, node->string, &value);
    }
}

static bauta_status execute(bt_chat_render *r, const bt_chat_node *node,
                            chat_leave *leave)
{
    r->line = node->line;
    switch (node->kind) {
    case BT_CHAT_TEXT:
        return bt_chat_put(r, node->string->bytes, node->string->size);
    case BT_CHAT_IF:
        return execute_if(r, node, leave);
    case BT_CHAT_FOR:
        return execute_for(r, node, leave);
    case BT_CHAT_WITH:
        return execute_with(r, node, leave);
    case BT_CHAT_CALL_BLOCK:
        return execute_call_block(r, node);
    case BT_CHAT_BREAK:
        *leave = CHAT_BREAK;
        return BAUTA_OK;
    case BT_CHAT_CONTINUE:
        *leave = CHAT_CONTINUE;
        return BAUTA_OK;
    default:
        return execute_value(r, node, leave);
    }
}

static bauta_status execute_body(bt_chat_render *r, const bt_chat_node *list,
                                 chat_leave *leave)
{
    bauta_status status = bt_chat_enter(r);
    for (; list && !status && *leave == CHAT_LEAVE_NOT; list = list->next) {
        status = bt_chat_work(r, STATEMENT_WORK);
        if (!status)
            status = execute(r, list, leave);
    }
    r->depth--;
    return status;
}

bauta_status bt_chat_run(bt_chat_render *r, const bt_chat_node *program)
{
    chat_leave leave = CHAT_LEAVE_NOT;
    bauta_status status = scope_push(r, NULL);
    return status ? status : execute_body(r, program, &leave);
}
