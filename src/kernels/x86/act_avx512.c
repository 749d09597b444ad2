/* SPDX-License-Identifier: Apache-2.0 */
/* act_avx512.c - activations, compiled for AVX-512. */
#define KERNEL(name) name##_avx512
#include "kernels/act.c"
