/* SPDX-License-Identifier: Apache-2.0 */
/* methods.c - methods of strings, lists and dicts. Those that would change
 * their object are hidden by the sandbox, as in transformers. */
#include "base/size.h"
#include "base/utf8.h"
#include "text/chat/lexer.h"
#include "text/chat/render.h"
#include "text/unicode.h"

#include <string.h>
#include <utf8proc.h>

#define METHOD(name)                                                   \
    static bauta_status name(bt_chat_render *r, const bt_chat_call *c, \
                             bt_chat_value *out)

/* ---- Arguments ----------------------------------------------------------- */

static bauta_status need_string(bt_chat_render *r, const bt_chat_value *v,
                                const char *what)
{
    if (bt_chat_is_string(v))
        return BAUTA_OK;
    if (v->kind == BT_CHAT_KIND_UNDEFINED)
        return bt_chat_fail_undefined(r, v);
    return bt_chat_fail(r, "%s must be a str, not a %s", what,
                        bt_chat_type_name(v));
}

/* An integer argument, or `fallback` if it is not given. */
static bauta_status need_integer(bt_chat_render *r, const bt_chat_value *v,
                                 int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (v->kind == BT_CHAT_KIND_ABSENT || bt_chat_as_integer(v, out))
        return BAUTA_OK;
    return bt_chat_fail(r, "an integer is needed, not a %s",
                        bt_chat_type_name(v));
}

/* Negative numbers mean any number of times. */
static size_t times_of(int64_t number)
{
    return number < 0 ? SIZE_MAX : (size_t)number;
}

/* ---- Strings: parts ------------------------------------------------------ */

static bool in_set(const bt_chat_string *set, const char *at, size_t size)
{
    if (!set) {
        size_t length;
        return bt_chat_is_space(bt_utf8_decode(at, size, &length));
    }
    for (size_t i = 0; i < set->size;) {
        size_t length = bt_utf8_length((unsigned char)set->bytes[i]);
        if (length == size && !memcmp(set->bytes + i, at, size))
            return true;
        i += length;
    }
    return false;
}

bauta_status bt_chat_strip(bt_chat_render *r, bt_chat_value *out,
                           const bt_chat_value *text, const bt_chat_string *set,
                           unsigned sides)
{
    const char *bytes = text->string->bytes;
    size_t begin = 0, end = text->string->size;
    while (sides & BT_CHAT_LEFT && begin < end) {
        size_t size = bt_utf8_length((unsigned char)bytes[begin]);
        if (!in_set(set, bytes + begin, size))
            break;
        begin += size;
    }
    while (sides & BT_CHAT_RIGHT && begin < end) {
        size_t last = bt_utf8_char_start(bytes, begin, end);
        if (!in_set(set, bytes + last, end - last))
            break;
        end = last;
    }
    size_t tried = text->string->size - (end - begin) + 1;
    bauta_status status =
        bt_chat_work(r, bt_size_mul(tried, set ? set->size + 1 : 1));
    return status ? status
                  : bt_chat_string_part(r, out, text, begin, end - begin);
}

static bauta_status strip_sides(bt_chat_render *r, const bt_chat_call *c,
                                bt_chat_value *out, unsigned sides)
{
    const bt_chat_value *set = &c->bound[0];
    bool given =
        set->kind != BT_CHAT_KIND_ABSENT && set->kind != BT_CHAT_KIND_NONE;
    bauta_status status =
        given ? need_string(r, set, "the argument of strip()") : BAUTA_OK;
    return status ? status
                  : bt_chat_strip(r, out, &c->self, given ? set->string : NULL,
                                  sides);
}

METHOD(string_strip)
{
    return strip_sides(r, c, out, BT_CHAT_LEFT | BT_CHAT_RIGHT);
}

METHOD(string_lstrip)
{
    return strip_sides(r, c, out, BT_CHAT_LEFT);
}

METHOD(string_rstrip)
{
    return strip_sides(r, c, out, BT_CHAT_RIGHT);
}

/* Whether a string begins, or ends, with another one. */
static bool has_affix(const bt_chat_string *s, const bt_chat_string *affix,
                      bool end)
{
    return affix->size <= s->size &&
           !memcmp(s->bytes + (end ? s->size - affix->size : 0), affix->bytes,
                   affix->size);
}

