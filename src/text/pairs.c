/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.c - merging the most frequent pair, again and again.
 *
 * The counts are kept as Hugging Face's library keeps them, since which pair is
 * next depends on them to the last unit:
 *
 *   - A pair that was merged keeps its count. That shows where a piece can be
 *     made in two ways ("ab" "c" and "a" "bc"): the second one brings pairs
 *     back that had been merged, and their old count is added to the new one.
 *   - Places of a pair are known in groups, one for each merge that made some.
 *     Every group waits in the queue for itself, and its turn merges the pair
 *     in the words of this group, wherever it stands in them.
 *
 * With `greatest` it is the textbook's way: counts are what a recount would
 * give, and a turn merges all places. */
#include "text/pairs.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "text/bytelevel.h"
#include "text/hash.h"
#include "text/order.h"

#include <string.h>

enum { NONE = UINT32_MAX, SLOTS_FIRST = 12, PROGRESS_STEP = 64 };

/* Symbols are a chain in each word. */
typedef struct symbol {
    uint32_t id; /* NONE: it was merged into its left neighbour */
    uint32_t left, right;
    uint32_t word;
} symbol;

/* A pair that stands or stood somewhere. */
typedef struct pair {
    uint32_t left, right;
    int64_t count;
    uint32_t group; /* its newest one */
    uint32_t merge; /* its last merge, or NONE */
} pair;

/* Places of a pair, in rising order. */
typedef struct group {
    uint32_t pair;
    uint32_t first, last; /* of its places; NONE when it had its turn */
    uint32_t older;       /* group of the same pair, or NONE */
} group;

typedef struct place {
    uint32_t at; /* the left symbol */
    uint32_t next;
} place;

/* A group that waits. Its count may be of the past: it is looked at when the
 * group comes to the top. */
typedef struct waiting {
    int64_t count;
    uint32_t group;
} waiting;

typedef struct learner {
    const bt_pairs_spec *spec;
    bt_learned *learned;
    bool exact;
    size_t merge_room;

    symbol *symbols;
    int64_t *counts; /* (words) */

    pair *pairs;
    size_t pair_count, pair_room;
    uint32_t *slots; /* 1 + pair */
    unsigned bits;
    group *groups;
    size_t group_count, group_room;
    size_t group_fresh; /* groups from here on are of the merge at work */
    place *places;
    size_t place_count, place_room;
    waiting *queue; /* a heap */
    size_t queue_count, queue_room;

    uint32_t *turn; /* places whose turn it is, and as many to sort with */
    size_t turn_count, turn_room;
    uint32_t *marks; /* (words) the last turn that a word was part of */
    uint32_t turns;
    char *name; /* of the piece that is being made */
    size_t name_room;
    char *raw; /* bytes of all pieces, for `greatest` */
    size_t raw_count, raw_room;
    size_t *raw_ends; /* (pieces) */
    size_t raw_ends_count, raw_ends_room;
} learner;

/* ---- symbols ----------------------------------------------------------- */

bauta_status bt_symbols_add(bt_symbols *symbols, uint32_t id, bauta_error *err)
{
    if (symbols->count >= UINT32_MAX / 4)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the different words of the texts have more than %u "
                       "characters",
                       UINT32_MAX / 4);
    if (BT_ROOM(symbols->ids, symbols->room, symbols->count, 1))
        return bt_fail_memory(err, "symbols", symbols->count * sizeof(id));
    symbols->ids[symbols->count++] = id;
    return BAUTA_OK;
}

bauta_status bt_symbols_end(bt_symbols *symbols, bauta_error *err)
{
    if (BT_ROOM(symbols->ends, symbols->ends_room, symbols->word_count, 1))
        return bt_fail_memory(err, "symbols",
                              symbols->word_count * sizeof(uint32_t));
    symbols->ends[symbols->word_count++] = (uint32_t)symbols->count;
    return BAUTA_OK;
}

