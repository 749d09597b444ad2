/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c - y = x W^T + bias, and its gradients:
 *
 *     dx    = dy W                        (rows, inputs)
 *     dW    = dy^T x                      like W
 *     dbias = the sum of the rows of dy   (1, outputs) */
#include "autograd/ops.h"
#include "base/error.h"

/* ---- Parts ------------------------------------------------------------ */

static size_t inputs_of(const bt_tensor *w, bool transposed)
{
    return transposed ? w->rows : w->columns;
}

size_t bt_linear_outputs(const bt_tensor *w, bool transposed)
{
    return transposed ? w->columns : w->rows;
}

bool bt_linear_check(bt_tape *tape, const char *op, const bt_tensor *x,
                     const bt_tensor *w, bool transposed, const bt_tensor *bias)
{
    size_t inputs = inputs_of(w, transposed);
    size_t outputs = bt_linear_outputs(w, transposed);
    if (x->columns != inputs)
        bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                     "%s: x has %zu columns, W takes %zu", op, x->columns,
                     inputs);
    else if (x->stride != x->columns)
        bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                     "%s: x is a part of a larger matrix, with rows %zu apart",
                     op, x->stride);
    else if (bias && (bias->rows != 1 || bias->columns != outputs))
        bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                     "%s: the bias is (%zu, %zu), W has %zu outputs", op,
                     bias->rows, bias->columns, outputs);
    return bt_tape_status(tape, NULL) == BAUTA_OK;
}

bool bt_linear_forward(bt_tape *tape, const bt_tensor *x, const bt_tensor *w,
                       bool transposed, const bt_tensor *bias,
                       const bt_tensor *y)
{
    bt_linear_layer layer = { w, bias, y };
    bt_linear_args args = {
        .x = x, .count = 1, .layers = &layer, .transposed = transposed
    };
    return BT_TAPE_RUN(tape, linear, &args);
}

bool bt_softcap_logits(bt_tape *tape, const bt_tensor *x, float cap)
{
    bt_softcap_args args = { x, x, cap };
    return cap == 0.0f || BT_TAPE_RUN(tape, softcap, &args);
}

bool bt_linear_to_host(bt_tape *tape, const bt_tensor *x, const bt_tensor *w,
                       bool transposed, const bt_tensor *bias, float softcap,
                       float *to)
{
    bt_stream *stream = bt_tape_stream(tape);
    size_t outputs = bt_linear_outputs(w, transposed);
    if (stream->backend->host_visible) {
        bt_buffer buffer =
            bt_buffer_of_host(to, x->rows * outputs * sizeof(float));
        bt_tensor y = bt_tensor_of(&buffer, BAUTA_FLOAT32, x->rows, outputs);
        return bt_linear_forward(tape, x, w, transposed, bias, &y) &&
               bt_softcap_logits(tape, &y, softcap);
    }
    bt_tensor *y = bt_tape_scratch(tape, BAUTA_FLOAT32, x->rows, outputs);
    return y && bt_linear_forward(tape, x, w, transposed, bias, y) &&
           bt_softcap_logits(tape, y, softcap) &&
           bt_tape_check(
               tape, bt_tensor_download(stream, to, y, bt_tape_error(tape)));
}

/* ---- The op ------------------------------------------------------------ */

typedef struct linear_record {
    bt_tensor *x, *w, *bias, *y;
    bool transposed;
    bt_act act;
    bt_tensor *pre; /* x = act(pre), and the gradient goes there; or NULL */
} linear_record;

static void backward_x(bt_tape *tape, const linear_record *op,
                       const bt_tensor *dy)
{
    bool add;
    bt_tensor *to = op->pre ? op->pre : op->x;
    if (!bt_tape_grad(tape, to, &add))
        return;
    bt_tensor dx = bt_tensor_grad(to);
    bt_linear_dx_args args = { .dy = dy,
                               .w = op->w,
                               .dx = &dx,
                               .transposed = op->transposed,
                               .add = add,
                               .slope = op->pre,
                               .act = op->act };
    BT_TAPE_RUN(tape, linear_dx, &args);
}

