/* SPDX-License-Identifier: Apache-2.0 */
/* colour.h - the colour map of attention weights.
 *
 * BT_COLOURS steps of even lightness (CIE L*), so that equal steps look equally
 * large, also in greyscale print. Hidden pairs are grey and hatched, which no
 * weight is. The light map is for paper, the dark one for dark screens. */
#ifndef BT_COLOUR_H
#define BT_COLOUR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BT_COLOURS = 256 };

typedef struct bt_colour {
    uint8_t r, g, b;
} bt_colour;

typedef struct bt_palette {
    bt_colour weight[BT_COLOURS]; /* by the square root of the weight */
    bt_colour hidden, hatch;
    bt_colour seen; /* a visible pair of a mask without weights */
    bt_colour border;
} bt_palette;

void bt_palette_init(bt_palette *palette, bool dark);

/* The colour of a weight from 0 to 1. Most attention weights are small, so the
 * map is over their square root; the legend shows it. */
size_t bt_colour_index(float weight);

#endif
