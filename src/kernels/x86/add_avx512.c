/* SPDX-License-Identifier: Apache-2.0 */
/* add_avx512.c - sums of arrays, compiled for AVX-512. */
#define KERNEL(name) name##_avx512
#include "kernels/add.c"
