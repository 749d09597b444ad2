/* SPDX-License-Identifier: Apache-2.0 */
/* post_processor.c - templates from JSON; see post_processor.h. */
#include "text/post_processor.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "text/step_json.h"

#include <string.h>

/* The tokens of a text are copied for each of its occurrences in the template,
 * so their number is bounded: no file may make a small text large. */
enum { ITEMS_MAX = 1024 };

typedef struct template_parser {
    bt_template *single, *pair;
    size_t vocab_size;
    const char *path;
    bauta_error *err;
    bool done; /* a step has filled the templates */
} template_parser;

static bauta_status fail(const template_parser *p, const char *what,
                         const char *name)
{
    return bt_fail(p->err, BAUTA_ERR_FORMAT, "%s: post_processor: %s%s",
                   bt_path_tail(p->path), what, bt_quote(name).text);
}

static bauta_status item_add(bt_template *t, uint32_t id, uint32_t type,
                             bauta_error *err)
{
    if (BT_ARRAY_RESERVE(t->items, t->room, t->count, 1))
        return bt_fail_memory(err, "a template", sizeof(*t->items));
    t->items[t->count++] = (bt_template_item){ id, type };
    return BAUTA_OK;
}

void bt_template_release(bt_template *t)
{
    bt_free(t->items);
    *t = (bt_template){ 0 };
}

/* ---- Templates from ids -------------------------------------------------- */

static bauta_status list_add(bt_template *t, const bt_template_item *list,
                             size_t count, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < count && !status; i++)
        status = item_add(t, list[i].id, list[i].type, err);
    return status;
}

static bauta_status ids_add(bt_template *t, const uint32_t *ids, size_t count,
                            uint32_t type, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < count && !status; i++)
        status = item_add(t, ids[i], type, err);
    return status;
}

static bauta_status wrap(bt_template *t, bool pair, const uint32_t *before,
                         size_t before_count, const uint32_t *after,
                         size_t after_count, bauta_error *err)
{
    bauta_status status = ids_add(t, before, before_count, 0, err);
    if (!status)
        status = item_add(t, BT_TEMPLATE_A, 0, err);
    if (!status)
        status = ids_add(t, after, after_count, 0, err);
    if (!status && pair)
        status = item_add(t, BT_TEMPLATE_B, 1, err);
    if (!status && pair)
        status = ids_add(t, after, after_count, 1, err);
    return status;
}

bauta_status bt_template_wrap(bt_template *single, bt_template *pair,
                              const uint32_t *before, size_t before_count,
                              const uint32_t *after, size_t after_count,
                              bauta_error *err)
{
    *single = *pair = (bt_template){ 0 };
    bauta_status status =
        wrap(single, false, before, before_count, after, after_count, err);
    if (!status)
        status =
            wrap(pair, true, before, before_count, after, after_count, err);
    if (status) {
        bt_template_release(single);
        bt_template_release(pair);
    }
    return status;
}

/* ---- TemplateProcessing -------------------------------------------------- */

static bauta_status type_get(const template_parser *p, const json_t *piece,
                             uint32_t *type)
{
    const json_t *value = json_object_get(piece, "type_id");
    json_int_t number = json_integer_value(value);
    *type = (uint32_t)number;
    if (!json_is_integer(value) || number < 0 || number > UINT32_MAX)
        return fail(p, "a number is missing: ", "type_id");
    return BAUTA_OK;
}

static bauta_status id_check(const template_parser *p, const json_t *value,
                             uint32_t *id)
{
    json_int_t number = json_integer_value(value);
    *id = (uint32_t)number;
    if (!json_is_integer(value))
        return fail(p, "an id is not a number", "");
    if (number < 0 || (uint64_t)number >= p->vocab_size)
        return bt_fail(p->err, BAUTA_ERR_FORMAT,
                       "%s: post_processor: id %lld is not in a vocabulary of "
                       "%zu",
                       bt_path_tail(p->path), (long long)number, p->vocab_size);
    return BAUTA_OK;
}

/* A special token may be several ids. */
static bauta_status special_add(const template_parser *p, bt_template *t,
                                const json_t *piece, const json_t *specials)
{
    const char *name = json_string_value(json_object_get(piece, "id"));
    const json_t *ids =
        json_object_get(name ? json_object_get(specials, name) : NULL, "ids");
    uint32_t type = 0, id;
    if (!name)
        return fail(p, "a special token has no id", "");
    if (!json_is_array(ids))
        return fail(p, "special_tokens lack ", name);
    bauta_status status = type_get(p, piece, &type);
    for (size_t i = 0; i < json_array_size(ids) && !status; i++) {
        status = id_check(p, json_array_get(ids, i), &id);
        if (!status && t->count >= ITEMS_MAX)
            status = fail(p, "more than 1024 tokens and texts", "");
        if (!status)
            status = item_add(t, id, type, p->err);
    }
    return status;
}

