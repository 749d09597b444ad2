/* SPDX-License-Identifier: Apache-2.0 */
/* value.c - see value.h. */
#define _GNU_SOURCE // memmem
#include "text/chat/value.h"

#include "base/size.h"
#include "base/utf8.h"
#include "text/chat/render.h"

#include <math.h>
#include <string.h>

/* Room behind a string that grows by appending: the string whose end is the
 * end of `size` may go on there. */
typedef struct bt_chat_growth {
    char *bytes;
    size_t size, capacity;
} bt_chat_growth;

/* Bytes that are compared in the time that one is copied. */
enum { COMPARED = 16 };

/* ---- Strings ------------------------------------------------------------- */

bool bt_chat_string_is(const bt_chat_string *string, const char *text)
{
    // Most candidates differ in the first byte.
    return string->size && *string->bytes == *text &&
           string->size == strlen(text) &&
           !memcmp(string->bytes, text, string->size);
}

bool bt_chat_string_equal(const bt_chat_string *a, const bt_chat_string *b)
{
    return a->size == b->size && !memcmp(a->bytes, b->bytes, a->size);
}

size_t bt_chat_characters(const bt_chat_string *string)
{
    size_t count = 0;
    for (size_t i = 0; i < string->size; i++)
        count += !bt_utf8_continues(string->bytes[i]);
    return count;
}

/* memmem() gets windows of growing size: the address sanitizer checks all bytes
 * that it is given, which would take quadratic time for many matches. */
size_t bt_chat_string_find(const bt_chat_string *in, size_t from,
                           const bt_chat_string *what)
{
    for (size_t window = 256;; window *= 2) {
        size_t left = in->size - from;
        size_t size = bt_size_min(left, bt_size_add(window, what->size));
        const char *found =
            memmem(in->bytes + from, size, what->bytes, what->size);
        if (found)
            return (size_t)(found - in->bytes);
        if (size == left)
            return SIZE_MAX;
        from += size - what->size + 1; // a match may lie across the end
    }
}

bauta_status bt_chat_string_refer(bt_chat_render *r, bt_chat_value *out,
                                  const char *bytes, size_t size)
{
    void *string;
    bauta_status status = bt_chat_alloc(r, &string, sizeof(bt_chat_string));
    if (status)
        return status;
    *(bt_chat_string *)string = (bt_chat_string){ bytes, size, NULL };
    *out = bt_chat_text(string);
    return BAUTA_OK;
}

bauta_status bt_chat_string_make(bt_chat_render *r, bt_chat_value *out,
                                 const char *bytes, size_t size)
{
    void *copy;
    bauta_status status = bt_chat_work(r, size);
    if (!status)
        status = bt_chat_alloc(r, &copy, size);
    if (status)
        return status;
    memcpy(copy, bytes, size);
    return bt_chat_string_refer(r, out, copy, size);
}

bauta_status bt_chat_string_part(bt_chat_render *r, bt_chat_value *out,
                                 const bt_chat_value *of, size_t begin,
                                 size_t size)
{
    bool markup = of->markup;
    bauta_status status =
        bt_chat_string_refer(r, out, of->string->bytes + begin, size);
    out->markup = markup;
    return status;
}

/* A copy of `a`, with room for more than it and `b`. */
static bauta_status growth_make(bt_chat_render *r, bt_chat_growth **out,
                                const bt_chat_string *a, size_t more)
{
    void *growth, *bytes;
    size_t need = bt_size_add(a->size, more);
    size_t capacity = need < 256 ? need : bt_size_mul(need, 2);
    bauta_status status = bt_chat_work(r, a->size);
    if (!status)
        status = bt_chat_alloc(r, &growth, sizeof(bt_chat_growth));
    if (!status)
        status = bt_chat_alloc(r, &bytes, capacity);
    if (status)
        return status;
    memcpy(bytes, a->bytes, a->size);
    *out = growth;
    **out = (bt_chat_growth){ bytes, a->size, capacity };
    return BAUTA_OK;
}

bauta_status bt_chat_string_append(bt_chat_render *r, bt_chat_value *out,
                                   const bt_chat_string *a,
                                   const bt_chat_string *b)
{
    bt_chat_growth *growth = a->growth;
    bt_chat_string joined = { NULL, bt_size_add(a->size, b->size), NULL };
    bauta_status status = bt_chat_work(r, b->size);
    if (status)
        return status;
    bool last = growth && a->bytes + a->size == growth->bytes + growth->size;
    if (!last || growth->capacity - growth->size < b->size)
        status = growth_make(r, &growth, a, b->size);
    if (status)
        return status;
    memcpy(growth->bytes + growth->size, b->bytes, b->size);
    growth->size += b->size;
    joined.bytes = growth->bytes + growth->size - joined.size;
    joined.growth = growth;
    status = bt_chat_string_refer(r, out, "", 0);
    if (!status)
        *(bt_chat_string *)out->string = joined;
    return status;
}