/* The argument is a string or a tuple of them. */
static bauta_status test_affix(bt_chat_render *r, const bt_chat_call *c,
                               bt_chat_value *out, bool end)
{
    const bt_chat_value *list = &c->bound[0];
    bool tuple =
        list->kind == BT_CHAT_KIND_LIST && list->form == BT_CHAT_FORM_TUPLE;
    size_t count = tuple ? list->list->count : 1;
    bauta_status status = bt_chat_work(r, count);
    bool has = false;
    for (size_t i = 0; i < count && !status && !has; i++) {
        const bt_chat_value *v = tuple ? &list->list->items[i] : list;
        status = need_string(r, v, "the argument of startswith()");
        if (!status)
            status = bt_chat_work(r, v->string->size);
        has = !status && has_affix(c->self.string, v->string, end);
    }
    *out = bt_chat_boolean(has);
    return status;
}

METHOD(string_startswith)
{
    return test_affix(r, c, out, false);
}

METHOD(string_endswith)
{
    return test_affix(r, c, out, true);
}

static bauta_status remove_affix(bt_chat_render *r, const bt_chat_call *c,
                                 bt_chat_value *out, bool end)
{
    bauta_status status =
        need_string(r, &c->bound[0], "the argument of removeprefix()");
    if (status)
        return status;
    const bt_chat_string *s = c->self.string, *affix = c->bound[0].string;
    size_t removed = has_affix(s, affix, end) ? affix->size : 0;
    return bt_chat_string_part(r, out, &c->self, end ? 0 : removed,
                               s->size - removed);
}

METHOD(string_removeprefix)
{
    return remove_affix(r, c, out, false);
}

METHOD(string_removesuffix)
{
    return remove_affix(r, c, out, true);
}

/* ---- Strings: split and join --------------------------------------------- */

/* Parts of a string that are collected for a list. */
typedef struct string_parts {
    bt_chat_render *r;
    const bt_chat_value *of;
    bt_chat_value *items; /* in the pool; grows by doubling */
    size_t count, capacity;
} string_parts;

static bauta_status part_add(string_parts *p, size_t begin, size_t end)
{
    if (p->count == p->capacity) {
        void *grown;
        size_t capacity = p->capacity ? 2 * p->capacity : 8;
        bauta_status status = bt_chat_alloc(
            p->r, &grown, bt_size_mul(capacity, sizeof(bt_chat_value)));
        if (status)
            return status;
        if (p->count)
            memcpy(grown, p->items, p->count * sizeof(bt_chat_value));
        p->items = grown;
        p->capacity = capacity;
    }
    return bt_chat_string_part(p->r, &p->items[p->count++], p->of, begin,
                               end - begin);
}

static bauta_status parts_list(string_parts *p, bool reversed,
                               bt_chat_value *out)
{
    bt_chat_value list;
    bauta_status status =
        bt_chat_list_make(p->r, &list, BT_CHAT_FORM_LIST, p->count);
    for (size_t i = 0; i < p->count && !status; i++)
        list.list->items[i] = p->items[reversed ? p->count - 1 - i : i];
    if (!status)
        *out = list;
    return status;
}

static bauta_status split_spaces(string_parts *p, size_t most)
{
    const bt_chat_string *s = p->of->string;
    size_t at = bt_chat_space_prefix(s->bytes, s->size);
    bauta_status status = BAUTA_OK;
    while (at < s->size && !status) {
        size_t end = at, length = 0;
        if (p->count == most) // the rest keeps the space at its end
            return part_add(p, at, s->size);
        while (end < s->size && !bt_chat_is_space(bt_utf8_decode(
                                    s->bytes + end, s->size - end, &length)))
            end += length;
        status = part_add(p, at, end);
        at = end + bt_chat_space_prefix(s->bytes + end, s->size - end);
    }
    return status;
}

static bauta_status split_by(string_parts *p, const bt_chat_string *by,
                             size_t most)
{
    const bt_chat_string *s = p->of->string;
    size_t at = 0;
    bauta_status status = BAUTA_OK;
    while (!status) {
        size_t found =
            p->count < most ? bt_chat_string_find(s, at, by) : SIZE_MAX;
        status = part_add(p, at, found == SIZE_MAX ? s->size : found);
        if (found == SIZE_MAX)
            break;
        at = found + by->size;
    }
    return status;
}

