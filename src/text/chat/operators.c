/* SPDX-License-Identifier: Apache-2.0 */
/* operators.c - arithmetic of a chat template, as in Python, except that an
 * integer beyond 64 bits is an error. */
#include "text/chat/render.h"

#include <math.h>
#include <string.h>

static bauta_status fail_operands(bt_chat_render *r, const char *name,
                                  const bt_chat_value *a,
                                  const bt_chat_value *b)
{
    if (a->kind == BT_CHAT_KIND_UNDEFINED)
        return bt_chat_fail_undefined(r, a);
    if (b->kind == BT_CHAT_KIND_UNDEFINED)
        return bt_chat_fail_undefined(r, b);
    return bt_chat_fail(r, "\"%s\" of a %s and a %s", name,
                        bt_chat_type_name(a), bt_chat_type_name(b));
}

static bauta_status too_large(bt_chat_render *r)
{
    return bt_chat_fail(r, "an integer is beyond 64 bits");
}

static bauta_status by_zero(bt_chat_render *r)
{
    return bt_chat_fail(r, "division by zero");
}

static int64_t floor_quotient(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t floor_rest(int64_t a, int64_t b)
{
    int64_t rest = a % b;
    return rest && (rest < 0) != (b < 0) ? rest + b : rest;
}

static bauta_status power_integer(bt_chat_render *r, int64_t base,
                                  int64_t exponent, bt_chat_value *out)
{
    int64_t result = 1;
    if (exponent < 0 && base == 0)
        return by_zero(r);
    if (exponent < 0) {
        *out = bt_chat_real(pow((double)base, (double)exponent));
        return BAUTA_OK;
    }
    for (;;) { // binary powers: at most 63 squares
        if (exponent & 1 && __builtin_mul_overflow(result, base, &result))
            return too_large(r);
        exponent >>= 1;
        if (!exponent)
            break;
        if (__builtin_mul_overflow(base, base, &base))
            return too_large(r);
    }
    *out = bt_chat_integer(result);
    return BAUTA_OK;
}

static bauta_status integers(bt_chat_render *r, bt_chat_operation operation,
                             int64_t a, int64_t b, bt_chat_value *out)
{
    int64_t result = 0;
    bool over = false;
    switch (operation) {
    case BT_CHAT_ADD:
        over = __builtin_add_overflow(a, b, &result);
        break;
    case BT_CHAT_SUBTRACT:
        over = __builtin_sub_overflow(a, b, &result);
        break;
    case BT_CHAT_MULTIPLY:
        over = __builtin_mul_overflow(a, b, &result);
        break;
    case BT_CHAT_DIVIDE:
        if (!b)
            return by_zero(r);
        *out = bt_chat_real((double)a / (double)b);
        return BAUTA_OK;
    case BT_CHAT_POWER:
        return power_integer(r, a, b, out);
    default: // // and %
        if (!b)
            return by_zero(r);
        over = a == INT64_MIN && b == -1;
        if (over)
            break;
        result = operation == BT_CHAT_MODULO ? floor_rest(a, b)
                                             : floor_quotient(a, b);
        break;
    }
    *out = bt_chat_integer(result);
    return over ? too_large(r) : BAUTA_OK;
}

static bauta_status reals(bt_chat_render *r, bt_chat_operation operation,
                          double a, double b, bt_chat_value *out)
{
    double result = 0, rest;
    bool zero = !(b < 0) && !(b > 0) && !isnan(b);
    switch (operation) {
    case BT_CHAT_ADD:
        result = a + b;
        break;
    case BT_CHAT_SUBTRACT:
        result = a - b;
        break;
    case BT_CHAT_MULTIPLY:
        result = a * b;
        break;
    case BT_CHAT_POWER:
        result = pow(a, b);
        break;
    case BT_CHAT_DIVIDE:
        if (zero)
            return by_zero(r);
        result = a / b;
        break;
    default: // // and %
        if (zero)
            return by_zero(r);
        rest = fmod(a, b);
        if (rest * b < 0)
            rest += b;
        result = operation == BT_CHAT_MODULO ? rest : round((a - rest) / b);
        break;
    }
    *out = bt_chat_real(result);
    return BAUTA_OK;
}

static bauta_status repeat(bt_chat_render *r, const bt_chat_value *v,
                           int64_t times, bt_chat_value *out)
{
    size_t begin = r->size, n = times < 0 ? 0 : (size_t)times;
    if (bt_chat_is_string(v)) {
        bauta_status status =
            bt_chat_put_fill(r, v->string->bytes, v->string->size, n);
        return status ? status : bt_chat_take(r, begin, out);
    }
    size_t count = v->list->count;
    if (count && n > BT_CHAT_WORK_MAX / count)
        return bt_chat_fail(r, "a list would be too long");
    bt_chat_value made;
    bauta_status status =
        bt_chat_list_make(r, &made, (bt_chat_list_form)v->form, count * n);
    if (status)
        return status;
    for (size_t i = 0; i < count * n; i++)
        made.list->items[i] = v->list->items[i % count];
    *out = made;
    return BAUTA_OK;
}

static bool is_sequence(const bt_chat_value *v)
{
    return bt_chat_is_string(v) ||
           (v->kind == BT_CHAT_KIND_LIST && v->form <= BT_CHAT_FORM_TUPLE);
}

static bauta_status join_lists(bt_chat_render *r, const bt_chat_value *a,
                               const bt_chat_value *b, bt_chat_value *out)
{
    size_t na = a->list->count, nb = b->list->count;
    bt_chat_value made;
    bauta_status status =
        bt_chat_list_make(r, &made, (bt_chat_list_form)a->form, na + nb);
    if (status)
        return status;
    memcpy(made.list->items, a->list->items, na * sizeof(bt_chat_value));
    memcpy(made.list->items + na, b->list->items, nb * sizeof(bt_chat_value));
    *out = made;
    return BAUTA_OK;
}

/* A string that is "safe" makes + escape the other one. */
static bauta_status join_strings(bt_chat_render *r, const bt_chat_value *a,
                                 const bt_chat_value *b, bt_chat_value *out)
{
    bt_chat_value left = *a, right = *b;
    bool markup = a->markup || b->markup;
    bauta_status status = BAUTA_OK;
    if (markup)
        status = bt_chat_escape(r, &left, a);
    if (!status && markup)
        status = bt_chat_escape(r, &right, b);
    if (!status)
        status = bt_chat_string_append(r, out, left.string, right.string);
    out->markup = !status && markup;
    return status;
}

static bauta_status concatenate(bt_chat_render *r, const bt_chat_value *a,
                                const bt_chat_value *b, bt_chat_value *out)
{
    bt_chat_value left, right;
    bauta_status status = bt_chat_stringify(r, &left, a);
    if (!status)
        status = bt_chat_stringify(r, &right, b);
    return status ? status
                  : bt_chat_string_append(r, out, left.string, right.string);
}

bauta_status bt_chat_binary(bt_chat_render *r, bt_chat_operation operation,
                            const bt_chat_value *a, const bt_chat_value *b,
                            bt_chat_value *out)
{
    static const char *const names[] = {
        "", "+", "-", "*", "/", "//", "%", "**"
    };
    int64_t i = 0, j = 0;
    double x, y;
    bool whole_a = bt_chat_as_integer(a, &i);
    bool whole_b = bt_chat_as_integer(b, &j);
    if (operation == BT_CHAT_CONCATENATE)
        return concatenate(r, a, b, out);
    if (whole_a && whole_b)
        return integers(r, operation, i, j, out);
    if (bt_chat_as_real(a, &x) && bt_chat_as_real(b, &y))
        return reals(r, operation, x, y, out);
    if (operation == BT_CHAT_ADD && is_sequence(a) && a->kind == b->kind &&
        a->form == b->form)
        return bt_chat_is_string(a) ? join_strings(r, a, b, out)
                                    : join_lists(r, a, b, out);
    if (operation == BT_CHAT_MULTIPLY && is_sequence(a) && whole_b)
        return repeat(r, a, j, out);
    if (operation == BT_CHAT_MULTIPLY && is_sequence(b) && whole_a)
        return repeat(r, b, i, out);
    if (operation == BT_CHAT_MODULO && bt_chat_is_string(a))
        return bt_chat_format_percent(r, out, a->string, b);
    return fail_operands(r, names[operation], a, b);
}

bauta_status bt_chat_negate(bt_chat_render *r, bt_chat_operation sign,
                            const bt_chat_value *a, bt_chat_value *out)
{
    int64_t i;
    double x;
    bool minus = sign == BT_CHAT_SUBTRACT;
    if (bt_chat_as_integer(a, &i)) {
        if (minus && __builtin_sub_overflow(0, i, &i))
            return too_large(r);
        *out = bt_chat_integer(i);
    } else if (bt_chat_as_real(a, &x)) {
        *out = bt_chat_real(minus ? -x : x);
    } else if (a->kind == BT_CHAT_KIND_UNDEFINED) {
        return bt_chat_fail_undefined(r, a);
    } else {
        return bt_chat_fail(r, "a sign before a %s", bt_chat_type_name(a));
    }
    return BAUTA_OK;
}
