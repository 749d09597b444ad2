/* SPDX-License-Identifier: Apache-2.0 */
/* list_filters.c - filters on lists and other values that can be iterated
 * over. */
#include "base/merge_sort.h"
#include "base/size.h"
#include "text/chat/render.h"

#include <string.h>

#define FILTER(name)                                                   \
    static bauta_status name(bt_chat_render *r, const bt_chat_call *c, \
                             bt_chat_value *out)

/* The items of the value that is filtered. */
static bauta_status items_of(bt_chat_render *r, const bt_chat_call *c,
                             bt_chat_list **items)
{
    return bt_chat_iterate(r, &c->self, items);
}

static bauta_status no_item(bt_chat_value *out)
{
    static const bt_chat_string name = { "item", 4, NULL };
    *out = bt_chat_undefined(BT_CHAT_FORM_ATTRIBUTE, BT_CHAT_KIND_LIST, &name);
    return BAUTA_OK;
}

/* An item, or its attribute if one is given. */
static bauta_status item_key(bt_chat_render *r, const bt_chat_value *item,
                             const bt_chat_value *attribute, bt_chat_value *out)
{
    if (attribute->kind > BT_CHAT_KIND_NONE)
        return bt_chat_path(r, out, item, attribute);
    *out = *item;
    return BAUTA_OK;
}

/* Strings compare without case unless that was asked for. */
static bauta_status fold_case(bt_chat_render *r, bt_chat_value *v,
                              bool sensitive)
{
    return sensitive || !bt_chat_is_string(v)
               ? BAUTA_OK
               : bt_chat_change_case(r, v, v, BT_CHAT_LOWER);
}

/* ---- Parts --------------------------------------------------------------- */

FILTER(filter_first)
{
    bt_chat_list *items;
    bauta_status status = items_of(r, c, &items);
    if (!status && !items->count)
        return no_item(out);
    if (!status)
        *out = items->items[0];
    return status;
}

FILTER(filter_last)
{
    bt_chat_list *items;
    bauta_status status = items_of(r, c, &items);
    if (!status && !items->count)
        return no_item(out);
    if (!status)
        *out = items->items[items->count - 1];
    return status;
}

static bauta_status copy_items(bt_chat_render *r, const bt_chat_call *c,
                               bt_chat_value *out, bool reversed)
{
    bt_chat_list *items;
    bauta_status status = items_of(r, c, &items);
    if (!status)
        status = bt_chat_list_make(
            r, out, reversed ? BT_CHAT_FORM_GENERATOR : BT_CHAT_FORM_LIST,
            items->count);
    for (size_t i = 0; !status && i < items->count; i++)
        out->list->items[i] = items->items[reversed ? items->count - 1 - i : i];
    return status;
}

FILTER(filter_list)
{
    return copy_items(r, c, out, false);
}

FILTER(filter_reverse)
{
    static const bt_chat_value none,
        back = { .kind = BT_CHAT_KIND_INTEGER, .integer = -1 };
    if (bt_chat_is_string(&c->self))
        return bt_chat_slice(r, out, &c->self, &none, &none, &back);
    return copy_items(r, c, out, true);
}

/* Lists of `size` items each; the last one is filled up if asked for. */
FILTER(filter_batch)
{
    bt_chat_list *items;
    int64_t size;
    if (!bt_chat_as_integer(&c->bound[0], &size) || size < 1 ||
        size > BT_CHAT_RANGE_MAX)
        return bt_chat_fail(r, "the size of batch is not in its range");
    size_t n = (size_t)size;
    bool fill = c->bound[1].kind > BT_CHAT_KIND_NONE;
    bauta_status status = items_of(r, c, &items);
    if (!status)
        status = bt_chat_list_make(r, out, BT_CHAT_FORM_GENERATOR,
                                   (items->count + n - 1) / n);
    for (size_t i = 0; !status && i < out->list->count; i++) {
        bt_chat_value *batch = &out->list->items[i];
        size_t have = bt_size_min(n, items->count - i * n);
        status =
            bt_chat_list_make(r, batch, BT_CHAT_FORM_LIST, fill ? n : have);
        for (size_t j = 0; !status && j < batch->list->count; j++)
            batch->list->items[j] =
                j < have ? items->items[i * n + j] : c->bound[1];
    }
    return status;
}

