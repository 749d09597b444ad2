/* SPDX-License-Identifier: Apache-2.0 */
/* pair_merge.c - see pair_merge.h.
 *
 * A piece arises in one way only: between two positions that are never joined,
 * the same characters are merged the same way everywhere. So a pair that was
 * merged never occurs again, and all occurrences of a pair arise at once: at
 * the start, or by the merge that creates the younger of its two symbols. */
#include "text/learn/pair_merge.h"

#include "base/array.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/size.h"
#include "text/subword/bytelevel.h"

#include <string.h>

enum { NONE = UINT32_MAX, SLOTS_FIRST = 12, PROGRESS_STEP = 64 };

/* The symbols of a word are a linked list. */
typedef struct symbol {
    uint32_t id; /* NONE: merged into the symbol to the left */
    uint32_t left, right;
    uint32_t word;
} symbol;

/* A pair that occurs or occurred. */
typedef struct counted_pair {
    uint32_t left, right;
    int64_t count;
    uint32_t first, last; /* of its occurrences, in ascending order */
} counted_pair;

typedef struct occurrence {
    uint32_t at; /* the left symbol */
    uint32_t next;
} occurrence;

/* An entry of the queue. Its count may be outdated, which is checked when it
 * comes to the top. */
typedef struct candidate {
    int64_t count;
    uint32_t pair;
} candidate;

typedef struct pair_learner {
    const bt_pair_merge_spec *spec;
    bt_trained_vocab *learned;
    size_t merge_room;

    symbol *symbols;
    int64_t *counts; /* (words) */

    counted_pair *pairs;
    size_t pair_count, pair_room;
    uint32_t *slots; /* a hash table: 1 + the index of a pair */
    unsigned bits;
    size_t pair_queued; /* pairs from here on are not in the queue yet */
    occurrence *occurrences;
    size_t occurrence_count, occurrence_room;
    candidate *queue; /* a heap */
    size_t queue_count, queue_room;

    char *name; /* scratch for the text of a piece */
    size_t name_room;
    char *raw; /* the bytes of all pieces, to break ties by them */
    size_t raw_count, raw_room;
    size_t *raw_ends; /* (pieces) */
    size_t raw_ends_count, raw_ends_room;
} pair_learner;

/* ---- Symbols ------------------------------------------------------------- */

bauta_status bt_word_symbols_add(bt_word_symbols *symbols, uint32_t id,
                                 bauta_error *err)
{
    if (symbols->count >= UINT32_MAX / 4)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the different words of the texts have more than %u "
                       "characters",
                       UINT32_MAX / 4);
    if (BT_ARRAY_RESERVE(symbols->ids, symbols->room, symbols->count, 1))
        return bt_fail_memory(err, "symbols", symbols->count * sizeof(id));
    symbols->ids[symbols->count++] = id;
    return BAUTA_OK;
}

bauta_status bt_word_symbols_end_word(bt_word_symbols *symbols,
                                      bauta_error *err)
{
    if (BT_ARRAY_RESERVE(symbols->ends, symbols->ends_room, symbols->word_count,
                         1))
        return bt_fail_memory(err, "symbols",
                              symbols->word_count * sizeof(uint32_t));
    symbols->ends[symbols->word_count++] = (uint32_t)symbols->count;
    return BAUTA_OK;
}

void bt_word_symbols_release(bt_word_symbols *symbols)
{
    bt_free(symbols->ids);
    bt_free(symbols->ends);
    *symbols = (bt_word_symbols){ .ids = NULL };
}

/* ---- Pairs --------------------------------------------------------------- */

static size_t slot_first(const pair_learner *l, uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) ^ (uintptr_t)l;
    return (size_t)(bt_hash_mix(key ^ key >> 29, BT_HASH_ODD) * BT_HASH_ODD >>
                    (64 - l->bits));
}

static uint32_t *slot_of(const pair_learner *l, uint32_t left, uint32_t right)
{
    size_t mask = ((size_t)1 << l->bits) - 1;
    for (size_t i = slot_first(l, left, right);; i = (i + 1) & mask) {
        uint32_t *slot = l->slots + i;
        if (!*slot)
            return slot;
        const counted_pair *p = l->pairs + *slot - 1;
        if (p->left == left && p->right == right)
            return slot;
    }
}

static int slots_grow(pair_learner *l)
{
    unsigned bits = l->bits ? l->bits + 1 : SLOTS_FIRST;
    uint32_t *slots = bt_alloc_zero((size_t)1 << bits, sizeof(*slots));
    if (!slots)
        return -1;
    bt_free(l->slots);
    l->slots = slots;
    l->bits = bits;
    for (size_t i = 0; i < l->pair_count; i++)
        *slot_of(l, l->pairs[i].left, l->pairs[i].right) = (uint32_t)i + 1;
    return 0;
}