/* ---- Lists and dicts ----------------------------------------------------- */

bauta_status bt_chat_list_make(bt_chat_render *r, bt_chat_value *out,
                               bt_chat_list_form form, size_t count)
{
    void *list, *items;
    bauta_status status = bt_chat_work(r, count);
    if (!status)
        status = bt_chat_alloc(r, &list, sizeof(bt_chat_list));
    if (!status)
        status =
            bt_chat_alloc(r, &items, bt_size_mul(count, sizeof(bt_chat_value)));
    if (status)
        return status;
    bt_chat_value made = { .kind = BT_CHAT_KIND_LIST,
                           .form = (uint8_t)form,
                           .list = list };
    *made.list = (bt_chat_list){ .items = items, .count = count };
    *out = made;
    return BAUTA_OK;
}

bauta_status bt_chat_pair_make(bt_chat_render *r, bt_chat_value *out,
                               const bt_chat_value *a, const bt_chat_value *b)
{
    bt_chat_value pair;
    bauta_status status = bt_chat_list_make(r, &pair, BT_CHAT_FORM_TUPLE, 2);
    if (status)
        return status;
    pair.list->items[0] = *a;
    pair.list->items[1] = *b;
    *out = pair;
    return BAUTA_OK;
}

bauta_status bt_chat_dict_make(bt_chat_render *r, bt_chat_value *out,
                               bt_chat_kind kind, size_t capacity)
{
    void *dict, *entries;
    bauta_status status = bt_chat_alloc(r, &dict, sizeof(bt_chat_dict));
    if (!status)
        status = bt_chat_alloc(r, &entries,
                               bt_size_mul(capacity, sizeof(bt_chat_entry)));
    if (status)
        return status;
    bt_chat_value made = { .kind = (uint8_t)kind, .dict = dict };
    *made.dict = (bt_chat_dict){ entries, 0, capacity };
    *out = made;
    return BAUTA_OK;
}

const bt_chat_value *bt_chat_dict_get(const bt_chat_dict *dict,
                                      const bt_chat_string *key)
{
    for (size_t i = 0; i < dict->count; i++)
        if (bt_chat_is_string(&dict->entries[i].key) &&
            bt_chat_string_equal(dict->entries[i].key.string, key))
            return &dict->entries[i].value;
    return NULL;
}

/* Python can hash everything immutable, and our namespaces and macros. */
static bool hashable(const bt_chat_value *key)
{
    if (key->kind == BT_CHAT_KIND_DICT)
        return false;
    return key->kind != BT_CHAT_KIND_LIST || key->form == BT_CHAT_FORM_TUPLE ||
           key->form == BT_CHAT_FORM_RANGE;
}

bauta_status bt_chat_dict_find(bt_chat_render *r, const bt_chat_dict *dict,
                               const bt_chat_value *key,
                               const bt_chat_value **out)
{
    bool equal = false;
    *out = NULL;
    if (!hashable(key))
        return bt_chat_fail(r, "a %s cannot be a key", bt_chat_type_name(key));
    bauta_status status = bt_chat_work(r, dict->count);
    if (!status && bt_chat_is_string(key)) {
        *out = bt_chat_dict_get(dict, key->string);
        // Keys are compared as far as they are equal.
        return bt_chat_work(
            r, bt_size_mul(dict->count, key->string->size / COMPARED));
    }
    for (size_t i = 0; i < dict->count && !status && !equal; i++) {
        status = bt_chat_equal(r, &dict->entries[i].key, key, &equal);
        if (!status && equal)
            *out = &dict->entries[i].value;
    }
    return status;
}

/* The capacity doubles; the old entries stay in the pool. */
static bauta_status entry_reserve(bt_chat_render *r, bt_chat_dict *dict)
{
    void *entries;
    size_t capacity = dict->capacity ? 2 * dict->capacity : 4;
    if (dict->count < dict->capacity)
        return BAUTA_OK;
    bauta_status status = bt_chat_alloc(
        r, &entries, bt_size_mul(capacity, sizeof(bt_chat_entry)));
    if (status)
        return status;
    memcpy(entries, dict->entries, dict->count * sizeof(bt_chat_entry));
    dict->entries = entries;
    dict->capacity = capacity;
    return BAUTA_OK;
}

