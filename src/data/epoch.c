/* SPDX-License-Identifier: Apache-2.0 */
/* epoch.c - sequences cut, shuffled and gathered into batches.
 *
 * A document longer than the context is cut into pieces of that length. The
 * first cut is drawn anew for each epoch, so that no token stands at the same
 * place, or at a border, every time. */
#include "data/epoch.h"

#include "base/error.h"
#include "base/size.h"
#include "data/random.h"

typedef struct cutter {
    bt_epoch *epoch;
    const bauta_corpus *corpus;
    const bt_cutting *how;
    uint64_t seed;
    size_t number;
} cutter;

/* Room for one more. */
static bauta_status grow(const cutter *c, bt_store *store, size_t size,
                         bauta_error *err)
{
    return bt_store_reserve(store, size, c->corpus->memory,
                            "the sequences of an epoch", err);
}

static bauta_status sequence_add(cutter *c, size_t document, size_t first,
                                 size_t count, bauta_error *err)
{
    bt_epoch *e = c->epoch;
    bauta_status status = grow(c, &e->list_store, sizeof(*e->list), err);
    if (status)
        return status;
    e->list = e->list_store.bytes;
    e->list[e->count++] = (bt_example){ document, first, count };
    e->list_store.size = e->count * sizeof(*e->list);
    return BAUTA_OK;
}

/* Where the first cut of a document of `length` readable tokens falls. */
static size_t first_cut(const cutter *c, size_t document, size_t length)
{
    size_t context = c->how->context;
    if (c->how->ordered || length <= context)
        return bt_size_min(length, context);
    uint64_t bits =
        bt_random(c->seed, BT_FOR_OFFSET, document, (uint32_t)c->number);
    return 1 + bt_random_below(bits, context);
}

static bauta_status document_cut(cutter *c, size_t document, bauta_error *err)
{
    size_t length = bt_side_length(&c->corpus->text, document);
    bauta_status status = BAUTA_OK;
    if (c->how->shifted && length)
        length--;
    if (length == 0) {
        c->epoch->skipped++;
        return BAUTA_OK;
    }
    size_t end = first_cut(c, document, length);
    for (size_t first = 0; !status && first < length;) {
        status = sequence_add(c, document, first, end - first, err);
        first = end;
        end = bt_size_min(end + c->how->context, length);
    }
    return status;
}

/* Pairs are whole: half a translation is none. */
static bauta_status pair_take(cutter *c, size_t document, bauta_error *err)
{
    size_t target = bt_side_length(&c->corpus->text, document);
    size_t source = bt_side_length(&c->corpus->source, document);
    if (bt_size_max(target, source) > c->how->context || target == 0 ||
        source == 0) {
        c->epoch->skipped++;
        return BAUTA_OK;
    }
    return sequence_add(c, document, 0, target, err);
}

/* Fisher and Yates. */
static void shuffle(const cutter *c)
{
    bt_epoch *e = c->epoch;
    for (size_t i = e->count; i > 1; i--) {
        size_t j = bt_random_below(
            bt_random(c->seed, BT_FOR_ORDER, i, (uint32_t)c->number), i);
        bt_example s = e->list[i - 1];
        e->list[i - 1] = e->list[j];
        e->list[j] = s;
    }
}

static size_t tokens_of(const cutter *c, const bt_example *s)
{
    return c->corpus->pairs
               ? bt_size_max(s->count,
                             bt_side_length(&c->corpus->source, s->document))
               : s->count;
}

/* Keep sequences that have at most `limit` tokens together, spread evenly over
 * the list; the first one where none is short enough. */
static void thin(const cutter *c)
{
    bt_epoch *e = c->epoch;
    size_t all = 0, seen = 0, taken = 0, kept = 0;
    for (size_t i = 0; i < e->count; i++)
        all += tokens_of(c, &e->list[i]);
    if (c->how->limit == 0 || all <= c->how->limit)
        return;
    double share = (double)c->how->limit / (double)all;
    for (size_t i = 0; i < e->count; i++) {
        size_t more = tokens_of(c, &e->list[i]);
        seen += more;
        if (taken + more > (size_t)(share * (double)seen))
            continue;
        taken += more;
        e->list[kept++] = e->list[i];
    }
    e->count = kept ? kept : 1;
}

static bauta_status border_add(cutter *c, size_t at, bauta_error *err)
{
    bt_epoch *e = c->epoch;
    bauta_status status = grow(c, &e->batch_store, sizeof(*e->batches), err);
    if (status)
        return status;
    e->batches = e->batch_store.bytes;
    e->batches[e->batch_count++] = at;
    e->batch_store.size = e->batch_count * sizeof(*e->batches);
    return BAUTA_OK;
}

/* Borders of batches; there is one more than there are batches. */
static bauta_status gather(cutter *c, bauta_error *err)
{
    bt_epoch *e = c->epoch;
    size_t tokens = 0, first = 0;
    bauta_status status = border_add(c, 0, err);
    for (size_t i = 0; !status && i < e->count; i++) {
        size_t more = tokens_of(c, &e->list[i]);
        bool full = c->how->sequences ? i - first == c->how->sequences
                                      : tokens + more > c->how->tokens;
        if (i > first && full) {
            status = border_add(c, i, err);
            first = i;
            tokens = 0;
        }
        tokens += more;
    }
    if (!status && e->count)
        status = border_add(c, e->count, err);
    if (!status)
        e->batch_count--;
    return status;
}

bauta_status bt_epoch_init(bt_epoch *epoch, const bauta_corpus *corpus,
                           const bt_cutting *how, uint64_t seed, size_t number,
                           bauta_error *err)
{
    cutter c = { epoch, corpus, how, seed, number };
    bauta_status status = BAUTA_OK;
    *epoch = (bt_epoch){ 0 };
    for (size_t i = 0; !status && i < corpus->documents; i++)
        status =
            corpus->pairs ? pair_take(&c, i, err) : document_cut(&c, i, err);
    if (!status && !how->ordered)
        shuffle(&c);
    if (!status)
        thin(&c);
    if (!status)
        status = gather(&c, err);
    bt_corpus_unload(corpus);
    bt_store_unload(&epoch->list_store);
    if (status)
        bt_epoch_release(epoch);
    return status;
}

void bt_epoch_release(bt_epoch *epoch)
{
    bt_store_release(&epoch->list_store);
    bt_store_release(&epoch->batch_store);
    *epoch = (bt_epoch){ 0 };
}
