/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - the parameters of a model, by their role in the architecture. */
#ifndef BT_MODEL_H
#define BT_MODEL_H

#include "model/model_config.h"

/* A parameter that the config does not ask for has rows = 0. */
typedef struct bt_linear_params {
    bt_tensor w, bias;
} bt_linear_params;

typedef struct bt_norm_params {
    bt_tensor gain, bias;
} bt_norm_params;

typedef struct bt_attention_params {
    bt_linear_params fused; /* where q, k and v are stored as one matrix */
    bt_linear_params q, k, v, out;
    bt_norm_params q_norm, k_norm;
} bt_attention_params;

typedef struct bt_layer {
    bt_attention_params self, cross;
    bt_norm_params self_norm, cross_norm, ffn_norm;
    bt_norm_params self_post_norm, ffn_post_norm; /* of their outputs */
    bt_linear_params gate, up, down;
} bt_layer;

typedef struct bt_stack {
    const bt_stack_config *config;
    bt_layer *layers; /* one for each layer of the config */
    bt_tensor positions, types;
    bt_buffer sinusoids;   /* of positions that are computed, or empty */
    bool positions_stored; /* the file has a sinusoidal table, which is neither
                              freed here nor trained */
    bt_norm_params embed_norm, final_norm;
    bt_tensor relative; /* (buckets, heads) of relative positions */
    uint32_t *buckets;  /* (distances) the bucket of each distance, or NULL */
    size_t distances;
    ptrdiff_t first_distance;
} bt_stack;

typedef struct bt_model {
    bt_model_config config;
    bt_tensor tokens; /* token embeddings, shared by both stacks */
    bt_stack encoder, decoder;
    bt_linear_params
        head; /* w has no rows when the head is tied to the embeddings */
    bt_linear_params head_dense;
    bt_norm_params head_norm;
    float *frequencies;       /* (head_dim / 2) of rotary positions */
    float *local_frequencies; /* those of layers with the window, or NULL */
    float *slopes;            /* (heads) of ALiBi, or NULL */
    float *ones; /* (the largest norm) if gains are 1 + the stored ones */
} bt_model;

/* Give every parameter its shape, but no data. Sinusoidal positions and rotary
 * frequencies are computed here. */
bauta_status bt_model_create(bt_model **out, const bt_model_config *config,
                             bauta_error *err);
void bt_model_free(bt_model *model);

/* Point q, k and v into the fused matrices, once those have data and
 * gradients. */
void bt_model_split_qkv(bt_model *model);

#endif
