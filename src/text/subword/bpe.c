/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.c - encoding with BPE.
 *
 * A split starts as one symbol per character (or byte), stored as tokens. Then
 * the adjacent pair with the lowest rank becomes one symbol, again and again:
 *
 *   - most words of a text are a piece that encodes to itself; these pieces are
 *     determined when the model is created, and one lookup encodes them
 *   - the symbols are divided where no merge can ever join two of them, so that
 *     a long text without splits is processed word by word too
 *   - few symbols: a linear search for the lowest rank each time
 *   - many symbols: a heap of ranks with lazy deletion */
#include "text/subword/bpe.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/subword/bytelevel.h"

#include <string.h>

/* ---- Initial symbols ----------------------------------------------------- */

typedef struct initial {
    const bt_bpe *bpe;
    bt_subword_workspace *work;
    bt_token unknown; /* may be fused with the next; BT_NO_ID: none */
    bauta_error *err;
} initial;

static bauta_status flush_unknown(initial *s)
{
    bt_token token = s->unknown;
    s->unknown.id = BT_NO_ID;
    return token.id == BT_NO_ID ? BAUTA_OK
                                : bt_subword_append(s->work, token, s->err);
}

static bauta_status add_known(initial *s, bt_token token)
{
    bauta_status status = flush_unknown(s);
    return status ? status : bt_subword_append(s->work, token, s->err);
}

/* Whether all bytes of a symbol have tokens of their own. */
static bool has_fallback(const bt_bpe *b, const char *symbol, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (b->fallback_ids[(unsigned char)symbol[i]] == BT_NO_ID)
            return false;
    return b->byte_fallback;
}

/* As in Hugging Face's library, an unknown token that waits to be fused comes
 * after byte tokens, not before. */
static bauta_status add_unknown(initial *s, const char *symbol, size_t size,
                                bt_token token)
{
    const bt_bpe *b = s->bpe;
    bauta_status status = BAUTA_OK;
    if (has_fallback(b, symbol, size)) {
        for (size_t i = 0; i < size && !status; i++) {
            token.id = b->fallback_ids[(unsigned char)symbol[i]];
            status = bt_subword_append(s->work, token, s->err);
        }
    } else if (b->unknown != BT_NO_ID) {
        if (b->fuse_unknown && s->unknown.id != BT_NO_ID) {
            s->unknown.hi = token.hi;
            return BAUTA_OK;
        }
        status = flush_unknown(s);
        s->unknown = token;
        s->unknown.id = b->unknown;
    }
    return status;
}

/* Write a symbol to the scratch as it is in the vocabulary: with prefix or
 * suffix, and in the byte-level alphabet. */
static bauta_status write_symbol(initial *s, const char *at, size_t size,
                                 bool first, bool last, size_t *length)
{
    const bt_bpe *b = s->bpe;
    size_t room = b->prefix_size + b->suffix_size + 2 * size + 1, used = 0;
    bauta_status status = bt_subword_reserve_scratch(s->work, room, s->err);
    if (status)
        return status;
    char *out = s->work->scratch;
    if (!first && b->prefix) {
        memcpy(out, b->prefix, b->prefix_size);
        used = b->prefix_size;
    }
    if (b->bytelevel) {
        used += bt_bytelevel_encode(out + used, at, size);
    } else {
        memcpy(out + used, at, size);
        used += size;
    }
    if (last && b->suffix) {
        memcpy(out + used, b->suffix, b->suffix_size);
        used += b->suffix_size;
    }
    *length = used;
    return BAUTA_OK;
}

/* A symbol that is not in the table of bytes. */
static bauta_status add_looked_up(initial *s, const char *split, size_t size,
                                  bt_token token)
{
    size_t length;
    bauta_status status =
        write_symbol(s, split + token.lo, token.hi - token.lo, token.lo == 0,
                     token.hi == size, &length);
    if (status)
        return status;
    const char *symbol = s->work->scratch;
    token.id = bt_vocab_find(s->bpe->vocab, symbol, length);
    return token.id != BT_NO_ID ? add_known(s, token)
                                : add_unknown(s, symbol, length, token);
}

static size_t symbol_length(const bt_bpe *b, const char *at, size_t left)
{
    if (b->bytelevel)
        return 1;
    return bt_size_min(bt_utf8_length((unsigned char)*at), left);
}

/* The usual case: every character is in the vocabulary. If one is not, returns
 * false and adds nothing. Memory for `size` tokens must be reserved. */
static bool add_plain_symbols(const bt_bpe *b, const char *split, size_t size,
                              bt_subword_workspace *work)
{
    bt_token *out = work->tokens + work->count;
    if (b->prefix || b->suffix || b->has_user_defined)
        return false;
    for (size_t i = 0, length; i < size; i += length) {
        length = symbol_length(b, split + i, size - i);
        uint32_t id = length == 1 ? b->byte_ids[(unsigned char)split[i]]
                                  : bt_vocab_find(b->vocab, split + i, length);
        if (id == BT_NO_ID)
            return false;
        *out++ = (bt_token){ id, (uint32_t)i, (uint32_t)(i + length) };
    }
    work->count = (size_t)(out - work->tokens);
    return true;
}

