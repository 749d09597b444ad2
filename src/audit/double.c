/* SPDX-License-Identifier: Apache-2.0 */
/* double.c - a model's double. */
#include "audit/double.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "kernels/compact.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- made and released ------------------------------------------------- */

/* Nothing is learned that is not asked for. */
static void plain(void *user, const char *name, bt_tensor *tensor, int rank)
{
    (void)user;
    (void)name;
    (void)rank;
    tensor->grad = NULL;
    tensor->wants = false;
}

static void parts_plain(bt_heads *heads)
{
    bt_dense *parts[] = { &heads->q, &heads->k, &heads->v };
    for (size_t i = 0; i < BT_LEN(parts); i++) {
        plain(NULL, NULL, &parts[i]->w, 0);
        plain(NULL, NULL, &parts[i]->bias, 0);
    }
}

static bool stack_copy(bt_layer **out, bt_stack *stack,
                       const bt_stack_print *print)
{
    if (!stack->print)
        return true;
    size_t bytes = bt_size_mul(print->layers, sizeof(**out));
    *out = bt_alloc(bytes);
    if (!*out)
        return false;
    if (bytes)
        memcpy(*out, stack->layers, bytes);
    stack->layers = *out;
    stack->print = print;
    return true;
}

bauta_status bt_double_init(bt_double *d, const bauta_model *model,
                            bauta_error *err)
{
    *d = (bt_double){ .handle = *model,
                      .folder = *model->folder,
                      .model = *model->folder->model,
                      .original = model->folder->model };
    d->handle.folder = &d->folder;
    d->handle.trainable = false;
    d->folder.model = &d->model;
    if (!stack_copy(&d->layers[0], &d->model.encoder,
                    &d->model.print.encoder) ||
        !stack_copy(&d->layers[1], &d->model.decoder,
                    &d->model.print.decoder)) {
        bt_double_release(d);
        return bt_fail_memory(err, "a model's double", sizeof(bt_layer));
    }
    bt_folder_names(&d->folder, &(bt_names){ plain, NULL });
    for (size_t s = 0; s < 2; s++) {
        const bt_stack_print *print =
            s ? &d->model.print.decoder : &d->model.print.encoder;
        for (size_t l = 0; d->layers[s] && l < print->layers; l++)
            parts_plain(&d->layers[s][l].self);
    }
    return BAUTA_OK;
}

void bt_double_release(bt_double *d)
{
    for (size_t i = 0; i < d->owned_count; i++)
        bt_free(d->owned[i]);
    bt_free(d->layers[0]);
    bt_free(d->layers[1]);
    *d = (bt_double){ .owned_count = 0 };
}

void bt_double_cut(bt_double *d, size_t encoder, size_t decoder)
{
    d->model.print.encoder.layers = encoder;
    d->model.print.decoder.layers = decoder;
}

/* Numbers that live as long as the double. */
static float *own(bt_double *d, size_t rows, size_t columns, bauta_error *err)
{
    assert(d->owned_count < BT_DOUBLE_OWNED);
    size_t count = bt_size_mul(rows, columns);
    float *numbers = bt_alloc_zero(count, sizeof(*numbers));
    if (numbers)
        d->owned[d->owned_count++] = numbers;
    else
        bt_fail_memory(err, "a model's double", count);
    return numbers;
}

/* A tensor that has data of its own, all 0; false without memory. */
static bool renew(bt_double *d, bt_tensor *tensor, bauta_error *err)
{
    float *numbers = own(d, tensor->rows, tensor->columns, err);
    if (!numbers)
        return false;
    tensor->data = numbers;
    tensor->compact = NULL;
    tensor->stride = tensor->columns;
    return true;
}

/* ---- the table and the head -------------------------------------------- */

bauta_status bt_double_table(bt_double *d, size_t rows, bool learns,
                             bauta_error *err)
{
    bt_tensor *tokens = &d->model.tokens;
    if (d->model.print.tied)
        d->model.head.w = *tokens;
    d->model.print.tied = false;
    d->model.print.vocab = rows;
    d->model.print.frozen = BT_IGNORE;
    tokens->rows = rows;
    if (!renew(d, tokens, err))
        return BAUTA_ERR_NOMEM;
    if (!learns)
        return BAUTA_OK;
    tokens->grad = own(d, rows, tokens->columns, err);
    tokens->wants = true;
    d->handle.trainable = true;
    return tokens->grad ? BAUTA_OK : BAUTA_ERR_NOMEM;
}