/* `count` lists of nearly equal length, the longer ones first. */
FILTER(filter_slice)
{
    bt_chat_list *items;
    int64_t slices;
    if (!bt_chat_as_integer(&c->bound[0], &slices) || slices < 1 ||
        slices > BT_CHAT_RANGE_MAX)
        return bt_chat_fail(r, "the count of slice is not in its range");
    size_t n = (size_t)slices, at = 0;
    bool fill = c->bound[1].kind > BT_CHAT_KIND_NONE;
    bauta_status status = items_of(r, c, &items);
    if (!status)
        status = bt_chat_list_make(r, out, BT_CHAT_FORM_GENERATOR, n);
    for (size_t i = 0; !status && i < n; i++) {
        bt_chat_value *slice = &out->list->items[i];
        bool longer = i < items->count % n;
        size_t have = items->count / n + longer;
        size_t filled = have + (fill && !longer && items->count % n);
        status = bt_chat_list_make(r, slice, BT_CHAT_FORM_LIST, filled);
        for (size_t j = 0; !status && j < filled; j++)
            slice->list->items[j] =
                j < have ? items->items[at + j] : c->bound[1];
        at += have;
    }
    return status;
}

FILTER(filter_items)
{
    if (c->self.kind == BT_CHAT_KIND_UNDEFINED)
        return bt_chat_list_make(r, out, BT_CHAT_FORM_GENERATOR, 0);
    if (c->self.kind != BT_CHAT_KIND_DICT)
        return bt_chat_fail(r, "items of a %s", bt_chat_type_name(&c->self));
    const bt_chat_dict *dict = c->self.dict;
    bauta_status status =
        bt_chat_list_make(r, out, BT_CHAT_FORM_GENERATOR, dict->count);
    for (size_t i = 0; !status && i < dict->count; i++)
        status =
            bt_chat_pair_make(r, &out->list->items[i], &dict->entries[i].key,
                              &dict->entries[i].value);
    return status;
}

FILTER(filter_attr)
{
    bt_chat_value name;
    bauta_status status = bt_chat_stringify(r, &name, &c->bound[0]);
    if (status)
        return status;
    if (c->self.kind != BT_CHAT_KIND_DICT)
        return bt_chat_attribute(r, out, &c->self, name.string);
    // Attributes only, not items.
    status = bt_chat_method_find(r, out, &c->self, name.string);
    if (!status && !out->kind)
        *out = bt_chat_undefined(BT_CHAT_FORM_ATTRIBUTE, BT_CHAT_KIND_DICT,
                                 name.string);
    return status;
}

/* ---- Sums ---------------------------------------------------------------- */

FILTER(filter_join)
{
    bt_chat_list *items;
    bt_chat_value item;
    size_t begin = r->size;
    bauta_status status = items_of(r, c, &items);
    for (size_t i = 0; !status && i < items->count; i++) {
        status = item_key(r, &items->items[i], &c->bound[1], &item);
        if (!status && i > 0 && c->bound[0].kind)
            status = bt_chat_put_value(r, &c->bound[0]);
        if (!status)
            status = bt_chat_put_value(r, &item);
    }
    return status ? status : bt_chat_take(r, begin, out);
}

FILTER(filter_sum)
{
    bt_chat_list *items;
    bt_chat_value item;
    *out = c->bound[1].kind ? c->bound[1] : bt_chat_integer(0);
    bauta_status status = items_of(r, c, &items);
    for (size_t i = 0; !status && i < items->count; i++) {
        status = item_key(r, &items->items[i], &c->bound[0], &item);
        if (!status)
            status = bt_chat_binary(r, BT_CHAT_ADD, out, &item, out);
    }
    return status;
}

