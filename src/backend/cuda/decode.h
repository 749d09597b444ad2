/* SPDX-License-Identifier: Apache-2.0 */
/* decode.h - a step of decoding in the GPU's memory. */
#ifndef BT_CUDA_DECODE_H
#define BT_CUDA_DECODE_H

#include "backend/cuda/device.h"
#include "backend/cuda/plan.h"
#include "mask/decode_list.h"

/* Sequences of more rows in a step are for the forward kernel, which reads
 * pages too and gives the same bits. */
#ifndef BT_DECODE_MOST
#define BT_DECODE_MOST 48
#endif

struct bt_cuda_decode {
    size_t heads, kv_heads, head_dim, page_keys;
    bt_cuda_device device;
    size_t rows, unit_rows, pages; /* of the step, see bt_decode_list */
    int item_count;
    int parts;      /* of a unit's output columns, see decode_job */
    int list_lines; /* of 128 bytes, from the items to the end of the bits */
    /* Device memory: one block, kept from step to step, cut into these. */
    void *memory;
    size_t capacity;
    unsigned char *host; /* what is copied there, in host memory */
    size_t host_capacity;
    uint32_t
        *tile_counter;  /* items handed out so far, and blocks that are done */
    uint32_t *arrivals; /* (units, columns of work) items that are done */
    bt_decode_item *items;
    bt_decode_tile *tiles;
    uint64_t *bits;
    float *partial;         /* (items, columns of work, rows of a unit, width)
                               what the chunks came to */
    float *partial_base;    /* (items, columns of work, rows of a unit, 2) their
                               base and the sum of their weights */
    bt_cuda_plan prefill;   /* of the sequences with many rows, in that block */
    int32_t *table, *start; /* see bt_cuda_paged */
    uint32_t *positions;    /* (rows) of queries, as their masks align them */
};

#endif
