/* SPDX-License-Identifier: Apache-2.0 */
/* decode.h - a step of decoding in the GPU's memory. */
#ifndef BT_CUDA_DECODE_H
#define BT_CUDA_DECODE_H

#include "kernels/cuda/decode_list.h"
#include "kernels/cuda/device.h"

struct bt_cuda_decode {
    size_t heads, kv_heads, head_dim, page_keys;
    bt_cuda_device device;
    size_t rows, unit_rows, pages; /* of the step, see bt_decode_list */
    int item_count;                /* times kv_heads */
    int list_lines; /* of 128 bytes, from the items to the end of the bits */
    /* Device memory: one block, kept from step to step, cut into these. */
    void *memory;
    size_t capacity;
    uint32_t *ticket;   /* items handed out so far, and blocks that are done */
    uint32_t *arrivals; /* (units, kv_heads) items of a unit that are done */
    bt_decode_item *items;
    bt_decode_entry *entries;
    uint64_t *bits;
    float *partial;      /* (slots, kv_heads, unit rows, head_dim) sums */
    float *partial_base; /* (slots, kv_heads, unit rows, 2) their base and
                            the sum of their weights */
};

#endif
