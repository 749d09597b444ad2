/* SPDX-License-Identifier: Apache-2.0 */
/* picture.h - checked pictures, and the functions that draw them.
 *
 * picture.c checks the caller's pictures. html_page.c writes an HTML page;
 * cairo/ draws a figure as PNG, SVG or PDF, and none/ is its substitute in a
 * build without cairo. */
#ifndef BT_PICTURE_H
#define BT_PICTURE_H

#include "bauta.h"

typedef struct bt_picture {
    bauta_picture input;    /* a copy of the caller's */
    const bauta_mask *mask; /* never NULL */
    bauta_mask *own_mask;   /* the same, if made from the weights */
    const char *title;      /* never NULL */
    char default_title[64];
} bt_picture;

typedef struct bt_figure {
    const char *title;    /* never NULL */
    size_t count, across; /* across: pictures in a row */
    bool across_chosen;   /* by the caller */
    bt_picture *pictures; /* (count) */
} bt_figure;

typedef enum bt_picture_format {
    BT_PNG,
    BT_SVG,
    BT_PDF,
    BT_HTML
} bt_picture_format;

bauta_status bt_html_page_save(const bt_figure *figure, const char *path,
                               bauta_error *err);
bauta_status bt_figure_save(const bt_figure *figure, const char *path,
                            bt_picture_format format, bauta_error *err);

/* "encoder", "decoder" or "cross". */
const char *bt_attention_name(bauta_attention_kind at);

#endif
