/* SPDX-License-Identifier: Apache-2.0 */
/* split.c - lists of splits; see split.h. */
#include "text/pretokenize/split.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"

void bt_splits_release(bt_splits *splits)
{
    bt_aligned_text_release(&splits->text);
    bt_free(splits->list);
    splits->list = NULL;
    splits->count = splits->capacity = 0;
}

enum { SINK_BATCH = 1024 }; /* splits that are passed on at a time */

bauta_status bt_splits_flush(bt_splits *splits, bauta_error *err)
{
    size_t count = splits->count;
    if (!splits->sink)
        return BAUTA_OK;
    splits->count = 0;
    return splits->sink->accept(splits->sink->user, splits->list, count, err);
}

bauta_status bt_splits_add(bt_splits *splits, bt_split split, bauta_error *err)
{
    if (split.lo >= split.hi)
        return BAUTA_OK;
    if (splits->sink && splits->count == SINK_BATCH) {
        bauta_status status = bt_splits_flush(splits, err);
        if (status)
            return status;
    }
    if (BT_ARRAY_RESERVE(splits->list, splits->capacity, splits->count, 1))
        return bt_fail_memory(err, "the parts of a text",
                              splits->count * sizeof(*splits->list));
    splits->list[splits->count++] = split;
    return BAUTA_OK;
}
