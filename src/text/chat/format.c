/* SPDX-License-Identifier: Apache-2.0 */
/* format.c - "%s" % x and "{}".format(x), as in Python. */
#include "text/chat/number.h"
#include "text/chat/render.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH_MAX = 10000, PRECISION_MAX = 60 };

/* [[fill]align][sign][0][width][.precision][type] */
typedef struct format_spec {
    uint32_t fill;
    char align, sign, type; /* 0 where not given */
    bool alternate, comma;
    size_t width;
    int precision; /* -1: not given */
} format_spec;

typedef struct format_reader {
    const char *at, *end;
} format_reader;

static bool skip(format_reader *f, char c)
{
    if (f->at == f->end || *f->at != c)
        return false;
    f->at++;
    return true;
}

/* Digits, or `none`; beyond `most` the number stays there. */
static int read_digits(format_reader *f, int none, int most)
{
    int number = none;
    for (; f->at < f->end && *f->at >= '0' && *f->at <= '9'; f->at++) {
        number = (number < 0 ? 0 : number) * 10 + (*f->at - '0');
        number = number > most ? most : number;
    }
    return number;
}

/* A character of the template for a message. */
static char printable_of(char c)
{
    return (char)(c > ' ' && c < 0x7F ? c : '?');
}

/* ---- Values -------------------------------------------------------------- */

/* Write a text whose digits start after `prefix` bytes, filled to the width. */
static bauta_status put_padded(bt_chat_render *r, const format_spec *f,
                               const bt_chat_string *text, size_t prefix,
                               char align)
{
    char fill[4];
    size_t size = bt_utf8_encode(fill, f->fill ? f->fill : ' ');
    size_t characters = bt_chat_characters(text);
    size_t room = f->width > characters ? f->width - characters : 0;
    size_t left = align == '>' ? room : align == '^' ? room / 2 : 0;
    size_t inner = align == '=' ? room : 0;
    bauta_status status = bt_chat_put_fill(r, fill, size, left);
    if (!status)
        status = bt_chat_put(r, text->bytes, prefix);
    if (!status)
        status = bt_chat_put_fill(r, fill, size, inner);
    if (!status)
        status = bt_chat_put(r, text->bytes + prefix, text->size - prefix);
    return status ? status
                  : bt_chat_put_fill(r, fill, size, room - left - inner);
}

static bauta_status put_text(bt_chat_render *r, const format_spec *f,
                             const bt_chat_value *v)
{
    size_t begin, size;
    bt_chat_string part = *v->string;
    if (f->precision >= 0) {
        bt_chat_character_range(&part, 0, (size_t)f->precision, &begin, &size);
        part.size = size;
    }
    return put_padded(r, f, &part, 0, f->align ? f->align : '<');
}

/* Insert "," between groups of three digits, up to the point. */
static size_t group_digits(char *out, const char *digits)
{
    size_t whole = strspn(digits, "0123456789"), n = 0;
    for (size_t i = 0; digits[i]; i++) {
        if (i > 0 && i < whole && (whole - i) % 3 == 0)
            out[n++] = ',';
        out[n++] = digits[i];
    }
    out[n] = '\0';
    return n;
}

/* A number whose digits are there, without a sign. */
static bauta_status put_digits(bt_chat_render *r, const format_spec *f,
                               const char *digits, bool minus)
{
    char text[2 * BT_CHAT_NUMBER_BYTES] = { 0 };
    size_t n = 0;
    if (minus || f->sign == '+' || f->sign == ' ')
        text[n++] = (char)(minus ? '-' : f->sign);
    size_t prefix = n;
    if (f->comma)
        n += group_digits(text + n, digits);
    else
        n += (size_t)snprintf(text + n, BT_CHAT_NUMBER_BYTES, "%s", digits);
    bt_chat_string string = { text, n, NULL };
    return put_padded(r, f, &string, prefix, f->align ? f->align : '>');
}

static bauta_status put_whole(bt_chat_render *r, const format_spec *f,
                              int64_t number)
{
    char digits[80];
    uint64_t size = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    const char *prefix = !f->alternate ? "" : f->type == 'o' ? "0o" : "0x";
    switch (f->type) {
    case 'x':
        snprintf(digits, 80, "%s%" PRIx64, prefix, size);
        break;
    case 'X':
        snprintf(digits, 80, "%s%" PRIX64, prefix, size);
        break;
    case 'o':
        snprintf(digits, 80, "%s%" PRIo64, prefix, size);
        break;
    default:
        snprintf(digits, 80, "%" PRIu64, size);
        break;
    }
    return put_digits(r, f, digits, number < 0);
}

