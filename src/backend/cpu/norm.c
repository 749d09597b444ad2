/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - layer norm and RMS norm on threads. The kernels treat each head as a
 * row. */
#include "backend/cpu/cpu.h"

typedef struct norm_job {
    const bt_kernels *kernels;
    bt_norm norm;
} norm_job;

static void forward(void *job, size_t first, size_t count)
{
    const norm_job *j = job;
    j->kernels->norm(&j->norm, first, count);
}

static void backward_rows(void *job, size_t first, size_t count)
{
    const norm_job *j = job;
    j->kernels->norm_backward(&j->norm, first, count);
}

static void backward_columns(void *job, size_t first, size_t count)
{
    const norm_job *j = job;
    j->kernels->norm_backward_gain(&j->norm, first, count);
}

bauta_status bt_cpu_norm(bt_stream *stream, const bt_norm_args *args,
                         bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    BT_CPU_CHECK(stream, norm, err, args->x, args->gain, args->bias, args->y,
                 args->residual, args->sum);
    norm_job job = { .kernels = cpu->kernels,
                     .norm = { .kind = args->kind,
                               .rows = args->x->rows * args->heads,
                               .width = args->x->columns / args->heads,
                               .epsilon = args->epsilon,
                               .x = bt_cpu_f32(args->x),
                               .residual = bt_cpu_f32(args->residual),
                               .sum = bt_cpu_f32(args->sum),
                               .gain = bt_cpu_f32(args->gain),
                               .bias = bt_cpu_f32(args->bias),
                               .mean = bt_cpu_f32(args->mean),
                               .scale = bt_cpu_f32(args->scale),
                               .y = bt_cpu_f32(args->y) } };
    bt_parallel_ranges(cpu->pool, job.norm.rows,
                       bt_rows_per_task(job.norm.width), forward, &job);
    return BAUTA_OK;
}

bauta_status bt_cpu_norm_grad(bt_stream *stream, const bt_norm_grad_args *args,
                              bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    BT_CPU_CHECK(stream, norm_grad, err, args->x, args->gain, args->dy,
                 args->dx, args->dgain, args->dbias);
    norm_job job = { .kernels = cpu->kernels,
                     .norm = { .kind = args->kind,
                               .rows = args->x->rows * args->heads,
                               .width = args->x->columns / args->heads,
                               .epsilon = args->epsilon,
                               .x = bt_cpu_f32(args->x),
                               .gain = bt_cpu_f32(args->gain),
                               .mean = bt_cpu_f32(args->mean),
                               .scale = bt_cpu_f32(args->scale),
                               .dy = bt_cpu_f32(args->dy),
                               .dx = bt_cpu_f32(args->dx),
                               .dgain = bt_cpu_f32(args->dgain),
                               .dbias = bt_cpu_f32(args->dbias),
                               .add_dx = args->add_dx,
                               .add_dgain = args->add_dgain,
                               .add_dbias = args->add_dbias } };
    if (args->dx)
        bt_parallel_ranges(cpu->pool, job.norm.rows,
                           bt_rows_per_task(job.norm.width), backward_rows,
                           &job);
    if (args->dgain || args->dbias)
        bt_parallel_ranges(
            cpu->pool, job.norm.width,
            bt_columns_per_task(bt_cpu_threads(cpu), job.norm.width),
            backward_columns, &job);
    return BAUTA_OK;
}
