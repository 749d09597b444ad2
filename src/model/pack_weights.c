/* SPDX-License-Identifier: Apache-2.0 */
/* pack_weights.c - packing a model's matrices into panels, as float32, bfloat16
 * or int8.
 *
 *     matrices, token embeddings         panels, kernels/compact.h
 *     biases, norms, positions, types    copied as float32
 *     the mapped file, or the memory     released
 *
 * Everything is prepared beside the float32 model, which is replaced at the
 * end, so a failure leaves the model unchanged. Position and type embeddings
 * are not packed: a token reads one row of them, and nothing would get faster.
 */
#include "backend/cpu/kernels/packed_weight.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/thread_pool.h"
#include "formats/weight_files.h"
#include "model/api.h"

#include <string.h>

/* ---- which matrices ---------------------------------------------------- */

typedef struct visit {
    void (*matrix)(void *user, bt_tensor *w, bool transposed);
    void *user;
    bool transposed; /* how the model stores matrices, embeddings aside */
} visit;

static void visit_dense(const visit *v, bt_linear_params *dense)
{
    if (dense->w.rows)
        v->matrix(v->user, &dense->w, v->transposed);
}

static void visit_heads(const visit *v, bt_attention_params *heads)
{
    visit_dense(v, &heads->q);
    visit_dense(v, &heads->k);
    visit_dense(v, &heads->v);
    visit_dense(v, &heads->out);
}

static void visit_stack(const visit *v, bt_stack *stack)
{
    for (size_t l = 0; stack->config && l < stack->config->layers; l++) {
        bt_layer *layer = &stack->layers[l];
        visit_heads(v, &layer->self);
        visit_heads(v, &layer->cross);
        visit_dense(v, &layer->gate);
        visit_dense(v, &layer->up);
        visit_dense(v, &layer->down);
    }
}

/* Visit every matrix that is multiplied by, in the order of use. */
static void visit_matrices(bt_model *model, void *user,
                           void (*matrix)(void *, bt_tensor *, bool))
{
    visit v = { matrix, user, model->config.transposed };
    matrix(user, &model->tokens, false);
    visit_stack(&v, &model->encoder);
    visit_stack(&v, &model->decoder);
    visit_dense(&v, &model->head_dense);
    if (model->head.w.rows)
        matrix(user, &model->head.w, false);
}

/* Whether a stored tensor stays_float32 float32. Marian stores its head's bias
 * as a matrix of one row. */
static bool stays_float32(const bt_model *model, const bt_named_tensor *entry)
{
    const bt_tensor *const tables[] = {
        &model->encoder.positions, &model->encoder.types,
        &model->encoder.relative,  &model->decoder.positions,
        &model->decoder.types,     &model->decoder.relative,
        &model->head.bias
    };
    for (size_t i = 0; i < BT_LEN(tables); i++)
        if (entry->tensor == tables[i])
            return true;
    return entry->rank == 1;
}

/* ---- preparing --------------------------------------------------------- */

typedef struct packer {
    bauta_model *model;
    bauta_dtype type;
    bt_thread_pool *pool;
    size_t count;             /* of matrices; in later passes the current one */
    bt_arena space;           /* panels and scales */
    bt_packed_weight *packed; /* (count) NULL in the first pass */
    float *unpacked;          /* (floats) tensors that stay float32 */
    size_t floats;
    bauta_status status;
    bauta_error *err;
} packer;

static bt_packed_weight compact_of(packer *c, const bt_tensor *w,
                                   bool transposed)
{
    bt_packed_weight compact = { .type = c->type,
                                 .outputs = transposed ? w->columns : w->rows,
                                 .inputs = transposed ? w->rows : w->columns };
    size_t outputs = compact.outputs;
    compact.panels = bt_arena_alloc(
        &c->space, bt_packed_weight_bytes(c->type, outputs, compact.inputs), 1);
    if (c->type == BAUTA_INT8)
        compact.scales = bt_arena_alloc(
            &c->space, bt_size_round(outputs, BT_PANEL_COLUMNS), sizeof(float));
    return compact;
}

static void measure_matrix(void *user, bt_tensor *w, bool transposed)
{
    packer *c = user;
    (void)compact_of(c, w, transposed);
    c->count++;
}

/* Measure how much memory is needed, then allocate it. */
static bauta_status allocate(packer *c)
{
    const bauta_model *model = c->model;
    visit_matrices(model->store->model, c, measure_matrix);
    for (size_t i = 0; i < model->tensor_count; i++)
        if (stays_float32(model->store->model, &model->tensors[i]))
            c->floats += model->tensors[i].tensor->rows *
                         model->tensors[i].tensor->columns;
    size_t bytes = c->space.used;
    c->packed = bt_alloc_zero(c->count, sizeof(*c->packed));
    c->unpacked = bt_alloc(c->floats * sizeof(float));
    if (!c->packed || !c->unpacked || bt_arena_reserve(&c->space, bytes))
        return bt_fail_memory(c->err, "the packed weights of a model", bytes);
    c->count = 0;
    return BAUTA_OK;
}

