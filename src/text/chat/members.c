/* SPDX-License-Identifier: Apache-2.0 */
/* members.c - attributes, items and slices. */
#include "base/utf8.h"
#include "text/chat/number.h"
#include "text/chat/render.h"

#include <string.h>

static bauta_status undefined_member(bt_chat_value *out, const bt_chat_value *v,
                                     const bt_chat_string *name)
{
    *out = bt_chat_undefined(BT_CHAT_FORM_ATTRIBUTE, v->kind, name);
    return BAUTA_OK;
}

/* What getattr() finds; ABSENT if there is nothing. */
static bauta_status own_attribute(bt_chat_render *r, bt_chat_value *out,
                                  const bt_chat_value *v,
                                  const bt_chat_string *name)
{
    const bt_chat_value *found;
    bauta_status status;
    *out = (bt_chat_value){ 0 };
    switch (v->kind) {
    case BT_CHAT_KIND_STRING:
    case BT_CHAT_KIND_LIST:
    case BT_CHAT_KIND_DICT:
        return bt_chat_method_find(r, out, v, name);
    case BT_CHAT_KIND_NAMESPACE:
        found = bt_chat_dict_get(v->dict, name);
        if (found)
            *out = *found;
        return bt_chat_work(r, v->dict->count);
    case BT_CHAT_KIND_LOOP:
        status = bt_chat_loop_attribute(r, out, v->loop, name);
        return status || out->kind ? status
                                   : bt_chat_method_find(r, out, v, name);
    case BT_CHAT_KIND_MACRO:
        if (bt_chat_string_is(name, "name") &&
            v->macro->node->kind == BT_CHAT_MACRO)
            *out = bt_chat_text(v->macro->node->string);
        return BAUTA_OK;
    default:
        return BAUTA_OK;
    }
}

bauta_status bt_chat_attribute(bt_chat_render *r, bt_chat_value *out,
                               const bt_chat_value *v,
                               const bt_chat_string *name)
{
    bt_chat_value found;
    const bt_chat_value *item = NULL;
    if (v->kind == BT_CHAT_KIND_UNDEFINED)
        return bt_chat_fail_undefined(r, v);
    bauta_status status = own_attribute(r, &found, v, name);
    if (status)
        return status;
    if (!found.kind && v->kind == BT_CHAT_KIND_DICT) {
        item = bt_chat_dict_get(v->dict, name);
        status = bt_chat_work(r, v->dict->count);
    }
    if (!found.kind && !item)
        return undefined_member(out, v, name);
    *out = item ? *item : found;
    return status;
}

void bt_chat_character_range(const bt_chat_string *s, size_t first, size_t last,
                             size_t *begin, size_t *size)
{
    size_t at = 0, count = 0;
    for (; at < s->size && count < first; count++)
        at += bt_utf8_length((unsigned char)s->bytes[at]);
    *begin = at;
    for (; at < s->size && count < last; count++)
        at += bt_utf8_length((unsigned char)s->bytes[at]);
    *size = at - *begin;
}

/* Item `index` of a string or a list, counted from the end if negative; ABSENT
 * if it is out of range. */
static bauta_status indexed(bt_chat_render *r, bt_chat_value *out,
                            const bt_chat_value *v, int64_t index)
{
    bool string = bt_chat_is_string(v);
    size_t count = string ? bt_chat_characters(v->string) : v->list->count;
    size_t begin, size;
    bauta_status status = bt_chat_work(r, string ? v->string->size : 0);
    *out = (bt_chat_value){ 0 };
    if (status)
        return status;
    index += index < 0 ? (int64_t)count : 0;
    if (index < 0 || (uint64_t)index >= count)
        return BAUTA_OK;
    if (!string) {
        *out = v->list->items[index];
        return BAUTA_OK;
    }
    bt_chat_character_range(v->string, (size_t)index, (size_t)index + 1, &begin,
                            &size);
    return bt_chat_string_part(r, out, v, begin, size);
}

static bool has_items(const bt_chat_value *v)
{
    return bt_chat_is_string(v) ||
           (v->kind == BT_CHAT_KIND_LIST && v->form <= BT_CHAT_FORM_RANGE);
}

bauta_status bt_chat_item(bt_chat_render *r, bt_chat_value *out,
                          const bt_chat_value *v, const bt_chat_value *key)
{
    static const bt_chat_string unnamed = { "...", 3, NULL };
    const bt_chat_value *found = NULL;
    bt_chat_value item = { 0 };
    int64_t index;
    bauta_status status = BAUTA_OK;
    if (v->kind == BT_CHAT_KIND_UNDEFINED)
        return bt_chat_fail_undefined(r, v);
    if (v->kind == BT_CHAT_KIND_DICT)
        status = bt_chat_dict_find(r, v->dict, key, &found);
    else if (has_items(v) && bt_chat_as_integer(key, &index))
        status = indexed(r, &item, v, index);
    if (!status && found)
        item = *found;
    if (!status && !item.kind && bt_chat_is_string(key))
        status = own_attribute(r, &item, v, key->string);
    if (!status && !item.kind)
        return undefined_member(
            out, v, bt_chat_is_string(key) ? key->string : &unnamed);
    if (!status)
        *out = item;
    return status;
}

