/* SPDX-License-Identifier: Apache-2.0 */
/* recent.h - characters that Hugging Face's library does not know yet.
 *
 * Its categories are of old versions of Unicode, and models were trained with
 * what it made of a text. So where utf8proc's newer tables call a character a
 * mark, punctuation or control, and that library (0.23, asked about every
 * character) does not, it is none for us. */
#ifndef BT_RECENT_H
#define BT_RECENT_H

#include <stdbool.h>
#include <stdint.h>

/* No nonspacing mark, punctuation or control there. */
bool bt_is_recent(uint32_t code);
/* No mark of any kind there, for which its tables are somewhat newer. */
bool bt_is_recent_mark(uint32_t code);

#endif
