/* SPDX-License-Identifier: Apache-2.0 */
/* raster.h - a picture as pixels. */
#ifndef BT_RASTER_H
#define BT_RASTER_H

#include "draw/colour.h"
#include "draw/picture.h"

/* Draw the cells of a picture, without labels and border, to width x height
 * pixels of 0xffRRGGBB with `stride` pixels per line. A pixel shows the largest
 * weight of the pairs that it covers, or hidden if all of them are. Hatching
 * has lines `gap` pixels apart. */
bauta_status bt_raster_draw(uint32_t *pixels, size_t stride, size_t width,
                            size_t height, size_t gap, const bt_picture *p,
                            const bt_palette *palette, bauta_error *err);

#endif
