/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.c - creating, reading and splitting a corpus. */
#include "data/corpus.h"

#include "base/digest.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

static bauta_status grow(bt_spill_buffer *store, size_t count, size_t size,
                         size_t memory, bauta_error *err)
{
    return bt_spill_buffer_reserve(store, bt_size_mul(count, size), memory,
                                   "a corpus", err);
}

bauta_status bauta_corpus_create(bauta_corpus **out, bauta_error *err)
{
    BT_NEED(out, err);
    *out = bt_alloc_zero(1, sizeof(**out));
    if (!*out)
        return bt_fail_memory(err, "a corpus", sizeof(**out));
    (*out)->memory = BT_SPILL_LIMIT;
    return BAUTA_OK;
}

static void side_release(bt_corpus_side *side)
{
    bt_spill_buffer_release(&side->token_store);
    bt_spill_buffer_release(&side->offset_store);
}

void bauta_corpus_free(bauta_corpus *corpus)
{
    if (!corpus)
        return;
    side_release(&corpus->text);
    side_release(&corpus->source);
    bt_free(corpus);
}

/* Reserve memory for `count` tokens and one more document. */
static bauta_status side_reserve(bt_corpus_side *side, size_t count,
                                 size_t memory, bauta_error *err)
{
    bauta_status status =
        grow(&side->token_store, count, sizeof(*side->tokens), memory, err);
    if (!status)
        status =
            grow(&side->offset_store, 2, sizeof(*side->offsets), memory, err);
    side->tokens = side->token_store.bytes;
    side->offsets = side->offset_store.bytes;
    return status;
}

static void side_append(bt_corpus_side *side, const uint32_t *tokens,
                        size_t count)
{
    if (count)
        memcpy(side->tokens + side->count, tokens, count * sizeof(*tokens));
    side->count += count;
    side->token_store.size = side->count * sizeof(*tokens);
}

/* End a document at the current end of the tokens. */
static void side_end(bt_corpus_side *side, size_t documents)
{
    if (documents == 0)
        side->offsets[0] = 0;
    side->offsets[documents + 1] = side->count;
    side->offset_store.size = (documents + 2) * sizeof(*side->offsets);
}

/* Keep only the first documents. */
static void side_keep(bt_corpus_side *side, size_t documents)
{
    side->count = side->offsets[documents];
    side->token_store.size = side->count * sizeof(*side->tokens);
    side->offset_store.size = (documents + 1) * sizeof(*side->offsets);
}

bauta_status bt_corpus_append(bauta_corpus *corpus, const uint32_t *tokens,
                              size_t count, bauta_error *err)
{
    bauta_status status =
        side_reserve(&corpus->text, count, corpus->memory, err);
    if (!status)
        side_append(&corpus->text, tokens, count);
    return status;
}

bauta_status bt_corpus_end_document(bauta_corpus *corpus, bauta_error *err)
{
    bauta_status status = side_reserve(&corpus->text, 0, corpus->memory, err);
    if (status)
        return status;
    side_end(&corpus->text, corpus->documents++);
    atomic_store(&corpus->digest, 0);
    return BAUTA_OK;
}

bauta_status bauta_corpus_add(bauta_corpus *corpus, const uint32_t *tokens,
                              size_t count, const uint32_t *source,
                              size_t source_count, bauta_error *err)
{
    BT_NEED(corpus, err);
    if (count)
        BT_NEED(tokens, err);
    if (source_count)
        BT_NEED(source, err);
    BT_NEED_COUNT("tokens", count, sizeof(*tokens), err);
    BT_NEED_COUNT("source", source_count, sizeof(*source), err);
    if (corpus->documents && corpus->pairs != (source != NULL))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the corpus holds %s, and this is not one",
                       corpus->pairs ? "pairs" : "texts");
    bauta_status status =
        side_reserve(&corpus->text, count, corpus->memory, err);
    if (!status && source)
        status =
            side_reserve(&corpus->source, source_count, corpus->memory, err);
    if (status)
        return status;
    corpus->pairs = source != NULL;
    side_append(&corpus->text, tokens, count);
    if (source) {
        side_append(&corpus->source, source, source_count);
        side_end(&corpus->source, corpus->documents);
    }
    return bt_corpus_end_document(corpus, err);
}

/* ---- properties -------------------------------------------------------- */

bool bauta_corpus_pairs(const bauta_corpus *corpus)
{
    return corpus->pairs;
}

size_t bauta_corpus_documents(const bauta_corpus *corpus)
{
    return corpus->documents;
}

uint64_t bauta_corpus_tokens(const bauta_corpus *corpus)
{
    return corpus->text.count;
}

size_t bauta_corpus_skipped(const bauta_corpus *corpus)
{
    return corpus->skipped;
}

uint64_t bauta_corpus_unknown(const bauta_corpus *corpus, const char **first,
                              const char **file, size_t *line)
{
    const bt_corpus_unknown *u = &corpus->unknown;
    if (first)
        *first = u->first;
    if (file)
        *file = u->file;
    if (line)
        *line = u->line;
    return u->count;
}

