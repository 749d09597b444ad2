/* SPDX-License-Identifier: Apache-2.0 */
/* folder.c - config and weights, bound together by names. */
#include "model/folder.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "formats/weights.h"
#include "model/init.h"
#include "model/surplus.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the blueprint ----------------------------------------------------- */

static bauta_status stack_check(const bt_blueprint *print,
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
    if (print->head_dim == 0 || print->head_dim > 256)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: heads of %zu columns; 1 to 256 are supported", path,
                       print->head_dim);
    if (print->positions != BT_POSITIONS_ROTARY &&
        print->head_dim * stack->heads != print->width)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: %zu heads do not divide a width of %zu", path,
                       stack->heads, print->width);
    if (print->positions == BT_POSITIONS_ROTARY && print->head_dim % 2)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: rotary positions need heads of an even number of "
                       "columns, not %zu",
                       path, print->head_dim);
    return BAUTA_OK;
}

/* Numbers that the arithmetic divides by or takes roots and logarithms of. */
static bauta_status numbers_check(const bt_blueprint *print, const char *path,
                                  bauta_error *err)
{
    const bt_rope *rope = &print->rope;
    if (!(print->epsilon >= 0 && isfinite(print->epsilon)))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: an epsilon of %g for norms", path,
                       (double)print->epsilon);
    if (print->positions != BT_POSITIONS_ROTARY)
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

/* A config may claim any size; weights that small cannot fill it, so nothing
 * is allocated by its word alone beyond this many numbers of layers. */
static bauta_status print_check(const bt_blueprint *print, const char *path,
                                bauta_error *err)
{
    if (print->encoder.layers > 4096 || print->decoder.layers > 4096)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED, "%s: more than 4096 layers",
                       path);
    if (print->positions == BT_POSITIONS_SINUSOIDAL &&
        bt_size_mul(print->max_positions, print->width) > (size_t)1 << 22)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: %zu sinusoidal positions of %zu columns are too "
                       "many",
                       path, print->max_positions, print->width);
    bauta_status status = numbers_check(print, path, err);
    if (!status)
        status = stack_check(print, &print->encoder, path, err);
    return status ? status : stack_check(print, &print->decoder, path, err);
}

/* The model that the config describes. */
static bauta_status config_read(bt_folder *folder, bauta_error *err)
{
    bt_blueprint print = { 0 };
    folder->family = bt_family_find(folder->config);
    if (folder->family)
        folder->family->read(&print, folder->config);
    bauta_status status = bt_config_status(folder->config, err);
    if (!status)
        status = print_check(&print, bt_config_path(folder->config), err);
    if (!status)
        status = bt_model_create(&folder->model, &print, err);
    return status;
}

/* ---- binding ----------------------------------------------------------- */

typedef struct binding {
    bt_folder *folder;
    const char *path;
    bool copies;   /* every tensor, not only those that must be converted */
    size_t floats; /* of memory that is or will be taken */
    bool *bound;   /* (tensors of the file) that have a place */
    bauta_status status;
    bauta_error *err;
} binding;

const bt_stored *bt_folder_stored(const bt_folder *folder, const char *name)
{
    const bt_stored *stored = bt_weights_find(folder->weights, name);
    const char *dot = strchr(name, '.');
    if (!stored && dot)
        stored = bt_weights_find(folder->weights, dot + 1);
    return stored;
}

/* Which tensor of the weights this is; they are in the order of names. */
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

/* "3 x 4", "12", or what a shape of rank 0 is. */
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

/* The stored tensor of a parameter, or NULL and a sentence. */
static const bt_stored *stored_for(binding *b, const char *name,
                                   const bt_tensor *tensor, int rank)
{
    const bt_stored *stored = bt_folder_stored(b->folder, name);
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

/* Float32 that lies as it must can stay where it is. */
static bool stays(const binding *b, const bt_stored *stored)
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
    b->bound[stored_index(b->folder->weights, stored)] = true;
    b->folder->parameters += tensor->rows * tensor->columns;
    if (!stays(b, stored))
        b->floats += tensor->rows * tensor->columns;
}

/* Where the gradient lies of a parameter whose data lies at `floats`. */
static void grad_bind(const binding *b, bt_tensor *tensor)
{
    const bt_model *model = b->folder->model;
    bool fixed =
        (model->print.head_bias_fixed && tensor == &model->head.bias) ||
        (model->encoder.positions_stored &&
         tensor == &model->encoder.positions) ||
        (model->decoder.positions_stored &&
         tensor == &model->decoder.positions);
    if (b->folder->grads && !fixed) {
        tensor->grad = b->folder->grads + b->floats;
        tensor->wants = true;
    }
}

