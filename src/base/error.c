/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - statuses and error messages. */
#include "base/error.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BT_TEXT_(x) #x
#define BT_TEXT(x) BT_TEXT_(x)

const char *bauta_version(void)
{
    return BT_TEXT(BAUTA_VERSION_MAJOR) "." BT_TEXT(
        BAUTA_VERSION_MINOR) "." BT_TEXT(BAUTA_VERSION_PATCH);
}

const char *bauta_status_text(bauta_status status)
{
    switch (status) {
#define STATUS_CASE(name, value, text) \
    case BAUTA_##name:                 \
        return text;
        BAUTA_STATUS_MAP(STATUS_CASE)
    }
    return "unknown status";
}

bauta_status bt_fail(bauta_error *err, bauta_status status, const char *format,
                     ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        err->status = status;
        vsnprintf(err->message, sizeof(err->message), format, args);
        va_end(args);
    }
    return status;
}

bauta_status bt_fail_memory(bauta_error *err, const char *what, size_t bytes)
{
    return bt_fail(err, BAUTA_ERR_NOMEM, "out of memory: %zu bytes for %s",
                   bytes, what);
}

bt_quoted bt_quote(const char *text)
{
    static const char more[] = "...";
    bt_quoted out;
    size_t length = strlen(text), kept = length;
    if (length >= sizeof(out.text)) {
        kept = sizeof(out.text) - sizeof(more);
        while (kept > 0 && bt_utf8_continues(text[kept]))
            kept--; // do not split a character
    }
    for (size_t i = 0; i < kept; i++) {
        unsigned char c = (unsigned char)text[i];
        out.text[i] = c < 0x20 || c == 0x7f ? '?' : text[i];
    }
    strcpy(out.text + kept, kept < length ? more : "");
    return out;
}
