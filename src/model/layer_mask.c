/* SPDX-License-Identifier: Apache-2.0 */
/* layer_mask.c - see layer_mask.h. */
#include "model/layer_mask.h"

size_t bt_layer_window(const bt_blueprint *config, size_t layer)
{
    return layer >= config->window_from ? config->window : 0;
}

bt_place bt_layer_place(const bt_blueprint *config, bauta_look_at attention,
                        size_t layer)
{
    if (attention == BAUTA_LOOK_ENCODER)
        return BT_PLACE_ENCODER;
    if (attention == BAUTA_LOOK_CROSS)
        return BT_PLACE_CROSS;
    return bt_layer_window(config, layer) ? BT_PLACE_WINDOW : BT_PLACE_DECODER;
}

size_t bt_layer_count(const bt_blueprint *config, bauta_look_at attention)
{
    return attention == BAUTA_LOOK_ENCODER ? config->encoder.layers
                                           : config->decoder.layers;
}

bt_batch_mask bt_layer_mask(const bt_blueprint *config, bauta_look_at attention,
                            size_t layer, const bt_batch_mask *batch)
{
    bt_batch_mask mask = *batch;
    mask.causal = attention == BAUTA_LOOK_DECODER;
    mask.window = mask.causal ? bt_layer_window(config, layer) : 0;
    if (!mask.causal)
        mask.prefixes = mask.windows = NULL;
    return mask;
}
