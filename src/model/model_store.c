/* SPDX-License-Identifier: Apache-2.0 */
/* model_store.c - reading a config, and binding weights to its parameters. */
#include "model/model_store.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "formats/weight_files.h"
#include "model/init_weights.h"
#include "model/layer_mask.h"
#include "model/unexpected_tensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the config -------------------------------------------------------- */

static bauta_status stack_check(const bt_model_config *config,
                                const bt_stack_config *stack, const char *path,
                                bauta_error *err)
{
    if (!stack->layers)
        return BAUTA_OK;
    if (stack->ffn_dim == 0)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: a feed-forward part of 0 columns", path);
    if (stack->kv_heads == 0 || stack->heads % stack->kv_heads)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: %zu key heads do not divide %zu heads", path,
                       stack->kv_heads, stack->heads);
    if (config->head_dim == 0 || config->head_dim > 256)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: heads of %zu columns; 1 to 256 are supported", path,
                       config->head_dim);
    if ((bt_positions_in_table(config->position_kind) ||
         config->position_kind == BT_POSITIONS_ALIBI) &&
        config->head_dim * stack->heads != config->width)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: %zu heads do not divide a width of %zu", path,
                       stack->heads, config->width);
    if (config->position_kind == BT_POSITIONS_ROTARY && config->head_dim % 2)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: rotary positions need heads of an even number of "
                       "columns, not %zu",
                       path, config->head_dim);
    return BAUTA_OK;
}

/* The bidirectional half of the buckets has exact ones, the largest distance is
 * beyond these, and the list of all distances has a bounded size. */
static bauta_status relative_check(const bt_model_config *config,
                                   const char *path, bauta_error *err)
{
    enum { MOST = 1 << 20 };
    size_t buckets = config->relative_buckets;
    size_t most = config->relative_max_distance;
    if (buckets < 4 || buckets % 2 || buckets > MOST || most <= buckets / 2 ||
        most > MOST)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: %zu buckets for relative positions up to %zu", path,
                       buckets, most);
    return BAUTA_OK;
}

/* Check the numbers that the arithmetic divides by or takes roots and
 * logarithms of. */
static bauta_status numbers_check(const bt_model_config *config,
                                  const char *path, bauta_error *err)
{
    const bt_rope_config *rope = &config->rope;
    if (!(config->epsilon >= 0 && isfinite(config->epsilon)))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: an epsilon of %g for norms", path,
                       (double)config->epsilon);
    if (!isfinite(config->attention_scale) || config->attention_scale < 0)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: scores are scaled by %g", path,
                       (double)config->attention_scale);
    const float caps[] = { config->attention_softcap, config->head_softcap };
    for (size_t i = 0; i < BT_LEN(caps); i++)
        if (!(caps[i] >= 0 && isfinite(caps[i])))
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED, "%s: a softcap of %g",
                           path, (double)caps[i]);
    if (config->position_kind == BT_POSITIONS_RELATIVE)
        return relative_check(config, path, err);
    if (config->position_kind != BT_POSITIONS_ROTARY)
        return BAUTA_OK;
    if (!(rope->theta > 0 && isfinite(rope->theta)))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED, "%s: a rope_theta of %g",
                       path, rope->theta);
    if (!(config->local_rope_theta >= 0 && isfinite(config->local_rope_theta) &&
          rope->linear >= 0 && isfinite(rope->linear)))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: a rope_theta of %g for the window, and "
                       "frequencies divided by %g",
                       path, config->local_rope_theta, rope->linear);
    if (rope->scaled && !(rope->factor > 0 && rope->low_freq_factor > 0 &&
                          rope->high_freq_factor > rope->low_freq_factor))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: rope scaling by %g between %g and %g", path,
                       rope->factor, rope->low_freq_factor,
                       rope->high_freq_factor);
    return BAUTA_OK;
}

/* Bound the memory that a config can make us allocate before its weights are
 * seen. */
