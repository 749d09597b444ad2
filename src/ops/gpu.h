/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h - checks shared by the public GPU calls. The computations are in
 * kernels/cuda/ and are reached through the table bt_gpu. */
#ifndef BT_OPS_GPU_H
#define BT_OPS_GPU_H

#include "base/error.h"
#include "ops/context.h"
#include "ops/shape.h"

/* An error if the context is NULL or has no GPU. */
bauta_status bt_context_gpu(const bauta_context *context, bauta_error *err);

#define BT_NEED_GPU(context, err)                               \
    do {                                                        \
        bauta_status gpu_status = bt_context_gpu(context, err); \
        if (gpu_status)                                         \
            return gpu_status;                                  \
    } while (0)

/* The GPU that an object was created for, used and freed on. */
typedef struct bt_gpu_home {
    const bt_gpu *gpu;
    int device;
} bt_gpu_home;

bt_gpu_home bt_gpu_home_of(const bauta_context *context);
/* An error if the context has another GPU. */
bauta_status bt_gpu_at_home(const bt_gpu_home *owner,
                            const bauta_context *context, const char *what,
                            bauta_error *err);

bauta_status bt_gpu_type_check(bauta_gpu_type type, bauta_error *err);

/* An error unless two shapes have the same heads and dimensions. */
bauta_status bt_gpu_shape_match(const bt_shape *of, const bt_shape *shape,
                                const char *what, bauta_error *err);

#endif
