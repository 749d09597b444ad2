/* SPDX-License-Identifier: Apache-2.0 */
/* probe_input.h - the input of an audit, and batches of perturbed copies.
 *
 * The caller's batches are copied and packed: row r of a stack is one token. A
 * probe batch holds the same input many times over, each copy with a small
 * change, so that one forward pass tries as many changes as it has copies. */
#ifndef BT_PROBE_INPUT_H
#define BT_PROBE_INPUT_H

#include "audit/bit_matrix.h"

/* The input of one stack. count 0: the model has no such stack. */
typedef struct bt_probe_input {
    size_t count, rows;
    size_t *lengths, *starts, *prefixes; /* (count); prefixes: or NULL */
    size_t *sequence;                    /* (rows) the sequence of a row */
    uint32_t *ids, *types;               /* (rows); types: or NULL */
    bt_bit_matrix mask;                  /* (rows, rows) of the caller */
} bt_probe_input;

typedef struct bt_probe_inputs {
    bt_probe_input source, target; /* encoder, decoder */
    bt_bit_matrix cross; /* (target rows, source rows) of the caller */
} bt_probe_inputs;

/* Copy batches, which fit the model; NULL: none. */
bauta_status bt_probe_inputs_init(bt_probe_inputs *inputs,
                                  const bauta_batch *source,
                                  const bauta_batch *target, bauta_error *err);
void bt_probe_inputs_release(bt_probe_inputs *inputs);
/* Copy the sequences of `list`, in that order; one may occur several times. */
bauta_status bt_probe_inputs_select(bt_probe_inputs *to,
                                    const bt_probe_inputs *from,
                                    const size_t *list, size_t count,
                                    bauta_error *err);
/* Copy all sequences. */
bauta_status bt_probe_inputs_copy(bt_probe_inputs *to,
                                  const bt_probe_inputs *from,
                                  bauta_error *err);
/* Replace the ids by 0, 1, 2...: the rows of bt_per_row_embedding(). */
void bt_probe_inputs_number_rows(bt_probe_inputs *inputs);

static inline const bt_probe_input *
bt_probe_inputs_side(const bt_probe_inputs *inputs, bool target)
{
    return target ? &inputs->target : &inputs->source;
}

/* The side that the output head reads. */
static inline const bt_probe_input *
bt_probe_inputs_output(const bt_probe_inputs *inputs)
{
    return bt_probe_inputs_side(inputs, inputs->target.count > 0);
}

/* The position of a row in its sequence. */
static inline size_t bt_probe_input_position(const bt_probe_input *r,
                                             size_t row)
{
    return row - r->starts[r->sequence[row]];
}

/* One side of a probe batch. The ids may be changed. */
typedef struct bt_probe_batch_side {
    bauta_batch batch;
    size_t *lengths, *prefixes;
    uint32_t *ids, *types;
    bauta_mask *mask, *cross;
} bt_probe_batch_side;

typedef struct bt_probe_batch {
    size_t copies;
    bt_probe_batch_side sides[2];       /* source, target */
    const bauta_batch *source, *target; /* NULL: the model has no such stack */
} bt_probe_batch;

bauta_status bt_probe_batch_init(bt_probe_batch *batch,
                                 const bt_probe_inputs *inputs, size_t copies,
                                 bauta_error *err);
void bt_probe_batch_release(bt_probe_batch *batch);

/* The id of a row in a copy, for writing. */
static inline uint32_t *bt_probe_batch_id(const bt_probe_batch *batch,
                                          bool target, const bt_probe_input *r,
                                          size_t copy, size_t row)
{
    return &batch->sides[target].ids[copy * r->rows + row];
}

#endif