static void bind_name(void *user, const char *name, bt_tensor *tensor, int rank)
{
    binding *b = user;
    const bt_stored *stored = stored_for(b, name, tensor, rank);
    size_t count = tensor->rows * tensor->columns;
    if (stays(b, stored)) {
        tensor->data = (float *)(uintptr_t)stored->data; // never written
        return;
    }
    tensor->data = b->folder->memory + b->floats;
    bt_convert_f32(tensor->data, stored->data, stored->dtype, count);
    grad_bind(b, tensor);
    b->floats += count;
}

/* See that all fits, and how much memory it takes. */
static bauta_status weights_count(binding *b)
{
    b->bound = bt_alloc_zero(bt_weights_count(b->folder->weights), 1);
    if (!b->bound)
        return bt_fail_memory(b->err, "the weights of a model",
                              bt_weights_count(b->folder->weights));
    bt_folder_names(b->folder, &(bt_names){ count_name, b });
    if (!b->status)
        b->status = bt_surplus_check(b->folder, b->bound, b->path, b->err);
    bt_free(b->bound);
    return b->status;
}

static bauta_status memory_take(bt_folder *folder, size_t floats, bool trained,
                                bauta_error *err)
{
    size_t bytes = bt_size_mul(floats, sizeof(float));
    folder->memory = bt_alloc(bytes);
    if (trained && folder->memory)
        folder->grads = bt_alloc_zero(floats, sizeof(float));
    if (!folder->memory || (trained && !folder->grads))
        return bt_fail_memory(err, "the weights of a model", bytes);
    folder->floats = floats;
    return BAUTA_OK;
}

static bauta_status weights_bind(bt_folder *folder, const char *path,
                                 bt_load load, bauta_error *err)
{
    binding b = { .folder = folder,
                  .path = bt_path_tail(path),
                  .copies = load == BT_LOAD_TRAINED,
                  .err = err };
    bt_surplus_adopt(folder, b.path);
    bauta_status status = weights_count(&b);
    if (status)
        return status;
    status = memory_take(folder, b.floats, load == BT_LOAD_TRAINED, err);
    if (status)
        return status;
    b.floats = 0;
    bt_folder_names(folder, &(bt_names){ bind_name, &b });
    bt_model_split(folder->model);
    return BAUTA_OK;
}

/* ---- the folder -------------------------------------------------------- */

bauta_status bt_folder_load(bt_folder **out, const char *path, bt_load load,
                            bauta_error *err)
{
    *out = NULL;
    bt_folder *folder = bt_alloc_zero(1, sizeof(*folder));
    if (!folder)
        return bt_fail_memory(err, "a model", sizeof(*folder));
    bauta_status status = bt_config_load(&folder->config, path, err);
    if (!status)
        status = config_read(folder, err);
    if (!status)
        status = bt_weights_open(&folder->weights, path, err);
    if (!status)
        status = weights_bind(folder, path, load, err);
    if (load == BT_LOAD_TRAINED) {
        bt_weights_free(folder->weights); // all is copied
        folder->weights = NULL;
    }
    if (status)
        bt_folder_free(folder);
    else
        *out = folder;
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
    tensor->data = b->folder->memory + b->floats;
    grad_bind(b, tensor);
    b->floats += tensor->rows * tensor->columns;
}

static bauta_status weights_make(bt_folder *folder, uint64_t seed,
                                 bauta_error *err)
{
    binding b = { .folder = folder };
    bt_folder_names(folder, &(bt_names){ count_new, &b });
    bauta_status status = memory_take(folder, b.floats, true, err);
    if (status)
        return status;
    folder->parameters = b.floats;
    b.floats = 0;
    bt_folder_names(folder, &(bt_names){ bind_new, &b });
    bt_model_split(folder->model);
    bt_init(folder, seed);
    return BAUTA_OK;
}

bauta_status bt_folder_create(bt_folder **out, const char *config, size_t size,
                              uint64_t seed, bauta_error *err)
{
    *out = NULL;
    bt_folder *folder = bt_alloc_zero(1, sizeof(*folder));
    if (!folder)
        return bt_fail_memory(err, "a model", sizeof(*folder));
    bauta_status status = bt_config_parse(&folder->config, config, size, err);
    if (!status)
        status = config_read(folder, err);
    if (!status)
        status = weights_make(folder, seed, err);
    if (status)
        bt_folder_free(folder);
    else
        *out = folder;
    return status;
}

void bt_folder_free(bt_folder *folder)
{
    if (!folder)
        return;
    bt_config_free(folder->config);
    bt_model_free(folder->model);
    bt_weights_free(folder->weights);
    bt_free(folder->memory);
    bt_free(folder->grads);
    bt_free(folder->compacts);
    bt_free(folder->panels);
    bt_free(folder);
}

void bt_folder_names(bt_folder *folder, const bt_names *names)
{
    folder->family->names(folder->model, names);
}
