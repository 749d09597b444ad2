/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.h - dropout from a counter-based random number generator.
 *
 * Which elements of a row are kept depends only on the seed, the site and the
 * row's token. Sixteen counters serve 64 columns: column c uses word c % 64 /
 * 16 of
 *
 *     bt_philox(counter = { c / 64 * 16 + c % 16, site, token low, high },
 *               key     = { seed low, high })
 *
 * and is kept if that word is not less than `below`. So equal words of
 * consecutive counters serve consecutive columns, which vectorizes. A dropped
 * element becomes 0, even if it was NaN. */
#ifndef BT_DROPOUT_H
#define BT_DROPOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bt_dropout {
    size_t columns;
    uint64_t seed;
    uint32_t site;
    uint32_t below;         /* dropout rate times 2^32 */
    float scale;            /* of kept elements */
    const uint64_t *tokens; /* (rows) */
    const float *x;         /* (rows, columns) */
    float *y;               /* (rows, columns); does not overlap x */
    bool add;               /* to what y holds */
} bt_dropout;

/* Rows first to first + count - 1. */
typedef void bt_dropout_fn(const bt_dropout *dropout, size_t first,
                           size_t count);
bt_dropout_fn bt_dropout_f32_c;

#endif
