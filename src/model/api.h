/* SPDX-License-Identifier: Apache-2.0 */
/* api.h - struct bauta_model: the parameters, a list of them by name, and the
 * files that are needed to save the model again. */
#ifndef BT_HANDLE_H
#define BT_HANDLE_H

#include "base/atomic_directory.h"
#include "formats/safetensors.h"
#include "model/generation_lists.h"
#include "model/model_store.h"

typedef struct bt_named_tensor {
    const char *name;
    bt_tensor *tensor;
    int rank;
} bt_named_tensor;

struct bauta_model {
    bt_model_store *store;
    bool trainable;
    bauta_dtype dtype;
    size_t tensor_count;
    bt_named_tensor
        *tensors; /* (count) in the order in which the family lists them */
    char *names;  /* of the entries, packed back to back */
    char *generation_config; /* text of generation_config.json, or NULL */
    size_t generation_config_size;
    bt_generation_lists *
        generation_lists; /* from generation_config.json, or from config.json */
};

/* A tensor for bt_safetensors_write(): the shape of an entry, with another name
 * and other data. */
bt_stored_tensor bt_tensor_to_store(const bt_named_tensor *entry,
                                    const char *name, const float *data);

/* ---- model_device.c ----------------------------------------------------- */

/* An error unless model and context are on the same device. */
bauta_status bt_model_check_device(const bauta_model *model,
                                   const bauta_context *context,
                                   bauta_error *err);

/* An error unless a context may change the model's weights: on a device with
 * queues of its own, only the one that the model was moved with. */
bauta_status bt_model_check_owner(const bauta_model *model,
                                  const bauta_context *context,
                                  bauta_error *err);
/* Wait for what a context has written to the model, if another context's queue
 * reads it. */
bauta_status bt_model_finish_write(const bauta_model *model,
                                   const bauta_context *context,
                                   bauta_error *err);

/* BAUTA_ERR_ARGUMENT if a model that is trained has rounded copies of its
 * weights only: its trainer has a slice of the weights, and other ranks have
 * the rest. */
bauta_status bt_model_check_masters(const bauta_model *model, bauta_error *err);

/* Copy a parameter to or from host memory as float32. */
bauta_status bt_model_download(const bauta_model *model, const bt_tensor *from,
                               float *to, bauta_error *err);
bauta_status bt_model_upload(const bauta_model *model, const bt_tensor *to,
                             const float *from, bauta_error *err);

/* "float32", "bfloat16" or "int8". */
const char *bt_model_dtype_name(bauta_dtype weights);

/* Where a tensor is in `weights`, a host copy of the model's buffer of weights
 * or numbers of the same layout. A tensor in a mapped file is there. */
const float *bt_model_tensor_data(const bauta_model *model,
                                  const bt_named_tensor *entry,
                                  const float *weights);

/* Write the files of a model into a folder that is being created, with such
 * weights. */
bauta_status bt_model_write(const bauta_model *model, const float *weights,
                            const bt_atomic_directory *to, bauta_error *err);

/* ---- model_digests.c --------------------------------------------------- */

/* Whether a folder has digests that a model is verified against. */
bauta_status bt_model_has_digests(bool *has, const char *folder,
                                  bauta_error *err);

/* Over the names, shapes and values of all tensors; weights as in
 * bt_model_write(). */
uint64_t bt_model_weights_digest(const bauta_model *model,
                                 const float *weights);
bauta_status bt_model_config_digest(uint64_t *digest, const bauta_model *model,
                                    bauta_error *err);
/* Check the model against the digests in its folder's trainer.json. A folder
 * without one passes. */
bauta_status bt_model_verify(const bauta_model *model, const char *folder,
                             bauta_error *err);

#endif