void bt_symbols_release(bt_symbols *symbols)
{
    bt_free(symbols->ids);
    bt_free(symbols->ends);
    *symbols = (bt_symbols){ .ids = NULL };
}

/* ---- the table of pairs ------------------------------------------------ */

static size_t slot_first(const learner *l, uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) ^ (uintptr_t)l;
    return (size_t)(bt_hash_mix(key ^ key >> 29, BT_HASH_ODD) * BT_HASH_ODD >>
                    (64 - l->bits));
}

static uint32_t *slot_of(const learner *l, uint32_t left, uint32_t right)
{
    size_t mask = ((size_t)1 << l->bits) - 1;
    for (size_t i = slot_first(l, left, right);; i = (i + 1) & mask) {
        uint32_t *slot = l->slots + i;
        if (!*slot)
            return slot;
        const pair *p = l->pairs + *slot - 1;
        if (p->left == left && p->right == right)
            return slot;
    }
}

static int slots_grow(learner *l)
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

/* The number of a pair, which is made when it is new. */
static bauta_status pair_of(learner *l, uint32_t left, uint32_t right,
                            uint32_t *number, bauta_error *err)
{
    uint32_t *slot = slot_of(l, left, right);
    if (*slot) {
        *number = *slot - 1;
        return BAUTA_OK;
    }
    if (BT_ROOM(l->pairs, l->pair_room, l->pair_count, 1))
        return bt_fail_memory(err, "pairs", l->pair_count * sizeof(pair));
    *number = (uint32_t)l->pair_count;
    l->pairs[l->pair_count++] = (pair){ left, right, 0, NONE, NONE };
    *slot = *number + 1;
    if (l->pair_count > (size_t)1 << (l->bits - 1) && slots_grow(l))
        return bt_fail_memory(err, "pairs", sizeof(*slot) << (l->bits + 1));
    return BAUTA_OK;
}

/* ---- groups of places -------------------------------------------------- */

/* The group of this merge that holds the pair's places. */
static bauta_status group_of(learner *l, uint32_t number, group **out,
                             bauta_error *err)
{
    pair *p = l->pairs + number;
    if (p->group == NONE || p->group < l->group_fresh) {
        if (BT_ROOM(l->groups, l->group_room, l->group_count, 1))
            return bt_fail_memory(err, "pairs", l->group_count * sizeof(group));
        l->groups[l->group_count] = (group){ number, NONE, NONE, p->group };
        p->group = (uint32_t)l->group_count++;
    }
    *out = l->groups + p->group;
    return BAUTA_OK;
}

static int64_t count_at(const learner *l, uint32_t at)
{
    return l->counts[l->symbols[at].word];
}

/* A pair has come to stand at `at`. */
static bauta_status place_add(learner *l, uint32_t left, uint32_t right,
                              uint32_t at, bauta_error *err)
{
    uint32_t number = NONE;
    group *g = NULL;
    bauta_status status = pair_of(l, left, right, &number, err);
    if (!status)
        status = group_of(l, number, &g, err);
    if (status)
        return status;
    if (BT_ROOM(l->places, l->place_room, l->place_count, 1))
        return bt_fail_memory(err, "places", l->place_count * sizeof(place));
    uint32_t made = (uint32_t)l->place_count++;
    l->places[made] = (place){ at, NONE };
    if (g->first == NONE)
        g->first = made;
    else
        l->places[g->last].next = made;
    g->last = made;
    l->pairs[number].count += count_at(l, at);
    return BAUTA_OK;
}

/* And here it does no longer stand. */
static void place_lost(learner *l, uint32_t left, uint32_t right, uint32_t at)
{
    uint32_t number = *slot_of(l, left, right) - 1;
    l->pairs[number].count -= count_at(l, at);
}

/* ---- the queue --------------------------------------------------------- */

