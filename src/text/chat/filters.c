/* SPDX-License-Identifier: Apache-2.0 */
/* filters.c - filters on one value, the table of all filters, and how the
 * arguments of a call reach their parameters. */
#include "base/utf8.h"
#include "text/chat/lexer.h"
#include "text/chat/number.h"
#include "text/chat/render.h"

#include <math.h>
#include <string.h>

#define FILTER(name)                                                   \
    static bauta_status name(bt_chat_render *r, const bt_chat_call *c, \
                             bt_chat_value *out)

/* ---- Parameters ---------------------------------------------------------- */

/* Parameter `index` of a list of names; its length is 0 after the last one. */
static bt_chat_string parameter_name(const char *names, size_t index,
                                     bool *optional)
{
    for (*optional = false;; index--) {
        names += strspn(names, " ");
        *optional |= *names == '[';
        names += *names == '[';
        size_t size = strcspn(names, " ");
        if (!index || !size)
            return (bt_chat_string){ names, size, NULL };
        names += size;
    }
}

static bauta_status bind_named(bt_chat_render *r, const char *what,
                               const char *names, const bt_chat_entry *given,
                               bt_chat_value *bound)
{
    bool optional;
    for (size_t i = 0; i < BT_CHAT_PARAMETERS_MAX; i++) {
        bt_chat_string name = parameter_name(names, i, &optional);
        if (!name.size)
            break;
        if (!bt_chat_string_equal(&name, given->key.string))
            continue;
        if (bound[i].kind)
            return bt_chat_fail(r, "%s() gets the argument \"%s\" twice", what,
                                bt_chat_quote(&name).text);
        bound[i] = given->value;
        return BAUTA_OK;
    }
    return bt_chat_fail(r, "%s() has no argument \"%s\"", what,
                        bt_chat_quote(given->key.string).text);
}

bauta_status bt_chat_bind(bt_chat_render *r, const char *what,
                          const char *names, const bt_chat_arguments *arguments,
                          bt_chat_value bound[BT_CHAT_PARAMETERS_MAX])
{
    bool optional;
    bauta_status status = BAUTA_OK;
    memset(bound, 0, BT_CHAT_PARAMETERS_MAX * sizeof(*bound));
    if (*names == '*')
        return BAUTA_OK;
    for (size_t i = 0; i < arguments->count; i++) {
        if (i >= BT_CHAT_PARAMETERS_MAX ||
            !parameter_name(names, i, &optional).size)
            return bt_chat_fail(r,
                                "%s() gets %zu arguments, which are too "
                                "many",
                                what, arguments->count);
        bound[i] = arguments->values[i];
    }
    for (size_t i = 0; i < arguments->named_count && !status; i++)
        status = bind_named(r, what, names, &arguments->named[i], bound);
    for (size_t i = 0; i < BT_CHAT_PARAMETERS_MAX && !status; i++) {
        bt_chat_string name = parameter_name(names, i, &optional);
        if (name.size && !optional && !bound[i].kind)
            status = bt_chat_fail(r, "%s() needs the argument \"%s\"", what,
                                  bt_chat_quote(&name).text);
    }
    return status;
}

bauta_status bt_chat_builtin_call(bt_chat_render *r,
                                  const bt_chat_builtin *builtin,
                                  const bt_chat_value *self,
                                  const bt_chat_arguments *arguments,
                                  bt_chat_value *out)
{
    bt_chat_call c = { .self = *self, .arguments = arguments };
    bt_chat_value result = { 0 };
    bauta_status status =
        bt_chat_bind(r, builtin->name, builtin->parameters, arguments, c.bound);
    if (!status)
        status = builtin->call(r, &c, &result);
    if (!status)
        *out = result;
    return status;
}

/* ---- Text ---------------------------------------------------------------- */

static bauta_status case_filter(bt_chat_render *r, const bt_chat_call *c,
                                bt_chat_value *out, bt_chat_case to)
{
    bt_chat_value text;
    bauta_status status = bt_chat_stringify(r, &text, &c->self);
    return status ? status : bt_chat_change_case(r, out, &text, to);
}

FILTER(filter_upper)
{
    return case_filter(r, c, out, BT_CHAT_UPPER);
}

FILTER(filter_lower)
{
    return case_filter(r, c, out, BT_CHAT_LOWER);
}

FILTER(filter_title)
{
    return case_filter(r, c, out, BT_CHAT_WORDS);
}

FILTER(filter_capitalize)
{
    return case_filter(r, c, out, BT_CHAT_CAPITALIZE);
}

FILTER(filter_string)
{
    return bt_chat_stringify(r, out, &c->self);
}

