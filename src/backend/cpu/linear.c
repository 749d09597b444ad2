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

bauta_status bt_cpu_linear(bt_stream *stream, const bt_linear_args *args,
                           bauta_error *err)
{
    bt_gemm gemms[BT_LINEAR_LAYERS_MAX];
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
    BT_CPU_CHECK(stream, linear_dx, err, dy, w, dx);
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
    return bt_gemm_grouped_f32(bt_cpu_of(stream), &gemm, 1, err);
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

bauta_status bt_cpu_sum_rows(bt_stream *stream, const bt_sum_rows_args *args,
                             bauta_error *err)
{
    BT_CPU_CHECK(stream, sum_rows, err, args->x, args->to);
    bt_grad_accumulate_rows(bt_cpu_of(stream)->pool, bt_cpu_f32(args->to),
                            bt_cpu_f32(args->x), args->x->stride, args->x->rows,
                            args->x->columns, args->add);
    return BAUTA_OK;
}
