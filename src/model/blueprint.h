/* SPDX-License-Identifier: Apache-2.0 */
/* blueprint.h - what a config says about a model, in one struct.
 *
 * A family file reads its config.json into this; one forward
 * (transformer.c) runs every blueprint. */
#ifndef BT_BLUEPRINT_H
#define BT_BLUEPRINT_H

#include "ops/ops.h"

typedef enum bt_stacks {
    BT_DECODER_ONLY,   /* causal: GPT-2, Llama */
    BT_ENCODER_ONLY,   /* sees both ways: BERT */
    BT_ENCODER_DECODER /* both, with cross-attention: Marian */
} bt_stacks;

typedef enum bt_positions {
    BT_POSITIONS_LEARNED,
    BT_POSITIONS_SINUSOIDAL, /* sines in the first half of the columns */
    BT_POSITIONS_ROTARY
} bt_positions;

/* Rotary frequencies, plain or scaled as Llama 3's are. */
typedef struct bt_rope {
    double theta;
    bool scaled;
    double factor, low, high; /* wavelengths between the two are mixed */
    size_t original;          /* positions before the scaling */
} bt_rope;

/* One stack; a model of one stack uses `decoder` or `encoder` alone. */
typedef struct bt_stack_print {
    size_t layers, heads, kv_heads, ffn;
} bt_stack_print;

typedef struct bt_blueprint {
    bt_stacks stacks;
    bt_stack_print encoder, decoder;
    size_t vocab, width, head_dim;

    bt_norm_kind norm;
    float epsilon;
    bool norm_first; /* before each part, with a last one behind the stack */
    bool last_norm;  /* behind the stack */
    bool embed_norm; /* behind the embeddings */
    bool qk_norm;    /* RMS norm of each head's queries and keys */

    bt_act act;
    bool gated;

    bt_positions positions;
    size_t max_positions;
    size_t position_offset; /* row of the table that is position 0 */
    bt_rope rope;
    size_t token_types; /* 0: none */
    float embed_scale;
    uint32_t frozen; /* the padding token, whose row no lookup trains; or
                        BT_IGNORE */

    bool qkv_bias, out_bias, ffn_bias;
    bool fused_qkv;     /* stored as one matrix: GPT-2 */
    bool turned;        /* matrices are (inputs, outputs): GPT-2 */
    size_t window;      /* of self-attention; 0: none */
    size_t window_from; /* first layer that has it */

    bool tied; /* the head is the token table */
    bool head_bias;
    bool head_bias_fixed; /* it is not trained: BART */
    bool head_dense;      /* dense, activation and norm before it: BERT */
    bt_act head_act;      /* that activation */
} bt_blueprint;

#endif
