/* SPDX-License-Identifier: Apache-2.0 */
/* rotary_avx512.c - rotary positions, compiled for AVX-512. */
#define KERNEL(name) name##_avx512
#include "kernels/rotary.c"
