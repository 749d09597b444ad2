/* SPDX-License-Identifier: Apache-2.0 */
/* pointwise.c - element-wise operations on threads: activations, rotary
 * embeddings, sums, copies, dropout, moving averages, and the accumulation of
 * gradients. */
#include "backend/cpu/cpu.h"
#include "base/size.h"

#include <string.h>

/* ---- Activations -------------------------------------------------------- */

typedef struct act_job {
    const bt_kernels *kernels;
    bt_act act;
    const float *x, *up, *dy;
    float *to;
    bool add;
} act_job;

static void act_forward(void *job, size_t first, size_t count)
{
    const act_job *j = job;
    j->kernels->act(j->act, j->to + first, j->x + first,
                    j->up ? j->up + first : NULL, count, j->add);
}

static void act_backward(void *job, size_t first, size_t count)
{
    const act_job *j = job;
    j->kernels->act_backward(j->act, j->to + first, j->x + first, j->dy + first,
                             j->up ? j->up + first : NULL, count, j->add);
}

bauta_status bt_cpu_act(bt_stream *stream, const bt_act_args *args,
                        bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    BT_CPU_CHECK(stream, act, err, args->x, args->up, args->y);
    act_job job = { .kernels = cpu->kernels,
                    .act = args->act,
                    .x = bt_cpu_f32(args->x),
                    .up = bt_cpu_f32(args->up),
                    .to = bt_cpu_f32(args->y) };
    bt_parallel_ranges(cpu->pool, args->y->rows * args->y->columns,
                       bt_rows_per_task(1), act_forward, &job);
    return BAUTA_OK;
}

bauta_status bt_cpu_act_grad(bt_stream *stream, const bt_act_grad_args *args,
                             bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    size_t count = args->dy->rows * args->dy->columns;
    BT_CPU_CHECK(stream, act_grad, err, args->x, args->up, args->dy, args->dx,
                 args->dup);
    act_job job = { .kernels = cpu->kernels,
                    .act = args->act,
                    .x = bt_cpu_f32(args->x),
                    .up = bt_cpu_f32(args->up),
                    .dy = bt_cpu_f32(args->dy),
                    .to = bt_cpu_f32(args->dx),
                    .add = args->add_dx };
    if (args->dx)
        bt_parallel_ranges(cpu->pool, count, bt_rows_per_task(1), act_backward,
                           &job);
    // dup = act(x) dy
    job.up = job.dy;
    job.to = bt_cpu_f32(args->dup);
    job.add = args->add_dup;
    if (args->dup)
        bt_parallel_ranges(cpu->pool, count, bt_rows_per_task(1), act_forward,
                           &job);
    return BAUTA_OK;
}

/* ---- Rotary embeddings -------------------------------------------------- */

typedef struct rotary_job {
    const bt_kernels *kernels;
    bt_rotary rotary;
} rotary_job;

static void rotate(void *job, size_t first, size_t count)
{
    const rotary_job *j = job;
    j->kernels->rotary(&j->rotary, first, count);
}

bauta_status bt_cpu_rotary(bt_stream *stream, const bt_rotary_args *args,
                           bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    BT_CPU_CHECK(stream, rotary, err, args->x, args->y, args->frequencies);
    rotary_job job = { cpu->kernels,
                       { .heads = args->heads,
                         .dim = args->x->columns / args->heads,
                         .positions = bt_cpu_data(args->positions),
                         .frequencies = bt_cpu_f32(args->frequencies),
                         .x = bt_cpu_f32(args->x),
                         .y = bt_cpu_f32(args->y),
                         .back = args->back,
                         .add = args->add } };
    bt_parallel_ranges(cpu->pool, args->x->rows,
                       bt_rows_per_task(args->x->columns), rotate, &job);
    return BAUTA_OK;
}

/* ---- Sums and copies ---------------------------------------------------- */

typedef struct sum_job {
    const bt_kernels *kernels;
    const float *a, *b;
    float *to;
    float factor; /* of a copy */
    bool add;
} sum_job;

static void sum(void *job, size_t first, size_t count)
{
    const sum_job *j = job;
    j->kernels->add(j->to + first, j->a + first, j->b + first, count);
}

static void copy(void *job, size_t first, size_t count)
{
    const sum_job *j = job;
    j->kernels->scale(j->to + first, j->a + first, j->factor, count, j->add);
}

bauta_status bt_cpu_add(bt_stream *stream, const bt_add_args *args,
                        bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    BT_CPU_CHECK(stream, add, err, args->a, args->b, args->y);
    sum_job job = { .kernels = cpu->kernels,
                    .a = bt_cpu_f32(args->a),
                    .b = bt_cpu_f32(args->b),
                    .to = bt_cpu_f32(args->y) };
    bt_parallel_ranges(cpu->pool, args->y->rows * args->y->columns,
                       bt_rows_per_task(1), sum, &job);
    return BAUTA_OK;
}

bauta_status bt_cpu_scale(bt_stream *stream, const bt_scale_args *args,
                          bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    BT_CPU_CHECK(stream, scale, err, args->x, args->y);
    sum_job job = { .kernels = cpu->kernels,
                    .a = bt_cpu_f32(args->x),
                    .to = bt_cpu_f32(args->y),
                    .factor = args->factor,
                    .add = args->add };
    bt_parallel_ranges(cpu->pool, args->y->rows * args->y->columns,
                       bt_rows_per_task(1), copy, &job);
    return BAUTA_OK;
}

