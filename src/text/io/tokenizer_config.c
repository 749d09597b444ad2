/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_config.c - tokenizer_config.json and config.json; see
 * tokenizer_config.h. */
#include "text/io/tokenizer_config.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const bt_special_token_keys[BAUTA_TOKEN_COUNT] = {
    [BAUTA_TOKEN_BOS] = "bos_token",   [BAUTA_TOKEN_EOS] = "eos_token",
    [BAUTA_TOKEN_UNK] = "unk_token",   [BAUTA_TOKEN_PAD] = "pad_token",
    [BAUTA_TOKEN_CLS] = "cls_token",   [BAUTA_TOKEN_SEP] = "sep_token",
    [BAUTA_TOKEN_MASK] = "mask_token",
};

static const bt_tokenizer_class classes[] = {
    { "GPT2Tokenizer",
      "gpt2",
      { "<|endoftext|>", "<|endoftext|>", "<|endoftext|>" },
      .bos = false },
    { "RobertaTokenizer",
      "roberta",
      { "<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>" },
      .roberta_pair = true },
    { "BartTokenizer",
      "bart",
      { "<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>" },
      .roberta_pair = true },
    { "BertTokenizer",
      "bert",
      { NULL, NULL, "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]" },
      .cls_sep = true },
    { "LlamaTokenizer", "llama", { "<s>", "</s>", "<unk>" }, .bos = true },
    { "GemmaTokenizer",
      "gemma",
      { "<bos>", "<eos>", "<unk>", "<pad>" },
      .bos = true },
    { "T5Tokenizer",
      "t5",
      { NULL, "</s>", "<unk>", "<pad>" },
      .eos = true,
      .sentinels = 100 },
    { "AlbertTokenizer",
      "albert",
      { "[CLS]", "[SEP]", "<unk>", "<pad>", "[CLS]", "[SEP]", "[MASK]" },
      .cls_sep = true },
    { "MarianTokenizer",
      "marian",
      { NULL, "</s>", "<unk>", "<pad>" },
      .eos = true },
};
const bt_tokenizer_class bt_tokenizer_class_none = { 0 };

const bt_tokenizer_class *bt_tokenizer_class_of(const char *model_type)
{
    for (size_t i = 0; i < BT_LEN(classes); i++)
        if (!strcmp(classes[i].model_type, model_type))
            return &classes[i];
    return &bt_tokenizer_class_none;
}

bauta_status bt_tokenizer_folder_read(char **out, size_t *size,
                                      const char *path, const char *name,
                                      size_t limit, bauta_error *err)
{
    *out = NULL;
    *size = 0;
    char *joined = bt_path_join(path, name);
    if (!joined)
        return bt_fail_memory(err, "a path", strlen(path));
    bauta_status status = BAUTA_OK;
    if (bt_file_exists(joined))
        status = bt_file_read(out, size, joined, limit, err);
    bt_free(joined);
    return status;
}

bauta_status bt_tokenizer_folder_read_json(json_t **out, const char *path,
                                           const char *name, bauta_error *err)
{
    char *text;
    size_t size;
    *out = NULL;
    bauta_status status = bt_tokenizer_folder_read(
        &text, &size, path, name, BT_TOKENIZER_CONFIG_MAX, err);
    char *joined = text ? bt_path_join(path, name) : NULL;
    const char *shown = joined ? bt_path_tail(joined) : name;
    // transformers writes a model_max_length of 10^30 for no limit.
    unsigned reals = strcmp(name, "tokenizer_config.json") ? 0 : BT_JSON_REALS;
    if (!status && text)
        status = bt_json_parse_object(out, text, size, BT_JSON_NUL | reals,
                                      shown, err);
    bt_free(joined);
    bt_free(text);
    return status;
}

