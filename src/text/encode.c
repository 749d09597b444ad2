/* SPDX-License-Identifier: Apache-2.0 */
/* encode.c - from text to ids: added tokens, normalizer, pre-tokenizer, subword
 * model, template. */
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

#include <string.h>

/* ---- Added tokens and normalization -------------------------------------- */

/* A text of the bytes [lo, hi) of another. */
static bauta_status part_init(bt_aligned_text *part, const bt_aligned_text *of,
                              size_t lo, size_t hi, bauta_error *err)
{
    bt_aligned_text_init_empty(part);
    if (of->origins)
        return bt_aligned_text_append_range(part, of, lo, hi, err);
    part->bytes = of->bytes + lo;
    part->size = hi - lo;
    part->base_offset = of->base_offset + (uint32_t)lo;
    return BAUTA_OK;
}

/* Append a split of `from` to `to`, normalized unless it is an added token. */
static bauta_status normalize_split(const bt_normalizer *normalizer,
                                    bt_splits *to, const bt_aligned_text *from,
                                    bt_split split, bauta_error *err)
{
    bt_aligned_text part;
    bauta_status status = part_init(&part, from, split.lo, split.hi, err);
    if (!status && split.token == BT_NO_TOKEN)
        status = bt_normalizer_run(normalizer, &part, err);
    split.lo = (uint32_t)to->text.size;
    if (!status)
        status =
            bt_aligned_text_append_range(&to->text, &part, 0, part.size, err);
    split.hi = (uint32_t)to->text.size;
    if (!status)
        status = bt_splits_add(to, split, err);
    bt_aligned_text_release(&part);
    return status;
}

/* Normalize all splits. A text that is one split, the usual case, is rewritten
 * without a copy. */
static bauta_status normalize(const bt_normalizer *normalizer,
                              bt_splits *splits, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bt_splits done = { 0 };
    if (!normalizer)
        return BAUTA_OK;
    if (splits->count == 1 && splits->list[0].token == BT_NO_TOKEN) {
        status = bt_normalizer_run(normalizer, &splits->text, err);
        splits->list[0].hi = (uint32_t)splits->text.size;
        if (splits->text.size == 0)
            splits->count = 0;
        return status;
    }
    bt_aligned_text_init_empty(&done.text);
    for (size_t i = 0; !status && i < splits->count; i++)
        status = normalize_split(normalizer, &done, &splits->text,
                                 splits->list[i], err);
    bt_splits_release(splits);
    *splits = done;
    return status;
}

/* Split at the added tokens of the normalized text. */
static bauta_status split_normalized_tokens(const bt_added_tokens *added,
                                            bool literal, bt_splits *splits,
                                            bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bt_splits found = { 0 };
    for (size_t i = 0; !status && i < splits->count; i++) {
        bt_split s = splits->list[i];
        size_t begin = found.count;
        if (s.token != BT_NO_TOKEN) {
            status = bt_splits_add(&found, s, err);
            continue;
        }
        status = bt_added_tokens_split(added, true, literal, splits->text.bytes,
                                       s.lo, s.hi, &found, err);
        for (size_t j = begin; j < found.count; j++)
            found.list[j].first = s.first && found.list[j].lo == s.lo;
    }
    found.text = splits->text;
    bt_free(splits->list);
    *splits = found;
    return status;
}

static bauta_status prepare(const bauta_tokenizer *t, bt_splits *splits,
                            bool literal, bauta_error *err)
{
    bauta_status status = bt_added_tokens_split(t->added_tokens, false, literal,
                                                splits->text.bytes, 0,
                                                splits->text.size, splits, err);
    for (size_t i = 0; i < splits->count; i++)
        splits->list[i].first = splits->list[i].lo == 0;
    if (!status)
        status = normalize(t->normalizer, splits, err);
    if (!status && bt_added_tokens_any(t->added_tokens, true))
        status = split_normalized_tokens(t->added_tokens, literal, splits, err);
    return status;
}

/* ---- Subword model ------------------------------------------------------- */

typedef struct encoding {
    const bauta_tokenizer *tokenizer;
    const char *original;
    bt_splits splits;
    bt_subword_workspace work; /* its tokens are the result */
    bool repaired;             /* the original has malformed bytes */
    char *bytes;               /* the original bytes of a split */
    bt_origin *origins;        /* of these bytes */
    size_t room;
} encoding;

/* Release everything except for the tokens. */
static void encoding_trim(encoding *e)
{
    bt_splits_release(&e->splits);
    bt_free(e->work.scratch);
    bt_free(e->bytes);
    bt_free(e->origins);
    e->work.scratch = e->bytes = NULL;
    e->origins = NULL;
    e->work.scratch_size = e->room = 0;
}

