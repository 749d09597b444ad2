/* SPDX-License-Identifier: Apache-2.0 */
/* colour.h - the colours of weights.
 *
 * A scale of BT_COLOURS steps whose lightness, as CIE's L* measures it, runs
 * evenly from one end to the other, so that equal steps look equally large, in
 * print without colour, too. What is hidden is grey and hatched; no weight is.
 * The light scale is for paper, the dark one for dark screens. */
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
    bt_colour seen; /* a visible pair of a mask alone */
    bt_colour border;
} bt_palette;

void bt_palette_init(bt_palette *palette, bool dark);

/* Which of the colours a weight from 0 to 1 has. Attention spreads over many
 * keys, so most weights are small; the square root gives them more of the
 * scale, and the legend says so. */
size_t bt_colour_index(float weight);

#endif
