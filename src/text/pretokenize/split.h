/* SPDX-License-Identifier: Apache-2.0 */
/* split.h - a text that is divided into splits (pre-tokens).
 *
 * First added tokens become splits of their own, then pre-tokenizers split the
 * text between them. Each step reads one list of splits and makes another. The
 * subword model encodes each split by itself. */
#ifndef BT_SPLIT_H
#define BT_SPLIT_H

#include "text/aligned_text.h"

enum { BT_NO_TOKEN = UINT32_MAX };

typedef struct bt_split {
    uint32_t lo, hi; /* bytes of the text */
    uint32_t token;  /* the added token that it is, or BT_NO_TOKEN */
    bool first;      /* begins at the start of the original text */
} bt_split;

/* Receives splits as they are made, so that the list stays short. */
typedef struct bt_split_sink {
    bauta_status (*accept)(void *user, const bt_split *list, size_t count,
                           bauta_error *err);
    void *user;
} bt_split_sink;

typedef struct bt_splits {
    bt_aligned_text text;
    bt_split *list; /* in order; they need not cover the text */
    size_t count, capacity;
    const bt_split_sink *sink; /* NULL: the list keeps all */
} bt_splits;

void bt_splits_release(bt_splits *splits);
/* Append a split; empty ones are dropped. A full list is passed on to the sink,
 * if there is one. */
bauta_status bt_splits_add(bt_splits *splits, bt_split split, bauta_error *err);
/* Pass the rest of the list on to the sink, if there is one. */
bauta_status bt_splits_flush(bt_splits *splits, bauta_error *err);

#endif
