/* SPDX-License-Identifier: Apache-2.0 */
/* kv_pages.h - writing keys and values to pages of the CPU. */
#ifndef BT_KV_PAGES_H
#define BT_KV_PAGES_H

#include "backend/block_table.h"
#include "backend/cpu/kernels/kernels.h"

/* Write keys and values of `rows` tokens of one key head from token `at` on; k
 * and v have the strides of the shape. Heads and tokens may be written by
 * different threads. */
void bt_kv_pages_write(const bt_block_table *table, size_t layer,
                       const bt_kernels *kernels,
                       const bt_attention_shape *shape, size_t kv_head,
                       size_t at, size_t rows, const float *k, const float *v);

#endif
