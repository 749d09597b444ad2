/* SPDX-License-Identifier: Apache-2.0 */
/* weight_files.h - the weights of a model folder, in one file or in shards.
 *
 *     model.safetensors              or
 *     model.safetensors.index.json   {"weight_map": {"name": "shard", ...}}
 *                                    and the shards, beside it
 *
 * Index and shards must agree: every tensor of the index is in its shard, and
 * every tensor of a shard is in the index. */
#ifndef BT_WEIGHT_FILES_H
#define BT_WEIGHT_FILES_H

#include "formats/safetensors.h"

enum {
    BT_INDEX_MAX = 64 << 20, /* bytes of an index */
    BT_SHARDS_MAX = 4096
};

typedef struct bt_weight_files bt_weight_files;

/* Pickled weights (pytorch_model.bin) are rejected, because loading them runs
 * code; the error says how to convert them. */
bauta_status bt_weight_files_open(bt_weight_files **out, const char *folder,
                                  bauta_error *err);
void bt_weight_files_free(bt_weight_files *weights);

/* Tensors sorted by name. They live as long as the files are open. */
size_t bt_weight_files_count(const bt_weight_files *weights);
const bt_stored_tensor *bt_weight_files_at(const bt_weight_files *weights,
                                           size_t index);
/* NULL if there is no such tensor. */
const bt_stored_tensor *bt_weight_files_find(const bt_weight_files *weights,
                                             const char *name);

#endif