/* From the end; the parts come in reverse. */
static bauta_status split_by_last(string_parts *p, const bt_chat_string *by,
                                  size_t most)
{
    const bt_chat_string *s = p->of->string;
    size_t end = s->size, at = end;
    bauta_status status = BAUTA_OK;
    while (!status && at >= by->size && p->count < most) {
        if (memcmp(s->bytes + at - by->size, by->bytes, by->size)) {
            at--;
            continue;
        }
        status = part_add(p, at, end);
        end = at -= by->size;
    }
    return status ? status : part_add(p, 0, end);
}

static bauta_status split(bt_chat_render *r, const bt_chat_call *c,
                          bt_chat_value *out, bool last)
{
    string_parts p = { .r = r, .of = &c->self };
    const bt_chat_value *by = &c->bound[0];
    int64_t most;
    bool spaces =
        by->kind == BT_CHAT_KIND_ABSENT || by->kind == BT_CHAT_KIND_NONE;
    bauta_status status = need_integer(r, &c->bound[1], -1, &most);
    if (!status)
        status = bt_chat_work(r, c->self.string->size);
    if (!status && !spaces)
        status = need_string(r, by, "the separator of split()");
    if (status)
        return status;
    if (spaces && last && most >= 0)
        return bt_chat_fail(r, "rsplit() with a limit needs a separator");
    if (!spaces && !by->string->size)
        return bt_chat_fail(r, "split() has an empty separator");
    if (last && !spaces)
        status = bt_chat_work(
            r, bt_size_mul(c->self.string->size, by->string->size / 16));
    if (status)
        return status;
    status = spaces ? split_spaces(&p, times_of(most))
             : last ? split_by_last(&p, by->string, times_of(most))
                    : split_by(&p, by->string, times_of(most));
    return status ? status : parts_list(&p, last && !spaces, out);
}

METHOD(string_split)
{
    return split(r, c, out, false);
}

METHOD(string_rsplit)
{
    return split(r, c, out, true);
}

METHOD(string_splitlines)
{
    string_parts p = { .r = r, .of = &c->self };
    const bt_chat_string *s = c->self.string;
    bool keep = bt_chat_truth(&c->bound[0]);
    bauta_status status = bt_chat_work(r, s->size);
    for (size_t at = 0; at < s->size && !status;) {
        size_t end = at;
        while (end < s->size && s->bytes[end] != '\n' && s->bytes[end] != '\r')
            end++;
        size_t next = end + (end < s->size);
        if (next < s->size && s->bytes[end] == '\r' && s->bytes[next] == '\n')
            next++;
        status = part_add(&p, at, keep ? next : end);
        at = next;
    }
    return status ? status : parts_list(&p, false, out);
}

METHOD(string_partition)
{
    bt_chat_value list;
    bauta_status status =
        need_string(r, &c->bound[0], "the separator of partition()");
    if (!status)
        status = bt_chat_list_make(r, &list, BT_CHAT_FORM_TUPLE, 3);
    if (!status)
        status = bt_chat_work(r, c->self.string->size);
    if (status)
        return status;
    size_t size = c->self.string->size;
    size_t by = c->bound[0].string->size;
    size_t found = bt_chat_string_find(c->self.string, 0, c->bound[0].string);
    if (!by)
        return bt_chat_fail(r, "partition() has an empty separator");
    size_t begin = found == SIZE_MAX ? size : found;
    size_t end = found == SIZE_MAX ? size : found + by;
    bt_chat_value *items = list.list->items;
    status = bt_chat_string_part(r, &items[0], &c->self, 0, begin);
    if (!status)
        status =
            bt_chat_string_part(r, &items[1], &c->self, begin, end - begin);
    if (!status)
        status = bt_chat_string_part(r, &items[2], &c->self, end, size - end);
    *out = list;
    return status;
}

