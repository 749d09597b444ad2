/* SPDX-License-Identifier: Apache-2.0 */
/* attention_avx512.c - the attention kernels, compiled for AVX-512. */
#include "backend/cpu/kernels/x86/attention.h"
