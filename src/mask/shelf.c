/* SPDX-License-Identifier: Apache-2.0 */
/* shelf.c - masks of batches, and their plans. */
#include "mask/shelf.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/mask.h"

#include <string.h>

/* ---- the extra mask ---------------------------------------------------- */

/* A walk over the sequences, as bauta_mask_rows() asks for row after row. */
typedef struct narrowing {
    const bt_batch_mask *mask;
    size_t sequence;
    size_t query, key; /* where the sequence begins on the packed axes */
} narrowing;

/* Where a sequence begins on its caller's axis. */
static size_t axis_start(const bt_axis *axis, size_t sequence, size_t packed)
{
    return axis->stride ? sequence * axis->stride : packed;
}

static void sequence_find(narrowing *n, size_t row)
{
    const bt_batch_mask *m = n->mask;
    while (row - n->query >= m->queries.lengths[n->sequence]) {
        n->query += m->queries.lengths[n->sequence];
        n->key += m->keys.lengths[n->sequence];
        n->sequence++;
    }
}

/* The spans of a row as far as they lie within its own sequence, moved to
 * where that is when packed. */
static size_t narrow_row(void *user, size_t row, bauta_span *spans,
                         size_t capacity)
{
    narrowing *n = user;
    const bt_batch_mask *m = n->mask;
    size_t count = 0, given;
    sequence_find(n, row);
    size_t from = axis_start(&m->queries, n->sequence, n->query);
    size_t lo = axis_start(&m->keys, n->sequence, n->key);
    size_t hi = lo + m->keys.lengths[n->sequence];
    const bauta_span *all =
        bauta_mask_row(m->extra, from + row - n->query, &given);
    for (size_t i = 0; i < given; i++) {
        bauta_span s = { bt_size_max(all[i].lo, lo),
                         bt_size_min(all[i].hi, hi) };
        if (s.lo >= s.hi)
            continue;
        if (count < capacity)
            spans[count] =
                (bauta_span){ s.lo - lo + n->key, s.hi - lo + n->key };
        count++;
    }
    return count;
}

/* ---- the mask ---------------------------------------------------------- */

/* *to AND other, in *to; `other` is released. */
static bauta_status join(bauta_mask **to, bauta_mask *other, bauta_error *err)
{
    bauta_mask *both = NULL;
    bauta_status status = bauta_mask_and(&both, *to, other, err);
    bauta_mask_free(other);
    if (status)
        return status;
    bauta_mask_free(*to);
    *to = both;
    return BAUTA_OK;
}

/* A row of the prefix sees all of it, another nothing; packed. */
static size_t prefix_row(void *user, size_t row, bauta_span *spans,
                         size_t capacity)
{
    narrowing *n = user;
    sequence_find(n, row);
    size_t prefix = n->mask->prefixes[n->sequence];
    if (row - n->query >= prefix)
        return 0;
    if (capacity)
        spans[0] = (bauta_span){ n->key, n->key + prefix };
    return 1;
}

/* *to OR the prefixes. */
static bauta_status prefixes_join(bauta_mask **to, const bt_batch_mask *mask,
                                  bauta_error *err)
{
    narrowing n = { .mask = mask };
    bauta_mask *more = NULL, *both = NULL;
    bauta_status status = bauta_mask_rows(&more, (*to)->queries, (*to)->keys,
                                          prefix_row, &n, err);
    if (!status)
        status = bauta_mask_or(&both, *to, more, err);
    bauta_mask_free(more);
    if (status)
        return status;
    bauta_mask_free(*to);
    *to = both;
    return BAUTA_OK;
}

/* What a causal attention sees of everything that lies before it. */
static bauta_status causal_create(bauta_mask **out, size_t n,
                                  const bt_batch_mask *mask, bauta_error *err)
{
    bauta_status status = mask->window
                              ? bauta_mask_window(out, n, n, mask->window, err)
                              : bauta_mask_causal(out, n, n, err);
    if (!status && mask->prefixes)
        status = prefixes_join(out, mask, err);
    return status;
}

