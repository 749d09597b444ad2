/* SPDX-License-Identifier: Apache-2.0 */
/* value_text.c - values as text: Python's str() and repr(), and JSON. */
#include "text/chat/lexer.h"
#include "text/chat/number.h"
#include "text/chat/render.h"

#include "base/utf8.h"
#include "text/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bauta_status put_integer(bt_chat_render *r, int64_t number)
{
    char digits[24];
    snprintf(digits, sizeof(digits), "%" PRId64, number);
    return bt_chat_put_text(r, digits);
}

static bauta_status put_real(bt_chat_render *r, double number)
{
    char digits[BT_CHAT_NUMBER_BYTES];
    return bt_chat_put(r, digits, bt_chat_write_real(digits, number));
}

/* ---- str() and repr() ---------------------------------------------------- */

static bool printable(uint32_t code)
{
    return code == ' ' || !(bt_is_control(code) || bt_chat_is_space(code));
}

/* A character inside quotes. */
static bauta_status put_quoted(bt_chat_render *r, uint32_t code, char quote)
{
    char escape[16];
    if (code == (uint32_t)quote || code == '\\')
        snprintf(escape, sizeof(escape), "\\%c", (char)code);
    else if (code == '\n' || code == '\r' || code == '\t')
        snprintf(escape, sizeof(escape), "\\%c",
                 code == '\n'   ? 'n'
                 : code == '\r' ? 'r'
                                : 't');
    else if (printable(code))
        return bt_chat_put_code(r, code);
    else
        snprintf(escape, sizeof(escape),
                 code < 0x100     ? "\\x%02" PRIx32
                 : code < 0x10000 ? "\\u%04" PRIx32
                                  : "\\U%08" PRIx32,
                 code);
    return bt_chat_put_text(r, escape);
}

static bauta_status put_string_repr(bt_chat_render *r, const bt_chat_string *s)
{
    bool apostrophe = memchr(s->bytes, '\'', s->size) != NULL;
    char quote = apostrophe && !memchr(s->bytes, '"', s->size) ? '"' : '\'';
    bauta_status status = bt_chat_put(r, &quote, 1);
    for (size_t at = 0, length; at < s->size && !status; at += length)
        status = put_quoted(
            r, bt_utf8_decode(s->bytes + at, s->size - at, &length), quote);
    return status ? status : bt_chat_put(r, &quote, 1);
}

static bauta_status put_items(bt_chat_render *r, const bt_chat_list *list)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < list->count && !status; i++) {
        if (i > 0)
            status = bt_chat_put_text(r, ", ");
        if (!status)
            status = bt_chat_put_repr(r, &list->items[i]);
    }
    return status;
}

/* A slice of a range has items only: the bounds follow from them. */
static bauta_status put_range(bt_chat_render *r, const bt_chat_list *list)
{
    char text[80];
    int64_t bounds[] = { 0, 0, 1 };
    if (list->bounds) {
        memcpy(bounds, list->bounds, sizeof(bounds));
    } else if (list->count > 0) {
        const bt_chat_value *items = list->items;
        uint64_t first = (uint64_t)items[0].integer;
        uint64_t step =
            list->count > 1 ? (uint64_t)items[1].integer - first : 1;
        bounds[0] = (int64_t)first;
        bounds[1] = (int64_t)(first + step * list->count);
        bounds[2] = (int64_t)step;
    }
    int length = snprintf(text, sizeof(text), "range(%" PRId64 ", %" PRId64,
                          bounds[0], bounds[1]);
    if (bounds[2] != 1)
        length += snprintf(text + length, sizeof(text) - (size_t)length,
                           ", %" PRId64, bounds[2]);
    bauta_status status = bt_chat_put(r, text, (size_t)length);
    return status ? status : bt_chat_put_text(r, ")");
}

static bauta_status put_list(bt_chat_render *r, const bt_chat_value *v)
{
    static const char *const around[][2] = {
        [BT_CHAT_FORM_LIST] = { "[", "]" },
        [BT_CHAT_FORM_TUPLE] = { "(", ")" },
        [BT_CHAT_FORM_KEYS] = { "dict_keys([", "])" },
        [BT_CHAT_FORM_VALUES] = { "dict_values([", "])" },
        [BT_CHAT_FORM_ITEMS] = { "dict_items([", "])" },
    };
    if (v->form == BT_CHAT_FORM_GENERATOR)
        return bt_chat_put_text(r, "<generator object>");
    if (v->form == BT_CHAT_FORM_RANGE)
        return put_range(r, v->list);
    bauta_status status = bt_chat_put_text(r, around[v->form][0]);
    if (!status)
        status = put_items(r, v->list);
    if (!status && v->form == BT_CHAT_FORM_TUPLE && v->list->count == 1)
        status = bt_chat_put_text(r, ",");
    return status ? status : bt_chat_put_text(r, around[v->form][1]);
}

