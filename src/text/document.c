/* SPDX-License-Identifier: Apache-2.0 */
/* document.c - a tokenizer.json, read.
 *
 * Its parts are read where they are at home (normalizer.c and so on); here are
 * the vocabulary, the models and the added tokens. "truncation" and "padding"
 * are a matter of batches and not looked at; a BPE's "dropout" is a matter of
 * training, and encoding is deterministic. */
#include "text/document.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

bauta_status bt_document_read(json_t **out, const char *text, size_t size,
                              const char *path, bauta_error *err)
{
    json_error_t why;
    *out =
        json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!*out && json_error_code(&why) == json_error_out_of_memory)
        return bt_fail_memory(err, "a JSON document", size);
    if (!*out)
        return bt_fail(err, BAUTA_ERR_IO, "%s: line %d of the JSON text: %s",
                       bt_path_tail(path), why.line, bt_quote(why.text).text);
    if (json_is_object(*out))
        return BAUTA_OK;
    json_decref(*out);
    *out = NULL;
    return bt_fail(err, BAUTA_ERR_IO, "%s is not a JSON object",
                   bt_path_tail(path));
}

/* ---- small questions --------------------------------------------------- */

/* A value that is there and is not null. */
static json_t *given(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static bauta_status wrong(const char *path, const char *key, const char *what,
                          bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_IO, "%s: \"%s\" %s", bt_path_tail(path), key,
                   what);
}

/* A switch, false where it is not given. */
static bauta_status flag(bool *out, const json_t *object, const char *key,
                         const char *path, bauta_error *err)
{
    const json_t *value = given(object, key);
    if (value && !json_is_boolean(value))
        return wrong(path, key, "is neither true nor false", err);
    *out = json_is_true(value);
    return BAUTA_OK;
}

/* A string without NUL, NULL where it is not given or empty. */
static bauta_status string(const char **out, const json_t *object,
                           const char *key, const char *path, bauta_error *err)
{
    const json_t *value = given(object, key);
    *out = NULL;
    if (value && (!json_is_string(value) || strlen(json_string_value(value)) !=
                                                json_string_length(value)))
        return wrong(path, key, "is not a string", err);
    if (json_string_length(value))
        *out = json_string_value(value);
    return BAUTA_OK;
}

static bauta_status id_of(uint32_t *out, const json_t *value, const char *what,
                          const char *path, bauta_error *err)
{
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= BT_VOCAB_MAX)
        return bt_fail(err, BAUTA_ERR_IO,
                       "%s: the id of \"%s\" is not a number from 0 to %d",
                       bt_path_tail(path), bt_quote(what).text,
                       BT_VOCAB_MAX - 1);
    *out = (uint32_t)id;
    return BAUTA_OK;
}

/* The vocabulary does not know the file; its sentence gets the name. */
static bauta_status vocab_add(bt_vocab *vocab, const char *piece, size_t size,
                              uint32_t id, const char *path, bauta_error *err)
{
    bauta_error why;
    bauta_status status = bt_vocab_add(vocab, piece, size, id, &why);
    if (status == BAUTA_ERR_NOMEM)
        return bt_fail(err, status, "%s", why.message);
    if (status)
        return bt_fail(err, BAUTA_ERR_IO, "%s: %.180s", bt_path_tail(path),
                       why.message);
    return BAUTA_OK;
}

/* ---- the vocabulary ---------------------------------------------------- */

static bauta_status vocab_object(bt_vocab *vocab, const json_t *object,
                                 const char *path, bauta_error *err)
{
    const char *piece;
    json_t *value;
    json_object_foreach((json_t *)object, piece, value)
    {
        uint32_t id = 0;
        bauta_status status = id_of(&id, value, piece, path, err);
        if (!status)
            status = vocab_add(vocab, piece, strlen(piece), id, path, err);
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
            vocab_add(vocab, json_string_value(piece),
                      json_string_length(piece), (uint32_t)i, path, err);
        if (status)
            return status;
        scores[i] = json_number_value(score);
    }
    return BAUTA_OK;
}

/* ---- models ------------------------------------------------------------ */

