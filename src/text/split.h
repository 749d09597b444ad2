/* SPDX-License-Identifier: Apache-2.0 */
/* split.h - a text cut into splits.
 *
 * First added tokens are cut out, then pre-tokenizers cut what lies between.
 * Each step reads one list of splits and makes another. The subword model
 * never looks beyond a split. */
#ifndef BT_SPLIT_H
#define BT_SPLIT_H

#include "text/text.h"

enum { BT_NO_TOKEN = UINT32_MAX };

typedef struct bt_split {
    uint32_t lo, hi; /* bytes of the text */
    uint32_t token;  /* the added token that it is, or BT_NO_TOKEN */
    bool first;      /* begins at the first byte of the original text */
} bt_split;

typedef struct bt_splits {
    bt_text text;
    bt_split *list; /* in order; together they need not cover the text */
    size_t count, room;
} bt_splits;

void bt_splits_release(bt_splits *splits);
/* Append one; empty splits are left out. */
bauta_status bt_splits_add(bt_splits *splits, bt_split split, bauta_error *err);

#endif
