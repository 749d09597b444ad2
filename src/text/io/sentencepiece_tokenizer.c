/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece_tokenizer.c - a SentencePiece model as a tokenizer.
 *
 * It has no pre-tokenizer, no template and no added tokens: the model itself
 * finds user-defined pieces, and control pieces are never found in a text. */
#include "text/io/sentencepiece_tokenizer.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "text/io/json_members.h"
#include "text/subword/sentencepiece_bpe.h"
#include "text/subword/trie.h"

#include <stdio.h>
#include <string.h>

/* ---- Vocabulary ---------------------------------------------------------- */

bauta_status bt_sentencepiece_vocab(bt_vocab **out,
                                    const bt_sentencepiece *model,
                                    const char *path, bauta_error *err)
{
    bauta_status status = bt_vocab_create(out, err);
    for (size_t i = 0; !status && i < model->count; i++) {
        const bt_byte_view *text = &model->pieces[i].text;
        status = bt_vocab_add_from_file(*out, text->bytes, text->size,
                                        (uint32_t)i, path, err);
    }
    return status;
}

/* The id of a piece by the name in the model, or by the default name; it must
 * have this type. */
static uint32_t find_piece(const bauta_tokenizer *t,
                           const bt_sentencepiece *model, bt_byte_view name,
                           const char *fallback, bt_piece_type type)
{
    if (name.size == 0)
        name = (bt_byte_view){ fallback, strlen(fallback) };
    uint32_t id = bt_vocab_find(t->vocab, name.bytes, name.size);
    return id != BT_NO_ID && model->pieces[id].type == type ? id : BT_NO_ID;
}

static void names_fill(bauta_tokenizer *t, const bt_sentencepiece *model)
{
    t->special_ids[BAUTA_TOKEN_UNK] = model->unknown;
    t->special_ids[BAUTA_TOKEN_BOS] =
        find_piece(t, model, model->bos_piece, "<s>", BT_PIECE_CONTROL);
    t->special_ids[BAUTA_TOKEN_EOS] =
        find_piece(t, model, model->eos_piece, "</s>", BT_PIECE_CONTROL);
    t->special_ids[BAUTA_TOKEN_PAD] =
        find_piece(t, model, model->pad_piece, "<pad>", BT_PIECE_CONTROL);
}

static bauta_status special_fill(bauta_tokenizer *t,
                                 const bt_sentencepiece *model,
                                 bauta_error *err)
{
    t->is_special = bt_alloc_zero(model->count, 1);
    if (!t->is_special)
        return bt_fail_memory(err, "the marks of special tokens", model->count);
    for (size_t i = 0; i < model->count; i++)
        t->is_special[i] = model->pieces[i].type == BT_PIECE_CONTROL;
    return BAUTA_OK;
}

/* The text of the unknown piece, if the model has one; it ends at a NUL. */
static bauta_status surface_fill(bauta_tokenizer *t,
                                 const bt_sentencepiece *model,
                                 bauta_error *err)
{
    t->sentencepiece = true;
    if (!model->unk_surface.bytes)
        return BAUTA_OK;
    size_t size = model->unk_surface.size;
    t->unknown_surface = bt_alloc_zero(size + 1, 1);
    if (!t->unknown_surface)
        return bt_fail_memory(err, "unk_surface", size + 1);
    memcpy(t->unknown_surface, model->unk_surface.bytes, size);
    return BAUTA_OK;
}

/* ---- Normalizer ---------------------------------------------------------- */

bauta_status bt_sentencepiece_normalizer(bt_normalizer **out,
                                         const bt_sentencepiece *model,
                                         const bt_vocab *vocab, bool codes,
                                         const char *path, bauta_error *err)
{
    bt_sentencepiece_normalizer_spec spec = {
        .charsmap = model->charsmap.bytes,
        .charsmap_size = model->charsmap.size,
        .add_dummy_prefix = model->add_dummy_prefix,
        .remove_extra_whitespaces = model->remove_extra_whitespaces,
        .escape_whitespaces = model->escape_whitespaces,
        .whitespace_as_suffix = model->whitespace_suffix,
        .language_codes = codes
    };
    size_t size;
    const char **kept = bt_alloc(model->count * sizeof(*kept));
    *out = NULL;
    if (!kept)
        return bt_fail_memory(err, "pieces", model->count * sizeof(*kept));
    for (uint32_t i = 0; i < model->count; i++)
        if (model->pieces[i].type == BT_PIECE_USER)
            kept[spec.user_defined_count++] = bt_vocab_piece(vocab, i, &size);
    spec.user_defined = kept;
    bauta_status status = bt_normalizer_sentencepiece(out, &spec, path, err);
    bt_free(kept);
    return status;
}

/* ---- Subword model ------------------------------------------------------- */

