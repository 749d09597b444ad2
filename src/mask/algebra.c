/* SPDX-License-Identifier: Apache-2.0 */
/* algebra.c - AND, OR and NOT, row by row, in time linear in the spans. */
#include "base/error.h"
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

/* Combine two masks row by row: their spans by `spans`, their origins by
 * `origin`. */
static bauta_status combine(bauta_mask **out, const bauta_mask *a,
                            const bauta_mask *b, bt_spans_fn *spans,
                            size_t (*origin)(size_t, size_t), const char *verb,
                            bauta_error *err)
{
    bauta_status status = bt_mask_clear(out, err);
    if (!status)
        status = check_operands(a, b, verb, err);
    if (status)
        return status;

    // An estimate: usually the result has as many spans as the larger operand.
    size_t expected = bt_size_max(a->start[a->queries], b->start[b->queries]);
    bt_mask_builder builder;
    status =
        bt_mask_builder_begin(&builder, a->queries, a->keys, expected, err);
    for (size_t i = 0; i < a->queries && !status; i++) {
        bt_spans x = bt_mask_spans(a, i), y = bt_mask_spans(b, i);
        status = bt_mask_builder_reserve(&builder, x.count + y.count, err);
        if (!status)
            bt_mask_builder_add_row(&builder,
                                    spans(bt_mask_builder_next(&builder), x, y),
                                    origin(a->origin[i], b->origin[i]));
    }
    return bt_mask_builder_end(&builder, out, status);
}

bauta_status bauta_mask_and(bauta_mask **out, const bauta_mask *a,
                            const bauta_mask *b, bauta_error *err)
{
    return combine(out, a, b, bt_spans_intersect, bt_size_max, "and", err);
}

bauta_status bauta_mask_or(bauta_mask **out, const bauta_mask *a,
                           const bauta_mask *b, bauta_error *err)
{
    return combine(out, a, b, bt_spans_union, bt_size_min, "or", err);
}

bauta_status bauta_mask_not(bauta_mask **out, const bauta_mask *a,
                            bauta_error *err)
{
    bauta_status status = bt_mask_clear(out, err);
    if (status)
        return status;
    if (!a)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "not: the mask is NULL");

    bauta_span keys = { 0, a->keys };
    bt_spans all = { &keys, a->keys > 0 };
    size_t most = a->start[a->queries] + a->queries; // at most one more per row
    bt_mask_builder builder;
    status = bt_mask_builder_begin(&builder, a->queries, a->keys, most, err);
    for (size_t i = 0; i < a->queries && !status; i++)
        bt_mask_builder_add_row(
            &builder,
            bt_spans_subtract(bt_mask_builder_next(&builder), all,
                              bt_mask_spans(a, i)),
            0);
    return bt_mask_builder_end(&builder, out, status);
}
