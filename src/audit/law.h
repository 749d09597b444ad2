/* SPDX-License-Identifier: Apache-2.0 */
/* law.h - what must be: who may see whom in each layer, and what may get
 * through to where. By the definitions in bauta.h, pair by pair. */
#ifndef BT_LAW_H
#define BT_LAW_H

#include "audit/reading.h"
#include "model/blueprint.h"

typedef struct bt_law {
    size_t encoder, decoder;         /* layers */
    size_t window_from;              /* first layer of the decoder with one */
    bt_grid sees, narrow, both_ways; /* decoder, its windows, encoder */
    bt_grid across;                  /* (rows of target, of source) */
    /* What may have got into the hidden states behind l layers. */
    bt_grid *in_encoder;  /* (encoder + 1) of the source */
    bt_grid *in_decoder;  /* (decoder + 1) of the target */
    bt_grid *from_source; /* (decoder + 1) of the source, in the decoder */
} bt_law;

bauta_status bt_law_init(bt_law *law, const bt_blueprint *print,
                         const bt_readings *read, bauta_error *err);
void bt_law_release(bt_law *law);

/* Who sees whom in a layer's self-attention. */
static inline const bt_grid *bt_law_sees(const bt_law *law, bool target,
                                         size_t layer)
{
    if (!target)
        return &law->both_ways;
    return layer >= law->window_from ? &law->narrow : &law->sees;
}

/* Whether input `key` of a side may have got into row `row` of a stack behind
 * `level` layers. */
static inline bool bt_law_reaches(const bt_law *law, bool target, size_t level,
                                  size_t row, bool key_target, size_t key)
{
    if (!target)
        return !key_target && bt_grid_get(&law->in_encoder[level], row, key);
    return bt_grid_get(key_target ? &law->in_decoder[level]
                                  : &law->from_source[level],
                       row, key);
}

#endif
