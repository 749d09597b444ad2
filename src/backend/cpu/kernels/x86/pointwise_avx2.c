/* SPDX-License-Identifier: Apache-2.0 */
/* pointwise_avx2.c - element-wise and row-wise kernels: the plain C sources,
 * compiled for AVX2. The compiler vectorizes them without changing a bit. */
#define KERNEL(name) name##_avx2

#include "backend/cpu/kernels/x86/activations.h"

#include "backend/cpu/kernels/norm.c"
#include "backend/cpu/kernels/pointwise.c"
#include "backend/cpu/kernels/softmax.c"
