/* SPDX-License-Identifier: Apache-2.0 */
/* functions.c - functions that every chat template can call: Jinja's range(),
 * dict() and namespace(), and transformers' raise_exception() and
 * strftime_now(). */
#include "base/utf8.h"
#include "text/chat/render.h"

#include <stdio.h>
#include <string.h>

#define FUNCTION(name)                                                 \
    static bauta_status name(bt_chat_render *r, const bt_chat_call *c, \
                             bt_chat_value *out)

/* ---- Times --------------------------------------------------------------- */

static const char *const days[] = { "Sunday",    "Monday",   "Tuesday",
                                    "Wednesday", "Thursday", "Friday",
                                    "Saturday" };
static const char *const months[] = { "January", "February", "March",
                                      "April",   "May",      "June",
                                      "July",    "August",   "September",
                                      "October", "November", "December" };

static bauta_status put_number(bt_chat_render *r, int number, int width,
                               bool plain)
{
    char digits[16];
    snprintf(digits, sizeof(digits), "%0*d", plain ? 0 : width, number);
    return bt_chat_put_text(r, digits);
}

static bauta_status put_name(bt_chat_render *r, const char *const *names,
                             size_t count, int index, bool whole)
{
    const char *name = names[(size_t)index % count];
    return bt_chat_put(r, name, whole ? strlen(name) : 3);
}

/* Formats that stand for others, in the C locale. */
static const char *time_shorthand(char c)
{
    switch (c) {
    case 'F':
        return "%Y-%m-%d";
    case 'T':
    case 'X':
        return "%H:%M:%S";
    case 'D':
    case 'x':
        return "%m/%d/%y";
    case 'R':
        return "%H:%M";
    case 'c':
        return "%a %b %e %H:%M:%S %Y";
    default:
        return NULL;
    }
}

static bauta_status put_time_field(bt_chat_render *r, char c, bool plain)
{
    const struct tm *t = &r->now;
    int hour = t->tm_hour % 12 ? t->tm_hour % 12 : 12;
    bauta_status status;
    switch (c) {
    case 'Y':
        return put_number(r, t->tm_year + 1900, 4, plain);
    case 'y':
        return put_number(r, t->tm_year % 100, 2, plain);
    case 'm':
        return put_number(r, t->tm_mon + 1, 2, plain);
    case 'd':
        return put_number(r, t->tm_mday, 2, plain);
    case 'e':
        status = bt_chat_put_text(r, t->tm_mday < 10 && !plain ? " " : "");
        return status ? status : put_number(r, t->tm_mday, 0, true);
    case 'H':
        return put_number(r, t->tm_hour, 2, plain);
    case 'I':
        return put_number(r, hour, 2, plain);
    case 'M':
        return put_number(r, t->tm_min, 2, plain);
    case 'S':
        return put_number(r, t->tm_sec, 2, plain);
    case 'f':
        return bt_chat_put_text(r, "000000");
    case 'j':
        return put_number(r, t->tm_yday + 1, 3, plain);
    case 'w':
        return put_number(r, t->tm_wday, 1, plain);
    case 'u':
        return put_number(r, t->tm_wday ? t->tm_wday : 7, 1, plain);
    case 'p':
        return bt_chat_put_text(r, t->tm_hour < 12 ? "AM" : "PM");
    case 'A':
        return put_name(r, days, 7, t->tm_wday, true);
    case 'a':
        return put_name(r, days, 7, t->tm_wday, false);
    case 'B':
        return put_name(r, months, 12, t->tm_mon, true);
    case 'b':
    case 'h':
        return put_name(r, months, 12, t->tm_mon, false);
    case 'n':
        return bt_chat_put_text(r, "\n");
    case 't':
        return bt_chat_put_text(r, "\t");
    case '%':
        return bt_chat_put_text(r, "%");
    case 'Z':
    case 'z':
        return BAUTA_OK; // a time without a zone, as in transformers
    default:
        return bt_chat_fail(r, "strftime_now() with an unknown field");
    }
}

bauta_status bt_chat_put_time(bt_chat_render *r, const bt_chat_string *format)
{
    bauta_status status = bt_chat_work(r, format->size);
    for (size_t i = 0; i < format->size && !status; i++) {
        if (format->bytes[i] != '%' || i + 1 == format->size) {
            status = bt_chat_put(r, format->bytes + i, 1);
            continue;
        }
        bool plain = format->bytes[i + 1] == '-' && i + 2 < format->size;
        i += 1 + plain;
        const char *stands_for = time_shorthand(format->bytes[i]);
        bt_chat_string longer = { stands_for, 0, NULL };
        if (stands_for) { // which has no shorthands itself
            longer.size = strlen(stands_for);
            status = bt_chat_put_time(r, &longer);
        } else {
            status = put_time_field(r, format->bytes[i], plain);
        }
    }
    return status;
}

FUNCTION(call_strftime_now)
{
    size_t begin = r->size;
    if (!bt_chat_is_string(&c->bound[0]))
        return bt_chat_fail(r, "the format of strftime_now() must be a str");
    bauta_status status = bt_chat_put_time(r, c->bound[0].string);
    return status ? status : bt_chat_take(r, begin, out);
}

/* ---- Others -------------------------------------------------------------- */

