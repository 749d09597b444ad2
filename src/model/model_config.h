/* SPDX-License-Identifier: Apache-2.0 */
/* model_config.h - the architecture of a model: shapes and options.
 *
 * Each family reads its config.json into this struct, and one forward pass
 * (transformer.c) runs all of them. */
#ifndef BT_MODEL_CONFIG_H
#define BT_MODEL_CONFIG_H

#include "autograd/ops.h"

typedef enum bt_stacks {
    BT_DECODER_ONLY,   /* causal: GPT-2, Llama */
    BT_ENCODER_ONLY,   /* bidirectional: BERT */
    BT_ENCODER_DECODER /* both, with cross-attention: Marian */
} bt_stacks;

typedef enum bt_position_kind {
    BT_POSITIONS_LEARNED,
    BT_POSITIONS_SINUSOIDAL, /* sines in the first half of the columns */
    BT_POSITIONS_ROTARY,
    BT_POSITIONS_RELATIVE, /* T5: a bias for each bucket of distances */
    BT_POSITIONS_ALIBI     /* scores fall with the distance, by head */
} bt_position_kind;

/* Rotary position embeddings, with or without Llama 3's frequency scaling. */
typedef struct bt_rope_config {
    double theta;
    bool scaled;
    double factor, low_freq_factor,
        high_freq_factor;      /* interpolated between the two bounds */
    size_t original_positions; /* positions before scaling */
    double linear;             /* divides all frequencies; 0: nothing does */
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
    bool norm_first;    /* pre-norm; otherwise post-norm */
    bool final_norm;    /* a norm after the last layer */
    bool embed_norm;    /* a norm after the embeddings */
    bool qk_norm;       /* RMS norm of each head's queries and keys */
    bool norm_no_bias;  /* layer norms without a bias: MPT */
    bool post_norm;     /* norms of the outputs of sublayers, too: Gemma */
    bool norm_plus_one; /* gains are 1 + the stored ones: Gemma */

    bt_act act;
    bool gated;

    bt_position_kind position_kind;
    size_t max_positions;
    size_t position_offset; /* table row of position 0 */
    bt_rope_config rope;
    double local_rope_theta; /* of layers with the window; 0: as the others */
    double alibi_bias_max;   /* slopes of BT_POSITIONS_ALIBI fall to 2^-this */
    size_t relative_buckets; /* of BT_POSITIONS_RELATIVE, and the distance */
    size_t relative_max_distance; /* from which on there is one bucket */
    float attention_scale;        /* 0: 1 / sqrt(head_dim) */
    float attention_softcap;      /* 0: none */
    size_t token_types;           /* 0: none */
    float embed_scale;
    uint32_t padding_token; /* padding token, whose embedding gets no gradient;
                        or BT_IGNORE_INDEX */

    bool qkv_bias, out_bias, ffn_bias;
    bool fused_qkv;  /* stored as one matrix: GPT-2 */
    bool transposed; /* matrices are stored (inputs, outputs): GPT-2 */
    size_t window;   /* sliding window of self-attention; 0: none */
    size_t window_first_layer; /* first layer with the window */
    size_t window_period; /* every so many layers, the last has no window; 0:
                             all have */

    bool tied; /* the head shares the token embeddings */
    bool head_bias;
    bool head_bias_fixed; /* the bias is not trained: BART */
    bool head_dense;    /* linear, activation and norm before the head: BERT */
    bt_act head_act;    /* the activation there */
    float head_scale;   /* multiplies the hidden states before the head: T5; 0:
                           nothing does */
    float head_softcap; /* of the logits; 0: none */
} bt_model_config;

#endif