static bauta_status put_real(bt_chat_render *r, const format_spec *f,
                             double number)
{
    char digits[BT_CHAT_NUMBER_BYTES];
    bool percent = f->type == '%', minus = number < 0;
    number = (minus ? -number : number) * (percent ? 100 : 1);
    if (!f->type && f->precision < 0) {
        bt_chat_write_real(digits, number);
    } else {
        char type = percent ? 'f' : f->type ? f->type : 'g';
        size_t n = bt_chat_write_fixed(digits, number, type,
                                       f->precision < 0 ? 6 : f->precision);
        if (percent)
            strcpy(digits + n, "%");
    }
    return put_digits(r, f, digits, minus);
}

static bauta_status put_formatted(bt_chat_render *r, const format_spec *f,
                                  const bt_chat_value *v)
{
    int64_t integer;
    double real;
    bt_chat_value text;
    bool number = bt_chat_as_real(v, &real);
    bool boolean = v->kind == BT_CHAT_KIND_BOOLEAN;
    if (f->type && strchr("dixXo", f->type) && bt_chat_as_integer(v, &integer))
        return put_whole(r, f, integer);
    if (f->type && strchr("feg%", f->type) && number)
        return put_real(r, f, real);
    if (!f->type && v->kind == BT_CHAT_KIND_REAL)
        return put_real(r, f, real);
    if (!f->type && !boolean && bt_chat_as_integer(v, &integer))
        return put_whole(r, f, integer);
    if (f->type && f->type != 's')
        return bt_chat_fail(r, "the format '%c' of a %s is not supported",
                            printable_of(f->type), bt_chat_type_name(v));
    bauta_status status = bt_chat_stringify(r, &text, v);
    return status ? status : put_text(r, f, &text);
}

static bauta_status to_repr(bt_chat_render *r, bt_chat_value *out,
                            const bt_chat_value *v)
{
    size_t begin = r->size;
    bauta_status status = bt_chat_put_repr(r, v);
    return status ? status : bt_chat_take(r, begin, out);
}

/* ---- % ------------------------------------------------------------------- */

/* What follows "%", up to its type. */
static format_spec percent_spec(format_reader *f)
{
    format_spec spec = { .precision = -1, .align = '>' };
    for (bool more = true; more;) {
        more = false;
        if (skip(f, '-'))
            more = (spec.align = '<') != 0;
        if (skip(f, '0')) {
            more = true;
            if (spec.align == '>') {
                spec.fill = '0';
                spec.align = '=';
            }
        }
        if (skip(f, '+'))
            more = (spec.sign = '+') != 0;
        if (skip(f, ' '))
            more = (spec.sign = spec.sign ? spec.sign : ' ') != 0;
        if (skip(f, '#'))
            more = spec.alternate = true;
    }
    spec.width = (size_t)read_digits(f, 0, WIDTH_MAX);
    if (skip(f, '.'))
        spec.precision = read_digits(f, 0, PRECISION_MAX);
    return spec;
}

static bauta_status percent_put(bt_chat_render *r, format_spec *spec, char type,
                                const bt_chat_value *v)
{
    bt_chat_value shown = *v;
    bauta_status status = BAUTA_OK;
    double real;
    spec->type = (char)(type == 'r' ? 's' : type == 'F' ? 'f' : type);
    if (!type || !strchr("srdixXofFeg", type))
        return bt_chat_fail(r, "a format with '%%' of an unknown type");
    if (type == 'r')
        status = to_repr(r, &shown, v);
    if ((type == 'd' || type == 'i') && v->kind == BT_CHAT_KIND_REAL &&
        bt_chat_as_real(v, &real) && real > -9e18 && real < 9e18)
        shown = bt_chat_integer((int64_t)real);
    if (strchr("sr", type) && spec->align == '=')
        spec->align = '>';
    if (strchr("sr", type))
        spec->fill = 0;
    return status ? status : put_formatted(r, spec, &shown);
}

bauta_status bt_chat_format_percent(bt_chat_render *r, bt_chat_value *out,
                                    const bt_chat_string *format,
                                    const bt_chat_value *arguments)
{
    bool tuple = arguments->kind == BT_CHAT_KIND_LIST &&
                 arguments->form == BT_CHAT_FORM_TUPLE;
    const bt_chat_value *next = tuple ? arguments->list->items : arguments;
    size_t left = tuple ? arguments->list->count : 1, begin = r->size;
    format_reader f = { format->bytes, format->bytes + format->size };
    bauta_status status = bt_chat_work(r, format->size);
    while (f.at < f.end && !status) {
        if (*f.at != '%') {
            status = bt_chat_put(r, f.at++, 1);
            continue;
        }
        f.at++;
        format_spec spec = percent_spec(&f);
        if (f.at == f.end || (*f.at != '%' && !left))
            return bt_chat_fail(r, "a format with '%%' has too few values");
        char type = *f.at++;
        if (type == '%') {
            status = bt_chat_put_text(r, "%");
        } else {
            status = percent_put(r, &spec, type, next++);
            left--;
        }
    }
    if (!status && left && (tuple || arguments->kind != BT_CHAT_KIND_DICT))
        return bt_chat_fail(r, "a format with '%%' has too many values");
    return status ? status : bt_chat_take(r, begin, out);
}

