/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece_bpe.c - see sentencepiece_bpe.h. */
#include "text/subword/sentencepiece_bpe.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pair_model {
    bt_subword_model base;
    bt_subword_model *bpe;
    bt_vocab *vocab; /* the pieces; other characters from `count` on */
    uint32_t count;
    uint32_t unknown;
    bool byte_fallback;
    uint32_t bytes[256]; /* ids of the byte pieces */
} pair_model;

/* The state while a model is created. */
typedef struct piece_bpe_builder {
    const bt_sentencepiece *from;
    const char *path;
    bauta_error *err;
    pair_model *model;
    uint32_t *ranks; /* by id */
    bt_merge_rule *merges;
    size_t merge_count, merge_room;
    uint32_t *unused;
    const char **frozen;
    size_t unused_count, frozen_count;
} piece_bpe_builder;

/* ---- The vocabulary ------------------------------------------------------ */

static bool is_character(const bt_byte_view *text)
{
    return bt_utf8_length((unsigned char)text->bytes[0]) == text->size;
}

/* Whether a piece can occur in a text. */
static bool in_text(bt_piece_type type)
{
    return type == BT_PIECE_NORMAL || type == BT_PIECE_USER ||
           type == BT_PIECE_UNUSED;
}

/* A piece of one character that cannot occur in a text is left out, since BPE
 * looks characters up. */
static bauta_status pieces_add(piece_bpe_builder *m)
{
    const bt_sentencepiece *from = m->from;
    bauta_status status = bt_vocab_create(&m->model->vocab, m->err);
    for (size_t i = 0; !status && i < from->count; i++) {
        const bt_piece *p = from->pieces + i;
        if (in_text(p->type) || !is_character(&p->text))
            status = bt_vocab_add(m->model->vocab, p->text.bytes, p->text.size,
                                  (uint32_t)i, m->err);
        int byte = p->type == BT_PIECE_BYTE
                       ? bt_piece_byte(p->text.bytes, p->text.size)
                       : -1;
        if (byte >= 0)
            m->model->bytes[byte] = (uint32_t)i;
    }
    return status;
}

/* The first free id after the pieces. */
static size_t id_next(const piece_bpe_builder *m)
{
    size_t size = bt_vocab_size(m->model->vocab);
    return size > m->from->count ? size : m->from->count;
}

/* ---- Ranks --------------------------------------------------------------- */

typedef struct scored {
    float score;
    uint32_t id;
} scored;

static int by_score(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    return (x->score < y->score) - (x->score > y->score);
}

/* Rank 0 is the best score; equal scores have equal ranks. */
static bauta_status ranks_fill(piece_bpe_builder *m)
{
    size_t count = m->from->count;
    scored *order = bt_alloc(count * sizeof(*order));
    m->ranks = bt_alloc(count * sizeof(*m->ranks));
    if (!order || !m->ranks) {
        bt_free(order);
        return bt_fail_memory(m->err, "ranks", count * sizeof(*order));
    }
    for (size_t i = 0; i < count; i++)
        order[i] = (scored){ m->from->pieces[i].score, (uint32_t)i };
    qsort(order, count, sizeof(*order), by_score);
    uint32_t rank = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && order[i].score != order[i - 1].score)
            rank++;
        m->ranks[order[i].id] = rank;
    }
    bt_free(order);
    return BAUTA_OK;
}

/* ---- Merges -------------------------------------------------------------- */

enum { NEW_CHARACTER = BT_NO_ID - 1 };

/* The id of a symbol, NEW_CHARACTER for a character that has none yet, or
 * BT_NO_ID if it takes part in no merge. */
static uint32_t symbol_find(const piece_bpe_builder *m, bt_byte_view text)
{
    uint32_t id = bt_vocab_find(m->model->vocab, text.bytes, text.size);
    if (id == BT_NO_ID)
        return is_character(&text) ? NEW_CHARACTER : BT_NO_ID;
    if (id >= m->from->count)
        return id;
    bt_piece_type type = m->from->pieces[id].type;
    return type == BT_PIECE_NORMAL || type == BT_PIECE_UNUSED ? id : BT_NO_ID;
}