static bool same_class(const char *class, const char *is)
{
    size_t n = strlen(is);
    return class && !strncmp(class, is, n) &&
           (!class[n] || !strcmp(class + n, "Fast"));
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

bauta_status bt_tokenizer_config_init(bt_tokenizer_config *f, const char *path,
                                      bauta_error *err)
{
    json_t *model = NULL;
    *f = (bt_tokenizer_config){ .path = path,
                                .class = &bt_tokenizer_class_none };
    bauta_status status = bt_tokenizer_folder_read_json(
        &f->config, path, "tokenizer_config.json", err);
    if (!status)
        status =
            bt_tokenizer_folder_read_json(&model, path, "config.json", err);
    const char *class = text_of(f->config, "tokenizer_class");
    const char *type = text_of(model, "model_type");
    for (size_t i = 0; i < BT_LEN(classes); i++)
        if (class ? same_class(class, classes[i].name)
                  : type && !strcmp(type, classes[i].model_type))
            f->class = &classes[i];
    json_decref(model);
    return status;
}

const char *bt_tokenizer_config_special_token(const bt_tokenizer_config *f,
                                              bauta_special_token name)
{
    const json_t *value =
        json_object_get(f->config, bt_special_token_keys[name]);
    if (!value)
        return f->class->special_tokens[name];
    if (json_is_object(value))
        value = json_object_get(value, "content");
    return json_string_value(value);
}

bool bt_tokenizer_config_bool(const bt_tokenizer_config *f, const char *key,
                              bool fallback)
{
    const json_t *value = json_object_get(f->config, key);
    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

void bt_tokenizer_config_apply_special_tokens(bauta_tokenizer *t,
                                              const bt_tokenizer_config *f)
{
    for (unsigned i = 0; i < BAUTA_TOKEN_COUNT; i++) {
        const char *piece =
            bt_tokenizer_config_special_token(f, (bauta_special_token)i);
        uint32_t id =
            piece ? bt_vocab_find(t->vocab, piece, strlen(piece)) : BT_NO_ID;
        if (id != BT_NO_ID)
            t->special_ids[i] = id;
    }
}

/* ---- Completing a tokenizer.json ----------------------------------------- */

static const char *content_of(const json_t *token)
{
    return json_string_value(json_object_get(token, "content"));
}

/* The list "added_tokens" and its contents. */
typedef struct additions {
    json_t *list;
    bt_vocab *seen;
} additions;

/* Add a token unless it is in the list. */
static int token_add(additions *a, const char *content, json_int_t id,
                     bool special, bool lstrip, bool rstrip, bool single_word,
                     bool normalized)
{
    size_t size = strlen(content);
    if (bt_vocab_find(a->seen, content, size) != BT_NO_ID)
        return 0;
    if (bt_vocab_add(a->seen, content, size, (uint32_t)bt_vocab_size(a->seen),
                     NULL))
        return -1;
    return json_array_append_new(
        a->list,
        json_pack("{s:I,s:s,s:b,s:b,s:b,s:b,s:b}", "id", id, "content", content,
                  "special", special, "lstrip", lstrip, "rstrip", rstrip,
                  "single_word", single_word, "normalized", normalized));
}

/* added_tokens_decoder: {"50256": {"content": "<|endoftext|>", ...}, ...} */
static int tokens_decoder_add(additions *a, const json_t *tokens)
{
    const char *key;
    json_t *t;
    json_object_foreach((json_t *)tokens, key, t)
    {
        const char *content = content_of(t);
        if (content &&
            token_add(a, content, (json_int_t)strtoll(key, NULL, 10),
                      json_is_true(json_object_get(t, "special")),
                      json_is_true(json_object_get(t, "lstrip")),
                      json_is_true(json_object_get(t, "rstrip")),
                      json_is_true(json_object_get(t, "single_word")),
                      json_is_true(json_object_get(t, "normalized"))))
            return -1;
    }
    return 0;
}

/* added_tokens.json: {"<|endoftext|>": 50256, ...} */
static int object_add(additions *a, const json_t *tokens)
{
    const char *content;
    json_t *id;
    json_object_foreach((json_t *)tokens, content,
                        id) if (token_add(a, content, json_integer_value(id),
                                          false, false, false, false,
                                          true)) return -1;
    return 0;
}

static json_int_t document_id(const bt_tokenizer_json *document,
                              const char *piece)
{
    uint32_t id =
        piece ? bt_vocab_find(document->vocab, piece, strlen(piece)) : BT_NO_ID;
    return id == BT_NO_ID ? -1 : (json_int_t)id;
}

static int named_tokens_add(additions *a, const bt_tokenizer_json *document,
                            const bt_tokenizer_config *f)
{
    for (unsigned i = 0; i < BAUTA_TOKEN_COUNT; i++) {
        const char *piece =
            bt_tokenizer_config_special_token(f, (bauta_special_token)i);
        json_int_t id = document_id(document, piece);
        if (id >= 0 &&
            token_add(a, piece, id, true,
                      i == BAUTA_TOKEN_MASK && f->class->roberta_pair, false,
                      false, false))
            return -1;
    }
    return 0;
}

/* Add the template with [CLS] and [SEP] if the class has one. */
static int template_add(const bt_tokenizer_json *document,
                        const bt_tokenizer_config *f)
{
    const char *cls = bt_tokenizer_config_special_token(f, BAUTA_TOKEN_CLS);
    const char *sep = bt_tokenizer_config_special_token(f, BAUTA_TOKEN_SEP);
    json_int_t cls_id = document_id(document, cls);
    json_int_t sep_id = document_id(document, sep);
    if (!(f->class->cls_sep || f->class->roberta_pair) || cls_id < 0 ||
        sep_id < 0)
        return 0;
    return json_object_set_new(
        document->root, "post_processor",
        json_pack("{s:s,s:[sI],s:[sI]}", "type",
                  f->class->roberta_pair ? "RobertaProcessing"
                                         : "BertProcessing",
                  "sep", sep, sep_id, "cls", cls, cls_id));
}

bauta_status bt_tokenizer_config_build(bauta_tokenizer **out,
                                       bt_tokenizer_json *document,
                                       const bt_tokenizer_config *f,
                                       bauta_error *err)
{
    json_t *file = NULL;
    additions a = { json_object_get(document->root, "added_tokens"), NULL };
    bauta_status status = bt_vocab_create(&a.seen, err);
    if (!status)
        status = bt_tokenizer_folder_read_json(&file, f->path,
                                               "added_tokens.json", err);
    if (!status &&
        (tokens_decoder_add(
             &a, json_object_get(f->config, "added_tokens_decoder")) ||
         named_tokens_add(&a, document, f) || object_add(&a, file) ||
         template_add(document, f)))
        status = bt_fail_memory(err, "added tokens", 0);
    json_decref(file);
    bt_vocab_free(a.seen);
    return status ? status : bt_tokenizer_json_build(out, document, err);
}

/* ---- Completing a SentencePiece model ------------------------------------ */

static int special_add(additions *a, const char *piece, uint32_t id)
{
    if (!piece || id == BT_NO_ID)
        return 0;
    return token_add(a, piece, id, true, false, false, false, false);
}

/* The special tokens by name, and those of "additional_special_tokens" that the
 * model has as pieces. */
static int specials_add(additions *a, const bauta_tokenizer *t,
                        const bt_tokenizer_config *f)
{
    size_t i;
    json_t *more;
    for (i = 0; i < BAUTA_TOKEN_COUNT; i++)
        if (special_add(
                a, bt_tokenizer_config_special_token(f, (bauta_special_token)i),
                t->special_ids[i]))
            return -1;
    json_array_foreach(json_object_get(f->config, "additional_special_tokens"),
                       i, more)
    {
        const char *piece =
            json_is_object(more) ? content_of(more) : json_string_value(more);
        if (piece && special_add(a, piece,
                                 bt_vocab_find(t->vocab, piece, strlen(piece))))
            return -1;
    }
    return 0;
}

/* How many sentinels T5's tokenizer adds; none if they are pieces. */
static bauta_status sentinels_count(size_t *count, const bauta_tokenizer *t,
                                    const bt_tokenizer_config *f,
                                    bauta_error *err)
{
    enum { SENTINELS_MAX = 10000 };
    const json_t *given = json_object_get(f->config, "extra_ids");
    double number = json_is_number(given) ? json_number_value(given)
                                          : (double)f->class->sentinels;
    if (!(number >= 0.0 && number <= SENTINELS_MAX))
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: extra_ids of tokenizer_config.json is not 0 to %d",
                       bt_path_tail(f->path), SENTINELS_MAX);
    bool pieces = bt_vocab_find(t->vocab, "<extra_id_0>", 12) != BT_NO_ID;
    *count = pieces ? 0 : (size_t)number;
    return BAUTA_OK;
}

/* <extra_id_0>, ... have the ids after the pieces, in reverse. */
static int sentinels_add(additions *a, const bauta_tokenizer *t, size_t count)
{
    size_t pieces = bt_vocab_size(t->vocab);
    for (size_t i = 0; i < count; i++) {
        char piece[32];
        snprintf(piece, sizeof(piece), "<extra_id_%zu>", count - 1 - i);
        if (special_add(a, piece, (uint32_t)(pieces + i)))
            return -1;
    }
    return 0;
}

/* Replace the added tokens of a tokenizer. Control pieces stay special. */
static bauta_status added_replace(bauta_tokenizer *t, const json_t *list,
                                  const char *path, bauta_error *err)
{
    const bt_tokenizer_build b = { .tokenizer = t, .path = path };
    size_t pieces = bt_vocab_size(t->vocab);
    unsigned char *controls = t->is_special;
    bt_added_tokens_free(t->added_tokens);
    t->added_tokens = NULL;
    t->is_special = NULL; // its size is that of the vocabulary, which grows
    bauta_status status = bt_tokenizer_build_added_tokens(&b, list, err);
    for (size_t i = 0; i < pieces && !status; i++)
        if (controls[i])
            status = bt_tokenizer_mark_special(t, (uint32_t)i, err);
    bt_free(controls);
    return status;
}

/* Make the special tokens of the folder added tokens, and add its others. */
static bauta_status tokens_add(bauta_tokenizer *t, const bt_tokenizer_config *f,
                               const char *path, bauta_error *err)
{
    json_t *file = NULL;
    size_t sentinels = 0;
    additions a = { json_array(), NULL };
    bauta_status status = a.list ? bt_vocab_create(&a.seen, err)
                                 : bt_fail_memory(err, "added tokens", 0);
    if (!status)
        status = sentinels_count(&sentinels, t, f, err);
    if (!status)
        status = bt_tokenizer_folder_read_json(&file, f->path,
                                               "added_tokens.json", err);
    if (!status &&
        (specials_add(&a, t, f) ||
         tokens_decoder_add(
             &a, json_object_get(f->config, "added_tokens_decoder")) ||
         sentinels_add(&a, t, sentinels) || object_add(&a, file)))
        status = bt_fail_memory(err, "added tokens", 0);
    if (!status)
        status = added_replace(t, a.list, path, err);
    json_decref(file);
    json_decref(a.list);
    bt_vocab_free(a.seen);
    return status;
}

bauta_status
bt_tokenizer_config_complete_sentencepiece(bauta_tokenizer *t,
                                           const bt_tokenizer_config *f,
                                           const char *path, bauta_error *err)
{
    bool cls = f->class->cls_sep;
    uint32_t first = t->special_ids[cls ? BAUTA_TOKEN_CLS : BAUTA_TOKEN_BOS];
    uint32_t last = t->special_ids[cls ? BAUTA_TOKEN_SEP : BAUTA_TOKEN_EOS];
    bool before =
        cls || bt_tokenizer_config_bool(f, "add_bos_token", f->class->bos);
    bool after =
        cls || bt_tokenizer_config_bool(f, "add_eos_token", f->class->eos);
    bauta_status status = tokens_add(t, f, path, err);
    if (status)
        return status;
    bt_template_release(&t->single);
    bt_template_release(&t->pair);
    return bt_template_wrap(&t->single, &t->pair, &first,
                            before && first != BT_NO_ID, &last,
                            after && last != BT_NO_ID, err);
}
