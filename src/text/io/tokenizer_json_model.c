/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json_model.c - the "model" of a tokenizer.json: its vocabulary, and
 * BPE, WordPiece, Unigram or whole words over it. A BPE's "dropout" is a matter
 * of training, and encoding is deterministic. */
#include "text/io/json_members.h"
#include "text/io/tokenizer_json.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* ---- models ------------------------------------------------------------ */

/* The id of the token that "unk_token" names, BT_NO_ID where none is named.
 * Hugging Face's BPE takes one that is not in the vocabulary for none. */
static bauta_status unknown_token(uint32_t *out, const bt_tokenizer_build *r,
                                  bauta_error *err)
{
    const char *name;
    bauta_status status =
        bt_part_string(&name, r->model, "unk_token", r->path, err);
    *out = BT_NO_ID;
    if (!status && name)
        *out = bt_vocab_find(r->tokenizer->vocab, name, strlen(name));
    r->tokenizer->names[BAUTA_TOKEN_UNK] = *out;
    return status;
}

/* The two pieces of a merge. */
typedef struct two {
    const char *part[2];
    size_t size[2];
} two;

/* "a b", as older files have it. */
static bool parts_of_text(two *parts, const char *text, size_t size)
{
    const char *space = memchr(text, ' ', size);
    if (!space || memchr(space + 1, ' ', size - (size_t)(space + 1 - text)))
        return false;
    *parts =
        (two){ { text, space + 1 },
               { (size_t)(space - text), size - (size_t)(space + 1 - text) } };
    return true;
}

/* That, or ["a", "b"]. */
static bool parts_of_json(two *parts, const json_t *value)
{
    if (json_is_string(value))
        return parts_of_text(parts, json_string_value(value),
                             json_string_length(value));
    for (size_t i = 0; i < 2; i++) {
        const json_t *part = json_array_get(value, i);
        parts->part[i] = json_string_value(part);
        parts->size[i] = json_string_length(part);
    }
    return json_array_size(value) == 2 && parts->part[0] && parts->part[1];
}

/* What a merge makes: the two, one behind the other, without the prefix of the
 * second. */
static uint32_t merge_result(const bt_vocab *vocab, const two *parts,
                             size_t prefix)
{
    char small[256];
    const size_t *size = parts->size;
    size_t cut = prefix <= size[1] ? prefix : 0, rest = size[1] - cut;
    char *whole = small;
    if (size[0] + rest > sizeof(small)) {
        whole = bt_alloc(size[0] + rest);
        if (!whole)
            return BT_NO_ID - 1;
    }
    memcpy(whole, parts->part[0], size[0]);
    memcpy(whole + size[0], parts->part[1] + cut, rest);
    uint32_t id = bt_vocab_find(vocab, whole, size[0] + rest);
    if (whole != small)
        bt_free(whole);
    return id;
}

/* The merges as they come. */
typedef struct merges {
    const bt_tokenizer_build *reading;
    bt_merge *list;
    size_t count, room;
    size_t prefix; /* bytes that a merge leaves out of its second piece */
} merges;

static bauta_status merge_unknown(const merges *m, const two *parts,
                                  bauta_error *err)
{
    char shown[2][2 * sizeof(bt_quoted)] = { "", "" }; // so that cutting shows
    for (size_t i = 0; i < 2; i++)
        memcpy(shown[i], parts->part[i],
               bt_size_min(parts->size[i], sizeof(shown[i]) - 1));
    return bt_fail(err, BAUTA_ERR_IO,
                   "%s: merge %zu, \"%s\" and \"%s\": the vocabulary lacks "
                   "one of them or what they make",
                   bt_path_tail(m->reading->path), m->count,
                   bt_quote(shown[0]).text, bt_quote(shown[1]).text);
}

static bauta_status merge_add(merges *m, const two *parts, bauta_error *err)
{
    const bt_vocab *vocab = m->reading->tokenizer->vocab;
    bt_merge merge = { .left =
                           bt_vocab_find(vocab, parts->part[0], parts->size[0]),
                       .right =
                           bt_vocab_find(vocab, parts->part[1], parts->size[1]),
                       .merged = merge_result(vocab, parts, m->prefix),
                       .rank = (uint32_t)m->count };
    if (merge.merged == BT_NO_ID - 1)
        return bt_fail_memory(err, "a merge",
                              bt_size_add(parts->size[0], parts->size[1]));
    if (merge.left == BT_NO_ID || merge.right == BT_NO_ID ||
        merge.merged == BT_NO_ID)
        return merge_unknown(m, parts, err);
    if (m->count == BT_MERGES_MAX)
        return bt_fail(err, BAUTA_ERR_IO, "%s: there are more than %d merges",
                       bt_path_tail(m->reading->path), BT_MERGES_MAX);
    if (BT_ROOM(m->list, m->room, m->count, 1))
        return bt_fail_memory(err, "merges", m->count * sizeof(merge));
    m->list[m->count++] = merge;
    return BAUTA_OK;
}

