/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c - checks of a batch, packing and unpacking. */
#include "model/batch.h"

#include "base/size.h"
#include "base/sized.h"
#include "mask/mask.h"
#include "model/api.h"
#include "model/layer_mask.h"

#include <math.h>
#include <string.h>

static size_t length_of(const bauta_batch *batch, size_t sequence)
{
    return batch->lengths ? batch->lengths[sequence] : batch->stride;
}

size_t bauta_batch_rows(const bauta_batch *batch)
{
    size_t rows = 0;
    bauta_batch b;
    if (BT_SIZED_READ(&b, BAUTA_BATCH_INIT, batch, "batch", NULL))
        return 0;
    if (b.stride)
        return bt_size_mul(b.count, b.stride);
    if (b.count > BT_AXIS_MAX) // too many; lengths are not read
        return SIZE_MAX;
    for (size_t s = 0; b.lengths && s < b.count; s++)
        rows = bt_size_add(rows, b.lengths[s]);
    return rows;
}

/* ---- checks ------------------------------------------------------------ */

static bauta_status lengths_check(const bauta_batch *batch, const char *name,
                                  const bt_model_config *config,
                                  bauta_error *err)
{
    bool table = bt_positions_in_table(config->position_kind);
    if (batch->count && !batch->lengths && !batch->stride)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s: lengths is NULL for %zu packed sequences", name,
                       batch->count);
    // Checked before any loop over sequences or rows.
    bool many = batch->count > BT_AXIS_MAX;
    if (many || bauta_batch_rows(batch) > BT_AXIS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s: has more than %zu rows in %zu sequences", name,
                       BT_AXIS_MAX, batch->count);
    for (size_t s = 0; s < batch->count; s++) {
        size_t length = length_of(batch, s);
        if (batch->prefix_lengths && batch->prefix_lengths[s] > length)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "%s: sequence %zu has %zu tokens and a prefix of "
                           "%zu",
                           name, s, length, batch->prefix_lengths[s]);
        if (batch->stride && length > batch->stride)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "%s: sequence %zu has %zu tokens, the stride is "
                           "%zu",
                           name, s, length, batch->stride);
        if (table && length > config->max_positions)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "%s: sequence %zu has %zu tokens, the model has %zu "
                           "positions",
                           name, s, length, config->max_positions);
    }
    return BAUTA_OK;
}

typedef struct batch_position {
    size_t sequence, position, row;
} batch_position;

/* Find the first value, padding aside, that is not below the limit. `exempt` is
 * a value that is allowed all the same; 0 for none. */
static bool find_too_large(batch_position *at, const bauta_batch *batch,
                           const uint32_t *values, size_t limit,
                           uint32_t exempt)
{
    size_t start = 0;
    for (size_t s = 0; s < batch->count; s++) {
        size_t length = length_of(batch, s);
        for (size_t t = 0; t < length; t++) {
            uint32_t value = values[start + t];
            if (value >= limit && value != exempt) {
                *at = (batch_position){ s, t, start + t };
                return true;
            }
        }
        start += batch->stride ? batch->stride : length;
    }
    return false;
}

static bauta_status tokens_check(const bauta_batch *batch, const char *name,
                                 const bt_model_config *config,
                                 bauta_error *err)
{
    batch_position at;
    size_t vocab = config->vocab_size, types = config->token_types;
    if (!batch->ids && bauta_batch_rows(batch))
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s: ids is NULL for %zu rows",
                       name, bauta_batch_rows(batch));
    if (find_too_large(&at, batch, batch->ids, vocab, 0))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s: sequence %zu, position %zu: id %u is not in a "
                       "vocabulary of %zu",
                       name, at.sequence, at.position,
                       (unsigned)batch->ids[at.row], vocab);
    if (!batch->token_types)
        return BAUTA_OK;
    if (types == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s: token_types are given, and the model has none",
                       name);
    if (find_too_large(&at, batch, batch->token_types, types, 0))
        return bt_fail(
            err, BAUTA_ERR_ARGUMENT,
            "%s: sequence %zu, position %zu: token type %u of a model "
            "with %zu",
            name, at.sequence, at.position,
            (unsigned)batch->token_types[at.row], types);
    return BAUTA_OK;
}

bauta_status bt_batch_check(const bauta_batch *batch, const char *name,
                            const bt_model_config *config, bauta_error *err)
{
    bauta_status status = lengths_check(batch, name, config, err);
    if (!status)
        status = tokens_check(batch, name, config, err);
    if (status || !batch->mask)
        return status;
    size_t rows = bauta_batch_rows(batch);
    if (batch->mask->queries != rows || batch->mask->keys != rows)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s: the mask is %zu over %zu, the batch has %zu rows",
                       name, batch->mask->queries, batch->mask->keys, rows);
    return BAUTA_OK;
}