/* A step that fails for lack of memory makes the later ones useless, but not
 * wrong. */
static void backward(bt_tape *tape, void *saved)
{
    const linear_record *op = saved;
    bool add;
    if (!op->y->grad)
        return; // no gradient flows into y
    bt_tensor dy = bt_tensor_grad(op->y);
    backward_x(tape, op, &dy);
    if (bt_tape_grad(tape, op->w, &add)) {
        bt_tensor dw = bt_tensor_grad(op->w);
        bt_linear_dw_args args = { op->x, &dy, &dw, op->transposed, add };
        BT_TAPE_RUN(tape, linear_dw, &args);
    }
    if (op->bias && bt_tape_grad(tape, op->bias, &add)) {
        bt_tensor dbias = bt_tensor_grad(op->bias);
        bt_sum_rows_args args = { &dy, &dbias, add };
        BT_TAPE_RUN(tape, sum_rows, &args);
    }
}

static void record(bt_tape *tape, const linear_record *op)
{
    linear_record *saved = bt_tape_alloc(tape, 1, sizeof(*saved));
    if (!saved)
        return;
    *saved = *op;
    bt_tape_record(tape, backward, saved, saved->y);
}

bt_tensor *bt_op_linear(bt_tape *tape, bt_tensor *x, bt_tensor *w,
                        bool transposed, bt_tensor *bias)
{
    linear_record op = {
        .x = x, .w = w, .bias = bias, .transposed = transposed
    };
    if (bt_tape_status(tape, NULL) ||
        !bt_linear_check(tape, "linear", x, w, transposed, bias))
        return NULL;
    op.y = bt_tape_output(tape, x->rows, bt_linear_outputs(w, transposed),
                          x->requires_grad || w->requires_grad ||
                              (bias && bias->requires_grad));
    if (!op.y || !bt_linear_forward(tape, x, w, transposed, bias, op.y))
        return NULL;
    if (op.y->requires_grad)
        record(tape, &op);
    return bt_tape_status(tape, NULL) ? NULL : op.y;
}

/* ---- With an activation ------------------------------------------------- */

/* act(x W^T + bias), with what it is applied to in `pre` unless that is NULL.
 */
static bt_tensor *forward_act(bt_tape *tape, const linear_record *op,
                              bt_act act, const bt_tensor *pre)
{
    bt_tensor *y = bt_tape_output(
        tape, op->x->rows, bt_linear_outputs(op->w, op->transposed), false);
    bt_linear_layer layer = { op->w, op->bias, y };
    bt_linear_args args = { .x = op->x,
                            .count = 1,
                            .layers = &layer,
                            .transposed = op->transposed,
                            .has_act = true,
                            .act = act,
                            .pre = pre };
    return y && BT_TAPE_RUN(tape, linear, &args) ? y : NULL;
}

/* Both layers with one operation for a product and the activation: forward, and
 * backward for the gradient of what the activation is applied to. */
static bt_tensor *feed_forward(bt_tape *tape, linear_record *up, bt_act act,
                               linear_record *down)
{
    bool recording = bt_tape_recording(tape);
    if (recording) {
        up->y = bt_tape_output(tape, up->x->rows,
                               bt_linear_outputs(up->w, up->transposed),
                               up->x->requires_grad || up->w->requires_grad ||
                                   (up->bias && up->bias->requires_grad));
        if (!up->y)
            return NULL;
        down->pre = up->y;
        down->act = act;
    }
    down->x = forward_act(tape, up, act, down->pre);
    if (!down->x || !bt_linear_check(tape, "linear", down->x, down->w,
                                     down->transposed, down->bias))
        return NULL;
    if (recording && up->y->requires_grad)
        record(tape, up);
    down->y = bt_tape_output(
        tape, down->x->rows, bt_linear_outputs(down->w, down->transposed),
        (up->y && up->y->requires_grad) || down->w->requires_grad ||
            (down->bias && down->bias->requires_grad));
    if (!down->y || !bt_linear_forward(tape, down->x, down->w, down->transposed,
                                       down->bias, down->y))
        return NULL;
    if (down->y->requires_grad)
        record(tape, down);
    return bt_tape_status(tape, NULL) ? NULL : down->y;
}

