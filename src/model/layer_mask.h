/* SPDX-License-Identifier: Apache-2.0 */
/* layer_mask.h - what each attention of a model may see.
 *
 * Nothing else in the library derives from a config which layers are causal or
 * have a window. The audit does so by itself, to compare. */
#ifndef BT_LAYER_MASK_H
#define BT_LAYER_MASK_H

#include "mask/shelf.h"
#include "model/blueprint.h"

/* The window of a layer of the decoder; 0: none. */
size_t bt_layer_window(const bt_blueprint *print, size_t layer);

/* Layers of the same place see the same keys, and share a plan. */
bt_place bt_layer_place(const bt_blueprint *print, bauta_look_at at,
                        size_t layer);
/* How many layers have such an attention. */
size_t bt_layer_count(const bt_blueprint *print, bauta_look_at at);

/* The mask of a layer's attention over a batch: its sequences, their prefixes,
 * windows and extra mask, with the rule of the layer. */
bt_batch_mask bt_layer_mask(const bt_blueprint *print, bauta_look_at at,
                            size_t layer, const bt_batch_mask *batch);

#endif