static const char *raw_of(const learner *l, uint32_t id, size_t *size)
{
    size_t begin = id ? l->raw_ends[id - 1] : 0;
    *size = l->raw_ends[id] - begin;
    return l->raw + begin;
}

static int raw_compare(const learner *l, uint32_t a, uint32_t b)
{
    size_t a_size, b_size;
    const char *a_raw = raw_of(l, a, &a_size), *b_raw = raw_of(l, b, &b_size);
    int order = memcmp(a_raw, b_raw, bt_size_min(a_size, b_size));
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

/* Of pairs that occur equally often, whether `a` goes before `b`. */
static bool tie_before(const learner *l, const pair *a, const pair *b)
{
    if (l->exact) {
        int order = raw_compare(l, a->left, b->left);
        return (order ? order : raw_compare(l, a->right, b->right)) > 0;
    }
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static bool waiting_before(const learner *l, const waiting *a, const waiting *b)
{
    if (a->count != b->count)
        return a->count > b->count;
    uint32_t of_a = l->groups[a->group].pair, of_b = l->groups[b->group].pair;
    if (of_a == of_b)
        return a->group < b->group;
    return tie_before(l, l->pairs + of_a, l->pairs + of_b);
}

/* Put `w` at the top or below, where it belongs. */
static void queue_sink(learner *l, waiting w)
{
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < l->queue_count; i = child) {
        if (child + 1 < l->queue_count &&
            waiting_before(l, l->queue + child + 1, l->queue + child))
            child++;
        if (!waiting_before(l, l->queue + child, &w))
            break;
        l->queue[i] = l->queue[child];
    }
    l->queue[i] = w;
}

static void queue_pop(learner *l)
{
    if (--l->queue_count)
        queue_sink(l, l->queue[l->queue_count]);
}

static bauta_status queue_push(learner *l, waiting w, bauta_error *err)
{
    if (BT_ROOM(l->queue, l->queue_room, l->queue_count, 1))
        return bt_fail_memory(err, "pairs", l->queue_count * sizeof(w));
    size_t i = l->queue_count++;
    for (; i && waiting_before(l, &w, l->queue + (i - 1) / 2); i = (i - 1) / 2)
        l->queue[i] = l->queue[(i - 1) / 2];
    l->queue[i] = w;
    return BAUTA_OK;
}

/* The groups that the last merge made begin to wait. */
static bauta_status queue_fresh(learner *l, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (; !status && l->group_fresh < l->group_count; l->group_fresh++) {
        uint32_t g = (uint32_t)l->group_fresh;
        int64_t count = l->pairs[l->groups[g].pair].count;
        if (count > 0)
            status = queue_push(l, (waiting){ count, g }, err);
    }
    return status;
}

/* The group whose turn it is, or NONE when no pair occurs often enough. */
static uint32_t queue_next(learner *l)
{
    int64_t least = (int64_t)bt_size_min(l->spec->options->least, INT64_MAX);
    while (l->queue_count) {
        waiting top = l->queue[0];
        const group *g = l->groups + top.group;
        int64_t count = l->pairs[g->pair].count;
        if (g->first == NONE) {
            queue_pop(l); // a turn of the whole pair has taken it along
        } else if (top.count != count) {
            queue_sink(l, (waiting){ count, top.group });
        } else if (count < 1 || count < least) {
            return NONE;
        } else {
            queue_pop(l);
            return top.group;
        }
    }
    return NONE;
}

/* ---- a merge ----------------------------------------------------------- */

/* Two neighbours become one. Left to right, since in "aaa" the first two do. */
static bauta_status merge_at(learner *l, uint32_t at, const bt_merge *m,
                             uint32_t number, bauta_error *err)
{
    symbol *symbols = l->symbols, *here = symbols + at;
    bauta_status status = BAUTA_OK;
    if (here->id != m->left || here->right == NONE ||
        symbols[here->right].id != m->right)
        return BAUTA_OK; // it has changed since
    uint32_t before = here->left, behind = symbols[here->right].right;
    if (l->exact)
        l->pairs[number].count -= count_at(l, at);
    if (before != NONE) {
        place_lost(l, symbols[before].id, m->left, at);
        status = place_add(l, symbols[before].id, m->merged, before, err);
    }
    symbols[here->right].id = NONE;
    here->id = m->merged;
    here->right = behind;
    if (behind != NONE && !status) {
        symbols[behind].left = at;
        place_lost(l, m->right, symbols[behind].id, at);
        status = place_add(l, m->merged, symbols[behind].id, at, err);
    }
    return status;
}

static bauta_status turn_add(learner *l, uint32_t at, bauta_error *err)
{
    if (BT_ROOM(l->turn, l->turn_room, l->turn_count, 1))
        return bt_fail_memory(err, "places", l->turn_count * sizeof(at));
    l->turn[l->turn_count++] = at;
    return BAUTA_OK;
}

/* The places of a group, or those in words that are part of this turn. */
static bauta_status turn_gather(learner *l, const group *g, bool all,
                                bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (uint32_t i = g->first; !status && i != NONE; i = l->places[i].next)
        if (all || l->marks[l->symbols[l->places[i].at].word] == l->turns)
            status = turn_add(l, l->places[i].at, err);
    return status;
}

static bool place_later(const void *user, uint32_t a, uint32_t b)
{
    (void)user;
    return a > b;
}

/* The words of a group are part of this turn. */
static void turn_mark(learner *l, const group *g)
{
    l->turns++;
    for (uint32_t i = g->first; i != NONE; i = l->places[i].next)
        l->marks[l->symbols[l->places[i].at].word] = l->turns;
}

/* Where to merge: the group's own places and those of the pair's other groups
 * in the same words, in order. */
static bauta_status turn_places(learner *l, uint32_t number, bauta_error *err)
{
    group *own = l->groups + number;
    uint32_t newest = l->pairs[own->pair].group;
    bool alone = newest == number && own->older == NONE;
    bauta_status status = BAUTA_OK;
    l->turn_count = 0;
    if (!alone && !l->exact)
        turn_mark(l, own);
    for (uint32_t i = newest; !status && i != NONE; i = l->groups[i].older) {
        status = turn_gather(l, l->groups + i, alone || l->exact, err);
        if (l->exact || i == number)
            l->groups[i].first = NONE;
    }
    if (status || alone)
        return status;
    size_t count = l->turn_count;
    if (BT_ROOM(l->turn, l->turn_room, count, count))
        return bt_fail_memory(err, "places", count * sizeof(*l->turn));
    bt_order(l->turn, l->turn + count, count, place_later, NULL);
    return BAUTA_OK;
}

static bauta_status turn_merge(learner *l, uint32_t number, bt_merge m,
                               bauta_error *err)
{
    uint32_t of = l->groups[number].pair;
    bauta_status status = turn_places(l, number, err);
    for (size_t i = 0; !status && i < l->turn_count; i++)
        status = merge_at(l, l->turn[i], &m, of, err);
    return status ? status : queue_fresh(l, err);
}

/* ---- pieces ------------------------------------------------------------ */

/* The bytes of a new piece, by which ties are decided. */
static bauta_status raw_add(learner *l, const char *piece, size_t size,
                            bauta_error *err)
{
    size_t decoded = size;
    if (!l->exact)
        return BAUTA_OK;
    if (BT_ROOM(l->raw, l->raw_room, l->raw_count, size) ||
        BT_ROOM(l->raw_ends, l->raw_ends_room, l->raw_ends_count, 1))
        return bt_fail_memory(err, "pieces", l->raw_count + size);
    char *to = l->raw + l->raw_count;
    // A special token need not be of the alphabet, and never meets a tie.
    if (!l->spec->bytelevel || !bt_bytelevel_decode(to, &decoded, piece, size))
        memcpy(to, piece, decoded = size);
    l->raw_count += decoded;
    l->raw_ends[l->raw_ends_count++] = l->raw_count;
    return BAUTA_OK;
}

static bauta_status raw_alphabet(learner *l, bauta_error *err)
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

/* The text of two pieces behind each other, in l->name. */
static bauta_status name_join(learner *l, const pair *p, size_t *size,
                              bauta_error *err)
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
    if (BT_ROOM(l->name, l->name_room, 0, *size))
        return bt_fail_memory(err, "a piece", *size);
    memcpy(l->name, a, a_size);
    memcpy(l->name + a_size, b, b_size);
    return BAUTA_OK;
}

