/* SPDX-License-Identifier: Apache-2.0 */
/* parser.c - the parser of statements; expression.c has that of expressions. */
#include "text/chat/parser.h"

#include "base/error.h"

#include <string.h>

static bauta_status no_memory(bt_chat_parser *p)
{
    return bt_fail_memory(p->err, "a chat template", sizeof(bt_chat_node));
}

bauta_status bt_chat_parser_advance(bt_chat_parser *p)
{
    if (p->has_ahead) {
        p->token = p->ahead;
        p->has_ahead = false;
        return BAUTA_OK;
    }
    return bt_chat_lexer_next(&p->lexer, &p->token);
}

bauta_status bt_chat_parser_node(bt_chat_parser *p, bt_chat_node **out,
                                 bt_chat_node_kind kind)
{
    if (p->nodes++ == BT_CHAT_NODES_MAX)
        return bt_chat_syntax_error(p->err, p->token.line, "more than %d nodes",
                                    BT_CHAT_NODES_MAX);
    bt_chat_node *node = bt_chat_pool_alloc(p->pool, sizeof(*node));
    if (!node)
        return no_memory(p);
    *node = (bt_chat_node){ .kind = (uint8_t)kind, .line = p->token.line };
    *out = node;
    return BAUTA_OK;
}

bauta_status bt_chat_parser_string(bt_chat_parser *p,
                                   const bt_chat_string **out,
                                   const char *bytes, size_t size)
{
    bt_chat_string *string = bt_chat_pool_alloc(p->pool, sizeof(*string));
    if (!string)
        return no_memory(p);
    *string = (bt_chat_string){ bytes, size, NULL };
    *out = string;
    return BAUTA_OK;
}

bauta_status bt_chat_parser_enter(bt_chat_parser *p)
{
    if (p->depth++ == BT_CHAT_NESTING_MAX)
        return bt_chat_syntax_error(p->err, p->token.line,
                                    "nested more than %d deep",
                                    BT_CHAT_NESTING_MAX);
    return BAUTA_OK;
}

static bool token_is(const bt_chat_token *t, bt_chat_token_kind kind,
                     const char *text)
{
    return t->kind == kind && t->size == strlen(text) &&
           !memcmp(t->bytes, text, t->size);
}

bool bt_chat_parser_at_name(const bt_chat_parser *p, const char *name)
{
    return token_is(&p->token, BT_CHAT_TOKEN_NAME, name);
}

bool bt_chat_parser_at(const bt_chat_parser *p, const char *op)
{
    return token_is(&p->token, BT_CHAT_TOKEN_OPERATOR, op);
}

bauta_status bt_chat_parser_skip(bt_chat_parser *p, const char *op, bool *was)
{
    *was = bt_chat_parser_at(p, op);
    return *was ? bt_chat_parser_advance(p) : BAUTA_OK;
}

bauta_status bt_chat_parser_unexpected(bt_chat_parser *p, const char *where)
{
    const bt_chat_token *t = &p->token;
    char shown[32] = { 0 };
    if (t->kind == BT_CHAT_TOKEN_END || t->kind == BT_CHAT_TOKEN_DATA)
        return bt_chat_syntax_error(p->err, t->line, "unexpected %s %s",
                                    t->kind ? "text" : "end", where);
    memcpy(shown, t->bytes,
           t->size < sizeof(shown) ? t->size : sizeof(shown) - 1);
    return bt_chat_syntax_error(p->err, t->line, "unexpected \"%s\" %s",
                                bt_quote(shown).text, where);
}

bauta_status bt_chat_parser_expect(bt_chat_parser *p, const char *op)
{
    if (!bt_chat_parser_at(p, op)) {
        char where[32] = "instead of '";
        strcat(strcat(where, op), "'");
        return bt_chat_parser_unexpected(p, where);
    }
    return bt_chat_parser_advance(p);
}

bauta_status bt_chat_parser_name(bt_chat_parser *p, const bt_chat_string **out,
                                 const char *what)
{
    if (p->token.kind != BT_CHAT_TOKEN_NAME) {
        char where[64] = "instead of the name of ";
        return bt_chat_parser_unexpected(p, strcat(where, what));
    }
    bauta_status status =
        bt_chat_parser_string(p, out, p->token.bytes, p->token.size);
    return status ? status : bt_chat_parser_advance(p);
}

/* ---- Blocks -------------------------------------------------------------- */

