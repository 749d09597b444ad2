/* SPDX-License-Identifier: Apache-2.0 */
/* model_optimizer.h - an optimizer over all trained tensors of a model. */
#ifndef BT_MODEL_OPTIMIZER_H
#define BT_MODEL_OPTIMIZER_H

#include "model/api.h"
#include "train/shards.h"

/* Which tensors are decayed; `select` NULL: matrices, not vectors. */
typedef struct bt_decay_rule {
    bool (*select)(void *user, const bauta_tensor *tensor);
    void *user;
} bt_decay_rule;

/* Whether an optimizer can be created over a model. */
bauta_status bt_model_check_trainable(const bauta_model *model,
                                      bauta_error *err);

/* Create an optimizer over the tensors that have a gradient. They are written
 * to `trained`, which has room for all tensors of the model, in the optimizer's
 * order; *count is their number. With `shards`, which may be NULL, the
 * optimizer has only the own parts of them. */
bauta_status bt_model_optimizer_create(bt_optimizer **out, bt_stream *stream,
                                       bt_named_tensor **trained, size_t *count,
                                       const bauta_model *model,
                                       const bt_optimizer_options *options,
                                       bt_decay_rule decay, bt_shards *shards,
                                       bauta_error *err);

#endif
