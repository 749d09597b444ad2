/* SPDX-License-Identifier: Apache-2.0 */
/* constructors.c - one constructor for each kind of mask. */
#include "base/error.h"
#include "base/size.h"
#include "mask/mask_builder.h"

#include <string.h>

/* ---- One span per row, from the row's position ----------------------------
 */

static bauta_status causal_mask(bauta_mask **out, size_t queries, size_t keys,
                                size_t window, size_t prefix, bauta_error *err)
{
    bt_band_builder builder;
    bauta_status status = bt_mask_clear(out, err);
    if (!status)
        status = bt_band_builder_begin(&builder, queries, keys, 3, err);
    else
        return status;
    if (!status)
        status = bt_band_builder_add_causal(&builder, queries, keys, window,
                                            prefix, err);
    return bt_band_builder_end(&builder, out, status, err);
}

bauta_status bauta_mask_all(bauta_mask **out, size_t queries, size_t keys,
                            bauta_error *err)
{
    // The prefix is the whole sequence.
    return causal_mask(out, queries, keys, 0, keys, err);
}

bauta_status bauta_mask_causal(bauta_mask **out, size_t queries, size_t keys,
                               bauta_error *err)
{
    return causal_mask(out, queries, keys, 0, 0, err);
}

bauta_status bauta_mask_window(bauta_mask **out, size_t queries, size_t keys,
                               size_t window, bauta_error *err)
{
    bauta_status status = bt_mask_clear(out, err);
    if (status)
        return status;
    if (window == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a window of 0 keys: it counts the query itself, so "
                       "the smallest is 1");
    return causal_mask(out, queries, keys, window, 0, err);
}

bauta_status bauta_mask_prefix(bauta_mask **out, size_t queries, size_t keys,
                               size_t prefix, bauta_error *err)
{
    return causal_mask(out, queries, keys, 0, bt_size_min(prefix, keys), err);
}

bauta_status bauta_mask_sinks(bauta_mask **out, size_t queries, size_t keys,
                              size_t sinks, bauta_error *err)
{
    bt_band_builder builder;
    bauta_status status = bt_mask_clear(out, err);
    if (status)
        return status;
    status = bt_band_builder_begin(&builder, queries, keys, 3, err);
    // Rows before every key, rows among the sinks, and those after them.
    size_t before = queries > keys ? queries - keys : 0;
    size_t first = bt_mask_causal_end(queries, keys, before); // end of a row
    size_t among = bt_size_min(queries, keys); // rows that see something
    sinks = bt_size_min(sinks, keys);
    among = bt_size_min(among, sinks >= first ? sinks - first + 1 : 0);
    if (!status)
        status = bt_band_builder_add(&builder, before, 0, NULL, 0, err);
    if (!status)
        status = bt_band_builder_add_span(
            &builder, among, 0, (bt_band_span){ { 0, first }, 0, 1 }, err);
    if (!status)
        status =
            bt_band_builder_add_span(&builder, queries - before - among, 0,
                                     (bt_band_span){ { 0, sinks }, 0, 0 }, err);
    return bt_band_builder_end(&builder, out, status, err);
}

/* ---- Several sequences on one axis
 * --------------------------------------------- */

/* Rows that all see the first `keys` keys of their sequence. */
static bauta_status add_rows(bt_band_builder *builder, size_t rows, size_t keys,
                             bauta_error *err)
{
    return bt_band_builder_add_span(builder, rows, 0,
                                    (bt_band_span){ { 0, keys }, 0, 0 }, err);
}

static bauta_status check_lengths(size_t batch, size_t time,
                                  const size_t *lengths, const char *what,
                                  bauta_error *err)
{
    for (size_t b = 0; b < batch; b++)
        if (lengths[b] > time)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "sequence %zu has %zu %s in a time of %zu", b,
                           lengths[b], what, time);
    return BAUTA_OK;
}