bauta_status bt_chat_dict_set(bt_chat_render *r, bt_chat_dict *dict,
                              const bt_chat_value *key,
                              const bt_chat_value *value)
{
    const bt_chat_value *found;
    bauta_status status = bt_chat_dict_find(r, dict, key, &found);
    if (status)
        return status;
    if (found) {
        *(bt_chat_value *)found = *value;
        return BAUTA_OK;
    }
    status = entry_reserve(r, dict);
    if (!status)
        dict->entries[dict->count++] = (bt_chat_entry){ *key, *value };
    return status;
}

/* ---- From JSON ----------------------------------------------------------- */

static bauta_status array_from_json(bt_chat_render *r, bt_chat_value *out,
                                    const json_t *json)
{
    size_t count = json_array_size(json);
    bauta_status status = bt_chat_list_make(r, out, BT_CHAT_FORM_LIST, count);
    for (size_t i = 0; i < count && !status; i++)
        status =
            bt_chat_from_json(r, &out->list->items[i], json_array_get(json, i));
    return status;
}

static bauta_status object_from_json(bt_chat_render *r, bt_chat_value *out,
                                     const json_t *json)
{
    json_t *object = (json_t *)json;
    bauta_status status =
        bt_chat_dict_make(r, out, BT_CHAT_KIND_DICT, json_object_size(json));
    // Keys of a JSON object are distinct, so none is looked up.
    for (void *at = json_object_iter(object); at && !status;
         at = json_object_iter_next(object, at)) {
        bt_chat_entry *entry = &out->dict->entries[out->dict->count];
        const char *key = json_object_iter_key(at);
        status = bt_chat_string_refer(r, &entry->key, key, strlen(key));
        if (!status)
            status =
                bt_chat_from_json(r, &entry->value, json_object_iter_value(at));
        out->dict->count++;
    }
    return status;
}

bauta_status bt_chat_from_json(bt_chat_render *r, bt_chat_value *out,
                               const json_t *json)
{
    // Nesting is at most BT_JSON_DEPTH_MAX.
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return object_from_json(r, out, json);
    case JSON_ARRAY:
        return array_from_json(r, out, json);
    case JSON_STRING:
        return bt_chat_string_refer(r, out, json_string_value(json),
                                    json_string_length(json));
    case JSON_INTEGER:
        *out = bt_chat_integer(json_integer_value(json));
        return BAUTA_OK;
    case JSON_REAL:
        *out = bt_chat_real(json_real_value(json));
        return BAUTA_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = bt_chat_boolean(json_is_true(json));
        return BAUTA_OK;
    default:
        *out = bt_chat_none();
        return BAUTA_OK;
    }
}

/* ---- Truth, names, iteration --------------------------------------------- */

bool bt_chat_truth(const bt_chat_value *v)
{
    switch (v->kind) {
    case BT_CHAT_KIND_ABSENT:
    case BT_CHAT_KIND_UNDEFINED:
    case BT_CHAT_KIND_NONE:
        return false;
    case BT_CHAT_KIND_BOOLEAN:
        return v->boolean;
    case BT_CHAT_KIND_INTEGER:
        return v->integer != 0;
    case BT_CHAT_KIND_REAL:
        return v->real < 0 || v->real > 0 || isnan(v->real);
    case BT_CHAT_KIND_STRING:
        return v->string->size > 0;
    case BT_CHAT_KIND_LIST:
        return v->form == BT_CHAT_FORM_GENERATOR || v->list->count > 0;
    case BT_CHAT_KIND_DICT:
        return v->dict->count > 0;
    default:
        return true;
    }
}

const char *bt_chat_type_name(const bt_chat_value *v)
{
    static const char *const lists[] = { "list",        "tuple",
                                         "range",       "dict_keys",
                                         "dict_values", "dict_items",
                                         "generator" };
    switch (v->kind) {
    case BT_CHAT_KIND_NONE:
        return "None";
    case BT_CHAT_KIND_BOOLEAN:
        return "bool";
    case BT_CHAT_KIND_INTEGER:
        return "int";
    case BT_CHAT_KIND_REAL:
        return "float";
    case BT_CHAT_KIND_STRING:
        return "str";
    case BT_CHAT_KIND_LIST:
        return lists[v->form];
    case BT_CHAT_KIND_DICT:
        return "dict";
    case BT_CHAT_KIND_NAMESPACE:
        return "namespace";
    case BT_CHAT_KIND_MACRO:
        return "macro";
    case BT_CHAT_KIND_FUNCTION:
        return "function";
    case BT_CHAT_KIND_METHOD:
        return "method";
    case BT_CHAT_KIND_LOOP:
        return "loop";
    default:
        return "undefined value";
    }
}