/* The piece that a pair becomes; it may be there already. */
static bauta_status piece_of(learner *l, const pair *p, uint32_t *id,
                             bauta_error *err)
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

static bauta_status merge_next(learner *l, uint32_t number, bauta_error *err)
{
    bt_learned *learned = l->learned;
    pair *p = l->pairs + l->groups[number].pair;
    bt_merge m = { .left = p->left, .right = p->right };
    bauta_status status = piece_of(l, p, &m.merged, err);
    if (status)
        return status;
    if (BT_ROOM(learned->merges, l->merge_room, learned->merge_count, 1))
        return bt_fail_memory(err, "merges", learned->merge_count * sizeof(m));
    p->merge = (uint32_t)learned->merge_count;
    learned->merges[learned->merge_count++] = m;
    return turn_merge(l, number, m, err);
}

/* A pair that was merged in several turns has the rank of the last one. */
static void merges_finish(learner *l)
{
    bt_learned *learned = l->learned;
    size_t kept = 0;
    for (size_t i = 0; i < learned->merge_count; i++) {
        bt_merge m = learned->merges[i];
        if (l->pairs[*slot_of(l, m.left, m.right) - 1].merge != i)
            continue;
        m.rank = (uint32_t)kept;
        learned->merges[kept++] = m;
    }
    learned->merge_count = kept;
}

