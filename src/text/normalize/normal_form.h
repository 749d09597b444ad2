/* SPDX-License-Identifier: Apache-2.0 */
/* normal_form.h - the four Unicode normalization forms, in time linear in the
 * text. */
#ifndef BT_NORMAL_FORM_H
#define BT_NORMAL_FORM_H

#include "text/aligned_text.h"

typedef enum bt_unicode_form {
    BT_NFD,
    BT_NFC,
    BT_NFKD,
    BT_NFKC
} bt_unicode_form;

/* Rewrite a text; one that is normalized already is not copied. A composed
 * character has the origin of its base. */
bauta_status bt_unicode_normalize(bt_aligned_text *text, bt_unicode_form form,
                                  bauta_error *err);

#endif