static bauta_status iterate_string(bt_chat_render *r, const bt_chat_value *v,
                                   bt_chat_list **out)
{
    bt_chat_value list;
    const bt_chat_string *s = v->string;
    bauta_status status =
        bt_chat_list_make(r, &list, BT_CHAT_FORM_LIST, bt_chat_characters(s));
    for (size_t i = 0, at = 0; !status && at < s->size; i++) {
        size_t size = bt_utf8_length((unsigned char)s->bytes[at]);
        status = bt_chat_string_part(r, &list.list->items[i], v, at, size);
        at += size;
    }
    if (!status)
        *out = list.list;
    return status;
}

static bauta_status iterate_dict(bt_chat_render *r, const bt_chat_dict *dict,
                                 bt_chat_list **out)
{
    bt_chat_value list;
    bauta_status status =
        bt_chat_list_make(r, &list, BT_CHAT_FORM_LIST, dict->count);
    if (status)
        return status;
    for (size_t i = 0; i < dict->count; i++)
        list.list->items[i] = dict->entries[i].key;
    *out = list.list;
    return BAUTA_OK;
}

bauta_status bt_chat_iterate(bt_chat_render *r, const bt_chat_value *v,
                             bt_chat_list **out)
{
    static bt_chat_list nothing;
    *out = &nothing;
    switch (v->kind) {
    case BT_CHAT_KIND_LIST:
        if (v->form == BT_CHAT_FORM_GENERATOR && v->list->consumed)
            return BAUTA_OK;
        v->list->consumed = true;
        *out = v->list;
        return bt_chat_work(r, v->list->count);
    case BT_CHAT_KIND_STRING:
        return iterate_string(r, v, out);
    case BT_CHAT_KIND_DICT:
        return iterate_dict(r, v->dict, out);
    case BT_CHAT_KIND_UNDEFINED:
        return v->form == BT_CHAT_FORM_UNSAFE ? bt_chat_fail_undefined(r, v)
                                              : BAUTA_OK;
    default:
        return bt_chat_fail(r, "a %s cannot be iterated over",
                            bt_chat_type_name(v));
    }
}

/* ---- Comparisons --------------------------------------------------------- */

/* Both are numbers: exact also where an integer is beyond 2^53. */
static int order_numbers(const bt_chat_value *a, const bt_chat_value *b)
{
    int64_t i = 0, j = 0;
    double x, y;
    bool whole_a = bt_chat_as_integer(a, &i),
         whole_b = bt_chat_as_integer(b, &j);
    if (whole_a && whole_b)
        return (i > j) - (i < j);
    bt_chat_as_real(a, &x);
    bt_chat_as_real(b, &y);
    return x < y ? -1 : x > y ? 1 : isnan(x) || isnan(y) ? 2 : 0;
}

static bool is_number(const bt_chat_value *v)
{
    double ignored;
    return bt_chat_as_real(v, &ignored);
}

static bauta_status equal_lists(bt_chat_render *r, const bt_chat_list *a,
                                const bt_chat_list *b, bool *equal)
{
    bauta_status status = BAUTA_OK;
    *equal = a->count == b->count;
    for (size_t i = 0; i < a->count && *equal && !status; i++)
        status = bt_chat_equal(r, &a->items[i], &b->items[i], equal);
    return status;
}

static bauta_status equal_dicts(bt_chat_render *r, const bt_chat_dict *a,
                                const bt_chat_dict *b, bool *equal)
{
    bauta_status status = BAUTA_OK;
    const bt_chat_value *found;
    *equal = a->count == b->count;
    for (size_t i = 0; i < a->count && *equal && !status; i++) {
        status = bt_chat_dict_find(r, b, &a->entries[i].key, &found);
        *equal = found != NULL;
        if (!status && found)
            status = bt_chat_equal(r, &a->entries[i].value, found, equal);
    }
    return status;
}

