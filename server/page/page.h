/* SPDX-License-Identifier: Apache-2.0 */
/* page.h - the files of the page at "/". They are written as they are served,
 * and compiled as strings; see CMakeLists.txt here. */
#ifndef SERVER_PAGE_H
#define SERVER_PAGE_H

/* X(name, path, type): page_name is the text. */
#define PAGE_FILES(X)                                                       \
    X(index_html, "/", "text/html; charset=utf-8")                          \
    X(style_css, "/page/style.css", "text/css; charset=utf-8")              \
    X(app_js, "/page/app.js", "text/javascript; charset=utf-8")             \
    X(api_js, "/page/api.js", "text/javascript; charset=utf-8")             \
    X(tokens_js, "/page/tokens.js", "text/javascript; charset=utf-8")       \
    X(settings_js, "/page/settings.js", "text/javascript; charset=utf-8")   \
    X(attention_js, "/page/attention.js", "text/javascript; charset=utf-8") \
    X(mark_svg, "/page/mark.svg", "image/svg+xml")

#define PAGE_TEXT(name, path, type) extern const char page_##name[];
PAGE_FILES(PAGE_TEXT)
#undef PAGE_TEXT

#endif
