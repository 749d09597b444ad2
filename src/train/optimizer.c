/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.c - AdamW over the parameters of a model.
 *
 * The parameters are split into pieces of one size, which are the tasks of the
 * threads. The pieces' sums of squares are added in the order of the pieces, so
 * the norm does not depend on the number of threads. */
#include "train/optimizer.h"

#include "base/error.h"
#include "base/size.h"
#include "base/threads.h"

#include <math.h>
#include <string.h>

enum { PIECE = 1 << 15 }; /* elements; their four arrays fit into an L2 cache */

typedef struct slot {
    bt_tensor *tensor;
    bool decay;
    size_t count;
    float *first, *second; /* moments, (count) */
} slot;

typedef struct param_slice {
    size_t slot, from, count;
} param_slice;

struct bt_optimizer {
    bt_optimizer_options options;
    size_t steps;
    size_t slot_count, piece_count;
    slot *slots;
    param_slice *pieces;
    double *squares; /* (pieces) */
    bt_arena memory; /* of all arrays */
};

/* ---- Create and free ----------------------------------------------------- */

static bauta_status check_options(const bt_optimizer_options *o,
                                  bauta_error *err)
{
    const struct {
        const char *name;
        double value, below;
    } ranges[] = { { "beta1", o->beta1, 1.0 },
                   { "beta2", o->beta2, 1.0 },
                   { "epsilon", o->epsilon, INFINITY },
                   { "weight_decay", o->weight_decay, INFINITY },
                   { "max_grad_norm", o->max_grad_norm, INFINITY } };
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

static size_t pieces_of(size_t count)
{
    return count / PIECE + (count % PIECE != 0);
}

static size_t parameter_count(const bt_parameter *parameter)
{
    return bt_size_mul(parameter->tensor->rows, parameter->tensor->columns);
}

/* Runs twice: to measure, then to take everything from the arena. */
static void take_memory(bt_optimizer *o, const bt_parameter *parameters)
{
    bt_arena *memory = &o->memory;
    o->slots = bt_arena_alloc(memory, o->slot_count, sizeof(*o->slots));
    o->pieces = bt_arena_alloc(memory, o->piece_count, sizeof(*o->pieces));
    o->squares = bt_arena_alloc(memory, o->piece_count, sizeof(*o->squares));
    for (size_t i = 0; i < o->slot_count; i++) {
        size_t count = parameter_count(&parameters[i]);
        float *first = bt_arena_alloc(memory, count, sizeof(float));
        float *second = bt_arena_alloc(memory, count, sizeof(float));
        if (memory->base)
            o->slots[i] = (slot){ parameters[i].tensor, parameters[i].decay,
                                  count, first, second };
    }
}

static void split_pieces(bt_optimizer *o)
{
    param_slice *next = o->pieces;
    for (size_t i = 0; i < o->slot_count; i++)
        for (size_t from = 0; from < o->slots[i].count; from += PIECE)
            *next++ =
                (param_slice){ i, from,
                               bt_size_min(PIECE, o->slots[i].count - from) };
}

static void clear_moments(bt_optimizer *o)
{
    for (size_t i = 0; i < o->slot_count; i++) {
        memset(o->slots[i].first, 0, o->slots[i].count * sizeof(float));
        memset(o->slots[i].second, 0, o->slots[i].count * sizeof(float));
    }
}

bauta_status bt_optimizer_create(bt_optimizer **out,
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
    bt_optimizer *o = bt_alloc_zero(1, sizeof(*o));
    if (!o)
        return bt_fail_memory(err, "an optimizer", sizeof(*o));
    o->options = *options;
    o->slot_count = count;
    for (size_t i = 0; i < count; i++)
        o->piece_count += pieces_of(parameter_count(&parameters[i]));
    take_memory(o, parameters);
    size_t bytes = o->memory.used;
    if (bt_arena_reserve(&o->memory, bytes)) {
        bt_optimizer_free(o);
        return bt_fail_memory(err, "the moments of an optimizer", bytes);
    }
    take_memory(o, parameters);
    split_pieces(o);
    clear_moments(o);
    *out = o;
    return BAUTA_OK;
}

void bt_optimizer_free(bt_optimizer *optimizer)
{
    if (!optimizer)
        return;
    bt_arena_release(&optimizer->memory);
    bt_free(optimizer);
}

/* ---- A step -------------------------------------------------------------- */

typedef struct adamw_step {
    bt_optimizer *optimizer;
    const bt_kernels *kernels;
    bt_adamw decayed, undecayed; /* with weight decay and without */
} adamw_step;

static void square_task(void *job, size_t task, int thread)
{
    (void)thread;
    const adamw_step *s = job;
    const param_slice *p = &s->optimizer->pieces[task];
    const slot *t = &s->optimizer->slots[p->slot];
    s->optimizer->squares[task] =
        s->kernels->squares(t->tensor->grad + p->from, p->count);
}

static void adamw_task(void *job, size_t task, int thread)
{
    (void)thread;
    const adamw_step *s = job;
    const param_slice *p = &s->optimizer->pieces[task];
    const slot *t = &s->optimizer->slots[p->slot];
    s->kernels->adamw(t->decay ? &s->decayed : &s->undecayed,
                      t->tensor->data + p->from, t->first + p->from,
                      t->second + p->from, t->tensor->grad + p->from, p->count);
}

static double norm_of_gradients(adamw_step *s, int threads)
{
    double sum = 0.0;
    bt_parallel_for(threads, s->optimizer->piece_count, square_task, s);
    for (size_t i = 0; i < s->optimizer->piece_count; i++)
        sum += s->optimizer->squares[i];
    return sqrt(sum);
}

/* base^exponent by squaring. The bits of pow() differ between C libraries, and
 * a resumed run must reproduce those of the original run. */
static double power(double base, size_t exponent)
{
    double result = 1.0;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1)
            result *= base;
    return result;
}

