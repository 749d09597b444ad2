/* SPDX-License-Identifier: Apache-2.0 */
/* model_store.c - reading a config, and binding weights to its parameters. */
#include "model/folder.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "formats/weights.h"
#include "model/init_weights.h"
#include "model/unexpected_tensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the config -------------------------------------------------------- */

static bauta_status stack_check(const bt_blueprint *config,
                                const bt_stack_print *stack, const char *path,
                                bauta_error *err)
{
    if (!stack->layers)
        return BAUTA_OK;
    if (stack->ffn == 0)
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
    if (config->positions != BT_POSITIONS_ROTARY &&
        config->head_dim * stack->heads != config->width)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: %zu heads do not divide a width of %zu", path,
                       stack->heads, config->width);
    if (config->positions == BT_POSITIONS_ROTARY && config->head_dim % 2)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: rotary positions need heads of an even number of "
                       "columns, not %zu",
                       path, config->head_dim);
    return BAUTA_OK;
}

/* Check the numbers that the arithmetic divides by or takes roots and
 * logarithms of. */
static bauta_status numbers_check(const bt_blueprint *config, const char *path,
                                  bauta_error *err)
{
    const bt_rope *rope = &config->rope;
    if (!(config->epsilon >= 0 && isfinite(config->epsilon)))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: an epsilon of %g for norms", path,
                       (double)config->epsilon);
    if (config->positions != BT_POSITIONS_ROTARY)
        return BAUTA_OK;
    if (!(rope->theta > 0 && isfinite(rope->theta)))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED, "%s: a rope_theta of %g",
                       path, rope->theta);
    if (rope->scaled &&
        !(rope->factor > 0 && rope->low > 0 && rope->high > rope->low))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: rope scaling by %g between %g and %g", path,
                       rope->factor, rope->low, rope->high);
    return BAUTA_OK;
}

/* Bound the memory that a config can make us allocate before its weights are
 * seen. */
