/* SPDX-License-Identifier: Apache-2.0 */
/* prefill_list.h - the sequences of a step of decoding that have many queries,
 * as the forward kernel reads them: a work list over all of them, and where
 * their pages are. */
#ifndef BT_CUDA_PREFILL_H
#define BT_CUDA_PREFILL_H

#include "mask/decode_sequence.h"
#include "mask/work_list.h"

typedef struct bt_prefill {
    bt_worklist list;
    size_t count;       /* sequences */
    size_t table_count; /* pages of all of them */
    size_t pages;       /* one more than the last page that is read */
    int32_t *table;     /* (table_count) pages; those that nobody sees are 0 */
    int32_t *start;     /* (count) where a sequence's pages begin; the numbers
                           follow the table's */
} bt_prefill;

/* Of the sequences those of more than `most` rows, for tiles of `tile_rows`
 * rows and chunks of `chunk` keys. */
bauta_status bt_prefill_init(bt_prefill *prefill,
                             const bt_decode_sequence *sequences, size_t count,
                             size_t most, size_t page_keys, size_t tile_rows,
                             size_t chunk, bauta_error *err);
void bt_prefill_release(bt_prefill *prefill);

#endif
