/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c - linear layers on a GPU, and their gradients.
 *
 *     y  = x W^T    NT         transposed: y  = x W      NN
 *     dx = dy W     NN                     dx = dy W^T   NT
 *     dW = dy^T x   TN                     dW = x^T dy   TN
 *
 * Operands are both bfloat16 or both float32. bfloat16 products may have
 * float32 results: gradients of parameters, and logits. */
#include "backend/cuda/gemm_f32.h"
#include "backend/cuda/stream.h"
#include "base/error.h"
#include "base/size.h"

#include <string.h>

/* out = a b + bias, with `add` plus what out holds, with `has_act` its
 * activation, or with a slope times act' of that. */
typedef struct linear_product {
    bt_op op; /* for error messages */
    bt_gemm_form form;
    const bt_tensor *a, *b, *bias, *out;
    bool add, has_act;
    bt_act act;
    const bt_tensor *pre, *slope; /* or NULL */
    bool only; /* of its operation: it may take along what the stream holds */
} linear_product;

static size_t terms(const linear_product *p)
{
    return p->form == BT_GEMM_TN ? p->a->rows : p->a->columns;
}

/* ---- float32 ----------------------------------------------------------- */

static bauta_status run_f32(bt_cuda_stream *stream, const linear_product *p,
                            bauta_error *err)
{
    bt_cuda_gemm_f32_args args = {
        .form = p->form,
        .m = p->out->rows,
        .n = p->out->columns,
        .k = terms(p),
        .a = bt_cuda_address(p->a),
        .b = bt_cuda_address(p->b),
        .lda = p->a->stride,
        .ldb = p->b->stride,
        .out = bt_cuda_address(p->out),
        .ldo = p->out->stride,
        .bias = bt_cuda_address(p->bias),
        .add = p->add,
    };
    return bt_cuda_gemm_f32(&args, stream->queue, err);
}

/* ---- bfloat16 ---------------------------------------------------------- */

/* The kernels need matrices that start at multiples of 16 bytes and whose rows
 * are a multiple of 8 elements apart. Others, such as logits of an odd
 * vocabulary that are stored densely, are copied to and from the scratch
 * memory, which costs time and changes no bit. */
typedef struct padded_matrix {
    const bt_tensor *given; /* NULL: there is none */
    void *at;
    size_t stride, bytes; /* bytes: of the copy; 0: there is none */
} padded_matrix;

static padded_matrix padded_of(const bt_tensor *t)
{
    if (!t || !t->buffer)
        return (padded_matrix){ 0 };
    padded_matrix p = { t, bt_cuda_address(t), t->stride, 0 };
    size_t stride = bt_size_round(t->columns, 8);
    if (t->rows <= 1) // any stride will do
        p.stride = stride;
    if ((uintptr_t)p.at % 16 == 0 && p.stride % 8 == 0)
        return p;
    p.stride = stride;
    p.bytes = bt_size_round(
        bt_size_mul(t->rows, stride * bt_dtype_size(t->dtype)), 256);
    return p;
}

static bauta_status padded_copy(bt_cuda_stream *stream, const padded_matrix *p,
                                bool back, bauta_error *err)
{
    const bt_tensor *t = p->given;
    bt_cuda_out copy = { p->at, p->stride }, given = bt_cuda_write(t);
    bt_cuda_out to = back ? given : copy, from = back ? copy : given;
    return bt_cuda_copy(t->rows, t->columns, to, t->dtype,
                        (bt_cuda_in){ from.data, from.stride }, t->dtype,
                        stream->queue, err);
}

enum { A, B, BIAS, OUT, MATRICES };

/* Find places for the copies, and make those of what is read. */
static bauta_status pad(bt_cuda_stream *stream, padded_matrix *all,
                        bool read_out, bauta_error *err)
{
    size_t bytes = 0;
    void *memory = NULL;
    for (int i = 0; i < MATRICES; i++)
        bytes = bt_size_add(bytes, all[i].bytes);
    if (!bytes)
        return BAUTA_OK;
    bauta_status status = bt_cuda_stream_scratch(stream, &memory, bytes, err);
    for (int i = 0; i < MATRICES && !status; i++) {
        if (!all[i].bytes)
            continue;
        all[i].at = memory;
        memory = (char *)memory + all[i].bytes;
        if (i != OUT || read_out)
            status = padded_copy(stream, &all[i], false, err);
    }
    return status;
}

/* The workspace of a product, whose first bytes are zero. */
static bauta_status workspace(bt_cuda_stream *stream,
                              const bt_cuda_gemm_args *args, bauta_error *err)
{
    bool grown;
    size_t bytes = bt_size_max(bt_cuda_gemm_workspace(args), BT_GEMM_ZEROS);
    bauta_status status =
        bt_cuda_block_reserve(&stream->products, bytes, &grown, err);
    if (!status && grown)
        status = bt_cuda_stream_fill(stream, stream->products.memory, 0,
                                     BT_GEMM_ZEROS, err);
    return status;
}

