/* SPDX-License-Identifier: Apache-2.0 */
/* pattern_syntax.h - from Oniguruma's way of writing a pattern to PCRE2's. */
#ifndef BT_PATTERN_SYNTAX_H
#define BT_PATTERN_SYNTAX_H

#include "base/error.h"

/* The pattern for PCRE2 with its options UTF, UCP and MULTILINE, a line feed as
 * the only newline; NUL-terminated, for bt_free(). What would mean something
 * else there and is not translated is refused. */
bauta_status bt_pattern_translate(char **out, size_t *out_size,
                                  const char *pattern, size_t size,
                                  const char *path, bauta_error *err);

/* A pattern made fit for a sentence; it need not end with a NUL. */
bt_quoted bt_pattern_quote(const char *pattern, size_t size);

#endif
