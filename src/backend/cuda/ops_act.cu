/* SPDX-License-Identifier: Apache-2.0 */
/* ops_act.cu - activations, gated or not, forward and backward. One thread to
 * eight elements; see ops_device.h.
 *
 * float32 uses the CPU's functions (activations.h). They take some forty steps,
 * which memory does not hide for bfloat16. There they are those of the
 * products' end (gemm_end.h), with ex2.approx and rcp.approx, so that a product
 * which ends with an activation has the same bits. */
#include "backend/cuda/ops_device.h"

#include "backend/cuda/gemm_end.h"

template <class T, bt_act ACT> BT_DEVICE float value_of(float x)
{
    if (sizeof(T) == sizeof(bf16))
        return act_of(ACT, x);
    return ACT == BT_ACT_RELU        ? bt_relu(x)
           : ACT == BT_ACT_GELU_ERF  ? bt_gelu_erf(x)
           : ACT == BT_ACT_GELU_TANH ? bt_gelu_tanh(x)
                                     : bt_silu(x);
}

template <class T, bt_act ACT> BT_DEVICE float derivative_of(float x)
{
    if (ACT == BT_ACT_RELU)
        return bt_relu_grad(x);
    if (sizeof(T) == sizeof(bf16))
        return act_slope_of(ACT, x);
    return ACT == BT_ACT_GELU_ERF    ? bt_gelu_erf_grad(x)
           : ACT == BT_ACT_GELU_TANH ? bt_gelu_tanh_grad(x)
                                     : bt_silu_grad(x);
}

/* ---- forward ------------------------------------------------------------- */

template <class T, bt_act ACT> struct act_f {
    matrix<const T> x, by;
    matrix<T> y;
    static const int unit = 8;
    struct held {
        octet<T> x, by;
    };

    __device__ __forceinline__ void load(held &h, place8 p, bool wide) const
    {
        h.x = read8(at8(x, p), p.left, wide);
        if (by.data)
            h.by = read8(at8(by, p), p.left, wide);
    }

    __device__ __forceinline__ void store(held &h, place8 p, bool wide) const
    {
        float v[8], w[8];
        unpack8(v, h.x);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = value_of<T, ACT>(v[i]);
        if (by.data) {
            unpack8(w, h.by);
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = v[i] * w[i];
        }
        store8(at8(y, p), v, p.left, wide);
    }
};

template <class T, bt_act ACT>
static bauta_status act_as(const bt_cuda_act_args *a, layout8 l, void *stream,
                           bauta_error *err)
{
    act_f<T, ACT> f = { matrix_of<T>(a->x, l.columns),
                        matrix_of<T>(a->by, l.columns),
                        matrix_of<T>(a->y, l.columns) };
    return run_each8("activation", f, l, stream, err);
}

template <class T>
static bauta_status act_any(const bt_cuda_act_args *a, layout8 l, void *stream,
                            bauta_error *err)
{
    switch (a->act) {
    case BT_ACT_RELU:
        return act_as<T, BT_ACT_RELU>(a, l, stream, err);
    case BT_ACT_GELU_ERF:
        return act_as<T, BT_ACT_GELU_ERF>(a, l, stream, err);
    case BT_ACT_GELU_TANH:
        return act_as<T, BT_ACT_GELU_TANH>(a, l, stream, err);
    default:
        return act_as<T, BT_ACT_SILU>(a, l, stream, err);
    }
}

bauta_status bt_cuda_act(const bt_cuda_act_args *a, void *stream,
                         bauta_error *err)
{
    bauta_status status = check_dtype("activation", a->dtype, err);
    if (status)
        return status;
    layout8 l = layout_of(a->rows, a->columns);
    layout_add(&l, a->x.data, a->x.stride, a->dtype);
    layout_add(&l, a->by.data, a->by.stride, a->dtype);
    layout_add(&l, a->y.data, a->y.stride, a->dtype);
    return a->dtype == BAUTA_FLOAT32 ? act_any<float>(a, l, stream, err)
                                     : act_any<bf16>(a, l, stream, err);
}

