/* SPDX-License-Identifier: Apache-2.0 */
/* row_spans.h - the keys that each query of a batch may see.
 *
 * The mask of a batch (shelf.c), the plan of a decoding step (steps.c) and the
 * pages that a sequence may give back all ask bt_row_span(). What it is asked
 * about is a bt_batch_mask, which model/layer_mask.c makes for a layer. */
#ifndef BT_ROW_SPANS_H
#define BT_ROW_SPANS_H

#include "base/size.h"
#include "mask/mask.h"

/* Sequences on an axis of tokens: packed back to back, or each at a multiple of
 * the stride. */
typedef struct bt_axis {
    size_t count;
    const size_t *lengths; /* (count) */
    size_t stride;         /* 0: packed */
} bt_axis;

/* The mask of one attention. Its own rows and keys are always packed; the axes
 * say how those of `extra` lie. */
typedef struct bt_batch_mask {
    bt_axis queries, keys;   /* causal: the queries of a sequence are its last
                                positions, so it has at least as many keys */
    const size_t *prefixes;  /* (count) of a causal one, or NULL: none */
    const size_t *windows;   /* (count) of a causal one, the sequences' own
                                sliding windows (0: none), or NULL: none */
    const bauta_mask *extra; /* hides more, or NULL */
    /* The rule of the layer, which bt_layer_mask() sets. */
    bool causal;
    size_t window; /* of a causal one; 0: none */
} bt_batch_mask;

/* What the queries of one sequence see, without `extra`. */
typedef struct bt_row_rule {
    size_t rows, keys;
    size_t window; /* 0: none */
    size_t prefix; /* at most keys */
} bt_row_rule;

/* Where nothing is causal the prefix is the whole sequence. */
static inline bt_row_rule bt_row_rule_of(const bt_batch_mask *mask,
                                         size_t sequence)
{
    bt_row_rule rule = { .rows = mask->queries.lengths[sequence],
                         .keys = mask->keys.lengths[sequence],
                         .window = mask->window };
    size_t own = mask->windows ? mask->windows[sequence] : 0;
    if (own && (own < rule.window || !rule.window))
        rule.window = own;
    if (!mask->causal)
        rule.prefix = rule.keys;
    else if (mask->prefixes)
        rule.prefix = bt_size_min(mask->prefixes[sequence], rule.keys);
    return rule;
}

/* The keys that a query sees. Both count from the sequence's first. From one
 * row to the next neither end decreases, and the two spans overlap or touch. */
static inline bauta_span bt_row_span(const bt_row_rule *rule, size_t row)
{
    size_t past = bt_mask_past(rule->rows, rule->keys, row);
    return bt_causal_span(past, rule->window, rule->prefix);
}

#endif