static bauta_status add_symbols(const bt_bpe *b, const char *split, size_t size,
                                bt_subword_workspace *work, bauta_error *err)
{
    initial s = { b, work, { BT_NO_ID, 0, 0 }, err };
    bool plain = !b->prefix && !b->suffix;
    bauta_status status = bt_subword_reserve_tokens(work, size, err);
    if (!status && add_plain_symbols(b, split, size, work))
        return BAUTA_OK;
    for (size_t i = 0, length; i < size && !status; i += length) {
        uint32_t id = BT_NO_ID;
        length = 0;
        if (b->has_user_defined)
            length = bt_trie_longest_prefix(&b->user_defined, split + i,
                                            size - i, &id);
        if (length == 0)
            length = symbol_length(b, split + i, size - i);
        if (length == 1 && plain)
            id = b->byte_ids[(unsigned char)split[i]];
        bt_token token = { id, (uint32_t)i, (uint32_t)(i + length) };
        status = id != BT_NO_ID ? add_known(&s, token)
                                : add_looked_up(&s, split, size, token);
    }
    return status ? status : flush_unknown(&s);
}

/* ---- Encoding ------------------------------------------------------------ */

/* Whether a merge may join text that ends with one initial symbol and text that
 * begins with another. */
static bool may_join(const bt_bpe *b, uint32_t left, uint32_t right)
{
    size_t bit = bt_bpe_pair_hash(b, left, right) & b->joinable_mask;
    return b->joinable[bit / 64] >> bit % 64 & 1;
}

/* The token of a split that is one token, or BT_NO_ID. */
static uint32_t find_whole_word(const bt_bpe *b, const char *split, size_t size)
{
    if (size == 0)
        return BT_NO_ID;
    return size <= BT_SHORTMAP_KEY_MAX
               ? bt_shortmap_find(&b->whole_words, split, size)
               : bt_vocab_find(b->long_words, split, size);
}

/* Merge the symbols [lo, hi), which no merge can join with others. If prefix
 * and suffix do not matter, they may be looked up as a whole word. */
static bauta_status merge_range(const bt_bpe *b, const char *split, size_t size,
                                bt_subword_workspace *work, size_t lo,
                                size_t hi, size_t *left, bauta_error *err)
{
    bt_token *t = work->tokens + lo;
    *left = hi - lo;
    if (hi - lo < 2)
        return BAUTA_OK;
    uint32_t from = t->lo, to = t[hi - lo - 1].hi;
    if (b->joinable && b->whole_words_merge && to - from < size &&
        to - from <= BT_BPE_WORD_BYTES_MAX) {
        uint32_t id = find_whole_word(b, split + from, to - from);
        if (id != BT_NO_ID) {
            *t = (bt_token){ id, from, to };
            *left = 1;
            return BAUTA_OK;
        }
    }
    if (hi - lo > BT_BPE_LINEAR_MAX || b->has_unused)
        return bt_bpe_merge_heap(b, work, lo, hi, left, err);
    *left = bt_bpe_merge_linear(b, t, hi - lo);
    return BAUTA_OK;
}

bauta_status bt_bpe_encode_by_merging(const bt_bpe *b, const char *split,
                                      size_t size, bt_subword_workspace *work,
                                      bauta_error *err)
{
    size_t lo = work->count, out = lo;
    bauta_status status = add_symbols(b, split, size, work, err);
    for (size_t hi, left; lo < work->count && !status; lo = hi) {
        const bt_token *t = work->tokens;
        hi = b->joinable ? lo + 1 : work->count;
        while (hi < work->count && may_join(b, t[hi - 1].id, t[hi].id))
            hi++;
        status = merge_range(b, split, size, work, lo, hi, &left, err);
        if (out != lo)
            memmove(work->tokens + out, work->tokens + lo,
                    left * sizeof(*work->tokens));
        out += left;
    }
    work->count = out;
    return status;
}

bauta_status bt_bpe_encode(const bt_subword_model *model, const char *split,
                           size_t size, bt_subword_workspace *work,
                           bauta_error *err)
{
    const bt_bpe *b = (const bt_bpe *)model;
    uint32_t id = find_whole_word(b, split, size);
    if (id != BT_NO_ID)
        return bt_subword_append(work, (bt_token){ id, 0, (uint32_t)size },
                                 err);
    return bt_bpe_encode_by_merging(b, split, size, work, err);
}

void bt_bpe_free(bt_subword_model *model)
{
    bt_bpe *b = (bt_bpe *)model;
    bt_free(b->pairs);
    bt_free(b->joinable);
    bt_shortmap_release(&b->whole_words);
    bt_vocab_free(b->long_words);
    bt_trie_release(&b->user_defined);
    bt_free(b->prefix);
    bt_free(b->suffix);
    bt_free(b);
}
