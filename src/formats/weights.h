/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h - the weights of a model folder, in one file or in shards.
 *
 *     model.safetensors              or
 *     model.safetensors.index.json   {"weight_map": {"name": "shard", ...}}
 *                                    and the shards, beside it
 *
 * Index and shards must say the same: every tensor of the index is in its
 * shard, every tensor of a shard is in the index. */
#ifndef BT_WEIGHTS_H
#define BT_WEIGHTS_H

#include "formats/safetensors.h"

enum {
    BT_INDEX_MAX = 64 << 20, /* bytes of an index */
    BT_SHARDS_MAX = 4096
};

typedef struct bt_weights bt_weights;

/* Pickled weights (pytorch_model.bin) are refused, as they are programs that
 * run when they are loaded; the sentence says how to convert them. */
bauta_status bt_weights_open(bt_weights **out, const char *folder,
                             bauta_error *err);
void bt_weights_free(bt_weights *weights);

/* Tensors in the order of their names. They live as long as the weights. */
size_t bt_weights_count(const bt_weights *weights);
const bt_tensor *bt_weights_at(const bt_weights *weights, size_t index);
/* NULL where there is none of this name. */
const bt_tensor *bt_weights_find(const bt_weights *weights, const char *name);

#endif