/* As in torch.nn.utils.clip_grad_norm_. */
static double clip_scale(const bt_optimizer_options *o, double norm)
{
    double scale = o->max_grad_norm / (norm + 1e-6);
    return o->max_grad_norm > 0.0 && scale < 1.0 ? scale : 1.0;
}

static bt_adamw constants(const bt_optimizer *o, double norm, double rate,
                          double decay)
{
    const bt_optimizer_options *options = &o->options;
    return (bt_adamw){
        .scale = (float)clip_scale(options, norm),
        .keep = (float)(1.0 - rate * decay),
        .beta1 = (float)options->beta1,
        .weight1 = (float)(1.0 - options->beta1),
        .beta2 = (float)options->beta2,
        .weight2 = (float)(1.0 - options->beta2),
        .root = (float)sqrt(1.0 - power(options->beta2, o->steps)),
        .epsilon = (float)options->epsilon,
        .step = (float)(rate / (1.0 - power(options->beta1, o->steps))),
    };
}

double bt_optimizer_step(bt_optimizer *optimizer, const bt_kernels *kernels,
                         int threads, double rate)
{
    adamw_step s = { .optimizer = optimizer, .kernels = kernels };
    double norm = norm_of_gradients(&s, threads);
    if (!isfinite(norm))
        return norm;
    optimizer->steps++;
    s.decayed =
        constants(optimizer, norm, rate, optimizer->options.weight_decay);
    s.undecayed = constants(optimizer, norm, rate, 0.0);
    bt_parallel_for(threads, optimizer->piece_count, adamw_task, &s);
    return norm;
}

static void zero_task(void *job, size_t task, int thread)
{
    (void)thread;
    const bt_optimizer *o = job;
    const param_slice *p = &o->pieces[task];
    memset(o->slots[p->slot].tensor->grad + p->from, 0,
           p->count * sizeof(float));
}

void bt_optimizer_zero(bt_optimizer *optimizer, int threads)
{
    bt_parallel_for(threads, optimizer->piece_count, zero_task, optimizer);
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

float *bt_optimizer_first_moment(const bt_optimizer *optimizer,
                                 size_t parameter)
{
    return optimizer->slots[parameter].first;
}

float *bt_optimizer_second_moment(const bt_optimizer *optimizer,
                                  size_t parameter)
{
    return optimizer->slots[parameter].second;
}
