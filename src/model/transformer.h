/* SPDX-License-Identifier: Apache-2.0 */
/* transformer.h - the forward pass of every model.
 *
 * The tokens of all sequences are packed back to back; the attention plans keep
 * sequences apart. Training, prefill and decoding run the same function. With a
 * KV cache, the keys and values of earlier tokens come from there. */
#ifndef BT_TRANSFORMER_H
#define BT_TRANSFORMER_H

#include "autograd/ops.h"
#include "model/layer_mask.h"
#include "model/model.h"

/* Dropout: one rate everywhere, and the key of its random numbers. */
typedef struct bt_dropout_input {
    float rate;
    uint64_t seed;
    const uint64_t *tokens; /* (tokens) the index of each row in the data */
} bt_dropout_input;

/* The queries and keys of one attention, from which its weights can be computed
 * until the tape is rewound. */
typedef struct bt_saved_qk {
    const bt_tensor *q, *k;
    const bt_tensor *relative; /* the table by distance of its bias, or NULL */
} bt_saved_qk;

/* The input of one stack. */
typedef struct bt_forward_input {
    size_t tokens;
    const uint32_t *ids;         /* (tokens) */
    const bt_tensor *ids_tensor; /* (tokens, 1) uint32 on the device, in place
                                    of `ids`; or NULL */
    const uint32_t *positions;   /* (tokens) within the sequence */
    const uint32_t *token_types; /* (tokens) or NULL: all 0 */
    const bt_attention_plan *plans[BT_SLOT_COUNT]; /* those that the stack uses
                                                    */
    const bt_kv_batch *self_kv; /* KV cache of self-attention, to which new keys
                            and values are written; NULL: no cache */
    const bt_kv_batch *cross_kv; /* KV cache of cross-attention, filled before;
                               or NULL */
    bt_dropout_input dropout;
    bt_tensor *
        *hidden_states; /* (layers + 1) receives the hidden states, or NULL */
    bt_saved_qk *saved_qk,
        *saved_cross_qk; /* (layers) or NULL; only without a KV cache */
} bt_forward_input;

/* The encoder's hidden states. */
bt_tensor *bt_transformer_encode(bt_tape *tape, bt_model *model,
                                 const bt_forward_input *input);
/* The decoder's hidden states. `encoded` is the encoder's output; NULL when
 * there is no encoder, or when cross-attention has a KV cache. */
bt_tensor *bt_transformer_decode(bt_tape *tape, bt_model *model,
                                 const bt_forward_input *input,
                                 bt_tensor *encoded);
/* The input of the head's matrix: the hidden states; for BERT their linear
 * transform, activation and norm; for T5 their multiple. */
bt_tensor *bt_transformer_head_transform(bt_tape *tape, bt_model *model,
                                         bt_tensor *x);
/* The head's matrix (vocab, width) and its bias, which may be NULL. */
bt_tensor *bt_transformer_head_weight(bt_model *model);
bt_tensor *bt_transformer_head_bias(bt_model *model);
/* The logits (rows, vocab) of hidden states, by the three functions above. */
bt_tensor *bt_transformer_logits(bt_tape *tape, bt_model *model, bt_tensor *x);
/* The logits of rows of bt_transformer_head_transform(), in host memory `to`
 * (rows of x, vocab). False when the tape has failed. */
bool bt_transformer_logits_to_host(bt_tape *tape, bt_model *model,
                                   const bt_tensor *x, float *to);

/* Write the keys and values of cross-attention, computed from the encoder's
 * output, to the KV cache in every layer. False when the tape has failed. */
bool bt_transformer_write_cross_kv(bt_tape *tape, bt_model *model,
                                   bt_tensor *encoded,
                                   const bt_kv_batch *sources);

#endif
