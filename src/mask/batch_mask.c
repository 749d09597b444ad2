/* SPDX-License-Identifier: Apache-2.0 */
/* batch_mask.c - the mask of a batch of sequences, packed back to back. */
#include "mask/batch_mask.h"

#include "base/error.h"
#include "base/size.h"
#include "mask/mask_builder.h"

bt_row_visibility bt_row_visibility_of(const bt_batch_mask *mask,
                                       size_t sequence)
{
    bt_row_visibility rule = { .rows = mask->queries.lengths[sequence],
                               .keys = mask->keys.lengths[sequence],
                               .window = mask->window };
    size_t window = mask->windows ? mask->windows[sequence] : 0;
    if (window && (window < rule.window || !rule.window))
        rule.window = window;
    if (!mask->causal)
        rule.prefix = rule.keys;
    else if (mask->prefixes)
        rule.prefix = bt_size_min(mask->prefixes[sequence], rule.keys);
    return rule;
}

bauta_span bt_row_span(const bt_row_visibility *rule, size_t row)
{
    size_t end = bt_mask_causal_end(rule->rows, rule->keys, row);
    return bt_causal_span(end, rule->window, rule->prefix);
}

static size_t axis_total(const bt_token_axis *axis)
{
    size_t total = 0;
    for (size_t s = 0; s < axis->count; s++)
        total = bt_size_add(total, axis->lengths[s]);
    return total;
}

/* Where a sequence begins on the caller's axis. */
static size_t axis_start(const bt_token_axis *axis, size_t sequence,
                         size_t packed)
{
    return axis->stride ? sequence * axis->stride : packed;
}

/* Add a row: the intersection of `span` and the extra mask's row, both on the
 * caller's axis, where the sequence begins at key `start`; packed it begins at
 * `key`. */
static bauta_status intersection_add(bt_mask_builder *builder, bauta_span span,
                                     bt_spans extra, size_t start, size_t key,
                                     bauta_error *err)
{
    bauta_status status =
        bt_mask_builder_reserve(builder, extra.count + 1, err);
    if (status)
        return status;
    bauta_span *to = bt_mask_builder_next(builder);
    size_t count =
        bt_spans_intersect(to, extra, (bt_spans){ &span, span.lo < span.hi });
    for (size_t i = 0; i < count; i++)
        to[i] = (bauta_span){ to[i].lo - start + key, to[i].hi - start + key };
    bt_mask_builder_add_row(builder, count, key);
    return BAUTA_OK;
}

/* Add the rows of a sequence that begins at `query` and `key` when packed. */
static bauta_status sequence_add(bt_mask_builder *builder,
                                 const bt_batch_mask *mask, size_t sequence,
                                 size_t query, size_t key, bauta_error *err)
{
    size_t from = axis_start(&mask->queries, sequence, query);
    size_t start = axis_start(&mask->keys, sequence, key);
    bt_row_visibility rule = bt_row_visibility_of(mask, sequence);
    bauta_status status = BAUTA_OK;
    for (size_t r = 0; r < rule.rows && !status; r++) {
        bauta_span span = bt_row_span(&rule, r);
        status = intersection_add(
            builder, (bauta_span){ start + span.lo, start + span.hi },
            bt_mask_spans(mask->extra, from + r), start, key, err);
    }
    return status;
}

static bauta_status create_rows(bauta_mask **out, const bt_batch_mask *mask,
                                bauta_error *err)
{
    size_t queries = axis_total(&mask->queries), query = 0, key = 0;
    bt_mask_builder builder;
    bauta_status status = bt_mask_builder_begin(
        &builder, queries, axis_total(&mask->keys), queries, err);
    for (size_t s = 0; s < mask->queries.count && !status; s++) {
        status = sequence_add(&builder, mask, s, query, key, err);
        query += mask->queries.lengths[s];
        key += mask->keys.lengths[s];
    }
    return bt_mask_builder_end(&builder, out, status);
}

static bauta_status create_bands(bauta_mask **out, const bt_batch_mask *mask,
                                 bauta_error *err)
{
    bt_band_builder builder;
    bauta_status status = bt_band_builder_begin(
        &builder, axis_total(&mask->queries), axis_total(&mask->keys),
        mask->queries.count, err);
    for (size_t s = 0; s < mask->queries.count && !status; s++) {
        bt_row_visibility rule = bt_row_visibility_of(mask, s);
        status = bt_band_builder_add_causal(&builder, rule.rows, rule.keys,
                                            rule.window, rule.prefix, err);
        builder.key += rule.keys;
    }
    return bt_band_builder_end(&builder, out, status, err);
}

bauta_status bt_batch_mask_create(bauta_mask **out, const bt_batch_mask *mask,
                                  bauta_error *err)
{
    *out = NULL;
    return mask->extra ? create_rows(out, mask, err)
                       : create_bands(out, mask, err);
}
