/* SPDX-License-Identifier: Apache-2.0 */
/* wordlevel.c - models of whole words: WordLevel of Hugging Face's library, and
 * the WORD models of SentencePiece. */
#include "base/error.h"
#include "base/memory.h"
#include "text/subword/sentencepiece_bpe.h"
#include "text/subword/subword_model.h"

#include <string.h>

/* ---- WordLevel: a split is a piece or unknown ---------------------------- */

typedef struct wordlevel {
    bt_subword_model base;
    const bt_vocab *vocab;
    uint32_t unknown;
} wordlevel;

static bauta_status wordlevel_encode(const bt_subword_model *model,
                                     const char *split, size_t size,
                                     bt_subword_workspace *work,
                                     bauta_error *err)
{
    const wordlevel *w = (const wordlevel *)model;
    uint32_t id = bt_vocab_find(w->vocab, split, size);
    if (size == 0)
        return BAUTA_OK;
    if (id == BT_NO_ID)
        id = w->unknown;
    if (id == BT_NO_ID)
        return bt_fail_unknown_token(err, split, size);
    return bt_subword_append(work, (bt_token){ id, 0, (uint32_t)size }, err);
}

static void wordlevel_free(bt_subword_model *model)
{
    bt_free(model);
}

bauta_status bt_wordlevel_create(bt_subword_model **out, const bt_vocab *vocab,
                                 uint32_t unknown, bauta_error *err)
{
    wordlevel *w = bt_alloc(sizeof(*w));
    *out = NULL;
    if (!w)
        return bt_fail_memory(err, "a tokenizer", sizeof(*w));
    *w = (wordlevel){ { wordlevel_encode, wordlevel_free }, vocab, unknown };
    *out = &w->base;
    return BAUTA_OK;
}

/* ---- SentencePiece: words begin at U+2581 ---------------------------------
 */

#define METASPACE "\xE2\x96\x81"

/* A word is a piece or unknown. SentencePiece encodes a word that is spelled
 * like a control piece as that piece; here no text can do that. */
typedef struct words {
    bt_subword_model base;
    const bt_vocab *vocab;
    uint32_t unknown;
    bool byte_fallback;
    uint32_t bytes[256];   /* ids of the byte pieces */
    unsigned char found[]; /* by id: may occur in a text */
} words;

/* The end of the word that begins at `at`. */
static size_t word_end(const char *split, size_t size, size_t at)
{
    size_t mark = sizeof(METASPACE) - 1;
    for (at++; at < size; at++)
        if (size - at >= mark && memcmp(split + at, METASPACE, mark) == 0)
            return at;
    return size;
}

/* An unknown word: its bytes, or a token that is fused with an unknown one
 * before it. */
static bauta_status unknown_add(const words *model, const char *split,
                                bt_token token, size_t begin,
                                bt_subword_workspace *work, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (!model->byte_fallback && work->count > begin) {
        bt_token *last = work->tokens + work->count - 1;
        if (last->id == model->unknown) {
            last->hi = token.hi;
            return BAUTA_OK;
        }
    }
    if (!model->byte_fallback)
        return bt_subword_append(work, token, err);
    for (uint32_t i = token.lo; !status && i < token.hi; i++) {
        token.id = model->bytes[(unsigned char)split[i]];
        status = bt_subword_append(work, token, err);
    }
    return status;
}

static bauta_status words_encode(const bt_subword_model *base,
                                 const char *split, size_t size,
                                 bt_subword_workspace *work, bauta_error *err)
{
    const words *model = (const words *)base;
    bauta_status status = BAUTA_OK;
    size_t begin = work->count;
    for (size_t at = 0, end; !status && at < size; at = end) {
        end = word_end(split, size, at);
        bt_token token = { bt_vocab_find(model->vocab, split + at, end - at),
                           (uint32_t)at, (uint32_t)end };
        if (token.id != BT_NO_ID && model->found[token.id]) {
            status = bt_subword_append(work, token, err);
            continue;
        }
        token.id = model->unknown;
        status = unknown_add(model, split, token, begin, work, err);
    }
    return status;
}

static void words_free(bt_subword_model *base)
{
    bt_free(base);
}

bauta_status bt_sentencepiece_word_create(bt_subword_model **out,
                                          const bt_sentencepiece *model,
                                          const bt_vocab *vocab,
                                          bauta_error *err)
{
    words *w = bt_alloc_zero(1, sizeof(*w) + model->count);
    *out = NULL;
    if (!w)
        return bt_fail_memory(err, "a WORD model", sizeof(*w) + model->count);
    w->base = (bt_subword_model){ words_encode, words_free };
    w->vocab = vocab;
    w->unknown = model->unknown;
    w->byte_fallback = model->byte_fallback;
    for (size_t i = 0; i < model->count; i++) {
        const bt_piece *p = model->pieces + i;
        w->found[i] = p->type == BT_PIECE_NORMAL || p->type == BT_PIECE_USER ||
                      p->type == BT_PIECE_UNUSED;
        if (p->type == BT_PIECE_BYTE)
            w->bytes[bt_piece_byte(p->text.bytes, p->text.size)] = (uint32_t)i;
    }
    *out = &w->base;
    return BAUTA_OK;
}