static bauta_status extreme(bt_chat_render *r, const bt_chat_call *c,
                            bt_chat_value *out, int sign)
{
    bt_chat_list *items;
    bt_chat_value key, best;
    int order = 0;
    bauta_status status = items_of(r, c, &items);
    if (!status && !items->count)
        return no_item(out);
    for (size_t i = 0; !status && i < items->count; i++) {
        status = item_key(r, &items->items[i], &c->bound[1], &key);
        if (!status)
            status = fold_case(r, &key, bt_chat_truth(&c->bound[0]));
        if (!status && i > 0)
            status = bt_chat_order(r, &key, &best, &order);
        if (!status && (i == 0 || order == sign)) {
            best = key;
            *out = items->items[i];
        }
    }
    return status;
}

FILTER(filter_min)
{
    return extreme(r, c, out, -1);
}

FILTER(filter_max)
{
    return extreme(r, c, out, 1);
}

/* ---- Sorting ------------------------------------------------------------- */

typedef struct value_sort {
    bt_chat_render *r;
    const bt_chat_value *keys;
    bool reverse;
    bauta_status status; /* of the comparisons */
} value_sort;

static bool sorts_after(const void *user, uint32_t a, uint32_t b)
{
    value_sort *s = (value_sort *)user;
    int order = 0;
    if (!s->status)
        s->status = bt_chat_order(s->r, &s->keys[a], &s->keys[b], &order);
    return s->reverse ? order == -1 : order == 1;
}

/* `items` in the order of `keys`, as a list. */
static bauta_status sort_by(bt_chat_render *r, const bt_chat_value *items,
                            const bt_chat_value *keys, size_t count,
                            bool reverse, bt_chat_value *out)
{
    void *order, *spare;
    value_sort s = { r, keys, reverse, BAUTA_OK };
    size_t bytes = bt_size_mul(count, sizeof(uint32_t));
    bauta_status status = count > UINT32_MAX
                              ? bt_chat_fail(r, "a list is too long to sort")
                              : bt_chat_alloc(r, &order, bytes);
    if (!status)
        status = bt_chat_alloc(r, &spare, bytes);
    if (!status)
        status = bt_chat_list_make(r, out, BT_CHAT_FORM_LIST, count);
    if (status)
        return status;
    for (size_t i = 0; i < count; i++)
        ((uint32_t *)order)[i] = (uint32_t)i;
    bt_merge_sort(order, spare, count, sorts_after, &s);
    for (size_t i = 0; i < count; i++)
        out->list->items[i] = items[((uint32_t *)order)[i]];
    return s.status;
}

FILTER(filter_sort)
{
    bt_chat_list *items;
    bt_chat_value keys;
    bauta_status status = items_of(r, c, &items);
    if (!status)
        status = bt_chat_list_make(r, &keys, BT_CHAT_FORM_LIST, items->count);
    for (size_t i = 0; !status && i < items->count; i++) {
        bt_chat_value *key = &keys.list->items[i];
        status = item_key(r, &items->items[i], &c->bound[2], key);
        if (!status)
            status = fold_case(r, key, bt_chat_truth(&c->bound[1]));
    }
    return status ? status
                  : sort_by(r, items->items, keys.list->items, items->count,
                            bt_chat_truth(&c->bound[0]), out);
}

FILTER(filter_dictsort)
{
    bt_chat_call inner = { .self = c->self };
    bt_chat_value pairs = { 0 }, keys;
    if (c->self.kind != BT_CHAT_KIND_DICT)
        return bt_chat_fail(r, "dictsort of a %s", bt_chat_type_name(&c->self));
    bool by_value = bt_chat_is_string(&c->bound[1]) &&
                    bt_chat_string_is(c->bound[1].string, "value");
    bauta_status status = filter_items(r, &inner, &pairs);
    size_t count = c->self.dict->count;
    if (!status)
        status = bt_chat_list_make(r, &keys, BT_CHAT_FORM_LIST, count);
    for (size_t i = 0; !status && i < count; i++) {
        bt_chat_value *key = &keys.list->items[i];
        *key = pairs.list->items[i].list->items[by_value];
        status = fold_case(r, key, bt_chat_truth(&c->bound[0]));
    }
    return status ? status
                  : sort_by(r, pairs.list->items, keys.list->items, count,
                            bt_chat_truth(&c->bound[2]), out);
}

