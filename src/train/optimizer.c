/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.c - AdamW: the parameters, their moments, and steps; the learning
 * rate of a step. */
#include "train/optimizer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <assert.h>
#include <math.h>

struct bt_optimizer {
    bt_stream *stream;
    bt_optimizer_options options;
    size_t count, steps;
    bt_buffer moments;
    bt_comm *comm;         /* NULL: all parameters are here */
    size_t pieces;         /* of all ranks */
    double *squares;       /* (pieces) */
    size_t *piece;         /* (count) the first one of each parameter */
    bt_adamw_slot slots[]; /* (count) */
};

/* ---- Creation ------------------------------------------------------------ */

static bauta_status check_options(const bt_optimizer_options *o,
                                  bauta_error *err)
{
    const struct {
        const char *name;
        double value, below;
    } ranges[] = {
        { "beta1", o->beta1, 1.0 },
        { "beta2", o->beta2, 1.0 },
        { "epsilon", o->epsilon, INFINITY },
        { "weight_decay", o->weight_decay, INFINITY },
        { "max_grad_norm", o->max_grad_norm, INFINITY },
    };
    for (size_t i = 0; i < BT_LEN(ranges); i++)
        if (!(ranges[i].value >= 0.0 && ranges[i].value < ranges[i].below))
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "%s is %g, not from 0 to below %g", ranges[i].name,
                           ranges[i].value, ranges[i].below);
    return BAUTA_OK;
}

static bauta_status check_parameters(const bt_parameter *parameters,
                                     size_t count, bauta_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const bt_tensor *t = parameters[i].tensor;
        if (!t->grad)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "optimizer: parameter %zu has no gradient", i);
        if (t->stride != t->columns)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "optimizer: parameter %zu is a view of a larger "
                           "tensor, with a row stride of %zu",
                           i, t->stride);
    }
    return BAUTA_OK;
}

/* A moment of a parameter after `floats` others; moments begin at cache lines.
 */
static bt_tensor moment_of(const bt_optimizer *o, const bt_tensor *parameter,
                           size_t *floats)
{
    bt_tensor moment = bt_tensor_of(&o->moments, BAUTA_FLOAT32, parameter->rows,
                                    parameter->columns);
    moment.offset = *floats;
    *floats = bt_size_add(
        *floats, bt_size_round(bt_size_mul(parameter->rows, parameter->columns),
                               BT_ALIGN / sizeof(float)));
    return moment;
}

static bauta_status moments_create(bt_optimizer *o,
                                   const bt_parameter *parameters,
                                   bauta_error *err)
{
    const bt_backend *backend = o->stream->backend;
    size_t floats = 0;
    for (size_t i = 0; i < o->count; i++) {
        const bt_tensor *t = parameters[i].tensor;
        o->slots[i] = (bt_adamw_slot){ .parameter = t,
                                       .master = parameters[i].master,
                                       .decay = parameters[i].decay };
        o->slots[i].first = moment_of(o, t, &floats);
        o->slots[i].second = moment_of(o, t, &floats);
    }
    size_t bytes = bt_size_mul(floats, sizeof(float));
    if (backend->alloc(o->stream, &o->moments, bytes, NULL))
        return bt_fail_memory(err, "the moments of an optimizer", bytes);
    return backend->fill(o->stream, &o->moments, 0, 0, bytes, err);
}

bauta_status bt_optimizer_create(bt_optimizer **out, bt_stream *stream,
                                 const bt_parameter *parameters, size_t count,
                                 const bt_optimizer_options *options,
                                 bauta_error *err)
{
    *out = NULL;
    bauta_status status = check_options(options, err);
    if (!status)
        status = check_parameters(parameters, count, err);
    if (status)
        return status;
    size_t bytes = bt_size_add(sizeof(bt_optimizer),
                               bt_size_mul(count, sizeof(bt_adamw_slot)));
    bt_optimizer *o = bt_alloc_zero(1, bytes);
    if (!o)
        return bt_fail_memory(err, "an optimizer", bytes);
    o->stream = stream;
    o->options = *options;
    o->count = count;
    o->piece = bt_alloc_zero(count, sizeof(*o->piece));
    if (!o->piece)
        status = bt_fail_memory(err, "an optimizer", count * sizeof(*o->piece));
    for (size_t i = 0; !status && i < count; i++)
        o->piece[i] = parameters[i].piece;
    if (!status)
        status = moments_create(o, parameters, err);
    if (status)
        bt_optimizer_free(o);
    else
        *out = o;
    return status;
}

void bt_optimizer_free(bt_optimizer *optimizer)
{
    if (!optimizer)
        return;
    if (optimizer->moments.memory)
        optimizer->stream->backend->free(&optimizer->moments);
    bt_free(optimizer->squares);
    bt_free(optimizer->piece);
    bt_free(optimizer);
}