static bauta_status parse_body(bt_chat_parser *p, bt_chat_node **list,
                               const char *const *ends);

/* The end of a tag. */
static bauta_status parse_close(bt_chat_parser *p)
{
    if (p->token.kind != BT_CHAT_TOKEN_BLOCK_END)
        return bt_chat_parser_unexpected(p, "instead of \"%}\"");
    return bt_chat_parser_advance(p);
}

/* The rest of a tag, then a body, then the tag `end`. */
static bauta_status parse_block(bt_chat_parser *p, bt_chat_node **list,
                                const char *end)
{
    const char *const ends[] = { end, NULL };
    bauta_status status = parse_close(p);
    if (!status)
        status = parse_body(p, list, ends);
    if (!status)
        status = bt_chat_parser_advance(p);
    return status ? status : parse_close(p);
}

/* After "if" or "elif": the condition, the bodies, and "endif". */
static bauta_status parse_if(bt_chat_parser *p, bt_chat_node **out)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    bt_chat_node **at = out;
    for (;;) {
        bauta_status status = bt_chat_parser_node(p, at, BT_CHAT_IF);
        if (!status)
            status = bt_chat_parse_tuple(p, &(*at)->a, false);
        if (!status)
            status = parse_close(p);
        if (!status)
            status = parse_body(p, &(*at)->b, ends);
        if (status)
            return status;
        if (!bt_chat_parser_at_name(p, "elif"))
            break;
        at = &(*at)->c;
        status = bt_chat_parser_advance(p);
        if (status)
            return status;
    }
    bool has_else = bt_chat_parser_at_name(p, "else");
    bauta_status status = bt_chat_parser_advance(p);
    if (status)
        return status;
    return has_else ? parse_block(p, &(*at)->c, "endif") : parse_close(p);
}

/* The items of a loop, with the "if" that selects some of them. */
static bauta_status parse_loop_items(bt_chat_parser *p, bt_chat_node **out)
{
    bt_chat_node *selected = NULL;
    bauta_status status = bt_chat_parse_tuple(p, out, false);
    if (status || !bt_chat_parser_at_name(p, "if"))
        return status;
    status = bt_chat_parser_node(p, &selected, BT_CHAT_SELECTED);
    if (status)
        return status;
    selected->a = *out;
    *out = selected;
    status = bt_chat_parser_advance(p);
    return status ? status : bt_chat_parse_expression(p, &selected->b);
}

static bauta_status parse_for(bt_chat_parser *p, bt_chat_node **out)
{
    static const char *const ends[] = { "else", "endfor", NULL };
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_FOR);
    if (!status)
        status = bt_chat_parse_target(p, &(*out)->a);
    if (!status && !bt_chat_parser_at_name(p, "in"))
        status = bt_chat_parser_unexpected(p, "instead of \"in\"");
    if (!status)
        status = bt_chat_parser_advance(p);
    if (!status)
        status = parse_loop_items(p, &(*out)->b);
    if (!status && bt_chat_parser_at_name(p, "recursive"))
        return bt_fail(p->err, BAUTA_ERR_UNSUPPORTED,
                       "chat template, line %u: recursive loops are not "
                       "supported",
                       (unsigned)p->token.line);
    if (!status)
        status = parse_close(p);
    p->loops++;
    if (!status)
        status = parse_body(p, &(*out)->c, ends);
    p->loops--;
    if (status)
        return status;
    bool has_else = bt_chat_parser_at_name(p, "else");
    status = bt_chat_parser_advance(p);
    if (status)
        return status;
    return has_else ? parse_block(p, &(*out)->d, "endfor") : parse_close(p);
}

static bauta_status parse_set(bt_chat_parser *p, bt_chat_node **out)
{
    bool assigned = false, filters = false;
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_SET);
    if (!status)
        status = bt_chat_parse_target(p, &(*out)->a);
    if (!status)
        status = bt_chat_parser_skip(p, "=", &assigned);
    if (!status && assigned) {
        status = bt_chat_parse_tuple(p, &(*out)->b, true);
        return status ? status : parse_close(p);
    }
    if (status)
        return status;
    (*out)->kind = BT_CHAT_SET_BLOCK;
    status = bt_chat_parser_skip(p, "|", &filters);
    if (!status && filters)
        status = bt_chat_parse_filters(p, &(*out)->b);
    return status ? status : parse_block(p, &(*out)->c, "endset");
}

