/* SPDX-License-Identifier: Apache-2.0 */
/* layer_mask.h - the mask rule of each attention of a model.
 *
 * This is the only place that derives from a config which layers are causal or
 * have a sliding window. The audit derives it independently, to compare. */
#ifndef BT_LAYER_MASK_H
#define BT_LAYER_MASK_H

#include "model/model_config.h"
#include "runtime/plan_cache.h"

/* Whether positions are rows of a table, which bounds the length of texts. */
bool bt_positions_in_table(bt_position_kind kind);

/* The sliding window of a decoder layer; 0: none. */
size_t bt_layer_window(const bt_model_config *config, size_t layer);

/* Layers of the same slot see the same keys and share a plan. */
bt_attention_slot bt_layer_slot(const bt_model_config *config,
                                bauta_attention_kind attention, size_t layer);
/* The number of layers that have this kind of attention. */
size_t bt_attention_layer_count(const bt_model_config *config,
                                bauta_attention_kind attention);

/* The mask of a layer's attention over a batch: the batch's sequences,
 * prefixes, windows and extra mask, combined with the rule of the layer. */
bt_batch_mask bt_layer_mask(const bt_model_config *config,
                            bauta_attention_kind attention, size_t layer,
                            const bt_batch_mask *batch);

#endif