static bt_cuda_gemm_args gemm_of(const linear_product *p,
                                 const padded_matrix *all)
{
    bool out_f32 = p->out->dtype == BAUTA_FLOAT32;
    return (bt_cuda_gemm_args){
        .form = p->form,
        .m = p->out->rows,
        .n = p->out->columns,
        .k = terms(p),
        .a = all[A].at,
        .b = all[B].at,
        .lda = all[A].stride,
        .ldb = all[B].stride,
        .out = all[OUT].at,
        .ldo = all[OUT].stride,
        .out_f32 = out_f32,
        .accumulate = p->add && out_f32,
        .bias = all[BIAS].at,
        .residual = p->add && !out_f32 ? all[OUT].at : NULL,
        .has_act = p->has_act,
        .act = p->act,
        .pre = bt_cuda_address(p->pre),
        .ld_pre = p->pre ? p->pre->stride : 0,
        .slope = bt_cuda_address(p->slope),
        .ld_slope = p->slope ? p->slope->stride : 0,
    };
}

static bauta_status run_bf16(bt_cuda_stream *stream, const linear_product *p,
                             bauta_error *err)
{
    padded_matrix all[MATRICES] = { [A] = padded_of(p->a),
                                    [B] = padded_of(p->b),
                                    [BIAS] = padded_of(p->bias),
                                    [OUT] = padded_of(p->out) };
    bt_cuda_gemm_args args = gemm_of(p, all);
    // A step writes no weights, and outside of one the optimizer may.
    args.b_ready = p->op == BT_OP_linear && !all[B].bytes &&
                   bt_cuda_stepping(stream->queue);
    bool padded =
        all[A].bytes || all[B].bytes || all[BIAS].bytes || all[OUT].bytes;
    bool taken = p->only && !padded && bt_cuda_held_take(stream, &args);
    bauta_status status = taken ? BAUTA_OK : bt_cuda_held_queue(stream, err);
    if (!status)
        status = pad(stream, all, p->add, err);
    if (status)
        return status;
    if (!taken) {
        bool b_ready = args.b_ready;
        args = gemm_of(p, all);
        args.b_ready = b_ready;
    }
    status = workspace(stream, &args, err);
    if (!status)
        status = bt_cuda_hold_product(stream, &args, err);
    if (!status && padded)
        status = bt_cuda_held_queue(stream, err);
    if (!status && all[OUT].bytes)
        status = padded_copy(stream, &all[OUT], true, err);
    return status;
}

/* ---- Products ---------------------------------------------------------- */

static bool is_type(const bt_tensor *t, bauta_dtype dtype)
{
    return !t || t->dtype == dtype;
}

static bauta_status run(bt_cuda_stream *stream, const linear_product *p,
                        bauta_error *err)
{
    const bt_tensor *const all[] = { p->a, p->b, p->bias, p->out };
    bauta_dtype type = p->a->dtype;
    if (p->b->packed)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "the device \"%s\" has no %s for packed weights",
                       stream->base.device, bt_op_name(p->op));
    bauta_status status =
        bt_cuda_need_here(stream, p->op, all, BT_LEN(all), err);
    if (status)
        return status;
    bool known = is_type(p->b, type) && is_type(p->bias, type);
    if (known && type == BAUTA_FLOAT32 && is_type(p->out, type)) {
        status = bt_cuda_held_queue(stream, err);
        return status ? status : run_f32(stream, p, err);
    }
    if (known && type == BAUTA_BFLOAT16 &&
        (is_type(p->out, type) || is_type(p->out, BAUTA_FLOAT32)))
        return run_bf16(stream, p, err);
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "the device \"%s\" has no %s of %s and %s to %s",
                   stream->base.device, bt_op_name(p->op), bt_dtype_name(type),
                   bt_dtype_name(p->b->dtype), bt_dtype_name(p->out->dtype));
}

/* Whether `next` begins in the same matrix where `t` ends: in the next column,
 * or in the next row. */
static bool follows(const bt_tensor *next, const bt_tensor *t, bool columns)
{
    if (!next || !t)
        return !next && !t;
    return next->buffer && next->buffer == t->buffer &&
           next->dtype == t->dtype && next->stride == t->stride &&
           next->offset ==
               t->offset + (columns ? t->columns : t->rows * t->stride);
}

/* A bias is one row, whose stride means nothing. */
static bool bias_follows(const bt_tensor *next, const bt_tensor *t)
{
    if (!next || !t)
        return !next && !t;
    return next->buffer && next->buffer == t->buffer &&
           next->dtype == t->dtype && next->offset == t->offset + t->columns;
}

/* The layers from `first` on that are one layer in memory: adjacent weights,
 * biases and results. Returns how many there are. */
static size_t merge(const bt_linear_args *args, size_t first, bt_tensor *w,
                    bt_tensor *bias, bt_tensor *y)
{
    const bt_linear_layer *l = &args->layers[first];
    size_t count = 1;
    *w = *l->w;
    *bias = l->bias ? *l->bias : (bt_tensor){ 0 };
    *y = *l->y;
    for (size_t i = first + 1; i < args->count; i++, count++) {
        const bt_linear_layer *next = &args->layers[i], *last = next - 1;
        if (!follows(next->w, last->w, args->transposed) ||
            !follows(next->y, last->y, true) ||
            !bias_follows(next->bias, last->bias))
            break;
        *(args->transposed ? &w->columns : &w->rows) += next->y->columns;
        bias->columns += next->y->columns;
        y->columns += next->y->columns;
    }
    return count;
}