static bauta_status config_check(const bt_blueprint *config, const char *path,
                                 bauta_error *err)
{
    if (config->encoder.layers > 4096 || config->decoder.layers > 4096)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED, "%s: more than 4096 layers",
                       path);
    if (config->positions == BT_POSITIONS_SINUSOIDAL &&
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
static bauta_status config_read(bt_folder *store, bauta_error *err)
{
    bt_blueprint config = { 0 };
    store->family = bt_family_find(store->config);
    if (store->family)
        store->family->read(&config, store->config);
    bauta_status status = bt_config_status(store->config, err);
    if (!status)
        status = config_check(&config, bt_config_path(store->config), err);
    if (!status)
        status = bt_model_create(&store->model, &config, err);
    return status;
}

/* ---- binding ----------------------------------------------------------- */

typedef struct binding {
    bt_folder *store;
    const char *path;
    bool copies;   /* copy all tensors, not only those to be converted */
    size_t floats; /* of memory in use so far */
    bool *bound;   /* (stored tensors) whether the model uses it */
    bauta_status status;
    bauta_error *err;
} binding;

const bt_stored *bt_folder_stored(const bt_folder *store, const char *name)
{
    const bt_stored *stored = bt_weights_find(store->weights, name);
    const char *dot = strchr(name, '.');
    if (!stored && dot)
        stored = bt_weights_find(store->weights, dot + 1);
    return stored;
}

/* The index of a stored tensor; they are sorted by name. */
static size_t stored_index(const bt_weights *weights, const bt_stored *stored)
{
    size_t lo = 0, hi = bt_weights_count(weights);
    while (hi - lo > 1) {
        size_t middle = lo + (hi - lo) / 2;
        if (strcmp(bt_weights_at(weights, middle)->name, stored->name) <= 0)
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

static bool shape_fits(const bt_stored *stored, const bt_tensor *tensor,
                       int rank)
{
    if (rank == 1)
        return stored->rank == 1 && stored->shape[0] == tensor->columns;
    return stored->rank == 2 && stored->shape[0] == tensor->rows &&
           stored->shape[1] == tensor->columns;
}

/* The stored tensor of a parameter, or NULL with an error. */
static const bt_stored *stored_for(binding *b, const char *name,
                                   const bt_tensor *tensor, int rank)
{
    const bt_stored *stored = bt_folder_stored(b->store, name);
    char shape[96], wanted[48];
    if (!stored) {
        b->status = bt_fail(b->err, BAUTA_ERR_IO, "%s: tensor %s is missing",
                            b->path, name);
        return NULL;
    }
    if (!shape_fits(stored, tensor, rank)) {
        const size_t full[] = { tensor->rows, tensor->columns };
        shape_text(shape, sizeof(shape), stored->shape, stored->rank);
        shape_text(wanted, sizeof(wanted), rank == 1 ? full + 1 : full,
                   (unsigned)rank);
        b->status = bt_fail(b->err, BAUTA_ERR_IO, "%s: tensor %s is %s, not %s",
                            b->path, name, shape, wanted);
        return NULL;
    }
    if (stored->dtype != BT_F32 && stored->dtype != BT_F16 &&
        stored->dtype != BT_BF16) {
        b->status = bt_fail(b->err, BAUTA_ERR_UNSUPPORTED,
                            "%s: tensor %s has the type %s", b->path, name,
                            bt_dtype_name(stored->dtype));
        return NULL;
    }
    return stored;
}

/* Aligned float32 can be used in the mapped file. */
static bool stays_mapped(const binding *b, const bt_stored *stored)
{
    return !b->copies && stored->dtype == BT_F32 &&
           (uintptr_t)stored->data % sizeof(float) == 0;
}

static void count_name(void *user, const char *name, bt_tensor *tensor,
                       int rank)
{
    binding *b = user;
    const bt_stored *stored =
        b->status ? NULL : stored_for(b, name, tensor, rank);
    if (!stored)
        return;
    b->bound[stored_index(b->store->weights, stored)] = true;
    b->store->parameters += tensor->rows * tensor->columns;
    if (!stays_mapped(b, stored))
        b->floats += tensor->rows * tensor->columns;
}

/* Give a parameter the gradient that has the offset of its data. */
static void grad_bind(const binding *b, bt_tensor *tensor)
{
    const bt_model *model = b->store->model;
    bool fixed =
        (model->print.head_bias_fixed && tensor == &model->head.bias) ||
        (model->encoder.positions_stored &&
         tensor == &model->encoder.positions) ||
        (model->decoder.positions_stored &&
         tensor == &model->decoder.positions);
    if (b->store->grads && !fixed) {
        tensor->grad = b->store->grads + b->floats;
        tensor->wants = true;
    }
}

static void bind_name(void *user, const char *name, bt_tensor *tensor, int rank)
{
    binding *b = user;
    const bt_stored *stored = stored_for(b, name, tensor, rank);
    size_t count = tensor->rows * tensor->columns;
    if (stays_mapped(b, stored)) {
        tensor->data = (float *)(uintptr_t)stored->data; // never written
        return;
    }
    tensor->data = b->store->memory + b->floats;
    bt_convert_f32(tensor->data, stored->data, stored->dtype, count);
    grad_bind(b, tensor);
    b->floats += count;
}

/* Check that all tensors fit, and count the memory that they take. */
static bauta_status weights_count(binding *b)
{
    b->bound = bt_alloc_zero(bt_weights_count(b->store->weights), 1);
    if (!b->bound)
        return bt_fail_memory(b->err, "the weights of a model",
                              bt_weights_count(b->store->weights));
    bt_folder_names(b->store, &(bt_names){ count_name, b });
    if (!b->status)
        b->status = bt_surplus_check(b->store, b->bound, b->path, b->err);
    bt_free(b->bound);
    return b->status;
}

static bauta_status memory_alloc(bt_folder *store, size_t floats, bool trained,
                                 bauta_error *err)
{
    size_t bytes = bt_size_mul(floats, sizeof(float));
    store->memory = bt_alloc(bytes);
    if (trained && store->memory)
        store->grads = bt_alloc_zero(floats, sizeof(float));
    if (!store->memory || (trained && !store->grads))
        return bt_fail_memory(err, "the weights of a model", bytes);
    store->floats = floats;
    return BAUTA_OK;
}

static bauta_status weights_bind(bt_folder *store, const char *path,
                                 bt_load load, bauta_error *err)
{
    binding b = { .store = store,
                  .path = bt_path_tail(path),
                  .copies = load == BT_LOAD_TRAINED,
                  .err = err };
    bt_surplus_adopt(store, b.path);
    bauta_status status = weights_count(&b);
    if (status)
        return status;
    status = memory_alloc(store, b.floats, load == BT_LOAD_TRAINED, err);
    if (status)
        return status;
    b.floats = 0;
    bt_folder_names(store, &(bt_names){ bind_name, &b });
    bt_model_split(store->model);
    return BAUTA_OK;
}

/* ---- loading ----------------------------------------------------------- */

bauta_status bt_folder_load(bt_folder **out, const char *path, bt_load load,
                            bauta_error *err)
{
    *out = NULL;
    bt_folder *store = bt_alloc_zero(1, sizeof(*store));
    if (!store)
        return bt_fail_memory(err, "a model", sizeof(*store));
    bauta_status status = bt_config_load(&store->config, path, err);
    if (!status)
        status = config_read(store, err);
    if (!status)
        status = bt_weights_open(&store->weights, path, err);
    if (!status)
        status = weights_bind(store, path, load, err);
    if (load == BT_LOAD_TRAINED) {
        bt_weights_free(store->weights); // everything was copied
        store->weights = NULL;
    }
    if (status)
        bt_folder_free(store);
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
    b->floats =
        bt_size_add(b->floats, bt_size_mul(tensor->rows, tensor->columns));
}

static void bind_new(void *user, const char *name, bt_tensor *tensor, int rank)
{
    (void)name;
    (void)rank;
    binding *b = user;
    tensor->data = b->store->memory + b->floats;
    grad_bind(b, tensor);
    b->floats += tensor->rows * tensor->columns;
}

static bauta_status weights_create(bt_folder *store, uint64_t seed,
                                   bauta_error *err)
{
    binding b = { .store = store };
    bt_folder_names(store, &(bt_names){ count_new, &b });
    bauta_status status = memory_alloc(store, b.floats, true, err);
    if (status)
        return status;
    store->parameters = b.floats;
    b.floats = 0;
    bt_folder_names(store, &(bt_names){ bind_new, &b });
    bt_model_split(store->model);
    bt_init(store, seed);
    return BAUTA_OK;
}

bauta_status bt_folder_create(bt_folder **out, const char *config, size_t size,
                              uint64_t seed, bauta_error *err)
{
    *out = NULL;
    bt_folder *store = bt_alloc_zero(1, sizeof(*store));
    if (!store)
        return bt_fail_memory(err, "a model", sizeof(*store));
    bauta_status status = bt_config_parse(&store->config, config, size, err);
    if (!status)
        status = config_read(store, err);
    if (!status)
        status = weights_create(store, seed, err);
    if (status)
        bt_folder_free(store);
    else
        *out = store;
    return status;
}

void bt_folder_free(bt_folder *store)
{
    if (!store)
        return;
    bt_config_free(store->config);
    bt_model_free(store->model);
    bt_weights_free(store->weights);
    bt_free(store->memory);
    bt_free(store->grads);
    bt_free(store->compacts);
    bt_free(store->panels);
    bt_free(store);
}

void bt_folder_names(bt_folder *store, const bt_names *names)
{
    store->family->names(store->model, names);
}
