/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.c - expected visibility of one layer, and of several composed. */
#include "audit/oracle.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* ---- one layer --------------------------------------------------------- */

/* Whether a row of a decoder may see a key of the same sequence. */
static bool causal(const bt_probe_input *r, size_t row, size_t key,
                   size_t window)
{
    size_t i = bt_probe_input_position(r, row);
    size_t j = bt_probe_input_position(r, key);
    size_t prefix = r->prefixes ? r->prefixes[r->sequence[row]] : 0;
    if (i < prefix && j < prefix)
        return true;
    return j <= i && (!window || i - j < window);
}

static bauta_status self_init(bt_bit_matrix *matrix, const bt_probe_input *r,
                              bool decoder, size_t window, bauta_error *err)
{
    bauta_status status = bt_bit_matrix_init(matrix, r->rows, r->rows, err);
    for (size_t i = 0; !status && i < r->rows; i++)
        for (size_t j = 0; j < r->rows; j++)
            if (r->sequence[i] == r->sequence[j] &&
                (!r->mask.bits || bt_bit_matrix_get(&r->mask, i, j)) &&
                (!decoder || causal(r, i, j, window)))
                bt_bit_matrix_set(matrix, i, j);
    return status;
}

static bauta_status cross_init(bt_bit_matrix *matrix,
                               const bt_probe_inputs *inputs, bauta_error *err)
{
    const bt_probe_input *t = &inputs->target, *s = &inputs->source;
    bauta_status status = bt_bit_matrix_init(matrix, t->rows, s->rows, err);
    for (size_t i = 0; !status && i < t->rows; i++)
        for (size_t j = 0; j < s->rows; j++)
            if (t->sequence[i] == s->sequence[j] &&
                (!inputs->cross.bits ||
                 bt_bit_matrix_get(&inputs->cross, i, j)))
                bt_bit_matrix_set(matrix, i, j);
    return status;
}

/* ---- several layers ---------------------------------------------------- */

/* to = from + mask * from: the residual stream and one attention. */
static bauta_status compose(bt_bit_matrix *to, const bt_bit_matrix *from,
                            const bt_bit_matrix *mask, bauta_error *err)
{
    bauta_status status = bt_bit_matrix_init(to, from->rows, from->keys, err);
    if (status)
        return status;
    memcpy(to->bits, from->bits, to->rows * to->words * sizeof(*to->bits));
    for (size_t i = 0; i < to->rows; i++)
        bt_bit_matrix_or_product(to, i, mask, from);
    return BAUTA_OK;
}

static bauta_status identity_init(bt_bit_matrix *matrix, size_t rows,
                                  bauta_error *err)
{
    bauta_status status = bt_bit_matrix_init(matrix, rows, rows, err);
    for (size_t i = 0; !status && i < rows; i++)
        bt_bit_matrix_set(matrix, i, i);
    return status;
}

static bauta_status encoder_init(bt_oracle *oracle, const bt_probe_input *r,
                                 bauta_error *err)
{
    bauta_status status = self_init(&oracle->encoder_self, r, false, 0, err);
    if (!status)
        status = identity_init(&oracle->encoder_reach[0], r->rows, err);
    for (size_t l = 0; !status && l < oracle->encoder_layers; l++)
        status = compose(&oracle->encoder_reach[l + 1],
                         &oracle->encoder_reach[l], &oracle->encoder_self, err);
    return status;
}

static bauta_status decoder_init(bt_oracle *oracle, const bt_probe_input *r,
                                 size_t window, bauta_error *err)
{
    bauta_status status = self_init(&oracle->decoder_self, r, true, 0, err);
    if (!status)
        status = self_init(&oracle->decoder_window, r, true, window, err);
    if (!status)
        status = identity_init(&oracle->decoder_reach[0], r->rows, err);
    for (size_t l = 0; !status && l < oracle->decoder_layers; l++)
        status =
            compose(&oracle->decoder_reach[l + 1], &oracle->decoder_reach[l],
                    bt_oracle_mask(oracle, true, l), err);
    return status;
}

/* In each layer, self-attention comes first, then cross-attention adds the
 * encoder's output. */
static bauta_status source_init(bt_oracle *oracle,
                                const bt_probe_inputs *inputs, bauta_error *err)
{
    const bt_bit_matrix *encoded =
        &oracle->encoder_reach[oracle->encoder_layers];
    bauta_status status = cross_init(&oracle->cross, inputs, err);
    if (!status)
        status =
            bt_bit_matrix_init(&oracle->source_reach[0], inputs->target.rows,
                               inputs->source.rows, err);
    for (size_t l = 0; !status && l < oracle->decoder_layers; l++) {
        bt_bit_matrix *to = &oracle->source_reach[l + 1];
        status = compose(to, &oracle->source_reach[l],
                         bt_oracle_mask(oracle, true, l), err);
        for (size_t i = 0; !status && i < to->rows; i++)
            bt_bit_matrix_or_product(to, i, &oracle->cross, encoded);
    }
    return status;
}

bauta_status bt_oracle_init(bt_oracle *oracle, const bt_model_config *print,
                            const bt_probe_inputs *inputs, bauta_error *err)
{
    *oracle = (bt_oracle){ .encoder_layers = print->encoder.layers,
                           .decoder_layers = print->decoder.layers };
    oracle->first_window_layer =
        print->window ? print->window_first_layer : SIZE_MAX;
    oracle->full_every = print->window_period;
    oracle->encoder_reach =
        bt_alloc_zero(oracle->encoder_layers + 1, sizeof(bt_bit_matrix));
    oracle->decoder_reach =
        bt_alloc_zero(oracle->decoder_layers + 1, sizeof(bt_bit_matrix));
    oracle->source_reach =
        bt_alloc_zero(oracle->decoder_layers + 1, sizeof(bt_bit_matrix));
    bauta_status status = BAUTA_OK;
    if (!oracle->encoder_reach || !oracle->decoder_reach ||
        !oracle->source_reach)
        status = bt_fail_memory(err, "what an audit expects", 0);
    if (!status && inputs->source.count)
        status = encoder_init(oracle, &inputs->source, err);
    if (!status && inputs->target.count)
        status = decoder_init(oracle, &inputs->target, print->window, err);
    if (!status && inputs->source.count && inputs->target.count)
        status = source_init(oracle, inputs, err);
    if (status)
        bt_oracle_release(oracle);
    return status;
}

static void matrices_free(bt_bit_matrix *matrices, size_t count)
{
    for (size_t i = 0; matrices && i < count; i++)
        bt_bit_matrix_release(&matrices[i]);
    bt_free(matrices);
}

void bt_oracle_release(bt_oracle *oracle)
{
    bt_bit_matrix_release(&oracle->encoder_self);
    bt_bit_matrix_release(&oracle->decoder_self);
    bt_bit_matrix_release(&oracle->decoder_window);
    bt_bit_matrix_release(&oracle->cross);
    matrices_free(oracle->encoder_reach, oracle->encoder_layers + 1);
    matrices_free(oracle->decoder_reach, oracle->decoder_layers + 1);
    matrices_free(oracle->source_reach, oracle->decoder_layers + 1);
    *oracle = (bt_oracle){ 0 };
}
