/* SPDX-License-Identifier: Apache-2.0 */
/* softmax_avx512.c - the softmax pieces, compiled for AVX-512. */
#define KERNEL(name) name##_avx512
#include "kernels/softmax.c"
