/* SPDX-License-Identifier: Apache-2.0 */
/* layer_mask.h - the mask rule of each attention of a model.
 *
 * This is the only place that derives from a config which layers are causal or
 * have a sliding window. The audit derives it independently, to compare. */
#ifndef BT_LAYER_MASK_H
#define BT_LAYER_MASK_H

#include "mask/shelf.h"
#include "model/blueprint.h"

/* The sliding window of a decoder layer; 0: none. */
size_t bt_layer_window(const bt_blueprint *config, size_t layer);

/* Layers of the same slot see the same keys and share a plan. */
bt_place bt_layer_place(const bt_blueprint *config, bauta_look_at attention,
                        size_t layer);
/* The number of layers that have this kind of attention. */
size_t bt_layer_count(const bt_blueprint *config, bauta_look_at attention);

/* The mask of a layer's attention over a batch: the batch's sequences,
 * prefixes, windows and extra mask, combined with the rule of the layer. */
bt_batch_mask bt_layer_mask(const bt_blueprint *config, bauta_look_at attention,
                            size_t layer, const bt_batch_mask *batch);

#endif
