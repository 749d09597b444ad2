/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json_model.c - the "model" of a tokenizer.json: BPE, WordPiece,
 * Unigram or WordLevel. The "dropout" of BPE is for training only; encoding is
 * deterministic. */
#include "text/io/json_members.h"
#include "text/io/tokenizer_json.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* The id of "unk_token", or BT_NO_ID. As in Hugging Face's library, one that is
 * not in the vocabulary is ignored. */
static bauta_status unknown_token(uint32_t *out, const bt_tokenizer_build *b,
                                  bauta_error *err)
{
    const char *name;
    bauta_status status =
        bt_member_string(&name, b->model, "unk_token", b->path, err);
    *out = BT_NO_ID;
    if (!status && name)
        *out = bt_vocab_find(b->tokenizer->vocab, name, strlen(name));
    b->tokenizer->special_ids[BAUTA_TOKEN_UNK] = *out;
    return status;
}

/* The two pieces of a merge. */
typedef struct merge_parts {
    const char *part[2];
    size_t size[2];
} merge_parts;

/* "a b", as in older files. */
static bool parts_of_text(merge_parts *parts, const char *text, size_t size)
{
    const char *space = memchr(text, ' ', size);
    if (!space || memchr(space + 1, ' ', size - (size_t)(space + 1 - text)))
        return false;
    *parts = (merge_parts){ { text, space + 1 },
                            { (size_t)(space - text),
                              size - (size_t)(space + 1 - text) } };
    return true;
}

/* "a b" or ["a", "b"]. */
static bool parts_of_json(merge_parts *parts, const json_t *value)
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

/* The id of the result of a merge: the concatenation of its pieces, without the
 * prefix of the second. BT_NO_ID - 1 if memory runs out. */
static uint32_t merge_result(const bt_vocab *vocab, const merge_parts *parts,
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

/* The merges read so far. */
typedef struct merges {
    const bt_tokenizer_build *build;
    bt_merge_rule *list;
    size_t count, room;
    size_t prefix; /* bytes of the second piece that a merge drops */
} merges;

static bauta_status
fail_merge_unknown(const merges *m, const merge_parts *parts, bauta_error *err)
{
    char shown[2][2 * sizeof(bt_quoted)] = {
        "", ""
    }; // longer than bt_quote() shows
    for (size_t i = 0; i < 2; i++)
        memcpy(shown[i], parts->part[i],
               bt_size_min(parts->size[i], sizeof(shown[i]) - 1));
    return bt_fail(err, BAUTA_ERR_FORMAT,
                   "%s: merge %zu, \"%s\" and \"%s\": the vocabulary lacks "
                   "one of them or their concatenation",
                   bt_path_tail(m->build->path), m->count,
                   bt_quote(shown[0]).text, bt_quote(shown[1]).text);
}

static bauta_status merge_add(merges *m, const merge_parts *parts,
                              bauta_error *err)
{
    const bt_vocab *vocab = m->build->tokenizer->vocab;
    bt_merge_rule merge = {
        .left = bt_vocab_find(vocab, parts->part[0], parts->size[0]),
        .right = bt_vocab_find(vocab, parts->part[1], parts->size[1]),
        .merged = merge_result(vocab, parts, m->prefix),
        .rank = (uint32_t)m->count
    };
    if (merge.merged == BT_NO_ID - 1)
        return bt_fail_memory(err, "a merge",
                              bt_size_add(parts->size[0], parts->size[1]));
    if (merge.left == BT_NO_ID || merge.right == BT_NO_ID ||
        merge.merged == BT_NO_ID)
        return fail_merge_unknown(m, parts, err);
    if (m->count == BT_MERGES_MAX)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: there are more than %d merges",
                       bt_path_tail(m->build->path), BT_MERGES_MAX);
    if (BT_ARRAY_RESERVE(m->list, m->room, m->count, 1))
        return bt_fail_memory(err, "merges", m->count * sizeof(merge));
    m->list[m->count++] = merge;
    return BAUTA_OK;
}

static bauta_status fail_merge(const merges *m, bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_FORMAT,
                   "%s: merge %zu is not a pair of pieces",
                   bt_path_tail(m->build->path), m->count);
}

