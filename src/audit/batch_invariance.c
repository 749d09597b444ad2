/* SPDX-License-Identifier: Apache-2.0 */
/* batch_invariance.c - a sequence gives the same bits alone, in any batch, and
 * with padding. */
#include "audit/audit.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- comparing rows ---------------------------------------------------- */

/* Compare row `i` of `want` with row `j` of `got` at every level, and the
 * logits of the output side. */
static void rows_compare(bt_audit_state *a, bt_fault *fault,
                         const bt_hidden_states *want, size_t i,
                         const bt_hidden_states *got, size_t j, bool target)
{
    bool output = target == (a->inputs.target.count > 0);
    size_t bytes = want->width * sizeof(float);
    bt_fault found = bt_fault_at(target, BAUTA_NO_INDEX, i);
    for (size_t l = 0; l < want->levels[target]; l++) {
        a->compared++;
        found.level = l;
        if (memcmp(bt_hidden_state(want, target, l, i),
                   bt_hidden_state(got, target, l, j), bytes) == 0)
            continue;
        bt_fault_keep_first(fault, &found);
        return;
    }
    if (!output || !want->logits)
        return;
    size_t v = want->vocabulary;
    if (memcmp(want->logits + i * v, got->logits + j * v, v * sizeof(float)) ==
        0)
        return;
    snprintf(found.detail, sizeof(found.detail), "in the output head");
    bt_fault_keep_first(fault, &found);
}

/* ---- other sequences --------------------------------------------------- */

/* Run the sequences of `list` as a batch, and compare them with their rows in
 * the whole batch. */
static bauta_status subset_compare(bt_audit_state *a,
                                   const bt_model_clone *clone,
                                   const bt_hidden_states *whole,
                                   const size_t *list, size_t count,
                                   bt_fault *fault, bauta_error *err)
{
    bt_probe_inputs subset;
    bt_hidden_states got;
    bauta_status status =
        bt_probe_inputs_select(&subset, &a->inputs, list, count, err);
    if (status)
        return status;
    status =
        bt_hidden_states_compute(&got, a->context, clone, &subset, true, err);
    for (size_t side = 0; !status && side < 2; side++) {
        const bt_probe_input *r = bt_probe_inputs_side(&subset, side);
        const bt_probe_input *all = bt_probe_inputs_side(&a->inputs, side);
        for (size_t j = 0; j < r->rows; j++)
            rows_compare(a, fault, whole,
                         all->starts[list[r->sequence[j]]] +
                             bt_probe_input_position(r, j),
                         &got, j, side);
    }
    bt_hidden_states_release(&got);
    bt_probe_inputs_release(&subset);
    return status;
}

bauta_status bt_check_batch_invariance(bt_audit_state *a, bt_model_clone *clone,
                                       bt_fault *fault, bauta_error *err)
{
    size_t count = bt_probe_inputs_output(&a->inputs)->count;
    bt_hidden_states whole;
    size_t *list = bt_alloc_zero(count + 1, sizeof(*list));
    if (!list)
        return bt_fail_memory(err, "a list of sequences", count);
    bauta_status status = bt_hidden_states_compute(&whole, a->context, clone,
                                                   &a->inputs, true, err);
    for (size_t s = 0; !status && s < count; s++)
        status = subset_compare(a, clone, &whole, &s, 1, fault, err);
    // All in reverse order, and the first one twice.
    for (size_t s = 0; s < count; s++)
        list[s] = count - 1 - s;
    if (!status)
        status = subset_compare(a, clone, &whole, list, count + 1, fault, err);
    bt_hidden_states_release(&whole);
    bt_free(list);
    return status;
}

/* ---- padding ----------------------------------------------------------- */

/* A row of padding must be 0, whatever its token. `i` is the last row before
 * it. */
static void padding_compare(bt_audit_state *a, bt_fault *fault,
                            const bt_hidden_states *got, size_t i, size_t row,
                            bool target)
{
    bt_fault found = bt_fault_at(target, BAUTA_NO_INDEX, i);
    snprintf(found.detail, sizeof(found.detail),
             "the padding after it is not 0");
    for (size_t l = 0; l < got->levels[target]; l++) {
        const float *x = bt_hidden_state(got, target, l, row);
        a->compared++;
        for (size_t c = 0; c < got->width; c++)
            if (x[c] != 0.0f) {
                bt_fault_keep_first(fault, &found);
                return;
            }
    }
}

typedef struct padded {
    bauta_batch batch;
    uint32_t *ids, *types;
    bauta_mask *mask, *cross;
} padded;

static void padded_release(padded *p)
{
    bt_free(p->ids);
    bt_free(p->types);
    bauta_mask_free(p->mask);
    bauta_mask_free(p->cross);
}

static size_t padded_stride(const bt_probe_input *r)
{
    size_t longest = 0;
    for (size_t s = 0; s < r->count; s++)
        longest = bt_size_max(longest, r->lengths[s]);
    return longest + 3;
}

/* The row of the padded batch that a packed row becomes. */
static size_t padded_row(const bt_probe_input *r, size_t row)
{
    return r->sequence[row] * padded_stride(r) +
           bt_probe_input_position(r, row);
}