bauta_status bt_optimizer_share(bt_optimizer *optimizer, bt_comm *comm,
                                size_t pieces, bauta_error *err)
{
    optimizer->squares = bt_alloc(bt_size_mul(pieces, sizeof(double)));
    if (!optimizer->squares)
        return bt_fail_memory(err, "the norm of gradients",
                              bt_size_mul(pieces, sizeof(double)));
    optimizer->comm = comm;
    optimizer->pieces = pieces;
    return BAUTA_OK;
}

/* ---- A step -------------------------------------------------------------- */

/* Put the squares where a single rank has them, and add all in order. */
static bauta_status squares_add(void *user, const double *squares, size_t count,
                                double *sum, bauta_error *err)
{
    bt_optimizer *o = user;
    size_t at = 0;
    for (size_t i = 0; i < o->pieces; i++)
        o->squares[i] = 0.0;
    for (size_t i = 0; i < o->count; i++) {
        const bt_tensor *t = o->slots[i].parameter;
        size_t elements = t->rows * t->columns;
        for (size_t k = 0; k * BT_ADAMW_PIECE < elements; k++)
            o->squares[o->piece[i] + k] = squares[at++];
    }
    assert(at == count);
    bauta_status status = bt_comm_sum(o->comm, o->squares, o->pieces, err);
    *sum = 0.0;
    for (size_t i = 0; !status && i < o->pieces; i++)
        *sum += o->squares[i];
    return status;
}

bauta_status bt_optimizer_step(bt_optimizer *optimizer, double learning_rate,
                               double *norm, bauta_error *err)
{
    bt_stream *stream = optimizer->stream;
    bt_square_sum square_sum = { squares_add, optimizer };
    bt_adamw_args args = { .slots = optimizer->slots,
                           .count = optimizer->count,
                           .options = &optimizer->options,
                           .learning_rate = learning_rate,
                           .step = optimizer->steps + 1,
                           .norm = norm,
                           .square_sum = optimizer->comm ? &square_sum : NULL };
    bauta_status status =
        stream->backend->adamw
            ? stream->backend->adamw(stream, &args, err)
            : bt_unsupported(stream, BT_OP_adamw, BAUTA_FLOAT32, err);
    if (!status && isfinite(*norm))
        optimizer->steps++;
    return status;
}

bauta_status bt_optimizer_zero(bt_optimizer *optimizer, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < optimizer->count && !status; i++) {
        bt_tensor grad = bt_tensor_grad(optimizer->slots[i].parameter);
        status = bt_tensor_zero(optimizer->stream, &grad, err);
    }
    return status;
}

/* ---- Learning rate ------------------------------------------------------- */

/* cos(pi x) for x from 0 to 1, by its series about 1 / 2, where it is odd. The
 * last term is below 1e-17. The result is clamped to [-1, 1], so that a rate is
 * never negative. */
static double cosine(double x)
{
    double t = 3.14159265358979323846 * (0.5 - x), square = t * t;
    double term = t, sum = t;
    for (int k = 1; k <= 12; k++) {
        term *= -square / (double)((2 * k) * (2 * k + 1));
        sum += term;
    }
    return fmin(fmax(sum, -1.0), 1.0);
}

double bt_learning_rate(const bauta_train_options *o, size_t step)
{
    double low = o->min_learning_rate,
           span = o->learning_rate - o->min_learning_rate;
    if (step <= o->warmup_steps)
        return o->learning_rate * (double)step / (double)o->warmup_steps;
    double after = (double)(step - o->warmup_steps);
    double all = o->max_steps > o->warmup_steps
                     ? (double)(o->max_steps - o->warmup_steps)
                     : 1.0;
    double x = after < all ? after / all : 1.0;
    switch (o->lr_scheduler_type) {
    case BAUTA_SCHEDULE_LINEAR:
        return low + span * (1.0 - x);
    case BAUTA_SCHEDULE_COSINE:
        return low + span * 0.5 * (1.0 + cosine(x));
    case BAUTA_SCHEDULE_INVERSE_SQRT: {
        double first = o->warmup_steps ? (double)o->warmup_steps : 1.0;
        double rate = o->learning_rate * sqrt(first / (double)step);
        return rate > low ? rate : low;
    }
    default:
        return o->learning_rate;
    }
}

/* ---- State --------------------------------------------------------------- */

size_t bt_optimizer_steps(const bt_optimizer *optimizer)
{
    return optimizer->steps;
}

void bt_optimizer_set_steps(bt_optimizer *optimizer, size_t steps)
{
    optimizer->steps = steps;
}

const bt_buffer *bt_optimizer_moments(const bt_optimizer *optimizer)
{
    return &optimizer->moments;
}

size_t bt_optimizer_first_moment(const bt_optimizer *optimizer,
                                 size_t parameter)
{
    return optimizer->slots[parameter].first.offset;
}

size_t bt_optimizer_second_moment(const bt_optimizer *optimizer,
                                  size_t parameter)
{
    return optimizer->slots[parameter].second.offset;
}