static bauta_status put_dict(bt_chat_render *r, const bt_chat_dict *dict)
{
    bauta_status status = bt_chat_put_text(r, "{");
    for (size_t i = 0; i < dict->count && !status; i++) {
        if (i > 0)
            status = bt_chat_put_text(r, ", ");
        if (!status)
            status = bt_chat_put_repr(r, &dict->entries[i].key);
        if (!status)
            status = bt_chat_put_text(r, ": ");
        if (!status)
            status = bt_chat_put_repr(r, &dict->entries[i].value);
    }
    return status ? status : bt_chat_put_text(r, "}");
}

static bauta_status put_object(bt_chat_render *r, const bt_chat_value *v)
{
    bauta_status status;
    switch (v->kind) {
    case BT_CHAT_KIND_NAMESPACE:
        status = bt_chat_put_text(r, "<Namespace ");
        if (!status)
            status = put_dict(r, v->dict);
        break;
    case BT_CHAT_KIND_MACRO:
        status = bt_chat_put_text(r, "<Macro ");
        if (!status && v->macro->node->kind == BT_CHAT_MACRO)
            status = put_string_repr(r, v->macro->node->string);
        break;
    default:
        status = bt_chat_put_text(r, "<");
        if (!status)
            status = bt_chat_put_text(r, bt_chat_type_name(v));
        break;
    }
    return status ? status : bt_chat_put_text(r, ">");
}

static bauta_status put_any(bt_chat_render *r, const bt_chat_value *v)
{
    switch (v->kind) {
    case BT_CHAT_KIND_UNDEFINED:
        return v->form == BT_CHAT_FORM_UNSAFE ? bt_chat_fail_undefined(r, v)
                                              : BAUTA_OK;
    case BT_CHAT_KIND_NONE:
        return bt_chat_put_text(r, "None");
    case BT_CHAT_KIND_BOOLEAN:
        return bt_chat_put_text(r, v->boolean ? "True" : "False");
    case BT_CHAT_KIND_INTEGER:
        return put_integer(r, v->integer);
    case BT_CHAT_KIND_REAL:
        return put_real(r, v->real);
    case BT_CHAT_KIND_STRING:
        return put_string_repr(r, v->string);
    case BT_CHAT_KIND_LIST:
        return put_list(r, v);
    case BT_CHAT_KIND_DICT:
        return put_dict(r, v->dict);
    default:
        return put_object(r, v);
    }
}

bauta_status bt_chat_put_repr(bt_chat_render *r, const bt_chat_value *v)
{
    bauta_status status = bt_chat_enter(r);
    if (!status && v->kind == BT_CHAT_KIND_UNDEFINED)
        status = bt_chat_put_text(r, "Undefined");
    else if (!status)
        status = put_any(r, v);
    r->depth--;
    return status;
}

bauta_status bt_chat_put_value(bt_chat_render *r, const bt_chat_value *v)
{
    if (bt_chat_is_string(v))
        return bt_chat_put(r, v->string->bytes, v->string->size);
    return put_any(r, v);
}

bauta_status bt_chat_stringify(bt_chat_render *r, bt_chat_value *out,
                               const bt_chat_value *v)
{
    size_t begin = r->size;
    if (bt_chat_is_string(v)) {
        *out = *v;
        return BAUTA_OK;
    }
    bauta_status status = bt_chat_put_value(r, v);
    return status ? status : bt_chat_take(r, begin, out);
}

bauta_status bt_chat_escape(bt_chat_render *r, bt_chat_value *out,
                            const bt_chat_value *v)
{
    static const char *const escapes[] = { "&&amp;", "<&lt;", ">&gt;", "'&#39;",
                                           "\"&#34;" };
    bt_chat_value text;
    size_t begin = r->size;
    bauta_status status = bt_chat_stringify(r, &text, v);
    if (status || text.markup) {
        *out = text;
        return status;
    }
    for (size_t i = 0; i < text.string->size && !status; i++) {
        const char *byte = text.string->bytes + i;
        const char *escape = NULL;
        for (size_t k = 0; k < BT_LEN(escapes); k++)
            if (*byte == escapes[k][0])
                escape = escapes[k] + 1;
        status = escape ? bt_chat_put_text(r, escape) : bt_chat_put(r, byte, 1);
    }
    if (!status)
        status = bt_chat_take(r, begin, out);
    out->markup = !status;
    return status;
}