static const uint32_t *side_document(const bt_corpus_side *side, size_t index,
                                     size_t *count)
{
    if (count)
        *count = bt_corpus_side_length(side, index);
    return side->tokens + side->offsets[index];
}

const uint32_t *bauta_corpus_document(const bauta_corpus *corpus, size_t index,
                                      size_t *count, const uint32_t **source,
                                      size_t *source_count)
{
    if (index >= corpus->documents)
        return NULL;
    if (source)
        *source = corpus->pairs
                      ? side_document(&corpus->source, index, source_count)
                      : NULL;
    return side_document(&corpus->text, index, count);
}

uint64_t bauta_corpus_bytes(const bauta_corpus *corpus)
{
    return corpus->bytes;
}

void bt_corpus_side_unload(const bt_corpus_side *side)
{
    bt_spill_buffer_unload(&side->token_store);
    bt_spill_buffer_unload(&side->offset_store);
}

void bt_corpus_unload(const bauta_corpus *corpus)
{
    bt_corpus_side_unload(&corpus->text);
    bt_corpus_side_unload(&corpus->source);
}

static uint64_t side_digest(uint64_t hash, const bt_corpus_side *side,
                            size_t documents)
{
    for (size_t i = 0; i < side->count; i++) {
        if (i % BT_CORPUS_SIDE_BLOCK == 0)
            bt_corpus_side_unload(side);
        hash = bt_digest_mix(hash, side->tokens[i]);
    }
    for (size_t i = 0; i <= documents && side->offsets; i++)
        hash = bt_digest_mix(hash, side->offsets[i]);
    bt_corpus_side_unload(side);
    return hash;
}

/* Computed once: every checkpoint needs it, and a large corpus is slow to read.
 */
uint64_t bt_corpus_digest(const bauta_corpus *corpus)
{
    bauta_corpus *known = (bauta_corpus *)(uintptr_t)corpus;
    uint64_t hash = atomic_load(&known->digest);
    if (hash)
        return hash;
    hash = side_digest(bt_digest_mix(1, corpus->documents), &corpus->text,
                       corpus->documents);
    if (corpus->label_limit)
        hash = bt_digest_mix(hash, corpus->label_limit);
    if (corpus->pairs)
        hash = side_digest(hash, &corpus->source, corpus->documents);
    atomic_store(&known->digest, hash);
    return hash;
}

/* ---- splitting --------------------------------------------------------- */

/* Split the only document; its end becomes the document of `rest`. */
static bauta_status split_text(bauta_corpus *corpus, double share,
                               bauta_corpus *rest, bauta_error *err)
{
    bt_corpus_side *text = &corpus->text;
    size_t keep = (size_t)((double)text->count * (1.0 - share));
    if (keep == 0 || keep == text->count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a text of %zu tokens cannot be split by %g",
                       text->count, share);
    bauta_status status = bauta_corpus_add(rest, text->tokens + keep,
                                           text->count - keep, NULL, 0, err);
    if (status)
        return status;
    text->offsets[1] = keep;
    side_keep(text, 1);
    return BAUTA_OK;
}

static bauta_status split_documents(bauta_corpus *corpus, double share,
                                    bauta_corpus *rest, bauta_error *err)
{
    size_t keep = (size_t)((double)corpus->documents * (1.0 - share));
    bauta_status status = BAUTA_OK;
    if (keep == 0 || keep == corpus->documents)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu documents cannot be split by %g", corpus->documents,
                       share);
    for (size_t i = keep; !status && i < corpus->documents; i++) {
        size_t count, source_count = 0;
        const uint32_t *source;
        const uint32_t *tokens =
            bauta_corpus_document(corpus, i, &count, &source, &source_count);
        status =
            bauta_corpus_add(rest, tokens, count, source, source_count, err);
    }
    if (status)
        return status;
    corpus->documents = keep;
    side_keep(&corpus->text, keep);
    if (corpus->pairs)
        side_keep(&corpus->source, keep);
    return BAUTA_OK;
}

bauta_status bauta_corpus_split(bauta_corpus *corpus, double share,
                                bauta_corpus **rest, bauta_error *err)
{
    BT_NEED(rest, err);
    *rest = NULL;
    BT_NEED(corpus, err);
    if (!(share > 0.0 && share < 1.0))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a share of %g is not between 0 and 1", share);
    bauta_corpus *made;
    bauta_status status = bauta_corpus_create(&made, err);
    if (status)
        return status;
    made->memory = corpus->memory;
    made->label_limit = corpus->label_limit;
    atomic_store(&corpus->digest, 0);
    status = corpus->documents == 1 && !corpus->pairs
                 ? split_text(corpus, share, made, err)
                 : split_documents(corpus, share, made, err);
    if (status)
        bauta_corpus_free(made);
    else
        *rest = made;
    return status;
}