/* Whether the product's kernel carries out its activation or slope: fast, and
 * with matrices that need no copies. */
static bool ends_in_product(const linear_product *p)
{
    const bt_tensor *const sides[] = { p->out, p->pre, p->slope };
    padded_matrix all[MATRICES] = { [OUT] = padded_of(p->out) };
    bt_cuda_gemm_args args = gemm_of(p, all);
    if (p->a->dtype != BAUTA_BFLOAT16 || p->out->dtype != BAUTA_BFLOAT16)
        return false;
    for (size_t i = 0; i < BT_LEN(sides); i++)
        if (sides[i] && padded_of(sides[i]).bytes)
            return false;
    return bt_cuda_gemm_fuses(&args);
}

/* A layer and its activation. */
static bauta_status run_act(bt_cuda_stream *stream, linear_product *p,
                            bauta_error *err)
{
    BT_CUDA_NEED_SAME(stream, err, linear, p->a, p->out, p->pre);
    if (ends_in_product(p))
        return run(stream, p, err);
    linear_product plain = *p;
    plain.has_act = false;
    plain.pre = NULL;
    plain.out = p->pre ? p->pre : p->out;
    bauta_status status = run(stream, &plain, err);
    bt_act_args args = { p->act, plain.out, NULL, p->out };
    return status ? status : bt_cuda_op_act(stream, &args, err);
}

/* A gradient and the slope of an activation. */
static bauta_status run_slope(bt_cuda_stream *stream, linear_product *p,
                              bauta_error *err)
{
    BT_CUDA_NEED_SAME(stream, err, linear_dx, p->a, p->out, p->slope);
    if (ends_in_product(p))
        return run(stream, p, err);
    linear_product plain = *p;
    plain.slope = NULL;
    bauta_status status = run(stream, &plain, err);
    bt_act_grad_args args = {
        .act = p->act, .x = p->slope, .dy = p->out, .dx = p->out
    };
    return status ? status : bt_cuda_op_act_grad(stream, &args, err);
}

bauta_status bt_cuda_op_linear(bt_cuda_stream *stream,
                               const bt_linear_args *args, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < args->count && !status;) {
        bt_tensor w, bias, y;
        const bt_tensor *given = args->layers[i].bias;
        size_t first = i;
        i += merge(args, i, &w, &bias, &y);
        linear_product p = { .op = BT_OP_linear,
                             .form = args->transposed ? BT_GEMM_NN : BT_GEMM_NT,
                             .a = args->x,
                             .b = &w,
                             .bias = given ? &bias : NULL,
                             .out = &y,
                             .has_act = args->has_act,
                             .act = args->act,
                             .pre = args->pre,
                             .only = first == 0 && i == args->count };
        status =
            args->has_act ? run_act(stream, &p, err) : run(stream, &p, err);
    }
    return status;
}

bauta_status bt_cuda_op_linear_dx(bt_cuda_stream *stream,
                                  const bt_linear_dx_args *args,
                                  bauta_error *err)
{
    linear_product p = { .op = BT_OP_linear_dx,
                         .form = args->transposed ? BT_GEMM_NT : BT_GEMM_NN,
                         .a = args->dy,
                         .b = args->w,
                         .out = args->dx,
                         .add = args->add,
                         .act = args->act,
                         .slope = args->slope };
    return args->slope ? run_slope(stream, &p, err) : run(stream, &p, err);
}

bauta_status bt_cuda_op_linear_dw(bt_cuda_stream *stream,
                                  const bt_linear_dw_args *args,
                                  bauta_error *err)
{
    linear_product p = { .op = BT_OP_linear_dw,
                         .form = BT_GEMM_TN,
                         .a = args->transposed ? args->x : args->dy,
                         .b = args->transposed ? args->dy : args->x,
                         .out = args->dw,
                         .add = args->add };
    return run(stream, &p, err);
}

bauta_status bt_cuda_op_sum_rows(bt_cuda_stream *stream,
                                 const bt_sum_rows_args *args, bauta_error *err)
{
    const bt_tensor *x = args->x;
    void *memory = NULL;
    if (args->to->dtype != BAUTA_FLOAT32)
        return bt_unsupported(&stream->base, BT_OP_sum_rows, args->to->dtype,
                              err);
    BT_CUDA_NEED_HERE(stream, err, sum_rows, x, args->to);
    bauta_status status = bt_cuda_stream_scratch(
        stream, &memory, bt_cuda_sum_rows_workspace(x->rows, x->columns), err);
    if (status)
        return status;
    return bt_cuda_sum_rows(x->rows, x->columns, x->dtype,
                            bt_cuda_address(args->to), bt_cuda_read(x),
                            args->add, memory, stream->queue, err);
}