static bauta_status equal_same_kind(bt_chat_render *r, const bt_chat_value *a,
                                    const bt_chat_value *b, bool *equal)
{
    switch (a->kind) {
    case BT_CHAT_KIND_UNDEFINED:
    case BT_CHAT_KIND_NONE:
        *equal = true;
        return BAUTA_OK;
    case BT_CHAT_KIND_STRING:
        *equal = bt_chat_string_equal(a->string, b->string);
        return bt_chat_work(r, bt_size_min(a->string->size, b->string->size) /
                                   COMPARED);
    case BT_CHAT_KIND_LIST:
        if (a->form != b->form || a->form == BT_CHAT_FORM_GENERATOR)
            *equal = a->list == b->list;
        else
            return equal_lists(r, a->list, b->list, equal);
        return BAUTA_OK;
    case BT_CHAT_KIND_DICT:
        return equal_dicts(r, a->dict, b->dict, equal);
    default:
        *equal = a->dict == b->dict;
        return BAUTA_OK; // the same object
    }
}

bauta_status bt_chat_equal(bt_chat_render *r, const bt_chat_value *a,
                           const bt_chat_value *b, bool *equal)
{
    *equal = false;
    bauta_status status = bt_chat_enter(r);
    if (!status)
        status = bt_chat_work(r, 1);
    if (!status && is_number(a) && is_number(b))
        *equal = order_numbers(a, b) == 0;
    else if (!status && a->kind == b->kind)
        status = equal_same_kind(r, a, b, equal);
    r->depth--;
    return status;
}

static bauta_status order_lists(bt_chat_render *r, const bt_chat_list *a,
                                const bt_chat_list *b, int *order)
{
    bool equal = true;
    size_t i = 0;
    bauta_status status = BAUTA_OK;
    for (; i < a->count && i < b->count && equal && !status; i++)
        status = bt_chat_equal(r, &a->items[i], &b->items[i], &equal);
    if (status)
        return status;
    if (!equal)
        return bt_chat_order(r, &a->items[i - 1], &b->items[i - 1], order);
    *order = (a->count > b->count) - (a->count < b->count);
    return BAUTA_OK;
}

static int order_strings(const bt_chat_string *a, const bt_chat_string *b)
{
    int order = memcmp(a->bytes, b->bytes, bt_size_min(a->size, b->size));
    if (!order)
        order = (a->size > b->size) - (a->size < b->size);
    return (order > 0) - (order < 0);
}

bauta_status bt_chat_order(bt_chat_render *r, const bt_chat_value *a,
                           const bt_chat_value *b, int *order)
{
    *order = 0;
    bauta_status status = bt_chat_enter(r);
    if (!status)
        status = bt_chat_work(r, 1);
    if (status) {
        ;
    } else if (is_number(a) && is_number(b)) {
        *order = order_numbers(a, b);
    } else if (bt_chat_is_string(a) && bt_chat_is_string(b)) {
        *order = order_strings(a->string, b->string);
        status = bt_chat_work(r, bt_size_min(a->string->size, b->string->size));
    } else if (a->kind == BT_CHAT_KIND_LIST && b->kind == BT_CHAT_KIND_LIST &&
               a->form == b->form && a->form <= BT_CHAT_FORM_TUPLE) {
        status = order_lists(r, a->list, b->list, order);
    } else if (a->kind == BT_CHAT_KIND_UNDEFINED) {
        status = bt_chat_fail_undefined(r, a);
    } else if (b->kind == BT_CHAT_KIND_UNDEFINED) {
        status = bt_chat_fail_undefined(r, b);
    } else {
        status = bt_chat_fail(r, "a %s and a %s have no order",
                              bt_chat_type_name(a), bt_chat_type_name(b));
    }
    r->depth--;
    return status;
}

bauta_status bt_chat_contains(bt_chat_render *r, const bt_chat_value *a,
                              const bt_chat_value *b, bool *contains)
{
    bt_chat_list *items;
    const bt_chat_value *found;
    *contains = false;
    if (bt_chat_is_string(b)) {
        if (!bt_chat_is_string(a))
            return bt_chat_fail(r, "a %s cannot be in a str",
                                bt_chat_type_name(a));
        *contains = bt_chat_string_find(b->string, 0, a->string) != SIZE_MAX;
        return bt_chat_work(r, b->string->size + a->string->size);
    }
    if (b->kind == BT_CHAT_KIND_DICT) {
        bauta_status status = bt_chat_dict_find(r, b->dict, a, &found);
        *contains = found != NULL;
        return status;
    }
    bauta_status status = bt_chat_iterate(r, b, &items);
    for (size_t i = 0; !status && i < items->count && !*contains; i++)
        status = bt_chat_equal(r, a, &items->items[i], contains);
    return status;
}