static bauta_status check_batch(size_t batch, size_t query_time,
                                size_t key_time, const size_t *query_lengths,
                                const size_t *key_lengths, bauta_error *err)
{
    // Check the sizes first: they bound how many lengths are read.
    size_t time = bt_size_max(1, bt_size_max(query_time, key_time));
    if (bt_size_mul(batch, time) > BT_AXIS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a batch of %zu sequences of %zu queries and %zu keys "
                       "is too large: neither axis may exceed %zu",
                       batch, query_time, key_time, BT_AXIS_MAX);
    if (batch && !key_lengths)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "key_lengths is NULL for a batch of %zu sequences",
                       batch);
    if (!query_lengths && query_time != key_time)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "query_lengths is NULL, but the query time %zu differs "
                       "from the key time %zu",
                       query_time, key_time);
    bauta_status status =
        check_lengths(batch, key_time, key_lengths, "keys", err);
    if (!status && query_lengths)
        status =
            check_lengths(batch, query_time, query_lengths, "queries", err);
    return status;
}

bauta_status bauta_mask_lengths(bauta_mask **out, size_t batch,
                                size_t query_time, size_t key_time,
                                const size_t *query_lengths,
                                const size_t *key_lengths, bauta_error *err)
{
    bauta_status status = bt_mask_clear(out, err);
    if (status)
        return status;
    status = check_batch(batch, query_time, key_time, query_lengths,
                         key_lengths, err);
    if (status)
        return status;

    bt_band_builder builder;
    status = bt_band_builder_begin(&builder, batch * query_time,
                                   batch * key_time, 2 * batch, err);
    for (size_t b = 0; b < batch && !status; b++) {
        size_t real = query_lengths ? query_lengths[b] : key_lengths[b];
        builder.key = b * key_time;
        status = add_rows(&builder, real, key_lengths[b], err);
        if (!status)
            status = add_rows(&builder, query_time - real, 0, err);
    }
    return bt_band_builder_end(&builder, out, status, err);
}

/* The sum of the lengths; SIZE_MAX on overflow. */
static size_t sum(size_t count, const size_t *lengths)
{
    size_t total = 0;
    for (size_t d = 0; d < count; d++)
        total = bt_size_add(total, lengths[d]);
    return total;
}

/* Clear *out and check the list of documents, before it is read. */
static bauta_status documents_begin(bauta_mask **out, size_t documents,
                                    const void *list, const char *name,
                                    bauta_error *err)
{
    bauta_status status = bt_mask_clear(out, err);
    if (status)
        return status;
    if (documents && !list)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s is NULL for %zu documents",
                       name, documents);
    if (documents > BT_AXIS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a mask of %zu documents: the maximum is %zu", documents,
                       BT_AXIS_MAX);
    return BAUTA_OK;
}

bauta_status bauta_mask_documents(bauta_mask **out, size_t documents,
                                  const size_t *query_lengths,
                                  const size_t *key_lengths, bauta_error *err)
{
    bauta_status status =
        documents_begin(out, documents, query_lengths, "query_lengths", err);
    if (status)
        return status;
    if (!key_lengths)
        key_lengths = query_lengths;

    bt_band_builder builder;
    status = bt_band_builder_begin(&builder, sum(documents, query_lengths),
                                   sum(documents, key_lengths), documents, err);
    for (size_t d = 0; d < documents && !status; d++) {
        status = add_rows(&builder, query_lengths[d], key_lengths[d], err);
        builder.key += key_lengths[d];
    }
    return bt_band_builder_end(&builder, out, status, err);
}

bauta_status bauta_mask_causal_documents(bauta_mask **out, size_t documents,
                                         const size_t *lengths,
                                         bauta_error *err)
{
    bauta_status status =
        documents_begin(out, documents, lengths, "lengths", err);
    if (status)
        return status;
    size_t all = sum(documents, lengths);
    bt_band_builder builder;
    status = bt_band_builder_begin(&builder, all, all, documents, err);
    for (size_t d = 0; d < documents && !status; d++) {
        status = bt_band_builder_add_causal(&builder, lengths[d], lengths[d], 0,
                                            0, err);
        builder.key += lengths[d];
    }
    return bt_band_builder_end(&builder, out, status, err);
}