static bauta_status symbol_add(piece_bpe_builder *m, bt_byte_view text,
                               uint32_t *id)
{
    if (*id != NEW_CHARACTER)
        return BAUTA_OK;
    // The other half of a pair may have been the same character.
    *id = bt_vocab_find(m->model->vocab, text.bytes, text.size);
    if (*id != BT_NO_ID)
        return BAUTA_OK;
    *id = (uint32_t)id_next(m);
    return bt_vocab_add(m->model->vocab, text.bytes, text.size, *id, m->err);
}

static bauta_status merge_add(piece_bpe_builder *m, uint32_t merged, size_t at)
{
    bt_byte_view text = m->from->pieces[merged].text;
    bt_byte_view a = { text.bytes, at };
    bt_byte_view b = { text.bytes + at, text.size - at };
    uint32_t left = symbol_find(m, a);
    uint32_t right = left == BT_NO_ID ? BT_NO_ID : symbol_find(m, b);
    if (right == BT_NO_ID)
        return BAUTA_OK;
    bauta_status status = symbol_add(m, a, &left);
    if (!status)
        status = symbol_add(m, b, &right);
    if (status)
        return status;
    if (m->merge_count == BT_SENTENCEPIECE_MERGES_MAX)
        return bt_fail(m->err, BAUTA_ERR_FORMAT,
                       "%s: its pieces make more than %d merges",
                       bt_path_tail(m->path), BT_SENTENCEPIECE_MERGES_MAX);
    if (BT_ARRAY_RESERVE(m->merges, m->merge_room, m->merge_count, 1))
        return bt_fail_memory(m->err, "merges", sizeof(bt_merge_rule));
    m->merges[m->merge_count++] =
        (bt_merge_rule){ left, right, merged, m->ranks[merged] };
    return BAUTA_OK;
}

static bauta_status piece_merges(piece_bpe_builder *m, uint32_t id)
{
    const bt_piece *p = m->from->pieces + id;
    if (p->type != BT_PIECE_NORMAL && p->type != BT_PIECE_UNUSED)
        return BAUTA_OK;
    bauta_status status = BAUTA_OK;
    const char *text = p->text.bytes;
    size_t at = bt_utf8_length((unsigned char)text[0]);
    while (!status && at < p->text.size) {
        status = merge_add(m, id, at);
        at += bt_utf8_length((unsigned char)text[at]);
    }
    return status;
}

static bauta_status merges_fill(piece_bpe_builder *m)
{
    bauta_status status = ranks_fill(m);
    for (uint32_t i = 0; !status && i < m->from->count; i++)
        status = piece_merges(m, i);
    return status;
}

/* ---- Unused and user-defined pieces -------------------------------------- */

/* Call this when the vocabulary is complete: it moves its pieces as it
 * grows. */
static bauta_status lists_fill(piece_bpe_builder *m)
{
    size_t count = m->from->count, size;
    m->unused = bt_alloc(count * sizeof(*m->unused));
    m->frozen = bt_alloc(count * sizeof(*m->frozen));
    if (!m->unused || !m->frozen)
        return bt_fail_memory(m->err, "pieces", count * sizeof(*m->frozen));
    for (uint32_t i = 0; i < count; i++) {
        if (m->from->pieces[i].type == BT_PIECE_UNUSED)
            m->unused[m->unused_count++] = i;
        if (m->from->pieces[i].type == BT_PIECE_USER)
            m->frozen[m->frozen_count++] =
                bt_vocab_piece(m->model->vocab, i, &size);
    }
    return BAUTA_OK;
}

/* ---- Encoding ------------------------------------------------------------ */

static bool is_no_piece(const pair_model *model, const bt_token *token)
{
    return token->id >= model->count;
}

/* Replace characters that are no pieces by their bytes. From the end, so that
 * each token is read before it is overwritten. */
