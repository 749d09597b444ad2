/* SPDX-License-Identifier: Apache-2.0 */
/* api.c - public calls: loading and creating a model, and its properties. */
#include "model/api.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "formats/run_folder.h"
#include "model/layer_mask.h"
#include "runtime/context.h"

#include <string.h>

/* Largest generation_config.json in bytes. */
enum { GENERATION_MAX = 1 << 20 };

/* ---- loading ----------------------------------------------------------- */

/* Runs twice: to measure, then to fill in. */
typedef struct tensor_list {
    bauta_model *model; /* its entries are NULL while measuring */
    size_t count, bytes;
} tensor_list;

static void list_name(void *user, const char *name, bt_tensor *tensor, int rank)
{
    tensor_list *l = user;
    size_t length = strlen(name) + 1;
    if (l->model->tensors) {
        char *copy = l->model->names + l->bytes;
        memcpy(copy, name, length);
        l->model->tensors[l->count] = (bt_named_tensor){ copy, tensor, rank };
    }
    l->count++;
    l->bytes += length;
}

static bauta_status entries_list(bauta_model *model, bauta_error *err)
{
    tensor_list l = { .model = model };
    bt_model_store_visit(model->store, &(bt_tensor_visitor){ list_name, &l });
    model->names = bt_alloc(l.bytes);
    model->tensors = bt_alloc_zero(l.count, sizeof(*model->tensors));
    if (!model->names || !model->tensors)
        return bt_fail_memory(err, "the names of tensors", l.bytes);
    l = (tensor_list){ .model = model };
    bt_model_store_visit(model->store, &(bt_tensor_visitor){ list_name, &l });
    model->tensor_count = l.count;
    return BAUTA_OK;
}

/* Keep the text of generation_config.json, so that it can be saved with the
 * model even if the original folder is gone. */
static bauta_status generation_read(bauta_model *model, const char *folder,
                                    bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    char *path = bt_path_join(folder, "generation_config.json");
    if (!path)
        return bt_fail_memory(err, "the name of a file", strlen(folder));
    if (bt_file_exists(path))
        status = bt_file_read(&model->generation_config,
                              &model->generation_config_size, path,
                              GENERATION_MAX, err);
    bt_free(path);
    return status;
}

/* Options point into these lists. They are read at load time, because a shared
 * model is immutable. */
static bauta_status phrases_read(bauta_model *model, bauta_error *err)
{
    char *config;
    bauta_status status =
        bt_config_reader_save(&config, model->store->reader, "", err);
    if (status)
        return status;
    status = bt_generation_lists_read(
        &model->generation_lists, model->generation_config,
        model->generation_config_size, config, strlen(config),
        bauta_model_vocab_size(model), err);
    bt_free(config);
    return status;
}

static bauta_status load(bauta_model **out, const char *folder,
                         bt_load_mode mode, bauta_error *err)
{
    bauta_model *model = bt_alloc_zero(1, sizeof(*model));
    if (!model)
        return bt_fail_memory(err, "a model", sizeof(*model));
    model->trainable = mode == BT_LOAD_TRAINABLE;
    bauta_status status = bt_model_store_load(&model->store, folder, mode, err);
    if (!status)
        status = entries_list(model, err);
    if (!status)
        status = generation_read(model, folder, err);
    if (!status)
        status = phrases_read(model, err);
    if (!status && mode != BT_LOAD_DEFERRED)
        status = bt_model_verify(model, folder, err);
    if (status)
        bauta_model_free(model);
    else
        *out = model;
    return status;
}

/* Load without a context, or to the device of one. */
static bauta_status load_resolved(bauta_model **out, const char *folder,
                                  bool trainable, bauta_context *context,
                                  bauta_error *err)
{
    bt_load_mode mode = trainable ? BT_LOAD_TRAINABLE : BT_LOAD_MAPPED;
    bool verified = false;
    bauta_status status = BAUTA_OK;
    bool moves = context && !context->stream->backend->host_visible;
    if (moves) // digests are of float32, which a checkpoint has in its files
        status = bt_model_has_digests(&verified, folder, err);
    if (!status)
        status = load(out, folder, moves && !verified ? BT_LOAD_DEFERRED : mode,
                      err);
    if (!status && moves) {
        status = bauta_model_to(*out, context, err);
        if (status) {
            bauta_model_free(*out);
            *out = NULL;
        }
    }
    return status;
}

