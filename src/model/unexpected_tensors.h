/* SPDX-License-Identifier: Apache-2.0 */
/* unexpected_tensors.h - stored tensors that the config does not ask for.
 *
 * No tensor of a file is dropped silently. An unexpected one is
 *
 *   used      a sinusoidal position table, or a head that differs from the
 *             token embeddings although they are tied: transformers loads both
 *   a copy    of a tied tensor, bit for bit; one that differs is an error
 *   constant  a buffer with values that are computed anyway (a causal mask,
 *             position ids, rotary frequencies)
 *   unused    a part that is not run (BERT's pooler), or a buffer with other
 *             values: listed in the model's warnings
 *
 * Any other tensor is an error. */
#ifndef BT_UNEXPECTED_TENSORS_H
#define BT_UNEXPECTED_TENSORS_H

#include "model/model_store.h"

/* Before the weights are bound: add the tensors that are used to the model. */
void bt_unexpected_tensors_adopt(bt_model_store *store, const char *path);

/* After binding: classify the tensors that are not bound. `bound` has a flag
 * for each tensor of the files, in the order of their names. */
bauta_status bt_unexpected_tensors_check(bt_model_store *store,
                                         const bool *bound, const char *path,
                                         bauta_error *err);

#endif
