/* SPDX-License-Identifier: Apache-2.0 */
/* epoch.c - splitting documents into examples, shuffling and batching them.
 *
 * A document longer than the context is split into examples of that length. The
 * first split point is random in each epoch, so that a token is not always at
 * the same position, or next to a split. */
#include "data/epoch.h"

#include "base/error.h"
#include "base/philox.h"
#include "base/size.h"

typedef struct epoch_builder {
    bt_epoch *epoch;
    const bauta_corpus *corpus;
    const bt_packing *packing;
    uint64_t seed;
    size_t number;
} epoch_builder;

/* Reserve memory for one more element. */
static bauta_status grow(const epoch_builder *c, bt_spill_buffer *store,
                         size_t size, bauta_error *err)
{
    return bt_spill_buffer_reserve(store, size, c->corpus->memory,
                                   "the sequences of an epoch", err);
}

static bauta_status example_add(epoch_builder *c, size_t document, size_t first,
                                size_t count, bauta_error *err)
{
    bt_epoch *e = c->epoch;
    bauta_status status = grow(c, &e->example_store, sizeof(*e->examples), err);
    if (status)
        return status;
    e->examples = e->example_store.bytes;
    e->examples[e->count++] = (bt_example){ document, first, count };
    e->example_store.size = e->count * sizeof(*e->examples);
    return BAUTA_OK;
}

/* The first split point of a document with `length` input tokens. */
static size_t first_split(const epoch_builder *c, size_t document,
                          size_t length)
{
    size_t context = c->packing->context;
    if (c->packing->in_order || length <= context)
        return bt_size_min(length, context);
    uint64_t bits =
        bt_random(c->seed, BT_RANDOM_OFFSET, document, (uint32_t)c->number);
    return 1 + bt_random_below(bits, context);
}

static bauta_status document_split(epoch_builder *c, size_t document,
                                   bauta_error *err)
{
    size_t length = bt_corpus_side_length(&c->corpus->text, document);
    bauta_status status = BAUTA_OK;
    if (c->packing->next_token && length)
        length--;
    if (length == 0) {
        c->epoch->skipped++;
        return BAUTA_OK;
    }
    size_t end = first_split(c, document, length);
    for (size_t first = 0; !status && first < length;) {
        status = example_add(c, document, first, end - first, err);
        first = end;
        end = bt_size_min(end + c->packing->context, length);
    }
    return status;
}

/* Pairs are never split. */
static bauta_status pair_add(epoch_builder *c, size_t document,
                             bauta_error *err)
{
    size_t target = bt_corpus_side_length(&c->corpus->text, document);
    size_t source = bt_corpus_side_length(&c->corpus->source, document);
    if (bt_size_max(target, source) > c->packing->context || target == 0 ||
        source == 0) {
        c->epoch->skipped++;
        return BAUTA_OK;
    }
    return example_add(c, document, 0, target, err);
}

/* Fisher-Yates shuffle. */
static void shuffle(const epoch_builder *c)
{
    bt_epoch *e = c->epoch;
    for (size_t i = e->count; i > 1; i--) {
        size_t j = bt_random_below(
            bt_random(c->seed, BT_RANDOM_ORDER, i, (uint32_t)c->number), i);
        bt_example s = e->examples[i - 1];
        e->examples[i - 1] = e->examples[j];
        e->examples[j] = s;
    }
}

static size_t tokens_of(const epoch_builder *c, const bt_example *s)
{
    return c->corpus->pairs
               ? bt_size_max(s->count, bt_corpus_side_length(&c->corpus->source,
                                                             s->document))
               : s->count;
}

/* Keep examples with at most `limit` tokens in total, spread evenly over the
 * list; if none is short enough, keep the first. */
static void subsample(const epoch_builder *c)
{
    bt_epoch *e = c->epoch;
    size_t all = 0, seen = 0, taken = 0, kept = 0;
    for (size_t i = 0; i < e->count; i++)
        all += tokens_of(c, &e->examples[i]);
    if (c->packing->max_tokens == 0 || all <= c->packing->max_tokens)
        return;
    double share = (double)c->packing->max_tokens / (double)all;
    for (size_t i = 0; i < e->count; i++) {
        size_t more = tokens_of(c, &e->examples[i]);
        seen += more;
        if (taken + more > (size_t)(share * (double)seen))
            continue;
        taken += more;
        e->examples[kept++] = e->examples[i];
    }
    e->count = kept ? kept : 1;
}

static bauta_status batch_add(epoch_builder *c, size_t at, bauta_error *err)
{
    bt_epoch *e = c->epoch;
    bauta_status status =
        grow(c, &e->batch_offset_store, sizeof(*e->batch_offsets), err);
    if (status)
        return status;
    e->batch_offsets = e->batch_offset_store.bytes;
    e->batch_offsets[e->batch_count++] = at;
    e->batch_offset_store.size = e->batch_count * sizeof(*e->batch_offsets);
    return BAUTA_OK;
}

/* Store the first example of each batch, and the end of the last batch. */
static bauta_status make_batches(epoch_builder *c, bauta_error *err)
{
    bt_epoch *e = c->epoch;
    size_t tokens = 0, first = 0;
    bauta_status status = batch_add(c, 0, err);
    for (size_t i = 0; !status && i < e->count; i++) {
        size_t more = tokens_of(c, &e->examples[i]);
        bool full = c->packing->sequences ? i - first == c->packing->sequences
                                          : tokens + more > c->packing->tokens;
        if (i > first && full) {
            status = batch_add(c, i, err);
            first = i;
            tokens = 0;
        }
        tokens += more;
    }
    if (!status && e->count)
        status = batch_add(c, e->count, err);
    if (!status)
        e->batch_count--;
    return status;
}

bauta_status bt_epoch_init(bt_epoch *epoch, const bauta_corpus *corpus,
                           const bt_packing *packing, uint64_t seed,
                           size_t number, bauta_error *err)
{
    epoch_builder c = { epoch, corpus, packing, seed, number };
    bauta_status status = BAUTA_OK;
    *epoch = (bt_epoch){ 0 };
    for (size_t i = 0; !status && i < corpus->documents; i++)
        status =
            corpus->pairs ? pair_add(&c, i, err) : document_split(&c, i, err);
    if (!status && !packing->in_order)
        shuffle(&c);
    if (!status)
        subsample(&c);
    if (!status)
        status = make_batches(&c, err);
    bt_corpus_unload(corpus);
    bt_spill_buffer_unload(&epoch->example_store);
    if (status)
        bt_epoch_release(epoch);
    return status;
}

void bt_epoch_release(bt_epoch *epoch)
{
    bt_spill_buffer_release(&epoch->example_store);
    bt_spill_buffer_release(&epoch->batch_offset_store);
    *epoch = (bt_epoch){ 0 };
}
