/* SPDX-License-Identifier: Apache-2.0 */
/* adamw_avx512.c - AdamW and the sum of squares, compiled for AVX-512. */
#define KERNEL(name) name##_avx512
#include "kernels/adamw.c"