static bauta_status unigram_create(bt_subword_model **out,
                                   const bt_sentencepiece *model,
                                   const bt_vocab *vocab, const char *path,
                                   bauta_error *err)
{
    double *scores = bt_alloc(model->count * sizeof(*scores));
    unsigned char *kinds = bt_alloc(model->count);
    bauta_status status;
    if (!scores || !kinds) {
        status = bt_fail_memory(err, "scores", model->count * sizeof(*scores));
        goto done;
    }
    for (size_t i = 0; i < model->count; i++) {
        bt_piece_type type = model->pieces[i].type;
        scores[i] = (double)model->pieces[i].score;
        kinds[i] = type == BT_PIECE_NORMAL ? BT_UNIGRAM_NORMAL
                   : type == BT_PIECE_USER ? BT_UNIGRAM_USER_DEFINED
                                           : BT_UNIGRAM_HIDDEN;
    }
    bt_unigram_spec spec = { .vocab = vocab,
                             .scores = scores,
                             .kinds = kinds,
                             .unknown = model->unknown,
                             .byte_fallback = model->byte_fallback,
                             .float32_scores = true };
    status = bt_unigram_create(out, &spec, path, err);
done:
    bt_free(scores);
    bt_free(kinds);
    return status;
}

bauta_status bt_sentencepiece_subword(bt_subword_model **out,
                                      const bt_sentencepiece *model,
                                      const bt_vocab *vocab, const char *path,
                                      bauta_error *err)
{
    switch (model->model) {
    case BT_PIECE_MODEL_UNIGRAM:
        return unigram_create(out, model, vocab, path, err);
    case BT_PIECE_MODEL_BPE:
    case BT_PIECE_MODEL_CHAR:
        return bt_sentencepiece_bpe_create(out, model, path, err);
    case BT_PIECE_MODEL_WORD:
        break;
    }
    return bt_sentencepiece_word_create(out, model, vocab, err);
}

/* ---- Tokenizer ----------------------------------------------------------- */

/* Pieces that are searched at every byte must be short, or a crafted model
 * would make encoding very slow. Whole words are looked up once. */
static bauta_status lengths_check(const bt_sentencepiece *model,
                                  const char *path, bauta_error *err)
{
    for (size_t i = 0; i < model->count; i++) {
        const bt_piece *p = model->pieces + i;
        bool everywhere =
            p->type == BT_PIECE_USER || model->model != BT_PIECE_MODEL_WORD;
        if (everywhere && p->text.size > BT_SEARCHED_PIECE_MAX)
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "%s: piece %zu has %zu bytes; at most %d are "
                           "supported",
                           bt_path_tail(path), i, p->text.size,
                           BT_SEARCHED_PIECE_MAX);
    }
    return BAUTA_OK;
}

bauta_status bt_sentencepiece_check(const bt_sentencepiece *model,
                                    const char *path, bauta_error *err)
{
    if (model->denormalizer_charsmap.size > 0)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: a map for decoding (denormalizer_spec) is not "
                       "supported",
                       bt_path_tail(path));
    if (model->unk_surface.size > BT_SEARCHED_PIECE_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: unk_surface has %zu bytes; at most %d are "
                       "supported",
                       bt_path_tail(path), model->unk_surface.size,
                       BT_SEARCHED_PIECE_MAX);
    return lengths_check(model, path, err);
}

static bauta_status fill(bauta_tokenizer *t, const bt_sentencepiece *model,
                         const char *path, bauta_error *err)
{
    bauta_status status = bt_sentencepiece_check(model, path, err);
    if (!status)
        status = bt_sentencepiece_vocab(&t->vocab, model, path, err);
    if (status)
        return status;
    names_fill(t, model);
    status = special_fill(t, model, err);
    if (!status)
        status = surface_fill(t, model, err);
    if (!status)
        status = bt_sentencepiece_normalizer(&t->normalizer, model, t->vocab,
                                             false, path, err);
    if (!status)
        status =
            bt_sentencepiece_subword(&t->model, model, t->vocab, path, err);
    if (!status)
        status =
            bt_added_tokens_create(&t->added_tokens, NULL, 0, NULL, path, err);
    if (!status)
        status = bt_template_wrap(&t->single, &t->pair, NULL, 0, NULL, 0, err);
    if (!status)
        status = bt_detokenizer_chain_sentencepiece(
            &t->detokenizer, model->add_dummy_prefix,
            model->remove_extra_whitespaces, err);
    return status;
}

bauta_status bt_tokenizer_parse_sentencepiece(bauta_tokenizer **out,
                                              const void *bytes, size_t size,
                                              const char *path,
                                              bauta_error *err)
{
    bt_sentencepiece model;
    bauta_tokenizer *tokenizer = NULL;
    *out = NULL;
    bauta_status status =
        bt_sentencepiece_parse(&model, bytes, size, path, err);
    if (!status)
        status = bt_tokenizer_create(&tokenizer, err);
    if (!status)
        status = fill(tokenizer, &model, path, err);
    bt_sentencepiece_release(&model);
    if (status) {
        bauta_tokenizer_free(tokenizer);
        return status;
    }
    *out = tokenizer;
    return BAUTA_OK;
}