bauta_status bt_labels_check(const bauta_batch *batch, const uint32_t *labels,
                             size_t vocab, bauta_error *err)
{
    batch_position at;
    if (!labels && bauta_batch_rows(batch))
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "labels is NULL for %zu rows",
                       bauta_batch_rows(batch));
    if (find_too_large(&at, batch, labels, vocab, BT_IGNORE_INDEX))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "labels: sequence %zu, position %zu: %u is not in a "
                       "vocabulary of %zu, nor BAUTA_IGNORE",
                       at.sequence, at.position, (unsigned)labels[at.row],
                       vocab);
    return BAUTA_OK;
}

bauta_status bt_label_weights_check(const bauta_batch *batch,
                                    const uint32_t *labels,
                                    const float *weights, bauta_error *err)
{
    size_t start = 0;
    for (size_t s = 0; s < batch->count; s++) {
        size_t length = length_of(batch, s);
        for (size_t i = start; i < start + length; i++)
            if (labels[i] != BT_IGNORE_INDEX && !isfinite(weights[i]))
                return bt_fail(err, BAUTA_ERR_ARGUMENT,
                               "label_weights: sequence %zu, position %zu: %g "
                               "is not finite",
                               s, i - start, (double)weights[i]);
        start += batch->stride ? batch->stride : length;
    }
    return BAUTA_OK;
}

size_t bt_labels_count(const bauta_batch *batch, const uint32_t *labels)
{
    size_t start = 0, counted = 0;
    for (size_t s = 0; s < batch->count; s++) {
        size_t length = length_of(batch, s);
        for (size_t i = start; i < start + length; i++)
            counted += labels[i] != BT_IGNORE_INDEX;
        start += batch->stride ? batch->stride : length;
    }
    return counted;
}

size_t bt_batch_tokens(const bauta_batch *batch)
{
    size_t tokens = 0;
    for (size_t s = 0; s < batch->count; s++)
        tokens += length_of(batch, s);
    return tokens;
}

/* ---- packing ----------------------------------------------------------- */

/* The caller's first row of sequence s, whose first packed row is `packed`. */
static size_t start_of(const bt_packed_batch *rows, size_t s, size_t packed)
{
    return rows->axis.stride ? s * rows->axis.stride : packed;
}

const void *bt_packed_batch_pack(const bt_packed_batch *rows, bt_tape *tape,
                                 const void *from, size_t size)
{
    size_t at = 0;
    if (!rows->axis.stride)
        return from;
    char *to = bt_tape_alloc(tape, rows->tokens, size);
    for (size_t s = 0; to && s < rows->axis.count; s++) {
        size_t length = rows->axis.lengths[s];
        if (length)
            memcpy(to + at * size,
                   (const char *)from + start_of(rows, s, at) * size,
                   length * size);
        at += length;
    }
    return to;
}

static void positions_set(const bt_packed_batch *rows)
{
    size_t at = 0;
    for (size_t s = 0; s < rows->axis.count; s++)
        for (size_t t = 0; t < rows->axis.lengths[s]; t++)
            rows->positions[at++] = (uint32_t)t;
}

void bt_packed_batch_init(bt_packed_batch *rows, bt_tape *tape,
                          const bauta_batch *batch)
{
    size_t *lengths = bt_tape_alloc(tape, batch->count, sizeof(*lengths));
    *rows = (bt_packed_batch){ .axis = { batch->count, lengths, batch->stride },
                               .mask = batch->mask,
                               .cross_mask = batch->cross_mask,
                               .prefix_lengths = batch->prefix_lengths };
    if (!lengths)
        return;
    for (size_t s = 0; s < batch->count; s++) {
        lengths[s] = length_of(batch, s);
        rows->tokens += lengths[s];
    }
    rows->ids =
        bt_packed_batch_pack(rows, tape, batch->ids, sizeof(*rows->ids));
    if (batch->token_types)
        rows->token_types = bt_packed_batch_pack(rows, tape, batch->token_types,
                                                 sizeof(*rows->token_types));
    rows->positions = bt_tape_alloc(tape, rows->tokens, sizeof(uint32_t));
    if (rows->positions)
        positions_set(rows);
}

void bt_packed_batch_zero_padding(const bt_packed_batch *rows, float *to,
                                  size_t columns)
{
    size_t stride = rows->axis.stride;
    for (size_t s = 0; stride && s < rows->axis.count; s++) {
        size_t length = rows->axis.lengths[s];
        if (length < stride)
            memset(to + (s * stride + length) * columns, 0,
                   (stride - length) * columns * sizeof(float));
    }
}

void bt_packed_batch_unpack(const bt_packed_batch *rows, float *to,
                            const float *from, size_t columns)
{
    size_t at = 0;
    for (size_t s = 0; s < rows->axis.count; s++) {
        size_t length = rows->axis.lengths[s];
        if (length)
            memcpy(to + start_of(rows, s, at) * columns, from + at * columns,
                   length * columns * sizeof(float));
        at += length;
    }
    bt_packed_batch_zero_padding(rows, to, columns);
}
