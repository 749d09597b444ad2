/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c - the table of a library that was built without CUDA: none. */
#include "backend/cuda/gpu.h"

const bt_gpu *bt_gpu_table(void)
{
    return NULL;
}