METHOD(string_join)
{
    bt_chat_list *items;
    size_t begin = r->size;
    bauta_status status = bt_chat_iterate(r, &c->bound[0], &items);
    for (size_t i = 0; !status && i < items->count; i++) {
        if (i > 0)
            status = bt_chat_put_value(r, &c->self);
        if (!status)
            status = need_string(r, &items->items[i], "an item of join()");
        if (!status)
            status = bt_chat_put_value(r, &items->items[i]);
    }
    return status ? status : bt_chat_take(r, begin, out);
}

/* ---- Strings: replace, find, case ---------------------------------------- */

bauta_status bt_chat_replace(bt_chat_render *r, bt_chat_value *out,
                             const bt_chat_string *text,
                             const bt_chat_string *from,
                             const bt_chat_string *to, size_t most)
{
    size_t begin = r->size, at = 0;
    bauta_status status = bt_chat_work(r, text->size);
    for (size_t n = 0; n < most && !status; n++) {
        size_t found = bt_chat_string_find(text, at, from);
        if (found == SIZE_MAX)
            break;
        // An empty pattern is found before each character and at the end.
        if (!from->size && n > 0)
            found = at < text->size
                        ? at + bt_utf8_length((unsigned char)text->bytes[at])
                        : SIZE_MAX;
        if (found == SIZE_MAX)
            break;
        status = bt_chat_put(r, text->bytes + at, found - at);
        if (!status)
            status = bt_chat_put(r, to->bytes, to->size);
        at = found + from->size;
    }
    if (!status)
        status = bt_chat_put(r, text->bytes + at, text->size - at);
    return status ? status : bt_chat_take(r, begin, out);
}

METHOD(string_replace)
{
    int64_t most;
    bauta_status status =
        need_string(r, &c->bound[0], "the argument of replace()");
    if (!status)
        status = need_string(r, &c->bound[1], "the argument of replace()");
    if (!status)
        status = need_integer(r, &c->bound[2], -1, &most);
    return status ? status
                  : bt_chat_replace(r, out, c->self.string, c->bound[0].string,
                                    c->bound[1].string, times_of(most));
}

/* The byte where the last occurrence begins, or SIZE_MAX. */
static size_t find_last(const bt_chat_string *s, const bt_chat_string *what)
{
    if (what->size > s->size)
        return SIZE_MAX;
    for (size_t at = s->size - what->size;; at--) {
        if (!memcmp(s->bytes + at, what->bytes, what->size))
            return at;
        if (at == 0)
            return SIZE_MAX;
    }
}

static bauta_status find(bt_chat_render *r, const bt_chat_call *c, bool last,
                         int64_t *out)
{
    const bt_chat_string *s = c->self.string, *what = c->bound[0].string;
    *out = -1;
    bauta_status status =
        need_string(r, &c->bound[0], "the argument of find()");
    if (!status)
        status = bt_chat_work(
            r, bt_size_mul(s->size, last ? what->size / 16 + 1 : 1));
    if (status)
        return status;
    size_t at = last ? find_last(s, what) : bt_chat_string_find(s, 0, what);
    bt_chat_string before = { s->bytes, at, NULL };
    if (at != SIZE_MAX)
        *out = (int64_t)bt_chat_characters(&before);
    return BAUTA_OK;
}

METHOD(string_find)
{
    int64_t at;
    bauta_status status = find(r, c, false, &at);
    *out = bt_chat_integer(at);
    return status;
}

METHOD(string_rfind)
{
    int64_t at;
    bauta_status status = find(r, c, true, &at);
    *out = bt_chat_integer(at);
    return status;
}

METHOD(string_index)
{
    int64_t at;
    bauta_status status = find(r, c, false, &at);
    *out = bt_chat_integer(at);
    return status || at >= 0 ? status
                             : bt_chat_fail(r, "index() did not find it");
}

METHOD(string_count)
{
    int64_t count = 0;
    bauta_status status =
        need_string(r, &c->bound[0], "the argument of count()");
    if (!status)
        status = bt_chat_work(r, c->self.string->size);
    if (status)
        return status;
    const bt_chat_string *what = c->bound[0].string;
    if (!what->size)
        count = (int64_t)bt_chat_characters(c->self.string) + 1;
    else
        for (size_t at = 0;; at += what->size, count++) {
            at = bt_chat_string_find(c->self.string, at, what);
            if (at == SIZE_MAX)
                break;
        }
    *out = bt_chat_integer(count);
    return BAUTA_OK;
}

