/* SPDX-License-Identifier: Apache-2.0 */
/* layer_mask.c - the rule of a layer, from the config. */
#include "model/layer_mask.h"

size_t bt_layer_window(const bt_blueprint *print, size_t layer)
{
    return layer >= print->window_from ? print->window : 0;
}

bt_place bt_layer_place(const bt_blueprint *print, bauta_look_at at,
                        size_t layer)
{
    if (at == BAUTA_LOOK_ENCODER)
        return BT_PLACE_ENCODER;
    if (at == BAUTA_LOOK_CROSS)
        return BT_PLACE_CROSS;
    return bt_layer_window(print, layer) ? BT_PLACE_WINDOW : BT_PLACE_DECODER;
}

size_t bt_layer_count(const bt_blueprint *print, bauta_look_at at)
{
    return at == BAUTA_LOOK_ENCODER ? print->encoder.layers
                                    : print->decoder.layers;
}

bt_batch_mask bt_layer_mask(const bt_blueprint *print, bauta_look_at at,
                            size_t layer, const bt_batch_mask *batch)
{
    bt_batch_mask mask = *batch;
    mask.causal = at == BAUTA_LOOK_DECODER;
    mask.window = mask.causal ? bt_layer_window(print, layer) : 0;
    if (!mask.causal)
        mask.prefixes = mask.windows = NULL;
    return mask;
}