/* ---- packing ----------------------------------------------------------- */

typedef struct pack_job {
    const bt_packed_weight *compact;
    const bt_tensor *w; /* in host memory */
    bool transposed;
    bt_progress failed; /* panels that int8 cannot represent */
} pack_job;

static void pack_panel(void *job, size_t task, int thread)
{
    (void)thread;
    pack_job *p = job;
    if (!bt_packed_weight_pack(p->compact, task, bt_tensor_host(p->w),
                               p->w->stride, p->transposed))
        bt_progress_increment(&p->failed);
}

/* The name of the stored tensor that holds a matrix. */
static const char *name_of(const bauta_model *model, const bt_tensor *w)
{
    for (size_t i = 0; i < model->tensor_count; i++) {
        const bt_tensor *t = model->tensors[i].tensor;
        if (t->buffer == w->buffer &&
            w->offset - t->offset < t->rows * t->stride)
            return model->tensors[i].name;
    }
    return "a matrix";
}

static void pack_matrix(void *user, bt_tensor *w, bool transposed)
{
    packer *c = user;
    if (c->status)
        return;
    bt_packed_weight *compact = &c->packed[c->count++];
    *compact = compact_of(c, w, transposed);
    pack_job p = { .compact = compact, .w = w, .transposed = transposed };
    bt_parallel_for(c->pool, bt_packed_weight_panels(compact->outputs),
                    pack_panel, &p);
    if (p.failed.done)
        c->status = bt_fail(c->err, BAUTA_ERR_UNSUPPORTED,
                            "tensor %s has a weight that is not finite, which "
                            "int8 cannot hold",
                            name_of(c->model, w));
}

/* ---- replacing the float32 weights ------------------------------------- */

static void bind_matrix(void *user, bt_tensor *w, bool transposed)
{
    (void)transposed;
    packer *c = user;
    w->packed = &c->packed[c->count++];
    w->buffer = NULL;
}

static void copy_unpacked(packer *c)
{
    bauta_model *model = c->model;
    size_t at = 0;
    for (size_t i = 0; i < model->tensor_count; i++) {
        bt_tensor *t = model->tensors[i].tensor;
        size_t count = t->rows * t->columns;
        if (stays_float32(model->store->model, &model->tensors[i])) {
            memcpy(c->unpacked + at, bt_tensor_host(t), count * sizeof(float));
            t->buffer = &model->store->weights;
            t->offset = at;
            at += count;
        } else {
            t->buffer = NULL; // a fused matrix, whose parts are packed
        }
    }
}

/* Cannot fail. */
static void replace_weights(packer *c)
{
    bt_model_store *folder = c->model->store;
    c->count = 0;
    visit_matrices(folder->model, c, bind_matrix);
    copy_unpacked(c);
    bt_model_split_qkv(folder->model);
    bt_weight_files_free(folder->files);
    folder->files = NULL;
    folder->weights.backend->free(&folder->weights);
    folder->weights = bt_buffer_of_host(c->unpacked, c->floats * sizeof(float));
    folder->floats = c->floats;
    folder->packed = c->packed;
    folder->panels = c->space.base;
}

static bauta_status pack(bauta_model *model, bauta_dtype type, bauta_error *err)
{
    packer c = { .model = model, .type = type, .err = err };
    c.status = bt_thread_pool_create(&c.pool, bt_threads_available(), err);
    if (!c.status)
        c.status = allocate(&c);
    if (!c.status)
        visit_matrices(model->store->model, &c, pack_matrix);
    bt_thread_pool_free(c.pool);
    if (!c.status) {
        replace_weights(&c);
        return BAUTA_OK;
    }
    bt_arena_release(&c.space);
    bt_free(c.packed);
    bt_free(c.unpacked);
    return c.status;
}

/* ---- public calls ------------------------------------------------------ */

const char *bt_model_dtype_name(bauta_dtype weights)
{
    static const char *const names[] = { "float32", "bfloat16", "int8" };
    return names[weights];
}

bauta_status bauta_model_pack(bauta_model *model, bauta_dtype weights,
                              bauta_error *err)
{
    BT_NEED(model, err);
    if ((unsigned)weights > BAUTA_INT8)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "dtype is %u, which is not a known type",
                       (unsigned)weights);
    if (model->store->stream)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "weights are packed on the CPU only, and the model is "
                       "on the device \"%s\"",
                       model->store->stream->device);
    if (model->trainable)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a trainable model cannot be packed: load it read-only "
                       "to pack its weights as %s",
                       bt_model_dtype_name(weights));
    if (model->store->packed && weights == model->dtype)
        return BAUTA_OK;
    if (model->store->packed)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the weights are already packed as %s: load the model "
                       "again to pack them as %s",
                       bt_model_dtype_name(model->dtype),
                       bt_model_dtype_name(weights));
    bauta_status status = pack(model, weights, err);
    if (!status)
        model->dtype = weights;
    return status;
}

bauta_dtype bauta_model_dtype(const bauta_model *model)
{
    return model->dtype;
}
