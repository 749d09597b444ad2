/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - the table of kernels.
 *
 * Every slot starts at the plain C reference, which defines the bits, and is
 * overwritten by the best twin that the machine can run. A kernel allocates
 * nothing, starts no thread and knows nothing of masks beyond the words that
 * it is handed. */
#ifndef BT_KERNELS_H
#define BT_KERNELS_H

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/softmax.h"

typedef struct bt_kernels {
    const char *isa;
    bt_exp_fn *exp;
    bt_row_max_fn *row_max;
    bt_row_exp_sum_fn *row_exp_sum;
    bt_transpose_fn *transpose;
    bt_attention_forward_fn *attention_forward;
    bt_attention_backward_fn *attention_backward;
    bt_gemm_columns_fn *gemm_columns;
    const bt_gemm_tiles *gemm_tiles; /* NULL in the reference */
} bt_kernels;

/* The table of an instruction set by name, or the best one for NULL. NULL when
 * the name is unknown or this machine cannot run it. */
const bt_kernels *bt_kernels_get(const char *isa);

/* Names of all tables that this machine can run, the reference first. */
size_t bt_kernels_names(const char *names[], size_t capacity);

#endif