/* ---- backward ------------------------------------------------------------ */

template <class T, bt_act ACT> struct act_backward_f {
    matrix<const T> x, by, dy;
    matrix<T> dx, dby;
    bool add_dx, add_dby;
    static const int unit = 8;
    struct held {
        octet<T> x, by, dy, dx, dby;
    };

    __device__ __forceinline__ void load(held &h, place8 p, bool wide) const
    {
        h.x = read8(at8(x, p), p.left, wide);
        h.dy = read8(at8(dy, p), p.left, wide);
        if (by.data)
            h.by = read8(at8(by, p), p.left, wide);
        if (dx.data && add_dx)
            h.dx = read8(at8(dx, p), p.left, wide);
        if (dby.data && add_dby)
            h.dby = read8(at8(dby, p), p.left, wide);
    }

    __device__ __forceinline__ void end(float *v, matrix<T> to,
                                        octet<T> held_to, bool add, place8 p,
                                        bool wide) const
    {
        if (add) {
            float old[8];
            unpack8(old, held_to);
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = old[i] + v[i];
        }
        store8(at8(to, p), v, p.left, wide);
    }

    __device__ __forceinline__ void store(held &h, place8 p, bool wide) const
    {
        float v[8], at[8], d[8], w[8];
        unpack8(at, h.x);
        unpack8(d, h.dy);
        if (dx.data) {
            if (by.data)
                unpack8(w, h.by);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                v[i] = derivative_of<T, ACT>(at[i]) * d[i];
                v[i] = by.data ? v[i] * w[i] : v[i];
            }
            end(v, dx, h.dx, add_dx, p, wide);
        }
        if (dby.data) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = value_of<T, ACT>(at[i]) * d[i];
            end(v, dby, h.dby, add_dby, p, wide);
        }
    }
};

template <class T, bt_act ACT>
static bauta_status act_backward_as(const bt_cuda_act_backward_args *a,
                                    layout8 l, void *stream, bauta_error *err)
{
    act_backward_f<T, ACT> f = { matrix_of<T>(a->x, l.columns),
                                 matrix_of<T>(a->by, l.columns),
                                 matrix_of<T>(a->dy, l.columns),
                                 matrix_of<T>(a->dx, l.columns),
                                 matrix_of<T>(a->dby, l.columns),
                                 a->add_dx,
                                 a->add_dby };
    return run_each8("activation's gradient", f, l, stream, err);
}

template <class T>
static bauta_status act_backward_any(const bt_cuda_act_backward_args *a,
                                     layout8 l, void *stream, bauta_error *err)
{
    switch (a->act) {
    case BT_ACT_RELU:
        return act_backward_as<T, BT_ACT_RELU>(a, l, stream, err);
    case BT_ACT_GELU_ERF:
        return act_backward_as<T, BT_ACT_GELU_ERF>(a, l, stream, err);
    case BT_ACT_GELU_TANH:
        return act_backward_as<T, BT_ACT_GELU_TANH>(a, l, stream, err);
    default:
        return act_backward_as<T, BT_ACT_SILU>(a, l, stream, err);
    }
}

bauta_status bt_cuda_act_backward(const bt_cuda_act_backward_args *a,
                                  void *stream, bauta_error *err)
{
    bauta_status status = check_dtype("activation's gradient", a->dtype, err);
    if (status)
        return status;
    layout8 l = layout_of(a->rows, a->columns);
    layout_add(&l, a->x.data, a->x.stride, a->dtype);
    layout_add(&l, a->by.data, a->by.stride, a->dtype);
    layout_add(&l, a->dy.data, a->dy.stride, a->dtype);
    layout_add(&l, a->dx.data, a->dx.stride, a->dtype);
    layout_add(&l, a->dby.data, a->dby.stride, a->dtype);
    return a->dtype == BAUTA_FLOAT32
               ? act_backward_any<float>(a, l, stream, err)
               : act_backward_any<bf16>(a, l, stream, err);
}
