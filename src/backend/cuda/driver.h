/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - how a GPU is opened: "cuda" is the first one that the kernels run
 * on, "cuda:1" the one with CUDA's number 1. */
#ifndef BT_CUDA_DRIVER_H
#define BT_CUDA_DRIVER_H

#include "backend/backend.h"

/* In a library that was built without CUDA, open() fails and says so. */
extern const bt_device_driver bt_cuda_driver;

#endif
