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
 * O(q log n) lists, which are united pairwise. */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/builder.h"

#include <string.h>

enum { LEVELS = 33, PILE = 65 }; // more than a mask, and a count, can need

/* ---- The pyramid --------------------------------------------------------- */

typedef struct pyramid {
    const bauta_mask *base;    /* level 0 */
    bauta_mask *level[LEVELS]; /* from 1 on; NULL above the single row */
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

static bauta_status pyramid_init(pyramid *p, const bauta_mask *base,
                                 bauta_error *err)
{
    *p = (pyramid){ .base = base };
    const bauta_mask *top = base;
    for (size_t l = 1; top->queries > 1; l++) {
        bauta_status status = halve(&p->level[l], top, err);
        if (status)
            return status;
        top = p->level[l];
    }
    return BAUTA_OK;
}

static void pyramid_release(pyramid *p)
{
    for (size_t l = 1; l < LEVELS; l++)
        bauta_mask_free(p->level[l]);
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

static bauta_status pile_push(pile *p, bt_spans list, bauta_error *err)
{
    bauta_status status = pile_reserve(p, list.count, err);
    if (status)
        return status;
    if (list.count)
        memcpy(p->spans + p->used, list.at, list.count * sizeof(*list.at));
    p->start[p->depth++] = p->used;
    p->used += list.count;
    for (size_t t = ++p->pushed; t % 2 == 0; t /= 2)
        pile_unite_top(p);
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

static bauta_status push_row(pile *lists, const pyramid *from, size_t level,
                             size_t row, bauta_error *err)
{
    const bauta_mask *mask = level ? from->level[level] : from->base;
    return pile_push(lists, bt_mask_spans(mask, row), err);
}

/* Push the rows [rows.lo, rows.hi) of the base, from the pyramid. */
static bauta_status push_rows(pile *lists, const pyramid *from, bauta_span rows,
                              bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t lo = rows.lo, hi = rows.hi;
    for (size_t level = 0; lo < hi && !status; level++) {
        if (lo % 2)
            status = push_row(lists, from, level, lo++, err);
        if (hi % 2 && !status)
            status = push_row(lists, from, level, --hi, err);
        lo /= 2;
        hi /= 2;
    }
    return status;
}

static bauta_status compose_row(bt_builder *builder, bt_spans upper,
                                const pyramid *lower, pile *lists,
                                bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t keys = builder->mask->keys;
    for (size_t k = 0; k < upper.count && !pile_is_all(lists, keys); k++) {
        status = push_rows(lists, lower, upper.at[k], err);
        if (status)
            return status;
    }
    bt_spans row = pile_take(lists);
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
    pile lists = { .spans = NULL };
    bt_builder builder;
    bauta_status status = bt_builder_begin(
        &builder, upper->queries, lower->base->keys, upper->queries, err);
    for (size_t i = 0; i < upper->queries && !status; i++)
        status =
            compose_row(&builder, bt_mask_spans(upper, i), lower, &lists, err);
    bt_free(lists.spans);
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

/* ---- Reach --------------------------------------------------------------- */

static bool same_pairs(const bauta_mask *a, const bauta_mask *b)
{
    size_t spans = a->start[a->queries];
    return a->pairs == b->pairs && spans == b->start[b->queries] &&
           !memcmp(a->start, b->start, a->queries * sizeof(*a->start)) &&
           !memcmp(a->spans, b->spans, spans * sizeof(*a->spans));
}

/* *mask = *mask composed with lower; *changed, whether that made it another. */
static bauta_status advance(bauta_mask **mask, const bauta_mask *lower,
                            bool *changed, bauta_error *err)
{
    bauta_mask *next;
    bauta_status status = bauta_mask_compose(&next, *mask, lower, err);
    if (status)
        return status;
    *changed = !same_pairs(*mask, next);
    bauta_mask_free(*mask);
    *mask = next;
    return BAUTA_OK;
}

/* The power of (mask OR identity), by squaring. With the identity inside, the
 * powers only grow; once a square is not larger nothing further can be
 * reached, and one factor stands for all that are left. That comes after at
 * most log2(queries) + 1 squares, whatever the number of layers. */
bauta_status bauta_mask_reach(bauta_mask **out, const bauta_mask *mask,
                              size_t layers, bauta_error *err)
{
    bauta_status status = bt_mask_clear(out, err);
    if (status)
        return status;
    if (!mask)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "reach: the mask is NULL");
    if (mask->queries != mask->keys)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "reach: the mask has %zu queries and %zu keys, and is "
                       "not square",
                       mask->queries, mask->keys);

    bauta_mask *reach = NULL, *power = NULL;
    bool changed = true;
    status = bauta_mask_window(&reach, mask->queries, mask->keys, 1, err);
    if (!status)
        status = bauta_mask_or(&power, mask, reach, err);
    while (layers && !status) {
        bool ignored;
        if (layers % 2)
            status = advance(&reach, power, &ignored, err);
        layers /= 2;
        if (layers && !status)
            status = advance(&power, power, &changed, err);
        if (!changed && layers > 1)
            layers = 1;
    }
    bauta_mask_free(power);
    if (status)
        bauta_mask_free(reach);
    else
        *out = reach;
    return status;
}
