/* SPDX-License-Identifier: Apache-2.0 */
/* objective.c - inputs and labels of a batch. */
#include "data/objective.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "base/size.h"

#include <string.h>

/* ---- memory ------------------------------------------------------------ */

/* Grow arrays of the same length together; the contents are lost. */
static bauta_status arrays_reserve(void **const *arrays, const size_t *sizes,
                                   size_t count, size_t *room, size_t need,
                                   bauta_error *err)
{
    if (need <= *room)
        return BAUTA_OK;
    size_t more = bt_size_max(need, *room + *room / 2);
    *room = 0;
    for (size_t i = 0; i < count; i++) {
        bt_free(*arrays[i]);
        *arrays[i] = bt_alloc(bt_size_mul(more, sizes[i]));
        if (!*arrays[i])
            return bt_fail_memory(err, "a batch", bt_size_mul(more, sizes[i]));
    }
    *room = more;
    return BAUTA_OK;
}

bauta_status bt_train_batch_reserve(bt_train_batch *batch, size_t count,
                                    size_t rows, size_t source_rows,
                                    bauta_error *err)
{
    void **const by_sequence[] = { (void **)&batch->lengths,
                                   (void **)&batch->source_lengths,
                                   (void **)&batch->prefix_lengths };
    void **const by_row[] = { (void **)&batch->ids, (void **)&batch->labels,
                              (void **)&batch->token_keys };
    void **const by_source[] = { (void **)&batch->source,
                                 (void **)&batch->source_keys };
    const size_t sizes[] = { sizeof(size_t), sizeof(size_t), sizeof(size_t) };
    const size_t row_sizes[] = { 4, 4, 8 }, source_sizes[] = { 4, 8 };
    bauta_status status = arrays_reserve(by_sequence, sizes, 3,
                                         &batch->sequence_capacity, count, err);
    if (!status)
        status = arrays_reserve(by_row, row_sizes, 3, &batch->row_capacity,
                                rows, err);
    if (!status)
        status = arrays_reserve(by_source, source_sizes, 2,
                                &batch->source_capacity, source_rows, err);
    return status;
}

void bt_train_batch_release(bt_train_batch *batch)
{
    bt_free(batch->lengths);
    bt_free(batch->source_lengths);
    bt_free(batch->prefix_lengths);
    bt_free(batch->ids);
    bt_free(batch->labels);
    bt_free(batch->token_keys);
    bt_free(batch->source);
    bt_free(batch->source_keys);
    *batch = (bt_train_batch){ 0 };
}

/* ---- one example ------------------------------------------------------- */

/* The tokens of an example. */
typedef struct example {
    const uint32_t *tokens;
    size_t first; /* index of the first token in the corpus */
    size_t count;
    size_t after;         /* tokens of the document that follow */
    uint32_t label_limit; /* of the corpus */
} example;

static example example_of(const bauta_corpus *corpus, const bt_example *s)
{
    const bt_corpus_side *text = &corpus->text;
    size_t first = text->offsets[s->document] + s->first;
    return (example){ text->tokens + first, first, s->count,
                      text->offsets[s->document + 1] - first - s->count,
                      corpus->label_limit };
}

/* The label of next-token prediction; the last token of a document has none. */
static uint32_t next_of(const example *p, size_t i)
{
    if (i + 1 >= p->count + p->after)
        return BAUTA_IGNORE;
    uint32_t next = p->tokens[i + 1];
    return p->label_limit && next >= p->label_limit ? BAUTA_IGNORE : next;
}

static void causal_fill(uint32_t *ids, uint32_t *labels, const example *p)
{
    for (size_t i = 0; i < p->count; i++) {
        ids[i] = p->tokens[i];
        labels[i] = next_of(p, i);
    }
}

static void seq2seq_fill(uint32_t *ids, uint32_t *labels, const example *p,
                         uint32_t start)
{
    for (size_t i = 0; i < p->count; i++) {
        ids[i] = i ? p->tokens[i - 1] : start;
        labels[i] = p->tokens[i];
    }
}

/* The input in place of a masked token: the mask token, a random one, or the
 * token itself. */
