/* SPDX-License-Identifier: Apache-2.0 */
/* pointwise_avx512.c - element-wise and row-wise kernels: the plain C sources,
 * compiled for AVX-512. The compiler vectorizes them without changing a bit. */
#define KERNEL(name) name##_avx512

#include "backend/cpu/kernels/act.c"
#include "backend/cpu/kernels/adamw.c"
#include "backend/cpu/kernels/add.c"
#include "backend/cpu/kernels/dropout.c"
#include "backend/cpu/kernels/norm.c"
#include "backend/cpu/kernels/rotary.c"
#include "backend/cpu/kernels/softcap.c"
#include "backend/cpu/kernels/softmax.c"