static bauta_status add_bands(bt_band_builder *builder, const bauta_mask *mask,
                              bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t b = 0; b < mask->band_count && !status; b++) {
        const bt_band *band = &mask->bands[b];
        status = bt_band_builder_add(builder, band->rows, band->origin,
                                     mask->band_spans + band->span, band->spans,
                                     err);
    }
    return status;
}

/* Append the rows of a mask whose key 0 is key `key` of the whole. */
static void add_document(bt_mask_builder *builder, const bauta_mask *mask,
                         size_t key)
{
    for (size_t i = 0; i < mask->queries; i++) {
        bt_spans row = bt_mask_spans(mask, i);
        bauta_span *to = bt_mask_builder_next(builder);
        for (size_t k = 0; k < row.count; k++)
            to[k] = (bauta_span){ key + row.at[k].lo, key + row.at[k].hi };
        bt_mask_builder_add_row(builder, row.count,
                                key + bt_mask_rows(mask)->origin[i]);
    }
}

static bauta_status pack_bands(bauta_mask **out, size_t documents,
                               const bauta_mask *const *masks, size_t queries,
                               size_t keys, size_t bands, bauta_error *err)
{
    bt_band_builder builder;
    bauta_status status =
        bt_band_builder_begin(&builder, queries, keys, bands, err);
    for (size_t d = 0; d < documents && !status; d++) {
        status = add_bands(&builder, masks[d], err);
        builder.key += masks[d]->keys;
    }
    return bt_band_builder_end(&builder, out, status, err);
}

static bauta_status pack_rows(bauta_mask **out, size_t documents,
                              const bauta_mask *const *masks, size_t queries,
                              size_t keys, bauta_error *err)
{
    size_t spans = 0;
    for (size_t d = 0; d < documents; d++)
        spans = bt_size_add(spans,
                            bt_mask_rows(masks[d])->start[masks[d]->queries]);
    bt_mask_builder builder;
    bauta_status status =
        bt_mask_builder_begin(&builder, queries, keys, spans, err);
    for (size_t d = 0, key = 0; d < documents && !status; d++) {
        add_document(&builder, masks[d], key);
        key += masks[d]->keys;
    }
    return bt_mask_builder_end(&builder, out, status);
}

bauta_status bauta_mask_pack(bauta_mask **out, size_t documents,
                             const bauta_mask *const *masks, bauta_error *err)
{
    bauta_status status = documents_begin(out, documents, masks, "masks", err);
    if (status)
        return status;
    size_t queries = 0, keys = 0, bands = 0;
    bool banded = true;
    for (size_t d = 0; d < documents; d++) {
        if (!masks[d])
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "mask %zu of a pack of %zu is NULL", d, documents);
        queries = bt_size_add(queries, masks[d]->queries);
        keys = bt_size_add(keys, masks[d]->keys);
        bands = bt_size_add(bands, masks[d]->band_count);
        banded &= masks[d]->bands != NULL;
    }
    return banded ? pack_bands(out, documents, masks, queries, keys, bands, err)
                  : pack_rows(out, documents, masks, queries, keys, err);
}

/* ---- Arbitrary masks
 * ------------------------------------------------------------ */

static size_t dense_row(bauta_span *to, const unsigned char *visible,
                        size_t keys)
{
    size_t count = 0, key = 0;
    for (;;) {
        while (key < keys && !visible[key])
            key++;
        if (key == keys)
            return count;
        size_t lo = key;
        while (key < keys && visible[key])
            key++;
        to[count++] = (bauta_span){ lo, key };
    }
}

