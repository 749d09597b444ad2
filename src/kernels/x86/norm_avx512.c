/* SPDX-License-Identifier: Apache-2.0 */
/* norm_avx512.c - norms of rows, compiled for AVX-512. */
#define KERNEL(name) name##_avx512
#include "kernels/norm.c"