/* "(name, name=default, ...)": ARGUMENT nodes whose `a` is the default. */
static bauta_status parse_parameters(bt_chat_parser *p, bt_chat_node **list)
{
    bool done = false, given = false, needed = true;
    size_t count = 0;
    bauta_status status = bt_chat_parser_expect(p, "(");
    if (!status)
        status = bt_chat_parser_skip(p, ")", &done);
    while (!status && !done) {
        if (++count > BT_CHAT_ARGUMENTS_MAX)
            return bt_chat_syntax_error(p->err, p->token.line,
                                        "more than %d parameters",
                                        BT_CHAT_ARGUMENTS_MAX);
        status = bt_chat_parser_node(p, list, BT_CHAT_ARGUMENT);
        if (!status)
            status = bt_chat_parser_name(p, &(*list)->string, "a parameter");
        if (!status)
            status = bt_chat_parser_skip(p, "=", &given);
        if (!status && given)
            status = bt_chat_parse_expression(p, &(*list)->a);
        if (!status && !given && !needed)
            status = bt_chat_syntax_error(
                p->err, p->token.line,
                "a parameter without a default follows one that has it");
        needed = !given;
        if (!status)
            status = bt_chat_parser_skip(p, ")", &done);
        if (!status && !done)
            status = bt_chat_parser_expect(p, ",");
        if (!status)
            list = &(*list)->next;
    }
    return status;
}

/* A body that runs as a call: loops around it cannot be left from inside. */
static bauta_status parse_callable(bt_chat_parser *p, bt_chat_node *node,
                                   const char *end)
{
    unsigned loops = p->loops;
    uint8_t mentions = p->mentions;
    p->loops = 0;
    p->mentions = 0;
    bauta_status status = parse_block(p, &node->c, end);
    node->operation = p->mentions;
    p->mentions |= mentions;
    p->loops = loops;
    return status;
}

static bauta_status parse_macro(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_MACRO);
    if (!status)
        status = bt_chat_parser_name(p, &(*out)->string, "a macro");
    if (!status)
        status = parse_parameters(p, &(*out)->a);
    return status ? status : parse_callable(p, *out, "endmacro");
}

static bauta_status parse_call_block(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_CALL_BLOCK);
    if (!status && bt_chat_parser_at(p, "("))
        status = parse_parameters(p, &(*out)->a);
    if (!status)
        status = bt_chat_parse_expression(p, &(*out)->b);
    if (!status && (*out)->b->kind != BT_CHAT_CALL)
        status = bt_chat_syntax_error(p->err, p->token.line,
                                      "a call block needs a call");
    return status ? status : parse_callable(p, *out, "endcall");
}

static bauta_status parse_filter_block(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_FILTER_BLOCK);
    if (!status)
        status = bt_chat_parse_filters(p, &(*out)->b);
    return status ? status : parse_block(p, &(*out)->c, "endfilter");
}

static bauta_status parse_with(bt_chat_parser *p, bt_chat_node **out)
{
    bool more = true;
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_WITH);
    bt_chat_node **list = status ? NULL : &(*out)->a;
    while (!status && more && p->token.kind != BT_CHAT_TOKEN_BLOCK_END) {
        status = bt_chat_parser_node(p, list, BT_CHAT_SET);
        if (!status)
            status = bt_chat_parse_target(p, &(*list)->a);
        if (!status)
            status = bt_chat_parser_expect(p, "=");
        if (!status)
            status = bt_chat_parse_expression(p, &(*list)->b);
        if (!status)
            status = bt_chat_parser_skip(p, ",", &more);
        if (!status)
            list = &(*list)->next;
    }
    return status ? status : parse_block(p, &(*out)->c, "endwith");
}

static bauta_status parse_generation(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_WITH);
    return status ? status : parse_callable(p, *out, "endgeneration");
}

static bauta_status parse_leave(bt_chat_parser *p, bt_chat_node **out,
                                bt_chat_node_kind kind)
{
    if (!p->loops)
        return bt_chat_syntax_error(p->err, p->token.line,
                                    "break or continue outside a loop");
    bauta_status status = bt_chat_parser_node(p, out, kind);
    return status ? status : parse_close(p);
}

static bauta_status parse_break(bt_chat_parser *p, bt_chat_node **out)
{
    return parse_leave(p, out, BT_CHAT_BREAK);
}

