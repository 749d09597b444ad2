/* SPDX-License-Identifier: Apache-2.0 */
/* regex_translate.h - translates Oniguruma's syntax to PCRE2's. */
#ifndef BT_REGEX_TRANSLATE_H
#define BT_REGEX_TRANSLATE_H

#include "base/error.h"

/* The pattern for PCRE2 with its options UTF, UCP and MULTILINE and a line feed
 * as the only newline; NUL-terminated, for bt_free(). Syntax with another
 * meaning in PCRE2 that is not translated is an error. */
bauta_status bt_regex_translate(char **out, size_t *out_size,
                                const char *pattern, size_t size,
                                const char *path, bauta_error *err);

/* A pattern quoted for a message; it need not be NUL-terminated. */
bt_quoted bt_regex_quote(const char *pattern, size_t size);

#endif