static bauta_status config_check(const bt_model_config *config,
                                 const char *path, bauta_error *err)
{
    if (config->encoder.layers > 4096 || config->decoder.layers > 4096)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED, "%s: more than 4096 layers",
                       path);
    if (config->position_kind == BT_POSITIONS_SINUSOIDAL &&
        bt_size_mul(config->max_positions, config->width) > (size_t)1 << 22)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: %zu sinusoidal positions of %zu columns are too "
                       "many",
                       path, config->max_positions, config->width);
    bauta_status status = numbers_check(config, path, err);
    if (!status)
        status = stack_check(config, &config->encoder, path, err);
    return status ? status : stack_check(config, &config->decoder, path, err);
}

/* Read the config and create the model that it describes. */
static bauta_status config_read(bt_model_store *store, bauta_error *err)
{
    bt_model_config config = { 0 };
    store->family = bt_family_find(store->reader);
    if (store->family)
        store->family->read_config(&config, store->reader);
    bauta_status status = bt_config_reader_status(store->reader, err);
    if (!status)
        status =
            config_check(&config, bt_config_reader_path(store->reader), err);
    if (!status)
        status = bt_model_create(&store->model, &config, err);
    return status;
}

/* ---- binding ----------------------------------------------------------- */

typedef struct binding {
    bt_model_store *store;
    const char *path;
    bool copies;   /* copy all tensors, not only those to be converted */
    size_t floats; /* of memory in use so far */
    size_t mapped; /* tensors that stay in files, so far */
    bool *bound;   /* (stored tensors) whether the model uses it */
    bauta_status status;
    bauta_error *err;
} binding;

const bt_stored_tensor *bt_model_store_find(const bt_model_store *store,
                                            const char *name)
{
    const bt_stored_tensor *stored = bt_weight_files_find(store->files, name);
    const char *dot = strchr(name, '.');
    if (!stored && dot)
        stored = bt_weight_files_find(store->files, dot + 1);
    return stored;
}

