/* SPDX-License-Identifier: Apache-2.0 */
/* raster.h - a picture as dots. */
#ifndef BT_RASTER_H
#define BT_RASTER_H

#include "draw/colour.h"
#include "draw/picture.h"

/* Draw the squares of a picture, without labels and border, to width x height
 * dots; a line begins every `stride` dots. A dot is 0xffRRGGBB: the largest
 * weight of the pairs that it covers, hidden where all of them are. Hatching
 * has lines `gap` dots apart. */
bauta_status bt_raster_draw(uint32_t *dots, size_t stride, size_t width,
                            size_t height, size_t gap, const bt_picture *p,
                            const bt_palette *palette, bauta_error *err);

#endif
