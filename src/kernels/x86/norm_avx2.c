/* SPDX-License-Identifier: Apache-2.0 */
/* norm_avx2.c - norms of rows, compiled for AVX2. */
#define KERNEL(name) name##_avx2
#include "kernels/norm.c"