void bt_embedding_read(const bt_model *model, uint32_t id, float *to)
{
    const bt_tensor *from = &model->tokens;
    if (from->compact)
        bt_compact_row(to, from->compact, id, 1.0f);
    else
        memcpy(to, from->data + id * from->stride,
               from->columns * sizeof(float));
}

void bt_double_copy(bt_double *d, size_t row, uint32_t id)
{
    bt_embedding_read(d->original, id, bt_double_row(d, row));
}

void bt_double_poison(bt_double *d, size_t row)
{
    for (size_t c = 0; c < d->model.tokens.columns; c++)
        bt_double_row(d, row)[c] = NAN;
}

bauta_status bt_double_poison_head(bt_double *d, bauta_error *err)
{
    bt_tensor *w = &d->model.head.w;
    *w = (bt_tensor){ .rows = 2, .columns = d->model.print.width };
    d->model.head.bias = (bt_tensor){ .rows = 0 };
    if (!renew(d, w, err))
        return BAUTA_ERR_NOMEM;
    for (size_t i = 0; i < w->rows * w->columns; i++)
        w->data[i] = NAN;
    return BAUTA_OK;
}

/* ---- attention --------------------------------------------------------- */

/* Element (input, output) of a dense part. */
static float *element(const bt_double *d, const bt_tensor *w, size_t input,
                      size_t output)
{
    return d->model.print.turned ? w->data + input * w->stride + output
                                 : w->data + output * w->stride + input;
}

/* Layers that are silent share their zeros. */
static bauta_status silence_all(bt_double *d, bt_tensor *w, bauta_error *err)
{
    size_t count = w->rows * w->columns;
    if (d->zero_count < count) {
        d->zeros = own(d, count, 1, err);
        d->zero_count = d->zeros ? count : 0;
    }
    w->data = d->zeros;
    w->compact = NULL;
    w->stride = w->columns;
    return w->data ? BAUTA_OK : BAUTA_ERR_NOMEM;
}

bauta_status bt_double_silence(bt_double *d, bt_heads *heads,
                               const bt_stack_print *stack, size_t but,
                               bauta_error *err)
{
    const bt_tensor from = heads->out.w;
    size_t dim = d->model.print.head_dim, width = d->model.print.width;
    if (but >= stack->heads)
        return silence_all(d, &heads->out.w, err);
    if (!from.data)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "the heads of a compressed model cannot be parted");
    if (!renew(d, &heads->out.w, err))
        return BAUTA_ERR_NOMEM;
    for (size_t i = but * dim; i < (but + 1) * dim; i++)
        for (size_t o = 0; o < width; o++)
            *element(d, &heads->out.w, i, o) = *element(d, &from, i, o);
    return BAUTA_OK;
}

/* Numbers of all sizes from -2 to 2, none of them 0. */
static void scatter(const bt_tensor *w)
{
    uint32_t state = 12345;
    for (size_t i = 0; i < w->rows * w->columns; i++) {
        state = state * 1664525 + 1013904223;
        float part = (float)(state >> 8) * 0x1p-24f;
        w->data[i] = state & 128 ? 0.1f + part : -0.1f - part;
    }
}

bauta_status bt_double_even(bt_double *d, bt_heads *heads, bauta_error *err)
{
    if (!renew(d, &heads->q.w, err) || !renew(d, &heads->v.w, err) ||
        !renew(d, &heads->out.w, err) ||
        (heads->q.bias.rows && !renew(d, &heads->q.bias, err)))
        return BAUTA_ERR_NOMEM;
    scatter(&heads->v.w);
    scatter(&heads->out.w);
    return BAUTA_OK;
}

/* ---- learning ---------------------------------------------------------- */

typedef struct learning {
    const bt_model *model;
    float *gradients; /* NULL: only counted */
    size_t count;
} learning;

static void learn(void *user, const char *name, bt_tensor *tensor, int rank)
{
    learning *l = user;
    (void)name;
    (void)rank;
    if (l->gradients) {
        tensor->grad = l->gradients + l->count;
        tensor->wants = true;
    }
    l->count += tensor->rows * tensor->columns;
}

bauta_status bt_double_learn(bt_double *d, float **gradients, size_t *count,
                             bauta_error *err)
{
    learning l = { .model = &d->model };
    bt_folder_names(&d->folder, &(bt_names){ learn, &l });
    *count = l.count;
    *gradients = l.gradients = own(d, l.count, 1, err);
    if (!l.gradients)
        return BAUTA_ERR_NOMEM;
    l.count = 0;
    bt_folder_names(&d->folder, &(bt_names){ learn, &l });
    bt_model_split(&d->model);
    d->handle.trainable = true;
    return BAUTA_OK;
}
