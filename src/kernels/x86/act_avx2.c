/* SPDX-License-Identifier: Apache-2.0 */
/* act_avx2.c - activations, compiled for AVX2. */
#define KERNEL(name) name##_avx2
#include "kernels/act.c"
