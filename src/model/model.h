/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - the parameters of a model, by their role in the architecture. */
#ifndef BT_MODEL_H
#define BT_MODEL_H

#include "model/blueprint.h"

/* A parameter that the config does not ask for has rows = 0. */
typedef struct bt_dense {
    bt_tensor w, bias;
} bt_dense;

typedef struct bt_scaling {
    bt_tensor gain, bias;
} bt_scaling;

typedef struct bt_heads {
    bt_dense fused; /* where q, k and v are stored as one matrix */
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
    bt_layer *layers; /* one for each layer of the config */
    bt_tensor positions, types;
    bool positions_stored; /* the file has a sinusoidal table, which is neither
                              freed here nor trained */
    bt_scaling embed_norm, last_norm;
} bt_stack;

typedef struct bt_model {
    bt_blueprint print;
    bt_tensor tokens; /* token embeddings, shared by both stacks */
    bt_stack encoder, decoder;
    bt_dense head; /* w has no rows when the head is tied to the embeddings */
    bt_dense head_dense;
    bt_scaling head_norm;
    float *frequencies; /* (head_dim / 2) of rotary positions */
} bt_model;

/* Give every parameter its shape, but no data. Sinusoidal positions and rotary
 * frequencies are computed here. */
bauta_status bt_model_create(bt_model **out, const bt_blueprint *config,
                             bauta_error *err);
void bt_model_free(bt_model *model);

/* Point q, k and v into the fused matrices, once those have data and
 * gradients. */
void bt_model_split(bt_model *model);

#endif
