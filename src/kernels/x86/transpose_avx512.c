/* SPDX-License-Identifier: Apache-2.0 */
/* transpose_avx512.c - the transpose of a key block, compiled for AVX-512. */
#include "kernels/x86/transpose.h"
