/* SPDX-License-Identifier: Apache-2.0 */
/* char_map.h - rewriting a text character by character. */
#ifndef BT_CHAR_MAP_H
#define BT_CHAR_MAP_H

#include "text/text.h"

enum { BT_CHAR_MAP_MAX = 3 };

/* What a character becomes: none to three characters. */
typedef size_t bt_char_map_fn(uint32_t out[BT_CHAR_MAP_MAX], uint32_t code,
                              unsigned flags);

/* All that a character becomes has its origin. A text that stays as it is is
 * not copied. */
bauta_status bt_char_map(bt_text *text, bt_char_map_fn *map, unsigned flags,
                         bauta_error *err);

#endif