static bauta_status put_upper(bt_chat_render *r, uint32_t code)
{
    if (code == 0xDF) // the only common letter whose upper case is two
        return bt_chat_put_text(r, "SS");
    return bt_chat_put_code(r, (uint32_t)utf8proc_toupper((int32_t)code));
}

static bauta_status put_lower(bt_chat_render *r, uint32_t code)
{
    uint32_t lower[3];
    size_t count = bt_unicode_lower(lower, code);
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < count && !status; i++)
        status = bt_chat_put_code(r, lower[i]);
    return status;
}

static bool word_begins_after(uint32_t code)
{
    return bt_chat_is_space(code) ||
           (code && code < 0x80 && strchr("-({[<", (char)code));
}

bauta_status bt_chat_change_case(bt_chat_render *r, bt_chat_value *out,
                                 const bt_chat_value *text, bt_chat_case to)
{
    const bt_chat_string *s = text->string;
    size_t begin = r->size, length;
    bool markup = text->markup, first = true;
    bauta_status status = BAUTA_OK;
    for (size_t at = 0; at < s->size && !status; at += length) {
        uint32_t code = bt_utf8_decode(s->bytes + at, s->size - at, &length);
        bool upper = to == BT_CHAT_UPPER || (to > BT_CHAT_LOWER && first);
        status = upper ? put_upper(r, code) : put_lower(r, code);
        first = to == BT_CHAT_TITLE   ? !bt_is_letter(code)
                : to == BT_CHAT_WORDS ? word_begins_after(code)
                                      : false;
    }
    if (!status)
        status = bt_chat_take(r, begin, out);
    out->markup = !status && markup;
    return status;
}

METHOD(string_upper)
{
    return bt_chat_change_case(r, out, &c->self, BT_CHAT_UPPER);
}

METHOD(string_lower)
{
    return bt_chat_change_case(r, out, &c->self, BT_CHAT_LOWER);
}

METHOD(string_title)
{
    return bt_chat_change_case(r, out, &c->self, BT_CHAT_TITLE);
}

METHOD(string_capitalize)
{
    return bt_chat_change_case(r, out, &c->self, BT_CHAT_CAPITALIZE);
}

/* Whether the string is not empty and all its characters pass. */
static bauta_status all_are(bt_chat_render *r, const bt_chat_call *c,
                            bt_chat_value *out, bool (*is)(uint32_t))
{
    const bt_chat_string *s = c->self.string;
    bool all = s->size > 0;
    for (size_t at = 0, length; at < s->size && all; at += length)
        all = is(bt_utf8_decode(s->bytes + at, s->size - at, &length));
    *out = bt_chat_boolean(all);
    return bt_chat_work(r, s->size);
}

static bool is_decimal(uint32_t code)
{
    return utf8proc_category((int32_t)code) == UTF8PROC_CATEGORY_ND;
}

static bool is_alphanumeric(uint32_t code)
{
    return bt_is_letter(code) || bt_is_number(code);
}

METHOD(string_isdigit)
{
    return all_are(r, c, out, is_decimal);
}

METHOD(string_isalpha)
{
    return all_are(r, c, out, bt_is_letter);
}

METHOD(string_isalnum)
{
    return all_are(r, c, out, is_alphanumeric);
}

METHOD(string_isspace)
{
    return all_are(r, c, out, bt_chat_is_space);
}

/* Whether changing the case changes nothing, and there is a letter. */
static bauta_status is_case(bt_chat_render *r, const bt_chat_call *c,
                            bt_chat_value *out, bt_chat_case to)
{
    bt_chat_value same, other;
    bauta_status status = bt_chat_change_case(r, &same, &c->self, to);
    if (!status)
        status = bt_chat_change_case(r, &other, &c->self,
                                     to == BT_CHAT_UPPER ? BT_CHAT_LOWER
                                                         : BT_CHAT_UPPER);
    if (!status)
        *out = bt_chat_boolean(
            bt_chat_string_equal(same.string, c->self.string) &&
            !bt_chat_string_equal(other.string, c->self.string));
    return status;
}

METHOD(string_isupper)
{
    return is_case(r, c, out, BT_CHAT_UPPER);
}

