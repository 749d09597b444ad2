/* SPDX-License-Identifier: Apache-2.0 */
/* softmax_avx2.c - the softmax pieces, compiled for AVX2. */
#define KERNEL(name) name##_avx2
#include "kernels/softmax.c"