static bauta_status read_json_merges(merges *m, bauta_error *err)
{
    const bt_tokenizer_json *d = m->build->document;
    bt_json_reader json =
        bt_json_reader_init(d->path, d->merges, d->merges_size);
    json.flags = BT_JSON_NUL;
    json.max_value_bytes = SIZE_MAX; // pieces may be long
    bauta_status status = bt_json_enter_array(&json, err);
    for (bool more = true; !status && more;) {
        json_t *value = NULL;
        merge_parts parts;
        status = bt_json_next_item(&json, &more, err);
        if (!status && more)
            status = bt_json_read_value(&json, &value, err);
        if (!status && more)
            status = parts_of_json(&parts, value) ? merge_add(m, &parts, err)
                                                  : fail_merge(m, err);
        json_decref(value);
    }
    return status;
}

/* merges.txt begins with a line "#version: ...". */
static bauta_status read_line_merges(merges *m, bauta_error *err)
{
    const bt_tokenizer_json *d = m->build->document;
    const char *at = d->merges, *line;
    bauta_status status = BAUTA_OK;
    size_t length;
    while (!status &&
           bt_next_line(&line, &length, &at, d->merges + d->merges_size)) {
        merge_parts parts;
        if (length == 0 || (length >= 9 && !memcmp(line, "#version:", 9)))
            continue;
        status = parts_of_text(&parts, line, length) ? merge_add(m, &parts, err)
                                                     : fail_merge(m, err);
    }
    return status;
}

static bauta_status read_merges(merges *m, bauta_error *err)
{
    const bt_tokenizer_json *d = m->build->document;
    if (!d->merges)
        return bt_member_fail(m->build->path, "merges", "is not a list", err);
    return d->merges_are_lines ? read_line_merges(m, err)
                               : read_json_merges(m, err);
}

/* The prefix or suffix of symbols, or NULL. Its length is bounded since it is
 * copied for every symbol of a text. */
static bauta_status affix_read(const char **out, const bt_tokenizer_build *b,
                               const char *key, bauta_error *err)
{
    enum { AFFIX_MAX = 64 };
    bauta_status status = bt_member_string(out, b->model, key, b->path, err);
    if (!status && *out && strlen(*out) > AFFIX_MAX)
        status = bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                         "%s: \"%s\" has %zu bytes; at most %d are supported",
                         bt_path_tail(b->path), key, strlen(*out), AFFIX_MAX);
    return status;
}

static bauta_status bpe_flags(bt_bpe_spec *spec, const bt_tokenizer_build *b,
                              bauta_error *err)
{
    const json_t *m = b->model;
    bauta_status status;
    (void)((status = bt_member_bool(&spec->fuse_unknown, m, "fuse_unk", b->path,
                                    err)) ||
           (status = bt_member_bool(&spec->byte_fallback, m, "byte_fallback",
                                    b->path, err)) ||
           (status = bt_member_bool(&spec->ignore_merges, m, "ignore_merges",
                                    b->path, err)) ||
           (status = affix_read(&spec->prefix, b, "continuing_subword_prefix",
                                err)) ||
           (status = affix_read(&spec->suffix, b, "end_of_word_suffix", err)) ||
           (status = unknown_token(&spec->unknown, b, err)));
    return status;
}

static bauta_status check_vocab(const bt_tokenizer_build *b, bauta_error *err)
{
    if (json_is_object(bt_member_get(b->model, "vocab")))
        return BAUTA_OK;
    return bt_member_fail(b->path, "vocab", "is not an object", err);
}

static bauta_status bpe_read(const bt_tokenizer_build *b, bauta_error *err)
{
    merges m = { .build = b };
    bt_bpe_spec spec = { .vocab = b->tokenizer->vocab,
                         .bytelevel = b->tokenizer->bytelevel };
    bauta_status status = check_vocab(b, err);
    if (!status)
        status = bpe_flags(&spec, b, err);
    m.prefix = spec.prefix ? strlen(spec.prefix) : 0;
    if (!status)
        status = read_merges(&m, err);
    spec.merges = m.list;
    spec.merge_count = m.count;
    if (!status)
        status = bt_bpe_create(&b->tokenizer->model, &spec, b->path, err);
    bt_free(m.list);
    return status;
}