METHOD(string_islower)
{
    return is_case(r, c, out, BT_CHAT_LOWER);
}

METHOD(string_format)
{
    return bt_chat_format_braces(r, out, c->self.string, c->arguments);
}

static bauta_status justify(bt_chat_render *r, const bt_chat_call *c,
                            bt_chat_value *out, char align)
{
    int64_t width;
    size_t begin = r->size;
    const bt_chat_string space = { " ", 1, NULL };
    const bt_chat_string *fill = &space;
    bauta_status status = need_integer(r, &c->bound[0], 0, &width);
    if (!status && c->bound[1].kind)
        status = need_string(r, &c->bound[1], "the filling");
    if (!status && c->bound[1].kind)
        fill = c->bound[1].string;
    if (status)
        return status;
    int64_t have = (int64_t)bt_chat_characters(c->self.string);
    size_t room = width > have ? (size_t)(width - have) : 0;
    // Python puts the odd one left if the width is odd.
    size_t half = room / 2 + (room & (size_t)width & 1);
    size_t left = align == '>' ? room : align == '^' ? half : 0;
    status = bt_chat_put_fill(r, fill->bytes, fill->size, left);
    if (!status)
        status = bt_chat_put_value(r, &c->self);
    if (!status)
        status = bt_chat_put_fill(r, fill->bytes, fill->size, room - left);
    return status ? status : bt_chat_take(r, begin, out);
}

METHOD(string_ljust)
{
    return justify(r, c, out, '<');
}

METHOD(string_rjust)
{
    return justify(r, c, out, '>');
}

METHOD(string_center)
{
    return justify(r, c, out, '^');
}

METHOD(string_zfill)
{
    int64_t width;
    size_t begin = r->size;
    bauta_status status = need_integer(r, &c->bound[0], 0, &width);
    const bt_chat_string *s = c->self.string;
    size_t sign = s->size && (*s->bytes == '-' || *s->bytes == '+');
    int64_t have = (int64_t)bt_chat_characters(s);
    if (!status)
        status = bt_chat_put(r, s->bytes, sign);
    if (!status)
        status = bt_chat_put_fill(r, "0", 1,
                                  width > have ? (size_t)(width - have) : 0);
    if (!status)
        status = bt_chat_put(r, s->bytes + sign, s->size - sign);
    return status ? status : bt_chat_take(r, begin, out);
}

/* ---- Dicts and lists ----------------------------------------------------- */

METHOD(dict_get)
{
    const bt_chat_value *found;
    bauta_status status =
        bt_chat_dict_find(r, c->self.dict, &c->bound[0], &found);
    if (!status)
        *out = found ? *found : c->bound[1].kind ? c->bound[1] : bt_chat_none();
    return status;
}

static bauta_status dict_view(bt_chat_render *r, const bt_chat_call *c,
                              bt_chat_value *out, bt_chat_list_form form)
{
    const bt_chat_dict *dict = c->self.dict;
    bt_chat_value list;
    bauta_status status = bt_chat_list_make(r, &list, form, dict->count);
    for (size_t i = 0; i < dict->count && !status; i++) {
        const bt_chat_entry *entry = &dict->entries[i];
        bt_chat_value *item = &list.list->items[i];
        if (form == BT_CHAT_FORM_ITEMS)
            status = bt_chat_pair_make(r, item, &entry->key, &entry->value);
        else
            *item = form == BT_CHAT_FORM_KEYS ? entry->key : entry->value;
    }
    if (!status)
        *out = list;
    return status;
}

METHOD(dict_items)
{
    return dict_view(r, c, out, BT_CHAT_FORM_ITEMS);
}

METHOD(dict_keys)
{
    return dict_view(r, c, out, BT_CHAT_FORM_KEYS);
}

METHOD(dict_values)
{
    return dict_view(r, c, out, BT_CHAT_FORM_VALUES);
}

/* Values are immutable, so a copy is the value. */
METHOD(value_copy)
{
    *out = c->self;
    return bt_chat_work(r, 1);
}

