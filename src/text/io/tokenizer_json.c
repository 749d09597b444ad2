/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json.c - building a tokenizer from a tokenizer.json: the added
 * tokens, and the order of all parts. */
#include "text/io/tokenizer_json.h"
#include "text/io/json_members.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* ---- Added tokens -------------------------------------------------------- */

/* A token that is in the vocabulary keeps its id there. */
static bauta_status read_added(bt_added_token *token,
                               const bt_tokenizer_build *b, const json_t *entry,
                               bauta_error *err)
{
    bt_vocab *vocab = b->tokenizer->vocab;
    const json_t *content = json_object_get(entry, "content");
    if (!json_is_string(content))
        return bt_member_fail(b->path, "content",
                              "of an added token is not a string", err);
    *token = (bt_added_token){ .content = json_string_value(content),
                               .size = json_string_length(content) };
    bauta_status status = bt_member_token_id(
        &token->id, json_object_get(entry, "id"), token->content, b->path, err);
    (void)(status ||
           (status = bt_member_bool(&token->special, entry, "special", b->path,
                                    err)) ||
           (status = bt_member_bool(&token->single_word, entry, "single_word",
                                    b->path, err)) ||
           (status = bt_member_bool(&token->lstrip, entry, "lstrip", b->path,
                                    err)) ||
           (status = bt_member_bool(&token->rstrip, entry, "rstrip", b->path,
                                    err)) ||
           (status = bt_member_bool(&token->normalized, entry, "normalized",
                                    b->path, err)));
    if (status)
        return status;
    uint32_t known = bt_vocab_find(vocab, token->content, token->size);
    if (known == BT_NO_ID)
        return bt_vocab_add_from_file(vocab, token->content, token->size,
                                      token->id, b->path, err);
    token->id = known;
    return BAUTA_OK;
}

/* The model must not find added tokens in a split. If one is not in its
 * vocabulary, the model keeps the vocabulary and the tokenizer gets a copy to
 * add to. */
static bauta_status detach_vocab(const bt_tokenizer_build *b,
                                 const json_t *list, bauta_error *err)
{
    bauta_tokenizer *t = b->tokenizer;
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
    t->model_vocab = t->vocab;
    t->vocab = NULL;
    bauta_status status = bt_vocab_create(&t->vocab, err);
    for (uint32_t id = 0; !status && id < bt_vocab_size(t->model_vocab); id++) {
        const char *piece = bt_vocab_piece(t->model_vocab, id, &size);
        if (piece)
            status = bt_vocab_add(t->vocab, piece, size, id, err);
    }
    return status;
}

static bauta_status read_added_list(const bt_tokenizer_build *b,
                                    const json_t *list, bt_added_token *tokens,
                                    bauta_error *err)
{
    bauta_tokenizer *t = b->tokenizer;
    size_t count = json_array_size(list);
    bauta_status status = detach_vocab(b, list, err);
    for (size_t i = 0; !status && i < count; i++)
        status = read_added(&tokens[i], b, json_array_get(list, i), err);
    for (size_t i = 0; !status && i < count; i++)
        if (tokens[i].special)
            status = bt_tokenizer_mark_special(t, tokens[i].id, err);
    if (!status)
        status = bt_added_tokens_create(&t->added_tokens, tokens, count,
                                        t->normalizer, b->path, err);
    return status;
}

bauta_status bt_tokenizer_build_added_tokens(const bt_tokenizer_build *b,
                                             const json_t *list,
                                             bauta_error *err)
{
    if (list && !json_is_array(list))
        return bt_member_fail(b->path, "added_tokens", "is not a list", err);
    size_t count = json_array_size(list);
    bt_added_token *tokens = bt_alloc(bt_size_mul(count, sizeof(*tokens)));
    if (!tokens)
        return bt_fail_memory(err, "added tokens", count * sizeof(*tokens));
    bauta_status status = read_added_list(b, list, tokens, err);
    bt_free(tokens);
    return status;
}

/* ---- Tokenizer ----------------------------------------------------------- */

/* The ids of a template must be tokens; the vocabulary may have gaps. */
static bauta_status template_check(const bauta_tokenizer *t,
                                   const bt_template *template,
                                   const char *path, bauta_error *err)
{
    for (size_t i = 0; i < template->count; i++) {
        uint32_t id = template->items[i].id;
        size_t size;
        if (id != BT_TEMPLATE_A && id != BT_TEMPLATE_B &&
            !bt_vocab_piece(t->vocab, id, &size))
            return bt_fail(err, BAUTA_ERR_FORMAT,
                           "%s: the post-processor adds token %u, and no "
                           "token has this id",
                           bt_path_tail(path), (unsigned)id);
    }
    return BAUTA_OK;
}

/* Special tokens by their usual names; tokenizer_config.json may override
 * them. */
static void guess_special_tokens(bauta_tokenizer *t)
{
    static const struct {
        bauta_special_token name;
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
        uint32_t *name = &t->special_ids[usual[i].name];
        uint32_t id =
            bt_vocab_find(t->vocab, usual[i].piece, strlen(usual[i].piece));
        if (*name == BT_NO_ID && bauta_tokenizer_is_special(t, id))
            *name = id;
    }
}

static bauta_status document_fill(bauta_tokenizer *t, bt_tokenizer_json *d,
                                  bauta_error *err)
{
    const json_t *document = d->root;
    const char *path = d->path;
    bt_tokenizer_build b = { t, json_object_get(document, "model"), path, d };
    bauta_status status;
    t->vocab = d->vocab;
    d->vocab = NULL;
    (void)((status = bt_normalizer_parse(&t->normalizer,
                                         bt_member_get(document, "normalizer"),
                                         path, err)) ||
           (status = bt_pretokenizer_parse(
                &t->pretokenizer, bt_member_get(document, "pre_tokenizer"),
                path, err)));
    if (status)
        return status;
    t->bytelevel = bt_pretokenizer_bytelevel(t->pretokenizer);
    (void)((status = bt_tokenizer_build_model(&b, err)) ||
           (status = bt_tokenizer_build_added_tokens(
                &b, bt_member_get(document, "added_tokens"), err)) ||
           (status = bt_template_parse(
                &t->single, &t->pair, bt_member_get(document, "post_processor"),
                bt_vocab_size(t->vocab), path, err)) ||
           (status = template_check(t, &t->single, path, err)) ||
           (status = template_check(t, &t->pair, path, err)) ||
           (status = bt_detokenizer_chain_parse(
                &t->detokenizer, bt_member_get(document, "decoder"), path,
                err)));
    if (!status)
        guess_special_tokens(t);
    return status;
}

bauta_status bt_tokenizer_json_build(bauta_tokenizer **out,
                                     bt_tokenizer_json *document,
                                     bauta_error *err)
{
    bauta_tokenizer *tokenizer;
    *out = NULL;
    bauta_status status = bt_tokenizer_create(&tokenizer, err);
    if (!status)
        status = document_fill(tokenizer, document, err);
    if (status) {
        bauta_tokenizer_free(tokenizer);
        return status;
    }
    *out = tokenizer;
    return BAUTA_OK;
}

bauta_status bt_tokenizer_parse_json(bauta_tokenizer **out, const char *text,
                                     size_t size, const char *path,
                                     bauta_error *err)
{
    bt_tokenizer_json document;
    *out = NULL;
    bauta_status status =
        bt_tokenizer_json_init(&document, text, size, path, err);
    if (!status)
        status = bt_tokenizer_json_build(out, &document, err);
    bt_tokenizer_json_release(&document);
    return status;
}