bauta_status bt_cpu_accumulate(bt_stream *stream,
                               const bt_accumulate_args *args, bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    const bt_tensor *x = args->x, *to = args->to;
    BT_CPU_CHECK(stream, accumulate, err, x, to);
    sum_job job = { .kernels = cpu->kernels,
                    .a = bt_cpu_f32(x),
                    .to = bt_cpu_f32(to),
                    .factor = 1.0f,
                    .add = args->add };
    if (bt_tensor_dense(x) && bt_tensor_dense(to))
        bt_parallel_ranges(cpu->pool, x->rows * x->columns, bt_rows_per_task(1),
                           copy, &job);
    else
        bt_grad_accumulate(cpu->pool, job.to, to->stride, job.a, x->stride,
                           x->rows, x->columns, args->add);
    return BAUTA_OK;
}

/* ---- Softcap ------------------------------------------------------------ */

typedef struct softcap_job {
    const bt_kernels *kernels;
    const bt_tensor *x, *dy, *to; /* x: y in the backward pass */
    float cap;
    bool add;
} softcap_job;

static void cap_rows(void *job, size_t first, size_t count)
{
    const softcap_job *j = job;
    for (size_t i = first; i < first + count; i++)
        j->kernels->softcap(bt_cpu_f32(j->to) + i * j->to->stride,
                            bt_cpu_f32(j->x) + i * j->x->stride, j->cap,
                            j->to->columns);
}

static void cap_rows_backward(void *job, size_t first, size_t count)
{
    const softcap_job *j = job;
    for (size_t i = first; i < first + count; i++)
        j->kernels->softcap_backward(bt_cpu_f32(j->to) + i * j->to->stride,
                                     bt_cpu_f32(j->x) + i * j->x->stride,
                                     bt_cpu_f32(j->dy) + i * j->dy->stride,
                                     j->cap, j->to->columns, j->add);
}

bauta_status bt_cpu_softcap(bt_stream *stream, const bt_softcap_args *args,
                            bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    BT_CPU_CHECK(stream, softcap, err, args->x, args->y);
    softcap_job job = {
        .kernels = cpu->kernels, .x = args->x, .to = args->y, .cap = args->cap
    };
    bt_parallel_ranges(cpu->pool, args->y->rows,
                       bt_rows_per_task(args->y->columns), cap_rows, &job);
    return BAUTA_OK;
}

bauta_status bt_cpu_softcap_grad(bt_stream *stream,
                                 const bt_softcap_grad_args *args,
                                 bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    BT_CPU_CHECK(stream, softcap_grad, err, args->y, args->dy, args->dx);
    softcap_job job = { .kernels = cpu->kernels,
                        .x = args->y,
                        .dy = args->dy,
                        .to = args->dx,
                        .cap = args->cap,
                        .add = args->add };
    bt_parallel_ranges(cpu->pool, args->dx->rows,
                       bt_rows_per_task(args->dx->columns), cap_rows_backward,
                       &job);
    return BAUTA_OK;
}

/* ---- Dropout ------------------------------------------------------------ */

typedef struct dropout_job {
    const bt_kernels *kernels;
    bt_dropout dropout;
} dropout_job;

static void drop(void *job, size_t first, size_t count)
{
    const dropout_job *j = job;
    j->kernels->dropout(&j->dropout, first, count);
}

bauta_status bt_cpu_dropout(bt_stream *stream, const bt_dropout_args *args,
                            bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    BT_CPU_CHECK(stream, dropout, err, args->x, args->y);
    dropout_job job = { cpu->kernels,
                        { .columns = args->x->columns,
                          .seed = args->seed,
                          .site = args->site,
                          .below = (uint32_t)((double)args->rate * 0x1p32),
                          .scale = (float)(1 / (1 - (double)args->rate)),
                          .tokens = bt_cpu_data(args->tokens),
                          .x = bt_cpu_f32(args->x),
                          .y = bt_cpu_f32(args->y),
                          .add = args->add } };
    bt_parallel_ranges(cpu->pool, args->x->rows,
                       bt_rows_per_task(args->x->columns), drop, &job);
    return BAUTA_OK;
}

/* ---- Gradient accumulation ---------------------------------------------- */

/* It is limited by memory bandwidth, so the loops are plain. */
enum {
    TASK_ELEMENTS = 1 << 14 /* elements in a task, roughly */
};

typedef struct accumulation {
    float *to;
    size_t to_stride;
    const float *from;
    size_t from_stride;
    size_t rows, columns;
    size_t height; /* rows in a task */
    bool add;
} accumulation;

static size_t ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

static void add_row(float *restrict to, const float *restrict from,
                    size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void run_rows(void *job, size_t task, int thread)
{
    (void)thread;
    const accumulation *a = job;
    size_t first = task * a->height;
    size_t last = bt_size_min(first + a->height, a->rows);
    for (size_t row = first; row < last; row++) {
        float *to = a->to + row * a->to_stride;
        const float *from = a->from + row * a->from_stride;
        if (a->add)
            add_row(to, from, a->columns);
        else
            memcpy(to, from, a->columns * sizeof(float));
    }
}

/* One thread if there is only one task's worth of work. */
static bt_thread_pool *pool_for(const accumulation *a, bt_thread_pool *pool)
{
    return bt_size_mul(a->rows, a->columns) <= TASK_ELEMENTS ? NULL : pool;
}

void bt_grad_accumulate(bt_thread_pool *pool, float *to, size_t to_stride,
                        const float *from, size_t from_stride, size_t rows,
                        size_t columns, bool add)
{
    size_t height = bt_size_max(TASK_ELEMENTS / bt_size_max(columns, 1), 1);
    accumulation a = { to,   to_stride, from,   from_stride,
                       rows, columns,   height, add };
    bt_parallel_for(pool_for(&a, pool), ceil_div(rows, height), run_rows, &a);
}
