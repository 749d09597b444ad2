/* SPDX-License-Identifier: Apache-2.0 */
/* page.h - the text of page.html, which the build makes a C string of. */
#ifndef BT_PAGE_H
#define BT_PAGE_H

/* Where the data go; it occurs once. */
#define BT_PAGE_MARK "@DATA@"

extern const char bt_page_text[];

#endif