static bauta_status merge_wrong(const merges *m, bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_IO, "%s: merge %zu is not a pair of pieces",
                   bt_path_tail(m->reading->path), m->count);
}

static bauta_status merges_listed(merges *m, bauta_error *err)
{
    const bt_document *d = m->reading->document;
    bt_json json = bt_json_over(d->path, d->merges, d->merges_size);
    json.flags = BT_JSON_NUL;
    json.longest = SIZE_MAX; // pieces may be long
    bauta_status status = bt_json_enter_list(&json, err);
    for (bool more = true; !status && more;) {
        json_t *value = NULL;
        two parts;
        status = bt_json_more(&json, &more, err);
        if (!status && more)
            status = bt_json_value(&json, &value, err);
        if (!status && more)
            status = parts_of_json(&parts, value) ? merge_add(m, &parts, err)
                                                  : merge_wrong(m, err);
        json_decref(value);
    }
    return status;
}

/* merges.txt begins with a line "#version: ...". */
static bauta_status merges_lined(merges *m, bauta_error *err)
{
    const bt_document *d = m->reading->document;
    const char *at = d->merges, *line;
    bauta_status status = BAUTA_OK;
    size_t length;
    while (!status &&
           bt_part_line(&line, &length, &at, d->merges + d->merges_size)) {
        two parts;
        if (length == 0 || (length >= 9 && !memcmp(line, "#version:", 9)))
            continue;
        status = parts_of_text(&parts, line, length) ? merge_add(m, &parts, err)
                                                     : merge_wrong(m, err);
    }
    return status;
}

static bauta_status merges_read(merges *m, bauta_error *err)
{
    const bt_document *d = m->reading->document;
    if (!d->merges)
        return bt_part_wrong(m->reading->path, "merges", "is not a list", err);
    return d->merges_lines ? merges_lined(m, err) : merges_listed(m, err);
}

/* What a model puts before or after its symbols, NULL where it is not given.
 * It is copied for every symbol of a text. */
static bauta_status affix_read(const char **out, const bt_tokenizer_build *r,
                               const char *key, bauta_error *err)
{
    enum { AFFIX_MAX = 64 };
    bauta_status status = bt_part_string(out, r->model, key, r->path, err);
    if (!status && *out && strlen(*out) > AFFIX_MAX)
        status = bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                         "%s: \"%s\" has %zu bytes; at most %d are supported",
                         bt_path_tail(r->path), key, strlen(*out), AFFIX_MAX);
    return status;
}

static bauta_status bpe_flags(bt_bpe_spec *spec, const bt_tokenizer_build *r,
                              bauta_error *err)
{
    const json_t *m = r->model;
    bauta_status status;
    (void)((status = bt_part_flag(&spec->fuse_unknown, m, "fuse_unk", r->path,
                                  err)) ||
           (status = bt_part_flag(&spec->byte_fallback, m, "byte_fallback",
                                  r->path, err)) ||
           (status = bt_part_flag(&spec->whole_first, m, "ignore_merges",
                                  r->path, err)) ||
           (status = affix_read(&spec->prefix, r, "continuing_subword_prefix",
                                err)) ||
           (status = affix_read(&spec->suffix, r, "end_of_word_suffix", err)) ||
           (status = unknown_token(&spec->unknown, r, err)));
    return status;
}

static bauta_status vocab_given(const bt_tokenizer_build *r, bauta_error *err)
{
    if (json_is_object(bt_part_given(r->model, "vocab")))
        return BAUTA_OK;
    return bt_part_wrong(r->path, "vocab", "is not an object", err);
}

static bauta_status bpe_read(const bt_tokenizer_build *r, bauta_error *err)
{
    merges m = { .reading = r };
    bt_bpe_spec spec = { .vocab = r->tokenizer->vocab,
                         .bytelevel = r->tokenizer->bytelevel };
    bauta_status status = vocab_given(r, err);
    if (!status)
        status = bpe_flags(&spec, r, err);
    m.prefix = spec.prefix ? strlen(spec.prefix) : 0;
    if (!status)
        status = merges_read(&m, err);
    spec.merges = m.list;
    spec.merge_count = m.count;
    if (!status)
        status = bt_bpe_create(&r->tokenizer->model, &spec, r->path, err);
    bt_free(m.list);
    return status;
}

