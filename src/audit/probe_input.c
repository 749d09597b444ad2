/* SPDX-License-Identifier: Apache-2.0 */
/* probe_input.c - packed copies of the caller's batches. */
#include "audit/probe_input.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* `times` copies of an array of `count` elements of `size` bytes; NULL without
 * memory. */
static void *repeated(const void *from, size_t count, size_t size, size_t times)
{
    size_t bytes = bt_size_mul(count, size);
    char *to = bt_alloc(bt_size_mul(bytes, times));
    for (size_t t = 0; to && bytes && t < times; t++)
        memcpy(to + t * bytes, from, bytes);
    return to;
}

/* ---- from the caller's batches ----------------------------------------- */

/* The row of the caller's batch that packed row `row` comes from. */
static size_t batch_row(const bt_probe_input *r, const bauta_batch *b,
                        size_t row)
{
    size_t s = r->sequence[row];
    return b->stride ? s * b->stride + bt_probe_input_position(r, row) : row;
}

static bool arrays_alloc(bt_probe_input *r, const bauta_batch *b)
{
    r->lengths = bt_alloc_zero(r->count, sizeof(*r->lengths));
    r->starts = bt_alloc_zero(r->count, sizeof(*r->starts));
    r->sequence = bt_alloc_zero(r->rows, sizeof(*r->sequence));
    r->ids = bt_alloc_zero(r->rows, sizeof(*r->ids));
    if (b->token_types)
        r->types = bt_alloc_zero(r->rows, sizeof(*r->types));
    if (b->prefix_lengths)
        r->prefixes =
            repeated(b->prefix_lengths, r->count, sizeof(*r->prefixes), 1);
    return r->lengths && r->starts && r->sequence && r->ids &&
           (r->types || !b->token_types) && (r->prefixes || !b->prefix_lengths);
}

static void rows_fill(bt_probe_input *r, const bauta_batch *b)
{
    size_t row = 0;
    for (size_t s = 0; s < r->count; s++) {
        r->lengths[s] = b->lengths ? b->lengths[s] : b->stride;
        r->starts[s] = row;
        for (size_t t = 0; t < r->lengths[s]; t++, row++) {
            r->sequence[row] = s;
            size_t from = batch_row(r, b, row);
            r->ids[row] = b->ids[from];
            if (r->types)
                r->types[row] = b->token_types[from];
        }
    }
}

/* Copy the caller's mask, with rows and keys packed. */
static bauta_status mask_copy(bt_bit_matrix *to, const bauta_mask *mask,
                              const bt_probe_input *queries,
                              const bauta_batch *query_batch,
                              const bt_probe_input *keys,
                              const bauta_batch *key_batch, bauta_error *err)
{
    if (!mask)
        return BAUTA_OK;
    bauta_status status =
        bt_bit_matrix_init(to, queries->rows, keys->rows, err);
    for (size_t i = 0; !status && i < queries->rows; i++)
        for (size_t j = 0; j < keys->rows; j++)
            if (bauta_mask_visible(mask, batch_row(queries, query_batch, i),
                                   batch_row(keys, key_batch, j)))
                bt_bit_matrix_set(to, i, j);
    return status;
}

static bauta_status input_init(bt_probe_input *r, const bauta_batch *b,
                               bauta_error *err)
{
    if (!b)
        return BAUTA_OK;
    r->count = b->count;
    for (size_t s = 0; s < b->count; s++)
        r->rows += b->lengths ? b->lengths[s] : b->stride;
    if (!arrays_alloc(r, b))
        return bt_fail_memory(err, "the batch of an audit", r->rows);
    rows_fill(r, b);
    return mask_copy(&r->mask, b->mask, r, b, r, b, err);
}

bauta_status bt_probe_inputs_init(bt_probe_inputs *inputs,
                                  const bauta_batch *source,
                                  const bauta_batch *target, bauta_error *err)
{
    *inputs = (bt_probe_inputs){ 0 };
    bauta_status status = input_init(&inputs->source, source, err);
    if (!status)
        status = input_init(&inputs->target, target, err);
    if (!status && source && target)
        status = mask_copy(&inputs->cross, target->cross_mask, &inputs->target,
                           target, &inputs->source, source, err);
    if (status)
        bt_probe_inputs_release(inputs);
    return status;
}

static void input_release(bt_probe_input *r)
{
    bt_free(r->lengths);
    bt_free(r->starts);
    bt_free(r->prefixes);
    bt_free(r->sequence);
    bt_free(r->ids);
    bt_free(r->types);
    bt_bit_matrix_release(&r->mask);
}

void bt_probe_inputs_release(bt_probe_inputs *inputs)
{
    input_release(&inputs->source);
    input_release(&inputs->target);
    bt_bit_matrix_release(&inputs->cross);
    *inputs = (bt_probe_inputs){ 0 };
}

/* ---- selected sequences
 * ------------------------------------------------------ */

/* The row of `from` that a row of `to` is a copy of. */
static size_t selected_row(const bt_probe_input *to, const bt_probe_input *from,
                           const size_t *list, size_t row)
{
    return from->starts[list[to->sequence[row]]] +
           bt_probe_input_position(to, row);
}

static bauta_status
matrix_select(bt_bit_matrix *matrix, const bt_bit_matrix *from,
              const bt_probe_input *to, const bt_probe_input *of,
              const bt_probe_input *keys, const bt_probe_input *of_keys,
              const size_t *list, bauta_error *err)
{
    if (!from->bits)
        return BAUTA_OK;
    bauta_status status = bt_bit_matrix_init(matrix, to->rows, keys->rows, err);
    for (size_t i = 0; !status && i < to->rows; i++)
        for (size_t j = 0; j < keys->rows; j++)
            if (bt_bit_matrix_get(from, selected_row(to, of, list, i),
                                  selected_row(keys, of_keys, list, j)))
                bt_bit_matrix_set(matrix, i, j);
    return status;
}