/* The index of a stored tensor; they are sorted by name. */
static size_t stored_index(const bt_weight_files *weights,
                           const bt_stored_tensor *stored)
{
    size_t lo = 0, hi = bt_weight_files_count(weights);
    while (hi - lo > 1) {
        size_t middle = lo + (hi - lo) / 2;
        if (strcmp(bt_weight_files_at(weights, middle)->name, stored->name) <=
            0)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

/* "3 x 4", "12", or "a single number" for rank 0. */
static void shape_text(char *text, size_t size, const size_t *shape,
                       unsigned rank)
{
    size_t used = 0;
    snprintf(text, size, "%s", rank ? "" : "a single number");
    for (unsigned i = 0; i < rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%zu",
                                 i ? " x " : "", shape[i]);
}

static bool shape_fits(const bt_stored_tensor *stored, const bt_tensor *tensor,
                       int rank)
{
    if (rank == 1)
        return stored->rank == 1 && stored->shape[0] == tensor->columns;
    return stored->rank == 2 && stored->shape[0] == tensor->rows &&
           stored->shape[1] == tensor->columns;
}

/* The stored tensor of a parameter, or NULL with an error. */
static const bt_stored_tensor *stored_for(binding *b, const char *name,
                                          const bt_tensor *tensor, int rank)
{
    const bt_stored_tensor *stored = bt_model_store_find(b->store, name);
    char shape[96], wanted[48];
    if (!stored) {
        b->status = bt_fail(b->err, BAUTA_ERR_FORMAT,
                            "%s: tensor %s is missing", b->path, name);
        return NULL;
    }
    if (!shape_fits(stored, tensor, rank)) {
        const size_t full[] = { tensor->rows, tensor->columns };
        shape_text(shape, sizeof(shape), stored->shape, stored->rank);
        shape_text(wanted, sizeof(wanted), rank == 1 ? full + 1 : full,
                   (unsigned)rank);
        b->status =
            bt_fail(b->err, BAUTA_ERR_FORMAT, "%s: tensor %s is %s, not %s",
                    b->path, name, shape, wanted);
        return NULL;
    }
    if (stored->dtype != BAUTA_FLOAT32 && stored->dtype != BAUTA_FLOAT16 &&
        stored->dtype != BAUTA_BFLOAT16) {
        b->status = bt_fail(b->err, BAUTA_ERR_UNSUPPORTED,
                            "%s: tensor %s has the type %s", b->path, name,
                            bt_dtype_name(stored->dtype));
        return NULL;
    }
    return stored;
}

/* Aligned float32 can be used in the mapped file. */
static bool stays_mapped(const binding *b, const bt_stored_tensor *stored)
{
    return !b->copies && stored->dtype == BAUTA_FLOAT32 &&
           (uintptr_t)stored->data % sizeof(float) == 0;
}

static void count_name(void *user, const char *name, bt_tensor *tensor,
                       int rank)
{
    binding *b = user;
    const bt_stored_tensor *stored =
        b->status ? NULL : stored_for(b, name, tensor, rank);
    if (!stored)
        return;
    b->bound[stored_index(b->store->files, stored)] = true;
    b->store->parameters += tensor->rows * tensor->columns;
    if (stays_mapped(b, stored))
        b->mapped++;
    else
        b->floats += bt_tensor_floats(tensor);
}

/* Give a parameter the gradient that has the offset of its data. */
static void grad_bind(const binding *b, bt_tensor *tensor)
{
    const bt_model *model = b->store->model;
    bool fixed =
        (model->config.head_bias_fixed && tensor == &model->head.bias) ||
        (model->encoder.positions_stored &&
         tensor == &model->encoder.positions) ||
        (model->decoder.positions_stored &&
         tensor == &model->decoder.positions);
    if (b->store->grads.memory && !fixed) {
        tensor->grad = &b->store->grads;
        tensor->grad_offset = b->floats;
        tensor->requires_grad = true;
    }
}

static void bind_name(void *user, const char *name, bt_tensor *tensor, int rank)
{
    binding *b = user;
    const bt_stored_tensor *stored = stored_for(b, name, tensor, rank);
    size_t count = tensor->rows * tensor->columns;
    tensor->offset = 0;
    if (stays_mapped(b, stored)) {
        bt_buffer *mapped = &b->store->mapped[b->mapped++];
        *mapped = bt_buffer_of_host((void *)(uintptr_t)stored->data,
                                    stored->bytes); // never written
        tensor->buffer = mapped;
        return;
    }
    tensor->buffer = &b->store->weights;
    tensor->offset = b->floats;
    bt_convert_f32(bt_tensor_host(tensor), stored->data, stored->dtype, count);
    grad_bind(b, tensor);
    b->floats += bt_tensor_floats(tensor);
}

/* Check that all tensors fit, and count the memory that they take. */
static bauta_status weights_count(binding *b)
{
    b->bound = bt_alloc_zero(bt_weight_files_count(b->store->files), 1);
    if (!b->bound)
        return bt_fail_memory(b->err, "the weights of a model",
                              bt_weight_files_count(b->store->files));
    bt_model_store_visit(b->store, &(bt_tensor_visitor){ count_name, b });
    if (!b->status)
        b->status =
            bt_unexpected_tensors_check(b->store, b->bound, b->path, b->err);
    bt_free(b->bound);
    return b->status;
}

static bauta_status memory_alloc(bt_model_store *store, size_t floats,
                                 bool trained, bauta_error *err)
{
    size_t bytes = bt_size_mul(floats, sizeof(float));
    store->weights =
        bt_buffer_of_host(bt_alloc_zero(floats, sizeof(float)), bytes);
    if (trained && store->weights.memory)
        store->grads =
            bt_buffer_of_host(bt_alloc_zero(floats, sizeof(float)), bytes);
    if (!store->weights.memory || (trained && !store->grads.memory))
        return bt_fail_memory(err, "the weights of a model", bytes);
    store->floats = floats;
    return BAUTA_OK;
}

static bauta_status weights_bind(bt_model_store *store, const char *path,
                                 bt_load_mode load, bauta_error *err)
{
    binding b = { .store = store,
                  .path = bt_path_tail(path),
                  .copies = load == BT_LOAD_TRAINABLE,
                  .err = err };
    bt_unexpected_tensors_adopt(store, b.path);
    bauta_status status = weights_count(&b);
    if (status || load == BT_LOAD_DEFERRED)
        return status;
    status = memory_alloc(store, b.floats, load == BT_LOAD_TRAINABLE, err);
    if (status)
        return status;
    store->mapped = bt_alloc_zero(b.mapped, sizeof(*store->mapped));
    if (!store->mapped)
        return bt_fail_memory(err, "the weights of a model",
                              b.mapped * sizeof(*store->mapped));
    b.floats = b.mapped = 0;
    bt_model_store_visit(store, &(bt_tensor_visitor){ bind_name, &b });
    bt_model_split_qkv(store->model);
    return BAUTA_OK;
}

/* ---- loading ----------------------------------------------------------- */

bauta_status bt_model_store_load(bt_model_store **out, const char *path,
                                 bt_load_mode load, bauta_error *err)
{
    *out = NULL;
    bt_model_store *store = bt_alloc_zero(1, sizeof(*store));
    if (!store)
        return bt_fail_memory(err, "a model", sizeof(*store));
    bauta_status status = bt_config_reader_load(&store->reader, path, err);
    if (!status)
        status = config_read(store, err);
    if (!status)
        status = bt_weight_files_open(&store->files, path, err);
    if (!status)
        status = weights_bind(store, path, load, err);
    if (load == BT_LOAD_TRAINABLE) {
        bt_weight_files_free(store->files); // everything was copied
        store->files = NULL;
    }
    if (status)
        bt_model_store_free(store);
    else
        *out = store;
    return status;
}

/* ---- a new model ------------------------------------------------------- */

static void count_new(void *user, const char *name, bt_tensor *tensor, int rank)
{
    (void)name;
    (void)rank;
    binding *b = user;
    b->floats = bt_size_add(b->floats, bt_tensor_floats(tensor));
    b->store->parameters += tensor->rows * tensor->columns;
}

static void bind_new(void *user, const char *name, bt_tensor *tensor, int rank)
{
    (void)name;
    (void)rank;
    binding *b = user;
    tensor->buffer = &b->store->weights;
    tensor->offset = b->floats;
    grad_bind(b, tensor);
    b->floats += bt_tensor_floats(tensor);
}

static bauta_status weights_create(bt_model_store *store, uint64_t seed,
                                   bauta_error *err)
{
    binding b = { .store = store };
    bt_model_store_visit(store, &(bt_tensor_visitor){ count_new, &b });
    bauta_status status = memory_alloc(store, b.floats, true, err);
    if (status)
        return status;
    b.floats = 0;
    bt_model_store_visit(store, &(bt_tensor_visitor){ bind_new, &b });
    bt_model_split_qkv(store->model);
    bt_init_weights(store, seed);
    return BAUTA_OK;
}

bauta_status bt_model_store_create(bt_model_store **out, const char *config,
                                   size_t size, uint64_t seed, bauta_error *err)
{
    *out = NULL;
    bt_model_store *store = bt_alloc_zero(1, sizeof(*store));
    if (!store)
        return bt_fail_memory(err, "a model", sizeof(*store));
    bauta_status status =
        bt_config_reader_parse(&store->reader, config, size, err);
    if (!status)
        status = config_read(store, err);
    if (!status)
        status = weights_create(store, seed, err);
    if (status)
        bt_model_store_free(store);
    else
        *out = store;
    return status;
}

void bt_model_store_free(bt_model_store *store)
{
    if (!store)
        return;
    bt_config_reader_free(store->reader);
    bt_model_free(store->model);
    bt_weight_files_free(store->files);
    if (store->weights.memory)
        store->weights.backend->free(&store->weights);
    if (store->grads.memory)
        store->grads.backend->free(&store->grads);
    if (store->copies.memory)
        store->copies.backend->free(&store->copies);
    bt_free(store->mapped);
    bt_free(store->packed);
    bt_free(store->panels);
    bt_free(store);
}

void bt_model_store_visit(bt_model_store *store, const bt_tensor_visitor *names)
{
    store->family->visit_tensors(store->model, names);
}
