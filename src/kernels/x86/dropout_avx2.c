/* SPDX-License-Identifier: Apache-2.0 */
/* dropout_avx2.c - dropout, compiled for AVX2. */
#define KERNEL(name) name##_avx2
#include "kernels/dropout.c"
