/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c - linear layers and their gradients as matrix products.
 *
 * Every element is one chain of fused multiply-adds in ascending order of
 * inputs, outputs or rows; dbias is a chain of additions over rows. With `add`
 * a chain starts from the value in memory, else from 0. So neither processing
 * the rows in several parts nor threads, which split the elements, change a
 * bit. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
#include "base/size.h"

#include <string.h>

/* Written in place, from values that were read before: a struct that is made
 * elsewhere and then copied costs as much as a small product. */
static void gemm_init(bt_gemm *gemm, const bt_tensor *x,
                      const bt_linear_layer *l, bool transposed)
{
    const float *a = bt_cpu_f32(x), *bias = bt_cpu_f32(l->bias);
    const bt_tensor *w = l->w, *y = l->y;
    const float *b = w->packed ? NULL : bt_cpu_f32(w);
    float *c = bt_cpu_f32(y);
    *gemm = (bt_gemm){ .m = x->rows,
                       .n = y->columns,
                       .k = x->columns,
                       .a = a,
                       .lda = x->stride,
                       .b = b,
                       .ldb = w->stride,
                       .trans_b = !transposed,
                       .packed = w->packed,
                       .c = c,
                       .ldc = y->stride,
                       .bias = bias };
}

/* A layer and its activation: one product, or the parts where it has few rows.
 */
static bauta_status linear_act(bt_stream *stream, const bt_linear_args *args,
                               bauta_error *err)
{
    bt_linear_layer layer = args->layers[0];
    const bt_tensor *y = layer.y;
    bt_gemm gemm;
    BT_CPU_CHECK(stream, linear, err, args->x, layer.w, layer.bias, y,
                 args->pre);
    gemm_init(&gemm, args->x, &layer, args->transposed);
    if (bt_gemm_blocked(bt_cpu_of(stream), &gemm)) {
        gemm.has_act = true;
        gemm.act = args->act;
        gemm.pre = bt_cpu_f32(args->pre);
        return bt_gemm_f32(bt_cpu_of(stream), &gemm, err);
    }
    if (args->pre)
        gemm.c = bt_cpu_f32(args->pre);
    bt_act_args act = { args->act, args->pre ? args->pre : y, NULL, y };
    bauta_status status = bt_gemm_f32(bt_cpu_of(stream), &gemm, err);
    return status ? status : bt_cpu_act(stream, &act, err);
}

bauta_status bt_cpu_linear(bt_stream *stream, const bt_linear_args *args,
                           bauta_error *err)
{
    bt_gemm gemms[BT_LINEAR_LAYERS_MAX];
    if (args->has_act)
        return linear_act(stream, args, err);
    for (size_t i = 0; i < args->count; i++) {
        const bt_linear_layer *l = &args->layers[i];
        BT_CPU_CHECK(stream, linear, err, args->x, l->w, l->bias, l->y);
        gemm_init(&gemms[i], args->x, l, args->transposed);
    }
    return bt_gemm_grouped_f32(bt_cpu_of(stream), gemms, args->count, err);
}

bauta_status bt_cpu_linear_dx(bt_stream *stream, const bt_linear_dx_args *args,
                              bauta_error *err)
{
    const bt_tensor *dy = args->dy, *w = args->w, *dx = args->dx;
    BT_CPU_CHECK(stream, linear_dx, err, dy, w, dx, args->slope);
    if (w->packed)
        return bt_unsupported(stream, BT_OP_linear_dx, w->packed->type, err);
    bt_gemm gemm = { .m = dy->rows,
                     .n = dx->columns,
                     .k = dy->columns,
                     .a = bt_cpu_f32(dy),
                     .lda = dy->stride,
                     .b = bt_cpu_f32(w),
                     .ldb = w->stride,
                     .trans_b = args->transposed,
                     .c = bt_cpu_f32(dx),
                     .ldc = dx->stride,
                     .add = args->add };
    bool fused = args->slope && bt_gemm_blocked(bt_cpu_of(stream), &gemm);
    if (fused) {
        gemm.has_act = true;
        gemm.act = args->act;
        gemm.slope = bt_cpu_f32(args->slope);
    }
    bauta_status status = bt_gemm_f32(bt_cpu_of(stream), &gemm, err);
    if (status || !args->slope || fused)
        return status;
    bt_act_grad_args grad = {
        .act = args->act, .x = args->slope, .dy = dx, .dx = dx
    };
    return bt_cpu_act_grad(stream, &grad, err);
}

bauta_status bt_cpu_linear_dw(bt_stream *stream, const bt_linear_dw_args *args,
                              bauta_error *err)
{
    BT_CPU_CHECK(stream, linear_dw, err, args->x, args->dy, args->dw);
    const bt_tensor *a = args->transposed ? args->x : args->dy;
    const bt_tensor *b = args->transposed ? args->dy : args->x;
    bt_gemm gemm = { .m = a->columns,
                     .n = b->columns,
                     .k = a->rows,
                     .a = bt_cpu_f32(a),
                     .lda = a->stride,
                     .trans_a = true,
                     .b = bt_cpu_f32(b),
                     .ldb = b->stride,
                     .c = bt_cpu_f32(args->dw),
                     .ldc = args->dw->stride,
                     .add = args->add };
    return bt_gemm_grouped_f32(bt_cpu_of(stream), &gemm, 1, err);
}

typedef struct column_sum_job {
    const bt_kernels *kernels;
    const bt_tensor *x;
    float *to;
    bool add;
} column_sum_job;

static void sum_columns(void *job, size_t first, size_t count)
{
    const column_sum_job *j = job;
    if (!j->add)
        memset(j->to + first, 0, count * sizeof(float));
    j->kernels->column_sum(j->to + first, bt_cpu_f32(j->x) + first,
                           j->x->stride, j->x->rows, count);
}

bauta_status bt_cpu_sum_rows(bt_stream *stream, const bt_sum_rows_args *args,
                             bauta_error *err)
{
    enum { STRIPE = 128, SMALL = 1 << 14 }; // columns of a task; elements
    const bt_cpu *cpu = bt_cpu_of(stream);
    const bt_tensor *x = args->x;
    BT_CPU_CHECK(stream, sum_rows, err, x, args->to);
    column_sum_job job = { cpu->kernels, x, bt_cpu_f32(args->to), args->add };
    bool small = bt_size_mul(x->rows, x->columns) <= SMALL;
    bt_parallel_ranges(small ? NULL : cpu->pool, x->columns, STRIPE,
                       sum_columns, &job);
    return BAUTA_OK;
}
