/* SPDX-License-Identifier: Apache-2.0 */
/* rotary_avx2.c - rotary positions, compiled for AVX2. */
#define KERNEL(name) name##_avx2
#include "kernels/rotary.c"
