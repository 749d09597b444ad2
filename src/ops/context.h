/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - threads, kernels and workspace of one caller. */
#ifndef BT_CONTEXT_H
#define BT_CONTEXT_H

#include "base/memory.h"
#include "bauta.h"
#include "kernels/cuda/gpu.h"
#include "kernels/kernels.h"
#include "mask/shelf.h"
#include "ops/cpu.h"

struct bauta_context {
    int threads;
    const bt_kernels *kernels;
    bt_arena workspace;
    struct bt_tape *tape; /* of models; NULL until one is run */
    bt_shelf shelf;       /* plans of the last batch */
    const bt_gpu *gpu;    /* NULL: it computes on the CPU */
    int device;           /* CUDA's number of the GPU */
    void *stream;         /* on which its work is queued */
    char device_name[24]; /* "cpu" or "cuda:0" */
};

/* Whether a context is there and computes on the CPU, which all calls need but
 * those for GPUs; a sentence where it is not so. */
bauta_status bt_context_cpu(const bauta_context *context, bauta_error *err);

static inline bt_cpu bt_context_resources(bauta_context *context)
{
    return (bt_cpu){ context->kernels, context->threads, &context->workspace };
}

#define BT_NEED_CPU(context, err)                               \
    do {                                                        \
        bauta_status cpu_status = bt_context_cpu(context, err); \
        if (cpu_status)                                         \
            return cpu_status;                                  \
    } while (0)

#endif