/* The caller's mask for padded rows. It hides no padding, neither as a query
 * nor as a key. */
static bauta_status mask_pad(bauta_mask **out, const bt_bit_matrix *from,
                             const bt_probe_input *rows,
                             const bt_probe_input *keys, bauta_error *err)
{
    bt_bit_matrix matrix;
    if (!from->bits)
        return BAUTA_OK;
    bauta_status status =
        bt_bit_matrix_init(&matrix, rows->count * padded_stride(rows),
                           keys->count * padded_stride(keys), err);
    if (status)
        return status;
    memset(matrix.bits, 0xff,
           matrix.rows * matrix.words * sizeof(*matrix.bits));
    for (size_t i = 0; i < rows->rows; i++)
        for (size_t j = 0; j < keys->rows; j++)
            if (!bt_bit_matrix_get(from, i, j)) {
                size_t key = padded_row(keys, j);
                bt_bit_matrix_row(&matrix, padded_row(rows, i))[key / 64] &=
                    ~(UINT64_C(1) << (key % 64));
            }
    status = bt_bit_matrix_to_mask(out, &matrix, 1, err);
    bt_bit_matrix_release(&matrix);
    return status;
}

static bauta_status padded_init(padded *p, const bt_probe_inputs *inputs,
                                bool target, bauta_error *err)
{
    const bt_probe_input *r = bt_probe_inputs_side(inputs, target);
    size_t stride = padded_stride(r), rows = r->count * stride;
    size_t first = target ? inputs->source.rows : 0;
    p->batch = (bauta_batch)BAUTA_BATCH_INIT;
    p->ids = bt_alloc_zero(rows, sizeof(*p->ids));
    p->types = bt_alloc_zero(rows, sizeof(*p->types));
    if (!p->ids || !p->types)
        return bt_fail_memory(err, "a padded batch", rows);
    for (size_t i = 0; i < rows; i++)
        p->ids[i] = (uint32_t)(inputs->source.rows + inputs->target.rows);
    for (size_t i = 0; i < r->rows; i++) {
        p->ids[padded_row(r, i)] = (uint32_t)(first + i);
        if (r->types)
            p->types[padded_row(r, i)] = r->types[i];
    }
    bauta_status status = mask_pad(&p->mask, &r->mask, r, r, err);
    if (!status && target)
        status = mask_pad(&p->cross, &inputs->cross, r, &inputs->source, err);
    p->batch.count = r->count;
    p->batch.lengths = r->lengths;
    p->batch.stride = stride;
    p->batch.ids = p->ids;
    p->batch.token_types = r->types ? p->types : NULL;
    p->batch.mask = p->mask;
    p->batch.cross_mask = p->cross;
    p->batch.prefix_lengths = r->prefixes;
    return status;
}

static bauta_status padded_run(bt_audit_state *a, const bt_model_clone *clone,
                               const padded sides[2],
                               const bt_hidden_states *want, bt_fault *fault,
                               bauta_error *err)
{
    const bauta_batch *source = a->inputs.source.count ? &sides[0].batch : NULL;
    const bauta_batch *target = a->inputs.target.count ? &sides[1].batch : NULL;
    bt_hidden_states got;
    bauta_status status =
        bt_hidden_states_init(&got, clone, source, target, true, err);
    if (status)
        return status;
    status = bt_hidden_states_run(&got, a->context, clone, source, target, err);
    for (size_t s = 0; !status && s < 2; s++) {
        const bt_probe_input *r = bt_probe_inputs_side(&a->inputs, s);
        for (size_t i = 0; i < r->rows; i++) {
            rows_compare(a, fault, want, i, &got, padded_row(r, i), s);
            if (i + 1 == r->rows || r->sequence[i + 1] != r->sequence[i])
                padding_compare(a, fault, &got, i, padded_row(r, i) + 1, s);
        }
    }
    bt_hidden_states_release(&got);
    return status;
}

/* Compare packed with padded. The padding token has a NaN embedding. */
bauta_status bt_check_padding(bt_audit_state *a, bt_model_clone *clone,
                              bt_fault *fault, bauta_error *err)
{
    padded sides[2] = { { .ids = NULL }, { .ids = NULL } };
    bt_probe_inputs numbered;
    bt_hidden_states want = { 0 };
    bauta_status status = bt_probe_inputs_copy(&numbered, &a->inputs, err);
    if (status)
        return status;
    bt_probe_inputs_number_rows(&numbered);
    status = bt_per_row_embedding(clone, &a->inputs, err);
    if (!status)
        status = bt_hidden_states_compute(&want, a->context, clone, &numbered,
                                          true, err);
    for (size_t s = 0; !status && s < 2; s++)
        if (bt_probe_inputs_side(&a->inputs, s)->count)
            status = padded_init(&sides[s], &a->inputs, s, err);
    if (!status)
        status = padded_run(a, clone, sides, &want, fault, err);
    bt_hidden_states_release(&want);
    padded_release(&sides[0]);
    padded_release(&sides[1]);
    bt_probe_inputs_release(&numbered);
    return status;
}