bauta_status bauta_mask_dense(bauta_mask **out, size_t queries, size_t keys,
                              const unsigned char *visible, bauta_error *err)
{
    bauta_status status = bt_mask_clear(out, err);
    if (status)
        return status;
    if (!visible && queries && keys)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "visible is NULL for %zu queries over %zu keys", queries,
                       keys);
    bt_mask_builder builder;
    status = bt_mask_builder_begin(&builder, queries, keys, queries, err);
    for (size_t i = 0; i < queries && !status; i++) {
        // The maximum: visible and hidden keys alternate.
        status = bt_mask_builder_reserve(&builder, (keys + 1) / 2, err);
        if (status)
            break;
        const unsigned char *row = keys ? visible + i * keys : NULL;
        bt_mask_builder_add_row(
            &builder, dense_row(bt_mask_builder_next(&builder), row, keys), 0);
    }
    return bt_mask_builder_end(&builder, out, status);
}

/* Let the callback write up to `room` spans of the next row. */
static bauta_status call_row(bt_mask_builder *builder, bauta_mask_row_fn *row,
                             void *user, size_t room, size_t *count,
                             bauta_error *err)
{
    bauta_status status = bt_mask_builder_reserve(builder, room, err);
    if (status)
        return status;
    // A span that is counted but not written is then found to be empty.
    memset(bt_mask_builder_next(builder), 0, room * sizeof(bauta_span));
    *count = row(user, builder->row, bt_mask_builder_next(builder), room);
    return BAUTA_OK;
}

/* Get a row from the callback, in two calls if it has many spans. The spans are
 * not checked yet. */
static bauta_status read_row(bt_mask_builder *builder, bauta_mask_row_fn *row,
                             void *user, size_t *count, bauta_error *err)
{
    size_t keys = builder->mask->keys, room = bt_size_min(8, keys);
    bauta_status status = call_row(builder, row, user, room, count, err);
    if (status || *count <= room)
        return status;
    if (*count > keys)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "row %zu: the callback returned %zu spans over %zu keys",
                       builder->row, *count, keys);
    room = *count;
    status = call_row(builder, row, user, room, count, err);
    if (!status && *count != room)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "row %zu: the callback returned %zu spans at first and "
                       "%zu when called again",
                       builder->row, room, *count);
    return status;
}

/* Check the `count` spans that a callback wrote and make them canonical in
 * place; the list never grows. */
static bauta_status check_row(bauta_span *spans, size_t *count, size_t row,
                              size_t keys, bauta_error *err)
{
    size_t given = *count, end = 0;
    *count = 0;
    for (size_t k = 0; k < given; k++) {
        bauta_span span = spans[k];
        const char *wrong = NULL;
        if (span.lo >= span.hi)
            wrong = "is empty";
        else if (span.hi > keys)
            wrong = "ends after the last key";
        else if (span.lo < end)
            wrong = "begins before the previous span ends";
        if (wrong)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "row %zu: span %zu, [%zu, %zu) of %zu keys, %s", row,
                           k, span.lo, span.hi, keys, wrong);
        end = span.hi;
        *count = bt_spans_append(spans, *count, span.lo, span.hi);
    }
    return BAUTA_OK;
}

bauta_status bauta_mask_rows(bauta_mask **out, size_t queries, size_t keys,
                             bauta_mask_row_fn *row, void *user,
                             bauta_error *err)
{
    bauta_status status = bt_mask_clear(out, err);
    if (status)
        return status;
    if (!row)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "row is NULL: no callback gives the %zu rows", queries);
    bt_mask_builder builder;
    status = bt_mask_builder_begin(&builder, queries, keys, queries, err);
    for (size_t i = 0; i < queries && !status; i++) {
        size_t count = 0;
        status = read_row(&builder, row, user, &count, err);
        if (!status)
            status =
                check_row(bt_mask_builder_next(&builder), &count, i, keys, err);
        if (!status)
            bt_mask_builder_add_row(&builder, count, 0);
    }
    return bt_mask_builder_end(&builder, out, status);
}