static bauta_status input_select(bt_probe_input *to, const bt_probe_input *from,
                                 const size_t *list, size_t count,
                                 bauta_error *err)
{
    bauta_batch like = BAUTA_BATCH_INIT;
    if (!from->count)
        return BAUTA_OK;
    to->count = count;
    for (size_t s = 0; s < count; s++)
        to->rows += from->lengths[list[s]];
    like.token_types = from->types;
    if (!arrays_alloc(to, &like))
        return bt_fail_memory(err, "the batch of an audit", to->rows);
    if (from->prefixes)
        to->prefixes = bt_alloc_zero(count, sizeof(*to->prefixes));
    if (from->prefixes && !to->prefixes)
        return bt_fail_memory(err, "the batch of an audit", count);
    size_t row = 0;
    for (size_t s = 0; s < count; s++) {
        to->starts[s] = row;
        to->lengths[s] = from->lengths[list[s]];
        if (to->prefixes)
            to->prefixes[s] = from->prefixes[list[s]];
        for (size_t t = 0; t < to->lengths[s]; t++, row++) {
            to->sequence[row] = s;
            to->ids[row] = from->ids[from->starts[list[s]] + t];
            if (to->types)
                to->types[row] = from->types[from->starts[list[s]] + t];
        }
    }
    return matrix_select(&to->mask, &from->mask, to, from, to, from, list, err);
}

bauta_status bt_probe_inputs_select(bt_probe_inputs *to,
                                    const bt_probe_inputs *from,
                                    const size_t *list, size_t count,
                                    bauta_error *err)
{
    *to = (bt_probe_inputs){ 0 };
    bauta_status status =
        input_select(&to->source, &from->source, list, count, err);
    if (!status)
        status = input_select(&to->target, &from->target, list, count, err);
    if (!status)
        status =
            matrix_select(&to->cross, &from->cross, &to->target, &from->target,
                          &to->source, &from->source, list, err);
    if (status)
        bt_probe_inputs_release(to);
    return status;
}

bauta_status bt_probe_inputs_copy(bt_probe_inputs *to,
                                  const bt_probe_inputs *from, bauta_error *err)
{
    size_t count = bt_probe_inputs_output(from)->count;
    size_t *list = bt_alloc_zero(count, sizeof(*list));
    if (!list)
        return bt_fail_memory(err, "a list of sequences", count);
    for (size_t s = 0; s < count; s++)
        list[s] = s;
    bauta_status status = bt_probe_inputs_select(to, from, list, count, err);
    bt_free(list);
    return status;
}

void bt_probe_inputs_number_rows(bt_probe_inputs *inputs)
{
    for (size_t i = 0; i < inputs->source.rows; i++)
        inputs->source.ids[i] = (uint32_t)i;
    for (size_t i = 0; i < inputs->target.rows; i++)
        inputs->target.ids[i] = (uint32_t)(inputs->source.rows + i);
}

/* ---- probe batches
 * ------------------------------------------------------------ */

static bauta_status side_init(bt_probe_batch_side *side,
                              const bt_probe_input *r,
                              const bt_bit_matrix *cross, size_t copies,
                              bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    side->lengths = repeated(r->lengths, r->count, sizeof(size_t), copies);
    side->ids = repeated(r->ids, r->rows, sizeof(uint32_t), copies);
    if (r->types)
        side->types = repeated(r->types, r->rows, sizeof(uint32_t), copies);
    if (r->prefixes)
        side->prefixes =
            repeated(r->prefixes, r->count, sizeof(size_t), copies);
    if (!side->lengths || !side->ids || (r->types && !side->types) ||
        (r->prefixes && !side->prefixes))
        return bt_fail_memory(err, "the batches of an audit", r->rows * copies);
    if (r->mask.bits)
        status = bt_bit_matrix_to_mask(&side->mask, &r->mask, copies, err);
    if (!status && cross->bits)
        status = bt_bit_matrix_to_mask(&side->cross, cross, copies, err);
    side->batch = (bauta_batch)BAUTA_BATCH_INIT;
    side->batch.count = r->count * copies;
    side->batch.lengths = side->lengths;
    side->batch.ids = side->ids;
    side->batch.token_types = side->types;
    side->batch.mask = side->mask;
    side->batch.cross_mask = side->cross;
    side->batch.prefix_lengths = side->prefixes;
    return status;
}

bauta_status bt_probe_batch_init(bt_probe_batch *batch,
                                 const bt_probe_inputs *inputs, size_t copies,
                                 bauta_error *err)
{
    const bt_bit_matrix none = { 0 };
    bauta_status status = BAUTA_OK;
    *batch = (bt_probe_batch){ .copies = copies };
    if (inputs->source.count) {
        status =
            side_init(&batch->sides[0], &inputs->source, &none, copies, err);
        batch->source = &batch->sides[0].batch;
    }
    if (!status && inputs->target.count) {
        status = side_init(&batch->sides[1], &inputs->target, &inputs->cross,
                           copies, err);
        batch->target = &batch->sides[1].batch;
    }
    if (status)
        bt_probe_batch_release(batch);
    return status;
}

void bt_probe_batch_release(bt_probe_batch *batch)
{
    for (size_t i = 0; i < BT_LEN(batch->sides); i++) {
        bt_probe_batch_side *side = &batch->sides[i];
        bt_free(side->lengths);
        bt_free(side->prefixes);
        bt_free(side->ids);
        bt_free(side->types);
        bauta_mask_free(side->mask);
        bauta_mask_free(side->cross);
    }
    *batch = (bt_probe_batch){ 0 };
}
