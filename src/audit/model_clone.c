/* SPDX-License-Identifier: Apache-2.0 */
/* model_clone.c - a shallow copy of a model with replaceable parts. */
#include "audit/model_clone.h"

#include "backend/cpu/kernels/packed_weight.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- create and release ------------------------------------------------ */

/* A clone has no gradients until they are asked for. */
static void clear_gradient(void *user, const char *name, bt_tensor *tensor,
                           int rank)
{
    (void)user;
    (void)name;
    (void)rank;
    tensor->grad = NULL;
    tensor->requires_grad = false;
}

/* The slices of a fused projection are not in the list of names. */
static void clear_projection_gradients(bt_attention_params *heads)
{
    bt_linear_params *parts[] = { &heads->q, &heads->k, &heads->v };
    for (size_t i = 0; i < BT_LEN(parts); i++) {
        clear_gradient(NULL, NULL, &parts[i]->w, 0);
        clear_gradient(NULL, NULL, &parts[i]->bias, 0);
    }
}

static bool stack_copy(bt_layer **out, bt_stack *stack,
                       const bt_stack_config *print)
{
    if (!stack->config)
        return true;
    size_t bytes = bt_size_mul(print->layers, sizeof(**out));
    *out = bt_alloc(bytes);
    if (!*out)
        return false;
    if (bytes)
        memcpy(*out, stack->layers, bytes);
    stack->layers = *out;
    stack->config = print;
    return true;
}

bauta_status bt_model_clone_init(bt_model_clone *clone,
                                 const bauta_model *model, bauta_error *err)
{
    *clone = (bt_model_clone){ .handle = *model,
                               .folder = *model->store,
                               .model = *model->store->model,
                               .original = model->store->model };
    clone->handle.store = &clone->folder;
    clone->handle.trainable = false;
    clone->folder.model = &clone->model;
    if (!stack_copy(&clone->layers[0], &clone->model.encoder,
                    &clone->model.config.encoder) ||
        !stack_copy(&clone->layers[1], &clone->model.decoder,
                    &clone->model.config.decoder)) {
        bt_model_clone_release(clone);
        return bt_fail_memory(err, "a clone of the model", sizeof(bt_layer));
    }
    bt_model_store_visit(&clone->folder,
                         &(bt_tensor_visitor){ clear_gradient, NULL });
    for (size_t s = 0; s < 2; s++) {
        const bt_stack_config *print =
            s ? &clone->model.config.decoder : &clone->model.config.encoder;
        for (size_t l = 0; clone->layers[s] && l < print->layers; l++)
            clear_projection_gradients(&clone->layers[s][l].self);
    }
    return BAUTA_OK;
}

void bt_model_clone_release(bt_model_clone *clone)
{
    for (size_t i = 0; i < clone->owned_count; i++)
        bt_free(clone->owned[i]);
    bt_free(clone->layers[0]);
    bt_free(clone->layers[1]);
    *clone = (bt_model_clone){ .owned_count = 0 };
}

void bt_model_clone_set_depth(bt_model_clone *clone, size_t encoder,
                              size_t decoder)
{
    clone->model.config.encoder.layers = encoder;
    clone->model.config.decoder.layers = decoder;
}

/* An array of zeros that lives as long as the clone. */
static float *owned_zeros(bt_model_clone *clone, size_t rows, size_t columns,
                          bauta_error *err)
{
    assert(clone->owned_count < BT_MODEL_CLONE_OWNED);
    size_t count = bt_size_mul(rows, columns);
    float *numbers = bt_alloc_zero(count, sizeof(*numbers));
    if (numbers)
        clone->owned[clone->owned_count++] = numbers;
    else
        bt_fail_memory(err, "a clone of the model", count);
    return numbers;
}

/* Give a tensor data of its own, all 0; false without memory. */
static bool replace_data(bt_model_clone *clone, bt_tensor *tensor,
                         bauta_error *err)
{
    float *numbers = owned_zeros(clone, tensor->rows, tensor->columns, err);
    if (!numbers)
        return false;
    tensor->data = numbers;
    tensor->packed = NULL;
    tensor->stride = tensor->columns;
    return true;
}

/* ---- embedding and output head ----------------------------------------- */

bauta_status bt_model_clone_replace_embedding(bt_model_clone *clone,
                                              size_t rows, bool trainable,
                                              bauta_error *err)
{
    bt_tensor *tokens = &clone->model.tokens;
    if (clone->model.config.tied)
        clone->model.head.w = *tokens;
    clone->model.config.tied = false;
    clone->model.config.vocab_size = rows;
    clone->model.config.padding_token = BT_IGNORE_INDEX;
    tokens->rows = rows;
    if (!replace_data(clone, tokens, err))
        return BAUTA_ERR_NOMEM;
    if (!trainable)
        return BAUTA_OK;
    tokens->grad = owned_zeros(clone, rows, tokens->columns, err);
    tokens->requires_grad = true;
    clone->handle.trainable = true;
    return tokens->grad ? BAUTA_OK : BAUTA_ERR_NOMEM;
}

void bt_embedding_read(const bt_model *model, uint32_t id, float *to)
{
    const bt_tensor *from = &model->tokens;
    if (from->packed)
        bt_packed_weight_row(to, from->packed, id, 1.0f);
    else
        memcpy(to, from->data + id * from->stride,
               from->columns * sizeof(float));
}

void bt_model_clone_copy_embedding(bt_model_clone *clone, size_t row,
                                   uint32_t id)
{
    bt_embedding_read(clone->original, id,
                      bt_model_clone_embedding(clone, row));
}

