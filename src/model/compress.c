/* SPDX-License-Identifier: Apache-2.0 */
/* compress.c - the matrices of a model in panels, of float32 or fewer bytes.
 *
 * All is prepared beside the float32 model, which is let go of in the end:
 *
 *     matrices of products, the token table    panels, kernels/compact.h
 *     biases, norms, positions, types          float32, copied
 *     the mapping, or the memory               released
 *
 * Positions and types are tables of which a token reads one row, so they are
 * left alone: nothing would become faster. */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/threads.h"
#include "formats/weights.h"
#include "kernels/compact.h"
#include "model/handle.h"

#include <string.h>

/* ---- which matrices ---------------------------------------------------- */

typedef struct visit {
    void (*matrix)(void *user, bt_tensor *w, bool turned);
    void *user;
    bool turned; /* the model's way to store what is not a table */
} visit;

static void visit_dense(const visit *v, bt_dense *dense)
{
    if (dense->w.rows)
        v->matrix(v->user, &dense->w, v->turned);
}

static void visit_heads(const visit *v, bt_heads *heads)
{
    visit_dense(v, &heads->q);
    visit_dense(v, &heads->k);
    visit_dense(v, &heads->v);
    visit_dense(v, &heads->out);
}

static void visit_stack(const visit *v, bt_stack *stack)
{
    for (size_t l = 0; stack->print && l < stack->print->layers; l++) {
        bt_layer *layer = &stack->layers[l];
        visit_heads(v, &layer->self);
        visit_heads(v, &layer->cross);
        visit_dense(v, &layer->gate);
        visit_dense(v, &layer->up);
        visit_dense(v, &layer->down);
    }
}

/* Every matrix of a product, in the order of their use. */
static void visit_matrices(bt_model *model, void *user,
                           void (*matrix)(void *, bt_tensor *, bool))
{
    visit v = { matrix, user, model->print.turned };
    matrix(user, &model->tokens, false);
    visit_stack(&v, &model->encoder);
    visit_stack(&v, &model->decoder);
    visit_dense(&v, &model->head_dense);
    if (model->head.w.rows)
        matrix(user, &model->head.w, false);
}

/* Whether a stored tensor stays float32. Marian stores the bias of its head as
 * a matrix of one row. */
static bool stays(const bt_model *model, const bt_entry *entry)
{
    const bt_tensor *const tables[] = {
        &model->encoder.positions, &model->encoder.types,
        &model->decoder.positions, &model->decoder.types, &model->head.bias
    };
    for (size_t i = 0; i < BT_LEN(tables); i++)
        if (entry->tensor == tables[i])
            return true;
    return entry->rank == 1;
}

/* ---- preparing --------------------------------------------------------- */

typedef struct compression {
    bauta_model *model;
    bt_compact_type type;
    size_t count;         /* matrices, or the one at hand */
    bt_arena space;       /* panels and scales */
    bt_compact *compacts; /* (count) NULL at first */
    float *kept;          /* (floats) */
    size_t floats;
    bauta_status status;
    bauta_error *err;
} compression;

static bt_compact compact_of(compression *c, const bt_tensor *w, bool turned)
{
    bt_compact compact = { .type = c->type,
                           .outputs = turned ? w->columns : w->rows,
                           .inputs = turned ? w->rows : w->columns };
    size_t outputs = compact.outputs;
    compact.panels = bt_arena_take(
        &c->space, bt_compact_bytes(c->type, outputs, compact.inputs), 1);
    if (c->type == BT_COMPACT_INT8)
        compact.scales = bt_arena_take(
            &c->space, bt_size_round(outputs, BT_ABREAST), sizeof(float));
    return compact;
}

static void measure_matrix(void *user, bt_tensor *w, bool turned)
{
    compression *c = user;
    (void)compact_of(c, w, turned);
    c->count++;
}

/* How much memory is needed; then take it. */
static bauta_status take(compression *c)
{
    const bauta_model *model = c->model;
    visit_matrices(model->folder->model, c, measure_matrix);
    for (size_t i = 0; i < model->count; i++)
        if (stays(model->folder->model, &model->entries[i]))
            c->floats += model->entries[i].tensor->rows *
                         model->entries[i].tensor->columns;
    size_t bytes = c->space.used;
    c->compacts = bt_alloc_zero(c->count, sizeof(*c->compacts));
    c->kept = bt_alloc(c->floats * sizeof(float));
    if (!c->compacts || !c->kept || bt_arena_reserve(&c->space, bytes))
        return bt_fail_memory(c->err, "the compressed weights of a model",
                              bytes);
    c->count = 0;
    return BAUTA_OK;
}

