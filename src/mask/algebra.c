/* SPDX-License-Identifier: Apache-2.0 */
/* algebra.c - AND, OR and NOT.
 *
 * Masks of bands are combined band by band: rows are divided where an end of
 * one operand passes one of the other, and between two such rows the result
 * moves as evenly as the operands do. Others are combined row by row, in time
 * linear in the spans. */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/mask_builder.h"

static bauta_status check_operands(const bauta_mask *a, const bauta_mask *b,
                                   const char *verb, bauta_error *err)
{
    if (!a || !b)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s: the %s mask is NULL", verb,
                       a ? "second" : "first");
    if (a->queries != b->queries || a->keys != b->keys)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s: one mask has %zu queries and %zu keys, the other "
                       "%zu and %zu",
                       verb, a->queries, a->keys, b->queries, b->keys);
    return BAUTA_OK;
}

/* An operation on two masks: on the spans of a row, and on its origins. */
typedef struct operation {
    const char *verb;
    bt_spans_fn *spans;
    size_t (*origin)(size_t, size_t);
} operation;

/* ---- Row by row ---------------------------------------------------------- */

static bauta_status combine_rows(bauta_mask **out, const bauta_mask *a,
                                 const bauta_mask *b, const operation *op,
                                 bauta_error *err)
{
    const bt_row_list *x = bt_mask_rows(a), *y = bt_mask_rows(b);
    // An estimate: usually the result has as many spans as the larger operand.
    size_t expected = bt_size_max(x->start[a->queries], y->start[b->queries]);
    bt_mask_builder builder;
    bauta_status status =
        bt_mask_builder_begin(&builder, a->queries, a->keys, expected, err);
    for (size_t i = 0; i < a->queries && !status; i++) {
        bt_spans from = bt_mask_spans(a, i), with = bt_mask_spans(b, i);
        status =
            bt_mask_builder_reserve(&builder, from.count + with.count, err);
        if (!status)
            bt_mask_builder_add_row(
                &builder, op->spans(bt_mask_builder_next(&builder), from, with),
                op->origin(x->origin[i], y->origin[i]));
    }
    return bt_mask_builder_end(&builder, out, status);
}

/* ---- Band by band -------------------------------------------------------- */

/* A row of a mask's bands. */
typedef struct band_row {
    const bt_band *band;
    const bt_band_span *spans;
    size_t row; /* of the mask */
} band_row;

/* Lists for one band of the result, each of as many spans as the two operands
 * may have in a row. */
typedef struct band_lists {
    bauta_span *a, *b, *first, *last;
    bt_band_span *result;
} band_lists;

static band_row row_of(const bauta_mask *mask, size_t band, size_t row)
{
    const bt_band *at = &mask->bands[band];
    return (band_row){ at, mask->band_spans + at->span, row };
}

static size_t rows_left(band_row r)
{
    return r.band->row + r.band->rows - r.row;
}

static bt_spans spans_at(bauta_span *to, band_row r, size_t later)
{
    for (size_t k = 0; k < r.band->spans; k++)
        to[k] = bt_band_span_at(&r.spans[k], r.row + later - r.band->row);
    return (bt_spans){ to, r.band->spans };
}

/* For how many rows the order of two ends stays as it is: one of them may move
 * on by a key from row to row. */
static size_t rows_in_order(size_t x, size_t x_step, size_t y, size_t y_step)
{
    if (x == y)
        return x_step == y_step ? SIZE_MAX : 1;
    if (x < y)
        return x_step > y_step ? y - x : SIZE_MAX;
    return y_step > x_step ? x - y : SIZE_MAX;
}

/* For how many rows no end of one operand passes or meets one of the other: the
 * result moves evenly there. */
static size_t rows_alike(band_row a, band_row b)
{
    size_t rows = bt_size_min(rows_left(a), rows_left(b));
    for (size_t i = 0; i < 2 * a.band->spans; i++)
        for (size_t k = 0; k < 2 * b.band->spans; k++) {
            const bt_band_span *x = &a.spans[i / 2], *y = &b.spans[k / 2];
            bauta_span s = bt_band_span_at(x, a.row - a.band->row);
            bauta_span t = bt_band_span_at(y, b.row - b.band->row);
            rows = bt_size_min(rows,
                               rows_in_order(i % 2 ? s.hi : s.lo,
                                             i % 2 ? x->hi_step : x->lo_step,
                                             k % 2 ? t.hi : t.lo,
                                             k % 2 ? y->hi_step : y->lo_step));
        }
    return rows;
}