/* ---- JSON ---------------------------------------------------------------- */

typedef struct chat_json_writer {
    bt_chat_render *r;
    bool ascii, sort_keys, lines;
    bt_chat_string indent; /* of one level */
    bt_chat_string comma, colon;
    size_t level;
} chat_json_writer;

static bauta_status json_value(chat_json_writer *w, const bt_chat_value *v);

static bauta_status json_escape(chat_json_writer *w, uint32_t code)
{
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    char escape[16];
    for (size_t i = 0; i + 1 < sizeof(shorts); i += 2)
        if (code == (unsigned char)shorts[i]) {
            snprintf(escape, sizeof(escape), "\\%c", shorts[i + 1]);
            return bt_chat_put_text(w->r, escape);
        }
    if (code >= 0x20 && (!w->ascii || code < 0x7F))
        return bt_chat_put_code(w->r, code);
    if (code < 0x10000)
        snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)code);
    else
        snprintf(escape, sizeof(escape), "\\u%04x\\u%04x",
                 (unsigned)(0xD7C0 + (code >> 10)),
                 (unsigned)(0xDC00 + (code & 0x3FF)));
    return bt_chat_put_text(w->r, escape);
}

static bauta_status json_string_put(chat_json_writer *w,
                                    const bt_chat_string *s)
{
    bauta_status status = bt_chat_put_text(w->r, "\"");
    for (size_t at = 0, length; at < s->size && !status; at += length)
        status = json_escape(
            w, bt_utf8_decode(s->bytes + at, s->size - at, &length));
    return status ? status : bt_chat_put_text(w->r, "\"");
}

static bauta_status json_break(chat_json_writer *w)
{
    if (!w->lines)
        return BAUTA_OK;
    bauta_status status = bt_chat_put_text(w->r, "\n");
    return status ? status
                  : bt_chat_put_fill(w->r, w->indent.bytes, w->indent.size,
                                     w->level);
}

/* Before item i of a list or an object. */
static bauta_status json_separate(chat_json_writer *w, size_t i)
{
    bauta_status status = BAUTA_OK;
    if (i > 0)
        status = bt_chat_put(w->r, w->comma.bytes, w->comma.size);
    return status ? status : json_break(w);
}

static bauta_status json_list(chat_json_writer *w, const bt_chat_list *list)
{
    bauta_status status = bt_chat_put_text(w->r, "[");
    w->level++;
    for (size_t i = 0; i < list->count && !status; i++) {
        status = json_separate(w, i);
        if (!status)
            status = json_value(w, &list->items[i]);
    }
    w->level--;
    if (!status && list->count)
        status = json_break(w);
    return status ? status : bt_chat_put_text(w->r, "]");
}

static bauta_status json_key(chat_json_writer *w, const bt_chat_value *key)
{
    if (bt_chat_is_string(key))
        return json_string_put(w, key->string);
    if (key->kind > BT_CHAT_KIND_REAL || key->kind < BT_CHAT_KIND_NONE)
        return bt_chat_fail(w->r, "a %s cannot be a key of JSON",
                            bt_chat_type_name(key));
    bauta_status status = bt_chat_put_text(w->r, "\"");
    if (!status)
        status = json_value(w, key);
    return status ? status : bt_chat_put_text(w->r, "\"");
}

/* The entries in the order of their keys: an insertion sort, whose comparisons
 * are counted. */
static bauta_status json_sorted(chat_json_writer *w, const bt_chat_dict *dict,
                                bt_chat_dict *sorted)
{
    void *entries;
    bauta_status status =
        bt_chat_alloc(w->r, &entries, dict->count * sizeof(bt_chat_entry));
    if (status)
        return status;
    *sorted = (bt_chat_dict){ entries, dict->count, dict->count };
    for (size_t i = 0; i < dict->count && !status; i++) {
        size_t at = i;
        int order = 1;
        while (at > 0 && !status) {
            status = bt_chat_order(w->r, &sorted->entries[at - 1].key,
                                   &dict->entries[i].key, &order);
            if (status || order <= 0)
                break;
            sorted->entries[at] = sorted->entries[at - 1];
            at--;
        }
        sorted->entries[at] = dict->entries[i];
    }
    return status;
}