/* The first item that equals the argument, and how many do. */
static bauta_status list_search(bt_chat_render *r, const bt_chat_call *c,
                                int64_t *first, int64_t *count)
{
    bool equal;
    bauta_status status = BAUTA_OK;
    *first = -1;
    *count = 0;
    for (size_t i = 0; i < c->self.list->count && !status; i++) {
        status =
            bt_chat_equal(r, &c->self.list->items[i], &c->bound[0], &equal);
        if (!status && equal && (*count)++ == 0)
            *first = (int64_t)i;
    }
    return status;
}

METHOD(list_index)
{
    int64_t first, count;
    bauta_status status = list_search(r, c, &first, &count);
    *out = bt_chat_integer(first);
    return status || count ? status
                           : bt_chat_fail(r, "index() did not find it");
}

METHOD(list_count)
{
    int64_t first, count;
    bauta_status status = list_search(r, c, &first, &count);
    *out = bt_chat_integer(count);
    return status;
}

/* ---- Loops --------------------------------------------------------------- */

METHOD(loop_cycle)
{
    size_t count = c->arguments->count;
    if (!count)
        return bt_chat_fail(r, "cycle() needs arguments");
    *out = c->arguments->values[bt_chat_loop_index(c->self.loop) % count];
    return BAUTA_OK;
}

/* Whether the arguments differ from those of the last call. */
METHOD(loop_changed)
{
    bt_chat_value *last = bt_chat_loop_changed(c->self.loop), now;
    bool equal = false;
    bauta_status status =
        bt_chat_list_make(r, &now, BT_CHAT_FORM_TUPLE, c->arguments->count);
    if (status)
        return status;
    for (size_t i = 0; i < c->arguments->count; i++)
        now.list->items[i] = c->arguments->values[i];
    if (last->kind)
        status = bt_chat_equal(r, last, &now, &equal);
    *last = now;
    *out = bt_chat_boolean(!equal);
    return status;
}

/* ---- The table ----------------------------------------------------------- */

