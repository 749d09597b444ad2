/* SPDX-License-Identifier: Apache-2.0 */
/* layer_mask.c - see layer_mask.h. */
#include "model/layer_mask.h"

bool bt_positions_in_table(bt_position_kind kind)
{
    return kind == BT_POSITIONS_LEARNED || kind == BT_POSITIONS_SINUSOIDAL;
}

size_t bt_layer_window(const bt_model_config *config, size_t layer)
{
    size_t period = config->window_period;
    if (layer < config->window_first_layer ||
        (period && (layer + 1) % period == 0))
        return 0;
    return config->window;
}

bt_attention_slot bt_layer_slot(const bt_model_config *config,
                                bauta_attention_kind attention, size_t layer)
{
    if (attention == BAUTA_ATTENTION_ENCODER)
        return BT_SLOT_ENCODER;
    if (attention == BAUTA_ATTENTION_CROSS)
        return BT_SLOT_CROSS;
    return bt_layer_window(config, layer) ? BT_SLOT_WINDOW : BT_SLOT_DECODER;
}

size_t bt_attention_layer_count(const bt_model_config *config,
                                bauta_attention_kind attention)
{
    return attention == BAUTA_ATTENTION_ENCODER ? config->encoder.layers
                                                : config->decoder.layers;
}

bt_batch_mask bt_layer_mask(const bt_model_config *config,
                            bauta_attention_kind attention, size_t layer,
                            const bt_batch_mask *batch)
{
    bt_batch_mask mask = *batch;
    mask.causal = attention == BAUTA_ATTENTION_DECODER;
    mask.window = mask.causal ? bt_layer_window(config, layer) : 0;
    if (!mask.causal)
        mask.prefixes = mask.windows = NULL;
    return mask;
}
