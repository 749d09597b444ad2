/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_chat_template.c - any bytes as a chat template and, after the first NUL,
 * as its variables.
 *
 * A template is refused with a message or renders to UTF-8, twice the same. */
#include "base/utf8.h"
#include "checks.h"

#include <string.h>

static const char chat[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, "
    "{\"role\": \"user\", \"content\": \" Gr\\u00fc\\u00dfe \\n\"}, {\"role\": "
    "\"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"c1\", "
    "\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1.5}}}]}], "
    "\"tools\": [{\"type\": \"function\"}], \"add_generation_prompt\": true, "
    "\"bos_token\": \"<s>\", \"strftime_now\": \"2026-11-16T12:34:56\"}";

static char *render(const bauta_chat_template *t, const char *variables,
                    size_t size, size_t *length)
{
    char *text;
    bauta_error err = { 0 };
    bauta_status status =
        bauta_chat_template_render(t, variables, size, &text, length, &err);
    must(!text == !!status);
    if (status)
        must_refuse(status, &err);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    bauta_chat_template *t;
    bauta_error err = { 0 };
    const char *text = (const char *)bytes;
    const char *nul = size ? memchr(text, '\0', size) : NULL;
    size_t first = nul ? (size_t)(nul - text) : size;
    bauta_status status =
        bauta_chat_template_create(&t, size ? text : "", first, &err);
    must(!t == !!status);
    if (status) {
        must_refuse(status, &err);
        return 0;
    }
    const char *variables = nul ? nul + 1 : chat;
    size_t left = nul ? size - first - 1 : sizeof(chat) - 1, length, again;
    char *one = render(t, variables, left, &length);
    if (one && !nul) { // the variables fix the time
        char *two = render(t, variables, left, &again);
        must(two && length == again && !memcmp(one, two, length));
        bauta_text_free(two);
    }
    if (one)
        must(bt_utf8_valid_prefix(one, length) == length);
    bauta_text_free(one);
    bauta_chat_template_free(t);
    return 0;
}