static bauta_status text_add(const template_parser *p, bt_template *t,
                             const json_t *piece)
{
    const char *name = json_string_value(json_object_get(piece, "id"));
    bool first = name && strcmp(name, "A") == 0;
    uint32_t type = 0;
    if (!name || (!first && strcmp(name, "B") != 0))
        return fail(p, "a Sequence is neither A nor B: ", name ? name : "");
    if (!first && t == p->single)
        return fail(p, "\"single\" has a second text", "");
    if (t->count >= ITEMS_MAX)
        return fail(p, "more than 1024 tokens and texts", "");
    bauta_status status = type_get(p, piece, &type);
    if (!status)
        status =
            item_add(t, first ? BT_TEMPLATE_A : BT_TEMPLATE_B, type, p->err);
    return status;
}

static bauta_status list_parse(const template_parser *p, bt_template *t,
                               const json_t *json, const char *key)
{
    const json_t *list = json_object_get(json, key);
    const json_t *specials = json_object_get(json, "special_tokens");
    bauta_status status = BAUTA_OK;
    if (!json_is_array(list))
        return fail(p, "a list is missing: ", key);
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        const json_t *entry = json_array_get(list, i);
        const json_t *special = json_object_get(entry, "SpecialToken");
        const json_t *text = json_object_get(entry, "Sequence");
        status =
            special ? special_add(p, t, special, specials)
            : text
                ? text_add(p, t, text)
                : fail(p,
                       "an entry is neither SpecialToken nor Sequence: ", key);
    }
    return status;
}

static bauta_status template_parse(template_parser *p, const json_t *json)
{
    bauta_status status = list_parse(p, p->single, json, "single");
    return status ? status : list_parse(p, p->pair, json, "pair");
}

/* ---- BERT and RoBERTa ---------------------------------------------------- */

/* ["[CLS]", 101] */
static bauta_status token_get(const template_parser *p, const json_t *json,
                              const char *key, uint32_t *id)
{
    const json_t *value = json_array_get(json_object_get(json, key), 1);
    *id = 0;
    if (!value)
        return fail(p, "a token is missing: ", key);
    return id_check(p, value, id);
}

static bauta_status bert_parse(template_parser *p, const json_t *json)
{
    uint32_t cls, sep;
    bauta_status status = token_get(p, json, "cls", &cls);
    if (!status)
        status = token_get(p, json, "sep", &sep);
    return status
               ? status
               : bt_template_wrap(p->single, p->pair, &cls, 1, &sep, 1, p->err);
}

/* <s> A </s></s> B </s>, all of type 0. */
static bauta_status roberta_parse(template_parser *p, const json_t *json)
{
    uint32_t cls, sep;
    bauta_status status = token_get(p, json, "cls", &cls);
    if (!status)
        status = token_get(p, json, "sep", &sep);
    if (status)
        return status;
    const bt_template_item items[] = {
        { cls, 0 }, { BT_TEMPLATE_A, 0 }, { sep, 0 },
        { sep, 0 }, { BT_TEMPLATE_B, 0 }, { sep, 0 }
    };
    status = list_add(p->single, items, 3, p->err);
    return status ? status : list_add(p->pair, items, BT_LEN(items), p->err);
}

/* ---- All types ----------------------------------------------------------- */

static bauta_status step_parse(void *user, const char *type, const json_t *json)
{
    template_parser *p = user;
    static const struct {
        const char *type;
        bauta_status (*parse)(template_parser *p, const json_t *json);
    } types[] = { { "TemplateProcessing", template_parse },
                  { "BertProcessing", bert_parse },
                  { "RobertaProcessing", roberta_parse } };
    if (strcmp(type, "ByteLevel") == 0)
        return BAUTA_OK; // it only changes offsets
    for (size_t i = 0; i < BT_LEN(types); i++) {
        if (strcmp(type, types[i].type) != 0)
            continue;
        if (p->done)
            return fail(p, "a second step adds special tokens: ", type);
        p->done = true;
        return types[i].parse(p, json);
    }
    return fail(p, "an unknown type: ", type);
}

bauta_status bt_template_parse(bt_template *single, bt_template *pair,
                               const json_t *json, size_t vocab_size,
                               const char *path, bauta_error *err)
{
    template_parser p = { .single = single,
                          .pair = pair,
                          .vocab_size = vocab_size,
                          .path = path,
                          .err = err };
    bt_step_reader reader = { "post-processor", "processors", path,
                              step_parse,       &p,           err };
    bauta_status status = BAUTA_OK;
    *single = *pair = (bt_template){ 0 };
    if (json && !json_is_null(json))
        status = bt_steps_parse(&reader, json);
    if (!status && !p.done)
        return bt_template_wrap(single, pair, NULL, 0, NULL, 0, err);
    if (status) {
        bt_template_release(single);
        bt_template_release(pair);
    }
    return status;
}
