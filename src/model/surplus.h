/* SPDX-License-Identifier: Apache-2.0 */
/* surplus.h - tensors of a file that the config does not ask for.
 *
 * Nothing of a file is dropped in silence. Such a tensor is
 *
 *   used      a table of sinusoidal positions, and a head that differs from the
 *             token table although the two are tied: transformers loads both
 *   a copy    of a tied tensor, bit for bit; one that differs is refused
 *   constant  a buffer that holds what is computed anyway (a causal mask,
 *             position numbers, rotary frequencies)
 *   unused    a part that is not run (BERT's pooler), or a buffer that holds
 *             something else: named in the model's warnings
 *
 * and whatever else there is gets refused. */
#ifndef BT_SURPLUS_H
#define BT_SURPLUS_H

#include "model/folder.h"

/* Before the weights are bound: give a place to what is used. */
void bt_surplus_adopt(bt_folder *folder, const char *path);

/* When they are: judge the tensors that are not `bound` (of each tensor of the
 * file, in its order). */
bauta_status bt_surplus_check(bt_folder *folder, const bool *bound,
                              const char *path, bauta_error *err);

#endif