FILTER(filter_safe)
{
    bauta_status status = bt_chat_stringify(r, out, &c->self);
    out->markup = !status;
    return status;
}

FILTER(filter_escape)
{
    return bt_chat_escape(r, out, &c->self);
}

FILTER(filter_trim)
{
    bt_chat_value text;
    const bt_chat_value *set = &c->bound[0];
    bauta_status status = bt_chat_stringify(r, &text, &c->self);
    if (!status && set->kind > BT_CHAT_KIND_NONE && !bt_chat_is_string(set))
        return bt_chat_fail(r, "the argument of trim must be a str");
    return status ? status
                  : bt_chat_strip(r, out, &text,
                                  bt_chat_is_string(set) ? set->string : NULL,
                                  BT_CHAT_LEFT | BT_CHAT_RIGHT);
}

FILTER(filter_replace)
{
    bt_chat_value text, from, to;
    int64_t most = -1;
    const bt_chat_value *count = &c->bound[2];
    bauta_status status = bt_chat_stringify(r, &text, &c->self);
    if (!status)
        status = bt_chat_stringify(r, &from, &c->bound[0]);
    if (!status)
        status = bt_chat_stringify(r, &to, &c->bound[1]);
    if (!status && count->kind && count->kind != BT_CHAT_KIND_NONE &&
        !bt_chat_as_integer(count, &most))
        return bt_chat_fail(r, "the count of replace must be an int");
    return status ? status
                  : bt_chat_replace(r, out, text.string, from.string, to.string,
                                    most < 0 ? SIZE_MAX : (size_t)most);
}

/* The width of indent: spaces, or a string. */
static bauta_status indent_width(bt_chat_render *r, const bt_chat_value *width,
                                 bt_chat_value *out)
{
    int64_t spaces = 4;
    size_t begin = r->size;
    if (bt_chat_is_string(width)) {
        *out = *width;
        return BAUTA_OK;
    }
    if (width->kind && !bt_chat_as_integer(width, &spaces))
        return bt_chat_fail(r, "the width of indent must be an int or a str");
    bauta_status status =
        bt_chat_put_fill(r, " ", 1, spaces < 0 ? 0 : (size_t)spaces);
    return status ? status : bt_chat_take(r, begin, out);
}

FILTER(filter_indent)
{
    bt_chat_value text, by;
    bool first = bt_chat_truth(&c->bound[1]);
    bool blank = bt_chat_truth(&c->bound[2]);
    bauta_status status = bt_chat_stringify(r, &text, &c->self);
    if (!status)
        status = indent_width(r, &c->bound[0], &by);
    if (status)
        return status;
    const char *bytes = text.string->bytes;
    size_t begin = r->size, size = text.string->size;
    for (size_t at = 0, line = 0; !status; line++) {
        const char *end = memchr(bytes + at, '\n', size - at);
        size_t length = end ? (size_t)(end - bytes) - at : size - at;
        if (line ? blank || length > 0 : first)
            status = bt_chat_put_value(r, &by);
        if (!status)
            status = bt_chat_put(r, bytes + at, length + (end != NULL));
        if (!end)
            break;
        at += length + 1;
    }
    return status ? status : bt_chat_take(r, begin, out);
}

FILTER(filter_center)
{
    bt_chat_value text;
    int64_t width = 80;
    size_t begin = r->size;
    bauta_status status = bt_chat_stringify(r, &text, &c->self);
    if (!status && c->bound[0].kind &&
        !bt_chat_as_integer(&c->bound[0], &width))
        return bt_chat_fail(r, "the width of center must be an int");
    if (status)
        return status;
    int64_t have = (int64_t)bt_chat_characters(text.string);
    size_t room = width > have ? (size_t)(width - have) : 0;
    // Python puts the odd one left if the width is odd.
    size_t left = room / 2 + (room & (size_t)width & 1);
    status = bt_chat_put_fill(r, " ", 1, left);
    if (!status)
        status = bt_chat_put_value(r, &text);
    if (!status)
        status = bt_chat_put_fill(r, " ", 1, room - left);
    return status ? status : bt_chat_take(r, begin, out);
}

FILTER(filter_wordcount)
{
    bt_chat_value text;
    int64_t count = 0;
    bool inside = false;
    bauta_status status = bt_chat_stringify(r, &text, &c->self);
    if (status)
        return status;
    const bt_chat_string *s = text.string;
    for (size_t at = 0, length; at < s->size; at += length) {
        bool word = !bt_chat_is_space(
            bt_utf8_decode(s->bytes + at, s->size - at, &length));
        count += word && !inside;
        inside = word;
    }
    *out = bt_chat_integer(count);
    return bt_chat_work(r, s->size);
}

