/* SPDX-License-Identifier: Apache-2.0 */
/* shelf.c - masks of batches, and their plans. */
#include "mask/shelf.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/builder.h"

#include <string.h>

/* ---- the mask ---------------------------------------------------------- */

static size_t axis_total(const bt_axis *axis)
{
    size_t total = 0;
    for (size_t s = 0; s < axis->count; s++)
        total = bt_size_add(total, axis->lengths[s]);
    return total;
}

/* Where a sequence begins on its caller's axis. */
static size_t axis_start(const bt_axis *axis, size_t sequence, size_t packed)
{
    return axis->stride ? sequence * axis->stride : packed;
}

/* Add a row that sees `span` of the extra mask's row, both on the caller's
 * axis; its sequence begins at key `start` there and at `key` when packed. */
static bauta_status narrowed_add(bt_builder *builder, bauta_span span,
                                 bt_spans extra, size_t start, size_t key,
                                 bauta_error *err)
{
    bauta_status status = bt_builder_reserve(builder, extra.count + 1, err);
    if (status)
        return status;
    bauta_span *to = bt_builder_next(builder);
    size_t count =
        bt_spans_and(to, extra, (bt_spans){ &span, span.lo < span.hi });
    for (size_t i = 0; i < count; i++)
        to[i] = (bauta_span){ to[i].lo - start + key, to[i].hi - start + key };
    bt_builder_row(builder, count, key);
    return BAUTA_OK;
}

/* Add the rows of a sequence, which begins at `query` and `key` when packed. */
static bauta_status sequence_add(bt_builder *builder, const bt_batch_mask *mask,
                                 size_t sequence, size_t query, size_t key,
                                 bauta_error *err)
{
    size_t from = axis_start(&mask->queries, sequence, query);
    size_t start = axis_start(&mask->keys, sequence, key);
    bt_row_rule rule = bt_row_rule_of(mask, sequence);
    bauta_status status = BAUTA_OK;
    for (size_t r = 0; r < rule.rows && !status; r++) {
        bauta_span span = bt_row_span(&rule, r);
        if (mask->extra)
            status = narrowed_add(
                builder, (bauta_span){ start + span.lo, start + span.hi },
                bt_mask_spans(mask->extra, from + r), start, key, err);
        else
            bt_builder_row_span(
                builder, (bauta_span){ key + span.lo, key + span.hi }, key);
    }
    return status;
}

bauta_status bt_batch_mask_create(bauta_mask **out, const bt_batch_mask *mask,
                                  bauta_error *err)
{
    size_t queries = axis_total(&mask->queries), query = 0, key = 0;
    bt_builder builder;
    *out = NULL;
    bauta_status status = bt_builder_begin(
        &builder, queries, axis_total(&mask->keys), queries, err);
    for (size_t s = 0; s < mask->queries.count && !status; s++) {
        status = sequence_add(&builder, mask, s, query, key, err);
        query += mask->queries.lengths[s];
        key += mask->keys.lengths[s];
    }
    return bt_builder_end(&builder, out, status);
}

/* ---- the shelf --------------------------------------------------------- */

/* Whether a mask follows from the rule and the lengths alone. */
static bool plain(const bt_batch_mask *mask)
{
    return !mask->extra && !mask->prefixes && !mask->windows;
}

static bool kept(const bt_shelf *shelf, bt_place place,
                 const bt_batch_mask *mask)
{
    size_t count = mask->queries.count, bytes = count * sizeof(size_t);
    const size_t *lengths = shelf->places[place].lengths;
    return shelf->places[place].kept && plain(mask) &&
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
    shelf->places[place].kept = plain(mask);
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