void bt_model_clone_poison_embedding(bt_model_clone *clone, size_t row)
{
    for (size_t c = 0; c < clone->model.tokens.columns; c++)
        bt_model_clone_embedding(clone, row)[c] = NAN;
}

bauta_status bt_model_clone_poison_output_head(bt_model_clone *clone,
                                               bauta_error *err)
{
    bt_tensor *w = &clone->model.head.w;
    *w = (bt_tensor){ .rows = 2, .columns = clone->model.config.width };
    clone->model.head.bias = (bt_tensor){ .rows = 0 };
    if (!replace_data(clone, w, err))
        return BAUTA_ERR_NOMEM;
    for (size_t i = 0; i < w->rows * w->columns; i++)
        w->data[i] = NAN;
    return BAUTA_OK;
}

/* ---- attention --------------------------------------------------------- */

static bt_attention_params *attention_of(const bt_model_clone *clone,
                                         bauta_attention_kind at, size_t layer)
{
    bt_layer *l = &clone->layers[at != BAUTA_ATTENTION_ENCODER][layer];
    return at == BAUTA_ATTENTION_CROSS ? &l->cross : &l->self;
}

static size_t heads_of(const bt_model_clone *clone, bauta_attention_kind at)
{
    return at == BAUTA_ATTENTION_ENCODER ? clone->model.config.encoder.heads
                                         : clone->model.config.decoder.heads;
}

/* Element (input, output) of a projection. */
static float *element(const bt_model_clone *clone, const bt_tensor *w,
                      size_t input, size_t output)
{
    return clone->model.config.transposed
               ? w->data + input * w->stride + output
               : w->data + output * w->stride + input;
}

/* Ablated layers share one array of zeros. */
static bauta_status zero_weights(bt_model_clone *clone, bt_tensor *w,
                                 bauta_error *err)
{
    size_t count = w->rows * w->columns;
    if (clone->zero_count < count) {
        clone->zeros = owned_zeros(clone, count, 1, err);
        clone->zero_count = clone->zeros ? count : 0;
    }
    w->data = clone->zeros;
    w->packed = NULL;
    w->stride = w->columns;
    return w->data ? BAUTA_OK : BAUTA_ERR_NOMEM;
}

bauta_status bt_model_clone_ablate_heads(bt_model_clone *clone,
                                         bauta_attention_kind at, size_t layer,
                                         size_t keep, bauta_error *err)
{
    bt_tensor *out = &attention_of(clone, at, layer)->out.w;
    const bt_tensor from = *out;
    size_t dim = clone->model.config.head_dim,
           width = clone->model.config.width;
    if (keep >= heads_of(clone, at))
        return zero_weights(clone, out, err);
    if (!from.data)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "the heads of a packed model cannot be separated");
    if (!replace_data(clone, out, err))
        return BAUTA_ERR_NOMEM;
    for (size_t i = keep * dim; i < (keep + 1) * dim; i++)
        for (size_t o = 0; o < width; o++)
            *element(clone, out, i, o) = *element(clone, &from, i, o);
    return BAUTA_OK;
}

/* Pseudo-random numbers of magnitude 0.1 to 1.1. */
static void randomize(const bt_tensor *w)
{
    uint32_t state = 12345;
    for (size_t i = 0; i < w->rows * w->columns; i++) {
        state = state * 1664525 + 1013904223;
        float part = (float)(state >> 8) * 0x1p-24f;
        w->data[i] = state & 128 ? 0.1f + part : -0.1f - part;
    }
}

/* With queries of 0 all scores are equal. */
bauta_status bt_model_clone_uniform_attention(bt_model_clone *clone,
                                              bauta_attention_kind at,
                                              size_t layer, bauta_error *err)
{
    bt_attention_params *heads = attention_of(clone, at, layer);
    if (!replace_data(clone, &heads->q.w, err) ||
        !replace_data(clone, &heads->v.w, err) ||
        !replace_data(clone, &heads->out.w, err) ||
        (heads->q.bias.rows && !replace_data(clone, &heads->q.bias, err)))
        return BAUTA_ERR_NOMEM;
    randomize(&heads->v.w);
    randomize(&heads->out.w);
    return BAUTA_OK;
}

/* ---- gradients --------------------------------------------------------- */

/* The elements of all parameters so far, and where their gradients go. */
typedef struct gradient_layout {
    float *gradients; /* NULL: only count */
    size_t count;
} gradient_layout;

static void assign_gradient(void *user, const char *name, bt_tensor *tensor,
                            int rank)
{
    gradient_layout *l = user;
    (void)name;
    (void)rank;
    if (l->gradients) {
        tensor->grad = l->gradients + l->count;
        tensor->requires_grad = true;
    }
    l->count += tensor->rows * tensor->columns;
}

bauta_status bt_model_clone_enable_gradients(bt_model_clone *clone,
                                             float **gradients, size_t *count,
                                             bauta_error *err)
{
    gradient_layout l = { NULL, 0 };
    bt_model_store_visit(&clone->folder,
                         &(bt_tensor_visitor){ assign_gradient, &l });
    *count = l.count;
    *gradients = l.gradients = owned_zeros(clone, l.count, 1, err);
    if (!l.gradients)
        return BAUTA_ERR_NOMEM;
    l.count = 0;
    bt_model_store_visit(&clone->folder,
                         &(bt_tensor_visitor){ assign_gradient, &l });
    bt_model_split_qkv(&clone->model);
    clone->handle.trainable = true;
    return BAUTA_OK;
}
