/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.h - the visibility that an audit expects, pair by pair.
 *
 * Computed from the definitions in bauta.h alone: which keys each row may see
 * in each layer, and which inputs may influence it after l layers. */
#ifndef BT_AUDIT_ORACLE_H
#define BT_AUDIT_ORACLE_H

#include "audit/probe_input.h"
#include "model/model_config.h"

typedef struct bt_oracle {
    size_t encoder_layers, decoder_layers;
    size_t first_window_layer; /* of the decoder; SIZE_MAX: none */
    size_t full_every; /* from there, every so many layers see all; 0: none */
    /* What a layer's attention may see. */
    bt_bit_matrix encoder_self, decoder_self, decoder_window;
    bt_bit_matrix cross; /* (target rows, source rows) */
    /* Inputs that may influence the hidden state after l layers. */
    bt_bit_matrix *encoder_reach; /* (encoder_layers + 1) source on source */
    bt_bit_matrix *decoder_reach; /* (decoder_layers + 1) target on target */
    bt_bit_matrix *source_reach;  /* (decoder_layers + 1) source on target */
} bt_oracle;

bauta_status bt_oracle_init(bt_oracle *oracle, const bt_model_config *print,
                            const bt_probe_inputs *inputs, bauta_error *err);
void bt_oracle_release(bt_oracle *oracle);

/* The mask of a layer's self-attention. */
static inline const bt_bit_matrix *bt_oracle_mask(const bt_oracle *oracle,
                                                  bool target, size_t layer)
{
    if (!target)
        return &oracle->encoder_self;
    if (layer < oracle->first_window_layer ||
        (oracle->full_every &&
         layer % oracle->full_every == oracle->full_every - 1))
        return &oracle->decoder_self;
    return &oracle->decoder_window;
}

/* Whether input `key` may influence row `row` after `level` layers. */
static inline bool bt_oracle_reaches(const bt_oracle *oracle, bool target,
                                     size_t level, size_t row, bool key_target,
                                     size_t key)
{
    if (!target)
        return !key_target &&
               bt_bit_matrix_get(&oracle->encoder_reach[level], row, key);
    return bt_bit_matrix_get(key_target ? &oracle->decoder_reach[level]
                                        : &oracle->source_reach[level],
                             row, key);
}

#endif