bt_tensor *bt_op_feed_forward(bt_tape *tape, bt_tensor *x,
                              const bt_linear_op *up, bt_act act,
                              const bt_linear_op *down, bool transposed)
{
    if (!(bt_tape_stream(tape)->backend->fusions & BT_FUSE_LINEAR_ACT)) {
        x = bt_op_linear(tape, x, up->w, transposed, up->bias);
        return bt_op_linear(tape, bt_op_act(tape, x, act), down->w, transposed,
                            down->bias);
    }
    if (bt_tape_status(tape, NULL) ||
        !bt_linear_check(tape, "linear", x, up->w, transposed, up->bias))
        return NULL;
    linear_record first = {
        .x = x, .w = up->w, .bias = up->bias, .transposed = transposed
    };
    linear_record second = { .w = down->w,
                             .bias = down->bias,
                             .transposed = transposed };
    return feed_forward(tape, &first, act, &second);
}

/* ---- Adjacent layers ---------------------------------------------------- */

/* Layers of one x whose parameters lie back to back in memory are one layer, of
 * which each has some columns of the result. */
typedef struct merged_record {
    linear_record op;  /* of the one layer */
    bt_tensor w, bias; /* its parameters */
    size_t count;
    bt_tensor *parts[BT_LINEAR_LAYERS_MAX]; /* of y */
} merged_record;

/* Whether the data of `next` is right after that of `t`, or the gradients are:
 * in the next column of the same matrix, or in the next row. */
static bool data_follows(const bt_tensor *next, const bt_tensor *t, size_t step)
{
    return t->buffer && next->buffer == t->buffer && next->dtype == t->dtype &&
           next->stride == t->stride && next->offset == t->offset + step;
}

static bool grad_follows(const bt_tensor *next, const bt_tensor *t, size_t step)
{
    if (!next->requires_grad && !t->requires_grad)
        return true;
    return next->requires_grad && t->requires_grad && t->grad &&
           next->grad == t->grad && next->grad_dtype == t->grad_dtype &&
           next->grad_offset == t->grad_offset + step;
}

static bool layer_follows(const bt_linear_op *next, const bt_linear_op *l,
                          bool transposed)
{
    size_t step = transposed ? l->w->columns : l->w->rows * l->w->stride;
    bool ends = transposed || l->w->stride == l->w->columns;
    if (!ends || !data_follows(next->w, l->w, step) ||
        !grad_follows(next->w, l->w, step))
        return false;
    if (!next->bias || !l->bias)
        return !next->bias && !l->bias;
    bt_tensor bias = *next->bias;
    bias.stride = l->bias->stride; // of one row it means nothing
    return data_follows(&bias, l->bias, l->bias->columns) &&
           grad_follows(&bias, l->bias, l->bias->columns);
}