static bauta_status load_folder(bauta_model **out, const char *folder,
                                bool trainable, bauta_context *context,
                                bauta_error *err)
{
    char *resolved;
    bauta_status status = bt_run_resolve(&resolved, folder, err);
    if (!status)
        status = load_resolved(out, resolved, trainable, context, err);
    bt_free(resolved);
    return status;
}

bauta_status bauta_model_load(bauta_model **out, const char *folder,
                              bool trainable, bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(folder, err);
    return load_folder(out, folder, trainable, NULL, err);
}

bauta_status bauta_model_load_to(bauta_model **out, const char *folder,
                                 bauta_context *context, bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(folder, err);
    BT_NEED(context, err);
    return load_folder(out, folder, false, context, err);
}

bauta_status bauta_model_create(bauta_model **out, const char *config,
                                uint64_t seed, bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(config, err);
    bauta_model *model = bt_alloc_zero(1, sizeof(*model));
    if (!model)
        return bt_fail_memory(err, "a model", sizeof(*model));
    model->trainable = true;
    bauta_status status =
        bt_model_store_create(&model->store, config, strlen(config), seed, err);
    if (!status)
        status = entries_list(model, err);
    if (!status)
        status = phrases_read(model, err);
    if (status)
        bauta_model_free(model);
    else
        *out = model;
    return status;
}

void bauta_model_free(bauta_model *model)
{
    if (!model)
        return;
    bt_model_store_free(model->store);
    bt_free(model->tensors);
    bt_free(model->names);
    bt_free(model->generation_config);
    bt_free(model->generation_lists);
    bt_free(model);
}

/* ---- properties -------------------------------------------------------- */

static const bt_model_config *config_of(const bauta_model *model)
{
    return &model->store->model->config;
}

bauta_model_kind bauta_model_kind_of(const bauta_model *model)
{
    switch (config_of(model)->stacks) {
    case BT_ENCODER_ONLY:
        return BAUTA_ENCODER_ONLY;
    case BT_ENCODER_DECODER:
        return BAUTA_ENCODER_DECODER;
    default:
        return BAUTA_DECODER_ONLY;
    }
}

const char *bauta_model_kind_text(bauta_model_kind kind)
{
    switch (kind) {
    case BAUTA_DECODER_ONLY:
        return "decoder-only";
    case BAUTA_ENCODER_ONLY:
        return "encoder-only";
    case BAUTA_ENCODER_DECODER:
        return "encoder-decoder";
    }
    return "unknown kind";
}

bool bauta_model_trainable(const bauta_model *model)
{
    return model->trainable;
}

size_t bauta_model_vocab_size(const bauta_model *model)
{
    return config_of(model)->vocab_size;
}

size_t bauta_model_hidden_size(const bauta_model *model)
{
    return config_of(model)->width;
}

size_t bauta_model_encoder_layers(const bauta_model *model)
{
    return config_of(model)->encoder.layers;
}

size_t bauta_model_decoder_layers(const bauta_model *model)
{
    return config_of(model)->decoder.layers;
}

size_t bauta_model_max_positions(const bauta_model *model)
{
    return config_of(model)->max_positions;
}

bool bauta_model_rotary(const bauta_model *model)
{
    return !bt_positions_in_table(config_of(model)->position_kind);
}

size_t bauta_model_sliding_window(const bauta_model *model, size_t layer)
{
    return bt_layer_window(config_of(model), layer);
}

const char *bauta_model_warnings(const bauta_model *model)
{
    return model->store->warnings;
}

/* ---- tensors ----------------------------------------------------------- */

uint64_t bauta_model_parameter_count(const bauta_model *model)
{
    return model->store->parameters;
}

size_t bauta_model_tensor_count(const bauta_model *model)
{
    return model->tensor_count;
}

static bauta_tensor tensor_of(const bauta_model *model,
                              const bt_named_tensor *entry)
{
    const bt_tensor *from = entry->tensor;
    bt_tensor grad = bt_tensor_grad(from);
    bool vector = entry->rank == 1;
    return (bauta_tensor){
        .size = sizeof(bauta_tensor),
        .name = entry->name,
        .rank = (size_t)entry->rank,
        .shape = { vector ? from->columns : from->rows,
                   vector ? 1 : from->columns },
        .count = from->rows * from->columns,
        .data = bt_tensor_host(from),
        .writable = model->trainable ? bt_tensor_host(from) : NULL,
        .gradient = bt_tensor_host(&grad),
    };
}

