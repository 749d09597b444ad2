/* SPDX-License-Identifier: Apache-2.0 */
/* label.h - labels of rows and columns, with visible white space. */
#ifndef BT_LABEL_H
#define BT_LABEL_H

#include <stddef.h>

enum { BT_LABEL_MAX = 256 }; /* bytes, NUL included */

/* Write the label of a token. Spaces, newlines and tabs become visible
 * characters; other control characters and invalid UTF-8 become U+FFFD. After
 * `most` characters it is cut, with an ellipsis. An empty text becomes the sign
 * of the empty set; NULL becomes the number. */
void bt_label(char out[BT_LABEL_MAX], const char *text, size_t number,
              size_t most);
/* The same for a title: spaces stay spaces, and empty stays empty. */
void bt_title(char out[BT_LABEL_MAX], const char *text, size_t most);

#endif