/* The template refuses the messages, for a reason that it gives. */
FUNCTION(call_raise_exception)
{
    char shown[180];
    bt_chat_value text;
    bauta_status status = bt_chat_stringify(r, &text, &c->bound[0]);
    if (status)
        return status;
    size_t n = text.string->size;
    if (n >= sizeof(shown)) {
        n = sizeof(shown) - 1;
        while (n > 0 && bt_utf8_continues(text.string->bytes[n]))
            n--;
    }
    for (size_t i = 0; i < n; i++) {
        char byte = text.string->bytes[i];
        bool control = (unsigned char)byte < 0x20 || byte == 0x7F;
        shown[i] = (char)(control ? '?' : byte);
    }
    shown[n] = '\0';
    *out = bt_chat_none();
    return bt_chat_fail(r, "%s", shown);
}

FUNCTION(call_range)
{
    int64_t start = 0, stop, step = 1;
    bool both = c->bound[1].kind != BT_CHAT_KIND_ABSENT;
    if (!bt_chat_as_integer(&c->bound[both], &stop) ||
        (both && !bt_chat_as_integer(&c->bound[0], &start)) ||
        (c->bound[2].kind && !bt_chat_as_integer(&c->bound[2], &step)))
        return bt_chat_fail(r, "range() needs integers");
    if (!step)
        return bt_chat_fail(r, "range() has a step of 0");
    // As unsigned numbers these cannot overflow.
    uint64_t way = step > 0 ? (uint64_t)stop - (uint64_t)start
                            : (uint64_t)start - (uint64_t)stop;
    uint64_t by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t count = 0;
    if (step > 0 ? stop > start : stop < start)
        count = (way - 1) / by + 1;
    if (count > BT_CHAT_RANGE_MAX)
        return bt_chat_fail(r, "range() has more than %d items",
                            BT_CHAT_RANGE_MAX);
    void *bounds;
    bauta_status status =
        bt_chat_list_make(r, out, BT_CHAT_FORM_RANGE, (size_t)count);
    if (!status)
        status = bt_chat_alloc(r, &bounds, 3 * sizeof(int64_t));
    if (!status) {
        memcpy(bounds, (int64_t[]){ start, stop, step }, 3 * sizeof(int64_t));
        out->list->bounds = bounds;
    }
    for (uint64_t i = 0; i < count && !status; i++)
        out->list->items[i] =
            bt_chat_integer((int64_t)((uint64_t)start + i * (uint64_t)step));
    return status;
}

/* A dict or a namespace: of a dict or pairs, and of named arguments. */
static bauta_status make_dict(bt_chat_render *r, const bt_chat_call *c,
                              bt_chat_kind kind, bt_chat_value *out)
{
    const bt_chat_arguments *given = c->arguments;
    bt_chat_list *pairs;
    bt_chat_dict none = { 0 }, *from = &none;
    if (given->count > 1)
        return bt_chat_fail(r, "dict() gets too many arguments");
    if (given->count && given->values[0].kind == BT_CHAT_KIND_DICT)
        from = given->values[0].dict;
    bauta_status status =
        bt_chat_dict_make(r, out, kind, from->count + given->named_count);
    for (size_t i = 0; i < from->count && !status; i++)
        status = bt_chat_dict_set(r, out->dict, &from->entries[i].key,
                                  &from->entries[i].value);
    if (!status && given->count && from == &none) {
        status = bt_chat_iterate(r, &given->values[0], &pairs);
        for (size_t i = 0; !status && i < pairs->count; i++) {
            const bt_chat_value *pair = &pairs->items[i];
            if (pair->kind != BT_CHAT_KIND_LIST || pair->list->count != 2)
                return bt_chat_fail(r, "dict() needs pairs");
            status = bt_chat_dict_set(r, out->dict, &pair->list->items[0],
                                      &pair->list->items[1]);
        }
    }
    for (size_t i = 0; i < given->named_count && !status; i++)
        status = bt_chat_dict_set(r, out->dict, &given->named[i].key,
                                  &given->named[i].value);
    return status;
}

FUNCTION(call_dict)
{
    return make_dict(r, c, BT_CHAT_KIND_DICT, out);
}

FUNCTION(call_namespace)
{
    return make_dict(r, c, BT_CHAT_KIND_NAMESPACE, out);
}

static const bt_chat_builtin functions[] = {
    { "range", "start [stop step", call_range },
    { "dict", "*", call_dict },
    { "namespace", "*", call_namespace },
    { "raise_exception", "message", call_raise_exception },
    { "strftime_now", "format", call_strftime_now },
};

bt_chat_value bt_chat_function_find(const bt_chat_string *name)
{
    for (size_t i = 0; i < BT_LEN(functions); i++)
        if (bt_chat_string_is(name, functions[i].name))
            return (bt_chat_value){ .kind = BT_CHAT_KIND_FUNCTION,
                                    .form = (uint8_t)i };
    return (bt_chat_value){ 0 };
}

bauta_status bt_chat_function_call(bt_chat_render *r,
                                   const bt_chat_value *function,
                                   const bt_chat_arguments *arguments,
                                   bt_chat_value *out)
{
    return bt_chat_builtin_call(r, &functions[function->form], function,
                                arguments, out);
}