/* Whether the layers are adjacent, and in which order. */
static bool find_order(const bt_tape *tape, size_t count,
                       const bt_linear_op *layers, bool transposed,
                       size_t *order)
{
    enum { UNIT = 8 }; // columns, see bt_backend
    if (!bt_tape_stream(tape)->backend->strided || count < 2 ||
        count > BT_LINEAR_LAYERS_MAX)
        return false;
    for (size_t i = 0; i < count; i++) {
        size_t at = i;
        if (bt_linear_outputs(layers[i].w, transposed) % UNIT)
            return false;
        for (; at && layers[order[at - 1]].w->offset > layers[i].w->offset;
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (size_t i = 1; i < count; i++)
        if (!layer_follows(&layers[order[i]], &layers[order[i - 1]],
                           transposed))
            return false;
    return true;
}

/* A part of y that nothing has used has no gradient: it is 0. */
static void backward_merged(bt_tape *tape, void *saved)
{
    merged_record *r = saved;
    bool add;
    if (!r->op.y->grad)
        return;
    for (size_t i = 0; i < r->count; i++) {
        bt_tensor *part = r->parts[i];
        if (part->grad || !bt_tape_grad(tape, part, &add))
            continue;
        bt_tensor grad = bt_tensor_grad(part);
        bt_tape_check(tape, bt_tensor_zero(bt_tape_stream(tape), &grad,
                                           bt_tape_error(tape)));
    }
    backward(tape, &r->op);
}

static bool run_merged(bt_tape *tape, bt_tensor *x, size_t count,
                       const bt_linear_op *layers, bool transposed,
                       const size_t *order, bt_tensor **y)
{
    merged_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    size_t outputs = 0;
    if (!r)
        return false;
    const bt_linear_op *first = &layers[order[0]];
    *r = (merged_record){ .w = *first->w, .count = count };
    if (first->bias)
        r->bias = *first->bias;
    for (size_t i = 0; i < count; i++)
        outputs += bt_linear_outputs(layers[i].w, transposed);
    *(transposed ? &r->w.columns : &r->w.rows) = outputs;
    r->bias.columns = outputs;
    r->op = (linear_record){ .x = x,
                             .w = &r->w,
                             .bias = first->bias ? &r->bias : NULL,
                             .transposed = transposed };
    r->op.y = bt_tape_output(tape, x->rows, outputs,
                             x->requires_grad || r->w.requires_grad ||
                                 r->bias.requires_grad);
    if (!r->op.y ||
        !bt_linear_forward(tape, x, r->op.w, transposed, r->op.bias, r->op.y))
        return false;
    for (size_t i = 0, at = 0; i < count; i++) {
        size_t columns = bt_linear_outputs(layers[order[i]].w, transposed);
        y[order[i]] = r->parts[i] = bt_tape_columns(tape, r->op.y, at, columns);
        at += columns;
    }
    if (r->op.y->requires_grad)
        bt_tape_record(tape, backward_merged, r, r->op.y);
    return bt_tape_status(tape, NULL) == BAUTA_OK;
}

bool bt_op_linears(bt_tape *tape, bt_tensor *x, size_t count,
                   const bt_linear_op *layers, bool transposed, bt_tensor **y)
{
    bt_linear_layer group[BT_LINEAR_LAYERS_MAX];
    size_t order[BT_LINEAR_LAYERS_MAX];
    bool adjacent = find_order(tape, count, layers, transposed, order);
    if (!adjacent &&
        (bt_tape_recording(tape) || count > BT_LINEAR_LAYERS_MAX)) {
        for (size_t i = 0; i < count; i++) // each with a record of its own
            y[i] =
                bt_op_linear(tape, x, layers[i].w, transposed, layers[i].bias);
        return bt_tape_status(tape, NULL) == BAUTA_OK;
    }
    for (size_t i = 0; i < count; i++)
        y[i] = NULL;
    for (size_t i = 0; i < count; i++)
        if (bt_tape_status(tape, NULL) ||
            !bt_linear_check(tape, "linear", x, layers[i].w, transposed,
                             layers[i].bias))
            return false;
    if (adjacent)
        return run_merged(tape, x, count, layers, transposed, order, y);
    for (size_t i = 0; i < count; i++) {
        const bt_linear_op *l = &layers[i];
        y[i] = bt_tape_output(tape, x->rows,
                              bt_linear_outputs(l->w, transposed), false);
        if (!y[i])
            return false;
        group[i] = (bt_linear_layer){ l->w, l->bias, y[i] };
    }
    bt_linear_args args = {
        .x = x, .count = count, .layers = group, .transposed = transposed
    };
    return BT_TAPE_RUN(tape, linear, &args);
}
