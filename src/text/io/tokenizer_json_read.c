/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json_read.c - parsing a tokenizer.json; see tokenizer_json.h.
 *
 * The vocabulary is read member by member and the merges are only located, so
 * that neither becomes a tree. "truncation" and "padding" are skipped: they
 * apply to batches. */
#include "text/io/json_members.h"
#include "text/io/tokenizer_json.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#include <string.h>

void bt_tokenizer_json_release(bt_tokenizer_json *d)
{
    json_decref(d->root);
    bt_vocab_free(d->vocab);
    bt_free(d->scores);
    *d = (bt_tokenizer_json){ 0 };
}

bauta_status bt_tokenizer_json_vocab(bt_vocab *vocab, bt_json_reader *json,
                                     bauta_error *err)
{
    json_t *key = NULL, *value = NULL;
    bauta_status status = bt_json_enter_object(json, err);
    while (!status) {
        uint32_t id = 0;
        status = bt_json_next_key(json, &key, err);
        if (status || !key)
            break;
        const char *piece = json_string_value(key);
        status = bt_json_read_value(json, &value, err);
        if (!status)
            status = bt_member_token_id(&id, value, piece, json->path, err);
        if (!status)
            status = bt_vocab_add_from_file(
                vocab, piece, json_string_length(key), id, json->path, err);
        json_decref(value);
        json_decref(key);
    }
    return status;
}

/* An entry of a list of pieces: ["piece", score]. Ids count from 0. */
static bauta_status scored_add(bt_tokenizer_json *d, const json_t *entry,
                               bauta_error *err)
{
    const json_t *piece = json_array_get(entry, 0);
    const json_t *score = json_array_get(entry, 1);
    size_t id = bt_vocab_size(d->vocab);
    if (json_array_size(entry) != 2 || !json_is_string(piece) ||
        !json_is_number(score))
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: entry %zu of the vocabulary is not a piece and its "
                       "score",
                       bt_path_tail(d->path), id);
    if (BT_ARRAY_RESERVE(d->scores, d->scores_room, id, 1))
        return bt_fail_memory(err, "scores", id * sizeof(*d->scores));
    d->scores[id] = json_number_value(score);
    return bt_vocab_add_from_file(d->vocab, json_string_value(piece),
                                  json_string_length(piece), (uint32_t)id,
                                  d->path, err);
}

static bauta_status scored_read(bt_tokenizer_json *d, bt_json_reader *json,
                                bauta_error *err)
{
    bauta_status status = bt_json_enter_array(json, err);
    for (bool more = true; !status && more;) {
        json_t *entry = NULL;
        status = bt_json_next_item(json, &more, err);
        if (!status && more)
            status = bt_json_read_value(json, &entry, err);
        if (!status && more)
            status = scored_add(d, entry, err);
        json_decref(entry);
    }
    return status;
}

static bauta_status locate_merges(bt_tokenizer_json *d, bt_json_reader *json,
                                  bauta_error *err)
{
    size_t begin = json->offset;
    bauta_status status = bt_json_skip_value(json, err);
    d->merges = json->text + begin;
    d->merges_size = json->offset - begin;
    return status;
}

/* A member of the model. Vocabulary and merges are replaced by an empty value
 * of their type. */
static bauta_status model_member(bt_tokenizer_json *d, bt_json_reader *json,
                                 const char *name, json_t **value,
                                 bauta_error *err)
{
    char first = bt_json_peek(json);
    bauta_status status;
    if (!strcmp(name, "vocab") && first == '{')
        status = bt_tokenizer_json_vocab(d->vocab, json, err);
    else if (!strcmp(name, "vocab") && first == '[')
        status = scored_read(d, json, err);
    else if (!strcmp(name, "merges") && first == '[')
        status = locate_merges(d, json, err);
    else
        return bt_json_read_value(json, value, err);
    if (!status && !(*value = first == '{' ? json_object() : json_array()))
        status = bt_fail_memory(err, "a JSON value", 1);
    return status;
}

typedef bauta_status member_fn(bt_tokenizer_json *d, bt_json_reader *json,
                               const char *name, json_t **value,
                               bauta_error *err);

/* Read an object, each member with `read`. */
static bauta_status members_read(bt_tokenizer_json *d, bt_json_reader *json,
                                 json_t **out, member_fn *read,
                                 bauta_error *err)
{
    json_t *key = NULL;
    *out = json_object();
    bauta_status status = *out ? bt_json_enter_object(json, err)
                               : bt_fail_memory(err, "a JSON value", 1);
    while (!status) {
        json_t *value = NULL;
        size_t at = json->offset;
        status = bt_json_next_key(json, &key, err);
        if (status || !key)
            break;
        const char *name = json_string_value(key);
        if (json_object_get(*out, name))
            status = bt_json_fail(json, at, "duplicate key", err);
        if (!status)
            status = read(d, json, name, &value, err);
        if (!status && json_object_set_new(*out, name, value))
            status = bt_fail_memory(err, "a JSON value", 1);
        json_decref(key);
    }
    if (status) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

static bauta_status root_member(bt_tokenizer_json *d, bt_json_reader *json,
                                const char *name, json_t **value,
                                bauta_error *err)
{
    if (!strcmp(name, "model") && bt_json_peek(json) == '{')
        return members_read(d, json, value, model_member, err);
    if (strcmp(name, "padding") && strcmp(name, "truncation"))
        return bt_json_read_value(json, value, err);
    *value = json_null();
    return bt_json_skip_value(json, err);
}

bauta_status bt_tokenizer_json_init(bt_tokenizer_json *d, const char *text,
                                    size_t size, const char *path,
                                    bauta_error *err)
{
    bt_json_reader json = bt_json_reader_init(path, text, size);
    json.flags = BT_JSON_NUL | BT_JSON_LINES;
    json.max_value_bytes = SIZE_MAX;
    *d = (bt_tokenizer_json){ .path = path };
    bauta_status status = bt_vocab_create(&d->vocab, err);
    if (!status && bt_json_peek(&json) != '{')
        status = bt_fail(err, BAUTA_ERR_FORMAT, "%s is not a JSON object",
                         bt_path_tail(path));
    if (!status)
        status = members_read(d, &json, &d->root, root_member, err);
    return status ? status : bt_json_expect_end(&json, err);
}
