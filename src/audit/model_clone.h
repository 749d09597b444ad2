/* SPDX-License-Identifier: Apache-2.0 */
/* model_clone.h - a shallow copy of a model, parts of which can be replaced.
 *
 * A clone shares the model's weights and runs through the same calls. Checks
 * put NaN into its embeddings, remove layers or ablate heads; the model itself
 * is only read. */
#ifndef BT_MODEL_CLONE_H
#define BT_MODEL_CLONE_H

#include "model/api.h"

enum { BT_MODEL_CLONE_OWNED = 16 };

/* Numbers that a clone owns, in host memory and on the model's device; on the
 * CPU both are the same. */
typedef struct bt_owned_floats {
    float *host;
    bauta_dtype dtype; /* on the device */
    bt_buffer buffer;
} bt_owned_floats;

typedef struct bt_model_clone {
    bauta_model handle; /* for calls of the library */
    bt_model_store folder;
    bt_model model;
    const bt_model_store *original;
    bt_layer *layers[2];                         /* encoder, decoder */
    bt_owned_floats owned[BT_MODEL_CLONE_OWNED]; /* replaced tensors */
    size_t owned_count;
    const bt_owned_floats *gradients; /* those that were asked for, or NULL */
    const bt_owned_floats *zeros;     /* shared by ablated layers */
    size_t zero_count;                /* of zeros */
} bt_model_clone;

/* A clone points into itself and must not be moved. */
bauta_status bt_model_clone_init(bt_model_clone *clone,
                                 const bauta_model *model, bauta_error *err);
void bt_model_clone_release(bt_model_clone *clone);

/* Compressed weights cannot be trained. */
static inline bool bt_model_clone_trainable(const bt_model_clone *clone)
{
    return !clone->folder.packed;
}

/* Copy a token's embedding, of any storage type, to `to`. */
bauta_status bt_embedding_read(const bt_model_store *store, uint32_t id,
                               float *to, bauta_error *err);

/* Keep only the first layers of each stack. */
void bt_model_clone_set_depth(bt_model_clone *clone, size_t encoder,
                              size_t decoder);

/* Replace the token embedding by a table of `rows` rows of 0. The output head
 * is untied first and stays as it was. With `trainable` the table gets a
 * gradient, and it is the only parameter that does. */
bauta_status bt_model_clone_replace_embedding(bt_model_clone *clone,
                                              size_t rows, bool trainable,
                                              bauta_error *err);
/* Write the model's embedding of a token to a row of the new table. */
bauta_status bt_model_clone_copy_embedding(bt_model_clone *clone, size_t row,
                                           uint32_t id, bauta_error *err);
/* Fill a row of the new table with NaN. */
bauta_status bt_model_clone_poison_embedding(bt_model_clone *clone, size_t row,
                                             bauta_error *err);

/* Replace the output head by one of two tokens whose weights are NaN. */
bauta_status bt_model_clone_poison_output_head(bt_model_clone *clone,
                                               bauta_error *err);

/* Ablate all heads of an attention but head `keep`; SIZE_MAX: all of them. */
bauta_status bt_model_clone_ablate_heads(bt_model_clone *clone,
                                         bauta_attention_kind at, size_t layer,
                                         size_t keep, bauta_error *err);
/* Make an attention weigh all visible keys equally, with value and output
 * projections that let every key show in the result, whatever the model has
 * learned. */
bauta_status bt_model_clone_uniform_attention(bt_model_clone *clone,
                                              bauta_attention_kind at,
                                              size_t layer, bauta_error *err);

/* Give every parameter a gradient of its own, all in one array of `*count`
 * zeros, which the clone owns. */
bauta_status bt_model_clone_enable_gradients(bt_model_clone *clone,
                                             size_t *count, bauta_error *err);
/* The gradients of the clone in host memory, as the last call left them; NULL
 * and an error if they cannot be read. */
const float *bt_model_clone_gradients(const bt_model_clone *clone,
                                      bauta_error *err);

#endif
