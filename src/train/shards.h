/* SPDX-License-Identifier: Apache-2.0 */
/* shards.h - how the parameters of a model are shared out over ranks.
 *
 * The weights, and with the same layout the gradients, are one row of floats,
 * which is cut into a slice for each rank (comm.h). A rank has the moments and
 * the moving average of its own slice only. Where a model computes with rounded
 * copies of its weights, this is true of the float32 weights as well, and the
 * copies are what ranks exchange. No slice ends within a piece of the norm
 * (BT_ADAMW_PIECE), so that the norm adds the same squares for any number of
 * ranks. */
#ifndef BT_SHARDS_H
#define BT_SHARDS_H

#include "model/api.h"
#include "train/optimizer.h"

/* Elements from `from` on of a trained tensor. */
typedef struct bt_shard_part {
    size_t trained, from, count;
} bt_shard_part;

typedef struct bt_shards {
    size_t *bounds;       /* (ranks + 1) of the slices, in floats */
    size_t first, floats; /* the own slice */
    size_t count;         /* parts of trained tensors in it */
    bt_shard_part *parts; /* (count) */
    bt_tensor *tensors;   /* (count) those that are not whole tensors */
    size_t pieces;        /* of the norm, on all ranks */
    bt_buffer masters;    /* (floats) the own slice of float32 weights; empty if
                             the model has all of them */
    size_t *pairs;        /* (ranks + 1) the bounds in pairs of copies */
} bt_shards;

bauta_status bt_shards_init(bt_shards *shards, const bt_comm *comm,
                            const bauta_model *model, bauta_error *err);
void bt_shards_release(bt_shards *shards);

/* Copy the own slice of the float32 weights, if the model has copies of them
 * and there are several ranks. After bt_shards_drop() the model has its rounded
 * copies only, as one that is not trained. */
bauta_status bt_shards_take(bt_shards *shards, const bt_comm *comm,
                            bt_stream *stream, const bt_model_store *store,
                            bauta_error *err);
void bt_shards_drop(const bt_shards *shards, bt_model_store *store);
/* Store weights, all of which are in host memory: the own slice as it is, and
 * the copies of all. */
bauta_status bt_shards_store(bt_shards *shards, bt_stream *stream,
                             const bt_model_store *store, const float *weights,
                             bauta_error *err);

/* Replace the `count` trained tensors of a model by the own parts of them. The
 * list has room for both. */
void bt_shards_cut(bt_shards *shards, bt_parameter *list, size_t *count);

#endif
