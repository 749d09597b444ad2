/* SPDX-License-Identifier: Apache-2.0 */
/* compose.c - what is visible through several layers.
 *
 * Row i of a composition is the union of those rows of `lower` that row i of
 * `upper` sees. A causal row sees half of them on average, so taking them one
 * by one is quadratic. Instead the unions of 2, 4, 8, ... neighbouring rows
 * are made once, each level from the one below, and a span of rows is then at
 * most two rows of each level:
 *
 *     level 2  |       0       |       1       |
 *     level 1  |   0   |   1   |   2   |   3   |     rows [1, 7) are
 *     level 0  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |     rows 1 and 6 of level 0
 *                    ^~~~~~~~~~~~~~~~~~~~~~~         and 1 and 2 of level 1
 *
 * A level has at most as many spans as the one below, so for S spans and n
 * rows the pyramid takes O(S log n) memory and time, and usually much less:
 * the unions of neighbours are few long spans. A row that sees q spans meets
 * O(q log n) lists, which are united pairwise.
 *
 * That is for masks as people use them. In a mask of many short spans, such as
 * a stride, each list is long and a row meets many. Where a level would be
 * smaller as a matrix of bits than as spans it is made one, and its rows are
 * united by words: at worst keys / 64 operations for each of them. */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/bits.h"
#include "mask/builder.h"

#include <string.h>

enum { LEVELS = 33, PILE = 65 }; // more than a mask, and a count, can need

/* ---- The pyramid --------------------------------------------------------- */

typedef struct tier {
    const bauta_mask *mask;
    bauta_mask *owned; /* the same; NULL at level 0, the caller's mask */
    uint64_t *bits;    /* (rows, words) the same, or NULL */
} tier;

typedef struct pyramid {
    tier level[LEVELS];
    size_t levels;
    size_t words; /* in a row of bits */
} pyramid;

/* Unite the rows of a mask two by two. */
static bauta_status halve(bauta_mask **out, const bauta_mask *mask,
                          bauta_error *err)
{
    size_t rows = (mask->queries + 1) / 2;
    bt_builder builder;
    bauta_status status =
        bt_builder_begin(&builder, rows, mask->keys, rows, err);
    for (size_t i = 0; i < rows && !status; i++) {
        bt_spans a = bt_mask_spans(mask, 2 * i), b = { NULL, 0 };
        if (2 * i + 1 < mask->queries)
            b = bt_mask_spans(mask, 2 * i + 1);
        status = bt_builder_reserve(&builder, a.count + b.count, err);
        if (!status)
            bt_builder_row(&builder,
                           bt_spans_or(bt_builder_next(&builder), a, b), 0);
    }
    return bt_builder_end(&builder, out, status);
}

/* Add the bits where they take less memory than the spans. */
static bauta_status tier_add_bits(tier *t, size_t words, bauta_error *err)
{
    const bauta_mask *mask = t->mask;
    size_t count = mask->queries * words;
    if (mask->start[mask->queries] * sizeof(bauta_span) <=
        count * sizeof(*t->bits))
        return BAUTA_OK;
    t->bits = bt_alloc_zero(count, sizeof(*t->bits));
    if (!t->bits)
        return bt_fail_memory(err, "the bits of a mask",
                              count * sizeof(*t->bits));
    for (size_t i = 0; i < mask->queries; i++) {
        bt_spans row = bt_mask_spans(mask, i);
        for (size_t k = 0; k < row.count; k++)
            bt_bits_set(t->bits + i * words, 1, row.at[k].lo, row.at[k].hi);
    }
    return BAUTA_OK;
}

static bauta_status pyramid_init(pyramid *p, const bauta_mask *base,
                                 bauta_error *err)
{
    *p = (pyramid){ .levels = 1, .words = (base->keys + 63) / 64 };
    tier *top = &p->level[0];
    top->mask = base;
    bauta_status status = tier_add_bits(top, p->words, err);
    while (!status && top->mask->queries > 1) {
        tier *next = &p->level[p->levels];
        status = halve(&next->owned, top->mask, err);
        if (status)
            break;
        next->mask = next->owned;
        p->levels++;
        top = next;
        status = tier_add_bits(top, p->words, err);
    }
    return status;
}

static void pyramid_release(pyramid *p)
{
    for (size_t l = 0; l < p->levels; l++) {
        bt_free(p->level[l].bits);
        bauta_mask_free(p->level[l].owned);
    }
}

/* ---- The pile ------------------------------------------------------------ */

/* Lists that wait to be united, one on top of the other. As in a binary
 * counter the t-th push unites as often as t is divisible by two, so that
 * lists meet lists of about their size. */
typedef struct pile {
    bauta_span *spans;
    size_t used, capacity;
    size_t start[PILE]; /* where each list begins */
    size_t depth, pushed;
} pile;

static void pile_unite_top(pile *p)
{
    size_t a = p->start[p->depth - 2], b = p->start[p->depth - 1];
    bt_spans below = { p->spans + a, b - a };
    bt_spans top = { p->spans + b, p->used - b };
    size_t count = bt_spans_or(p->spans + p->used, below, top);
    memmove(p->spans + a, p->spans + p->used, count * sizeof(*p->spans));
    p->used = a + count;
    p->depth--;
}

/* Room for `count` more spans, and again as much above all of them, where
 * pile_unite_top() writes. */
