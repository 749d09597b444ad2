/* SPDX-License-Identifier: Apache-2.0 */
/* init_weights.h - random initialization of a new model.
 *
 * Biases are 0 and gains 1. Matrices follow the original implementations:
 *
 *   decoder-only,    normal, with the standard deviation of the config
 *   encoder-only     (initializer_range, 0.02); projections into a decoder's
 *                    residual stream times 1 / sqrt(2 x layers)
 *   encoder-decoder  Glorot uniform; embeddings normal with 1 / sqrt(width)
 *
 * The embedding of the padding token is 0. Every value is a function of the
 * seed, the index of its tensor, and its index in the tensor. */
#ifndef BT_INIT_WEIGHTS_H
#define BT_INIT_WEIGHTS_H

#include "model/model_store.h"

void bt_init_weights(bt_model_store *store, uint64_t seed);

#endif