typedef struct reading {
    bauta_tokenizer *tokenizer;
    const json_t *model;
    const char *path;
} reading;

/* The id of the token that "unk_token" names, BT_NO_ID where none is named.
 * Hugging Face's BPE takes one that is not in the vocabulary for none. */
static bauta_status unknown_token(uint32_t *out, const reading *r,
                                  bauta_error *err)
{
    const char *name;
    bauta_status status = string(&name, r->model, "unk_token", r->path, err);
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

static bauta_status merge_read(bt_merge *merge, const reading *r,
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

static bauta_status merges_read(bt_merge **out, size_t *count, const reading *r,
                                const char *prefix, bauta_error *err)
{
    const json_t *list = given(r->model, "merges");
    size_t skip = prefix ? strlen(prefix) : 0;
    if (!json_is_array(list))
        return wrong(r->path, "merges", "is not a list", err);
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

static bauta_status bpe_flags(bt_bpe_spec *spec, const reading *r,
                              bauta_error *err)
{
    const json_t *m = r->model;
    bauta_status status;
    (void)((status = flag(&spec->fuse_unknown, m, "fuse_unk", r->path, err)) ||
           (status =
                flag(&spec->byte_fallback, m, "byte_fallback", r->path, err)) ||
           (status =
                flag(&spec->whole_first, m, "ignore_merges", r->path, err)) ||
           (status = string(&spec->prefix, m, "continuing_subword_prefix",
                            r->path, err)) ||
           (status =
                string(&spec->suffix, m, "end_of_word_suffix", r->path, err)) ||
           (status = unknown_token(&spec->unknown, r, err)));
    return status;
}

static bauta_status vocab_given(const reading *r, bauta_error *err)
{
    const json_t *vocab = given(r->model, "vocab");
    if (!json_is_object(vocab))
        return wrong(r->path, "vocab", "is not an object", err);
    return vocab_object(r->tokenizer->vocab, vocab, r->path, err);
}

static bauta_status bpe_read(const reading *r, bauta_error *err)
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

static bauta_status wordpiece_read(const reading *r, bauta_error *err)
{
    const json_t *longest = given(r->model, "max_input_chars_per_word");
    bt_wordpiece_spec spec = { .vocab = r->tokenizer->vocab, .longest = 100 };
    bauta_status status = vocab_given(r, err);
    if (!status)
        status = unknown_token(&spec.unknown, r, err);
    if (!status)
        status = string(&spec.prefix, r->model, "continuing_subword_prefix",
                        r->path, err);
    if (status)
        return status;
    if (spec.unknown == BT_NO_ID)
        return wrong(r->path, "unk_token", "is not in the vocabulary", err);
    if (longest &&
        (!json_is_integer(longest) || json_integer_value(longest) < 0 ||
         json_integer_value(longest) > 1000000))
        return wrong(r->path, "max_input_chars_per_word",
                     "is not a number from 0 to a million", err);
    if (longest)
        spec.longest = (size_t)json_integer_value(longest);
    if (!spec.prefix)
        spec.prefix = "";
    return bt_wordpiece_create(&r->tokenizer->model, &spec, err);
}

static bauta_status wordlevel_read(const reading *r, bauta_error *err)
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
                                 const json_t *list, const reading *r,
                                 bauta_error *err)
{
    const json_t *unknown = given(r->model, "unk_id");
    bauta_status status =
        vocab_scored(r->tokenizer->vocab, scores, list, r->path, err);
    *spec = (bt_unigram_spec){ .vocab = r->tokenizer->vocab,
                               .scores = scores,
                               .unknown = BT_NO_ID };
    if (!status)
        status =
            flag(&spec->byte_fallback, r->model, "byte_fallback", r->path, err);
    if (!status && unknown) {
        status = id_of(&spec->unknown, unknown, "unk_id", r->path, err);
        if (!status && spec->unknown >= json_array_size(list))
            status = wrong(r->path, "unk_id", "is beyond the vocabulary", err);
    }
    r->tokenizer->names[BAUTA_TOKEN_UNK] = spec->unknown;
    return status;
}

static bauta_status unigram_read(const reading *r, bauta_error *err)
{
    const json_t *list = given(r->model, "vocab");
    size_t count = json_array_size(list);
    bt_unigram_spec spec;
    if (!json_is_array(list) || count == 0)
        return wrong(r->path, "vocab", "is not a list of pieces", err);
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

static bauta_status model_read(const reading *r, bauta_error *err)
{
    static const struct {
        const char *type;
        bauta_status (*read)(const reading *r, bauta_error *err);
    } models[] = { { "BPE", bpe_read },
                   { "WordPiece", wordpiece_read },
                   { "Unigram", unigram_read },
                   { "WordLevel", wordlevel_read } };
    if (!json_is_object(r->model))
        return wrong(r->path, "model", "is not an object", err);
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

/* ---- added tokens ------------------------------------------------------ */

/* A token that the vocabulary has keeps the id that it has there. */
static bauta_status added_read(bt_added_token *token, const reading *r,
                               const json_t *entry, bauta_error *err)
{
    bt_vocab *vocab = r->tokenizer->vocab;
    const json_t *content = json_object_get(entry, "content");
    if (!json_is_string(content))
        return wrong(r->path, "content", "of an added token is not a string",
                     err);
    *token = (bt_added_token){ .content = json_string_value(content),
                               .size = json_string_length(content) };
    bauta_status status = id_of(&token->id, json_object_get(entry, "id"),
                                token->content, r->path, err);
    (void)(status ||
           (status = flag(&token->special, entry, "special", r->path, err)) ||
           (status = flag(&token->single_word, entry, "single_word", r->path,
                          err)) ||
           (status = flag(&token->lstrip, entry, "lstrip", r->path, err)) ||
           (status = flag(&token->rstrip, entry, "rstrip", r->path, err)) ||
           (status =
                flag(&token->normalized, entry, "normalized", r->path, err)));
    if (status)
        return status;
    uint32_t known = bt_vocab_find(vocab, token->content, token->size);
    if (known == BT_NO_ID)
        return vocab_add(vocab, token->content, token->size, token->id, r->path,
                         err);
    token->id = known;
    return BAUTA_OK;
}

/* The model must not find in a split what was added beside it: where there is
 * such a token, the model keeps its vocabulary to itself and the tokenizer
 * goes on with a copy. */
static bauta_status vocab_detach(const reading *r, const json_t *list,
                                 bauta_error *err)
{
    bauta_tokenizer *t = r->tokenizer;
    size_t i, size, known = 0;
    json_t *entry;
    json_array_foreach(list, i, entry)
    {
        const json_t *content = json_object_get(entry, "content");
        known += json_is_string(content) &&
                 bt_vocab_find(t->vocab, json_string_value(content),
                               json_string_length(content)) != BT_NO_ID;
    }
    if (known == json_array_size(list))
        return BAUTA_OK;
    t->pieces = t->vocab;
    t->vocab = NULL;
    bauta_status status = bt_vocab_create(&t->vocab, err);
    for (uint32_t id = 0; !status && id < bt_vocab_size(t->pieces); id++) {
        const char *piece = bt_vocab_piece(t->pieces, id, &size);
        if (piece)
            status = bt_vocab_add(t->vocab, piece, size, id, err);
    }
    return status;
}

static bauta_status added_list(const reading *r, const json_t *list,
                               bt_added_token *tokens, bauta_error *err)
{
    bauta_tokenizer *t = r->tokenizer;
    size_t count = json_array_size(list);
    bauta_status status = vocab_detach(r, list, err);
    for (size_t i = 0; !status && i < count; i++)
        status = added_read(&tokens[i], r, json_array_get(list, i), err);
    for (size_t i = 0; !status && i < count; i++)
        if (tokens[i].special)
            status = bt_tokenizer_mark(t, tokens[i].id, err);
    if (!status)
        status = bt_added_create(&t->added, tokens, count, t->normalizer,
                                 r->path, err);
    return status;
}

static bauta_status added_tokens(const reading *r, const json_t *list,
                                 bauta_error *err)
{
    if (list && !json_is_array(list))
        return wrong(r->path, "added_tokens", "is not a list", err);
    size_t count = json_array_size(list);
    bt_added_token *tokens = bt_alloc(bt_size_mul(count, sizeof(*tokens)));
    if (!tokens)
        return bt_fail_memory(err, "added tokens", count * sizeof(*tokens));
    bauta_status status = added_list(r, list, tokens, err);
    bt_free(tokens);
    return status;
}

/* ---- the document ------------------------------------------------------ */

/* What the usual names say of a token's part, until a folder says better. */
static void names_guess(bauta_tokenizer *t)
{
    static const struct {
        bauta_token_name name;
        const char *piece;
    } usual[] = { { BAUTA_TOKEN_BOS, "<s>" },
                  { BAUTA_TOKEN_BOS, "<|begin_of_text|>" },
                  { BAUTA_TOKEN_BOS, "<bos>" },
                  { BAUTA_TOKEN_BOS, "<|endoftext|>" },
                  { BAUTA_TOKEN_EOS, "</s>" },
                  { BAUTA_TOKEN_EOS, "<|end_of_text|>" },
                  { BAUTA_TOKEN_EOS, "<eos>" },
                  { BAUTA_TOKEN_EOS, "<|endoftext|>" },
                  { BAUTA_TOKEN_UNK, "[UNK]" },
                  { BAUTA_TOKEN_UNK, "<unk>" },
                  { BAUTA_TOKEN_PAD, "[PAD]" },
                  { BAUTA_TOKEN_PAD, "<pad>" },
                  { BAUTA_TOKEN_CLS, "[CLS]" },
                  { BAUTA_TOKEN_SEP, "[SEP]" },
                  { BAUTA_TOKEN_MASK, "[MASK]" },
                  { BAUTA_TOKEN_MASK, "<mask>" } };
    for (size_t i = 0; i < BT_LEN(usual); i++) {
        uint32_t *name = &t->names[usual[i].name];
        uint32_t id =
            bt_vocab_find(t->vocab, usual[i].piece, strlen(usual[i].piece));
        if (*name == BT_NO_ID && bauta_tokenizer_special(t, id))
            *name = id;
    }
}

static bauta_status document_fill(bauta_tokenizer *t, const json_t *document,
                                  const char *path, bauta_error *err)
{
    reading r = { t, json_object_get(document, "model"), path };
    bauta_status status;
    (void)((status = bt_vocab_create(&t->vocab, err)) ||
           (status = bt_normalizer_parse(
                &t->normalizer, given(document, "normalizer"), path, err)) ||
           (status = bt_pretokenizer_parse(&t->pretokenizer,
                                           given(document, "pre_tokenizer"),
                                           path, err)));
    if (status)
        return status;
    t->bytelevel = bt_pretokenizer_bytelevel(t->pretokenizer);
    (void)((status = model_read(&r, err)) ||
           (status = added_tokens(&r, given(document, "added_tokens"), err)) ||
           (status = bt_template_parse(&t->single, &t->pair,
                                       given(document, "post_processor"),
                                       bt_vocab_size(t->vocab), path, err)) ||
           (status = bt_decoding_parse(&t->decoding, given(document, "decoder"),
                                       path, err)));
    if (!status)
        names_guess(t);
    return status;
}

bauta_status bt_document_tokenizer(bauta_tokenizer **out,
                                   const json_t *document, const char *path,
                                   bauta_error *err)
{
    bauta_tokenizer *made;
    *out = NULL;
    bauta_status status = bt_tokenizer_create(&made, err);
    if (!status)
        status = document_fill(made, document, path, err);
    if (status) {
        bauta_tokenizer_free(made);
        return status;
    }
    *out = made;
    return BAUTA_OK;
}

bauta_status bt_tokenizer_parse_json(bauta_tokenizer **out, const char *text,
                                     size_t size, const char *path,
                                     bauta_error *err)
{
    json_t *document;
    *out = NULL;
    bauta_status status = bt_document_read(&document, text, size, path, err);
    if (status)
        return status;
    status = bt_document_tokenizer(out, document, path, err);
    json_decref(document);
    return status;
}