static bauta_status json_dict(chat_json_writer *w, const bt_chat_dict *dict)
{
    bt_chat_dict sorted;
    bauta_status status = BAUTA_OK;
    if (w->sort_keys) {
        status = json_sorted(w, dict, &sorted);
        dict = &sorted;
    }
    if (!status)
        status = bt_chat_put_text(w->r, "{");
    w->level++;
    for (size_t i = 0; !status && i < dict->count; i++) {
        status = json_separate(w, i);
        if (!status)
            status = json_key(w, &dict->entries[i].key);
        if (!status)
            status = bt_chat_put(w->r, w->colon.bytes, w->colon.size);
        if (!status)
            status = json_value(w, &dict->entries[i].value);
    }
    w->level--;
    if (!status && dict->count)
        status = json_break(w);
    return status ? status : bt_chat_put_text(w->r, "}");
}

static bauta_status json_any(chat_json_writer *w, const bt_chat_value *v)
{
    switch (v->kind) {
    case BT_CHAT_KIND_NONE:
        return bt_chat_put_text(w->r, "null");
    case BT_CHAT_KIND_BOOLEAN:
        return bt_chat_put_text(w->r, v->boolean ? "true" : "false");
    case BT_CHAT_KIND_INTEGER:
        return put_integer(w->r, v->integer);
    case BT_CHAT_KIND_REAL:
        if (isnan(v->real))
            return bt_chat_put_text(w->r, "NaN");
        if (isinf(v->real))
            return bt_chat_put_text(w->r,
                                    v->real < 0 ? "-Infinity" : "Infinity");
        return put_real(w->r, v->real);
    case BT_CHAT_KIND_STRING:
        return json_string_put(w, v->string);
    case BT_CHAT_KIND_LIST:
        if (v->form <= BT_CHAT_FORM_TUPLE)
            return json_list(w, v->list);
        break;
    case BT_CHAT_KIND_DICT:
        return json_dict(w, v->dict);
    default:
        break;
    }
    return bt_chat_fail(w->r, "a %s cannot be written as JSON",
                        bt_chat_type_name(v));
}

static bauta_status json_value(chat_json_writer *w, const bt_chat_value *v)
{
    bauta_status status = bt_chat_enter(w->r);
    if (!status)
        status = json_any(w, v);
    w->r->depth--;
    return status;
}

static bauta_status json_indent(chat_json_writer *w, const bt_chat_value *v)
{
    int64_t spaces;
    bt_chat_value text;
    if (v->kind <= BT_CHAT_KIND_NONE)
        return BAUTA_OK;
    w->lines = true;
    w->comma.size = 1; // "," alone at the end of a line
    if (bt_chat_is_string(v)) {
        w->indent = *v->string;
        return BAUTA_OK;
    }
    if (!bt_chat_as_integer(v, &spaces) || spaces > 1000)
        return bt_chat_fail(w->r, "the indent of JSON is a %s or too large",
                            bt_chat_type_name(v));
    size_t begin = w->r->size;
    bauta_status status =
        bt_chat_put_fill(w->r, " ", 1, spaces < 0 ? 0 : (size_t)spaces);
    if (!status)
        status = bt_chat_take(w->r, begin, &text);
    if (!status)
        w->indent = *text.string;
    return status;
}

static bauta_status json_separators(chat_json_writer *w, const bt_chat_value *v)
{
    if (v->kind <= BT_CHAT_KIND_NONE)
        return BAUTA_OK;
    if (v->kind != BT_CHAT_KIND_LIST || v->list->count != 2 ||
        !bt_chat_is_string(&v->list->items[0]) ||
        !bt_chat_is_string(&v->list->items[1]))
        return bt_chat_fail(w->r, "separators must be two strings");
    w->comma = *v->list->items[0].string;
    w->colon = *v->list->items[1].string;
    return BAUTA_OK;
}

bauta_status bt_chat_put_json(bt_chat_render *r, const bt_chat_value *v,
                              const bt_chat_json_options *options)
{
    chat_json_writer w = { .r = r,
                           .ascii = options->ascii,
                           .sort_keys = options->sort_keys,
                           .comma = { ", ", 2, NULL },
                           .colon = { ": ", 2, NULL } };
    bauta_status status = json_indent(&w, options->indent);
    if (!status)
        status = json_separators(&w, options->separators);
    return status ? status : json_value(&w, v);
}
