/* SPDX-License-Identifier: Apache-2.0 */
/* save.c - writing a model as a Hugging Face folder. */
#include "base/atomic_directory.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "formats/safetensors.h"
#include "model/api.h"

#include <string.h>

/* The architecture's name in transformers: the first one of the family's list.
 */
static void architecture_of(char *name, size_t size, const bt_family *family)
{
    size_t length = strcspn(family->architectures, " ");
    length = bt_size_min(length, size - 1);
    memcpy(name, family->architectures, length);
    name[length] = '\0';
}

static bauta_status config_write(const bt_atomic_directory *to,
                                 const bauta_model *model, bauta_error *err)
{
    char architecture[64], *text = NULL;
    architecture_of(architecture, sizeof(architecture), model->store->family);
    bauta_status status =
        bt_config_reader_save(&text, model->store->reader, architecture, err);
    if (!status)
        status = bt_atomic_directory_write(to, "config.json", text,
                                           strlen(text), err);
    bt_free(text);
    return status;
}

bt_stored_tensor bt_tensor_to_store(const bt_named_tensor *entry,
                                    const char *name, const float *data)
{
    const bt_tensor *t = entry->tensor;
    bool vector = entry->rank == 1;
    return (bt_stored_tensor){ .name = name,
                               .dtype = BAUTA_FLOAT32,
                               .rank = (unsigned)entry->rank,
                               .shape = { vector ? t->columns : t->rows,
                                          vector ? 0 : t->columns },
                               .data = data,
                               .bytes = t->rows * t->columns * sizeof(float) };
}

const float *bt_model_tensor_data(const bauta_model *model,
                                  const bt_named_tensor *entry,
                                  const float *weights)
{
    const bt_tensor *t = entry->tensor;
    bool mapped = t->buffer != &model->store->weights &&
                  t->buffer != &model->store->copies;
    return mapped ? bt_tensor_host(t) : weights + t->offset;
}

static bauta_status weights_write(const bt_atomic_directory *to,
                                  const bauta_model *model,
                                  const float *weights, bauta_error *err)
{
    size_t bytes = bt_size_mul(model->tensor_count, sizeof(bt_stored_tensor));
    bt_stored_tensor *tensors = bt_alloc(bytes);
    if (!tensors)
        return bt_fail_memory(err, "the names of tensors", bytes);
    for (size_t i = 0; i < model->tensor_count; i++)
        tensors[i] = bt_tensor_to_store(
            &model->tensors[i], model->tensors[i].name,
            bt_model_tensor_data(model, &model->tensors[i], weights));
    bauta_status status = bt_safetensors_write_in(
        to, "model.safetensors", tensors, model->tensor_count, err);
    bt_free(tensors);
    return status;
}

bauta_status bt_model_write(const bauta_model *model, const float *weights,
                            const bt_atomic_directory *to, bauta_error *err)
{
    bauta_status status = config_write(to, model, err);
    if (!status && model->generation_config)
        status = bt_atomic_directory_write(to, "generation_config.json",
                                           model->generation_config,
                                           model->generation_config_size, err);
    if (!status)
        status = weights_write(to, model, weights, err);
    return status;
}

bauta_status bauta_model_save(const bauta_model *model, const char *folder,
                              bauta_error *err)
{
    BT_NEED(model, err);
    BT_NEED(folder, err);
    if (model->store->packed)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the weights are packed as %s and cannot be saved",
                       bt_model_dtype_name(model->dtype));
    bauta_status status = bt_model_check_masters(model, err);
    if (status)
        return status;
    if (model->store->copies.memory && !model->store->weights.memory)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "the device has a rounded copy of the weights only: "
                       "load the model again to save it");
    bt_atomic_directory *to = NULL;
    bt_host_copy weights;
    status = bt_host_copy_init(&weights, model->store->stream,
                               &model->store->weights, err);
    if (!status)
        status = bt_atomic_directory_create(&to, folder, err);
    if (!status)
        status = bt_model_write(model, weights.data, to, err);
    if (!status)
        status = bt_atomic_directory_commit(to, err);
    bt_atomic_directory_free(to);
    bt_host_copy_release(&weights);
    return status;
}