static bauta_status pile_reserve(pile *p, size_t count, bauta_error *err)
{
    size_t need = bt_size_mul(2, bt_size_add(p->used, count));
    if (p->spans && need <= p->capacity)
        return BAUTA_OK;
    size_t capacity = bt_size_max(64, bt_size_mul(2, need));
    size_t bytes = bt_size_mul(capacity, sizeof(*p->spans));
    bauta_span *larger = bt_alloc(bytes);
    if (!larger)
        return bt_fail_memory(err, "the union of the rows of a mask", bytes);
    if (p->used)
        memcpy(larger, p->spans, p->used * sizeof(*larger));
    bt_free(p->spans);
    p->spans = larger;
    p->capacity = capacity;
    return BAUTA_OK;
}

/* What lies behind the lists, `count` spans, is the next list. */
static void pile_add(pile *p, size_t count)
{
    p->start[p->depth++] = p->used;
    p->used += count;
    for (size_t t = ++p->pushed; t % 2 == 0; t /= 2)
        pile_unite_top(p);
}

static bauta_status pile_push(pile *p, bt_spans list, bauta_error *err)
{
    bauta_status status = pile_reserve(p, list.count, err);
    if (status)
        return status;
    if (list.count)
        memcpy(p->spans + p->used, list.at, list.count * sizeof(*list.at));
    pile_add(p, list.count);
    return BAUTA_OK;
}

/* Push the list of a row of bits, which are then cleared. */
static bauta_status pile_push_bits(pile *p, uint64_t *bits, size_t words,
                                   bauta_error *err)
{
    bauta_status status = pile_reserve(p, words * 64 / 2, err);
    if (status)
        return status;
    pile_add(p, bt_bits_spans(p->spans + p->used, bits, words));
    memset(bits, 0, words * sizeof(*bits));
    return BAUTA_OK;
}

/* Whether the list on top is every key already. */
static bool pile_is_all(const pile *p, size_t keys)
{
    if (!p->depth || p->used - p->start[p->depth - 1] != 1)
        return false;
    return p->spans[p->used - 1].hi - p->spans[p->used - 1].lo == keys;
}

/* The union of all lists; the pile is then empty, and the answer stays until
 * the next push. */
static bt_spans pile_take(pile *p)
{
    while (p->depth > 1)
        pile_unite_top(p);
    bt_spans all = { p->spans, p->used };
    p->used = p->depth = p->pushed = 0;
    return all;
}

/* ---- Composition --------------------------------------------------------- */

/* The union that becomes a row. */
typedef struct row_union {
    pile lists;
    uint64_t *bits; /* (words) from the levels that are bits */
    bool any_bits;
} row_union;

static bauta_status add_row(row_union *u, const pyramid *from, size_t level,
                            size_t row, bauta_error *err)
{
    const tier *t = &from->level[level];
    if (!t->bits)
        return pile_push(&u->lists, bt_mask_spans(t->mask, row), err);
    const uint64_t *bits = t->bits + row * from->words;
    for (size_t w = 0; w < from->words; w++)
        u->bits[w] |= bits[w];
    u->any_bits = true;
    return BAUTA_OK;
}

/* Add the rows [rows.lo, rows.hi) of level 0, from the levels that have them
 * together. */
static bauta_status add_rows(row_union *u, const pyramid *from, bauta_span rows,
                             bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t lo = rows.lo, hi = rows.hi;
    for (size_t level = 0; lo < hi && !status; level++) {
        if (lo % 2)
            status = add_row(u, from, level, lo++, err);
        if (hi % 2 && !status)
            status = add_row(u, from, level, --hi, err);
        lo /= 2;
        hi /= 2;
    }
    return status;
}

static bauta_status compose_row(bt_builder *builder, bt_spans upper,
                                const pyramid *lower, row_union *u,
                                bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t keys = builder->mask->keys;
    for (size_t k = 0; k < upper.count && !status; k++) {
        if (pile_is_all(&u->lists, keys))
            break;
        status = add_rows(u, lower, upper.at[k], err);
    }
    if (!status && u->any_bits)
        status = pile_push_bits(&u->lists, u->bits, lower->words, err);
    u->any_bits = false;
    bt_spans row = pile_take(&u->lists);
    if (!status)
        status = bt_builder_reserve(builder, row.count, err);
    if (status)
        return status;
    if (row.count)
        memcpy(bt_builder_next(builder), row.at, row.count * sizeof(*row.at));
    bt_builder_row(builder, row.count, 0);
    return BAUTA_OK;
}

static bauta_status compose(bauta_mask **out, const bauta_mask *upper,
                            const pyramid *lower, bauta_error *err)
{
    size_t rows = upper->queries, keys = lower->level[0].mask->keys;
    row_union u = { .bits = bt_alloc_zero(lower->words, sizeof(*u.bits)) };
    if (!u.bits)
        return bt_fail_memory(err, "a row of bits",
                              lower->words * sizeof(*u.bits));
    bt_builder builder;
    bauta_status status = bt_builder_begin(&builder, rows, keys, rows, err);
    for (size_t i = 0; i < rows && !status; i++)
        status = compose_row(&builder, bt_mask_spans(upper, i), lower, &u, err);
    bt_free(u.bits);
    bt_free(u.lists.spans);
    return bt_builder_end(&builder, out, status);
}

bauta_status bauta_mask_compose(bauta_mask **out, const bauta_mask *upper,
                                const bauta_mask *lower, bauta_error *err)
{
    bauta_status status = bt_mask_clear(out, err);
    if (status)
        return status;
    if (!upper || !lower)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "compose: the %s mask is NULL",
                       upper ? "lower" : "upper");
    if (upper->keys != lower->queries)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "compose: the upper mask has %zu keys, the lower one "
                       "%zu queries",
                       upper->keys, lower->queries);
    pyramid levels;
    status = pyramid_init(&levels, lower, err);
    if (!status)
        status = compose(out, upper, &levels, err);
    pyramid_release(&levels);
    return status;
}