static void encoding_release(encoding *e)
{
    encoding_trim(e);
    bt_subword_workspace_release(&e->work);
}

static bauta_status reserve_bytes(encoding *e, size_t size, bauta_error *err)
{
    if (size <= e->room)
        return BAUTA_OK;
    bt_free(e->bytes);
    bt_free(e->origins);
    e->bytes = bt_alloc(size);
    e->origins = bt_alloc(bt_size_mul(size, sizeof(*e->origins)));
    e->room = e->bytes && e->origins ? size : 0;
    return e->room ? BAUTA_OK : bt_fail_memory(err, "a word", size);
}

/* The bytes of a split, with the malformed bytes restored. */
static size_t restore_bytes(encoding *e, bt_split s)
{
    const bt_aligned_text *text = &e->splits.text;
    size_t n = 0;
    for (size_t at = s.lo, length; at < s.hi; at += length) {
        bt_origin o = bt_aligned_text_origin(text, at, at + 1);
        length = bt_utf8_length((unsigned char)text->bytes[at]);
        if (length > s.hi - at)
            length = 1; // a split may end inside a character
        if (length == 3 && bt_aligned_text_is_repaired(text, at)) {
            e->bytes[n] = e->original[o.from];
            e->origins[n++] = o;
            continue;
        }
        for (size_t i = 0; i < length; i++, n++) {
            e->bytes[n] = text->bytes[at + i];
            e->origins[n] = bt_aligned_text_origin(text, at + i, at + i + 1);
        }
    }
    return n;
}

static bauta_status encode_restored(encoding *e, bt_split s, bauta_error *err)
{
    size_t begin = e->work.count;
    bauta_status status = reserve_bytes(e, s.hi - s.lo, err);
    if (status)
        return status;
    status = bt_subword_encode(e->tokenizer->model, e->bytes,
                               restore_bytes(e, s), &e->work, err);
    for (size_t i = begin; i < e->work.count; i++) {
        bt_token *token = &e->work.tokens[i];
        uint32_t last = token->hi - 1;
        token->lo = e->origins[token->lo].from;
        token->hi = e->origins[last].to;
    }
    return status;
}

static bauta_status add_token(encoding *e, bt_split s, bauta_error *err)
{
    bt_subword_workspace *work = &e->work;
    bt_origin o = bt_aligned_text_origin(&e->splits.text, s.lo, s.hi);
    bauta_status status = bt_subword_reserve_tokens(work, 1, err);
    if (!status)
        work->tokens[work->count++] = (bt_token){ s.token, o.from, o.to };
    return status;
}

static bauta_status encode_split(encoding *e, bt_split s, bauta_error *err)
{
    const bt_aligned_text *text = &e->splits.text;
    size_t begin = e->work.count;
    if (s.token != BT_NO_TOKEN)
        return add_token(e, s, err);
    if (e->repaired && e->tokenizer->bytelevel)
        return encode_restored(e, s, err);
    bauta_status status = bt_subword_encode(
        e->tokenizer->model, text->bytes + s.lo, s.hi - s.lo, &e->work, err);
    if (status)
        return status;
    for (size_t i = begin; i < e->work.count; i++) {
        bt_token *token = &e->work.tokens[i];
        bt_origin o =
            bt_aligned_text_origin(text, s.lo + token->lo, s.lo + token->hi);
        token->lo = o.from;
        token->hi = o.to;
    }
    return BAUTA_OK;
}

static bauta_status encode_splits(void *user, const bt_split *list,
                                  size_t count, bauta_error *err)
{
    encoding *e = user;
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < count; i++)
        status = encode_split(e, list[i], err);
    return status;
}

/* The tokens of a text without the template, with offsets into the text. */
static bauta_status encode(encoding *e, const bauta_tokenizer *tokenizer,
                           const char *text, size_t length, bool literal,
                           bauta_error *err)
{
    const bt_split_sink sink = { encode_splits, e };
    *e = (encoding){ .tokenizer = tokenizer, .original = text };
    bauta_status status =
        bt_aligned_text_init(&e->splits.text, text, length, 0, err);
    e->repaired = e->splits.text.owned != NULL;
    if (!status) // most texts have over 4 bytes a token, and need no more
        status = bt_subword_reserve_tokens(&e->work, length / 4 + 1, err);
    if (!status)
        status = prepare(tokenizer, &e->splits, literal, err);
    if (!status)
        status = bt_pretokenizer_stream(tokenizer->pretokenizer, &e->splits,
                                        &sink, err);
    encoding_trim(e);
    return status;
}

