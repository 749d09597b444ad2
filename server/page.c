/* SPDX-License-Identifier: Apache-2.0 */
/* page.c - the page at "/" and its files. They need no API key, so they name
 * nothing but the program; the page asks for a key where the server does. */
#include "page/page.h"
#include "state.h"

#include <string.h>

static bool text_answer(const char *text, const char *type, reply *out,
                        failure *f)
{
    out->type = type;
    buffer_add(&out->text, text, strlen(text));
    return !out->text.failed || fail(f, 503, NULL, NULL, "out of memory");
}

#define PAGE_ANSWER(name, path, type)                                       \
    bool page_##name##_answer(const api_request *q, reply *out, failure *f) \
    {                                                                       \
        (void)q;                                                            \
        return text_answer(page_##name, type, out, f);                      \
    }
PAGE_FILES(PAGE_ANSWER)
