/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.c - rows of a table by id, and their gradient.
 *
 * In the gradient each thread takes some columns and adds all rows in order, so
 * no bit depends on the number of threads. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/packed_weight.h"
#include "base/size.h"

typedef struct embedding_job {
    const bt_kernels *kernels;
    const bt_embedding_args *args;
    const uint32_t *ids;
} embedding_job;

static void rows_read(void *job, size_t first, size_t count)
{
    const embedding_job *j = job;
    const bt_tensor *table = j->args->table, *y = j->args->y;
    for (size_t i = first; i < first + count; i++) {
        float *to = bt_cpu_f32(y) + i * y->stride;
        if (table->packed)
            bt_packed_weight_row(to, table->packed, j->ids[i], j->args->scale);
        else
            j->kernels->scale(to, bt_cpu_f32(table) + j->ids[i] * table->stride,
                              j->args->scale, y->columns, false);
    }
}

bauta_status bt_cpu_embedding(bt_stream *stream, const bt_embedding_args *args,
                              bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    BT_CPU_CHECK(stream, embedding, err, args->table, args->y);
    embedding_job job = { cpu->kernels, args, bt_cpu_data(args->ids) };
    bt_parallel_ranges(cpu->pool, args->y->rows,
                       bt_rows_per_task(args->y->columns), rows_read, &job);
    return BAUTA_OK;
}

typedef struct gradient_job {
    const bt_kernels *kernels;
    const bt_embedding_grad_args *args;
    const uint32_t *ids;
} gradient_job;

static void columns_add(void *job, size_t first, size_t count)
{
    const gradient_job *j = job;
    const bt_embedding_grad_args *a = j->args;
    for (size_t i = 0; i < a->dy->rows; i++)
        if (j->ids[i] != a->padding_id)
            j->kernels->scale(bt_cpu_f32(a->dtable) +
                                  j->ids[i] * a->dtable->stride + first,
                              bt_cpu_f32(a->dy) + i * a->dy->stride + first,
                              a->scale, count, true);
}

bauta_status bt_cpu_embedding_grad(bt_stream *stream,
                                   const bt_embedding_grad_args *args,
                                   bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    BT_CPU_CHECK(stream, embedding_grad, err, args->dy, args->dtable);
    gradient_job job = { cpu->kernels, args, bt_cpu_data(args->ids) };
    bauta_status status =
        args->add ? BAUTA_OK : bt_tensor_zero(stream, args->dtable, err);
    size_t columns = args->dy->columns;
    bt_parallel_ranges(cpu->pool, columns,
                       bt_columns_per_task(bt_cpu_threads(cpu), columns),
                       columns_add, &job);
    return status;
}

enum { SCATTER_ROWS = 16 /* in a task */ };

typedef struct scatter_job {
    const bt_scatter_add_args *args;
    const uint32_t *index;
} scatter_job;

static void rows_scatter(void *job, size_t first, size_t count)
{
    const scatter_job *j = job;
    const bt_tensor *x = j->args->x, *to = j->args->to;
    for (size_t i = first; i < first + count; i++)
        bt_grad_accumulate(NULL, bt_cpu_f32(to) + j->index[i] * to->stride,
                           to->stride, bt_cpu_f32(x) + i * x->stride, x->stride,
                           1, x->columns, true);
}

bauta_status bt_cpu_scatter_add(bt_stream *stream,
                                const bt_scatter_add_args *args,
                                bauta_error *err)
{
    BT_CPU_CHECK(stream, scatter_add, err, args->x, args->to);
    scatter_job job = { args, bt_cpu_data(args->index) };
    bt_parallel_ranges(bt_cpu_of(stream)->pool, args->x->rows, SCATTER_ROWS,
                       rows_scatter, &job);
    return BAUTA_OK;
}
