/* SPDX-License-Identifier: Apache-2.0 */
/* dropout_avx512.c - dropout, compiled for AVX-512. */
#define KERNEL(name) name##_avx512
#include "kernels/dropout.c"
