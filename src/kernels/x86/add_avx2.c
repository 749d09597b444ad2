/* SPDX-License-Identifier: Apache-2.0 */
/* add_avx2.c - sums of arrays, compiled for AVX2. */
#define KERNEL(name) name##_avx2
#include "kernels/add.c"
