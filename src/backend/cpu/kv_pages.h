/* SPDX-License-Identifier: Apache-2.0 */
/* kv_pages.h - writing keys and values to pages of the CPU. */
#ifndef BT_KV_PAGES_H
#define BT_KV_PAGES_H

#include "backend/block_table.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/kernels.h"

/* Write keys and values of `rows` tokens of one key head from token `at` on; k
 * and v have the strides of the shape. Heads and tokens may be written by
 * different threads. */
void bt_kv_pages_write(const bt_block_table *table, size_t layer,
                       const bt_kernels *kernels,
                       const bt_attention_shape *shape, size_t kv_head,
                       size_t at, size_t rows, const float *k, const float *v);

/* The new tokens of a batch, which are to be written to the pages of a layer.
 */
typedef struct bt_kv_writer {
    const bt_kv_batch *batch;
    size_t layer;
    const bt_kernels *kernels;
    bt_attention_shape shape;
    const float *k, *v;
} bt_kv_writer;

/* Those of a call whose keys are not to be rotated. */
bt_kv_writer bt_kv_writer_of(const bt_cpu *cpu, const bt_kv_write_args *args);
/* Write those of one key head of one sequence. */
void bt_kv_writer_head(const bt_kv_writer *writer, size_t sequence,
                       size_t kv_head);
/* Write all, on the threads of the CPU. */
void bt_kv_writer_all(const bt_kv_writer *writer, bt_cpu *cpu);

#endif
