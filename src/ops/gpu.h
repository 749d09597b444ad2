/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h - how the calls for GPUs begin and end: what they do is in
 * kernels/cuda/, and reached through a table. */
#ifndef BT_OPS_GPU_H
#define BT_OPS_GPU_H

#include "base/error.h"
#include "ops/context.h"
#include "ops/shape.h"

/* Whether a context is there and has a GPU; a sentence where it is not so. */
bauta_status bt_context_gpu(const bauta_context *context, bauta_error *err);

#define BT_NEED_GPU(context, err)                               \
    do {                                                        \
        bauta_status gpu_status = bt_context_gpu(context, err); \
        if (gpu_status)                                         \
            return gpu_status;                                  \
    } while (0)

/* What was made for a GPU is used and freed there. */
typedef struct bt_gpu_home {
    const bt_gpu *gpu;
    int device;
} bt_gpu_home;

bt_gpu_home bt_gpu_home_of(const bauta_context *context);
/* A sentence when the context has another GPU. */
bauta_status bt_gpu_at_home(const bt_gpu_home *home,
                            const bauta_context *context, const char *what,
                            bauta_error *err);

bauta_status bt_gpu_type_check(bauta_gpu_type type, bauta_error *err);

/* A shape that must have the heads and dims of another one. */
bauta_status bt_gpu_shape_match(const bt_shape *of, const bt_shape *shape,
                                const char *what, bauta_error *err);

#endif
