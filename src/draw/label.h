/* SPDX-License-Identifier: Apache-2.0 */
/* label.h - texts beside rows and columns, made fit to be seen. */
#ifndef BT_LABEL_H
#define BT_LABEL_H

#include <stddef.h>

enum { BT_LABEL_MAX = 256 }; /* bytes, NUL included */

/* Write the label that stands for `text`: blanks, newlines and tabs become
 * characters that can be seen, other control characters and what is not UTF-8
 * become U+FFFD; behind `most` characters it is cut, with an ellipsis. An empty
 * text becomes the sign of the empty set. NULL is the number. */
void bt_label(char out[BT_LABEL_MAX], const char *text, size_t number,
              size_t most);
/* The same of a title, whose blanks stay blanks; empty stays empty. */
void bt_title(char out[BT_LABEL_MAX], const char *text, size_t most);

#endif