/* The index of a pair, which is added if it is new. */
static bauta_status pair_of(pair_learner *l, uint32_t left, uint32_t right,
                            uint32_t *number, bauta_error *err)
{
    uint32_t *slot = slot_of(l, left, right);
    if (*slot) {
        *number = *slot - 1;
        return BAUTA_OK;
    }
    if (BT_ARRAY_RESERVE(l->pairs, l->pair_room, l->pair_count, 1))
        return bt_fail_memory(err, "pairs",
                              l->pair_count * sizeof(counted_pair));
    *number = (uint32_t)l->pair_count;
    l->pairs[l->pair_count++] = (counted_pair){ left, right, 0, NONE, NONE };
    *slot = *number + 1;
    if (l->pair_count > (size_t)1 << (l->bits - 1) && slots_grow(l))
        return bt_fail_memory(err, "pairs", sizeof(*slot) << (l->bits + 1));
    return BAUTA_OK;
}

/* ---- Occurrences --------------------------------------------------------- */

static int64_t count_at(const pair_learner *l, uint32_t at)
{
    return l->counts[l->symbols[at].word];
}

/* A pair occurs at `at` now. */
static bauta_status occurrence_add(pair_learner *l, uint32_t left,
                                   uint32_t right, uint32_t at,
                                   bauta_error *err)
{
    uint32_t number = NONE, index = (uint32_t)l->occurrence_count;
    bauta_status status = pair_of(l, left, right, &number, err);
    if (status)
        return status;
    if (BT_ARRAY_RESERVE(l->occurrences, l->occurrence_room,
                         l->occurrence_count, 1))
        return bt_fail_memory(err, "pairs",
                              l->occurrence_count * sizeof(occurrence));
    counted_pair *p = l->pairs + number;
    l->occurrences[l->occurrence_count++] = (occurrence){ at, NONE };
    if (p->first == NONE)
        p->first = index;
    else
        l->occurrences[p->last].next = index;
    p->last = index;
    p->count += count_at(l, at);
    return BAUTA_OK;
}

/* A pair does not occur at `at` any more. */
static void occurrence_remove(pair_learner *l, uint32_t left, uint32_t right,
                              uint32_t at)
{
    l->pairs[*slot_of(l, left, right) - 1].count -= count_at(l, at);
}

/* ---- Queue --------------------------------------------------------------- */

static const char *raw_of(const pair_learner *l, uint32_t id, size_t *size)
{
    size_t begin = id ? l->raw_ends[id - 1] : 0;
    *size = l->raw_ends[id] - begin;
    return l->raw + begin;
}