FILTER(filter_tojson)
{
    size_t begin = r->size;
    bt_chat_json_options options = { .ascii = bt_chat_truth(&c->bound[0]),
                                     .indent = &c->bound[1],
                                     .separators = &c->bound[2],
                                     .sort_keys = bt_chat_truth(&c->bound[3]) };
    bauta_status status = bt_chat_put_json(r, &c->self, &options);
    return status ? status : bt_chat_take(r, begin, out);
}

FILTER(filter_format)
{
    bt_chat_value text, tuple;
    size_t count = c->arguments->count;
    bauta_status status = bt_chat_stringify(r, &text, &c->self);
    if (!status && c->arguments->named_count)
        return bt_chat_fail(r, "format with named arguments is not supported");
    if (!status)
        status = bt_chat_list_make(r, &tuple, BT_CHAT_FORM_TUPLE, count);
    if (status)
        return status;
    for (size_t i = 0; i < count; i++)
        tuple.list->items[i] = c->arguments->values[i];
    return bt_chat_format_percent(r, out, text.string, &tuple);
}

/* ---- Any value ----------------------------------------------------------- */

FILTER(filter_default)
{
    static const bt_chat_string empty = { "", 0, NULL };
    bool use = c->self.kind == BT_CHAT_KIND_UNDEFINED ||
               (bt_chat_truth(&c->bound[1]) && !bt_chat_truth(&c->self));
    *out = !use               ? c->self
           : c->bound[0].kind ? c->bound[0]
                              : bt_chat_text(&empty);
    return bt_chat_work(r, 1);
}

FILTER(filter_length)
{
    const bt_chat_value *v = &c->self;
    size_t length = 0;
    if (v->kind == BT_CHAT_KIND_STRING)
        length = bt_chat_characters(v->string);
    else if (v->kind == BT_CHAT_KIND_DICT)
        length = v->dict->count;
    else if (v->kind == BT_CHAT_KIND_LIST && v->form != BT_CHAT_FORM_GENERATOR)
        length = v->list->count;
    else if (v->kind != BT_CHAT_KIND_UNDEFINED)
        return bt_chat_fail(r, "a %s has no length", bt_chat_type_name(v));
    *out = bt_chat_integer((int64_t)length);
    return bt_chat_work(r,
                        v->kind == BT_CHAT_KIND_STRING ? v->string->size : 1);
}

/* ---- Numbers ------------------------------------------------------------- */

/* The number that a string is, without the space around it. */
static bool string_number(bt_chat_render *r, const bt_chat_string *s, int base,
                          int64_t *integer, double *real, bool *whole)
{
    r->work += s->size; // which is checked with the next node
    size_t begin = bt_chat_space_prefix(s->bytes, s->size);
    size_t size = s->size - begin;
    size -= bt_chat_space_suffix(s->bytes + begin, size);
    *whole = bt_chat_read_integer(integer, s->bytes + begin, size, base);
    return *whole || bt_chat_read_real(real, s->bytes + begin, size);
}

FILTER(filter_int)
{
    int64_t integer = 0, base = 10;
    double real = 0;
    bool whole = false, fine = false;
    const bt_chat_value *v = &c->self;
    if (v->kind == BT_CHAT_KIND_UNDEFINED)
        return bt_chat_fail_undefined(r, v);
    if (c->bound[1].kind &&
        (!bt_chat_as_integer(&c->bound[1], &base) || base < 2 || base > 36))
        return bt_chat_fail(r, "the base of int must be 2 to 36");
    if (bt_chat_as_integer(v, &integer))
        fine = whole = true;
    else if (v->kind == BT_CHAT_KIND_REAL)
        fine = bt_chat_as_real(v, &real);
    else if (bt_chat_is_string(v))
        fine = string_number(r, v->string, (int)base, &integer, &real, &whole);
    if (fine && !whole) {
        fine = real > -9.2e18 && real < 9.2e18;
        integer = fine ? (int64_t)real : 0;
    }
    *out = fine               ? bt_chat_integer(integer)
           : c->bound[0].kind ? c->bound[0]
                              : bt_chat_integer(0);
    return BAUTA_OK;
}

