/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - the driver of a library that was built without CUDA. */
#include "backend/cuda/driver.h"

#include "base/error.h"

static bauta_status open_stream(bt_stream **out, int number,
                                const bauta_options *options, bauta_error *err)
{
    (void)number;
    (void)options;
    *out = NULL;
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "this library was built without CUDA");
}

const bt_device_driver bt_cuda_driver = { "cuda", open_stream };