FILTER(filter_unique)
{
    bt_chat_list *items;
    bt_chat_value keys, key;
    size_t count = 0;
    bauta_status status = items_of(r, c, &items);
    if (!status)
        status = bt_chat_list_make(r, &keys, BT_CHAT_FORM_LIST, items->count);
    if (!status)
        status =
            bt_chat_list_make(r, out, BT_CHAT_FORM_GENERATOR, items->count);
    for (size_t i = 0; !status && i < items->count; i++) {
        bool seen = false;
        status = item_key(r, &items->items[i], &c->bound[1], &key);
        if (!status)
            status = fold_case(r, &key, bt_chat_truth(&c->bound[0]));
        for (size_t j = 0; j < count && !status && !seen; j++)
            status = bt_chat_equal(r, &keys.list->items[j], &key, &seen);
        if (!status && !seen) {
            keys.list->items[count] = key;
            out->list->items[count++] = items->items[i];
        }
    }
    if (!status)
        out->list->count = count;
    return status;
}

/* A list of (grouper, list), sorted by the attribute. */
FILTER(filter_groupby)
{
    bt_chat_call inner = { .self = c->self };
    bt_chat_value sorted = { 0 }, key, last, group;
    size_t groups = 0, begin = 0;
    bool same;
    inner.bound[2] = c->bound[0];
    inner.bound[1] = bt_chat_boolean(true);
    bauta_status status = filter_sort(r, &inner, &sorted);
    if (!status)
        status =
            bt_chat_list_make(r, out, BT_CHAT_FORM_LIST, sorted.list->count);
    for (size_t i = 0; !status && i < sorted.list->count; i = begin) {
        status = bt_chat_path(r, &key, &sorted.list->items[i], &c->bound[0]);
        last = key;
        for (begin = i, same = true; !status && same; begin += same) {
            same = begin < sorted.list->count;
            if (same)
                status = bt_chat_path(r, &last, &sorted.list->items[begin],
                                      &c->bound[0]);
            if (same && !status)
                status = bt_chat_equal(r, &key, &last, &same);
        }
        if (status)
            break;
        begin = begin > i ? begin : i + 1; // NaN equals nothing
        status = bt_chat_list_make(r, &group, BT_CHAT_FORM_LIST, begin - i);
        if (status)
            break;
        memcpy(group.list->items, sorted.list->items + i,
               (begin - i) * sizeof(bt_chat_value));
        status =
            bt_chat_pair_make(r, &out->list->items[groups++], &key, &group);
    }
    if (!status)
        out->list->count = groups;
    return status;
}

/* ---- map and select ------------------------------------------------------ */

/* The arguments after the first `skip`. */
static bt_chat_arguments arguments_after(const bt_chat_arguments *all,
                                         size_t skip)
{
    bt_chat_arguments rest = *all;
    skip = bt_size_min(skip, all->count);
    if (skip) // there may be no array
        rest.values += skip;
    rest.count -= skip;
    return rest;
}

static const bt_chat_value *named_argument(const bt_chat_arguments *arguments,
                                           const char *name)
{
    for (size_t i = 0; i < arguments->named_count; i++)
        if (bt_chat_string_is(arguments->named[i].key.string, name))
            return &arguments->named[i].value;
    return NULL;
}