static bauta_status parse_continue(bt_chat_parser *p, bt_chat_node **out)
{
    return parse_leave(p, out, BT_CHAT_CONTINUE);
}

/* The statement at whose name the parser is. */
static bauta_status parse_statement(bt_chat_parser *p, bt_chat_node **out)
{
    static const struct {
        const char *name;
        bauta_status (*parse)(bt_chat_parser *, bt_chat_node **);
    } statements[] = {
        { "if", parse_if },           { "for", parse_for },
        { "set", parse_set },         { "macro", parse_macro },
        { "call", parse_call_block }, { "filter", parse_filter_block },
        { "with", parse_with },       { "generation", parse_generation },
        { "break", parse_break },     { "continue", parse_continue },
    };
    static const char *const others[] = { "include", "import", "from",
                                          "extends", "block",  "autoescape",
                                          "do",      "trans",  "debug" };
    for (size_t i = 0; i < BT_LEN(statements); i++)
        if (bt_chat_parser_at_name(p, statements[i].name)) {
            bauta_status status = bt_chat_parser_advance(p);
            return status ? status : statements[i].parse(p, out);
        }
    for (size_t i = 0; i < BT_LEN(others); i++)
        if (bt_chat_parser_at_name(p, others[i]))
            return bt_fail(p->err, BAUTA_ERR_UNSUPPORTED,
                           "chat template, line %u: \"%s\" is not supported",
                           (unsigned)p->token.line, others[i]);
    return bt_chat_parser_unexpected(p, "at the start of a tag");
}

static bauta_status parse_text(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_TEXT);
    if (!status)
        status = bt_chat_parser_string(p, &(*out)->string, p->token.bytes,
                                       p->token.size);
    return status ? status : bt_chat_parser_advance(p);
}

static bauta_status parse_output(bt_chat_parser *p, bt_chat_node **out)
{
    bauta_status status = bt_chat_parser_node(p, out, BT_CHAT_OUTPUT);
    if (!status)
        status = bt_chat_parser_advance(p);
    if (!status)
        status = bt_chat_parse_tuple(p, &(*out)->a, true);
    if (!status && p->token.kind != BT_CHAT_TOKEN_VARIABLE_END)
        status = bt_chat_parser_unexpected(p, "instead of \"}}\"");
    return status ? status : bt_chat_parser_advance(p);
}

static bool ends_here(const bt_chat_parser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (bt_chat_parser_at_name(p, *ends))
            return true;
    return false;
}

/* Statements up to a tag that starts with one of `ends`, at which the parser
 * stops; without `ends`, up to the end of the template. */
static bauta_status body_run(bt_chat_parser *p, bt_chat_node **list,
                             const char *const *ends)
{
    bauta_status status = BAUTA_OK;
    while (!status) {
        bt_chat_node *first = NULL;
        switch (p->token.kind) {
        case BT_CHAT_TOKEN_END:
            return *ends ? bt_chat_parser_unexpected(p, "inside a block")
                         : BAUTA_OK;
        case BT_CHAT_TOKEN_DATA:
            status = parse_text(p, &first);
            break;
        case BT_CHAT_TOKEN_VARIABLE_BEGIN:
            status = parse_output(p, &first);
            break;
        case BT_CHAT_TOKEN_BLOCK_BEGIN:
            status = bt_chat_parser_advance(p);
            if (!status && ends_here(p, ends))
                return BAUTA_OK;
            if (!status)
                status = parse_statement(p, &first);
            break;
        default:
            return bt_chat_parser_unexpected(p, "outside a tag");
        }
        if (!status) {
            *list = first;
            list = &first->next;
        }
    }
    return status;
}

static bauta_status parse_body(bt_chat_parser *p, bt_chat_node **list,
                               const char *const *ends)
{
    bauta_status status = bt_chat_parser_enter(p);
    if (!status)
        status = body_run(p, list, ends);
    p->depth--;
    return status;
}

bauta_status bt_chat_parse(bt_chat_node **out, bt_chat_pool *pool,
                           const char *text, size_t size, bauta_error *err)
{
    static const char *const none[] = { NULL };
    bt_chat_parser p = { .lexer = bt_chat_lexer_init(text, size, err),
                         .pool = pool,
                         .err = err };
    *out = NULL;
    bauta_status status = bt_chat_parser_advance(&p);
    return status ? status : parse_body(&p, out, none);
}
