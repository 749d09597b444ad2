/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_context.h - checks shared by the public GPU calls. The computations are
 * in backend/cuda/ and are reached through the table bt_gpu. */
#ifndef BT_GPU_CONTEXT_H
#define BT_GPU_CONTEXT_H

#include "backend/op_types.h"
#include "base/error.h"
#include "runtime/context.h"

/* An error if the context is NULL or has no GPU. */
bauta_status bt_context_check_gpu(const bauta_context *context,
                                  bauta_error *err);

#define BT_NEED_GPU(context, err)                                     \
    do {                                                              \
        bauta_status gpu_status = bt_context_check_gpu(context, err); \
        if (gpu_status)                                               \
            return gpu_status;                                        \
    } while (0)

/* The GPU that an object was created for, used and freed on. */
typedef struct bt_gpu_owner {
    const bt_gpu *gpu;
    int device;
} bt_gpu_owner;

bt_gpu_owner bt_gpu_owner_of(const bauta_context *context);
/* An error if the context has another GPU. */
bauta_status bt_gpu_owner_check(const bt_gpu_owner *owner,
                                const bauta_context *context, const char *what,
                                bauta_error *err);

bauta_status bt_gpu_type_check(bauta_dtype type, bauta_error *err);

/* Copy a caller's shape, which may be smaller or larger, and resolve it. */
bauta_status bt_gpu_shape_read(bauta_attention_shape *own,
                               bt_attention_shape *resolved,
                               const bauta_attention_shape *shape,
                               bauta_error *err);

/* An error unless two shapes have the same heads and dimensions. */
bauta_status bt_gpu_shape_match(const bt_attention_shape *of,
                                const bt_attention_shape *shape,
                                const char *what, bauta_error *err);

#endif