static uint32_t masked_input(const bt_objective *o, uint32_t token,
                             uint64_t number)
{
    uint64_t bits = bt_random(o->seed, BT_RANDOM_MASKING, number,
                              (uint32_t)o->epoch | UINT32_C(1) << 31);
    double u = bt_random_unit(bits);
    if (u < (double)o->mlm_keep)
        return token;
    if (u >= (double)o->mlm_keep + (double)o->mlm_random)
        return o->mask_token;
    bits = bt_random(o->seed, BT_RANDOM_MASKING, number,
                     (uint32_t)o->epoch | UINT32_C(3) << 30);
    return (uint32_t)bt_random_below(bits, o->vocab_size);
}

static void masked_fill(uint32_t *ids, uint32_t *labels, const example *p,
                        const bt_objective *o)
{
    for (size_t i = 0; i < p->count; i++) {
        uint32_t token = p->tokens[i];
        uint64_t number = p->first + i;
        double u = bt_random_unit(
            bt_random(o->seed, BT_RANDOM_MASKING, number, (uint32_t)o->epoch));
        bool masked = u < (double)o->mlm_probability &&
                      !bauta_tokenizer_is_special(o->tokenizer, token);
        ids[i] = masked ? masked_input(o, token, number) : token;
        labels[i] = masked ? token : BAUTA_IGNORE;
    }
}

/* Choose a prefix of 1 token to all but one. Labels in the prefix are ignored,
 * since the model can see them. */
static size_t prefix_cut(uint32_t *labels, const example *p,
                         const bt_objective *o)
{
    if (p->count < 2)
        return p->count;
    uint64_t bits =
        bt_random(o->seed, BT_RANDOM_PREFIX, p->first, (uint32_t)o->epoch);
    size_t prefix = 1 + bt_random_below(bits, p->count - 1);
    for (size_t i = 0; i + 1 < prefix; i++)
        labels[i] = BAUTA_IGNORE;
    return prefix;
}

/* ---- the batch --------------------------------------------------------- */

static void source_fill(bt_train_batch *batch, const bauta_corpus *corpus,
                        size_t index, size_t document)
{
    const bt_corpus_side *side = &corpus->source;
    size_t first = side->offsets[document];
    size_t count = bt_corpus_side_length(side, document);
    if (count)
        memcpy(batch->source + batch->source_rows, side->tokens + first,
               count * sizeof(*batch->source));
    for (size_t i = 0; i < count; i++)
        batch->source_keys[batch->source_rows + i] = first + i;
    batch->source_lengths[index] = count;
    batch->source_rows += count;
}

static void example_fill(bt_train_batch *batch, const bt_objective *o,
                         size_t index, const example *p)
{
    uint32_t *ids = batch->ids + batch->rows,
             *labels = batch->labels + batch->rows;
    if (o->kind == BAUTA_OBJECTIVE_MASKED)
        masked_fill(ids, labels, p, o);
    else if (o->kind == BAUTA_OBJECTIVE_SEQ2SEQ)
        seq2seq_fill(ids, labels, p, o->decoder_start_token);
    else
        causal_fill(ids, labels, p);
    batch->prefix_lengths[index] =
        o->kind == BAUTA_OBJECTIVE_PREFIX ? prefix_cut(labels, p, o) : 0;
    for (size_t i = 0; i < p->count; i++) {
        batch->token_keys[batch->rows + i] = (UINT64_C(1) << 63) + p->first + i;
        batch->label_count += labels[i] != BAUTA_IGNORE;
    }
    batch->lengths[index] = p->count;
    batch->rows += p->count;
}

bauta_status bt_train_batch_set(bt_train_batch *batch,
                                const bt_objective *objective,
                                const bauta_corpus *corpus,
                                const bt_example *examples, size_t count,
                                bauta_error *err)
{
    size_t rows = 0, source_rows = 0;
    for (size_t i = 0; i < count; i++) {
        rows += examples[i].count;
        if (corpus->pairs)
            source_rows +=
                bt_corpus_side_length(&corpus->source, examples[i].document);
    }
    bauta_status status =
        bt_train_batch_reserve(batch, count, rows, source_rows, err);
    if (status)
        return status;
    batch->count = count;
    batch->rows = batch->source_rows = batch->label_count = 0;
    for (size_t i = 0; i < count; i++) {
        example p = example_of(corpus, &examples[i]);
        batch->source_lengths[i] = 0;
        if (corpus->pairs)
            source_fill(batch, corpus, i, examples[i].document);
        example_fill(batch, objective, i, &p);
    }
    bt_corpus_unload(corpus);
    return BAUTA_OK;
}
