/* SPDX-License-Identifier: Apache-2.0 */
/* pointwise_avx2.c - element-wise and row-wise kernels: the plain C sources,
 * compiled for AVX2. The compiler vectorizes them without changing a bit. */
#define KERNEL(name) name##_avx2

#include "kernels/act.c"
#include "kernels/adamw.c"
#include "kernels/add.c"
#include "kernels/dropout.c"
#include "kernels/norm.c"
#include "kernels/rotary.c"
#include "kernels/softmax.c"