/* Add the next band of the result. */
static bauta_status combine_band(bt_band_builder *builder, band_row a,
                                 band_row b, const operation *op,
                                 const band_lists *lists, bauta_error *err)
{
    size_t rows = rows_alike(a, b);
    size_t count = op->spans(lists->first, spans_at(lists->a, a, 0),
                             spans_at(lists->b, b, 0));
    (void)op->spans(lists->last, spans_at(lists->a, a, rows - 1),
                    spans_at(lists->b, b, rows - 1));
    for (size_t k = 0; k < count; k++)
        lists->result[k] =
            (bt_band_span){ lists->first[k],
                            lists->last[k].lo != lists->first[k].lo,
                            lists->last[k].hi != lists->first[k].hi };
    return bt_band_builder_add(builder, rows,
                               op->origin(a.band->origin, b.band->origin),
                               lists->result, count, err);
}

static size_t most_spans(const bauta_mask *mask)
{
    size_t most = 0;
    for (size_t b = 0; b < mask->band_count; b++)
        most = bt_size_max(most, mask->bands[b].spans);
    return most;
}

static bauta_status combine_bands(bauta_mask **out, const bauta_mask *a,
                                  const bauta_mask *b, const operation *op,
                                  bauta_error *err)
{
    size_t most = most_spans(a) + most_spans(b), i = 0, k = 0;
    bauta_span *memory = bt_alloc(bt_size_mul(4 * most, sizeof(*memory)));
    band_lists lists = { memory, memory + most, memory + 2 * most,
                         memory + 3 * most,
                         bt_alloc(bt_size_mul(most, sizeof(bt_band_span))) };
    bt_band_builder builder;
    bauta_status status =
        bt_band_builder_begin(&builder, a->queries, a->keys,
                              bt_size_max(a->band_count, b->band_count), err);
    if (!status && (!memory || !lists.result))
        status = bt_fail_memory(err, "the spans of a band",
                                bt_size_mul(most, sizeof(bt_band_span)));
    while (!status && builder.row < a->queries) {
        while (a->bands[i].row + a->bands[i].rows <= builder.row)
            i++;
        while (b->bands[k].row + b->bands[k].rows <= builder.row)
            k++;
        status = combine_band(&builder, row_of(a, i, builder.row),
                              row_of(b, k, builder.row), op, &lists, err);
    }
    bt_free(memory);
    bt_free(lists.result);
    return bt_band_builder_end(&builder, out, status, err);
}

static bauta_status combine(bauta_mask **out, const bauta_mask *a,
                            const bauta_mask *b, const operation *op,
                            bauta_error *err)
{
    bauta_status status = bt_mask_clear(out, err);
    if (!status)
        status = check_operands(a, b, op->verb, err);
    if (status)
        return status;
    return a->bands && b->bands ? combine_bands(out, a, b, op, err)
                                : combine_rows(out, a, b, op, err);
}

bauta_status bauta_mask_and(bauta_mask **out, const bauta_mask *a,
                            const bauta_mask *b, bauta_error *err)
{
    static const operation both = { "and", bt_spans_intersect, bt_size_max };
    return combine(out, a, b, &both, err);
}

bauta_status bauta_mask_or(bauta_mask **out, const bauta_mask *a,
                           const bauta_mask *b, bauta_error *err)
{
    static const operation either = { "or", bt_spans_union, bt_size_min };
    return combine(out, a, b, &either, err);
}

/* All that `a` does not see, from origin 0: the difference of a mask of all
 * keys, which has that origin. */
bauta_status bauta_mask_not(bauta_mask **out, const bauta_mask *a,
                            bauta_error *err)
{
    static const operation difference = { "not", bt_spans_subtract,
                                          bt_size_min };
    bauta_mask *all = NULL;
    bauta_status status = bt_mask_clear(out, err);
    if (status)
        return status;
    if (!a)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "not: the mask is NULL");
    status = bauta_mask_all(&all, a->queries, a->keys, err);
    if (!status)
        status = combine(out, all, a, &difference, err);
    bauta_mask_free(all);
    return status;
}
