/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - the context of a caller: device, threads, kernels, workspace. */
#ifndef BT_CONTEXT_H
#define BT_CONTEXT_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cuda/gpu.h"
#include "base/memory.h"
#include "bauta.h"
#include "mask/plan_cache.h"

struct bauta_context {
    int threads;
    const bt_kernels *kernels;
    bt_arena workspace;
    struct bt_tape *tape;     /* of models; rewound by each call */
    bt_plan_cache plan_cache; /* plans of the last batch */
    const bt_gpu *gpu;        /* NULL: the CPU is used */
    int device;               /* CUDA device number */
    void *stream;             /* CUDA stream for its work */
    char device_name[24];     /* "cpu" or "cuda:0" */
};

/* An error if the context is NULL or has a GPU. All calls except those for GPUs
 * check it. */
bauta_status bt_context_check_cpu(const bauta_context *context,
                                  bauta_error *err);

static inline bt_cpu bt_context_resources(bauta_context *context)
{
    return (bt_cpu){ context->kernels, context->threads, &context->workspace };
}

#define BT_NEED_CPU(context, err)                                     \
    do {                                                              \
        bauta_status cpu_status = bt_context_check_cpu(context, err); \
        if (cpu_status)                                               \
            return cpu_status;                                        \
    } while (0)

#endif
