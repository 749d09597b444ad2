/* SPDX-License-Identifier: Apache-2.0 */
/* adamw_avx2.c - AdamW and the sum of squares, compiled for AVX2. */
#define KERNEL(name) name##_avx2
#include "kernels/adamw.c"
