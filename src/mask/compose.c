/* SPDX-License-Identifier: Apache-2.0 */
/* compose.c - visibility through several layers: composition and its powers.
 *
 * Row i of a composition is the union of the rows of `lower` that row i of
 * `upper` sees. A causal row sees half of them on average, so uniting them one
 * by one is quadratic. Instead the unions of 2, 4, 8, ... neighbouring rows are
 * computed once, each level from the one below, as in a segment tree. A span of
 * rows is then at most two rows of each level:
 *
 *     level 2  |       0       |       1       |
 *     level 1  |   0   |   1   |   2   |   3   |     rows [1, 7) are
 *     level 0  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |     rows 1 and 6 of level 0
 *                    ^~~~~~~~~~~~~~~~~~~~~~~         and 1 and 2 of level 1
 *
 * A level has at most as many spans as the one below. For S spans and n rows
 * the tree takes O(S log n) memory and time, and usually much less, since the
 * unions of neighbours are few long spans. A row that sees q spans unites O(q
 * log n) lists, pairwise.
 *
 * In a mask of many short spans, such as a stride, the lists are long and
 * numerous. A level that would be smaller as a bit matrix than as spans is
 * stored as one, and its rows are united word by word: at most keys / 64
 * operations each. */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/mask.h"
#include "mask/mask_builder.h"

#include <string.h>

enum { LEVELS = 33, LISTS = 65 }; // more than any mask needs

/* ---- The tree of unions
 * --------------------------------------------------------- */

typedef struct union_level {
    const bauta_mask *mask;
    bauta_mask *owned; /* the same; NULL at level 0, which is the caller's */
    uint64_t *bits;    /* (rows, words) the same as bits, or NULL */
} union_level;

typedef struct union_tree {
    union_level level[LEVELS];
    size_t levels;
    size_t words; /* in a row of bits */
} union_tree;

/* The union of each pair of rows. */
static bauta_status halve(bauta_mask **out, const bauta_mask *mask,
                          bauta_error *err)
{
    size_t rows = (mask->queries + 1) / 2;
    bt_mask_builder builder;
    bauta_status status =
        bt_mask_builder_begin(&builder, rows, mask->keys, rows, err);
    for (size_t i = 0; i < rows && !status; i++) {
        bt_spans a = bt_mask_spans(mask, 2 * i), b = { NULL, 0 };
        if (2 * i + 1 < mask->queries)
            b = bt_mask_spans(mask, 2 * i + 1);
        status = bt_mask_builder_reserve(&builder, a.count + b.count, err);
        if (!status)
            bt_mask_builder_add_row(
                &builder, bt_spans_union(bt_mask_builder_next(&builder), a, b),
                0);
    }
    return bt_mask_builder_end(&builder, out, status);
}

