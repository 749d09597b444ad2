/* SPDX-License-Identifier: Apache-2.0 */
/* act.c - the reference kernels. x86/pointwise_*.c include this file with
 * another KERNEL to compile the twins.
 *
 * Values are computed into a local array of a few hundred elements and then
 * stored: so each function of activations.h is called in one plain loop, which
 * vectorizes although the arguments may overlap. */
#include "backend/cpu/kernels/act.h"

#include "backend/cpu/kernels/activations.h"

#ifndef KERNEL
#define KERNEL(name) name##_c
#endif

enum { ACT_CHUNK = 256 };

#define APPLY(function)                \
    for (size_t j = 0; j < count; j++) \
        to[j] = function(x[j]);        \
    break

static void act_values(bt_act act, float *restrict to, const float *restrict x,
                       size_t count)
{
    switch (act) {
    case BT_ACT_RELU:
        APPLY(bt_relu);
    case BT_ACT_GELU_ERF:
        APPLY(bt_gelu_erf);
    case BT_ACT_GELU_TANH:
        APPLY(bt_gelu_tanh);
    case BT_ACT_SILU:
        APPLY(bt_silu);
    }
}

static void act_derivatives(bt_act act, float *restrict to,
                            const float *restrict x, size_t count)
{
    switch (act) {
    case BT_ACT_RELU:
        APPLY(bt_relu_grad);
    case BT_ACT_GELU_ERF:
        APPLY(bt_gelu_erf_grad);
    case BT_ACT_GELU_TANH:
        APPLY(bt_gelu_tanh_grad);
    case BT_ACT_SILU:
        APPLY(bt_silu_grad);
    }
}

static void multiply_by(float *restrict v, const float *restrict by,
                        size_t count)
{
    for (size_t j = 0; j < count; j++)
        v[j] *= by[j];
}

static void store(float *restrict to, const float *restrict v, size_t count,
                  bool add)
{
    if (add)
        for (size_t j = 0; j < count; j++)
            to[j] += v[j];
    else
        for (size_t j = 0; j < count; j++)
            to[j] = v[j];
}

void KERNEL(bt_act_f32)(bt_act act, float *to, const float *x, const float *by,
                        size_t count, bool add)
{
    float v[ACT_CHUNK];
    for (size_t j = 0, n; j < count; j += n) {
        n = count - j < ACT_CHUNK ? count - j : ACT_CHUNK;
        act_values(act, v, x + j, n);
        if (by)
            multiply_by(v, by + j, n);
        store(to + j, v, n, add);
    }
}

void KERNEL(bt_act_backward_f32)(bt_act act, float *to, const float *x,
                                 const float *dy, const float *by, size_t count,
                                 bool add)
{
    float v[ACT_CHUNK];
    for (size_t j = 0, n; j < count; j += n) {
        n = count - j < ACT_CHUNK ? count - j : ACT_CHUNK;
        act_derivatives(act, v, x + j, n);
        multiply_by(v, dy + j, n);
        if (by)
            multiply_by(v, by + j, n);
        store(to + j, v, n, add);
    }
}
