/* SPDX-License-Identifier: Apache-2.0 */
/* transformer.h - the one forward, for every blueprint.
 *
 * Tokens of all sequences lie one behind the other; the plans keep them apart.
 * The same function trains, prefills and decodes: with books the keys and
 * values of earlier tokens are simply there already. */
#ifndef BT_TRANSFORMER_H
#define BT_TRANSFORMER_H

#include "model/layer_mask.h"
#include "model/model.h"
#include "ops/past.h"

/* Dropout: the rate everywhere, and what its randomness is keyed by. */
typedef struct bt_noise {
    float rate;
    uint64_t seed;
    const uint64_t *tokens; /* (tokens) which token of the data each row is */
} bt_noise;

/* Queries and keys as an attention read them, for whoever looks at its weights
 * before the tape is rewound. */
typedef struct bt_kept {
    const bt_tensor *q, *k;
} bt_kept;

/* The input of one stack. */
typedef struct bt_input {
    size_t tokens;
    const uint32_t *ids;       /* (tokens) */
    const uint32_t *positions; /* (tokens) counted within the sequence */
    const uint32_t *types;     /* (tokens) or NULL: all 0 */
    const bauta_plan *plan;    /* of self-attention */
    const bauta_plan *window; /* of layers with a window, where there are any */
    const bauta_plan *cross;  /* of cross-attention */
    const bt_past *past;      /* books of self-attention, to which the rows are
                                 written; NULL: rows see rows alone */
    const bt_past *sources;   /* books of cross-attention, which were filled
                                 before, or NULL */
    bt_noise noise;
    bt_tensor **states; /* (layers + 1) receives the hidden states, or NULL */
    bt_kept *kept, *kept_cross; /* (layers) or NULL; not over caches */
} bt_input;

/* Where an input has the plan of the layers of a place. */
static inline const bauta_plan **bt_input_plan(bt_input *input, bt_place place)
{
    if (place == BT_PLACE_WINDOW)
        return &input->window;
    return place == BT_PLACE_CROSS ? &input->cross : &input->plan;
}

/* The hidden states behind the encoder. */
bt_tensor *bt_transformer_encode(bt_tape *tape, bt_model *model,
                                 const bt_input *input);
/* The hidden states behind the decoder; `memory` is the encoder's, or NULL
 * where there is no encoder or books of sources are given. */
bt_tensor *bt_transformer_decode(bt_tape *tape, bt_model *model,
                                 const bt_input *input, bt_tensor *memory);
/* What the head's matrix is applied to: the states, or BERT's dense, activation
 * and norm of them. */
bt_tensor *bt_transformer_top(bt_tape *tape, bt_model *model, bt_tensor *x);
/* The head's matrix (vocab, width); its bias, or NULL. */
bt_tensor *bt_transformer_head(bt_model *model);
bt_tensor *bt_transformer_head_bias(bt_model *model);
/* Logits (rows, vocab) of hidden states, through the three above. */
bt_tensor *bt_transformer_logits(bt_tape *tape, bt_model *model, bt_tensor *x);

/* Write what the decoder's cross-attention sees of the encoder's states to the
 * books of the sources, in every layer. False when the tape has failed. */
bool bt_transformer_remember(bt_tape *tape, bt_model *model, bt_tensor *memory,
                             const bt_past *sources);

#endif
