/* SPDX-License-Identifier: Apache-2.0 */
/* attention_avx2.c - the attention kernels, compiled for AVX2. */
#include "backend/cpu/kernels/x86/attention.h"
