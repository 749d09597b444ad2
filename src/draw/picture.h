/* SPDX-License-Identifier: Apache-2.0 */
/* picture.h - pictures that were checked, and who draws them.
 *
 * picture.c checks what a caller gave and chooses who draws: page.c writes a
 * page of HTML; cairo/ draws sheets, or none/ says that it cannot. */
#ifndef BT_PICTURE_H
#define BT_PICTURE_H

#include "bauta.h"

typedef struct bt_picture {
    const bauta_picture *of;
    const bauta_mask *mask; /* never NULL */
    bauta_mask *own;        /* the same, where it was made from the weights */
    const char *title;      /* never NULL */
    char words[64];         /* where there was no title */
} bt_picture;

typedef struct bt_sheet {
    const char *title; /* never NULL */
    size_t count, across;
    bt_picture *pictures; /* (count) */
} bt_sheet;

typedef enum bt_format { BT_PNG, BT_SVG, BT_PDF, BT_HTML } bt_format;

bauta_status bt_page_save(const bt_sheet *sheet, const char *path,
                          bauta_error *err);
bauta_status bt_sheet_save(const bt_sheet *sheet, const char *path,
                           bt_format format, bauta_error *err);

/* "encoder", "decoder" or "cross". */
const char *bt_look_text(bauta_look_at at);

#endif
