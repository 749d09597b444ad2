/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - the table of kernels.
 *
 * There is one table per instruction set. The plain C reference defines the
 * bits. A kernel allocates nothing, starts no thread and knows of masks only
 * the words that it is given. */
#ifndef BT_KERNELS_H
#define BT_KERNELS_H

#include "backend/cpu/kernels/attention.h"
#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/norm.h"
#include "backend/cpu/kernels/pointwise.h"
#include "backend/cpu/kernels/softmax.h"

/* Every kernel, one line each. The name is the same everywhere: bt_<name>_fn,
 * bt_<name>_f32_<isa>, and the slot <name>. */
#define BT_KERNEL_MAP(X)  \
    X(exp)                \
    X(row_max)            \
    X(row_exp_sum)        \
    X(act)                \
    X(act_backward)       \
    X(add)                \
    X(dropout)            \
    X(norm)               \
    X(norm_backward)      \
    X(norm_backward_gain) \
    X(rotary)             \
    X(scale)              \
    X(column_sum)         \
    X(softcap)            \
    X(softcap_backward)   \
    X(row_sum)            \
    X(row_affine)         \
    X(transpose)          \
    X(attention_forward)  \
    X(attention_backward) \
    X(gemm_columns)       \
    X(adamw)              \
    X(squares)

#define BT_KERNEL_SLOT(name) bt_##name##_fn *name;
typedef struct bt_kernels {
    const char *isa;
    BT_KERNEL_MAP(BT_KERNEL_SLOT)
    const bt_gemm_tiles *gemm_tiles; /* NULL in the reference */
} bt_kernels;

/* The table of an instruction set by name, or the best one for NULL. NULL if
 * the name is unknown or this machine cannot run it. */
const bt_kernels *bt_kernels_get(const char *isa);

/* Names of all tables that this machine can run, the reference first. Returns
 * their number; at most `capacity` names are written. */
size_t bt_kernels_names(const char *names[], size_t capacity);

#endif