/* ---- from the beginning to the end ------------------------------------- */

static bauta_status learner_init(learner *l, bt_learned *learned,
                                 const bt_pairs_spec *spec, bauta_error *err)
{
    size_t words, count = spec->symbols->count;
    const bt_word *list = bt_words_list(spec->words, &words);
    *l = (learner){ .spec = spec,
                    .learned = learned,
                    .exact = spec->options->greatest };
    l->symbols = bt_alloc(bt_size_mul(count, sizeof(symbol)));
    l->counts = bt_alloc(bt_size_mul(words, sizeof(*l->counts)));
    l->marks = bt_alloc_zero(words, sizeof(*l->marks));
    if (!l->symbols || !l->counts || !l->marks || slots_grow(l))
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

static void learner_release(learner *l)
{
    bt_free(l->symbols);
    bt_free(l->counts);
    bt_free(l->marks);
    bt_free(l->pairs);
    bt_free(l->slots);
    bt_free(l->groups);
    bt_free(l->places);
    bt_free(l->queue);
    bt_free(l->turn);
    bt_free(l->name);
    bt_free(l->raw);
    bt_free(l->raw_ends);
}

static bauta_status pairs_count(learner *l, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (uint32_t at = 0; !status && at < l->spec->symbols->count; at++)
        if (l->symbols[at].right != NONE)
            status =
                place_add(l, l->symbols[at].id, l->symbols[at + 1].id, at, err);
    return status ? status : queue_fresh(l, err);
}

static void progress(const bauta_vocabulary_options *options, size_t done)
{
    if (options->progress)
        options->progress(options->user, done, options->pieces);
}

bauta_status bt_pairs_learn(bt_learned *learned, const bt_pairs_spec *spec,
                            bauta_error *err)
{
    size_t pieces = spec->options->pieces;
    learner l;
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
    if (!status) {
        merges_finish(&l);
        progress(spec->options, pieces);
    }
    learner_release(&l);
    return status;
}