FILTER(filter_float)
{
    int64_t integer = 0;
    double real = 0;
    bool whole = false, fine = bt_chat_as_real(&c->self, &real);
    if (c->self.kind == BT_CHAT_KIND_UNDEFINED)
        return bt_chat_fail_undefined(r, &c->self);
    if (bt_chat_is_string(&c->self))
        fine = string_number(r, c->self.string, 10, &integer, &real, &whole);
    if (fine && whole)
        real = (double)integer;
    *out = fine               ? bt_chat_real(real)
           : c->bound[0].kind ? c->bound[0]
                              : bt_chat_real(0);
    return BAUTA_OK;
}

FILTER(filter_abs)
{
    int64_t integer;
    double real;
    if (bt_chat_as_integer(&c->self, &integer) && integer < 0)
        return bt_chat_negate(r, BT_CHAT_SUBTRACT, &c->self, out);
    if (bt_chat_as_real(&c->self, &real) && real < 0)
        *out = bt_chat_real(-real);
    else
        return bt_chat_negate(r, BT_CHAT_ADD, &c->self, out);
    return BAUTA_OK;
}

FILTER(filter_round)
{
    char digits[BT_CHAT_NUMBER_BYTES];
    int64_t precision = 0;
    double real;
    const bt_chat_value *method = &c->bound[1];
    bool common =
        !method->kind || (bt_chat_is_string(method) &&
                          bt_chat_string_is(method->string, "common"));
    if (c->bound[0].kind && !bt_chat_as_integer(&c->bound[0], &precision))
        return bt_chat_fail(r, "the precision of round must be an int");
    if (precision < 0 || precision > 30 || !bt_chat_as_real(&c->self, &real))
        return bt_chat_fail(r, "round of a %s to %lld digits",
                            bt_chat_type_name(&c->self), (long long)precision);
    if (common && c->self.kind != BT_CHAT_KIND_REAL)
        return bt_chat_negate(r, BT_CHAT_ADD, &c->self, out);
    if (common) {
        size_t n = bt_chat_write_fixed(digits, real, 'f', (int)precision);
        if (isfinite(real))
            bt_chat_read_real(&real, digits, n);
    } else {
        double scale = pow(10, (double)precision);
        bool floor_it = bt_chat_is_string(method) &&
                        bt_chat_string_is(method->string, "floor");
        if (!floor_it && !(bt_chat_is_string(method) &&
                           bt_chat_string_is(method->string, "ceil")))
            return bt_chat_fail(r, "round has no such method");
        real = (floor_it ? floor(real * scale) : ceil(real * scale)) / scale;
    }
    *out = bt_chat_real(real);
    return BAUTA_OK;
}

/* ---- The table ----------------------------------------------------------- */

static const bt_chat_builtin filters[] = {
    { "abs", "", filter_abs },
    { "capitalize", "", filter_capitalize },
    { "center", "[width", filter_center },
    { "count", "", filter_length },
    { "d", "[default_value boolean", filter_default },
    { "default", "[default_value boolean", filter_default },
    { "e", "", filter_escape },
    { "escape", "", filter_escape },
    { "float", "[default", filter_float },
    { "format", "*", filter_format },
    { "indent", "[width first blank", filter_indent },
    { "int", "[default base", filter_int },
    { "length", "", filter_length },
    { "lower", "", filter_lower },
    { "replace", "old new [count", filter_replace },
    { "round", "[precision method", filter_round },
    { "safe", "", filter_safe },
    { "string", "", filter_string },
    { "title", "", filter_title },
    { "tojson", "[ensure_ascii indent separators sort_keys", filter_tojson },
    { "trim", "[chars", filter_trim },
    { "upper", "", filter_upper },
    { "wordcount", "", filter_wordcount },
};

static const bt_chat_builtin *filter_find(const bt_chat_string *name)
{
    for (size_t i = 0; i < BT_LEN(filters); i++)
        if (bt_chat_string_is(name, filters[i].name))
            return &filters[i];
    for (const bt_chat_builtin *f = bt_chat_list_filters; f->name; f++)
        if (bt_chat_string_is(name, f->name))
            return f;
    return NULL;
}

bool bt_chat_has_filter(const bt_chat_string *name)
{
    return filter_find(name) != NULL;
}

bauta_status bt_chat_filter(bt_chat_render *r, const bt_chat_string *name,
                            const bt_chat_value *v,
                            const bt_chat_arguments *arguments,
                            bt_chat_value *out)
{
    const bt_chat_builtin *filter = filter_find(name);
    if (!filter)
        return bt_chat_fail(r, "there is no filter \"%s\"",
                            bt_chat_quote(name).text);
    // Filters that apply filters nest.
    bauta_status status = bt_chat_enter(r);
    if (!status)
        status = bt_chat_builtin_call(r, filter, v, arguments, out);
    r->depth--;
    return status;
}