/* ---- packing ----------------------------------------------------------- */

typedef struct packing {
    const bt_compact *compact;
    const bt_tensor *w;
    bool turned;
    bt_progress failed; /* panels that int8 cannot hold */
} packing;

static void pack_panel(void *job, size_t task, int thread)
{
    (void)thread;
    packing *p = job;
    if (!bt_compact_pack(p->compact, task, p->w->data, p->w->stride, p->turned))
        bt_progress_step(&p->failed);
}

/* The stored tensor that a matrix is, or is a part of. */
static const char *name_of(const bauta_model *model, const bt_tensor *w)
{
    for (size_t i = 0; i < model->count; i++) {
        const bt_tensor *t = model->entries[i].tensor;
        uintptr_t at = (uintptr_t)w->data - (uintptr_t)t->data;
        if (at < t->rows * t->stride * sizeof(float))
            return model->entries[i].name;
    }
    return "a matrix";
}

static void pack_matrix(void *user, bt_tensor *w, bool turned)
{
    compression *c = user;
    if (c->status)
        return;
    bt_compact *compact = &c->compacts[c->count++];
    *compact = compact_of(c, w, turned);
    packing p = { .compact = compact, .w = w, .turned = turned };
    bt_parallel(bt_threads_available(), bt_compact_panels(compact->outputs),
                pack_panel, &p);
    if (p.failed.done)
        c->status = bt_fail(c->err, BAUTA_ERR_UNSUPPORTED,
                            "tensor %s has a weight that is not finite, which "
                            "int8 cannot hold",
                            name_of(c->model, w));
}

/* ---- changing over ----------------------------------------------------- */

static void bind_matrix(void *user, bt_tensor *w, bool turned)
{
    (void)turned;
    compression *c = user;
    w->compact = &c->compacts[c->count++];
    w->data = NULL;
}

static void keep_rest(compression *c)
{
    bauta_model *model = c->model;
    float *to = c->kept;
    for (size_t i = 0; i < model->count; i++) {
        bt_tensor *t = model->entries[i].tensor;
        size_t count = t->rows * t->columns;
        if (stays(model->folder->model, &model->entries[i])) {
            memcpy(to, t->data, count * sizeof(float));
            t->data = to;
            to += count;
        } else {
            t->data = NULL; // a fused matrix, whose parts are compact
        }
    }
}

/* Nothing fails from here on. */
static void change_over(compression *c)
{
    bt_folder *folder = c->model->folder;
    c->count = 0;
    visit_matrices(folder->model, c, bind_matrix);
    keep_rest(c);
    bt_model_split(folder->model);
    bt_weights_free(folder->weights);
    folder->weights = NULL;
    bt_free(folder->memory);
    folder->memory = c->kept;
    folder->floats = c->floats;
    folder->compacts = c->compacts;
    folder->panels = c->space.base;
}

static bauta_status compress(bauta_model *model, bt_compact_type type,
                             bauta_error *err)
{
    compression c = { .model = model, .type = type, .err = err };
    c.status = take(&c);
    if (!c.status)
        visit_matrices(model->folder->model, &c, pack_matrix);
    if (!c.status) {
        change_over(&c);
        return BAUTA_OK;
    }
    bt_arena_release(&c.space);
    bt_free(c.compacts);
    bt_free(c.kept);
    return c.status;
}

/* ---- the interface ----------------------------------------------------- */

const char *bt_weights_text(bauta_weights weights)
{
    static const char *const names[] = { "float32", "bfloat16", "int8" };
    return names[weights];
}

bauta_status bauta_model_compress(bauta_model *model, bauta_weights weights,
                                  bauta_error *err)
{
    static const bt_compact_type types[] = { BT_COMPACT_F32, BT_COMPACT_BF16,
                                             BT_COMPACT_INT8 };
    BT_NEED(model, err);
    if ((unsigned)weights > BAUTA_WEIGHTS_INT8)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "weights is %u, and there is no such type",
                       (unsigned)weights);
    if (model->trainable)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a model that is trained keeps its weights as they "
                       "are: load it read-only to hold them as %s",
                       bt_weights_text(weights));
    if (model->folder->compacts && weights == model->weights)
        return BAUTA_OK;
    if (model->folder->compacts)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the model holds its weights as %s already: load it "
                       "anew to hold them as %s",
                       bt_weights_text(model->weights),
                       bt_weights_text(weights));
    bauta_status status = compress(model, types[weights], err);
    if (!status)
        model->weights = weights;
    return status;
}

bauta_weights bauta_model_weights(const bauta_model *model)
{
    return model->weights;
}