static bauta_status wordpiece_read(const bt_tokenizer_build *r,
                                   bauta_error *err)
{
    const json_t *longest = bt_part_given(r->model, "max_input_chars_per_word");
    bt_wordpiece_spec spec = { .vocab = r->tokenizer->vocab, .longest = 100 };
    bauta_status status = vocab_given(r, err);
    if (!status)
        status = unknown_token(&spec.unknown, r, err);
    if (!status)
        status = affix_read(&spec.prefix, r, "continuing_subword_prefix", err);
    if (status)
        return status;
    if (spec.unknown == BT_NO_ID)
        return bt_part_wrong(r->path, "unk_token", "is not in the vocabulary",
                             err);
    if (longest &&
        (!json_is_integer(longest) || json_integer_value(longest) < 0 ||
         json_integer_value(longest) > 1000000))
        return bt_part_wrong(r->path, "max_input_chars_per_word",
                             "is not a number from 0 to a million", err);
    if (longest)
        spec.longest = (size_t)json_integer_value(longest);
    if (!spec.prefix)
        spec.prefix = "";
    return bt_wordpiece_create(&r->tokenizer->model, &spec, r->path, err);
}

static bauta_status wordlevel_read(const bt_tokenizer_build *r,
                                   bauta_error *err)
{
    uint32_t unknown;
    bauta_status status = vocab_given(r, err);
    if (!status)
        status = unknown_token(&unknown, r, err);
    if (!status)
        status = bt_wordlevel_create(&r->tokenizer->model, r->tokenizer->vocab,
                                     unknown, err);
    return status;
}

static bauta_status unigram_read(const bt_tokenizer_build *r, bauta_error *err)
{
    const json_t *unknown = bt_part_given(r->model, "unk_id");
    bt_unigram_spec spec = { .vocab = r->tokenizer->vocab,
                             .scores = r->document->scores,
                             .unknown = BT_NO_ID };
    size_t count = bt_vocab_size(spec.vocab);
    if (!json_is_array(bt_part_given(r->model, "vocab")) || count == 0)
        return bt_part_wrong(r->path, "vocab", "is not a list of pieces", err);
    bauta_status status = bt_part_flag(&spec.byte_fallback, r->model,
                                       "byte_fallback", r->path, err);
    if (!status && unknown)
        status = bt_part_id(&spec.unknown, unknown, "unk_id", r->path, err);
    if (!status && unknown && spec.unknown >= count)
        status =
            bt_part_wrong(r->path, "unk_id", "is beyond the vocabulary", err);
    r->tokenizer->names[BAUTA_TOKEN_UNK] = spec.unknown;
    if (status)
        return status;
    return bt_unigram_create(&r->tokenizer->model, &spec, r->path, err);
}

/* Files of old do not say of which type the model is. */
static const char *model_type(const json_t *model)
{
    const char *type = json_string_value(json_object_get(model, "type"));
    if (type)
        return type;
    if (json_object_get(model, "merges"))
        return "BPE";
    if (json_is_array(json_object_get(model, "vocab")))
        return "Unigram";
    if (json_object_get(model, "max_input_chars_per_word"))
        return "WordPiece";
    return "WordLevel";
}

bauta_status bt_tokenizer_build_model(const bt_tokenizer_build *r,
                                      bauta_error *err)
{
    static const struct {
        const char *type;
        bauta_status (*read)(const bt_tokenizer_build *r, bauta_error *err);
    } models[] = { { "BPE", bpe_read },
                   { "WordPiece", wordpiece_read },
                   { "Unigram", unigram_read },
                   { "WordLevel", wordlevel_read } };
    if (!json_is_object(r->model))
        return bt_part_wrong(r->path, "model", "is not an object", err);
    const char *type = model_type(r->model);
    for (size_t i = 0; i < BT_LEN(models); i++) {
        if (strcmp(type, models[i].type) != 0)
            continue;
        if (r->tokenizer->bytelevel && i > 0)
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "%s: the pre-tokenizer ByteLevel goes with a model "
                           "of type BPE, not %s",
                           bt_path_tail(r->path), type);
        return models[i].read(r, err);
    }
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "%s: models of type \"%s\" are not supported",
                   bt_path_tail(r->path), bt_quote(type).text);
}