static bauta_status wordpiece_read(const bt_tokenizer_build *b,
                                   bauta_error *err)
{
    const json_t *longest = bt_member_get(b->model, "max_input_chars_per_word");
    bt_wordpiece_spec spec = { .vocab = b->tokenizer->vocab,
                               .max_word_chars = 100 };
    bauta_status status = check_vocab(b, err);
    if (!status)
        status = unknown_token(&spec.unknown, b, err);
    if (!status)
        status = affix_read(&spec.prefix, b, "continuing_subword_prefix", err);
    if (status)
        return status;
    if (spec.unknown == BT_NO_ID)
        return bt_member_fail(b->path, "unk_token", "is not in the vocabulary",
                              err);
    if (longest &&
        (!json_is_integer(longest) || json_integer_value(longest) < 0 ||
         json_integer_value(longest) > 1000000))
        return bt_member_fail(b->path, "max_input_chars_per_word",
                              "is not a number from 0 to a million", err);
    if (longest)
        spec.max_word_chars = (size_t)json_integer_value(longest);
    if (!spec.prefix)
        spec.prefix = "";
    return bt_wordpiece_create(&b->tokenizer->model, &spec, b->path, err);
}

static bauta_status wordlevel_read(const bt_tokenizer_build *b,
                                   bauta_error *err)
{
    uint32_t unknown;
    bauta_status status = check_vocab(b, err);
    if (!status)
        status = unknown_token(&unknown, b, err);
    if (!status)
        status = bt_wordlevel_create(&b->tokenizer->model, b->tokenizer->vocab,
                                     unknown, err);
    return status;
}

static bauta_status unigram_read(const bt_tokenizer_build *b, bauta_error *err)
{
    const json_t *unknown = bt_member_get(b->model, "unk_id");
    bt_unigram_spec spec = { .vocab = b->tokenizer->vocab,
                             .scores = b->document->scores,
                             .unknown = BT_NO_ID };
    size_t count = bt_vocab_size(spec.vocab);
    if (!json_is_array(bt_member_get(b->model, "vocab")) || count == 0)
        return bt_member_fail(b->path, "vocab", "is not a list of pieces", err);
    bauta_status status = bt_member_bool(&spec.byte_fallback, b->model,
                                         "byte_fallback", b->path, err);
    if (!status && unknown)
        status =
            bt_member_token_id(&spec.unknown, unknown, "unk_id", b->path, err);
    if (!status && unknown && spec.unknown >= count)
        status =
            bt_member_fail(b->path, "unk_id", "is beyond the vocabulary", err);
    b->tokenizer->special_ids[BAUTA_TOKEN_UNK] = spec.unknown;
    if (status)
        return status;
    return bt_unigram_create(&b->tokenizer->model, &spec, b->path, err);
}

/* Older files have no type. */
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

bauta_status bt_tokenizer_build_model(const bt_tokenizer_build *b,
                                      bauta_error *err)
{
    static const struct {
        const char *type;
        bauta_status (*read)(const bt_tokenizer_build *b, bauta_error *err);
    } models[] = { { "BPE", bpe_read },
                   { "WordPiece", wordpiece_read },
                   { "Unigram", unigram_read },
                   { "WordLevel", wordlevel_read } };
    if (!json_is_object(b->model))
        return bt_member_fail(b->path, "model", "is not an object", err);
    const char *type = model_type(b->model);
    for (size_t i = 0; i < BT_LEN(models); i++) {
        if (strcmp(type, models[i].type) != 0)
            continue;
        if (b->tokenizer->bytelevel && i > 0)
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "%s: the pre-tokenizer ByteLevel needs a model of "
                           "type BPE, not %s",
                           bt_path_tail(b->path), type);
        return models[i].read(b, err);
    }
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "%s: models of type \"%s\" are not supported",
                   bt_path_tail(b->path), bt_quote(type).text);
}