/* ---- Template and public functions --------------------------------------- */

void bauta_tokens_release(bauta_tokens *tokens)
{
    if (!tokens)
        return;
    bt_free(tokens->starts); // one block holds all four arrays
    *tokens = (bauta_tokens){ 0 };
}

static bauta_status tokens_init(bauta_tokens *tokens, size_t count,
                                bauta_error *err)
{
    size_t each = 2 * sizeof(size_t) + 2 * sizeof(uint32_t);
    size_t *block = bt_alloc(bt_size_mul(count, each));
    if (!block)
        return bt_fail_memory(err, "tokens", bt_size_mul(count, each));
    tokens->count = 0;
    tokens->starts = block;
    tokens->ends = block + count;
    tokens->ids = (uint32_t *)(block + 2 * count);
    tokens->types = tokens->ids + count;
    return BAUTA_OK;
}

static void tokens_add(bauta_tokens *tokens, bt_token token, uint32_t type)
{
    size_t i = tokens->count++;
    tokens->ids[i] = token.id;
    tokens->types[i] = type;
    tokens->starts[i] = token.lo;
    tokens->ends[i] = token.hi;
}

/* The tokens of the text that an item of a template represents, or NULL for a
 * special token. */
static const bt_subword_workspace *item_text(bt_template_item item,
                                             const bt_subword_workspace *a,
                                             const bt_subword_workspace *b)
{
    return item.id == BT_TEMPLATE_A ? a : item.id == BT_TEMPLATE_B ? b : NULL;
}

/* Apply the template; if `bare`, without its special tokens. */
static bauta_status wrap(bauta_tokens *tokens, const bt_template *template,
                         bool bare, const bt_subword_workspace *a,
                         const bt_subword_workspace *b, bauta_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < template->count; i++) {
        const bt_subword_workspace *text = item_text(template->items[i], a, b);
        count += text ? text->count : !bare;
    }
    bauta_status status = tokens_init(tokens, count, err);
    if (status)
        return status;
    for (size_t i = 0; i < template->count; i++) {
        bt_template_item item = template->items[i];
        const bt_subword_workspace *text = item_text(item, a, b);
        if (!text && !bare)
            tokens_add(tokens, (bt_token){ item.id, 0, 0 }, item.type);
        for (size_t j = 0; text && j < text->count; j++)
            tokens_add(tokens, text->tokens[j], item.type);
    }
    return BAUTA_OK;
}

static bauta_status encode_both(const bauta_tokenizer *t, const char *first,
                                size_t first_length, const char *second,
                                size_t second_length,
                                const bauta_encode_options *options,
                                bauta_tokens *tokens, bauta_error *err)
{
    bauta_encode_options chosen;
    encoding a = { 0 }, b = { 0 };
    bauta_status status = BT_SIZED_READ(&chosen, BAUTA_ENCODE_OPTIONS_INIT,
                                        options, "options", err);
    if (status)
        return status;
    if (chosen.target && t->target)
        t = t->target;
    status =
        encode(&a, t, first, first_length, chosen.split_special_tokens, err);
    if (!status && second)
        status = encode(&b, t, second, second_length,
                        chosen.split_special_tokens, err);
    if (!status)
        status = wrap(tokens, second ? &t->pair : &t->single,
                      chosen.no_special_tokens, &a.work, &b.work, err);
    encoding_release(&a);
    encoding_release(&b);
    return status;
}

bauta_status bauta_tokenizer_encode(const bauta_tokenizer *tokenizer,
                                    const char *text, size_t length,
                                    const bauta_encode_options *options,
                                    bauta_tokens *tokens, bauta_error *err)
{
    BT_NEED(tokens, err);
    *tokens = (bauta_tokens){ 0 };
    BT_NEED(tokenizer, err);
    BT_NEED(text, err);
    return encode_both(tokenizer, text, length, NULL, 0, options, tokens, err);
}

bauta_status bauta_tokenizer_encode_pair(const bauta_tokenizer *tokenizer,
                                         const char *first, size_t first_length,
                                         const char *second,
                                         size_t second_length,
                                         const bauta_encode_options *options,
                                         bauta_tokens *tokens, bauta_error *err)
{
    BT_NEED(tokens, err);
    *tokens = (bauta_tokens){ 0 };
    BT_NEED(tokenizer, err);
    BT_NEED(first, err);
    BT_NEED(second, err);
    return encode_both(tokenizer, first, first_length, second, second_length,
                       options, tokens, err);
}
