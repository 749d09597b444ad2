/* SPDX-License-Identifier: Apache-2.0 */
/* document_model.c - the "model" of a tokenizer.json: its vocabulary, and BPE,
 * WordPiece, Unigram or whole words over it. A BPE's "dropout" is a matter of
 * training, and encoding is deterministic. */
#include "text/document_parts.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* ---- the vocabulary ---------------------------------------------------- */

static bauta_status vocab_object(bt_vocab *vocab, const json_t *object,
                                 const char *path, bauta_error *err)
{
    const char *piece;
    json_t *value;
    json_object_foreach((json_t *)object, piece, value)
    {
        uint32_t id = 0;
        bauta_status status = bt_part_id(&id, value, piece, path, err);
        if (!status)
            status = bt_part_piece(vocab, piece, strlen(piece), id, path, err);
        if (status)
            return status;
    }
    return BAUTA_OK;
}

/* [["piece", score], ...]: ids count from 0. */
static bauta_status vocab_scored(bt_vocab *vocab, double *scores,
                                 const json_t *list, const char *path,
                                 bauta_error *err)
{
    size_t i;
    json_t *entry;
    json_array_foreach(list, i, entry)
    {
        const json_t *piece = json_array_get(entry, 0);
        const json_t *score = json_array_get(entry, 1);
        if (json_array_size(entry) != 2 || !json_is_string(piece) ||
            !json_is_number(score) || i >= BT_VOCAB_MAX)
            return bt_fail(err, BAUTA_ERR_IO,
                           "%s: entry %zu of the vocabulary is not a piece and "
                           "its score",
                           bt_path_tail(path), i);
        bauta_status status =
            bt_part_piece(vocab, json_string_value(piece),
                          json_string_length(piece), (uint32_t)i, path, err);
        if (status)
            return status;
        scores[i] = json_number_value(score);
    }
    return BAUTA_OK;
}

/* ---- models ------------------------------------------------------------ */

/* The id of the token that "unk_token" names, BT_NO_ID where none is named.
 * Hugging Face's BPE takes one that is not in the vocabulary for none. */
static bauta_status unknown_token(uint32_t *out, const bt_reading *r,
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

/* One merge: ["a", "b"], or in older files "a b". */
static bool merge_parts(const json_t *value, const char *part[2],
                        size_t size[2])
{
    const char *text = json_string_value(value);
    const char *space = text ? strchr(text, ' ') : NULL;
    if (space && !strchr(space + 1, ' ')) {
        part[0] = text;
        size[0] = (size_t)(space - text);
        part[1] = space + 1;
        size[1] = json_string_length(value) - size[0] - 1;
        return true;
    }
    for (size_t i = 0; i < 2; i++) {
        const json_t *string_i = json_array_get(value, i);
        part[i] = json_string_value(string_i);
        size[i] = json_string_length(string_i);
    }
    return json_array_size(value) == 2 && part[0] && part[1];
}

/* What a merge makes: the two, one behind the other, without the prefix of the
 * second. */
static uint32_t merge_result(const bt_vocab *vocab, const char *part[2],
                             const size_t size[2], size_t prefix)
{
    char small[256];
    size_t cut = prefix <= size[1] ? prefix : 0, rest = size[1] - cut;
    char *whole = small;
    if (size[0] + rest > sizeof(small)) {
        whole = bt_alloc(size[0] + rest);
        if (!whole)
            return BT_NO_ID - 1;
    }
    memcpy(whole, part[0], size[0]);
    memcpy(whole + size[0], part[1] + cut, rest);
    uint32_t id = bt_vocab_find(vocab, whole, size[0] + rest);
    if (whole != small)
        bt_free(whole);
    return id;
}

static bauta_status merge_read(bt_merge *merge, const bt_reading *r,
                               const json_t *value, size_t rank, size_t prefix,
                               bauta_error *err)
{
    const char *part[2];
    size_t size[2];
    const bt_vocab *vocab = r->tokenizer->vocab;
    if (!merge_parts(value, part, size))
        return bt_fail(err, BAUTA_ERR_IO,
                       "%s: merge %zu is not a pair of pieces",
                       bt_path_tail(r->path), rank);
    *merge = (bt_merge){ .left = bt_vocab_find(vocab, part[0], size[0]),
                         .right = bt_vocab_find(vocab, part[1], size[1]),
                         .merged = merge_result(vocab, part, size, prefix),
                         .rank = (uint32_t)rank };
    if (merge->merged == BT_NO_ID - 1)
        return bt_fail_memory(err, "a merge", bt_size_add(size[0], size[1]));
    if (merge->left == BT_NO_ID || merge->right == BT_NO_ID ||
        merge->merged == BT_NO_ID)
        return bt_fail(err, BAUTA_ERR_IO,
                       "%s: merge %zu, \"%s\" and \"%s\": the vocabulary lacks "
                       "one of them or what they make",
                       bt_path_tail(r->path), rank, bt_quote(part[0]).text,
                       bt_quote(part[1]).text);
    return BAUTA_OK;
}

static bauta_status merges_read(bt_merge **out, size_t *count,
                                const bt_reading *r, const char *prefix,
                                bauta_error *err)
{
    const json_t *list = bt_part_given(r->model, "merges");
    size_t skip = prefix ? strlen(prefix) : 0;
    if (!json_is_array(list))
        return bt_part_wrong(r->path, "merges", "is not a list", err);
    *count = json_array_size(list);
    *out = bt_alloc(bt_size_mul(*count, sizeof(**out)));
    if (!*out)
        return bt_fail_memory(err, "merges", *count * sizeof(**out));
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < *count; i++)
        status =
            merge_read(&(*out)[i], r, json_array_get(list, i), i, skip, err);
    return status;
}