/* map(attribute="a", default=x) or map("filter", arguments...). */
FILTER(filter_map)
{
    bt_chat_list *items;
    const bt_chat_value *attribute = named_argument(c->arguments, "attribute");
    const bt_chat_value *fallback = named_argument(c->arguments, "default");
    bt_chat_arguments rest = arguments_after(c->arguments, 1);
    if (!attribute &&
        (!c->arguments->count || !bt_chat_is_string(&c->arguments->values[0])))
        return bt_chat_fail(r, "map needs the name of a filter");
    bauta_status status = items_of(r, c, &items);
    if (!status)
        status =
            bt_chat_list_make(r, out, BT_CHAT_FORM_GENERATOR, items->count);
    for (size_t i = 0; !status && i < items->count; i++) {
        bt_chat_value *item = &out->list->items[i];
        status = attribute ? bt_chat_path(r, item, &items->items[i], attribute)
                           : bt_chat_filter(r, c->arguments->values[0].string,
                                            &items->items[i], &rest, item);
        if (!status && attribute && fallback &&
            item->kind == BT_CHAT_KIND_UNDEFINED)
            *item = *fallback;
    }
    return status;
}

/* Whether a test that is given by its name and arguments holds for a value;
 * without one, whether it is true. */
static bauta_status test_holds(bt_chat_render *r, const bt_chat_value *v,
                               const bt_chat_arguments *test, bool *holds)
{
    bt_chat_arguments rest = arguments_after(test, 1);
    *holds = bt_chat_truth(v);
    if (!test->count)
        return BAUTA_OK;
    if (!bt_chat_is_string(&test->values[0]))
        return bt_chat_fail(r, "the name of a test must be a str");
    return bt_chat_test(r, test->values[0].string, v, &rest, holds);
}

static bauta_status select_items(bt_chat_render *r, const bt_chat_call *c,
                                 bt_chat_value *out, bool by_attribute,
                                 bool wanted)
{
    bt_chat_list *items;
    bt_chat_arguments test = arguments_after(c->arguments, by_attribute);
    size_t count = 0;
    if (by_attribute && !c->arguments->count)
        return bt_chat_fail(r, "the name of an attribute is missing");
    bauta_status status = items_of(r, c, &items);
    if (!status)
        status =
            bt_chat_list_make(r, out, BT_CHAT_FORM_GENERATOR, items->count);
    for (size_t i = 0; !status && i < items->count; i++) {
        bt_chat_value tested = items->items[i];
        bool holds = false;
        if (by_attribute)
            status =
                bt_chat_path(r, &tested, &tested, &c->arguments->values[0]);
        if (!status)
            status = test_holds(r, &tested, &test, &holds);
        if (!status && holds == wanted)
            out->list->items[count++] = items->items[i];
    }
    if (!status)
        out->list->count = count;
    return status;
}

FILTER(filter_select)
{
    return select_items(r, c, out, false, true);
}

FILTER(filter_reject)
{
    return select_items(r, c, out, false, false);
}

FILTER(filter_selectattr)
{
    return select_items(r, c, out, true, true);
}

FILTER(filter_rejectattr)
{
    return select_items(r, c, out, true, false);
}

const bt_chat_builtin bt_chat_list_filters[] = {
    { "attr", "name", filter_attr },
    { "batch", "linecount [fill_with", filter_batch },
    { "dictsort", "[case_sensitive by reverse", filter_dictsort },
    { "first", "", filter_first },
    { "groupby", "attribute", filter_groupby },
    { "items", "", filter_items },
    { "join", "[d attribute", filter_join },
    { "last", "", filter_last },
    { "list", "", filter_list },
    { "map", "*", filter_map },
    { "max", "[case_sensitive attribute", filter_max },
    { "min", "[case_sensitive attribute", filter_min },
    { "reject", "*", filter_reject },
    { "rejectattr", "*", filter_rejectattr },
    { "reverse", "", filter_reverse },
    { "select", "*", filter_select },
    { "selectattr", "*", filter_selectattr },
    { "slice", "slices [fill_with", filter_slice },
    { "sort", "[reverse case_sensitive attribute", filter_sort },
    { "sum", "[attribute start", filter_sum },
    { "unique", "[case_sensitive attribute", filter_unique },
    { NULL, NULL, NULL },
};