bauta_status bauta_model_tensor(const bauta_model *model, size_t index,
                                bauta_tensor *tensor, bauta_error *err)
{
    BT_NEED(model, err);
    BT_NEED(tensor, err);
    bauta_status status =
        BT_SIZED_CHECK(tensor, BAUTA_TENSOR_INIT, "tensor", err);
    if (status)
        return status;
    if (index >= model->tensor_count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "tensor %zu of a model that has %zu", index,
                       model->tensor_count);
    bauta_tensor found = tensor_of(model, &model->tensors[index]);
    BT_SIZED_WRITE(tensor, &found);
    return BAUTA_OK;
}

/* The entry with this name; NULL, with an error, if there is none. */
static const bt_named_tensor *entry_find(const bauta_model *model,
                                         const char *name, bauta_error *err)
{
    for (size_t i = 0; i < model->tensor_count; i++)
        if (strcmp(model->tensors[i].name, name) == 0)
            return &model->tensors[i];
    bt_fail(err, BAUTA_ERR_ARGUMENT, "the model has no tensor \"%s\"",
            bt_quote(name).text);
    return NULL;
}

bauta_status bauta_model_find_tensor(const bauta_model *model, const char *name,
                                     bauta_tensor *tensor, bauta_error *err)
{
    BT_NEED(model, err);
    BT_NEED(name, err);
    BT_NEED(tensor, err);
    bauta_status status =
        BT_SIZED_CHECK(tensor, BAUTA_TENSOR_INIT, "tensor", err);
    if (status)
        return status;
    const bt_named_tensor *entry = entry_find(model, name, err);
    if (!entry)
        return BAUTA_ERR_ARGUMENT;
    bauta_tensor found = tensor_of(model, entry);
    BT_SIZED_WRITE(tensor, &found);
    return BAUTA_OK;
}

bauta_status bauta_model_read_tensor(const bauta_model *model, const char *name,
                                     float *to, bauta_error *err)
{
    BT_NEED(model, err);
    BT_NEED(name, err);
    BT_NEED(to, err);
    const bt_named_tensor *entry = entry_find(model, name, err);
    if (!entry)
        return BAUTA_ERR_ARGUMENT;
    if (entry->tensor->packed)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "the weights are packed as %s",
                       bt_model_dtype_name(model->dtype));
    return bt_model_download(model, entry->tensor, to, err);
}

bauta_status bauta_model_read_gradient(const bauta_model *model,
                                       const char *name, float *to,
                                       bauta_error *err)
{
    BT_NEED(model, err);
    BT_NEED(name, err);
    BT_NEED(to, err);
    const bt_named_tensor *entry = entry_find(model, name, err);
    if (!entry)
        return BAUTA_ERR_ARGUMENT;
    bt_tensor grad = bt_tensor_grad(entry->tensor);
    if (!grad.buffer)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the tensor \"%s\" has no gradient",
                       bt_quote(name).text);
    return bt_tensor_download(model->store->stream, to, &grad, err);
}

bauta_status bauta_model_write_tensor(bauta_model *model, const char *name,
                                      const float *from, bauta_error *err)
{
    BT_NEED(model, err);
    BT_NEED(name, err);
    BT_NEED(from, err);
    const bt_named_tensor *entry = entry_find(model, name, err);
    if (!entry)
        return BAUTA_ERR_ARGUMENT;
    if (!model->trainable)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the model was loaded read-only");
    return bt_model_upload(model, entry->tensor, from, err);
}

bauta_status bauta_model_zero_gradients(bauta_model *model, bauta_error *err)
{
    BT_NEED(model, err);
    if (!model->trainable)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the model was loaded read-only and has no gradients");
    bt_stream *stream = model->store->stream;
    const bt_buffer *grads = &model->store->grads;
    bauta_status status =
        grads->backend->fill(stream, grads, 0, 0, grads->bytes, err);
    // The next loss may be queued by another context.
    return status || !stream ? status : grads->backend->sync(stream, err);
}
