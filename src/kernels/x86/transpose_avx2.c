/* SPDX-License-Identifier: Apache-2.0 */
/* transpose_avx2.c - the transpose of a key block, compiled for AVX2. */
#include "kernels/x86/transpose.h"