/* Without a function: the method changes its object. */
static const struct {
    bt_chat_kind kind;
    bt_chat_builtin method;
} methods[] = {
    { BT_CHAT_KIND_STRING, { "strip", "[chars", string_strip } },
    { BT_CHAT_KIND_STRING, { "lstrip", "[chars", string_lstrip } },
    { BT_CHAT_KIND_STRING, { "rstrip", "[chars", string_rstrip } },
    { BT_CHAT_KIND_STRING, { "startswith", "prefix", string_startswith } },
    { BT_CHAT_KIND_STRING, { "endswith", "suffix", string_endswith } },
    { BT_CHAT_KIND_STRING, { "removeprefix", "prefix", string_removeprefix } },
    { BT_CHAT_KIND_STRING, { "removesuffix", "suffix", string_removesuffix } },
    { BT_CHAT_KIND_STRING, { "split", "[sep maxsplit", string_split } },
    { BT_CHAT_KIND_STRING, { "rsplit", "[sep maxsplit", string_rsplit } },
    { BT_CHAT_KIND_STRING, { "splitlines", "[keepends", string_splitlines } },
    { BT_CHAT_KIND_STRING, { "partition", "sep", string_partition } },
    { BT_CHAT_KIND_STRING, { "join", "iterable", string_join } },
    { BT_CHAT_KIND_STRING, { "replace", "old new [count", string_replace } },
    { BT_CHAT_KIND_STRING, { "find", "sub", string_find } },
    { BT_CHAT_KIND_STRING, { "rfind", "sub", string_rfind } },
    { BT_CHAT_KIND_STRING, { "index", "sub", string_index } },
    { BT_CHAT_KIND_STRING, { "count", "sub", string_count } },
    { BT_CHAT_KIND_STRING, { "upper", "", string_upper } },
    { BT_CHAT_KIND_STRING, { "lower", "", string_lower } },
    { BT_CHAT_KIND_STRING, { "casefold", "", string_lower } },
    { BT_CHAT_KIND_STRING, { "title", "", string_title } },
    { BT_CHAT_KIND_STRING, { "capitalize", "", string_capitalize } },
    { BT_CHAT_KIND_STRING, { "isdigit", "", string_isdigit } },
    { BT_CHAT_KIND_STRING, { "isdecimal", "", string_isdigit } },
    { BT_CHAT_KIND_STRING, { "isnumeric", "", string_isdigit } },
    { BT_CHAT_KIND_STRING, { "isalpha", "", string_isalpha } },
    { BT_CHAT_KIND_STRING, { "isalnum", "", string_isalnum } },
    { BT_CHAT_KIND_STRING, { "isspace", "", string_isspace } },
    { BT_CHAT_KIND_STRING, { "isupper", "", string_isupper } },
    { BT_CHAT_KIND_STRING, { "islower", "", string_islower } },
    { BT_CHAT_KIND_STRING, { "format", "*", string_format } },
    { BT_CHAT_KIND_STRING, { "ljust", "width [fillchar", string_ljust } },
    { BT_CHAT_KIND_STRING, { "rjust", "width [fillchar", string_rjust } },
    { BT_CHAT_KIND_STRING, { "center", "width [fillchar", string_center } },
    { BT_CHAT_KIND_STRING, { "zfill", "width", string_zfill } },
    { BT_CHAT_KIND_DICT, { "get", "key [default", dict_get } },
    { BT_CHAT_KIND_DICT, { "items", "", dict_items } },
    { BT_CHAT_KIND_DICT, { "keys", "", dict_keys } },
    { BT_CHAT_KIND_DICT, { "values", "", dict_values } },
    { BT_CHAT_KIND_DICT, { "copy", "", value_copy } },
    { BT_CHAT_KIND_DICT, { "clear", "*", NULL } },
    { BT_CHAT_KIND_DICT, { "pop", "*", NULL } },
    { BT_CHAT_KIND_DICT, { "popitem", "*", NULL } },
    { BT_CHAT_KIND_DICT, { "setdefault", "*", NULL } },
    { BT_CHAT_KIND_DICT, { "update", "*", NULL } },
    { BT_CHAT_KIND_LIST, { "index", "value", list_index } },
    { BT_CHAT_KIND_LIST, { "count", "value", list_count } },
    { BT_CHAT_KIND_LIST, { "copy", "", value_copy } },
    { BT_CHAT_KIND_LIST, { "append", "*", NULL } },
    { BT_CHAT_KIND_LIST, { "clear", "*", NULL } },
    { BT_CHAT_KIND_LIST, { "extend", "*", NULL } },
    { BT_CHAT_KIND_LIST, { "insert", "*", NULL } },
    { BT_CHAT_KIND_LIST, { "pop", "*", NULL } },
    { BT_CHAT_KIND_LIST, { "remove", "*", NULL } },
    { BT_CHAT_KIND_LIST, { "reverse", "*", NULL } },
    { BT_CHAT_KIND_LIST, { "sort", "*", NULL } },
    { BT_CHAT_KIND_LOOP, { "cycle", "*", loop_cycle } },
    { BT_CHAT_KIND_LOOP, { "changed", "*", loop_changed } },
};

bauta_status bt_chat_method_find(bt_chat_render *r, bt_chat_value *out,
                                 const bt_chat_value *self,
                                 const bt_chat_string *name)
{
    bt_chat_value owner = *self;
    void *method;
    bool plain =
        self->kind != BT_CHAT_KIND_LIST || self->form <= BT_CHAT_FORM_TUPLE;
    *out = (bt_chat_value){ 0 };
    for (unsigned i = 0; i < BT_LEN(methods) && plain; i++) {
        if (methods[i].kind != owner.kind ||
            !bt_chat_string_is(name, methods[i].method.name))
            continue;
        if (!methods[i].method.call) {
            *out = bt_chat_undefined(BT_CHAT_FORM_UNSAFE, owner.kind, name);
            return BAUTA_OK;
        }
        bauta_status status = bt_chat_alloc(r, &method, sizeof(bt_chat_method));
        if (status)
            return status;
        *(bt_chat_method *)method = (bt_chat_method){ owner, i };
        *out = (bt_chat_value){ .kind = BT_CHAT_KIND_METHOD, .method = method };
        return BAUTA_OK;
    }
    return BAUTA_OK;
}

bauta_status bt_chat_method_call(bt_chat_render *r,
                                 const bt_chat_method *method,
                                 const bt_chat_arguments *arguments,
                                 bt_chat_value *out)
{
    return bt_chat_builtin_call(r, &methods[method->id].method, &method->self,
                                arguments, out);
}