static bauta_status expand_bytes(const pair_model *model, const char *split,
                                 bt_subword_workspace *work, size_t begin,
                                 bauta_error *err)
{
    size_t more = 0, from = work->count;
    for (size_t i = begin; i < work->count; i++)
        if (is_no_piece(model, work->tokens + i))
            more += work->tokens[i].hi - work->tokens[i].lo - 1;
    bauta_status status = bt_subword_reserve_tokens(work, more, err);
    if (status)
        return status;
    work->count += more;
    for (size_t to = work->count; from > begin;) {
        bt_token token = work->tokens[--from];
        if (!is_no_piece(model, &token)) {
            work->tokens[--to] = token;
            continue;
        }
        for (uint32_t i = token.hi; i > token.lo; i--)
            work->tokens[--to] =
                (bt_token){ model->bytes[(unsigned char)split[i - 1]], token.lo,
                            token.hi };
    }
    return BAUTA_OK;
}

/* Replace them by the unknown token, one for a run of them. */
static void unknown_fuse(const pair_model *model, bt_subword_workspace *work,
                         size_t begin)
{
    size_t to = begin;
    for (size_t i = begin; i < work->count; i++) {
        bt_token token = work->tokens[i];
        if (is_no_piece(model, &token))
            token.id = model->unknown;
        if (to > begin && token.id == model->unknown &&
            work->tokens[to - 1].id == model->unknown)
            work->tokens[to - 1].hi = token.hi;
        else
            work->tokens[to++] = token;
    }
    work->count = to;
}

static bauta_status pair_encode(const bt_subword_model *base, const char *split,
                                size_t size, bt_subword_workspace *work,
                                bauta_error *err)
{
    const pair_model *model = (const pair_model *)base;
    size_t begin = work->count;
    bauta_status status = bt_subword_encode(model->bpe, split, size, work, err);
    if (status || bt_vocab_size(model->vocab) <= model->count)
        return status;
    if (model->byte_fallback)
        return expand_bytes(model, split, work, begin, err);
    unknown_fuse(model, work, begin);
    return BAUTA_OK;
}

static void pair_free(bt_subword_model *base)
{
    pair_model *model = (pair_model *)base;
    bt_subword_free(model->bpe);
    bt_vocab_free(model->vocab);
    bt_free(model);
}

/* ---- Creating ----------------------------------------------------------- */

static bauta_status pair_fill(piece_bpe_builder *m)
{
    bauta_status status = pieces_add(m);
    if (!status && m->from->model == BT_PIECE_MODEL_BPE)
        status = merges_fill(m);
    if (!status)
        status = lists_fill(m);
    if (status)
        return status;
    bt_bpe_spec spec = { .vocab = m->model->vocab,
                         .merges = m->merges,
                         .merge_count = m->merge_count,
                         .unknown = m->from->unknown,
                         .fuse_unknown = true,
                         .byte_fallback = m->from->byte_fallback,
                         .unused = m->unused,
                         .unused_count = m->unused_count,
                         .user_defined = m->frozen,
                         .user_defined_count = m->frozen_count };
    return bt_bpe_create(&m->model->bpe, &spec, m->path, m->err);
}

bauta_status bt_sentencepiece_bpe_create(bt_subword_model **out,
                                         const bt_sentencepiece *model,
                                         const char *path, bauta_error *err)
{
    piece_bpe_builder m = { .from = model, .path = path, .err = err };
    *out = NULL;
    m.model = bt_alloc_zero(1, sizeof(*m.model));
    if (!m.model)
        return bt_fail_memory(err, "a BPE model", sizeof(*m.model));
    m.model->base = (bt_subword_model){ pair_encode, pair_free };
    m.model->count = (uint32_t)model->count;
    m.model->unknown = model->unknown;
    m.model->byte_fallback = model->byte_fallback;
    bauta_status status = pair_fill(&m);
    if (status)
        pair_free(&m.model->base);
    else
        *out = &m.model->base;
    bt_free(m.ranks);
    bt_free(m.merges);
    bt_free(m.unused);
    bt_free(m.frozen);
    return status;
}