static bauta_status bpe_flags(bt_bpe_spec *spec, const bt_reading *r,
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
           (status = bt_part_string(
                &spec->prefix, m, "continuing_subword_prefix", r->path, err)) ||
           (status = bt_part_string(&spec->suffix, m, "end_of_word_suffix",
                                    r->path, err)) ||
           (status = unknown_token(&spec->unknown, r, err)));
    return status;
}

static bauta_status vocab_given(const bt_reading *r, bauta_error *err)
{
    const json_t *vocab = bt_part_given(r->model, "vocab");
    if (!json_is_object(vocab))
        return bt_part_wrong(r->path, "vocab", "is not an object", err);
    return vocab_object(r->tokenizer->vocab, vocab, r->path, err);
}

static bauta_status bpe_read(const bt_reading *r, bauta_error *err)
{
    bt_merge *merges = NULL;
    bt_bpe_spec spec = { .vocab = r->tokenizer->vocab,
                         .bytelevel = r->tokenizer->bytelevel };
    bauta_status status = vocab_given(r, err);
    if (!status)
        status = bpe_flags(&spec, r, err);
    if (!status)
        status = merges_read(&merges, &spec.merge_count, r, spec.prefix, err);
    spec.merges = merges;
    if (!status)
        status = bt_bpe_create(&r->tokenizer->model, &spec, r->path, err);
    bt_free(merges);
    return status;
}

static bauta_status wordpiece_read(const bt_reading *r, bauta_error *err)
{
    const json_t *longest = bt_part_given(r->model, "max_input_chars_per_word");
    bt_wordpiece_spec spec = { .vocab = r->tokenizer->vocab, .longest = 100 };
    bauta_status status = vocab_given(r, err);
    if (!status)
        status = unknown_token(&spec.unknown, r, err);
    if (!status)
        status = bt_part_string(&spec.prefix, r->model,
                                "continuing_subword_prefix", r->path, err);
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
    return bt_wordpiece_create(&r->tokenizer->model, &spec, err);
}

static bauta_status wordlevel_read(const bt_reading *r, bauta_error *err)
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

static bauta_status unigram_spec(bt_unigram_spec *spec, double *scores,
                                 const json_t *list, const bt_reading *r,
                                 bauta_error *err)
{
    const json_t *unknown = bt_part_given(r->model, "unk_id");
    bauta_status status =
        vocab_scored(r->tokenizer->vocab, scores, list, r->path, err);
    *spec = (bt_unigram_spec){ .vocab = r->tokenizer->vocab,
                               .scores = scores,
                               .unknown = BT_NO_ID };
    if (!status)
        status = bt_part_flag(&spec->byte_fallback, r->model, "byte_fallback",
                              r->path, err);
    if (!status && unknown) {
        status = bt_part_id(&spec->unknown, unknown, "unk_id", r->path, err);
        if (!status && spec->unknown >= json_array_size(list))
            status = bt_part_wrong(r->path, "unk_id",
                                   "is beyond the vocabulary", err);
    }
    r->tokenizer->names[BAUTA_TOKEN_UNK] = spec->unknown;
    return status;
}

static bauta_status unigram_read(const bt_reading *r, bauta_error *err)
{
    const json_t *list = bt_part_given(r->model, "vocab");
    size_t count = json_array_size(list);
    bt_unigram_spec spec;
    if (!json_is_array(list) || count == 0)
        return bt_part_wrong(r->path, "vocab", "is not a list of pieces", err);
    double *scores = bt_alloc(bt_size_mul(count, sizeof(*scores)));
    if (!scores)
        return bt_fail_memory(err, "scores", count * sizeof(*scores));
    bauta_status status = unigram_spec(&spec, scores, list, r, err);
    if (!status)
        status = bt_unigram_create(&r->tokenizer->model, &spec, r->path, err);
    bt_free(scores);
    return status;
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

bauta_status bt_reading_model(const bt_reading *r, bauta_error *err)
{
    static const struct {
        const char *type;
        bauta_status (*read)(const bt_reading *r, bauta_error *err);
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