bauta_status bt_batch_mask_create(bauta_mask **out, const bt_batch_mask *mask,
                                  bauta_error *err)
{
    bauta_mask *own = NULL, *more = NULL;
    *out = NULL;
    bauta_status status =
        bauta_mask_documents(&own, mask->queries.count, mask->queries.lengths,
                             mask->keys.lengths, err);
    if (!status && mask->causal) {
        status = causal_create(&more, own->queries, mask, err);
        if (!status)
            status = join(&own, more, err);
        else
            bauta_mask_free(more);
    }
    if (!status && mask->extra) {
        narrowing n = { .mask = mask };
        status = bauta_mask_rows(&more, own->queries, own->keys, narrow_row, &n,
                                 err);
        if (!status)
            status = join(&own, more, err);
    }
    if (status)
        bauta_mask_free(own);
    else
        *out = own;
    return status;
}

/* ---- the shelf --------------------------------------------------------- */

static bool kept(const bt_shelf *shelf, bt_place place,
                 const bt_batch_mask *mask)
{
    size_t count = mask->queries.count, bytes = count * sizeof(size_t);
    const size_t *lengths = shelf->places[place].lengths;
    return shelf->places[place].kept && !mask->extra && !mask->prefixes &&
           shelf->places[place].causal == mask->causal &&
           shelf->places[place].window == mask->window &&
           shelf->places[place].count == count &&
           (count == 0 ||
            (memcmp(lengths, mask->queries.lengths, bytes) == 0 &&
             memcmp(lengths + count, mask->keys.lengths, bytes) == 0));
}

/* Write down what the plan of a place is for. */
static bauta_status note(bt_shelf *shelf, bt_place place,
                         const bt_batch_mask *mask, bauta_error *err)
{
    size_t count = mask->queries.count, room = bt_size_mul(2, count);
    size_t *lengths = shelf->places[place].lengths;
    if (shelf->places[place].room < room) {
        bt_free(lengths);
        lengths = bt_alloc(bt_size_mul(room, sizeof(*lengths)));
        shelf->places[place].lengths = lengths;
        shelf->places[place].room = lengths ? room : 0;
        if (!lengths)
            return bt_fail_memory(err, "the lengths of a batch",
                                  bt_size_mul(room, sizeof(*lengths)));
    }
    if (count) {
        memcpy(lengths, mask->queries.lengths, count * sizeof(*lengths));
        memcpy(lengths + count, mask->keys.lengths, count * sizeof(*lengths));
    }
    shelf->places[place].count = count;
    shelf->places[place].causal = mask->causal;
    shelf->places[place].window = mask->window;
    shelf->places[place].kept = !mask->extra && !mask->prefixes;
    return BAUTA_OK;
}

bauta_status bt_shelf_get(bt_shelf *shelf, const bauta_plan **out,
                          bt_place place, const bt_batch_mask *mask,
                          bauta_error *err)
{
    bauta_mask *made = NULL;
    bauta_plan **plan = &shelf->places[place].plan;
    if (kept(shelf, place, mask)) {
        *out = *plan;
        return BAUTA_OK;
    }
    *out = NULL;
    shelf->places[place].kept = false;
    bauta_plan_free(*plan);
    *plan = NULL;
    bauta_status status = bt_batch_mask_create(&made, mask, err);
    if (!status)
        status = bauta_plan_create(plan, made, 0, made->queries, err);
    bauta_mask_free(made);
    if (!status)
        status = note(shelf, place, mask, err);
    if (!status)
        *out = *plan;
    return status;
}

void bt_shelf_release(bt_shelf *shelf)
{
    for (size_t i = 0; i < BT_PLACES; i++) {
        bauta_plan_free(shelf->places[i].plan);
        bt_free(shelf->places[i].lengths);
    }
    *shelf = (bt_shelf){ 0 };
}
