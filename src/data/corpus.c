/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.c - documents as tokens: made, asked, split. */
#include "data/corpus.h"

#include "base/array.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

bauta_status bauta_corpus_create(bauta_corpus **out, bauta_error *err)
{
    BT_NEED(out, err);
    *out = bt_alloc_zero(1, sizeof(**out));
    return *out ? BAUTA_OK : bt_fail_memory(err, "a corpus", sizeof(**out));
}

static void side_release(bt_side *side)
{
    bt_free(side->tokens);
    bt_free(side->starts);
}

void bauta_corpus_free(bauta_corpus *corpus)
{
    if (!corpus)
        return;
    side_release(&corpus->text);
    side_release(&corpus->source);
    bt_free(corpus);
}

/* Room for one more document of so many tokens. */
static bauta_status side_reserve(bt_side *side, size_t documents, size_t count,
                                 bauta_error *err)
{
    if (BT_ROOM(side->tokens, side->room, side->count, count) ||
        BT_ROOM(side->starts, side->starts_room, documents ? documents + 1 : 0,
                2))
        return bt_fail_memory(err, "a corpus", count * sizeof(uint32_t));
    return BAUTA_OK;
}

static void side_add(bt_side *side, size_t documents, const uint32_t *tokens,
                     size_t count)
{
    if (count)
        memcpy(side->tokens + side->count, tokens, count * sizeof(*tokens));
    if (documents == 0)
        side->starts[0] = 0;
    side->count += count;
    side->starts[documents + 1] = side->count;
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
    if (corpus->documents && corpus->pairs != (source != NULL))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the corpus holds %s, and this is not one",
                       corpus->pairs ? "pairs" : "texts");
    bauta_status status =
        side_reserve(&corpus->text, corpus->documents, count, err);
    if (!status && source)
        status =
            side_reserve(&corpus->source, corpus->documents, source_count, err);
    if (status)
        return status;
    corpus->pairs = source != NULL;
    side_add(&corpus->text, corpus->documents, tokens, count);
    if (source)
        side_add(&corpus->source, corpus->documents, source, source_count);
    corpus->documents++;
    return BAUTA_OK;
}

/* ---- questions --------------------------------------------------------- */

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

static const uint32_t *side_document(const bt_side *side, size_t index,
                                     size_t *count)
{
    if (count)
        *count = bt_side_length(side, index);
    return side->tokens + side->starts[index];
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

static uint64_t side_digest(uint64_t hash, const bt_side *side,
                            size_t documents)
{
    for (size_t i = 0; i < side->count; i++)
        hash = bt_digest_mix(hash, side->tokens[i]);
    for (size_t i = 0; i <= documents && side->starts; i++)
        hash = bt_digest_mix(hash, side->starts[i]);
    return hash;
}

uint64_t bt_corpus_digest(const bauta_corpus *corpus)
{
    uint64_t hash = side_digest(bt_digest_mix(1, corpus->documents),
                                &corpus->text, corpus->documents);
    return corpus->pairs ? side_digest(hash, &corpus->source, corpus->documents)
                         : hash;
}

/* ---- splitting --------------------------------------------------------- */

/* The end of the one document becomes the document of `rest`. */
static bauta_status split_text(bauta_corpus *corpus, double share,
                               bauta_corpus *rest, bauta_error *err)
{
    bt_side *text = &corpus->text;
    size_t keep = (size_t)((double)text->count * (1.0 - share));
    if (keep == 0 || keep == text->count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a text of %zu tokens cannot be split by %g",
                       text->count, share);
    bauta_status status = bauta_corpus_add(rest, text->tokens + keep,
                                           text->count - keep, NULL, 0, err);
    if (status)
        return status;
    text->count = text->starts[1] = keep;
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
    corpus->text.count = corpus->text.starts[keep];
    if (corpus->pairs)
        corpus->source.count = corpus->source.starts[keep];
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
    if (!status)
        status = corpus->documents == 1 && !corpus->pairs
                     ? split_text(corpus, share, made, err)
                     : split_documents(corpus, share, made, err);
    if (status)
        bauta_corpus_free(made);
    else
        *rest = made;
    return status;
}
