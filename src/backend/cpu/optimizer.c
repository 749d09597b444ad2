/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.c - a step of AdamW over all parameters, and moving averages.
 *
 * Parameters are cut into pieces of BT_ADAMW_PIECE elements, which are the
 * tasks. */
#include "backend/cpu/cpu.h"
#include "base/error.h"
#include "base/size.h"

#include <math.h>

/* Elements `from` to `from + count - 1` of a slot. */
typedef struct adamw_piece {
    const bt_adamw_slot *slot;
    size_t from, count;
} adamw_piece;

typedef struct adamw_job {
    const bt_kernels *kernels;
    const bt_adamw_args *args;
    size_t count;
    adamw_piece *pieces;         /* (count) */
    double *squares;             /* (count) */
    bt_adamw decayed, undecayed; /* with weight decay and without */
} adamw_job;

/* ---- Pieces ------------------------------------------------------------- */

static size_t elements_of(const bt_adamw_slot *slot)
{
    return slot->parameter->rows * slot->parameter->columns;
}

static bauta_status slots_check(const bt_stream *stream,
                                const bt_adamw_args *args, bauta_error *err)
{
    for (size_t i = 0; i < args->count; i++) {
        const bt_adamw_slot *s = &args->slots[i];
        bt_tensor grad = bt_tensor_grad(s->parameter);
        if (s->master.buffer)
            return bt_unsupported(stream, BT_OP_adamw, s->parameter->dtype,
                                  err);
        BT_CPU_CHECK(stream, adamw, err, s->parameter, &grad, &s->first,
                     &s->second);
    }
    return BAUTA_OK;
}

static bauta_status cut(adamw_job *job, bt_arena *workspace, bauta_error *err)
{
    const bt_adamw_args *args = job->args;
    for (size_t i = 0; i < args->count; i++)
        job->count += elements_of(&args->slots[i]) / BT_ADAMW_PIECE +
                      (elements_of(&args->slots[i]) % BT_ADAMW_PIECE != 0);
    size_t bytes = bt_size_round(job->count * sizeof(*job->pieces), BT_ALIGN) +
                   bt_size_round(job->count * sizeof(*job->squares), BT_ALIGN);
    if (bt_arena_reserve(workspace, bytes))
        return bt_fail_memory(err, "the workspace of adamw", bytes);
    job->pieces = bt_arena_alloc(workspace, job->count, sizeof(*job->pieces));
    job->squares = bt_arena_alloc(workspace, job->count, sizeof(*job->squares));
    adamw_piece *next = job->pieces;
    for (size_t i = 0; i < args->count; i++) {
        size_t all = elements_of(&args->slots[i]);
        for (size_t from = 0; from < all; from += BT_ADAMW_PIECE)
            *next++ = (adamw_piece){ &args->slots[i], from,
                                     bt_size_min(BT_ADAMW_PIECE, all - from) };
    }
    return BAUTA_OK;
}

/* ---- A step ------------------------------------------------------------- */

static const float *grad_of(const bt_tensor *parameter)
{
    return (const float *)parameter->grad->memory + parameter->grad_offset;
}

static void square_task(void *job, size_t task, int thread)
{
    (void)thread;
    const adamw_job *j = job;
    const adamw_piece *p = &j->pieces[task];
    j->squares[task] =
        j->kernels->squares(grad_of(p->slot->parameter) + p->from, p->count);
}

static void adamw_task(void *job, size_t task, int thread)
{
    (void)thread;
    const adamw_job *j = job;
    const adamw_piece *p = &j->pieces[task];
    const bt_adamw_slot *s = p->slot;
    j->kernels->adamw(s->decay ? &j->decayed : &j->undecayed,
                      bt_cpu_f32(s->parameter) + p->from,
                      bt_cpu_f32(&s->first) + p->from,
                      bt_cpu_f32(&s->second) + p->from,
                      grad_of(s->parameter) + p->from, p->count);
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

static bt_adamw constants(const bt_adamw_args *args, double decay)
{
    const bt_optimizer_options *o = args->options;
    double rate = args->learning_rate;
    return (bt_adamw){
        .scale = (float)clip_scale(o, *args->norm),
        .keep = (float)(1.0 - rate * decay),
        .beta1 = (float)o->beta1,
        .weight1 = (float)(1.0 - o->beta1),
        .beta2 = (float)o->beta2,
        .weight2 = (float)(1.0 - o->beta2),
        .root = (float)sqrt(1.0 - power(o->beta2, args->step)),
        .epsilon = (float)o->epsilon,
        .step = (float)(rate / (1.0 - power(o->beta1, args->step))),
    };
}

bauta_status bt_cpu_adamw(bt_stream *stream, const bt_adamw_args *args,
                          bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    adamw_job job = { .kernels = cpu->kernels, .args = args };
    bauta_status status = slots_check(stream, args, err);
    if (!status)
        status = cut(&job, &cpu->workspace, err);
    if (status)
        return status;
    double sum = 0.0;
    bt_parallel_for(cpu->pool, job.count, square_task, &job);
    if (args->square_sum)
        status = args->square_sum->add(args->square_sum->user, job.squares,
                                       job.count, &sum, err);
    for (size_t i = 0; !args->square_sum && i < job.count; i++)
        sum += job.squares[i];
    if (status)
        return status;
    *args->norm = sqrt(sum);
    if (!isfinite(*args->norm))
        return BAUTA_OK;
    job.decayed = constants(args, args->options->weight_decay);
    job.undecayed = constants(args, 0.0);
    bt_parallel_for(cpu->pool, job.count, adamw_task, &job);
    return BAUTA_OK;
}

/* ---- Moving averages ---------------------------------------------------- */

typedef struct pair_job {
    float *a, *b;
    float keep, take;
} pair_job;

static void average(void *job, size_t first, size_t count)
{
    const pair_job *j = job;
    for (size_t i = first; i < first + count; i++)
        j->a[i] = j->keep * j->a[i] + j->take * j->b[i];
}

static void exchange(void *job, size_t first, size_t count)
{
    const pair_job *j = job;
    for (size_t i = first; i < first + count; i++) {
        float x = j->b[i];
        j->b[i] = j->a[i];
        j->a[i] = x;
    }
}

bauta_status bt_cpu_ema(bt_stream *stream, const bt_ema_args *args,
                        bauta_error *err)
{
    BT_CPU_CHECK(stream, ema, err, args->average, args->x);
    pair_job job = { bt_cpu_f32(args->average), bt_cpu_f32(args->x), args->keep,
                     args->take };
    bt_parallel_ranges(bt_cpu_of(stream)->pool,
                       args->x->rows * args->x->columns, bt_rows_per_task(1),
                       average, &job);
    return BAUTA_OK;
}

bauta_status bt_cpu_swap(bt_stream *stream, const bt_swap_args *args,
                         bauta_error *err)
{
    BT_CPU_CHECK(stream, swap, err, args->a, args->b);
    pair_job job = { .a = bt_cpu_f32(args->a), .b = bt_cpu_f32(args->b) };
    bt_parallel_ranges(bt_cpu_of(stream)->pool,
                       args->a->rows * args->a->columns, bt_rows_per_task(1),
                       exchange, &job);
    return BAUTA_OK;
}
