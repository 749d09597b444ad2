/* SPDX-License-Identifier: Apache-2.0 */
/* html_page.h - html_page.html as a C string, which the build makes. */
#ifndef BT_HTML_PAGE_H
#define BT_HTML_PAGE_H

/* The place of the data in it; occurs once. */
#define BT_HTML_PAGE_DATA "@DATA@"

extern const char bt_html_page_text[];

#endif