bauta_status bt_chat_path(bt_chat_render *r, bt_chat_value *out,
                          const bt_chat_value *v, const bt_chat_value *path)
{
    bt_chat_value at = *v, key;
    int64_t index;
    bauta_status status = BAUTA_OK;
    if (!bt_chat_is_string(path))
        return bt_chat_item(r, out, v, path);
    const char *bytes = path->string->bytes;
    size_t left = path->string->size;
    status = bt_chat_work(r, left);
    for (bool more = true; more && !status;) {
        const char *dot = memchr(bytes, '.', left);
        size_t size = dot ? (size_t)(dot - bytes) : left;
        if (bt_chat_read_integer(&index, bytes, size, 10) && *bytes != '-' &&
            *bytes != '+') {
            key = bt_chat_integer(index);
        } else {
            status = bt_chat_string_refer(r, &key, bytes, size);
        }
        if (!status)
            status = bt_chat_item(r, &at, &at, &key);
        more = dot != NULL;
        bytes += size + more;
        left -= size + more;
    }
    if (!status)
        *out = at;
    return status;
}

/* ---- Slices -------------------------------------------------------------- */

/* A bound as Python adjusts it for `count` items. */
static bauta_status slice_bound(bt_chat_render *r, const bt_chat_value *v,
                                int64_t fallback, int64_t count, bool down,
                                int64_t *out)
{
    int64_t low = down ? -1 : 0, high = down ? count - 1 : count;
    *out = fallback;
    if (v->kind <= BT_CHAT_KIND_NONE && v->kind != BT_CHAT_KIND_UNDEFINED)
        return BAUTA_OK;
    if (!bt_chat_as_integer(v, out))
        return bt_chat_fail(r, "a %s cannot be the bound of a slice",
                            bt_chat_type_name(v));
    if (*out < 0)
        *out += count;
    *out = *out < low ? low : *out > high ? high : *out;
    return BAUTA_OK;
}

static bauta_status slice_string(bt_chat_render *r, bt_chat_value *out,
                                 const bt_chat_value *v, int64_t start,
                                 int64_t step, size_t count)
{
    bt_chat_list *characters;
    size_t begin, size, at = r->size;
    bauta_status status = bt_chat_work(r, v->string->size);
    if (!status && step == 1) {
        bt_chat_character_range(v->string, (size_t)start, (size_t)start + count,
                                &begin, &size);
        return bt_chat_string_part(r, out, v, begin, size);
    }
    if (!status)
        status = bt_chat_iterate(r, v, &characters);
    for (size_t i = 0; i < count && !status; i++, start += step)
        status = bt_chat_put_value(r, &characters->items[start]);
    return status ? status : bt_chat_take(r, at, out);
}

bauta_status bt_chat_slice(bt_chat_render *r, bt_chat_value *out,
                           const bt_chat_value *v, const bt_chat_value *start,
                           const bt_chat_value *stop, const bt_chat_value *step)
{
    int64_t from, to, by = 1;
    if (v->kind == BT_CHAT_KIND_UNDEFINED)
        return bt_chat_fail_undefined(r, v);
    if (!has_items(v))
        return bt_chat_fail(r, "a %s cannot be sliced", bt_chat_type_name(v));
    int64_t all = (int64_t)(bt_chat_is_string(v) ? bt_chat_characters(v->string)
                                                 : v->list->count);
    if (step->kind != BT_CHAT_KIND_ABSENT && step->kind != BT_CHAT_KIND_NONE &&
        (!bt_chat_as_integer(step, &by) || !by))
        return bt_chat_fail(r, "the step of a slice is 0 or no integer");
    // A larger step visits the same items, and cannot overflow.
    by = by > all + 1 ? all + 1 : by < -all - 1 ? -all - 1 : by;
    bauta_status status =
        slice_bound(r, start, by < 0 ? all - 1 : 0, all, by < 0, &from);
    if (!status)
        status = slice_bound(r, stop, by < 0 ? -1 : all, all, by < 0, &to);
    if (status)
        return status;
    int64_t way = by > 0 ? to - from : from - to, stride = by > 0 ? by : -by;
    size_t count = way > 0 ? (size_t)((way + stride - 1) / stride) : 0;
    if (bt_chat_is_string(v))
        return slice_string(r, out, v, from, by, count);
    bt_chat_value made;
    status = bt_chat_list_make(r, &made, (bt_chat_list_form)v->form, count);
    for (size_t i = 0; i < count && !status; i++, from += by)
        made.list->items[i] = v->list->items[from];
    if (!status)
        *out = made;
    return status;
}
