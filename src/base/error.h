/* SPDX-License-Identifier: Apache-2.0 */
/* error.h - error messages, and argument checks that return one. */
#ifndef BT_ERROR_H
#define BT_ERROR_H

#include "bauta.h"

#define BT_LEN(array) (sizeof(array) / sizeof((array)[0]))

/* Fill *err, if given, with the status and the formatted message. Returns the
 * status, so that `return bt_fail(...)` does both. */
bauta_status bt_fail(bauta_error *err, bauta_status status, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));

/* The same for a failed allocation of `bytes` for `what`. */
bauta_status bt_fail_memory(bauta_error *err, const char *what, size_t bytes);

/* Untrusted text made safe for a message: truncated at a character boundary,
 * control characters replaced by '?'. Use it in place:
 *
 *     bt_fail(err, status, "tensor \"%s\" ...", bt_quote(name).text) */
typedef struct bt_quoted {
    char text[64];
} bt_quoted;
bt_quoted bt_quote(const char *text);

/* Return an error when a pointer argument is NULL. */
#define BT_NEED(pointer, err)                                             \
    do {                                                                  \
        if (!(pointer))                                                   \
            return bt_fail(err, BAUTA_ERR_ARGUMENT, #pointer " is NULL"); \
    } while (0)

/* Return an error when an array of `count` elements cannot exist. */
#define BT_NEED_COUNT(name, count, element, err)                          \
    do {                                                                  \
        if ((count) > PTRDIFF_MAX / (element))                            \
            return bt_fail(err, BAUTA_ERR_ARGUMENT,                       \
                           "%s has %zu elements, more than memory holds", \
                           name, (size_t)(count));                        \
    } while (0)

#endif
