/* SPDX-License-Identifier: Apache-2.0 */
/* decode.h - a step of decoding in the GPU's memory. */
#ifndef BT_CUDA_DECODE_H
#define BT_CUDA_DECODE_H

#include "backend/cuda/device.h"
#include "backend/cuda/ops.h"
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
    size_t unit_count;
    int item_count;
    int most_tiles; /* visible ones of an item */
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

/* ---- In attention_decode_short.cu --------------------------------------- */

/* The new token of every sequence of a step, one each: row i of k and v belongs
 * to the step's row i, which sees it. Keys and queries are rotated unless
 * positions is NULL (see bt_cuda_rotary), and keys and values are written to
 * their pages. */
typedef struct bt_cuda_decode_rows {
    const uint16_t *k, *v; /* (rows, kv_heads * head_dim) */
    size_t k_token, v_token;
    const uint32_t *positions;
    const float *frequencies;
    const bt_cuda_kv_place *places;
    uint16_t *k_pages, *v_pages;
    size_t page, head, token;
    const uint32_t *numbers; /* pages of the blocks that the list of the step
                                counts; NULL: it has pages */
} bt_cuda_decode_rows;

/* Whether every unit of the step is one item, all of whose tiles fit the shared
 * memory of a block, and there are few enough of them; */
bool bt_cuda_decode_is_short(const bt_cuda_decode *decode);
/* and whether attention of it can take new rows. */
bool bt_cuda_decode_takes_rows(const bt_cuda_decode *decode,
                               const bt_cuda_decode_rows *rows);

/* bt_attention_decode_bf16_cuda() of a short step, with the same bits. rows may
 * be NULL. `ahead`: nothing that was queued since the last step began writes
 * the pages, so they may be read before the kernel before this one is done. */
bauta_status bt_attention_decode_short_bf16_cuda(
    const bt_cuda_decode *decode, const bauta_attention_shape *shape,
    const uint16_t *q, const bt_cuda_decode_rows *rows, bool ahead,
    const bt_cuda_pages *pages, uint16_t *out, float *lse, void *stream,
    bauta_error *err);

#endif
