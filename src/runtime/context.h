/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - the context of a caller: device, threads, kernels, workspace. */
#ifndef BT_CONTEXT_H
#define BT_CONTEXT_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cuda/gpu.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "bauta.h"
#include "runtime/comm.h"
#include "runtime/plan_cache.h"

struct bauta_context {
    int threads;
    const bt_kernels *kernels;
    bt_thread_pool *pool;     /* for work on the host */
    bt_stream *stream;        /* of models */
    bt_comm *comm;            /* the ranks of training */
    bt_comm single;           /* the only one, if there are no others */
    struct bt_tape *tape;     /* of models; rewound by each call */
    bt_plan_cache plan_cache; /* plans of the last batch */
    const bt_gpu *gpu;        /* NULL: the CPU is used */
    int device;               /* CUDA device number */
    void *gpu_stream;         /* CUDA stream of the bauta_gpu_ calls */
    char device_name[24];     /* "cpu" or "cuda:0" */
};

/* An error if the context is NULL or its device is not the CPU. Calls that take
 * host memory check it. */
bauta_status bt_context_check_cpu(const bauta_context *context,
                                  bauta_error *err);

/* Of a context that bt_context_check_cpu() accepts. */
static inline bt_cpu *bt_cpu_of_context(bauta_context *context)
{
    return bt_cpu_of(context->stream);
}

/* Make a device known by its name, beside those of the library. Only the last
 * one is kept. Call it while no context is created. */
void bt_device_register(const bt_device_driver *driver);

#define BT_NEED_CPU(context, err)                                     \
    do {                                                              \
        bauta_status cpu_status = bt_context_check_cpu(context, err); \
        if (cpu_status)                                               \
            return cpu_status;                                        \
    } while (0)

#endif
