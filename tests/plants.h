/* SPDX-License-Identifier: Apache-2.0 */
/* plants.h - the bugs of src/base/plant.h that change plans and masks.
 *
 * A plan is made anew with a word for every block and row, in which pairs are
 * shown and hidden as the bug would have it; blocks and tiles stay, so that
 * nothing but the bug differs. */
#ifndef BT_TEST_PLANTS_H
#define BT_TEST_PLANTS_H

#include "base/error.h"
#include "base/plant.h"
#include "mask/mask.h"
#include "mask/plan.h"
#include "testing.h"

#include <string.h>

/* The bug that is on, and the layer it is in. */
static struct {
    const char *name; /* NULL: none */
    size_t layer;
} plant;

bool bt_planted(const char *name)
{
    return plant.name && strcmp(plant.name, name) == 0;
}

bool bt_planted_at(const char *name, size_t layer)
{
    return bt_planted(name) && layer == plant.layer;
}

/* ---- plans ----------------------------------------------------------------
 */

/* Plans live until the test ends, as a tape may refer to them. */
static struct {
    bauta_plan *plans[1 << 16];
    size_t count;
} garden;

static void garden_clear(void)
{
    for (size_t i = 0; i < garden.count; i++) {
        bauta_plan *p = garden.plans[i];
        free(p->tiles);
        free(p->runs);
        free(p->blocks);
        free(p->visits);
        free(p->words);
        free(p);
    }
    garden.count = 0;
}

static void *copy_of(const void *from, size_t count, size_t size)
{
    void *to = calloc(count + 1, size);
    assert_non_null(to);
    if (count)
        memcpy(to, from, count * size);
    return to;
}

/* What a row sees, key by key of its grid. */
typedef struct view {
    size_t row;      /* in its tile's document, where rows are keys */
    size_t in_piece; /* counted from the first row that is new */
    size_t keys;     /* of the grid */
    const bool *was; /* (keys) */
    size_t lo, hi;   /* the first it saw, and behind the last; 0, 0: none */
} view;

typedef bool rule_fn(const view *v, size_t key);

static bool next_key(const view *v, size_t key)
{
    return v->was[key] || (v->hi && key == v->hi);
}
static bool to_itself(const view *v, size_t key)
{
    return key <= v->row;
}
static bool everything(const view *v, size_t key)
{
    (void)v;
    (void)key;
    return true;
}
static bool inverted(const view *v, size_t key)
{
    return !v->was[key];
}
static bool but_the_first(const view *v, size_t key)
{
    return v->was[key] && (key != v->lo || v->hi == v->lo + 1);
}
static bool one_more(const view *v, size_t key)
{
    // Not of the page before, which may have been given back.
    return v->was[key] || (v->lo % BT_BLOCK && key == v->lo - 1);
}
static bool top_left(const view *v, size_t key)
{
    return key <= v->in_piece;
}
static bool but_the_last(const view *v, size_t key)
{
    return v->was[key] && key + 1 < v->keys;
}

/* Which bug is in which attention. */
static const struct {
    const char *name, *where;
    rule_fn *rule;
    bool noisy; /* only with dropout */
    bool every; /* in every layer */
} rules[] = {
    { "future-key", "self", next_key, false, false },
    { "dropout-drops-mask", "self", everything, true, true },
    { "batch-mask-ignored", "self", to_itself, false, false },
    { "mask-inverted", "self", inverted, false, false },
    { "window-dropped", "self", to_itself, false, false },
    { "window-short-in-steps", "step", but_the_first, false, false },
    { "window-long-in-steps", "step", one_more, false, false },
    { "top-left-in-steps", "step", top_left, false, true },
    { "pieces-see-ahead", "step", everything, false, true },
    { "cross-mask-ignored", "cross", everything, false, false },
    { "cross-misses-last", "cross", but_the_last, false, false },
    { "backward-sees-future", "back", next_key, false, true },
};

static size_t grid_blocks(const bauta_plan *p, size_t grid)
{
    size_t count = 1;
    while (grid + count < p->block_count &&
           p->blocks[grid + count].key ==
               p->blocks[grid + count - 1].key + BT_BLOCK)
        count++;
    return count;
}

static size_t grid_keys(const bauta_plan *p, size_t grid, size_t blocks)
{
    const bt_key_block *last = &p->blocks[grid + blocks - 1];
    return last->key + last->keys - p->blocks[grid].key;
}

/* What row r of a tile sees now. */
static void row_read(const bauta_plan *p, const bt_tile *t, size_t r, bool *was)
{
    for (size_t i = t->run; i < t->run + t->runs; i++)
        for (size_t k = 0; k < p->runs[i].count; k++) {
            uint64_t word = UINT64_MAX;
            if (p->runs[i].words != BT_FULL)
                word = p->words[p->runs[i].words + k * t->rows + r];
            for (size_t j = 0; j < BT_BLOCK; j++)
                if (word >> j & 1)
                    was[(p->runs[i].first + k) * BT_BLOCK + j] = true;
        }
}

