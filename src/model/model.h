/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - the parameters of a blueprint, each at the place of its role. */
#ifndef BT_MODEL_H
#define BT_MODEL_H

#include "model/blueprint.h"

/* A parameter that a blueprint does not have keeps rows = 0. */
typedef struct bt_dense {
    bt_tensor w, bias;
} bt_dense;

typedef struct bt_scaling {
    bt_tensor gain, bias;
} bt_scaling;

typedef struct bt_heads {
    bt_dense fused; /* what is stored where q, k and v are one matrix */
    bt_dense q, k, v, out;
    bt_scaling q_norm, k_norm;
} bt_heads;

typedef struct bt_layer {
    bt_heads self, cross;
    bt_scaling self_norm, cross_norm, ffn_norm;
    bt_dense gate, up, down;
} bt_layer;

typedef struct bt_stack {
    const bt_stack_print *print;
    bt_layer *layers; /* (print->layers) */
    bt_tensor positions, types;
    bool positions_stored; /* sinusoidal ones that the file has: not ours to
                              free, nor to train */
    bt_scaling embed_norm, last_norm;
} bt_stack;

typedef struct bt_model {
    bt_blueprint print;
    bt_tensor tokens; /* one table for both stacks */
    bt_stack encoder, decoder;
    bt_dense head; /* w has no rows when it is the token table */
    bt_dense head_dense;
    bt_scaling head_norm;
    float *frequencies; /* (head_dim / 2) of rotary positions */
} bt_model;

/* All parameters with their shapes from the blueprint and no data; sinusoidal
 * positions and rotary frequencies are filled in. */
bauta_status bt_model_create(bt_model **out, const bt_blueprint *print,
                             bauta_error *err);
void bt_model_free(bt_model *model);

/* The fused matrices have got their data or gradient: point q, k, v there. */
void bt_model_split(bt_model *model);

#endif