static int raw_compare(const pair_learner *l, uint32_t a, uint32_t b)
{
    size_t a_size, b_size;
    const char *a_raw = raw_of(l, a, &a_size), *b_raw = raw_of(l, b, &b_size);
    int order = memcmp(a_raw, b_raw, bt_size_min(a_size, b_size));
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

/* Whether `a` is merged before `b` if both have the same count. */
static bool tie_before(const pair_learner *l, const counted_pair *a,
                       const counted_pair *b)
{
    if (l->spec->options->prefer_greatest) {
        int order = raw_compare(l, a->left, b->left);
        return (order ? order : raw_compare(l, a->right, b->right)) > 0;
    }
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static bool merged_before(const pair_learner *l, const candidate *a,
                          const candidate *b)
{
    if (a->count != b->count)
        return a->count > b->count;
    return tie_before(l, l->pairs + a->pair, l->pairs + b->pair);
}

/* Replace the top by `w` and restore the heap. */
static void queue_sink(pair_learner *l, candidate w)
{
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < l->queue_count; i = child) {
        if (child + 1 < l->queue_count &&
            merged_before(l, l->queue + child + 1, l->queue + child))
            child++;
        if (!merged_before(l, l->queue + child, &w))
            break;
        l->queue[i] = l->queue[child];
    }
    l->queue[i] = w;
}

static void queue_pop(pair_learner *l)
{
    if (--l->queue_count)
        queue_sink(l, l->queue[l->queue_count]);
}

static bauta_status queue_push(pair_learner *l, candidate w, bauta_error *err)
{
    if (BT_ARRAY_RESERVE(l->queue, l->queue_room, l->queue_count, 1))
        return bt_fail_memory(err, "pairs", l->queue_count * sizeof(w));
    size_t i = l->queue_count++;
    for (; i && merged_before(l, &w, l->queue + (i - 1) / 2); i = (i - 1) / 2)
        l->queue[i] = l->queue[(i - 1) / 2];
    l->queue[i] = w;
    return BAUTA_OK;
}

/* Add the pairs that the last merge created. */
static bauta_status queue_new_pairs(pair_learner *l, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (; !status && l->pair_queued < l->pair_count; l->pair_queued++) {
        uint32_t p = (uint32_t)l->pair_queued;
        if (l->pairs[p].count > 0)
            status = queue_push(l, (candidate){ l->pairs[p].count, p }, err);
    }
    return status;
}

/* The pair to merge next, or NONE if none is frequent enough. */
static uint32_t queue_next(pair_learner *l)
{
    size_t least = bt_size_max(l->spec->options->min_frequency, 1);
    while (l->queue_count) {
        candidate top = l->queue[0];
        int64_t count = l->pairs[top.pair].count;
        if (top.count != count) {
            queue_sink(l, (candidate){ count, top.pair });
            continue;
        }
        if (count < 1 || (uint64_t)count < least)
            return NONE;
        queue_pop(l);
        return top.pair;
    }
    return NONE;
}

/* ---- Merging ------------------------------------------------------------- */

/* Merge two adjacent symbols. Occurrences are merged from left to right: in
 * "aaa" the first two. */
static bauta_status merge_at(pair_learner *l, uint32_t at,
                             const bt_merge_rule *m, bauta_error *err)
{
    symbol *symbols = l->symbols, *here = symbols + at;
    bauta_status status = BAUTA_OK;
    if (here->id != m->left || here->right == NONE ||
        symbols[here->right].id != m->right)
        return BAUTA_OK; // an earlier merge changed it
    uint32_t before = here->left, after = symbols[here->right].right;
    if (before != NONE) {
        occurrence_remove(l, symbols[before].id, m->left, at);
        status = occurrence_add(l, symbols[before].id, m->merged, before, err);
    }
    symbols[here->right].id = NONE;
    here->id = m->merged;
    here->right = after;
    if (after != NONE && !status) {
        symbols[after].left = at;
        occurrence_remove(l, m->right, symbols[after].id, at);
        status = occurrence_add(l, m->merged, symbols[after].id, at, err);
    }
    return status;
}

static bauta_status merge_all(pair_learner *l, uint32_t number,
                              const bt_merge_rule *m, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    uint32_t i = l->pairs[number].first;
    for (; !status && i != NONE; i = l->occurrences[i].next)
        status = merge_at(l, l->occurrences[i].at, m, err);
    return status ? status : queue_new_pairs(l, err);
}

/* ---- Pieces -------------------------------------------------------------- */

/* Store the bytes of a new piece, which break ties. */
static bauta_status raw_add(pair_learner *l, const char *piece, size_t size,
                            bauta_error *err)
{
    size_t decoded = size;
    if (!l->spec->options->prefer_greatest)
        return BAUTA_OK;
    if (BT_ARRAY_RESERVE(l->raw, l->raw_room, l->raw_count, size) ||
        BT_ARRAY_RESERVE(l->raw_ends, l->raw_ends_room, l->raw_ends_count, 1))
        return bt_fail_memory(err, "pieces", l->raw_count + size);
    char *to = l->raw + l->raw_count;
    // A special token may be outside the alphabet; it is never in a tie.
    if (!l->spec->bytelevel || !bt_bytelevel_decode(to, &decoded, piece, size))
        memcpy(to, piece, decoded = size);
    l->raw_count += decoded;
    l->raw_ends[l->raw_ends_count++] = l->raw_count;
    return BAUTA_OK;
}

static bauta_status raw_alphabet(pair_learner *l, bauta_error *err)
{
    size_t count = bt_vocab_size(l->learned->vocab);
    bauta_status status = BAUTA_OK;
    for (uint32_t id = 0; !status && id < count; id++) {
        size_t size;
        const char *piece = bt_vocab_piece(l->learned->vocab, id, &size);
        status = raw_add(l, piece, size, err);
    }
    return status;
}

/* Write the concatenation of two pieces to l->name. */
static bauta_status name_join(pair_learner *l, const counted_pair *p,
                              size_t *size, bauta_error *err)
{
    const bt_vocab *vocab = l->learned->vocab;
    size_t a_size, b_size, prefix = strlen(l->spec->prefix);
    const char *a = bt_vocab_piece(vocab, p->left, &a_size);
    const char *b = bt_vocab_piece(vocab, p->right, &b_size);
    if (prefix && b_size >= prefix && !memcmp(b, l->spec->prefix, prefix)) {
        b += prefix;
        b_size -= prefix;
    }
    *size = a_size + b_size;
    if (BT_ARRAY_RESERVE(l->name, l->name_room, 0, *size))
        return bt_fail_memory(err, "a piece", *size);
    memcpy(l->name, a, a_size);
    memcpy(l->name + a_size, b, b_size);
    return BAUTA_OK;
}

/* The piece that a pair merges to. It exists already if a special token has the
 * same text. */
static bauta_status piece_of(pair_learner *l, const counted_pair *p,
                             uint32_t *id, bauta_error *err)
{
    bt_vocab *vocab = l->learned->vocab;
    size_t size;
    bauta_status status = name_join(l, p, &size, err);
    if (status)
        return status;
    *id = bt_vocab_find(vocab, l->name, size);
    if (*id != NONE)
        return BAUTA_OK;
    *id = (uint32_t)bt_vocab_size(vocab);
    status = bt_vocab_add(vocab, l->name, size, *id, err);
    return status ? status : raw_add(l, l->name, size, err);
}

static bauta_status merge_next(pair_learner *l, uint32_t number,
                               bauta_error *err)
{
    bt_trained_vocab *learned = l->learned;
    const counted_pair *p = l->pairs + number;
    bt_merge_rule m = { .left = p->left,
                        .right = p->right,
                        .rank = (uint32_t)learned->merge_count };
    bauta_status status = piece_of(l, p, &m.merged, err);
    if (status)
        return status;
    if (BT_ARRAY_RESERVE(learned->merges, l->merge_room, learned->merge_count,
                         1))
        return bt_fail_memory(err, "merges", learned->merge_count * sizeof(m));
    learned->merges[learned->merge_count++] = m;
    return merge_all(l, number, &m, err);
}

/* ---- Training ------------------------------------------------------------ */

static bauta_status learner_init(pair_learner *l, bt_trained_vocab *learned,
                                 const bt_pair_merge_spec *spec,
                                 bauta_error *err)
{
    size_t words, count = spec->symbols->count;
    const bt_counted_word *list = bt_word_counts_list(spec->words, &words);
    *l = (pair_learner){ .spec = spec, .learned = learned };
    l->symbols = bt_alloc(bt_size_mul(count, sizeof(symbol)));
    l->counts = bt_alloc(bt_size_mul(words, sizeof(*l->counts)));
    if (!l->symbols || !l->counts || slots_grow(l))
        return bt_fail_memory(err, "symbols", count * sizeof(symbol));
    for (uint32_t w = 0, at = 0; w < words; w++) {
        uint32_t begin = at, end = spec->symbols->ends[w];
        l->counts[w] = (int64_t)list[w].count;
        for (; at < end; at++)
            l->symbols[at] = (symbol){ .id = spec->symbols->ids[at],
                                       .left = at > begin ? at - 1 : NONE,
                                       .right = at + 1 < end ? at + 1 : NONE,
                                       .word = w };
    }
    return raw_alphabet(l, err);
}

static void learner_release(pair_learner *l)
{
    bt_free(l->symbols);
    bt_free(l->counts);
    bt_free(l->pairs);
    bt_free(l->slots);
    bt_free(l->occurrences);
    bt_free(l->queue);
    bt_free(l->name);
    bt_free(l->raw);
    bt_free(l->raw_ends);
}

static bauta_status pairs_count(pair_learner *l, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (uint32_t at = 0; !status && at < l->spec->symbols->count; at++)
        if (l->symbols[at].right != NONE)
            status = occurrence_add(l, l->symbols[at].id, l->symbols[at + 1].id,
                                    at, err);
    return status ? status : queue_new_pairs(l, err);
}

static void progress(const bauta_tokenizer_trainer_options *options,
                     size_t done)
{
    if (options->progress)
        options->progress(options->user, done, options->vocab_size);
}

bauta_status bt_pair_merge_learn(bt_trained_vocab *learned,
                                 const bt_pair_merge_spec *spec,
                                 bauta_error *err)
{
    size_t pieces = spec->options->vocab_size;
    pair_learner l;
    bauta_status status = learner_init(&l, learned, spec, err);
    if (!status)
        status = pairs_count(&l, err);
    while (!status && bt_vocab_size(learned->vocab) < pieces) {
        uint32_t number = queue_next(&l);
        if (number == NONE)
            break;
        status = merge_next(&l, number, err);
        if (learned->merge_count % PROGRESS_STEP == 0)
            progress(spec->options, bt_vocab_size(learned->vocab));
    }
    if (!status)
        progress(spec->options, pieces);
    learner_release(&l);
    return status;
}
