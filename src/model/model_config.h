/* SPDX-License-Identifier: Apache-2.0 */
/* model_config.h - the architecture of a model: shapes and options.
 *
 * Each family reads its config.json into this struct, and one forward pass
 * (transformer.c) runs all of them. */
#ifndef BT_BLUEPRINT_H
#define BT_BLUEPRINT_H

#include "autograd/ops.h"

typedef enum bt_stacks {
    BT_DECODER_ONLY,   /* causal: GPT-2, Llama */
    BT_ENCODER_ONLY,   /* bidirectional: BERT */
    BT_ENCODER_DECODER /* both, with cross-attention: Marian */
} bt_stacks;

typedef enum bt_position_kind {
    BT_POSITIONS_LEARNED,
    BT_POSITIONS_SINUSOIDAL, /* sines in the first half of the columns */
    BT_POSITIONS_ROTARY
} bt_position_kind;

/* Rotary position embeddings, with or without Llama 3's frequency scaling. */
typedef struct bt_rope_config {
    double theta;
    bool scaled;
    double factor, low_freq_factor,
        high_freq_factor;      /* interpolated between the two bounds */
    size_t original_positions; /* positions before scaling */
} bt_rope_config;

/* One stack of layers. A model of one stack uses `decoder` or `encoder`. */
typedef struct bt_stack_config {
    size_t layers, heads, kv_heads, ffn_dim;
} bt_stack_config;

typedef struct bt_model_config {
    bt_stacks stacks;
    bt_stack_config encoder, decoder;
    size_t vocab_size, width, head_dim;

    bt_norm_kind norm;
    float epsilon;
    bool norm_first; /* pre-norm; otherwise post-norm */
    bool final_norm; /* a norm after the last layer */
    bool embed_norm; /* a norm after the embeddings */
    bool qk_norm;    /* RMS norm of each head's queries and keys */

    bt_act act;
    bool gated;

    bt_position_kind position_kind;
    size_t max_positions;
    size_t position_offset; /* table row of position 0 */
    bt_rope_config rope;
    size_t token_types; /* 0: none */
    float embed_scale;
    uint32_t padding_token; /* padding token, whose embedding gets no gradient;
                        or BT_IGNORE_INDEX */

    bool qkv_bias, out_bias, ffn_bias;
    bool fused_qkv;  /* stored as one matrix: GPT-2 */
    bool transposed; /* matrices are stored (inputs, outputs): GPT-2 */
    size_t window;   /* sliding window of self-attention; 0: none */
    size_t window_first_layer; /* first layer with the window */

    bool tied; /* the head shares the token embeddings */
    bool head_bias;
    bool head_bias_fixed; /* the bias is not trained: BART */
    bool head_dense; /* linear, activation and norm before the head: BERT */
    bt_act head_act; /* the activation there */
} bt_model_config;

#endif
