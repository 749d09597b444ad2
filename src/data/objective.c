/* SPDX-License-Identifier: Apache-2.0 */
/* objective.c - inputs and labels of a batch. */
#include "data/objective.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "data/random.h"

#include <string.h>

/* ---- memory ------------------------------------------------------------ */

/* Arrays of one length grow together; what they held is gone. */
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

bauta_status bt_filling_reserve(bt_filling *f, size_t count, size_t rows,
                                size_t source_rows, bauta_error *err)
{
    void **const by_sequence[] = { (void **)&f->lengths,
                                   (void **)&f->source_lengths,
                                   (void **)&f->prefixes };
    void **const by_row[] = { (void **)&f->ids, (void **)&f->labels,
                              (void **)&f->keys };
    void **const by_source[] = { (void **)&f->source,
                                 (void **)&f->source_keys };
    const size_t sizes[] = { sizeof(size_t), sizeof(size_t), sizeof(size_t) };
    const size_t row_sizes[] = { 4, 4, 8 }, source_sizes[] = { 4, 8 };
    bauta_status status =
        arrays_reserve(by_sequence, sizes, 3, &f->sequence_room, count, err);
    if (!status)
        status = arrays_reserve(by_row, row_sizes, 3, &f->row_room, rows, err);
    if (!status)
        status = arrays_reserve(by_source, source_sizes, 2, &f->source_room,
                                source_rows, err);
    return status;
}

void bt_filling_release(bt_filling *f)
{
    bt_free(f->lengths);
    bt_free(f->source_lengths);
    bt_free(f->prefixes);
    bt_free(f->ids);
    bt_free(f->labels);
    bt_free(f->keys);
    bt_free(f->source);
    bt_free(f->source_keys);
    *f = (bt_filling){ 0 };
}

/* ---- one sequence ------------------------------------------------------ */

/* Where a sequence's tokens are, and the number of the first. */
typedef struct part {
    const uint32_t *tokens;
    size_t first, count;
    size_t behind; /* tokens of the document behind it */
} part;

static part part_of(const bauta_corpus *corpus, const bt_example *s)
{
    const bt_side *text = &corpus->text;
    size_t first = text->starts[s->document] + s->first;
    return (part){ text->tokens + first, first, s->count,
                   text->starts[s->document + 1] - first - s->count };
}

/* The next token; the last of a document has none. */
static uint32_t next_of(const part *p, size_t i)
{
    return i + 1 < p->count + p->behind ? p->tokens[i + 1] : BAUTA_IGNORE;
}

static void causal_fill(uint32_t *ids, uint32_t *labels, const part *p)
{
    for (size_t i = 0; i < p->count; i++) {
        ids[i] = p->tokens[i];
        labels[i] = next_of(p, i);
    }
}

static void seq2seq_fill(uint32_t *ids, uint32_t *labels, const part *p,
                         uint32_t start)
{
    for (size_t i = 0; i < p->count; i++) {
        ids[i] = i ? p->tokens[i - 1] : start;
        labels[i] = p->tokens[i];
    }
}

/* What stands in the place of a hidden token. */
static uint32_t hidden_as(const bt_objective *o, uint32_t token,
                          uint64_t number)
{
    uint64_t bits = bt_random(o->seed, BT_FOR_HIDING, number,
                              (uint32_t)o->epoch | UINT32_C(1) << 31);
    double u = bt_random_unit(bits);
    if (u < (double)o->hidden_kept)
        return token;
    if (u >= (double)o->hidden_kept + (double)o->hidden_random)
        return o->mask;
    bits = bt_random(o->seed, BT_FOR_HIDING, number,
                     (uint32_t)o->epoch | UINT32_C(3) << 30);
    return (uint32_t)bt_random_below(bits, o->vocabulary);
}

static void masked_fill(uint32_t *ids, uint32_t *labels, const part *p,
                        const bt_objective *o)
{
    for (size_t i = 0; i < p->count; i++) {
        uint32_t token = p->tokens[i];
        uint64_t number = p->first + i;
        double u = bt_random_unit(
            bt_random(o->seed, BT_FOR_HIDING, number, (uint32_t)o->epoch));
        bool hide = u < (double)o->hidden &&
                    !bauta_tokenizer_special(o->tokenizer, token);
        ids[i] = hide ? hidden_as(o, token, number) : token;
        labels[i] = hide ? token : BAUTA_IGNORE;
    }
}

/* From 1 token to all but one; labels within the prefix do not count, since
 * they could be seen. */
static size_t prefix_cut(uint32_t *labels, const part *p, const bt_objective *o)
{
    if (p->count < 2)
        return p->count;
    uint64_t bits =
        bt_random(o->seed, BT_FOR_PREFIX, p->first, (uint32_t)o->epoch);
    size_t prefix = 1 + bt_random_below(bits, p->count - 1);
    for (size_t i = 0; i + 1 < prefix; i++)
        labels[i] = BAUTA_IGNORE;
    return prefix;
}

/* ---- the batch --------------------------------------------------------- */

static void source_fill(bt_filling *f, const bauta_corpus *corpus, size_t index,
                        size_t document)
{
    const bt_side *side = &corpus->source;
    size_t first = side->starts[document];
    size_t count = bt_side_length(side, document);
    if (count)
        memcpy(f->source + f->source_rows, side->tokens + first,
               count * sizeof(*f->source));
    for (size_t i = 0; i < count; i++)
        f->source_keys[f->source_rows + i] = first + i;
    f->source_lengths[index] = count;
    f->source_rows += count;
}

static void sequence_fill(bt_filling *f, const bt_objective *o, size_t index,
                          const part *p)
{
    uint32_t *ids = f->ids + f->rows, *labels = f->labels + f->rows;
    if (o->kind == BAUTA_OBJECTIVE_MASKED)
        masked_fill(ids, labels, p, o);
    else if (o->kind == BAUTA_OBJECTIVE_SEQ2SEQ)
        seq2seq_fill(ids, labels, p, o->start);
    else
        causal_fill(ids, labels, p);
    f->prefixes[index] =
        o->kind == BAUTA_OBJECTIVE_PREFIX ? prefix_cut(labels, p, o) : 0;
    for (size_t i = 0; i < p->count; i++) {
        f->keys[f->rows + i] = (UINT64_C(1) << 63) + p->first + i;
        f->counted += labels[i] != BAUTA_IGNORE;
    }
    f->lengths[index] = p->count;
    f->rows += p->count;
}

bauta_status bt_filling_set(bt_filling *f, const bt_objective *objective,
                            const bauta_corpus *corpus,
                            const bt_example *sequences, size_t count,
                            bauta_error *err)
{
    size_t rows = 0, source_rows = 0;
    for (size_t i = 0; i < count; i++) {
        rows += sequences[i].count;
        if (corpus->pairs)
            source_rows +=
                bt_side_length(&corpus->source, sequences[i].document);
    }
    bauta_status status = bt_filling_reserve(f, count, rows, source_rows, err);
    if (status)
        return status;
    f->count = count;
    f->rows = f->source_rows = f->counted = 0;
    for (size_t i = 0; i < count; i++) {
        part p = part_of(corpus, &sequences[i]);
        f->source_lengths[i] = 0;
        if (corpus->pairs)
            source_fill(f, corpus, i, sequences[i].document);
        sequence_fill(f, objective, i, &p);
    }
    bt_corpus_unload(corpus);
    return BAUTA_OK;
}