/* ---- {} ------------------------------------------------------------------ */

static bool is_align(const char *at, const char *end)
{
    return at < end && *at && strchr("<>^=", *at);
}

static format_spec braces_spec(format_reader *f)
{
    format_spec spec = { .precision = -1 };
    size_t length = 0;
    uint32_t code =
        f->at < f->end
            ? bt_utf8_decode(f->at, (size_t)(f->end - f->at), &length)
            : 0;
    if (length && is_align(f->at + length, f->end)) {
        spec.fill = code;
        f->at += length;
    }
    if (is_align(f->at, f->end))
        spec.align = *f->at++;
    for (const char *sign = "+- "; *sign; sign++)
        if (skip(f, *sign))
            spec.sign = *sign;
    spec.alternate = skip(f, '#');
    if (skip(f, '0') && !spec.align) {
        spec.fill = '0';
        spec.align = '=';
    }
    spec.width = (size_t)read_digits(f, 0, WIDTH_MAX);
    spec.comma = skip(f, ',');
    if (skip(f, '.'))
        spec.precision = read_digits(f, 0, PRECISION_MAX);
    if (f->at < f->end)
        spec.type = *f->at++;
    return spec;
}

static const bt_chat_value *named(const bt_chat_arguments *arguments,
                                  const bt_chat_string *name)
{
    for (size_t i = 0; i < arguments->named_count; i++)
        if (bt_chat_string_equal(arguments->named[i].key.string, name))
            return &arguments->named[i].value;
    return NULL;
}

/* The value of a field's name: none, a number, or a name. *next counts those
 * without one, and is SIZE_MAX once there was a number. */
static bauta_status field_value(bt_chat_render *r, const bt_chat_string *name,
                                const bt_chat_arguments *arguments,
                                size_t *next, const bt_chat_value **out)
{
    int64_t index;
    bool number = bt_chat_read_integer(&index, name->bytes, name->size, 10);
    *out = NULL;
    if (number ? *next != SIZE_MAX && *next > 0
               : !name->size && *next == SIZE_MAX)
        return bt_chat_fail(r, "format() has fields with and without numbers");
    if (!name->size) {
        if (*next < arguments->count)
            *out = &arguments->values[*next];
        ++*next;
    } else if (number) {
        *next = SIZE_MAX;
        if (index >= 0 && (uint64_t)index < arguments->count)
            *out = &arguments->values[index];
    } else {
        *out = named(arguments, name);
    }
    return *out ? BAUTA_OK
                : bt_chat_fail(r, "format() has no value for \"{%s}\"",
                               bt_chat_quote(name).text);
}

/* A field between braces. */
static bauta_status field_put(bt_chat_render *r, const char *begin,
                              const char *end,
                              const bt_chat_arguments *arguments, size_t *next)
{
    const char *at = begin;
    const bt_chat_value *v;
    bt_chat_value value;
    while (at < end && *at != ':' && *at != '!')
        at++;
    bt_chat_string name = { begin, (size_t)(at - begin), NULL };
    format_reader f = { at, end };
    char conversion = 's';
    bool converted = skip(&f, '!');
    if (converted && f.at < f.end)
        conversion = *f.at++;
    bauta_status status = field_value(r, &name, arguments, next, &v);
    if (status)
        return status;
    value = *v;
    if (converted)
        status = conversion == 's'   ? bt_chat_stringify(r, &value, v)
                 : conversion == 'r' ? to_repr(r, &value, v)
                                     : bt_chat_fail(r, "format() with \"!%c\"",
                                                    printable_of(conversion));
    bool has_spec = skip(&f, ':');
    format_spec spec = braces_spec(&f);
    if (!status && f.at != f.end)
        return bt_chat_fail(r, "a format of format() is not supported");
    if (status)
        return status;
    return has_spec && f.end[-1] != ':' ? put_formatted(r, &spec, &value)
                                        : bt_chat_put_value(r, &value);
}

bauta_status bt_chat_format_braces(bt_chat_render *r, bt_chat_value *out,
                                   const bt_chat_string *format,
                                   const bt_chat_arguments *arguments)
{
    const char *at = format->bytes, *end = at + format->size;
    size_t next = 0, begin = r->size;
    bauta_status status = bt_chat_work(r, format->size);
    while (at < end && !status) {
        char c = *at++;
        bool brace = c == '{' || c == '}';
        if (!brace || (at < end && *at == c)) { // {{ and }} are braces
            status = bt_chat_put(r, &c, 1);
            at += brace;
            continue;
        }
        const char *close = memchr(at, '}', (size_t)(end - at));
        if (c == '}' || !close || memchr(at, '{', (size_t)(close - at)))
            return bt_chat_fail(r, "a format has a single brace");
        status = field_put(r, at, close, arguments, &next);
        at = close + 1;
    }
    return status ? status : bt_chat_take(r, begin, out);
}