/* The first row of the plan that has the tile's grid. */
static size_t first_row(const bauta_plan *p, const bt_tile *t)
{
    for (size_t i = 0; i < p->tile_count; i++)
        if (p->tiles[i].runs && p->tiles[i].grid == t->grid)
            return p->tiles[i].row;
    return t->row;
}

static void row_write(const bauta_plan *from, const bt_tile *t, size_t r,
                      size_t blocks, rule_fn *rule, uint64_t *words)
{
    bool was[16 * BT_BLOCK] = { false };
    assert_true(blocks <= 16);
    row_read(from, t, r, was);
    view v = { .row = t->row + r - from->blocks[t->grid].key,
               .in_piece = t->row + r - first_row(from, t),
               .keys = grid_keys(from, t->grid, blocks),
               .was = was };
    for (size_t j = 0; j < v.keys; j++)
        if (was[j]) {
            v.lo = v.hi ? v.lo : j;
            v.hi = j + 1;
        }
    for (size_t j = 0; j < v.keys; j++)
        if (rule(&v, j))
            words[j / BT_BLOCK * t->rows + r] |= UINT64_C(1) << j % BT_BLOCK;
}

/* Blocks before the first that a tile visits may be pages that were given back;
 * they stay unvisited. */
static void tile_write(const bauta_plan *from, bauta_plan *to, size_t index,
                       rule_fn *rule)
{
    bt_tile *t = &to->tiles[index];
    const bt_tile old = *t;
    t->run = to->run_count;
    if (!old.runs)
        return;
    size_t blocks = grid_blocks(from, old.grid);
    size_t first = from->visits ? 0 : from->runs[old.run].first;
    to->runs[to->run_count++] =
        (bt_run){ first, blocks - first, to->word_count + first * t->rows };
    t->runs = 1;
    t->visits = blocks - first;
    for (size_t r = 0; r < t->rows; r++)
        row_write(from, &old, r, blocks, rule, to->words + to->word_count);
    to->word_count += blocks * t->rows;
}

/* The same seen from the keys. */
static void visits_write(bauta_plan *p)
{
    p->visit_count = 0;
    for (size_t b = 0; b < p->block_count; b++) {
        p->blocks[b].visit = p->visit_count;
        for (size_t i = 0; i < p->tile_count; i++) {
            const bt_tile *t = &p->tiles[i];
            if (!t->runs || b < t->grid || b - t->grid >= t->visits)
                continue;
            p->visits[p->visit_count++] =
                (bt_visit){ i, 1,
                            p->runs[t->run].words + (b - t->grid) * t->rows };
        }
        p->blocks[b].visits = p->visit_count - p->blocks[b].visit;
    }
}

static const bauta_plan *plan_bent(const bauta_plan *from, rule_fn *rule)
{
    bauta_plan *to = copy_of(from, 1, sizeof(*to));
    size_t words = from->rows * from->block_count + 1;
    to->tiles = copy_of(from->tiles, from->tile_count, sizeof(*to->tiles));
    to->blocks = copy_of(from->blocks, from->block_count, sizeof(*to->blocks));
    to->runs = copy_of(NULL, 0, sizeof(*to->runs) * (from->tile_count + 1));
    to->words = copy_of(NULL, 0, sizeof(*to->words) * words);
    to->visits = copy_of(NULL, 0,
                         sizeof(*to->visits) *
                             (from->tile_count * from->block_count + 1));
    to->run_count = to->word_count = 0;
    for (size_t i = 0; i < to->tile_count; i++)
        tile_write(from, to, i, rule);
    visits_write(to);
    assert_true(garden.count < BT_LEN(garden.plans));
    garden.plans[garden.count++] = to;
    return to;
}

const bauta_plan *bt_planted_plan(const bauta_plan *plan, const char *where,
                                  size_t layer, bool noisy)
{
    for (size_t i = 0; plan && i < BT_LEN(rules); i++)
        if (bt_planted(rules[i].name) && strcmp(where, rules[i].where) == 0 &&
            (rules[i].every || layer == plant.layer) &&
            (noisy || !rules[i].noisy))
            return plan_bent(plan, rules[i].rule);
    return plan;
}

/* ---- masks ----------------------------------------------------------------
 */

void bt_planted_mask(bauta_mask **mask)
{
    bauta_mask *other = NULL;
    if (!*mask)
        return;
    size_t n = (*mask)->queries, m = (*mask)->keys;
    if (bt_planted("documents-open"))
        assert_int_equal(bauta_mask_causal(&other, n, m, NULL), 0);
    else if (bt_planted("padding-seen-across"))
        assert_int_equal(bauta_mask_all(&other, n, m, NULL), 0);
    else
        return;
    bauta_mask_free(*mask);
    *mask = other;
}

#endif
