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

/* Who takes splits as they are made, so that there is never a long list. */
typedef struct bt_splits_taker {
    bauta_status (*take)(void *user, const bt_split *list, size_t count,
                         bauta_error *err);
    void *user;
} bt_splits_taker;

typedef struct bt_splits {
    bt_text text;
    bt_split *list; /* in order; together they need not cover the text */
    size_t count, room;
    const bt_splits_taker *taker; /* NULL: the list grows */
} bt_splits;

void bt_splits_release(bt_splits *splits);
/* Append one; empty splits are left out. Where there is a taker it gets the
 * list from time to time; what is left at the end, bt_splits_give() gives. */
bauta_status bt_splits_add(bt_splits *splits, bt_split split, bauta_error *err);

bauta_status bt_splits_give(bt_splits *splits, bauta_error *err);

#endif
