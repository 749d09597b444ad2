/* SPDX-License-Identifier: Apache-2.0 */
/* init.h - the weights of a new model.
 *
 * Biases are 0 and gains 1. Matrices are drawn as the family's own code does:
 * decoder-only and encoder-only models from a normal distribution of the
 * standard deviation that the config names (initializer_range, 0.02), GPT-2's
 * and Llama's projections into the residual stream from a narrower one, by
 * 1 / sqrt(2 x layers); encoder-decoders from Glorot's uniform distribution,
 * and their embeddings from a normal one of 1 / sqrt(width). The row of the
 * padding token is 0.
 *
 * Every number is a function of the seed, the place of its tensor among the
 * folder's, and its place there. */
#ifndef BT_INIT_H
#define BT_INIT_H

#include "model/folder.h"

void bt_init(bt_folder *folder, uint64_t seed);

#endif