/* Add the bits if they take less memory than the spans. */
static bauta_status level_add_bits(union_level *t, size_t words,
                                   bauta_error *err)
{
    const bauta_mask *mask = t->mask;
    size_t count = mask->queries * words;
    if (bt_mask_rows(mask)->start[mask->queries] * sizeof(bauta_span) <=
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

static bauta_status union_tree_init(union_tree *p, const bauta_mask *base,
                                    bauta_error *err)
{
    *p = (union_tree){ .levels = 1, .words = (base->keys + 63) / 64 };
    union_level *top = &p->level[0];
    top->mask = base;
    bauta_status status = level_add_bits(top, p->words, err);
    while (!status && top->mask->queries > 1) {
        union_level *next = &p->level[p->levels];
        status = halve(&next->owned, top->mask, err);
        if (status)
            break;
        next->mask = next->owned;
        p->levels++;
        top = next;
        status = level_add_bits(top, p->words, err);
    }
    return status;
}

static void union_tree_release(union_tree *p)
{
    for (size_t l = 0; l < p->levels; l++) {
        bt_free(p->level[l].bits);
        bauta_mask_free(p->level[l].owned);
    }
}

/* ---- Pending lists
 * ------------------------------------------------------------ */

/* A stack of lists that are still to be united. As in a binary counter, push t
 * unites as often as t is divisible by two, so lists are united with lists of
 * similar size. */
typedef struct list_stack {
    bauta_span *spans;
    size_t used, capacity;
    size_t start[LISTS]; /* where each list begins */
    size_t depth, pushed;
} list_stack;

static void stack_unite_top(list_stack *p)
{
    size_t a = p->start[p->depth - 2], b = p->start[p->depth - 1];
    bt_spans below = { p->spans + a, b - a };
    bt_spans top = { p->spans + b, p->used - b };
    size_t count = bt_spans_union(p->spans + p->used, below, top);
    memmove(p->spans + a, p->spans + p->used, count * sizeof(*p->spans));
    p->used = a + count;
    p->depth--;
}

/* Room for `count` more spans, and as much again at the end, where
 * stack_unite_top() writes. */
static bauta_status stack_reserve(list_stack *p, size_t count, bauta_error *err)
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

/* The `count` spans after the last list become the next list. */
static void stack_add(list_stack *p, size_t count)
{
    p->start[p->depth++] = p->used;
    p->used += count;
    for (size_t t = ++p->pushed; t % 2 == 0; t /= 2)
        stack_unite_top(p);
}

static bauta_status stack_push(list_stack *p, bt_spans list, bauta_error *err)
{
    bauta_status status = stack_reserve(p, list.count, err);
    if (status)
        return status;
    if (list.count)
        memcpy(p->spans + p->used, list.at, list.count * sizeof(*list.at));
    stack_add(p, list.count);
    return BAUTA_OK;
}

/* Push a row of bits as a list, and clear the bits. */
static bauta_status stack_push_bits(list_stack *p, uint64_t *bits, size_t words,
                                    bauta_error *err)
{
    bauta_status status = stack_reserve(p, words * 64 / 2, err);
    if (status)
        return status;
    stack_add(p, bt_bits_spans(p->spans + p->used, bits, words));
    memset(bits, 0, words * sizeof(*bits));
    return BAUTA_OK;
}

/* Whether the top list already holds every key. */
static bool stack_is_all(const list_stack *p, size_t keys)
{
    if (!p->depth || p->used - p->start[p->depth - 1] != 1)
        return false;
    return p->spans[p->used - 1].hi - p->spans[p->used - 1].lo == keys;
}

/* The union of all lists, valid until the next push. The stack is then empty.
 */
static bt_spans stack_pop_union(list_stack *p)
{
    while (p->depth > 1)
        stack_unite_top(p);
    bt_spans all = { p->spans, p->used };
    p->used = p->depth = p->pushed = 0;
    return all;
}

/* ---- Composition --------------------------------------------------------- */

/* The union that becomes a row of the result. */
typedef struct row_union {
    list_stack lists;
    uint64_t *bits; /* (words) from the levels stored as bits */
    bool any_bits;
} row_union;

static bauta_status add_row(row_union *u, const union_tree *from, size_t level,
                            size_t row, bauta_error *err)
{
    const union_level *t = &from->level[level];
    if (!t->bits)
        return stack_push(&u->lists, bt_mask_spans(t->mask, row), err);
    const uint64_t *bits = t->bits + row * from->words;
    for (size_t w = 0; w < from->words; w++)
        u->bits[w] |= bits[w];
    u->any_bits = true;
    return BAUTA_OK;
}

/* Add the rows [rows.lo, rows.hi) of level 0, from the highest levels that
 * cover them. */
static bauta_status add_rows(row_union *u, const union_tree *from,
                             bauta_span rows, bauta_error *err)
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

static bauta_status compose_row(bt_mask_builder *builder, bt_spans upper,
                                const union_tree *lower, row_union *u,
                                bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t keys = builder->mask->keys;
    for (size_t k = 0; k < upper.count && !status; k++) {
        if (stack_is_all(&u->lists, keys))
            break;
        status = add_rows(u, lower, upper.at[k], err);
    }
    if (!status && u->any_bits)
        status = stack_push_bits(&u->lists, u->bits, lower->words, err);
    u->any_bits = false;
    bt_spans row = stack_pop_union(&u->lists);
    if (!status)
        status = bt_mask_builder_reserve(builder, row.count, err);
    if (status)
        return status;
    if (row.count)
        memcpy(bt_mask_builder_next(builder), row.at,
               row.count * sizeof(*row.at));
    bt_mask_builder_add_row(builder, row.count, 0);
    return BAUTA_OK;
}

static bauta_status compose(bauta_mask **out, const bauta_mask *upper,
                            const union_tree *lower, bauta_error *err)
{
    size_t rows = upper->queries, keys = lower->level[0].mask->keys;
    row_union u = { .bits = bt_alloc_zero(lower->words, sizeof(*u.bits)) };
    if (!u.bits)
        return bt_fail_memory(err, "a row of bits",
                              lower->words * sizeof(*u.bits));
    bt_mask_builder builder;
    bauta_status status =
        bt_mask_builder_begin(&builder, rows, keys, rows, err);
    for (size_t i = 0; i < rows && !status; i++)
        status = compose_row(&builder, bt_mask_spans(upper, i), lower, &u, err);
    bt_free(u.bits);
    bt_free(u.lists.spans);
    return bt_mask_builder_end(&builder, out, status);
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
    union_tree levels;
    status = union_tree_init(&levels, lower, err);
    if (!status)
        status = compose(out, upper, &levels, err);
    union_tree_release(&levels);
    return status;
}

/* ---- Reach --------------------------------------------------------------- */

/* *mask = *mask composed with lower; *changed: whether it differs. */
static bauta_status advance(bauta_mask **mask, const bauta_mask *lower,
                            bool *changed, bauta_error *err)
{
    bauta_mask *next;
    bauta_status status = bauta_mask_compose(&next, *mask, lower, err);
    if (status)
        return status;
    *changed = !bt_mask_same_pairs(*mask, next);
    bauta_mask_free(*mask);
    *mask = next;
    return BAUTA_OK;
}

/* The power of (mask OR identity), by repeated squaring. With the identity the
 * powers only grow. Once squaring changes nothing, the fixed point is reached
 * and one more factor stands for all remaining ones. That happens after at most
 * log2(queries) + 1 squarings, whatever the number of layers. */
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
